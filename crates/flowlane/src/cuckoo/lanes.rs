//! The batch compiled for each instruction set of x86-64.

use std::arch::x86_64::*;

use super::CuckooTable;
use super::batch::{self, Lanes, Request};
use super::bucket::Bucket;
use crate::hash::multilinear::{self, KEYS, KeyHash};

/// A quarter of a bucket, by an instruction of AVX where `VEX`.
///
/// # Safety
/// `VEX` only where the CPU has AVX.
#[cfg(not(any(all(loom, test), miri)))]
#[inline(always)]
unsafe fn quarter<const W: usize, const VEX: bool>(bucket: &Bucket<W>, quarter: usize) -> __m128i {
    let words;
    // SAFETY: the caller has AVX where `VEX`. A bucket is 64 bytes and aligned to them. Beside a writer
    // this is a read of atomics, relaxed: x86-64 reads each aligned word of a vector at once. In assembly,
    // since Rust has no atomics of this size: what the compiler sees is an opaque read.
    unsafe {
        let at = bucket.line().cast::<__m128i>().add(quarter % 4);
        if VEX {
            std::arch::asm!("vmovdqa {0}, [{1}]", out(xmm_reg) words, in(reg) at,
                options(nostack, readonly, preserves_flags));
        } else {
            std::arch::asm!("movdqa {0}, [{1}]", out(xmm_reg) words, in(reg) at,
                options(nostack, readonly, preserves_flags));
        }
    }
    words
}

/// A whole bucket.
#[cfg(not(any(all(loom, test), miri)))]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn line<const W: usize>(bucket: &Bucket<W>) -> __m512i {
    let words;
    // SAFETY: as above; these features include the instruction.
    unsafe {
        std::arch::asm!("vmovdqa64 {0}, [{1}]", out(zmm_reg) words, in(reg) bucket.line(),
            options(nostack, readonly, preserves_flags));
    }
    words
}

/// A quarter of a bucket.
///
/// # Safety
/// None is needed: as the other.
#[cfg(any(all(loom, test), miri))]
unsafe fn quarter<const W: usize, const VEX: bool>(bucket: &Bucket<W>, quarter: usize) -> __m128i {
    let words: [u32; 4] = std::array::from_fn(|word| bucket.line()[4 * quarter + word]);
    // SAFETY: 16 bytes that may have any value.
    unsafe { std::mem::transmute(words) }
}

/// A whole bucket.
#[cfg(any(all(loom, test), miri))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn line<const W: usize>(bucket: &Bucket<W>) -> __m512i {
    // SAFETY: 64 bytes that may have any value.
    unsafe { std::mem::transmute(bucket.line()) }
}

/// Four words at a time. `VEX`: for bodies with AVX.
#[derive(Clone, Copy)]
struct Sse<const VEX: bool>;

impl<const VEX: bool> Lanes for Sse<VEX> {
    #[inline(always)]
    fn matches<const W: usize>(self, bucket: &Bucket<W>, signature: u16) -> u32 {
        // SAFETY: SSE2, which every x86-64 has; only bodies with AVX make comparisons with `VEX`.
        unsafe {
            let wanted = _mm_set1_epi16(signature.cast_signed());
            let equal = _mm_cmpeq_epi16(quarter::<W, VEX>(bucket, 0), wanted);
            _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())).cast_unsigned()
        }
    }

    #[inline(always)]
    fn holders<const W: usize>(self, bucket: &Bucket<W>, key: &[u32; W]) -> u32 {
        let pattern: [u32; 16] = std::array::from_fn(|word| key[word % W]);
        // SAFETY: 16 words are four vectors, which may have any value; otherwise as above.
        let equal = unsafe {
            let wanted: [__m128i; 4] = std::mem::transmute(pattern);
            let equal = |i: usize| _mm_cmpeq_epi32(quarter::<W, VEX>(bucket, i), wanted[i]);
            let halves =
                [_mm_packs_epi32(equal(0), equal(1)), _mm_packs_epi32(equal(2), equal(3))];
            _mm_movemask_epi8(_mm_packs_epi16(halves[0], halves[1])).cast_unsigned()
        };
        let whole = (1..W).fold(equal, |whole, w| whole & equal >> w);
        // Slot s is at bit s * W.
        (0..Bucket::<W>::SLOTS).fold(0, |slots, slot| slots | whole >> (slot * (W - 1)) & 1 << slot)
    }
}

/// A bucket at a time. Private to [`avx512`], whose target features it needs.
#[derive(Clone, Copy)]
struct Zmm;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn holders<const W: usize>(bucket: &Bucket<W>, key: &[u32; W]) -> u32 {
    let stored = line(bucket);
    // SAFETY: masked to the words of the key.
    let key = unsafe { _mm_maskz_loadu_epi32(((1u32 << W) - 1) as u8, key.as_ptr().cast()) };
    match W {
        1 => u32::from(_mm512_cmpeq_epi32_mask(stored, _mm512_broadcastd_epi32(key))) & Bucket::<W>::ALL,
        2 => u32::from(_mm512_cmpeq_epi64_mask(stored, _mm512_broadcastq_epi64(key))) & Bucket::<W>::ALL,
        3 => {
            let order = _mm512_setr_epi32(0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 3, 3, 3, 3, 3, 3);
            let wanted = _mm512_permutexvar_epi32(order, _mm512_castsi128_si512(key));
            let equal = u32::from(_mm512_cmpeq_epi32_mask(stored, wanted));
            _pext_u32(equal & equal >> 1 & equal >> 2, 0b100_1001)
        }
        _ => {
            let equal = u32::from(_mm512_cmpeq_epi64_mask(stored, _mm512_broadcast_i32x4(key)));
            _pext_u32(equal & equal >> 1, 0b1_0101)
        }
    }
}

impl Lanes for Zmm {
    #[inline(always)]
    fn hash_keys<const W: usize>(
        self,
        hash: &KeyHash<W>,
        keys: &[[u32; W]; KEYS],
        hashes: &mut [u32; KEYS],
    ) {
        // SAFETY: only `avx512` makes bodies with this type, and it has these features.
        unsafe { multilinear::avx512::hash_keys(hash, keys, hashes) }
    }

    #[inline(always)]
    fn matches<const W: usize>(self, bucket: &Bucket<W>, signature: u16) -> u32 {
        // SAFETY: as above.
        unsafe {
            let wanted = _mm_set1_epi16(signature.cast_signed());
            _mm_cmpeq_epi16_mask(quarter::<W, true>(bucket, 0), wanted).into()
        }
    }

    #[inline(always)]
    fn holders<const W: usize>(self, bucket: &Bucket<W>, key: &[u32; W]) -> u32 {
        // SAFETY: as above.
        unsafe { holders(bucket, key) }
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
    batch::lookup(Zmm, table, keys, request, values)
}
