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

/// One cache line.
#[derive(Default, Debug)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    /// Four signatures of 16 bits in each word, 0 where the slot is free.
    signatures: [AtomicU64; SLOTS / 4],
    /// Which entry holds the slot's key.
    entries: [AtomicU32; SLOTS],
    /// Odd while the writer is at work.
    version: AtomicU32,
    spare: u32,
    /// A Bloom filter of the keys whose primary bucket this is but which are in their alternate one.
    moved: AtomicU64,
}

#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Bucket>() == crate::memory::LINE_BYTES);

#[cfg(not(all(loom, test)))]
// SAFETY: atomics and an integer, for which zero is a value; aligned to a line.
unsafe impl crate::memory::Zeroed for Bucket {}

/// The bit of a signature in [`Bucket::moved`].
#[inline(always)]
pub(super) fn moved_bit(signature: u16) -> u64 {
    1 << (signature >> 10)
}

impl Bucket {
    /// Begins to read: the version to be handed to [`is_unchanged`](Self::is_unchanged).
    #[inline(always)]
    pub(super) fn version(&self) -> u32 {
        self.version.load(Acquire)
    }

    /// Whether all that was read between [`version`](Self::version) and now was there at one time.
    #[inline(always)]
    pub(super) fn is_unchanged(&self, version: u32) -> bool {
        fence(Acquire);
        (version & 1 == 0) & (self.version.load(Relaxed) == version)
    }

    /// The signatures of slots 0 to 3, and 4 to 7.
    #[inline(always)]
    pub(super) fn signatures(&self) -> [u64; 2] {
        [self.signatures[0].load(Relaxed), self.signatures[1].load(Relaxed)]
    }

    /// The signatures in one register, by an instruction of AVX where `VEX`.
    ///
    /// # Safety
    /// `VEX` only where the CPU has AVX.
    #[cfg(all(target_arch = "x86_64", not(all(loom, test)), not(miri)))]
    #[inline(always)]
    pub(super) unsafe fn signatures_vector<const VEX: bool>(&self) -> std::arch::x86_64::__m128i {
        let signatures;
        // SAFETY: the caller has AVX where `VEX`. The bucket is aligned to 64 bytes, and its first 16 are
        // the signatures. Beside a writer this is a read of two atomics, relaxed: x86-64 reads each aligned 8 bytes of a vector at once.
        // In assembly, since Rust has no atomics of this size: what the compiler sees is an opaque read.
        unsafe {
            if VEX {
                std::arch::asm!(
                    "vmovdqa {0}, [{1}]",
                    out(xmm_reg) signatures,
                    in(reg) &raw const self.signatures,
                    options(nostack, readonly, preserves_flags)
                );
            } else {
                std::arch::asm!(
                    "movdqa {0}, [{1}]",
                    out(xmm_reg) signatures,
                    in(reg) &raw const self.signatures,
                    options(nostack, readonly, preserves_flags)
                );
            }
        }
        signatures
    }

    /// The signatures in one register.
    ///
    /// # Safety
    /// None is needed: as the other.
    #[cfg(all(target_arch = "x86_64", any(all(loom, test), miri)))]
    pub(super) unsafe fn signatures_vector<const VEX: bool>(&self) -> std::arch::x86_64::__m128i {
        let [low, high] = self.signatures().map(u64::cast_signed);
        // SAFETY: SSE2, which every x86-64 has.
        unsafe { std::arch::x86_64::_mm_set_epi64x(high, low) }
    }

    #[inline(always)]
    pub(super) fn signature(&self, slot: usize) -> u16 {
        (self.signatures[slot / 4].load(Relaxed) >> (slot % 4 * 16)) as u16
    }

    #[inline(always)]
    pub(super) fn entry(&self, slot: usize) -> u32 {
        self.entries[slot % SLOTS].load(Relaxed)
    }

    #[inline(always)]
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Relaxed)
    }

    /// The first free slot. For the writer.
    pub(super) fn free_slot(&self) -> Option<usize> {
        let free = super::scalar::matches(self.signatures(), 0);
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// Fills a slot; only while [`Writing`].
    pub(super) fn set_slot(&self, slot: usize, signature: u16, entry: u32) {
        self.entries[slot].store(entry, Relaxed);
        self.set_signature(slot, signature);
    }

    /// Frees a slot; only while [`Writing`].
    pub(super) fn clear_slot(&self, slot: usize) {
        self.set_signature(slot, 0);
    }

    /// Replaces the filter; only while [`Writing`].
    pub(super) fn set_moved(&self, moved: u64) {
        self.moved.store(moved, Relaxed);
    }

    fn set_signature(&self, slot: usize, signature: u16) {
        let word = &self.signatures[slot / 4];
        let shift = slot % 4 * 16;
        // There is one writer, so that nobody changes the word in between.
        word.store(word.load(Relaxed) & !(0xffff << shift) | u64::from(signature) << shift, Relaxed);
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
        // Whoever sees any of the changes that follow sees the odd versions.
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
