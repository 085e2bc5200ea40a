//! 128 bits.

use std::arch::x86_64::*;

use super::Registers;
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
