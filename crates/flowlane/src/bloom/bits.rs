//! The view of a filter that kernels get.

use super::scalar;

/// Most hashes a key: as many seeds as a 512-bit register has lanes, so that a lane picks its seed with one
/// permutation.
pub const HASHES_MAX: usize = 16;

/// A filter's bits and hashes, to be read: what its kernels get, and those of `flowlane-paper`.
///
/// Its existence guarantees that there are as many words as hashes reach.
#[derive(Clone, Copy, Debug)]
pub struct Bits<'a> {
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

    /// A power of two of words, at most 2^27.
    #[inline(always)]
    pub fn words(&self) -> &'a [u32] {
        self.words
    }

    /// Hashes of a key: 1 to [`HASHES_MAX`].
    #[inline(always)]
    pub fn hashes(&self) -> usize {
        self.hashes
    }

    /// A seed for each hash, and zeros behind.
    #[inline(always)]
    pub fn seeds(&self) -> &'a [u32; HASHES_MAX] {
        self.seeds
    }

    /// Returns whether all bits of a 32-bit key are set: the scalar definition.
    #[inline(always)]
    pub fn contains(&self, key: u32) -> bool {
        self.seeds[..self.hashes].iter().all(|seed| scalar::test(*self, scalar::hash(key, *seed)))
    }

    /// Returns the word of a hash's bit.
    #[inline(always)]
    pub(super) fn place(&self, hash: u32) -> usize {
        // As 64 bits: a filter of one word shifts by 32.
        (u64::from(hash) >> self.shift) as usize
    }

    /// Prefetches the word of a hash's bit.
    #[inline(always)]
    pub fn prefetch(&self, hash: u32) {
        crate::memory::prefetch(self.words, self.place(hash));
    }
}
