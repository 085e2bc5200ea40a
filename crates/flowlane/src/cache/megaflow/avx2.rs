//! Hashes and filter of 8 slots at a time.

use std::arch::x86_64::*;

use super::subtable::{Filter, Term};
use super::wide::{Blocks, Sums};
use crate::hash::multilinear::FOLD;
use crate::packet::batch::{BLOCK, Column, LANES_MAX};

/// Slots of a register.
const LANES: usize = 8;

/// Adds the terms of 8 slots to the sums of the even and of the odd ones.
#[inline]
#[target_feature(enable = "avx2")]
fn add(terms: &[Term], columns: &[Column], from: usize, sums: [__m256i; 2]) -> [__m256i; 2] {
    let [mut even, mut odd] = sums;
    for term in terms {
        let column: &[u32; LANES] =
            columns[usize::from(term.place)][from..].first_chunk().expect("a part of a column");
        // SAFETY: the part is 8 words.
        let words = unsafe { _mm256_loadu_si256(column.as_ptr().cast()) };
        let masked = _mm256_and_si256(words, _mm256_set1_epi32(term.mask as i32));
        let multiplier = _mm256_set1_epi64x(term.multiplier.into());
        even = _mm256_add_epi64(even, _mm256_mul_epu32(masked, multiplier));
        odd = _mm256_add_epi64(odd, _mm256_mul_epu32(_mm256_srli_epi64::<32>(masked), multiplier));
    }
    [even, odd]
}

/// The sums of the 8 slots from `from` on, as they lie in the block's.
#[inline(always)]
fn halves(block: &[[u64; 8]; 2], from: usize) -> [*const __m256i; 2] {
    let half = from % BLOCK / LANES;
    // Each part of a block has four even and four odd sums.
    [block[0][4 * half..].as_ptr().cast(), block[1][4 * half..].as_ptr().cast()]
}

#[target_feature(enable = "avx2")]
pub(super) fn sum(terms: &[Term], columns: &[Column], blocks: Blocks, sums: &mut Sums) {
    for from in (0..blocks.count() * BLOCK).step_by(LANES) {
        let [e, o] = add(terms, columns, from, [_mm256_setzero_si256(); 2]);
        let half = from % BLOCK / LANES;
        let [even, odd] = &mut sums[from / BLOCK];
        // SAFETY: four sums of 64 bits begin at the beginning and in the middle of the eight.
        unsafe { _mm256_storeu_si256(even[4 * half..].as_mut_ptr().cast(), e) };
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(odd[4 * half..].as_mut_ptr().cast(), o) };
    }
}

#[target_feature(enable = "avx2")]
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
    let one = _mm256_set1_epi32(1);
    let low_bits = _mm256_set1_epi32(31);
    let mut candidates = 0;
    for from in (0..blocks.count() * BLOCK).step_by(LANES) {
        let [even, odd] = halves(&sums[from / BLOCK], from);
        // SAFETY: four sums of 64 bits begin at the beginning and in the middle of the eight.
        let begun = unsafe { [_mm256_loadu_si256(even), _mm256_loadu_si256(odd)] };
        let [even, odd] = add(terms, columns, from, begun);
        let folded = _mm256_blend_epi32::<0b1010_1010>(
            _mm256_xor_si256(even, _mm256_srli_epi64::<32>(even)),
            _mm256_xor_si256(odd, _mm256_slli_epi64::<32>(odd)),
        );
        let folded = _mm256_mullo_epi32(folded, _mm256_set1_epi32(FOLD as i32));
        let hash = _mm256_xor_si256(folded, _mm256_srli_epi32::<15>(folded));
        // SAFETY: there is a hash for every slot, and eight of them begin at `from`.
        unsafe { _mm256_storeu_si256(hashes.as_mut_ptr().add(from).cast(), hash) };
        let at = _mm256_srl_epi32(hash, shift);
        // SAFETY: a hash shifted by `shift` is less than the number of words, as asserted.
        let words = unsafe { _mm256_i32gather_epi32::<4>(filter.words.as_ptr().cast(), at) };
        let bits = _mm256_or_si256(
            _mm256_sllv_epi32(one, _mm256_and_si256(hash, low_bits)),
            _mm256_sllv_epi32(one, _mm256_and_si256(_mm256_srli_epi32::<5>(hash), low_bits)),
        );
        let has = _mm256_cmpeq_epi32(_mm256_and_si256(words, bits), bits);
        let has = _mm256_movemask_ps(_mm256_castsi256_ps(has)) as u32;
        candidates |= u64::from(has) << from;
    }
    candidates
}
