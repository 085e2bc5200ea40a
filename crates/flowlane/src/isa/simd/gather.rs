//! Gathers from memory that a writer changes meanwhile.
//!
//! In assembly, since Rust has no gathers of atomics: what the compiler sees is an opaque read. x86-64 reads each
//! aligned element at once, so a lane is what one store wrote.
//!
//! Masks of 512 bits come in a general register. The compiler makes a full one of any live mask register (`kxnor`), and
//! if that one depends on an earlier gather, so does this one: gathers of eight bytes out of memory took turns, and
//! 70 cycles an address instead of 8.5 (Zen 5).

use std::arch::asm;
use std::arch::x86_64::*;

/// 8 × 32 bits from `base + SCALE × index`; 0 where `mask` has no sign bit.
///
/// # Safety
/// Of lanes in `mask`, 4 bytes must be readable at each place.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) unsafe fn avx2_32<const SCALE: usize>(base: *const u8, index: __m256i, mask: __m256i) -> __m256i {
    let mut lanes = _mm256_setzero_si256();
    // SAFETY: the caller's.
    unsafe {
        asm!("vpgatherdd {lanes}, [{base} + {index}*{scale}], {mask}",
            lanes = inout(ymm_reg) lanes, base = in(reg) base, index = in(ymm_reg) index,
            mask = inout(ymm_reg) mask => _, scale = const SCALE, options(nostack, readonly, preserves_flags));
    }
    lanes
}

/// 4 × 64 bits from `base + 8 × index`; 0 where `mask` has no sign bit.
///
/// # Safety
/// Of lanes in `mask`, 8 bytes must be readable at each place.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) unsafe fn avx2_64(base: *const u8, index: __m128i, mask: __m256i) -> __m256i {
    let mut lanes = _mm256_setzero_si256();
    // SAFETY: the caller's.
    unsafe {
        asm!("vpgatherdq {lanes}, [{base} + {index}*8], {mask}",
            lanes = inout(ymm_reg) lanes, base = in(reg) base, index = in(xmm_reg) index,
            mask = inout(ymm_reg) mask => _, options(nostack, readonly, preserves_flags));
    }
    lanes
}

/// 16 × 32 bits from `base + SCALE × index`; where not in `mask`, those of `else_lanes`.
///
/// # Safety
/// Of lanes in `mask`, 4 bytes must be readable at each place.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) unsafe fn avx512_32<const SCALE: usize>(
    base: *const u8,
    index: __m512i,
    mask: __mmask16,
    else_lanes: __m512i,
) -> __m512i {
    let mut lanes = else_lanes;
    // SAFETY: the caller's.
    unsafe {
        asm!("kmovw {live}, {mask:e}", "vpgatherdd {lanes} {{{live}}}, [{base} + {index}*{scale}]",
            lanes = inout(zmm_reg) lanes, base = in(reg) base, index = in(zmm_reg) index,
            mask = in(reg) u32::from(mask), live = out(kreg) _, scale = const SCALE, options(nostack, readonly, preserves_flags));
    }
    lanes
}

/// 8 × 64 bits from `base + 8 × index`; where not in `mask`, those of `else_lanes`.
///
/// # Safety
/// Of lanes in `mask`, 8 bytes must be readable at each place.
#[target_feature(enable = "avx512f,avx512vl")]
#[inline]
pub(crate) unsafe fn avx512_64(
    base: *const u8,
    index: __m256i,
    mask: __mmask8,
    else_lanes: __m512i,
) -> __m512i {
    let mut lanes = else_lanes;
    // SAFETY: the caller's.
    unsafe {
        asm!("kmovw {live}, {mask:e}", "vpgatherdq {lanes} {{{live}}}, [{base} + {index}*8]",
            lanes = inout(zmm_reg) lanes, base = in(reg) base, index = in(ymm_reg) index,
            mask = in(reg) u32::from(mask), live = out(kreg) _, options(nostack, readonly, preserves_flags));
    }
    lanes
}
