//! The entries: key, value and time of last use, in an array beside the buckets.

use std::sync::atomic::Ordering::Relaxed;

use super::sync::{AtomicU64, Memory};
use crate::memory::{LINE_BYTES, prefetch};

/// 64-bit words of an entry of `words` key words: whole fractions of a cache line where they suffice, so
/// that an entry lies in one line (in two where the key has more than 12 words).
const fn stride(words: usize) -> usize {
    match key_pairs(words) + 2 {
        ..=4 => 4,
        5..=8 => 8,
        more => more,
    }
}

/// 64-bit words of a key.
const fn key_pairs(words: usize) -> usize {
    words.div_ceil(2)
}

/// The pair `i` of the words of a key.
#[inline(always)]
fn pair<const W: usize>(key: &[u32; W], i: usize) -> u64 {
    let high = if 2 * i + 1 < W { key[2 * i + 1] } else { 0 };
    u64::from(key[2 * i]) | u64::from(high) << 32
}

/// All entries of a table.
#[derive(Debug)]
pub(super) struct Entries<const W: usize> {
    words: Memory<AtomicU64>,
}

impl<const W: usize> Entries<W> {
    pub(super) fn zeroed(entries: usize) -> Self {
        Self { words: Memory::zeroed(entries * EntriesView::<W>::STRIDE) }
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.words.size_bytes()
    }

    #[inline(always)]
    pub(super) fn view(&self) -> EntriesView<'_, W> {
        EntriesView { words: &self.words }
    }
}

/// What can be done with entries.
#[derive(Clone, Copy)]
pub(super) struct EntriesView<'a, const W: usize> {
    words: &'a [AtomicU64],
}

impl<'a, const W: usize> EntriesView<'a, W> {
    const STRIDE: usize = stride(W);
    const VALUE: usize = key_pairs(W);
    const USED: usize = key_pairs(W) + 1;

    #[inline(always)]
    fn words(self, entry: u32) -> &'a [AtomicU64] {
        &self.words[entry as usize * Self::STRIDE..][..Self::STRIDE]
    }

    /// Asks for the lines of an entry.
    #[inline(always)]
    pub(super) fn prefetch(self, entry: u32) {
        prefetch(self.words, entry as usize * Self::STRIDE);
        self.prefetch_rest(entry);
    }

    /// Asks for the second line of an entry that has one.
    #[inline(always)]
    pub(super) fn prefetch_rest(self, entry: u32) {
        if Self::STRIDE * 8 > LINE_BYTES {
            prefetch(self.words, entry as usize * Self::STRIDE + Self::USED);
        }
    }

    /// Where an entry begins, for prefetching only.
    #[inline(always)]
    pub(super) fn address(self, entry: u32) -> *const u8 {
        self.words.as_ptr().wrapping_add(entry as usize * Self::STRIDE).cast()
    }

    #[inline(always)]
    pub(super) fn key_is(self, entry: u32, key: &[u32; W]) -> bool {
        let words = self.words(entry);
        let mut different = 0;
        for (i, word) in words[..Self::VALUE].iter().enumerate() {
            different |= word.load(Relaxed) ^ pair(key, i);
        }
        different == 0
    }

    pub(super) fn key(self, entry: u32) -> [u32; W] {
        let words = self.words(entry);
        std::array::from_fn(|w| (words[w / 2].load(Relaxed) >> (w % 2 * 32)) as u32)
    }

    #[inline(always)]
    pub(super) fn value(self, entry: u32) -> u64 {
        self.words(entry)[Self::VALUE].load(Relaxed)
    }

    /// When the key was last used or written, in the caller's unit.
    #[inline(always)]
    pub(super) fn used(self, entry: u32) -> u64 {
        self.words(entry)[Self::USED].load(Relaxed)
    }

    /// Notes a use. Readers may do so: should the entry meanwhile belong to another key, that key counts
    /// as used.
    #[inline(always)]
    pub(super) fn set_used(self, entry: u32, now: u64) {
        let used = &self.words(entry)[Self::USED];
        // A line that many readers hold is written only where the time is another.
        if used.load(Relaxed) != now {
            used.store(now, Relaxed);
        }
    }

    /// Replaces the value: one word, so that readers see the one or the other.
    pub(super) fn set_value(self, entry: u32, value: u64) {
        // What the value refers to is visible to those who read it before an acquire fence, as all do.
        self.words(entry)[Self::VALUE].store(value, std::sync::atomic::Ordering::Release);
    }

    /// Fills an entry that no slot refers to.
    pub(super) fn write(self, entry: u32, key: &[u32; W], value: u64, now: u64) {
        let words = self.words(entry);
        for (i, word) in words[..Self::VALUE].iter().enumerate() {
            word.store(pair(key, i), Relaxed);
        }
        words[Self::VALUE].store(value, Relaxed);
        words[Self::USED].store(now, Relaxed);
    }
}
