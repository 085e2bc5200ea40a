//! 16 slots at a time: words are gathered from the keys, gaps closed with `vpcompressd`.

use std::arch::x86_64::*;

use super::{BLOCK, Column, FlowKey, LANES_MAX, WORDS};

/// Distance of two keys, in words.
const STRIDE: i32 = (size_of::<FlowKey>() / 4) as i32;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn fill(keys: &[FlowKey], words: &[u8], lanes: &[u32], columns: &mut [Column]) {
    assert!(lanes.len() <= LANES_MAX && lanes.len().is_multiple_of(BLOCK));
    assert!(lanes.iter().all(|&lane| (lane as usize) < keys.len()));
    for from in (0..lanes.len()).step_by(BLOCK) {
        // SAFETY: a block of lanes begins at `from`, since their number is a multiple of its size.
        let lane = unsafe { _mm512_loadu_si512(lanes.as_ptr().add(from).cast()) };
        let at = _mm512_mullo_epi32(lane, _mm512_set1_epi32(STRIDE));
        for (column, &w) in columns.iter_mut().zip(words) {
            let at_word = FlowKey::WORDS_AT + 4 * (usize::from(w) % WORDS);
            let word = keys.as_ptr().wrapping_byte_add(at_word).cast::<i32>();
            // SAFETY: every lane has a key, of whose words this is one.
            let values = unsafe { _mm512_i32gather_epi32::<4>(at, word) };
            // SAFETY: a column holds LANES_MAX words, and a block of them begins at `from`.
            unsafe { _mm512_storeu_si512(column.as_mut_ptr().add(from).cast(), values) };
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn keep(slots: u64, column: &mut Column) {
    let mut to = 0;
    for block in 0..LANES_MAX / BLOCK {
        let kept = (slots >> (block * BLOCK)) as u16;
        if kept == 0 {
            continue;
        }
        // SAFETY: a column is four blocks long.
        let values = unsafe { _mm512_loadu_si512(column.as_ptr().add(block * BLOCK).cast()) };
        // Merged into a register: zeroing has a false dependency on some CPUs, and compressing into memory
        // is microcoded on others.
        let packed = _mm512_mask_compress_epi32(values, kept, values);
        // SAFETY: `to` is at most `block * BLOCK`, since no block keeps more than it has.
        unsafe { _mm512_storeu_si512(column.as_mut_ptr().add(to).cast(), packed) };
        to += kept.count_ones() as usize;
    }
}
