//! What the kernels get: the filter's bits, and one batch of keys with room for its survivors.

/// Most hashes a key: as many seeds as a 512-bit register has lanes, so that a lane picks its seed with one
/// permutation.
pub(super) const HASHES_MAX: usize = 16;

/// The filter, as kernels see it.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    /// A power of two of words.
    pub(super) words: &'a [u32],
    /// 32 − log2 of the number of words: `hash >> shift` is the word's place, which therefore always lies
    /// in `words`.
    pub(super) shift: u32,
    /// 1 to [`HASHES_MAX`].
    pub(super) hashes: usize,
    /// One for each hash; 0 beyond those.
    pub(super) seeds: &'a [u32; HASHES_MAX],
}

impl<'a> Bits<'a> {
    /// Checks what the kernels' unsafe reads rely on.
    #[inline]
    pub(super) fn new(words: &'a [u32], hashes: usize, seeds: &'a [u32; HASHES_MAX]) -> Self {
        assert!(words.len().is_power_of_two() && words.len() <= 1 << 27);
        assert!((1..=HASHES_MAX).contains(&hashes));
        Self { words, shift: 32 - words.len().trailing_zeros(), hashes, seeds }
    }

    /// The word of the bit that a hash stands for.
    #[inline(always)]
    pub(super) fn place(&self, hash: u32) -> usize {
        // As 64 bits: a filter of one word shifts by 32.
        (u64::from(hash) >> self.shift) as usize
    }

    /// Asks for the word of the bit that a hash stands for.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u32) {
        crate::memory::prefetch(self.words, self.place(hash));
    }
}

/// Keys with payloads, and room for as many of them as may survive.
pub(super) struct Batch<'a> {
    /// As long as `payloads`.
    pub(super) keys: &'a [u32],
    pub(super) payloads: &'a [u32],
    pub(super) out: Out<'a>,
}

/// Where survivors go.
pub(super) struct Out<'a> {
    /// As long as `payloads`, and at least as long as the batch.
    pub(super) keys: &'a mut [u32],
    pub(super) payloads: &'a mut [u32],
    /// Survivors so far.
    pub(super) len: usize,
}

impl<'a> Batch<'a> {
    /// Checks what the kernels' unsafe loads and stores rely on.
    ///
    /// # Panics
    /// Where there are not as many payloads as keys, or less room than keys.
    #[inline]
    pub(super) fn new(
        keys: &'a [u32],
        payloads: &'a [u32],
        out_keys: &'a mut [u32],
        out_payloads: &'a mut [u32],
    ) -> Self {
        assert_eq!(keys.len(), payloads.len(), "as many payloads as keys");
        let room = keys.len();
        let out = Out { keys: &mut out_keys[..room], payloads: &mut out_payloads[..room], len: 0 };
        Self { keys, payloads, out }
    }
}

impl Out<'_> {
    /// Adds a survivor.
    #[inline(always)]
    pub(super) fn push(&mut self, key: u32, payload: u32) {
        self.keys[self.len] = key;
        self.payloads[self.len] = payload;
        self.len += 1;
    }
}

/// One algorithm of [`BloomFilter::survivors`](super::BloomFilter::survivors).
pub(super) trait Survive {
    /// Leaves the survivors in the batch's `out`, `U` vectors side by side.
    fn survive<const U: usize, const PREFETCH: bool>(self, bits: Bits<'_>, batch: &mut Batch<'_>);
}
