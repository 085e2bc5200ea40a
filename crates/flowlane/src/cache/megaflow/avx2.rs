//! Hashes and filter of 8 slots at a time.

use std::arch::x86_64::*;

use super::super::bucket::Bucket;
use super::Tables;
use super::flow::{FlowRef, Megaflow};
use super::subtable::{Subtable, Term};
use super::wide::{self, MegaflowOps, Probe, Queue, Sums};
use crate::hash::multilinear::FOLD;
use crate::isa::{Avx2, Backend};
use crate::packet::batch::{BLOCK, Column, LaneMask, TransposedBatch};
use crate::packet::key::{BitIter, FlowKey};

/// Slots of a register.
const LANES: usize = 8;

/// Adds the terms of 8 slots to the sums of the even and of the odd ones.
#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
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

#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn sum(terms: &[Term], batch: &TransposedBatch, sums: &mut Sums) {
    for from in (0..batch.blocks() * BLOCK).step_by(LANES) {
        let [e, o] = add(terms, batch.columns(), from, [_mm256_setzero_si256(); 2]);
        let half = from % BLOCK / LANES;
        let [even, odd] = &mut sums[from / BLOCK];
        // SAFETY: four sums of 64 bits begin at the beginning and in the middle of the eight.
        unsafe { _mm256_storeu_si256(even[4 * half..].as_mut_ptr().cast(), e) };
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(odd[4 * half..].as_mut_ptr().cast(), o) };
    }
}

#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn probe(with: Probe<'_>, batch: &TransposedBatch, sums: &Sums, queue: &mut Queue) {
    let Probe { terms, filter, mask, slots } = with;
    assert!(filter.words.len() == 1 << (32 - filter.shift), "the filter's shift fits its size");
    let shift = _mm_cvtsi32_si128(filter.shift as i32);
    let one = _mm256_set1_epi32(1);
    let low_bits = _mm256_set1_epi32(31);
    for from in (0..batch.blocks() * BLOCK).step_by(LANES) {
        let [even, odd] = halves(&sums[from / BLOCK], from);
        // SAFETY: four sums of 64 bits begin at the beginning and in the middle of the eight.
        let begun = unsafe { [_mm256_loadu_si256(even), _mm256_loadu_si256(odd)] };
        let [even, odd] = add(terms, batch.columns(), from, begun);
        let folded = _mm256_blend_epi32::<0b1010_1010>(
            _mm256_xor_si256(even, _mm256_srli_epi64::<32>(even)),
            _mm256_xor_si256(odd, _mm256_slli_epi64::<32>(odd)),
        );
        let folded = _mm256_mullo_epi32(folded, _mm256_set1_epi32(FOLD as i32));
        let hash = _mm256_xor_si256(folded, _mm256_srli_epi32::<15>(folded));
        let place = _mm256_srl_epi32(hash, shift);
        // SAFETY: a hash shifted by `shift` is less than the number of words, as asserted.
        let words = unsafe { _mm256_i32gather_epi32::<4>(filter.words.as_ptr().cast(), place) };
        let bits = _mm256_or_si256(
            _mm256_sllv_epi32(one, _mm256_and_si256(_mm256_srli_epi32::<1>(hash), low_bits)),
            _mm256_sllv_epi32(one, _mm256_and_si256(_mm256_srli_epi32::<6>(hash), low_bits)),
        );
        let has = _mm256_cmpeq_epi32(_mm256_and_si256(words, bits), bits);
        let has = _mm256_movemask_ps(_mm256_castsi256_ps(has)) as u32;
        let mut hashes = [0u32; LANES];
        // SAFETY: eight hashes fit.
        unsafe { _mm256_storeu_si256(hashes.as_mut_ptr().cast(), hash) };
        for i in BitIter(u64::from(has) & slots >> from) {
            queue.push(batch.lane(from + i) as u32, hashes[i % LANES], mask);
        }
    }
}

/// The bucket's slots with this tag.
#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn matching(bucket: &Bucket, tag: u32) -> u32 {
    // SAFETY: a bucket has eight tags.
    let tags = unsafe { _mm256_loadu_si256(bucket.tags.as_ptr().cast()) };
    let equal = _mm256_cmpeq_epi32(tags, _mm256_set1_epi32(tag as i32));
    _mm256_movemask_ps(_mm256_castsi256_ps(equal)) as u32
}

/// The words of the megaflow's line against the key's, all eight at once.
#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn line_matches(subtable: &Subtable, flow: &Megaflow, key: &FlowKey) -> bool {
    // SAFETY: a subtable has eight places.
    let places = unsafe { _mm256_loadu_si256(subtable.places.as_ptr().cast()) };
    // SAFETY: and eight masks.
    let masks = unsafe { _mm256_loadu_si256(subtable.masks.as_ptr().cast()) };
    // SAFETY: a megaflow's line has eight words.
    let stored = unsafe { _mm256_loadu_si256(flow.key.as_ptr().cast()) };
    // SAFETY: places are words of a key, less than 64.
    let words = unsafe { _mm256_i32gather_epi32::<4>(key.words().as_ptr().cast(), places) };
    let equal = _mm256_cmpeq_epi32(_mm256_and_si256(words, masks), stored);
    let equal = _mm256_movemask_ps(_mm256_castsi256_ps(equal)) as u8;
    equal | !subtable.stored == u8::MAX
}

impl MegaflowOps for Avx2 {
    #[inline(always)]
    fn sum(self, terms: &[Term], batch: &TransposedBatch, sums: &mut Sums) {
        // SAFETY: the witness proves that the CPU has the instructions.
        unsafe { sum(terms, batch, sums) }
    }

    #[inline(always)]
    fn probe(self, with: Probe<'_>, batch: &TransposedBatch, sums: &Sums, queue: &mut Queue) {
        // SAFETY: as above.
        unsafe { probe(with, batch, sums, queue) }
    }

    #[inline(always)]
    fn matching(self, bucket: &Bucket, tag: u32) -> u32 {
        // SAFETY: as above.
        unsafe { matching(bucket, tag) }
    }

    #[inline(always)]
    fn line_matches(self, subtable: &Subtable, flow: &Megaflow, key: &FlowKey) -> bool {
        // SAFETY: as above.
        unsafe { line_matches(subtable, flow, key) }
    }
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn lookup(
    witness: Avx2,
    tables: &mut Tables,
    keys: &[FlowKey],
    live: LaneMask,
    found: &mut [FlowRef],
) -> (LaneMask, u64) {
    wide::lookup(witness, Backend::Avx2(witness), tables, keys, live, found)
}
