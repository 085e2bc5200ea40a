//! A bucket and the protocol between the writer and its readers: a sequence lock in every bucket.
//!
//! The writer makes the versions of all buckets that a change concerns odd, changes them, and makes the
//! versions even again. A reader takes a version before it reads and, after it has read everything that
//! its answer depends on (the entry's key and value too), asks whether the version is still the same.
//! Everything in between is atomics in relaxed order; the two fences are those of Boehm, *Can Seqlocks Get
//! Along with Programming Language Memory Models?* (MSPC 2012), figure 6.
//!
//! Two layouts, chosen by the words of a key; the protocol is the same. Short keys lie in the bucket with
//! their values; of longer ones it has signatures and the numbers of their entries.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::sync::{AtomicU32, fence};

/// Words of a bucket: one cache line.
const WORDS: usize = 16;

/// The word with the version. Where keys are inside it has, from below, a bit for each slot taken, the
/// filter where no other word is left for it, and the version in the rest.
const VERSION: usize = WORDS - 1;

/// One cache line.
#[derive(Default, Debug)]
#[repr(C, align(64))]
pub(super) struct Bucket<const W: usize> {
    words: [AtomicU32; WORDS],
}

#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Bucket<1>>() == crate::memory::LINE_BYTES);

#[cfg(not(all(loom, test)))]
// SAFETY: atomics, for which zero is a value; aligned to a line.
unsafe impl<const W: usize> crate::memory::Zeroed for Bucket<W> {}

/// The layout.
impl<const W: usize> Bucket<W> {
    /// Whether keys and values are in the bucket: where three of them fit.
    pub(super) const KEYS_INSIDE: bool = W <= 4;

    /// Keys in a bucket.
    pub(super) const SLOTS: usize = if Self::KEYS_INSIDE { (WORDS - 1) / (W + 1) } else { 8 };

    /// A bit for each slot.
    pub(super) const ALL: u32 = (1 << Self::SLOTS) - 1;

    /// The first value. The first key is in word 0.
    const VALUES: usize = VERSION - Self::SLOTS;

    /// The first entry number, behind the signatures: two in a word, 0 where the slot is free.
    const ENTRIES: usize = 4;

    /// Where the filter of moved keys begins.
    const FILTER: usize = if !Self::KEYS_INSIDE {
        Self::ENTRIES + Self::SLOTS
    } else if Self::SLOTS * W < Self::VALUES {
        Self::SLOTS * W
    } else {
        VERSION
    };
    const FILTER_SHIFT: usize = if Self::FILTER == VERSION { Self::SLOTS } else { 0 };
    const FILTER_BITS: u32 = match Self::FILTER {
        VERSION => 8,
        _ if Self::KEYS_INSIDE => 32,
        _ => 64,
    };
    const FILTER_MASK: u32 = (u64::MAX >> (64 - if Self::FILTER_BITS == 8 { 8 } else { 32 })) as u32;

    /// What is added to the version at the begin and at the end of a change: its lowest bit.
    const ODD: u32 = match (Self::KEYS_INSIDE, Self::FILTER) {
        (true, VERSION) => 1 << (Self::SLOTS + 8),
        (true, _) => 1 << Self::SLOTS,
        (false, _) => 1,
    };
}

/// What a reader found of the version, and with it which slots are taken where keys are inside.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Version(u32);

impl<const W: usize> Bucket<W> {
    /// Begins to read: the version to be handed to [`is_unchanged`](Self::is_unchanged).
    #[inline(always)]
    pub(super) fn version(&self) -> Version {
        Version(self.words[VERSION].load(Acquire))
    }

    /// Whether all that was read between [`version`](Self::version) and now was there at one time.
    #[inline(always)]
    pub(super) fn is_unchanged(&self, version: Version) -> bool {
        fence(Acquire);
        (version.0 & Self::ODD) | (self.words[VERSION].load(Relaxed) ^ version.0) == 0
    }

    /// The slots that are taken, a bit each.
    #[inline(always)]
    pub(super) fn taken(&self, version: Version) -> u32 {
        if Self::KEYS_INSIDE { version.0 & Self::ALL } else { !self.matches(0) & Self::ALL }
    }

    /// Whether keys with this signature may be in their alternate bucket, this being their primary one: 0
    /// or 1.
    #[inline(always)]
    pub(super) fn moved_bit(&self, signature: u16) -> u32 {
        let bit = u32::from(signature) >> (16 - Self::FILTER_BITS.ilog2());
        let word = Self::FILTER + if Self::FILTER_BITS == 64 { bit as usize / 32 } else { 0 };
        self.words[word].load(Relaxed) >> (Self::FILTER_SHIFT as u32 + bit % 32) & 1
    }

    /// The value of the key in a slot, where keys are inside.
    #[inline(always)]
    pub(super) fn value(&self, slot: usize) -> u32 {
        self.words[(Self::VALUES + slot) % WORDS].load(Relaxed)
    }

    /// The key in a slot, where keys are inside.
    pub(super) fn key(&self, slot: usize) -> [u32; W] {
        std::array::from_fn(|w| self.words[slot * W + w].load(Relaxed))
    }

    /// The slots with this key, taken or not, a bit each, where keys are inside.
    #[inline(always)]
    pub(super) fn holders(&self, key: &[u32; W]) -> u32 {
        (0..Self::SLOTS).fold(0, |holders, slot| {
            let different = (0..W).fold(0, |d, w| d | (self.words[slot * W + w].load(Relaxed) ^ key[w]));
            holders | u32::from(different == 0) << slot
        })
    }

