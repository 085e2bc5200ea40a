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
    /// Four signatures of 16 bits in each word, 0 where the slot is free.
    signatures: [AtomicU64; SLOTS / 4],
    /// A Bloom filter of the keys whose primary bucket this is but which are in their alternate one.
    filter: AtomicU64,
    /// Odd while the writer is at work.
    version: AtomicU32,
    /// The slots whose keys have their primary bucket elsewhere, a bit each; none of a free slot. For the writer, beside what it
    /// changes.
    displaced: AtomicU32,
}

#[cfg(not(all(loom, test)))]
const _: () = assert!(2 * size_of::<Bucket>() == crate::memory::LINE_BYTES);

#[cfg(not(all(loom, test)))]
const _: () =
    assert!(std::mem::offset_of!(Bucket, signatures) == 0 && std::mem::offset_of!(Bucket, filter) == 16);

#[cfg(all(target_arch = "x86_64", not(all(loom, test))))]
const _: () = assert!(
    std::mem::offset_of!(Bucket, filter) == 16
        && std::mem::offset_of!(Bucket, version) == 16 + 4 * Bucket::VERSION_WORD as usize
);

#[cfg(not(all(loom, test)))]
// SAFETY: atomics, for which zero is a value; aligned to half a line.
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

    /// Reads the version, for a reader that puts the fences between the reads of several buckets itself.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) fn version_relaxed(&self) -> u32 {
        self.version.load(Relaxed)
    }

    /// Returns the version, to be read as [`version_relaxed`](Self::version_relaxed) does.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) fn version_word(&self) -> &AtomicU32 {
        &self.version
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
    #[inline(always)]
    pub(super) fn taken(&self) -> u32 {
        !self.find(0) & ((1 << SLOTS) - 1)
    }

    /// Returns whether keys with this signature may be in their alternate bucket, this being their primary one.
    #[inline(always)]
    pub(super) fn may_have_moved(&self, signature: u16) -> bool {
        self.filter() & Self::filter_bit(signature) != 0
    }

    /// Returns the slots with this signature, a bit each; [`super::scalar::matches`].
    #[inline(always)]
    pub(super) fn matches(&self, signature: u16) -> u32 {
        super::scalar::matches(self.words(), signature)
    }

    /// Returns the words of the signatures.
    #[inline(always)]
    fn words(&self) -> [u64; SLOTS / 4] {
        [self.signatures[0].load(Relaxed), self.signatures[1].load(Relaxed)]
    }

    /// [`matches`](Self::matches) by the instructions that every CPU of the architecture has: for the writer, which has no
    /// variants.
    #[inline(always)]
    pub(super) fn find(&self, signature: u16) -> u32 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::*;
            let [low, high] = self.words().map(u64::cast_signed);
            // SAFETY: SSE2, which every x86-64 has.
            unsafe {
                let equal =
                    _mm_cmpeq_epi16(_mm_set_epi64x(high, low), _mm_set1_epi16(signature.cast_signed()));
                _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())).cast_unsigned()
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        self.matches(signature)
    }

    /// Returns all signatures, for reading them as a vector.
    #[cfg(not(any(all(loom, test), miri)))]
    #[inline(always)]
    pub(super) fn signatures(&self) -> *const [AtomicU64; SLOTS / 4] {
        &raw const self.signatures
    }

    /// Bytes from the beginning to filter and version, which are side by side in 16 bytes.
    #[cfg(all(target_arch = "x86_64", not(all(loom, test)), not(miri)))]
    pub(super) const STATE_AT: usize = std::mem::offset_of!(Self, filter);

    /// Which word of those 16 bytes is the version.
    #[cfg(target_arch = "x86_64")]
    pub(super) const VERSION_WORD: i32 = 2;

    /// Filter and version as [`STATE_AT`](Self::STATE_AT) has them.
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), any(all(loom, test), miri)))]
    pub(super) fn state(&self) -> [u32; 4] {
        let version = self.version();
        let filter = self.filter();
        [filter as u32, (filter >> 32) as u32, version, 0]
    }

    /// Returns a copy of all signatures.
    #[cfg(any(all(loom, test), miri))]
    pub(super) fn signatures(&self) -> [u32; SLOTS / 2] {
        let words = self.words();
        std::array::from_fn(|half| (words[half / 2] >> (half % 2 * 32)) as u32)
    }

    #[inline(always)]
    pub(super) fn signature(&self, slot: usize) -> u16 {
        (self.signatures[slot / 4].load(Relaxed) >> (slot % 4 * 16)) as u16
    }

    /// Returns the signatures of all slots.
    #[inline(always)]
    pub(super) fn each_signature(&self) -> [u16; SLOTS] {
        let words = self.words();
        std::array::from_fn(|slot| (words[slot / 4] >> (slot % 4 * 16)) as u16)
    }

    /// Returns the free slots, a bit each. For the writer.
    #[inline(always)]
    pub(super) fn free(&self) -> u32 {
        self.find(0)
    }

    /// Returns the first free slot. For the writer.
    #[inline(always)]
    pub(super) fn free_slot(&self) -> Option<usize> {
        let free = self.free();
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// Gives a slot a signature, or with 0 frees it; only while [`Writing`].
    #[inline(always)]
    pub(super) fn set_signature(&self, slot: usize, signature: u16) {
        let word = &self.signatures[slot / 4];
        let shift = slot % 4 * 16;
        // There is one writer, so that no other thread changes the word in between.
        word.store(word.load(Relaxed) & !(0xffff << shift) | u64::from(signature) << shift, Relaxed);
    }

    /// Returns the taken slots whose keys have their primary bucket elsewhere, a bit each. For the writer.
    #[inline(always)]
    pub(super) fn displaced(&self) -> u32 {
        self.displaced.load(Relaxed)
    }

    /// Notes that the key that a free slot receives has its primary bucket elsewhere, if `displaced`. For the writer.
    #[inline(always)]
    pub(super) fn add_displaced(&self, slot: usize, displaced: bool) {
        self.displaced.store(self.displaced() | u32::from(displaced) << slot, Relaxed);
    }

    /// Notes that a slot is free. For the writer.
    #[inline(always)]
    pub(super) fn clear_displaced(&self, slot: usize) {
        self.displaced.store(self.displaced() & !(1 << slot), Relaxed);
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
    #[inline(always)]
    pub(super) fn set_filter(&self, filter: u64) {
        self.filter.store(filter, Relaxed);
    }
}

/// Buckets under change, until dropped.
#[derive(Debug)]
pub(super) struct Writing<'a, const N: usize>([(&'a Bucket, u32); N]);

