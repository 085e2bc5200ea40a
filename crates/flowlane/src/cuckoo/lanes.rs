//! The batch compiled for each instruction set of x86-64.

use std::arch::x86_64::*;

use super::batch::{self, Lanes, Request};
use super::bucket::Bucket;
use super::entry::{EntriesView, EntryAt};
use super::{BATCH_MAX, CuckooTable};
use crate::hash::multilinear::{self, KEYS, KeyHash};

/// The signatures in one register, by an instruction of AVX where `VEX`.
///
/// # Safety
/// `VEX` only where the CPU has AVX.
#[cfg(not(any(all(loom, test), miri)))]
#[inline(always)]
unsafe fn signatures<const VEX: bool>(bucket: &Bucket) -> __m128i {
    let signatures;
    // SAFETY: the caller has AVX where `VEX`. A bucket is aligned to 32 bytes, and begins with its
    // signatures. Beside a writer this is a read of atomics, relaxed: x86-64 reads each aligned word of a
    // vector at once. In assembly, since Rust has no atomics of this size: what the compiler sees is an
    // opaque read.
    unsafe {
        if VEX {
            std::arch::asm!("vmovdqa {0}, [{1}]", out(xmm_reg) signatures, in(reg) bucket.signatures(),
                options(nostack, readonly, preserves_flags));
        } else {
            std::arch::asm!("movdqa {0}, [{1}]", out(xmm_reg) signatures, in(reg) bucket.signatures(),
                options(nostack, readonly, preserves_flags));
        }
    }
    signatures
}

/// The signatures in one register.
///
/// # Safety
/// None is needed: as the other.
#[cfg(any(all(loom, test), miri))]
unsafe fn signatures<const VEX: bool>(bucket: &Bucket) -> __m128i {
    // SAFETY: 16 bytes that may have any value.
    unsafe { std::mem::transmute(bucket.signatures()) }
}

/// Eight signatures in one comparison. `VEX`: for bodies with AVX.
#[derive(Clone, Copy)]
struct Sse<const VEX: bool>;

impl<const VEX: bool> Lanes for Sse<VEX> {
    #[inline(always)]
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        // SAFETY: SSE2, which every x86-64 has; only bodies with AVX make comparisons with `VEX`.
        unsafe {
            let wanted = _mm_set1_epi16(signature.cast_signed());
            let equal = _mm_cmpeq_epi16(signatures::<VEX>(bucket), wanted);
            _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())).cast_unsigned()
        }
    }
}

/// The same with a mask for a result, and whole keys. Private to [`avx512`], whose target features it needs.
#[derive(Clone, Copy)]
struct Evex;

/// Whether an entry has this key, by one comparison of as many words as there are in the vector that
/// holds a key.
#[cfg(not(any(all(loom, test), miri)))]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn key_is<const W: usize>(entries: EntriesView<'_, W>, entry: EntryAt, key: &[u32; W]) -> bool {
    let words = ((1u32 << W) - 1) as u16;
    // SAFETY: rows are as long as the vectors read from them, and keys are read up to their ends. Reads of
    // atomics in assembly: as in `signatures`.
    unsafe {
        match W {
            ..=2 => entries.key_is(entry, key),
            3..=4 => {
                let stored;
                std::arch::asm!("vmovdqu {0}, [{1}]", out(xmm_reg) stored, in(reg) entries.row::<4>(entry),
                    options(nostack, readonly, preserves_flags));
                let key = _mm_maskz_loadu_epi32(words as u8, key.as_ptr().cast());
                _mm_mask_cmpneq_epi32_mask(words as u8, stored, key) == 0
            }
            5..=8 => {
                let stored;
                std::arch::asm!("vmovdqu {0}, [{1}]", out(ymm_reg) stored, in(reg) entries.row::<8>(entry),
                    options(nostack, readonly, preserves_flags));
                let key = _mm256_maskz_loadu_epi32(words as u8, key.as_ptr().cast());
                _mm256_mask_cmpneq_epi32_mask(words as u8, stored, key) == 0
            }
            _ => {
                let stored;
                std::arch::asm!("vmovdqu64 {0}, [{1}]", out(zmm_reg) stored, in(reg) entries.row::<16>(entry),
                    options(nostack, readonly, preserves_flags));
                let key = _mm512_maskz_loadu_epi32(words, key.as_ptr().cast());
                _mm512_mask_cmpneq_epi32_mask(words, stored, key) == 0
            }
        }
    }
}

/// The definition, for the model checker.
#[cfg(any(all(loom, test), miri))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn key_is<const W: usize>(entries: EntriesView<'_, W>, entry: EntryAt, key: &[u32; W]) -> bool {
    entries.key_is(entry, key)
}

impl Lanes for Evex {
    #[inline(always)]
    fn hash_keys<const W: usize>(self, hash: &KeyHash<W>, keys: &[[u32; W]; KEYS], hashes: &mut [u32; KEYS]) {
        // SAFETY: only `avx512` makes bodies with this type, and it has these features.
        unsafe { multilinear::avx512::hash_keys(hash, keys, hashes) }
    }

    #[inline(always)]
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        // SAFETY: as above.
        unsafe {
            let wanted = _mm_set1_epi16(signature.cast_signed());
            _mm_cmpeq_epi16_mask(signatures::<true>(bucket), wanted).into()
        }
    }

    #[inline(always)]
    fn nonzero(self, slots: &[u8; BATCH_MAX]) -> u64 {
        // SAFETY: as above; there are 64 bytes.
        unsafe {
            let slots = _mm512_loadu_si512(slots.as_ptr().cast());
            _mm512_test_epi8_mask(slots, slots)
        }
    }

    #[inline(always)]
    fn moved(self, filters: &[u64; BATCH_MAX], signatures: &[u16; BATCH_MAX]) -> u64 {
        (0..BATCH_MAX / 8).fold(0, |moved, part| {
            // SAFETY: as above; eight of each are 64 and 16 bytes.
            let bits = unsafe {
                let filters = _mm512_loadu_si512(filters.as_ptr().add(8 * part).cast());
                let signatures = _mm_loadu_si128(signatures.as_ptr().add(8 * part).cast());
                let bits = _mm512_srli_epi64::<10>(_mm512_cvtepu16_epi64(signatures));
                _mm512_test_epi64_mask(_mm512_srlv_epi64(filters, bits), _mm512_set1_epi64(1))
            };
            moved | u64::from(bits) << (8 * part)
        })
    }

    #[inline(always)]
    fn key_is<const W: usize>(self, entries: EntriesView<'_, W>, entry: EntryAt, key: &[u32; W]) -> bool {
        // SAFETY: as above.
        unsafe { key_is(entries, entry, key) }
    }
}

#[target_feature(enable = "sse4.2")]
pub(super) fn sse42<const W: usize>(
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    request: Request<'_>,
    values: &mut [u32],
) -> u64 {
    batch::lookup(Sse::<false>, table, keys, request, values)
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn avx2<const W: usize>(
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    request: Request<'_>,
    values: &mut [u32],
) -> u64 {
    batch::lookup(Sse::<true>, table, keys, request, values)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn avx512<const W: usize>(
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    request: Request<'_>,
    values: &mut [u32],
) -> u64 {
    batch::lookup(Evex, table, keys, request, values)
}
