//! The batch compiled for the instruction sets with registers of 128 and 256 bits.

use std::arch::x86_64::*;

use super::CuckooTable;
use super::batch::{self, Lanes, Request};
use super::bucket::Bucket;

/// The signatures in one register, by an instruction of AVX where `VEX`.
///
/// # Safety
/// `VEX` only where the CPU has AVX.
#[cfg(not(any(all(loom, test), miri)))]
#[inline(always)]
pub(super) unsafe fn signatures<const VEX: bool>(bucket: &Bucket) -> __m128i {
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
pub(super) unsafe fn signatures<const VEX: bool>(bucket: &Bucket) -> __m128i {
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
