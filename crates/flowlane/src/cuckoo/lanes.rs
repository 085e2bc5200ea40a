//! The batch compiled for each instruction set of x86-64.

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi16, _mm_cmpeq_epi16_mask, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_epi64x,
    _mm_set1_epi16, _mm_setzero_si128,
};

use super::CuckooTable;
use super::batch::{self, Compare, Request};

#[inline(always)]
fn vectors(signatures: [u64; 2], signature: u16) -> (__m128i, __m128i) {
    // SAFETY: SSE2, which every x86-64 has.
    unsafe {
        (
            _mm_set_epi64x(signatures[1].cast_signed(), signatures[0].cast_signed()),
            _mm_set1_epi16(signature.cast_signed()),
        )
    }
}

/// Eight signatures in one comparison.
#[derive(Clone, Copy)]
struct Sse;

impl Compare for Sse {
    #[inline(always)]
    fn matches(self, signatures: [u64; 2], signature: u16) -> u32 {
        let (stored, wanted) = vectors(signatures, signature);
        // SAFETY: SSE2, which every x86-64 has.
        unsafe {
            let equal = _mm_cmpeq_epi16(stored, wanted);
            _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())).cast_unsigned()
        }
    }
}

/// The same with a mask for a result. Private to [`avx512`], whose target features it needs.
#[derive(Clone, Copy)]
struct Evex;

impl Compare for Evex {
    #[inline(always)]
    fn matches(self, signatures: [u64; 2], signature: u16) -> u32 {
        let (stored, wanted) = vectors(signatures, signature);
        // SAFETY: only `avx512` makes bodies with this type, and it has AVX-512 BW and VL.
        unsafe { _mm_cmpeq_epi16_mask(stored, wanted).into() }
    }
}

#[target_feature(enable = "sse4.2")]
pub(super) fn sse42<const W: usize>(
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    hashes: &[u32],
    request: Request,
    values: &mut [u64],
) -> u64 {
    batch::lookup(Sse, table, keys, hashes, request, values)
}

#[target_feature(enable = "avx2")]
pub(super) fn avx2<const W: usize>(
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    hashes: &[u32],
    request: Request,
    values: &mut [u64],
) -> u64 {
    batch::lookup(Sse, table, keys, hashes, request, values)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn avx512<const W: usize>(
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    hashes: &[u32],
    request: Request,
    values: &mut [u64],
) -> u64 {
    batch::lookup(Evex, table, keys, hashes, request, values)
}
