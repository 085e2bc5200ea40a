//! Vectors of x86-64.

use std::arch::x86_64::*;

use super::Brute;
use super::lanes::{self, Lanes};
use crate::classify::acl::{MatchId, WordKind};
use crate::isa::{Avx2, Avx512, Sse42};

// A key lies in a range where clamping it to the range leaves it unchanged: two instructions and a comparison, for
// one range of 32 bits as for two of 16.

/// Four lanes, with the witness of SSE4.2.
#[derive(Clone, Copy)]
struct Sse(Sse42);

impl Lanes for Sse {
    const N: usize = 4;
    type Words = __m128i;
    type Set = __m128i;

    #[inline(always)]
    fn load(self, words: &[u32], at: usize) -> __m128i {
        // SAFETY: the slice is as long.
        unsafe { _mm_loadu_si128(words[at..at + Self::N].as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, words: __m128i, to: &mut [u32], at: usize) {
        // SAFETY: the slice is as long.
        unsafe { _mm_storeu_si128(to[at..at + Self::N].as_mut_ptr().cast(), words) }
    }

    #[inline(always)]
    fn splat(self, word: u32) -> __m128i {
        // SAFETY: the witness that this holds proves SSE4.2; so for all below.
        unsafe { _mm_set1_epi32(word.cast_signed()) }
    }

    #[inline(always)]
    fn all(self) -> __m128i {
        self.splat(u32::MAX)
    }

    #[inline(always)]
    fn none(self) -> __m128i {
        self.splat(0)
    }

    #[inline(always)]
    fn suit(self, among: __m128i, kind: WordKind, key: __m128i, low: __m128i, high: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe {
            let equal = match kind {
                WordKind::Ternary => _mm_cmpeq_epi32(_mm_and_si128(key, high), low),
                WordKind::Range32 => _mm_cmpeq_epi32(_mm_min_epu32(_mm_max_epu32(key, low), high), key),
                WordKind::Range16 => _mm_cmpeq_epi32(_mm_min_epu16(_mm_max_epu16(key, low), high), key),
            };
            _mm_and_si128(among, equal)
        }
    }

    #[inline(always)]
    fn minus(self, of: __m128i, without: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_andnot_si128(without, of) }
    }

    #[inline(always)]
    fn union(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_or_si128(a, b) }
    }

    #[inline(always)]
    fn pick(self, set: __m128i, new: __m128i, old: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_blendv_epi8(old, new, set) }
    }

    #[inline(always)]
    fn bits(self, set: __m128i) -> u32 {
        // SAFETY: as above.
        unsafe { _mm_movemask_ps(_mm_castsi128_ps(set)).cast_unsigned() }
    }
}

/// Eight lanes, with the witness of AVX2.
#[derive(Clone, Copy)]
struct Vex(Avx2);

impl Lanes for Vex {
    const N: usize = 8;
    type Words = __m256i;
    type Set = __m256i;

    #[inline(always)]
    fn load(self, words: &[u32], at: usize) -> __m256i {
        // SAFETY: the slice is as long.
        unsafe { _mm256_loadu_si256(words[at..at + Self::N].as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, words: __m256i, to: &mut [u32], at: usize) {
        // SAFETY: the slice is as long.
        unsafe { _mm256_storeu_si256(to[at..at + Self::N].as_mut_ptr().cast(), words) }
    }

    #[inline(always)]
    fn splat(self, word: u32) -> __m256i {
        // SAFETY: the witness that this holds proves AVX2; so for all below.
        unsafe { _mm256_set1_epi32(word.cast_signed()) }
    }

    #[inline(always)]
    fn all(self) -> __m256i {
        self.splat(u32::MAX)
    }

    #[inline(always)]
    fn none(self) -> __m256i {
        self.splat(0)
    }

    #[inline(always)]
    fn suit(self, among: __m256i, kind: WordKind, key: __m256i, low: __m256i, high: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe {
            let equal = match kind {
                WordKind::Ternary => _mm256_cmpeq_epi32(_mm256_and_si256(key, high), low),
                WordKind::Range32 => {
                    _mm256_cmpeq_epi32(_mm256_min_epu32(_mm256_max_epu32(key, low), high), key)
                }
                WordKind::Range16 => {
                    _mm256_cmpeq_epi32(_mm256_min_epu16(_mm256_max_epu16(key, low), high), key)
                }
            };
            _mm256_and_si256(among, equal)
        }
    }

    #[inline(always)]
    fn minus(self, of: __m256i, without: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_andnot_si256(without, of) }
    }

    #[inline(always)]
    fn union(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn pick(self, set: __m256i, new: __m256i, old: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_blendv_epi8(old, new, set) }
    }

    #[inline(always)]
    fn bits(self, set: __m256i) -> u32 {
        // SAFETY: as above.
        unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(set)).cast_unsigned() }
    }
}

