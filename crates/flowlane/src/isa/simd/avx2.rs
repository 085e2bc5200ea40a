//! 256 bits.

use std::arch::x86_64::*;

use super::gather::{avx2_32, avx2_64};
use super::{Registers, Vector};
use crate::isa::Avx2;

impl Registers for Avx2 {
    const LANES: usize = 8;
    type Register = __m256i;
    /// The sign bits of words.
    type Mask = __m256i;

    #[inline(always)]
    fn splat(self, word: u32) -> __m256i {
        // SAFETY: the witness proves that the CPU has AVX2; so below.
        unsafe { _mm256_set1_epi32(word.cast_signed()) }
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> __m256i {
        let words = &words[..Self::LANES];
        // SAFETY: as above; eight words.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, register: __m256i, to: &mut [u32]) {
        let to = &mut to[..Self::LANES];
        // SAFETY: as above; eight words.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), register) }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn clamp(self, register: __m256i, low: __m256i, high: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_min_epu32(_mm256_max_epu32(register, low), high) }
    }

    #[inline(always)]
    fn clamp_halves(self, register: __m256i, low: __m256i, high: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_min_epu16(_mm256_max_epu16(register, low), high) }
    }

    #[inline(always)]
    fn equal_in(self, mask: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_and_si256(mask, _mm256_cmpeq_epi32(a, b)) }
    }

    #[inline(always)]
    fn blend(self, mask: __m256i, register: __m256i, otherwise: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe {
            let (otherwise, register) = (_mm256_castsi256_ps(otherwise), _mm256_castsi256_ps(register));
            _mm256_castps_si256(_mm256_blendv_ps(otherwise, register, _mm256_castsi256_ps(mask)))
        }
    }

    #[inline(always)]
    fn mask_all(self) -> __m256i {
        self.splat(u32::MAX)
    }

    #[inline(always)]
    fn mask_none(self) -> __m256i {
        self.splat(0)
    }

    #[inline(always)]
    fn mask_or(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn mask_and_not(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_andnot_si256(b, a) }
    }

    #[inline(always)]
    fn bits(self, mask: __m256i) -> u32 {
        // SAFETY: as above.
        unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(mask)).cast_unsigned() }
    }
}

impl Vector for Avx2 {
    type Half = __m128i;
    /// The sign bits of words.
    type WideMask = __m256i;

    #[inline(always)]
    fn store_widened(self, register: __m256i, to: &mut [u64]) {
        let to = to[..Self::LANES].as_mut_ptr().cast::<__m256i>();
        // SAFETY: as above; eight words of 64 bits.
        unsafe {
            _mm256_storeu_si256(to, _mm256_cvtepu32_epi64(_mm256_castsi256_si128(register)));
            let high = _mm256_extracti128_si256::<1>(register);
            _mm256_storeu_si256(to.add(1), _mm256_cvtepu32_epi64(high));
        }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn shl(self, register: __m256i, bits: u32) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_sllv_epi32(register, _mm256_set1_epi32(bits.cast_signed())) }
    }

    #[inline(always)]
    fn shr(self, register: __m256i, bits: u32) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_srlv_epi32(register, _mm256_set1_epi32(bits.cast_signed())) }
    }

    #[inline(always)]
    fn odd(self, register: __m256i) -> __m256i {
        self.shl(register, 31)
    }

    #[inline(always)]
    unsafe fn gather<const SCALE: usize>(self, base: *const u8, index: __m256i) -> __m256i {
        // SAFETY: as above; memory is the caller's promise.
        unsafe { avx2_32::<SCALE>(base, index, _mm256_set1_epi32(-1)) }
    }

    #[inline(always)]
    unsafe fn gather_in<const SCALE: usize>(
        self,
        base: *const u8,
        index: __m256i,
        mask: __m256i,
        otherwise: __m256i,
    ) -> __m256i {
        // SAFETY: as above; memory is the caller's promise.
        let found = unsafe { avx2_32::<SCALE>(base, index, mask) };
        self.blend(mask, found, otherwise)
    }

    #[inline(always)]
    fn load_half(self, words: &[u32]) -> __m128i {
        let words = &words[..Self::LANES / 2];
        // SAFETY: as above; four words.
        unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn and_half(self, half: __m128i, word: u32) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_and_si128(half, _mm_set1_epi32(word.cast_signed())) }
    }

    #[inline(always)]
    fn or_half(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_or_si128(a, b) }
    }

    #[inline(always)]
    fn shr_half(self, half: __m128i, bits: u32) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_srlv_epi32(half, _mm_set1_epi32(bits.cast_signed())) }
    }

    #[inline(always)]
    fn store_wide(self, register: __m256i, to: &mut [u64]) {
        let to = &mut to[..Self::LANES / 2];
        // SAFETY: as above; four words of 64 bits.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), register) }
    }

    #[inline(always)]
    fn shl_wide(self, register: __m256i, bits: u32) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_sllv_epi64(register, _mm256_set1_epi64x(bits.into())) }
    }

    #[inline(always)]
    fn shr_wide(self, register: __m256i, bits: u32) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_srlv_epi64(register, _mm256_set1_epi64x(bits.into())) }
    }

    #[inline(always)]
    fn add_wide(self, register: __m256i, number: u64) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_add_epi64(register, _mm256_set1_epi64x(number as i64)) }
    }

    #[inline(always)]
    fn narrow(self, register: __m256i) -> __m128i {
        // SAFETY: as above.
        unsafe {
            let even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
            _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(register, even))
        }
    }

    #[inline(always)]
    fn odd_wide(self, register: __m256i) -> __m256i {
        self.shl_wide(register, 63)
    }

    #[inline(always)]
    fn any_wide(self, mask: __m256i) -> bool {
        // SAFETY: as above.
        unsafe { _mm256_movemask_pd(_mm256_castsi256_pd(mask)) != 0 }
    }

    #[inline(always)]
    unsafe fn gather_wide(self, base: *const u8, index: __m128i) -> __m256i {
        // SAFETY: as above; memory is the caller's promise.
        unsafe { avx2_64(base, index, _mm256_set1_epi64x(-1)) }
    }

    #[inline(always)]
    unsafe fn gather_wide_in(
        self,
        base: *const u8,
        index: __m128i,
        mask: __m256i,
        otherwise: __m256i,
    ) -> __m256i {
        // SAFETY: as above; memory is the caller's promise.
        unsafe {
            let found = _mm256_castsi256_pd(avx2_64(base, index, mask));
            let (otherwise, mask) = (_mm256_castsi256_pd(otherwise), _mm256_castsi256_pd(mask));
            _mm256_castpd_si256(_mm256_blendv_pd(otherwise, found, mask))
        }
    }
}
