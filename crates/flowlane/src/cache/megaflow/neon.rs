//! Hashes and filter of a block of slots at a time, four in a register.

use std::arch::aarch64::*;

use super::super::bucket::Bucket;
use super::Tables;
use super::flow::{FlowRef, Megaflow};
use super::subtable::{Subtable, Term};
use super::wide::{self, MegaflowOps, Probe, Queue, Sums};
use crate::hash::multilinear::FOLD;
use crate::isa::simd::{Quad, Registers};
use crate::isa::{Backend, Neon};
use crate::packet::batch::{BLOCK, Column, LaneMask, TransposedBatch};
use crate::packet::key::{BitIter, FlowKey};

/// Slots of a register of hashes.
const LANES: usize = 4;

/// Sums of a block, two in a register, in the order of its slots.
type BlockSums = [uint64x2_t; BLOCK / 2];

/// Adds the terms of a block's slots to their sums.
#[inline]
#[target_feature(enable = "neon")]
fn add(terms: &[Term], columns: &[Column], block: usize, mut sums: BlockSums) -> BlockSums {
    for term in terms {
        let column = &columns[usize::from(term.place)].as_chunks::<BLOCK>().0[block];
        let (mask, multiplier) = (vdupq_n_u32(term.mask), vdupq_n_u32(term.multiplier));
        for (words, [low, high]) in column.as_chunks::<LANES>().0.iter().zip(sums.as_chunks_mut().0) {
            // SAFETY: four words.
            let words = vandq_u32(unsafe { vld1q_u32(words.as_ptr()) }, mask);
            *low = vmlal_u32(*low, vget_low_u32(words), vget_low_u32(multiplier));
            *high = vmlal_high_u32(*high, words, multiplier);
        }
    }
    sums
}

#[inline]
#[target_feature(enable = "neon")]
fn sum(terms: &[Term], batch: &TransposedBatch, sums: &mut Sums) {
    for (block, sums) in sums.iter_mut().enumerate().take(batch.blocks()) {
        let of_block = add(terms, batch.columns(), block, [vdupq_n_u64(0); BLOCK / 2]);
        for (two, to) in of_block.into_iter().zip(sums.as_flattened_mut().as_chunks_mut::<2>().0) {
            // SAFETY: two sums.
            unsafe { vst1q_u64(to.as_mut_ptr(), two) };
        }
    }
}

/// Returns the hashes of four slots.
#[inline]
#[target_feature(enable = "neon")]
fn finish([low, high]: [uint64x2_t; 2]) -> uint32x4_t {
    let [low, high] = [vreinterpretq_u32_u64(low), vreinterpretq_u32_u64(high)];
    let folded = veorq_u32(vuzp1q_u32(low, high), vuzp2q_u32(low, high));
    let folded = vmulq_u32(folded, vdupq_n_u32(FOLD));
    veorq_u32(folded, vshrq_n_u32::<15>(folded))
}

#[inline]
#[target_feature(enable = "neon")]
fn probe(isa: Neon, with: Probe<'_>, batch: &TransposedBatch, sums: &Sums, queue: &mut Queue) {
    let Probe { terms, filter, at, slots } = with;
    assert!(filter.words.len() == 1 << (32 - filter.shift), "the filter's shift fits its size");
    let shift = vdupq_n_s32(-(filter.shift as i32));
    let (one, low_bits) = (vdupq_n_u32(1), vdupq_n_u32(31));
    let bit = |shifted| vshlq_u32(one, vreinterpretq_s32_u32(vandq_u32(shifted, low_bits)));
    for (block, sums) in sums.iter().enumerate().take(batch.blocks()) {
        // SAFETY: two sums each.
        let begun = |i: usize| unsafe { vld1q_u64(sums.as_flattened()[2 * i..][..2].as_ptr()) };
        let sums = add(terms, batch.columns(), block, std::array::from_fn(begun));
        let (mut hashes, mut has) = ([0; BLOCK], [one; BLOCK / LANES]);
        for ((sums, hashes), has) in
            sums.as_chunks().0.iter().zip(hashes.as_chunks_mut::<LANES>().0).zip(&mut has)
        {
            let hash = finish(*sums);
            isa.store(hash, hashes);
            let mut places = [0; LANES];
            isa.store(vshlq_u32(hash, shift), &mut places);
            // SAFETY: a hash shifted by `shift` is less than the number of words, as asserted.
            let words = isa.words(places.map(|place| unsafe { *filter.words.get_unchecked(place as usize) }));
            let bits = vorrq_u32(bit(vshrq_n_u32::<1>(hash)), bit(vshrq_n_u32::<6>(hash)));
            *has = vceqq_u32(vandq_u32(words, bits), bits);
        }
        let has = u64::from(isa.bits_of_four(has)) & slots >> (block * BLOCK);
        for i in BitIter(has) {
            queue.push(batch.lane(block * BLOCK + i) as u32, hashes[i % BLOCK], at);
        }
    }
}

impl MegaflowOps for Neon {
    #[inline(always)]
    fn sum(self, terms: &[Term], batch: &TransposedBatch, sums: &mut Sums) {
        // SAFETY: the witness proves that the CPU has NEON.
        unsafe { sum(terms, batch, sums) }
    }

    #[inline(always)]
    fn probe(self, with: Probe<'_>, batch: &TransposedBatch, sums: &Sums, queue: &mut Queue) {
        // SAFETY: as above.
        unsafe { probe(self, with, batch, sums, queue) }
    }

    #[inline(always)]
    fn matching(self, bucket: &Bucket, tag: u32) -> u32 {
        let equal = |four: usize| {
            self.equal_in(self.mask_all(), self.load(&bucket.tags[LANES * four..]), self.splat(tag))
        };
        let none = self.mask_none();
        self.bits_of_four([equal(0), equal(1), none, none])
    }

    #[inline(always)]
    fn line_matches(self, subtable: &Subtable, flow: &Megaflow, key: &FlowKey) -> bool {
        // A gather reads word by word, and so does this, but only the words that there are.
        subtable.line_matches(flow, key)
    }
}

#[target_feature(enable = "neon")]
pub(super) fn lookup(
    witness: Neon,
    tables: &mut Tables,
    keys: &[FlowKey],
    live: LaneMask,
    found: &mut [FlowRef],
) -> (LaneMask, u64) {
    wide::lookup(witness, Backend::Neon(witness), tables, keys, live, found)
}
