//! Signatures of a bucket in one register of NEON, and words of an entry four at a time.

use std::arch::aarch64::*;

use super::BATCH_MAX;
use super::batch::BucketOps;
use super::bucket::Bucket;
use super::entry::{EntriesView, EntryAt};
use super::sync::AtomicU32;
use crate::hash::multilinear::{self, KEYS, KeyHash};
use crate::isa::Neon;

/// Returns the signatures in one register.
#[cfg(not(any(all(loom, test), miri)))]
#[inline(always)]
fn signatures(_: Neon, bucket: &Bucket) -> uint16x8_t {
    let signatures;
    // SAFETY: the witness proves NEON. A bucket begins with its signatures, 16 bytes. Beside a writer this is a read of atomics,
    // relaxed: `ld1` reads each aligned element at once. In assembly, since Rust has no atomics of this size: what the
    // compiler sees is an opaque read.
    unsafe {
        std::arch::asm!("ld1 {{{0:v}.4s}}, [{1}]", out(vreg) signatures, in(reg) bucket.signatures(),
            options(nostack, readonly, preserves_flags));
    }
    signatures
}

/// Returns the signatures in one register, for the model checker and the interpreter.
#[cfg(any(all(loom, test), miri))]
fn signatures(_: Neon, bucket: &Bucket) -> uint16x8_t {
    // SAFETY: the witness proves NEON; 16 bytes.
    unsafe { vreinterpretq_u16_u32(vld1q_u32(bucket.signatures().as_ptr())) }
}

/// Returns four words of an entry in one register.
#[cfg(not(any(all(loom, test), miri)))]
#[inline(always)]
fn four_words(_: Neon, words: &[AtomicU32; 4]) -> uint32x4_t {
    let register;
    // SAFETY: the witness proves NEON; four words. The read is one of atomics, as in `signatures`.
    unsafe {
        std::arch::asm!("ld1 {{{0:v}.4s}}, [{1}]", out(vreg) register, in(reg) words,
            options(nostack, readonly, preserves_flags));
    }
    register
}

/// Returns four words of an entry in one register, for the model checker and the interpreter.
#[cfg(any(all(loom, test), miri))]
fn four_words(_: Neon, words: &[AtomicU32; 4]) -> uint32x4_t {
    let words: [u32; 4] = std::array::from_fn(|i| words[i].load(std::sync::atomic::Ordering::Relaxed));
    // SAFETY: the witness proves NEON; four words.
    unsafe { vld1q_u32(words.as_ptr()) }
}

impl BucketOps for Neon {
    #[inline(always)]
    fn hash_keys<const W: usize>(self, hash: &KeyHash<W>, keys: &[[u32; W]; KEYS], hashes: &mut [u32; KEYS]) {
        // SAFETY: the witness proves that the CPU has NEON.
        unsafe { multilinear::neon::hash_keys(hash, keys, hashes) };
    }

    #[inline(always)]
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        let signatures = signatures(self, bucket);
        // SAFETY: the witness proves NEON; eight weights. Each lane has a bit of its own, so that the sum is their union.
        unsafe {
            let equal = vceqq_u16(signatures, vdupq_n_u16(signature));
            let weights = vld1q_u16([1, 2, 4, 8, 16, 32, 64, 128].as_ptr());
            vaddvq_u16(vandq_u16(equal, weights)).into()
        }
    }

    #[inline(always)]
    fn key_is<const W: usize>(self, entries: EntriesView<'_, W>, entry: EntryAt, key: &[u32; W]) -> bool {
        if W < 4 {
            return entries.key_is(entry, key);
        }
        let stored = &entries.words(entry)[..W];
        // SAFETY: the witness proves NEON; four words of the key.
        unsafe {
            let different = |at: usize| {
                let stored = stored[at..].first_chunk().expect("four words from here on");
                veorq_u32(four_words(self, stored), vld1q_u32(key[at..][..4].as_ptr()))
            };
            // The last four, which may be counted twice, and all before them.
            let all = (0..W - 4).step_by(4).fold(different(W - 4), |all, at| vorrq_u32(all, different(at)));
            vmaxvq_u32(all) == 0
        }
    }

    #[inline(always)]
    fn nonzero(self, slots: &[u8; BATCH_MAX]) -> u64 {
        // SAFETY: the witness proves NEON; sixteen bytes each.
        unsafe {
            let weights = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
            let part = |at: usize| {
                let slots = vld1q_u8(slots[16 * at..][..16].as_ptr());
                vandq_u8(vtstq_u8(slots, slots), weights)
            };
            // Neighbours are added until a byte has the bits of eight.
            let [low, high] = [vpaddq_u8(part(0), part(1)), vpaddq_u8(part(2), part(3))];
            let all = vpaddq_u8(low, high);
            vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(all, all)))
        }
    }

    #[inline(always)]
    fn moved(self, filters: &[u64; BATCH_MAX], signatures: &[u16; BATCH_MAX]) -> u64 {
        let mut moved = [0; BATCH_MAX];
        for (moved, (filter, signature)) in moved.iter_mut().zip(filters.iter().zip(signatures)) {
            *moved = (filter >> (signature >> 10)) as u8 & 1;
        }
        self.nonzero(&moved)
    }
}