    /// The slots with this signature, a bit each, where keys are outside; [`super::scalar::matches`].
    #[inline(always)]
    pub(super) fn matches(&self, signature: u16) -> u32 {
        let pair = |i: usize| {
            let [low, high] = [2 * i, 2 * i + 1].map(|word| u64::from(self.words[word].load(Relaxed)));
            low | high << 32
        };
        super::scalar::matches([pair(0), pair(1)], signature)
    }

    #[inline(always)]
    pub(super) fn signature(&self, slot: usize) -> u16 {
        (self.words[slot / 2].load(Relaxed) >> (slot % 2 * 16)) as u16
    }

    /// The entry of the key in a slot, where keys are outside.
    #[inline(always)]
    pub(super) fn entry(&self, slot: usize) -> u32 {
        self.words[Self::ENTRIES + slot % 8].load(Relaxed)
    }

    /// All words, for reading them as vectors: relaxed reads, in assembly.
    #[cfg(all(target_arch = "x86_64", not(all(loom, test)), not(miri)))]
    #[inline(always)]
    pub(super) fn line(&self) -> *const [AtomicU32; WORDS] {
        &raw const self.words
    }

    /// A copy of all words.
    #[cfg(all(target_arch = "x86_64", any(all(loom, test), miri)))]
    pub(super) fn line(&self) -> [u32; WORDS] {
        std::array::from_fn(|word| self.words[word].load(Relaxed))
    }
}

/// For the writer; what changes a bucket, only while [`Writing`].
impl<const W: usize> Bucket<W> {
    /// The first free slot.
    pub(super) fn free_slot(&self) -> Option<usize> {
        let free = !self.taken(Version(self.words[VERSION].load(Relaxed))) & Self::ALL;
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// Fills a slot with a key, where keys are inside.
    pub(super) fn set_key(&self, slot: usize, key: &[u32; W], value: u32) {
        for (w, word) in key.iter().enumerate() {
            self.words[slot * W + w].store(*word, Relaxed);
        }
        self.words[Self::VALUES + slot].store(value, Relaxed);
        self.set_bits(VERSION, 1 << slot, 1 << slot);
    }

    /// Replaces a value, where keys are inside: one word, so that readers see the one or the other. This
    /// needs no [`Writing`].
    pub(super) fn set_value(&self, slot: usize, value: u32) {
        // What the value refers to is visible to those who read it before an acquire fence, as all do.
        self.words[Self::VALUES + slot].store(value, Release);
    }

    /// Fills a slot with a signature and the number of an entry, where keys are outside.
    pub(super) fn set_entry(&self, slot: usize, signature: u16, entry: u32) {
        self.words[Self::ENTRIES + slot].store(entry, Relaxed);
        self.set_signature(slot, signature);
    }

    /// Fills a slot with what slot `other` of another bucket has.
    pub(super) fn copy_slot(&self, slot: usize, from: &Self, other: usize) {
        if Self::KEYS_INSIDE {
            self.set_key(slot, &from.key(other), from.value(other));
        } else {
            self.set_entry(slot, from.signature(other), from.entry(other));
        }
    }

    /// Frees a slot.
    pub(super) fn clear_slot(&self, slot: usize) {
        if Self::KEYS_INSIDE {
            self.set_bits(VERSION, 1 << slot, 0);
        } else {
            self.set_signature(slot, 0);
        }
    }

    /// The bit of a signature in the filter.
    pub(super) fn filter_bit(signature: u16) -> u64 {
        1 << (u32::from(signature) >> (16 - Self::FILTER_BITS.ilog2()))
    }

    /// The filter: of the keys whose primary bucket this is but which are in their alternate one.
    pub(super) fn filter(&self) -> u64 {
        let word = |i: usize| u64::from(self.words[Self::FILTER + i].load(Relaxed) >> Self::FILTER_SHIFT);
        let low = word(0) & u64::from(Self::FILTER_MASK);
        if Self::FILTER_BITS == 64 { low | word(1) << 32 } else { low }
    }

    /// Replaces the filter.
    pub(super) fn set_filter(&self, filter: u64) {
        let [mask, low] = [Self::FILTER_MASK, filter as u32].map(|bits| bits << Self::FILTER_SHIFT);
        self.set_bits(Self::FILTER, mask, low);
        if Self::FILTER_BITS == 64 {
            self.words[Self::FILTER + 1].store((filter >> 32) as u32, Relaxed);
        }
    }

    fn set_signature(&self, slot: usize, signature: u16) {
        let shift = slot % 2 * 16;
        self.set_bits(slot / 2, 0xffff << shift, u32::from(signature) << shift);
    }

    fn set_bits(&self, word: usize, mask: u32, bits: u32) {
        let word = &self.words[word];
        // There is one writer, so that nobody changes the word in between.
        word.store(word.load(Relaxed) & !mask | bits, Relaxed);
    }

    fn next_version(&self) -> u32 {
        self.words[VERSION].load(Relaxed).wrapping_add(Self::ODD)
    }
}

/// Buckets under change, until dropped.
#[derive(Debug)]
pub(super) struct Writing<'a, const W: usize, const N: usize>([&'a Bucket<W>; N]);

impl<'a, const W: usize, const N: usize> Writing<'a, W, N> {
    /// Makes the versions odd. The buckets must be different ones.
    pub(super) fn begin(buckets: [&'a Bucket<W>; N]) -> Self {
        for bucket in buckets {
            bucket.words[VERSION].store(bucket.next_version(), Relaxed);
        }
        // Whoever sees any of the changes that follow sees the odd versions.
        fence(Release);
        Self(buckets)
    }
}

impl<const W: usize, const N: usize> Drop for Writing<'_, W, N> {
    fn drop(&mut self) {
        for bucket in self.0 {
            bucket.words[VERSION].store(bucket.next_version(), Release);
        }
    }
}
