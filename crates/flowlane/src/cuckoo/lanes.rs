//! Signatures of a bucket in one register, for SSE4.2 and AVX2.

use std::arch::x86_64::*;

use super::batch::BucketOps;
use super::bucket::Bucket;
use crate::isa;

/// A witness of instructions in one of two encodings.
///
/// # Safety
/// `VEX` only where it proves AVX.
pub(super) unsafe trait Encoding: Copy {
    /// True if they are in the encoding of AVX.
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

/// Returns the signatures in one register.
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

/// Returns the signatures in one register, for the model checker and the interpreter.
#[cfg(any(all(loom, test), miri))]
pub(super) fn signatures<I: Encoding>(_: I, bucket: &Bucket) -> __m128i {
    // SAFETY: 16 bytes that may have any value.
    unsafe { std::mem::transmute(bucket.signatures()) }
}

/// Compares eight signatures at once.
#[inline(always)]
fn matches<I: Encoding>(isa: I, bucket: &Bucket, signature: u16) -> u32 {
    let signatures = signatures(isa, bucket);
    // SAFETY: SSE2, which every x86-64 has.
    unsafe {
        let wanted = _mm_set1_epi16(signature.cast_signed());
        let equal = _mm_cmpeq_epi16(signatures, wanted);
        _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())).cast_unsigned()
    }
}

impl BucketOps for isa::Sse42 {
    #[inline(always)]
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        matches(self, bucket, signature)
    }
}

impl BucketOps for isa::Avx2 {
    #[inline(always)]
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        matches(self, bucket, signature)
    }
}
