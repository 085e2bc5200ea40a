//! Hashes and filter of 16 slots at a time.

use std::arch::x86_64::*;

use super::super::bucket::Bucket;
use super::Tables;
use super::flow::{FlowRef, Megaflow};
use super::subtable::{Subtable, Term};
use super::wide::{self, MegaflowOps, Probe, Queue, Sums};
use crate::hash::multilinear::FOLD;
use crate::isa::{Avx512, Backend};
use crate::packet::batch::{BLOCK, Column, LaneMask, TransposedBatch};
use crate::packet::key::FlowKey;

/// Adds the terms of a block to the sums of its even and of its odd slots.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
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

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn sum(terms: &[Term], batch: &TransposedBatch, sums: &mut Sums) {
    for (block, [even, odd]) in sums.iter_mut().enumerate().take(batch.blocks()) {
        let [e, o] = add(terms, batch.columns(), block * BLOCK, [_mm512_setzero_si512(); 2]);
        // SAFETY: a half of a block's sums is 8 words of 64 bits.
        unsafe { _mm512_storeu_si512(even.as_mut_ptr().cast(), e) };
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(odd.as_mut_ptr().cast(), o) };
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn probe(with: Probe<'_>, batch: &TransposedBatch, sums: &Sums, queue: &mut Queue) {
    let Probe { terms, filter, mask, slots } = with;
    assert!(filter.words.len() == 1 << (32 - filter.shift), "the filter's shift fits its size");
    let shift = _mm_cvtsi32_si128(filter.shift as i32);
    let one = _mm512_set1_epi32(1);
    let masks = _mm512_set1_epi32(mask as i32);
    for (block, [even, odd]) in sums.iter().enumerate().take(batch.blocks()) {
        let from = block * BLOCK;
        // SAFETY: a half of a block's sums is 8 words of 64 bits.
        let begun =
            unsafe { [_mm512_loadu_si512(even.as_ptr().cast()), _mm512_loadu_si512(odd.as_ptr().cast())] };
        let [even, odd] = add(terms, batch.columns(), from, begun);
        let folded = _mm512_mask_blend_epi32(
            0xaaaa,
            _mm512_xor_si512(even, _mm512_srli_epi64::<32>(even)),
            _mm512_xor_si512(odd, _mm512_slli_epi64::<32>(odd)),
        );
        let folded = _mm512_mullo_epi32(folded, _mm512_set1_epi32(FOLD as i32));
        let hash = _mm512_xor_si512(folded, _mm512_srli_epi32::<15>(folded));
        let place = _mm512_srl_epi32(hash, shift);
        // SAFETY: a hash shifted by `shift` is less than the number of words, as asserted.
        let words = unsafe { _mm512_i32gather_epi32::<4>(place, filter.words.as_ptr().cast()) };
        let bits = _mm512_or_si512(
            _mm512_rolv_epi32(one, _mm512_srli_epi32::<1>(hash)),
            _mm512_rolv_epi32(one, _mm512_srli_epi32::<6>(hash)),
        );
        let live = (slots >> from) as u16;
        let has = _mm512_mask_cmpeq_epi32_mask(live, _mm512_and_si512(words, bits), bits);
        let end = queue.end();
        // Compressed in a register and stored whole: compressing into memory is microcoded on some CPUs.
        let lanes: &[u32; BLOCK] = batch.lanes()[from..].first_chunk().expect("a block of lanes");
        // SAFETY: a block is 16 lanes.
        let lanes = unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) };
        let lanes = _mm512_mask_compress_epi32(lanes, has, lanes);
        let hashes = _mm512_mask_compress_epi32(hash, has, hash);
        // SAFETY: `end` leaves room for a block.
        unsafe { _mm512_storeu_si512(queue.lane.as_mut_ptr().add(end).cast(), lanes) };
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(queue.hash.as_mut_ptr().add(end).cast(), hashes) };
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(queue.mask.as_mut_ptr().add(end).cast(), masks) };
        queue.grow(has.count_ones());
    }
}

/// The bucket's slots with this tag.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn matching(bucket: &Bucket, tag: u32) -> u32 {
    // SAFETY: a bucket has eight tags.
    let tags = unsafe { _mm256_loadu_si256(bucket.tags.as_ptr().cast()) };
    _mm256_cmpeq_epi32_mask(tags, _mm256_set1_epi32(tag as i32)).into()
}

/// The words of the megaflow's line against the key's, all eight at once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn line_matches(subtable: &Subtable, flow: &Megaflow, key: &FlowKey) -> bool {
    // SAFETY: a subtable has eight places.
    let places = unsafe { _mm256_loadu_si256(subtable.places.as_ptr().cast()) };
    // SAFETY: and eight masks.
    let masks = unsafe { _mm256_loadu_si256(subtable.masks.as_ptr().cast()) };
    // SAFETY: a megaflow's line has eight words.
    let stored = unsafe { _mm256_loadu_si256(flow.key.as_ptr().cast()) };
    // SAFETY: places are words of a key, less than WORDS.
    let words = unsafe { _mm256_i32gather_epi32::<4>(key.words().as_ptr().cast(), places) };
    let stored = _mm256_maskz_mov_epi32(subtable.stored, stored);
    _mm256_cmpneq_epi32_mask(_mm256_and_si256(words, masks), stored) == 0
}

impl MegaflowOps for Avx512 {
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

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn lookup(
    witness: Avx512,
    tables: &mut Tables,
    keys: &[FlowKey],
    live: LaneMask,
    found: &mut [FlowRef],
) -> (LaneMask, u64) {
    wide::lookup(witness, Backend::Avx512(witness), tables, keys, live, found)
}
