//! A bucket and the protocol between the writer and its readers: a sequence lock in every bucket.
//!
//! The writer makes the versions of all buckets that a change concerns odd, changes them, and makes the
//! versions even again. A reader takes a version before it reads and, after it has read everything that
//! its answer depends on (the entry's key and value too), asks whether the version is still the same.
//! Everything in between is atomics in relaxed order; the two fences are those of Boehm, *Can Seqlocks Get
//! Along with Programming Language Memory Models?* (MSPC 2012), figure 6.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::sync::{AtomicU32, AtomicU64, fence};

/// Keys in a bucket.
pub(super) const SLOTS: usize = 8;

/// Half a cache line.
#[derive(Default, Debug)]
#[repr(C, align(32))]
pub(super) struct Bucket {
    /// Two signatures of 16 bits in each word, 0 where the slot is free.
    signatures: [AtomicU32; SLOTS / 2],
    /// A Bloom filter of the keys whose primary bucket this is but which are in their alternate one.
    filter: AtomicU64,
    /// Odd while the writer is at work.
    version: AtomicU32,
    spare: u32,
}

#[cfg(not(all(loom, test)))]
const _: () = assert!(2 * size_of::<Bucket>() == crate::memory::LINE_BYTES);

#[cfg(all(target_arch = "x86_64", not(all(loom, test))))]
const _: () = assert!(
    std::mem::offset_of!(Bucket, filter) == 16
        && std::mem::offset_of!(Bucket, version) == 16 + 4 * Bucket::VERSION_WORD as usize
);

#[cfg(not(all(loom, test)))]
// SAFETY: atomics and an integer, for which zero is a value; aligned to half a line.
unsafe impl crate::memory::Zeroed for Bucket {}

impl Bucket {
    /// Where a bucket's signatures are, in bytes from the first bucket: for probes.
    #[inline(always)]
    pub(super) fn signatures_at(bucket: u32) -> usize {
        bucket as usize * size_of::<Self>()
    }

    /// Returns the offset of a bucket's filter.
    #[inline(always)]
    pub(super) fn filter_at(bucket: u32) -> usize {
        Self::signatures_at(bucket) + std::mem::offset_of!(Self, filter)
    }

    /// Returns the offset of a bucket's version.
    #[inline(always)]
    pub(super) fn version_at(bucket: u32) -> usize {
        Self::signatures_at(bucket) + std::mem::offset_of!(Self, version)
    }

    /// Begins to read: the version to be handed to [`is_unchanged`](Self::is_unchanged).
    #[inline(always)]
    pub(super) fn version(&self) -> u32 {
        self.version.load(Acquire)
    }

    /// Returns whether all that was read between [`version`](Self::version) and now was there at one time.
    #[inline(always)]
    pub(super) fn is_unchanged(&self, version: u32) -> bool {
        self.change_since(version) == 0
    }

    /// Not 0 where not [`is_unchanged`](Self::is_unchanged).
    #[inline(always)]
    pub(super) fn change_since(&self, version: u32) -> u32 {
        fence(Acquire);
        (version & 1) | (self.version.load(Relaxed) ^ version)
    }

    /// Returns the slots that are taken, a bit each.
    pub(super) fn taken(&self) -> u32 {
        !self.matches(0) & ((1 << SLOTS) - 1)
    }

    /// Returns whether keys with this signature may be in their alternate bucket, this being their primary one.
    #[inline(always)]
    pub(super) fn may_have_moved(&self, signature: u16) -> bool {
        self.filter() & Self::filter_bit(signature) != 0
    }

    /// Returns the slots with this signature, a bit each; [`super::scalar::matches`].
    #[inline(always)]
    pub(super) fn matches(&self, signature: u16) -> u32 {
        let pair = |i: usize| {
            let [low, high] = [2 * i, 2 * i + 1].map(|word| u64::from(self.signatures[word].load(Relaxed)));
            low | high << 32
        };
        super::scalar::matches([pair(0), pair(1)], signature)
    }

    /// Returns all signatures, for reading them as a vector.
    #[cfg(not(any(all(loom, test), miri)))]
    #[inline(always)]
    pub(super) fn signatures(&self) -> *const [AtomicU32; SLOTS / 2] {
        &raw const self.signatures
    }

    /// Bytes from the beginning to filter and version, which are side by side in 16 bytes.
    #[cfg(all(target_arch = "x86_64", not(all(loom, test)), not(miri)))]
    pub(super) const STATE_AT: usize = std::mem::offset_of!(Self, filter);

    /// Which word of those 16 bytes is the version.
    #[cfg(target_arch = "x86_64")]
    pub(super) const VERSION_WORD: i32 = 2;

    /// Filter and version as [`STATE_AT`](Self::STATE_AT) has them.
    #[cfg(all(target_arch = "x86_64", any(all(loom, test), miri)))]
    pub(super) fn state(&self) -> [u32; 4] {
        let version = self.version();
        let filter = self.filter();
        [filter as u32, (filter >> 32) as u32, version, 0]
    }

    /// Returns a copy of all signatures.
    #[cfg(any(all(loom, test), miri))]
    pub(super) fn signatures(&self) -> [u32; SLOTS / 2] {
        std::array::from_fn(|word| self.signatures[word].load(Relaxed))
    }

    #[inline(always)]
    pub(super) fn signature(&self, slot: usize) -> u16 {
        (self.signatures[slot / 2].load(Relaxed) >> (slot % 2 * 16)) as u16
    }

    /// Returns the first free slot. For the writer.
    pub(super) fn free_slot(&self) -> Option<usize> {
        let free = self.matches(0);
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// Gives a slot a signature, or with 0 frees it; only while [`Writing`].
    pub(super) fn set_signature(&self, slot: usize, signature: u16) {
        let word = &self.signatures[slot / 2];
        let shift = slot % 2 * 16;
        // There is one writer, so that no other thread changes the word in between.
        word.store(word.load(Relaxed) & !(0xffff << shift) | u32::from(signature) << shift, Relaxed);
    }

    /// Returns the bit of a signature in the filter.
    #[inline(always)]
    pub(super) fn filter_bit(signature: u16) -> u64 {
        1 << (signature >> 10)
    }

    /// Returns the filter of the keys that moved away.
    #[inline(always)]
    pub(super) fn filter(&self) -> u64 {
        self.filter.load(Relaxed)
    }

    /// Replaces the filter; only while [`Writing`].
    pub(super) fn set_filter(&self, filter: u64) {
        self.filter.store(filter, Relaxed);
    }
}

/// Buckets under change, until dropped.
#[derive(Debug)]
pub(super) struct Writing<'a, const N: usize>([&'a Bucket; N]);

impl<'a, const N: usize> Writing<'a, N> {
    /// Makes the versions odd. The buckets must be different ones.
    pub(super) fn begin(buckets: [&'a Bucket; N]) -> Self {
        for bucket in buckets {
            bucket.version.store(bucket.version.load(Relaxed).wrapping_add(1), Relaxed);
        }
        // A reader that sees any of the changes that follow sees the odd versions.
        fence(Release);
        Self(buckets)
    }
}

impl<const N: usize> Drop for Writing<'_, N> {
    fn drop(&mut self) {
        for bucket in self.0 {
            bucket.version.store(bucket.version.load(Relaxed).wrapping_add(1), Release);
        }
    }
}
