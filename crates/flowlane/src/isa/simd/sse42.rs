//! 128 bits.

use std::arch::x86_64::*;

use super::{Quad, Registers};
use crate::isa::Sse42;

impl Registers for Sse42 {
    const LANES: usize = 4;
    type Register = __m128i;
    /// The sign bits of words.
    type Mask = __m128i;

    #[inline(always)]
    fn splat(self, word: u32) -> __m128i {
        // SAFETY: the witness proves that the CPU has SSE4.2; so below.
        unsafe { _mm_set1_epi32(word.cast_signed()) }
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> __m128i {
        let words = &words[..Self::LANES];
        // SAFETY: as above; four words.
        unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, register: __m128i, to: &mut [u32]) {
        let to = &mut to[..Self::LANES];
        // SAFETY: as above; four words.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), register) }
    }

    #[inline(always)]
    fn and(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_and_si128(a, b) }
    }

    #[inline(always)]
    fn clamp(self, register: __m128i, low: __m128i, high: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_min_epu32(_mm_max_epu32(register, low), high) }
    }

    #[inline(always)]
    fn clamp_halves(self, register: __m128i, low: __m128i, high: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_min_epu16(_mm_max_epu16(register, low), high) }
    }

    #[inline(always)]
    fn equal_in(self, mask: __m128i, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_and_si128(mask, _mm_cmpeq_epi32(a, b)) }
    }

    #[inline(always)]
    fn blend(self, mask: __m128i, register: __m128i, otherwise: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe {
            let (otherwise, register) = (_mm_castsi128_ps(otherwise), _mm_castsi128_ps(register));
            _mm_castps_si128(_mm_blendv_ps(otherwise, register, _mm_castsi128_ps(mask)))
        }
    }

    #[inline(always)]
    fn mask_all(self) -> __m128i {
        self.splat(u32::MAX)
    }

    #[inline(always)]
    fn mask_none(self) -> __m128i {
        self.splat(0)
    }

    #[inline(always)]
    fn mask_or(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_or_si128(a, b) }
    }

    #[inline(always)]
    fn mask_and_not(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_andnot_si128(b, a) }
    }

    #[inline(always)]
    fn bits(self, mask: __m128i) -> u32 {
        // SAFETY: as above.
        unsafe { _mm_movemask_ps(_mm_castsi128_ps(mask)).cast_unsigned() }
    }
}

impl Quad for Sse42 {
    #[inline(always)]
    unsafe fn load_aligned(self, from: *const u32) -> __m128i {
        // SAFETY: as above; memory is the caller's promise.
        unsafe { _mm_load_si128(from.cast()) }
    }

    #[inline(always)]
    fn load_bytes(self, bytes: &[u8; 16]) -> __m128i {
        // SAFETY: as above; sixteen bytes.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn words(self, words: [u32; 4]) -> __m128i {
        let [a, b, c, d] = words.map(u32::cast_signed);
        // SAFETY: as above.
        unsafe { _mm_setr_epi32(a, b, c, d) }
    }

    #[inline(always)]
    fn permute(self, register: __m128i, from: [u8; 16]) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_shuffle_epi8(register, self.load_bytes(&from)) }
    }

    #[inline(always)]
    fn or(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_or_si128(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    fn and_not(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_andnot_si128(b, a) }
    }

    #[inline(always)]
    fn is_zero(self, register: __m128i) -> bool {
        // SAFETY: as above.
        unsafe { _mm_testz_si128(register, register) == 1 }
    }

    #[inline(always)]
    fn excess_halves(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_subs_epu16(a, b) }
    }

    #[inline(always)]
    fn max(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_max_epu32(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_min_epu32(a, b) }
    }

    #[inline(always)]
    fn bits_of_four(self, [a, b, c, d]: [__m128i; 4]) -> u32 {
        // SAFETY: as above.
        unsafe {
            let halves = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
            _mm_movemask_epi8(halves).cast_unsigned()
        }
    }
}
