//! The batch compiled for each instruction set of x86-64.

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi16, _mm_cmpeq_epi16_mask, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
    _mm_setzero_si128,
};

use super::CuckooTable;
use super::batch::{self, Compare, Request};
use super::bucket::Bucket;

#[inline(always)]
fn vectors<const VEX: bool>(bucket: &Bucket, signature: u16) -> (__m128i, __m128i) {
    // SAFETY: SSE2, which every x86-64 has; only bodies with AVX make comparisons with `VEX`.
    unsafe { (bucket.signatures_vector::<VEX>(), _mm_set1_epi16(signature.cast_signed())) }
}

/// Eight signatures in one comparison. `VEX`: for bodies with AVX.
#[derive(Clone, Copy)]
struct Sse<const VEX: bool>;

impl<const VEX: bool> Compare for Sse<VEX> {
    #[inline(always)]
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        let (stored, wanted) = vectors::<VEX>(bucket, signature);
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
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        let (stored, wanted) = vectors::<true>(bucket, signature);
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
    batch::lookup(Sse::<false>, table, keys, hashes, request, values)
}

#[target_feature(enable = "avx2")]
pub(super) fn avx2<const W: usize>(
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    hashes: &[u32],
    request: Request,
    values: &mut [u64],
) -> u64 {
    batch::lookup(Sse::<true>, table, keys, hashes, request, values)
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
