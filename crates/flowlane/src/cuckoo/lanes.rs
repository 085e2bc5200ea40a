//! The batch compiled for the instruction sets with registers of 128 and 256 bits.

use std::arch::x86_64::*;

use super::CuckooTable;
use super::batch::{self, Lanes, Request};
use super::bucket::Bucket;
use crate::isa;

/// A witness of instructions in one of two encodings.
///
/// # Safety
/// `VEX` only where it proves AVX.
pub(super) unsafe trait Encoding: Copy {
    /// Whether they are in the encoding of AVX.
    const VEX: bool;
}

// SAFETY: not in that of AVX.
unsafe impl Encoding for isa::Sse42 {
    const VEX: bool = false;
}

// SAFETY: AVX2 has AVX.
unsafe impl Encoding for isa::Avx2 {
    const VEX: bool = true;
}

// SAFETY: AVX-512 has AVX.
unsafe impl Encoding for isa::Avx512 {
    const VEX: bool = true;
}

/// The signatures in one register.
#[cfg(not(any(all(loom, test), miri)))]
#[inline(always)]
pub(super) fn signatures<I: Encoding>(_: I, bucket: &Bucket) -> __m128i {
    let signatures;
    // SAFETY: the witness proves AVX where `VEX`. A bucket is aligned to 32 bytes, and begins with its
    // signatures. Beside a writer this is a read of atomics, relaxed: x86-64 reads each aligned word of a
    // vector at once. In assembly, since Rust has no atomics of this size: what the compiler sees is an
    // opaque read.
    unsafe {
        if I::VEX {
            std::arch::asm!("vmovdqa {0}, [{1}]", out(xmm_reg) signatures, in(reg) bucket.signatures(),
                options(nostack, readonly, preserves_flags));
        } else {
            std::arch::asm!("movdqa {0}, [{1}]", out(xmm_reg) signatures, in(reg) bucket.signatures(),
                options(nostack, readonly, preserves_flags));
        }
    }
    signatures
}

/// The signatures in one register, for the model checker and the interpreter.
#[cfg(any(all(loom, test), miri))]
pub(super) fn signatures<I: Encoding>(_: I, bucket: &Bucket) -> __m128i {
    // SAFETY: 16 bytes that may have any value.
    unsafe { std::mem::transmute(bucket.signatures()) }
}

/// Eight signatures in one comparison, with the witness of the body's instructions.
#[derive(Clone, Copy)]
struct Eight<I>(I);

impl<I: Encoding> Lanes for Eight<I> {
    #[inline(always)]
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        let signatures = signatures(self.0, bucket);
        // SAFETY: SSE2, which every x86-64 has.
        unsafe {
            let wanted = _mm_set1_epi16(signature.cast_signed());
            let equal = _mm_cmpeq_epi16(signatures, wanted);
            _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())).cast_unsigned()
        }
    }
}

#[target_feature(enable = "sse4.2")]
pub(super) fn sse42<const W: usize>(
    isa: isa::Sse42,
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    request: Request<'_>,
    values: &mut [u32],
) -> u64 {
    batch::lookup(Eight(isa), table, keys, request, values)
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn avx2<const W: usize>(
    isa: isa::Avx2,
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    request: Request<'_>,
    values: &mut [u32],
) -> u64 {
    batch::lookup(Eight(isa), table, keys, request, values)
}

#[target_feature(enable = "sse4.2")]
pub(super) fn sse42_many<const W: usize>(
    isa: isa::Sse42,
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    values: &mut [u32],
    hits: &mut [u64],
) {
    batch::lookup_many(Eight(isa), table, keys, values, hits);
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn avx2_many<const W: usize>(
    isa: isa::Avx2,
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    values: &mut [u32],
    hits: &mut [u64],
) {
    batch::lookup_many(Eight(isa), table, keys, values, hits);
}
