//! Keys of any size, 16 at a time, without transposing them: two words of a key are multiplied by their multipliers at once, and
//! the two sums of a key are added where those of several keys are merged.

use std::arch::aarch64::*;

use super::FOLD;
use super::keys::{KEYS, KeyHash};

/// Keys of a register of hashes.
const LANES: usize = 4;

/// Returns the terms of a key, those of even words added up in one lane and those of odd words in the other.
#[inline]
#[target_feature(enable = "neon")]
fn pair<const W: usize>(multipliers: &[u32; W], key: &[u32; W]) -> uint64x2_t {
    let mut sum = vdupq_n_u64(0);
    let (fours, rest) = (key.as_chunks::<4>(), multipliers.as_chunks::<4>());
    for (words, multipliers) in fours.0.iter().zip(rest.0) {
        // SAFETY: four words each.
        let (words, multipliers) = unsafe { (vld1q_u32(words.as_ptr()), vld1q_u32(multipliers.as_ptr())) };
        sum = vmlal_u32(sum, vget_low_u32(words), vget_low_u32(multipliers));
        sum = vmlal_high_u32(sum, words, multipliers);
    }
    let (twos, ones) = (fours.1.as_chunks::<2>(), rest.1.as_chunks::<2>());
    for (words, multipliers) in twos.0.iter().zip(ones.0) {
        // SAFETY: two words each.
        let (words, multipliers) = unsafe { (vld1_u32(words.as_ptr()), vld1_u32(multipliers.as_ptr())) };
        sum = vmlal_u32(sum, words, multipliers);
    }
    for (word, multiplier) in twos.1.iter().zip(ones.1) {
        sum = vmlal_u32(sum, vset_lane_u32::<0>(*word, vdup_n_u32(0)), vdup_n_u32(*multiplier));
    }
    sum
}

/// Adds a term of four keys to their sums: [`term`](super::term).
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn add_term([low, high]: [uint64x2_t; 2], multiplier: u32, words: uint32x4_t) -> [uint64x2_t; 2] {
    let multiplier = vdupq_n_u32(multiplier);
    [vmlal_u32(low, vget_low_u32(words), vget_low_u32(multiplier)), vmlal_high_u32(high, words, multiplier)]
}

/// Returns the hashes of four sums: [`finish`](super::finish).
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn finish(sums: [uint64x2_t; 2]) -> uint32x4_t {
    let [low, high] = sums.map(|sums| vreinterpretq_u32_u64(sums));
    let folded = veorq_u32(vuzp1q_u32(low, high), vuzp2q_u32(low, high));
    let folded = vmulq_u32(folded, vdupq_n_u32(FOLD));
    veorq_u32(folded, vshrq_n_u32::<15>(folded))
}

/// [`KeyHash::hash_keys`].
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn hash_keys<const W: usize>(
    hash: &KeyHash<W>,
    keys: &[[u32; W]; KEYS],
    hashes: &mut [u32; KEYS],
) {
    let multipliers = &hash.multipliers;
    for (keys, hashes) in keys.as_chunks::<LANES>().0.iter().zip(hashes.as_chunks_mut::<LANES>().0) {
        let two = |at: usize| vpaddq_u64(pair(multipliers, &keys[at]), pair(multipliers, &keys[at + 1]));
        // SAFETY: four hashes.
        unsafe { vst1q_u32(hashes.as_mut_ptr(), finish([two(0), two(2)])) };
    }
}
