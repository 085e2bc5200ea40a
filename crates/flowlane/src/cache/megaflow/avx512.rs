//! Hashes and filter of 16 slots at a time.

use std::arch::x86_64::*;

use super::subtable::{Filter, Term};
use super::wide::{Blocks, Sums};
use crate::hash::multilinear::FOLD;
use crate::packet::batch::{BLOCK, Column, LANES_MAX};

/// Adds the terms of a block to the sums of its even and of its odd slots.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add(terms: &[Term], columns: &[Column], from: usize, sums: [__m512i; 2]) -> [__m512i; 2] {
    let [mut even, mut odd] = sums;
    for term in terms {
        let column: &[u32; BLOCK] =
            columns[usize::from(term.place)][from..].first_chunk().expect("a block of a column");
        // SAFETY: a block is 16 words.
        let words = unsafe { _mm512_loadu_si512(column.as_ptr().cast()) };
        let masked = _mm512_and_si512(words, _mm512_set1_epi32(term.mask as i32));
        let multiplier = _mm512_set1_epi64(term.multiplier.into());
        even = _mm512_add_epi64(even, _mm512_mul_epu32(masked, multiplier));
        odd = _mm512_add_epi64(odd, _mm512_mul_epu32(_mm512_srli_epi64::<32>(masked), multiplier));
    }
    [even, odd]
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn sum(terms: &[Term], columns: &[Column], blocks: Blocks, sums: &mut Sums) {
    for (block, [even, odd]) in sums.iter_mut().enumerate().take(blocks.count()) {
        let [e, o] = add(terms, columns, block * BLOCK, [_mm512_setzero_si512(); 2]);
        // SAFETY: a half of a block's sums is 8 words of 64 bits.
        unsafe { _mm512_storeu_si512(even.as_mut_ptr().cast(), e) };
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(odd.as_mut_ptr().cast(), o) };
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn probe(
    terms: &[Term],
    filter: &Filter,
    columns: &[Column],
    blocks: Blocks,
    sums: &Sums,
    hashes: &mut [u32; LANES_MAX],
) -> u64 {
    assert!(filter.words.len() == 1 << (32 - filter.shift), "the filter's shift fits its size");
    let shift = _mm_cvtsi32_si128(filter.shift as i32);
    let one = _mm512_set1_epi32(1);
    let mut candidates = 0;
    for (block, [even, odd]) in sums.iter().enumerate().take(blocks.count()) {
        let from = block * BLOCK;
        // SAFETY: a half of a block's sums is 8 words of 64 bits.
        let begun =
            unsafe { [_mm512_loadu_si512(even.as_ptr().cast()), _mm512_loadu_si512(odd.as_ptr().cast())] };
        let [even, odd] = add(terms, columns, from, begun);
        let folded = _mm512_mask_blend_epi32(
            0xaaaa,
            _mm512_xor_si512(even, _mm512_srli_epi64::<32>(even)),
            _mm512_xor_si512(odd, _mm512_slli_epi64::<32>(odd)),
        );
        let folded = _mm512_mullo_epi32(folded, _mm512_set1_epi32(FOLD as i32));
        let hash = _mm512_xor_si512(folded, _mm512_srli_epi32::<15>(folded));
        // SAFETY: there is a hash for every slot, and a block of them begins at `from`.
        unsafe { _mm512_storeu_si512(hashes.as_mut_ptr().add(from).cast(), hash) };
        let at = _mm512_srl_epi32(hash, shift);
        // SAFETY: a hash shifted by `shift` is less than the number of words, as asserted.
        let words = unsafe { _mm512_i32gather_epi32::<4>(at, filter.words.as_ptr().cast()) };
        let bits = _mm512_or_si512(
            _mm512_rolv_epi32(one, hash),
            _mm512_rolv_epi32(one, _mm512_srli_epi32::<5>(hash)),
        );
        let has = _mm512_cmpeq_epi32_mask(_mm512_and_si512(words, bits), bits);
        candidates |= u64::from(has) << from;
    }
    candidates
}
