//! Keys of any size, 16 at a time, without transposing them: a vector holds as many whole keys as fit, its
//! even and odd words are multiplied by their multipliers, and what belongs to one key is added up while
//! the vectors of several keys are merged.

use std::arch::x86_64::*;

use super::FOLD;
use super::keys::{KEYS, KeyHash, padded};

/// Returns the terms of the keys in vector `v`, added in pairs: one 64-bit lane for two words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn pairs<const W: usize>(hash: &KeyHash<W>, keys: &[[u32; W]; KEYS], v: usize) -> __m512i {
    let in_vector = 16 / padded(W);
    let part = &keys[v * in_vector..][..in_vector];
    // SAFETY: masked to the words of these keys.
    let words =
        unsafe { _mm512_maskz_loadu_epi32((u32::MAX >> (32 - in_vector * W)) as u16, part.as_ptr().cast()) };
    let words = if W == padded(W) || in_vector == 1 {
        words
    } else {
        let of_a_key = (1 << W) - 1;
        let places = (0..in_vector).fold(0, |places, key| places | of_a_key << (key * padded(W)));
        _mm512_maskz_expand_epi32(places as u16, words)
    };
    // SAFETY: eight numbers of 64 bits each.
    let [even, odd] = unsafe { [hash.even, hash.odd].map(|m| _mm512_loadu_si512(m.as_ptr().cast())) };
    _mm512_add_epi64(_mm512_mul_epu32(words, even), _mm512_mul_epu32(_mm512_srli_epi64::<32>(words), odd))
}

/// Adds the neighbours in `a` and those in `b`: in every 128 bits first a sum of `a`, then one of `b`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn add_neighbours(a: __m512i, b: __m512i) -> __m512i {
    _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
}

/// Adds neighbouring 128 bits of `a`, then those of `b`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn add_quarters(a: __m512i, b: __m512i) -> __m512i {
    _mm512_add_epi64(_mm512_shuffle_i64x2::<0x88>(a, b), _mm512_shuffle_i64x2::<0xdd>(a, b))
}

/// Returns the sums of eight keys, the first of them number `8 * half`, in the order of [`lanes`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn sums<const W: usize>(hash: &KeyHash<W>, keys: &[[u32; W]; KEYS], half: usize) -> __m512i {
    let from = half * padded(W) / 2;
    let four_keys = |v: usize| {
        let two_vectors = |v| add_neighbours(pairs(hash, keys, v), pairs(hash, keys, v + 1));
        add_quarters(two_vectors(v), two_vectors(v + 2))
    };
    match padded(W) {
        2 => pairs(hash, keys, from),
        4 => add_neighbours(pairs(hash, keys, from), pairs(hash, keys, from + 1)),
        8 => four_keys(from),
        _ => add_quarters(four_keys(from), four_keys(from + 4)),
    }
}

/// In which 64-bit lane of [`sums`] each of eight keys is.
const fn lanes(words: usize) -> [i32; 8] {
    match padded(words) {
        4 => [0, 2, 4, 6, 1, 3, 5, 7],
        8 => [0, 2, 1, 3, 4, 6, 5, 7],
        _ => [0, 1, 2, 3, 4, 5, 6, 7],
    }
}

/// [`KeyHash::hash_keys`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
pub(crate) fn hash_keys<const W: usize>(
    hash: &KeyHash<W>,
    keys: &[[u32; W]; KEYS],
    hashes: &mut [u32; KEYS],
) {
    let folded = if W == 1 {
        // SAFETY: 16 words, and eight numbers of 64 bits.
        let (words, multiplier) = unsafe {
            (_mm512_loadu_si512(keys.as_ptr().cast()), _mm512_loadu_si512(hash.even.as_ptr().cast()))
        };
        let even = _mm512_mul_epu32(words, multiplier);
        let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(words), multiplier);
        _mm512_mask_blend_epi32(
            0xaaaa,
            _mm512_xor_si512(even, _mm512_srli_epi64::<32>(even)),
            _mm512_xor_si512(odd, _mm512_slli_epi64::<32>(odd)),
        )
    } else {
        let [low, high] = [sums(hash, keys, 0), sums(hash, keys, 1)]
            .map(|sum| _mm512_xor_si512(sum, _mm512_srli_epi64::<32>(sum)));
        let [a, b, c, d, e, f, g, h] = const { lanes(W) }.map(|lane| 2 * lane);
        let order = _mm512_setr_epi32(
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            a + 16,
            b + 16,
            c + 16,
            d + 16,
            e + 16,
            f + 16,
            g + 16,
            h + 16,
        );
        _mm512_permutex2var_epi32(low, order, high)
    };
    let folded = _mm512_mullo_epi32(folded, _mm512_set1_epi32(FOLD.cast_signed()));
    let hash = _mm512_xor_si512(folded, _mm512_srli_epi32::<15>(folded));
    // SAFETY: 16 words.
    unsafe { _mm512_storeu_si512(hashes.as_mut_ptr().cast(), hash) };
}