/// Sixteen lanes, their sets in mask registers, with the witness of AVX-512.
#[derive(Clone, Copy)]
struct Evex(Avx512);

impl Lanes for Evex {
    const N: usize = 16;
    type Words = __m512i;
    type Set = u16;

    #[inline(always)]
    fn load(self, words: &[u32], at: usize) -> __m512i {
        // SAFETY: the slice is as long.
        unsafe { _mm512_loadu_si512(words[at..at + Self::N].as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, words: __m512i, to: &mut [u32], at: usize) {
        // SAFETY: the slice is as long.
        unsafe { _mm512_storeu_si512(to[at..at + Self::N].as_mut_ptr().cast(), words) }
    }

    #[inline(always)]
    fn splat(self, word: u32) -> __m512i {
        // SAFETY: the witness that this holds proves AVX-512 F, BW, DQ and VL; so for all below.
        unsafe { _mm512_set1_epi32(word.cast_signed()) }
    }

    #[inline(always)]
    fn all(self) -> u16 {
        u16::MAX
    }

    #[inline(always)]
    fn none(self) -> u16 {
        0
    }

    #[inline(always)]
    fn suit(self, among: u16, kind: WordKind, key: __m512i, low: __m512i, high: __m512i) -> u16 {
        // SAFETY: as above.
        unsafe {
            match kind {
                WordKind::Ternary => _mm512_mask_cmpeq_epi32_mask(among, _mm512_and_si512(key, high), low),
                WordKind::Range32 => _mm512_mask_cmpeq_epi32_mask(
                    among,
                    _mm512_min_epu32(_mm512_max_epu32(key, low), high),
                    key,
                ),
                WordKind::Range16 => _mm512_mask_cmpeq_epi32_mask(
                    among,
                    _mm512_min_epu16(_mm512_max_epu16(key, low), high),
                    key,
                ),
            }
        }
    }

    #[inline(always)]
    fn minus(self, of: u16, without: u16) -> u16 {
        of & !without
    }

    #[inline(always)]
    fn union(self, a: u16, b: u16) -> u16 {
        a | b
    }

    #[inline(always)]
    fn pick(self, set: u16, new: __m512i, old: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_mask_blend_epi32(set, old, new) }
    }

    #[inline(always)]
    fn bits(self, set: u16) -> u32 {
        set.into()
    }
}

/// Defines the kernel of an instruction set, and the function that takes its witness.
macro_rules! kernel {
    ($name:ident, $witness:ident, $lanes:ident, $features:literal) => {
        pub(super) fn $name<const W: usize>(
            isa: $witness,
            table: &Brute<W>,
            keys: &[[u32; W]],
            categories: usize,
            verdicts: &mut [MatchId],
        ) {
            #[target_feature(enable = $features)]
            fn kernel<const W: usize>(
                isa: $witness,
                table: &Brute<W>,
                keys: &[[u32; W]],
                categories: usize,
                verdicts: &mut [MatchId],
            ) {
                lanes::lookup($lanes(isa), table, keys, categories, verdicts);
            }
            // SAFETY: the witness proves that the CPU has the instructions.
            unsafe { kernel(isa, table, keys, categories, verdicts) }
        }
    };
}

kernel!(sse42, Sse42, Sse, "sse4.2");
kernel!(avx2, Avx2, Vex, "avx2,popcnt,bmi1,bmi2,lzcnt");
kernel!(avx512, Avx512, Evex, "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt");
