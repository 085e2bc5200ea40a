//! 8 slots at a time: words are gathered from the keys.

use std::arch::x86_64::*;

use super::{BLOCK, Column, FlowKey, LANES_MAX, WORDS};

/// Distance of two keys, in words.
const STRIDE: i32 = (size_of::<FlowKey>() / 4) as i32;

#[target_feature(enable = "avx2")]
pub(super) fn fill(keys: &[FlowKey], words: &[u8], lanes: &[u32], columns: &mut [Column]) {
    assert!(lanes.len() <= LANES_MAX && lanes.len().is_multiple_of(BLOCK));
    assert!(lanes.iter().all(|&lane| (lane as usize) < keys.len()));
    for from in (0..lanes.len()).step_by(8) {
        // SAFETY: eight lanes begin at `from`, since their number is a multiple of eight.
        let lane = unsafe { _mm256_loadu_si256(lanes.as_ptr().add(from).cast()) };
        let at = _mm256_mullo_epi32(lane, _mm256_set1_epi32(STRIDE));
        for (column, &w) in columns.iter_mut().zip(words) {
            let at_word = FlowKey::WORDS_AT + 4 * (usize::from(w) % WORDS);
            let word = keys.as_ptr().wrapping_byte_add(at_word).cast::<i32>();
            // SAFETY: every lane has a key, of whose words this is one.
            let values = unsafe { _mm256_i32gather_epi32::<4>(word, at) };
            // SAFETY: a column holds LANES_MAX words, and eight of them begin at `from`.
            unsafe { _mm256_storeu_si256(column.as_mut_ptr().add(from).cast(), values) };
        }
    }
}
