//! The arguments of kernels beside the filter: one batch of keys, with room for its survivors.

use super::bits::Bits;

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
