//! 512 bits.

use std::arch::x86_64::*;

use super::gather::{avx512_32, avx512_64};
use super::{Registers, Vector};
use crate::isa::Avx512;

impl Registers for Avx512 {
    const LANES: usize = 16;
    type Register = __m512i;
    type Mask = __mmask16;

    #[inline(always)]
    fn splat(self, word: u32) -> __m512i {
        // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL; so below.
        unsafe { _mm512_set1_epi32(word.cast_signed()) }
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> __m512i {
        let words = &words[..Self::LANES];
        // SAFETY: as above; sixteen words.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, register: __m512i, to: &mut [u32]) {
        let to = &mut to[..Self::LANES];
        // SAFETY: as above; sixteen words.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), register) }
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    fn clamp(self, register: __m512i, low: __m512i, high: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_min_epu32(_mm512_max_epu32(register, low), high) }
    }

    #[inline(always)]
    fn clamp_halves(self, register: __m512i, low: __m512i, high: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_min_epu16(_mm512_max_epu16(register, low), high) }
    }

    #[inline(always)]
    fn equal_in(self, mask: __mmask16, a: __m512i, b: __m512i) -> __mmask16 {
        // SAFETY: as above.
        unsafe { _mm512_mask_cmpeq_epi32_mask(mask, a, b) }
    }

    #[inline(always)]
    fn blend(self, mask: __mmask16, register: __m512i, otherwise: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_mask_blend_epi32(mask, otherwise, register) }
    }

    #[inline(always)]
    fn mask_all(self) -> __mmask16 {
        u16::MAX
    }

    #[inline(always)]
    fn mask_none(self) -> __mmask16 {
        0
    }

    #[inline(always)]
    fn mask_or(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }

    #[inline(always)]
    fn mask_and_not(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a & !b
    }

    #[inline(always)]
    fn bits(self, mask: __mmask16) -> u32 {
        mask.into()
    }
}

impl Vector for Avx512 {
    type Half = __m256i;
    type WideMask = __mmask8;

    #[inline(always)]
    fn store_widened(self, register: __m512i, to: &mut [u64]) {
        let to = to[..Self::LANES].as_mut_ptr();
        // SAFETY: as above; sixteen words of 64 bits.
        unsafe {
            _mm512_storeu_si512(to.cast(), _mm512_cvtepu32_epi64(_mm512_castsi512_si256(register)));
            let high = _mm512_extracti64x4_epi64::<1>(register);
            _mm512_storeu_si512(to.add(8).cast(), _mm512_cvtepu32_epi64(high));
        }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn shl(self, register: __m512i, bits: u32) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_sllv_epi32(register, _mm512_set1_epi32(bits.cast_signed())) }
    }

    #[inline(always)]
    fn shr(self, register: __m512i, bits: u32) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_srlv_epi32(register, _mm512_set1_epi32(bits.cast_signed())) }
    }

    #[inline(always)]
    fn odd(self, register: __m512i) -> __mmask16 {
        // SAFETY: as above.
        unsafe { _mm512_test_epi32_mask(register, _mm512_set1_epi32(1)) }
    }

    #[inline(always)]
    unsafe fn gather<const SCALE: usize>(self, base: *const u8, index: __m512i) -> __m512i {
        // SAFETY: as above; memory is the caller's promise.
        unsafe { avx512_32::<SCALE>(base, index, !0, _mm512_setzero_si512()) }
    }

    #[inline(always)]
    unsafe fn gather_in<const SCALE: usize>(
        self,
        base: *const u8,
        index: __m512i,
        mask: __mmask16,
        otherwise: __m512i,
    ) -> __m512i {
        // SAFETY: as above; memory is the caller's promise.
        unsafe { avx512_32::<SCALE>(base, index, mask, otherwise) }
    }

    #[inline(always)]
    fn load_half(self, words: &[u32]) -> __m256i {
        let words = &words[..Self::LANES / 2];
        // SAFETY: as above; eight words.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn and_half(self, half: __m256i, word: u32) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_and_si256(half, _mm256_set1_epi32(word.cast_signed())) }
    }

    #[inline(always)]
    fn or_half(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn shr_half(self, half: __m256i, bits: u32) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_srlv_epi32(half, _mm256_set1_epi32(bits.cast_signed())) }
    }

    #[inline(always)]
    fn store_wide(self, register: __m512i, to: &mut [u64]) {
        let to = &mut to[..Self::LANES / 2];
        // SAFETY: as above; eight words of 64 bits.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), register) }
    }

    #[inline(always)]
    fn shl_wide(self, register: __m512i, bits: u32) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_sllv_epi64(register, _mm512_set1_epi64(bits.into())) }
    }

    #[inline(always)]
    fn shr_wide(self, register: __m512i, bits: u32) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_srlv_epi64(register, _mm512_set1_epi64(bits.into())) }
    }

    #[inline(always)]
    fn add_wide(self, register: __m512i, number: u64) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_add_epi64(register, _mm512_set1_epi64(number as i64)) }
    }

    #[inline(always)]
    fn narrow(self, register: __m512i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi64_epi32(register) }
    }

    #[inline(always)]
    fn odd_wide(self, register: __m512i) -> __mmask8 {
        // SAFETY: as above.
        unsafe { _mm512_test_epi64_mask(register, _mm512_set1_epi64(1)) }
    }

    #[inline(always)]
    fn any_wide(self, mask: __mmask8) -> bool {
        mask != 0
    }

    #[inline(always)]
    unsafe fn gather_wide(self, base: *const u8, index: __m256i) -> __m512i {
        // SAFETY: as above; memory is the caller's promise.
        unsafe { avx512_64(base, index, !0, _mm512_setzero_si512()) }
    }

    #[inline(always)]
    unsafe fn gather_wide_in(
        self,
        base: *const u8,
        index: __m256i,
        mask: __mmask8,
        otherwise: __m512i,
    ) -> __m512i {
        // SAFETY: as above; memory is the caller's promise.
        unsafe { avx512_64(base, index, mask, otherwise) }
    }
}
