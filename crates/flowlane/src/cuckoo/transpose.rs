//! Keys side by side to words side by side, as the hash wants them.

use super::{BATCH_MAX, LANES};

/// Groups of [`LANES`] keys in a batch.
pub(super) const GROUPS: usize = BATCH_MAX / LANES;

/// The words of up to [`BATCH_MAX`] keys: `words[group][w][lane]` is word w of key `group * LANES + lane`.
pub(super) type Words<const W: usize> = [[[u32; LANES]; W]; GROUPS];

/// Writes the words of up to [`BATCH_MAX`] keys.
///
/// # Panics
/// Where there are more.
#[inline(always)]
pub(super) fn transpose<const W: usize>(keys: &[[u32; W]], words: &mut Words<W>) {
    assert!(keys.len() <= BATCH_MAX);
    let (fours, rest) = keys.as_chunks::<4>();
    for (i, four) in fours.iter().enumerate() {
        four_keys(four, &mut words[i / (LANES / 4)], i % (LANES / 4) * 4);
    }
    for (i, key) in rest.iter().enumerate() {
        let i = 4 * fours.len() + i;
        for (words, word) in words[i / LANES].iter_mut().zip(key) {
            words[i % LANES] = *word;
        }
    }
}

/// Four keys, into the four lanes from `lane` on: blocks of four words, then the words that are left.
#[inline(always)]
fn four_keys<const W: usize>(keys: &[[u32; W]; 4], group: &mut [[u32; LANES]; W], lane: usize) {
    let mut w = 0;
    while w + 4 <= W {
        let block = four_by_four(std::array::from_fn(|k| std::array::from_fn(|j| keys[k][w + j])));
        for (j, words) in block.into_iter().enumerate() {
            group[w + j][lane..lane + 4].copy_from_slice(&words);
        }
        w += 4;
    }
    while w < W {
        for (k, key) in keys.iter().enumerate() {
            group[w][lane + k] = key[w];
        }
        w += 1;
    }
}

/// Four rows to four columns, in registers where there are such.
#[inline(always)]
fn four_by_four(rows: [[u32; 4]; 4]) -> [[u32; 4]; 4] {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            __m128i, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi32, _mm_unpacklo_epi64,
        };
        // SAFETY: [u32; 4] and __m128i are 16 bytes that may have any value; SSE2, which every x86-64 has.
        unsafe {
            let [a, b, c, d] = std::mem::transmute::<[[u32; 4]; 4], [__m128i; 4]>(rows);
            let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
            let (ab_high, cd_high) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
            std::mem::transmute::<[__m128i; 4], [[u32; 4]; 4]>([
                _mm_unpacklo_epi64(ab, cd),
                _mm_unpackhi_epi64(ab, cd),
                _mm_unpacklo_epi64(ab_high, cd_high),
                _mm_unpackhi_epi64(ab_high, cd_high),
            ])
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::array::from_fn(|w| std::array::from_fn(|k| rows[k][w]))
}