impl<'a, const N: usize> Writing<'a, N> {
    /// Makes the versions odd. The buckets must be different ones.
    #[inline(always)]
    pub(super) fn begin(buckets: [&'a Bucket; N]) -> Self {
        Self::stepping(buckets.map(|bucket| (bucket, 1)))
    }

    #[inline(always)]
    fn stepping(buckets: [(&'a Bucket, u32); N]) -> Self {
        for (bucket, step) in buckets {
            bucket.version.store(bucket.version.load(Relaxed).wrapping_add(step), Relaxed);
        }
        // A reader that sees any of the changes that follow sees the odd versions.
        fence(Release);
        Self(buckets)
    }
}

impl<'a> Writing<'a, 2> {
    /// Makes the versions of a key's primary bucket odd and, if it is another one, of the bucket `to` that takes the key; without a
    /// branch.
    #[inline(always)]
    pub(super) fn begin_placing(primary: &'a Bucket, to: &'a Bucket, displaced: bool) -> Self {
        debug_assert_eq!(displaced, !std::ptr::eq(primary, to));
        // Where the two are one, its version is stored a second time with the same value.
        Self::stepping([(primary, 1), (to, displaced.into())])
    }
}

impl<const N: usize> Drop for Writing<'_, N> {
    #[inline(always)]
    fn drop(&mut self) {
        for (bucket, step) in self.0 {
            bucket.version.store(bucket.version.load(Relaxed).wrapping_add(step), Release);
        }
    }
}
