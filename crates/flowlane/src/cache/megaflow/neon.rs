//! Hashes and filter of eight slots at a time, four in a register.

use std::arch::aarch64::*;

use super::super::bucket::Bucket;
use super::Tables;
use super::flow::{FlowRef, KEY_WORDS, Megaflow};
use super::subtable::{Subtable, Term};
use super::wide::{self, MegaflowOps, Probe, Queue, Sums};
use crate::hash::multilinear::neon::{add_term, finish};
use crate::isa::simd::{Quad, Registers};
use crate::isa::{Backend, Neon};
use crate::packet::batch::{Column, LANES_MAX, LaneMask, TransposedBatch};
use crate::packet::key::{BitIter, FlowKey, WORDS};

/// Slots of a register of hashes.
const LANES: usize = 4;

/// Slots that are hashed together: few enough that small bursts fill them, enough that a term is loaded for several registers.
const GROUP: usize = 2 * LANES;

/// Sums of a group, two in a register, in the order of its slots.
type GroupSums = [[uint64x2_t; 2]; GROUP / LANES];

/// Adds the terms of a group's slots to their sums.
#[inline]
#[target_feature(enable = "neon")]
fn add(isa: Neon, terms: &[Term], columns: &[Column], group: usize, mut sums: GroupSums) -> GroupSums {
    for term in terms {
        let column = &columns[usize::from(term.place)].as_chunks::<GROUP>().0[group % (LANES_MAX / GROUP)];
        let mask = isa.splat(term.mask);
        for (words, sums) in column.as_chunks::<LANES>().0.iter().zip(&mut sums) {
            *sums = add_term(*sums, term.multiplier, isa.and(isa.load(words), mask));
        }
    }
    sums
}

#[inline]
#[target_feature(enable = "neon")]
fn sum(isa: Neon, terms: &[Term], batch: &TransposedBatch, sums: &mut Sums) {
    for (group, to) in sums.as_flattened_mut().iter_mut().enumerate().take(batch.len().div_ceil(GROUP)) {
        let of_group = add(isa, terms, batch.columns(), group, [[vdupq_n_u64(0); 2]; GROUP / LANES]);
        for (two, to) in of_group.as_flattened().iter().zip(to.as_chunks_mut::<2>().0) {
            // SAFETY: two sums.
            unsafe { vst1q_u64(to.as_mut_ptr(), *two) };
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn probe(isa: Neon, with: Probe<'_>, batch: &TransposedBatch, sums: &Sums, queue: &mut Queue) {
    let Probe { terms, filter, mask, slots } = with;
    assert!(filter.words.len() == 1 << (32 - filter.shift), "the filter's shift fits its size");
    let shift = vdupq_n_s32(-(filter.shift as i32));
    let (one, low_bits) = (vdupq_n_u32(1), vdupq_n_u32(31));
    let bit = |shifted| vshlq_u32(one, vreinterpretq_s32_u32(vandq_u32(shifted, low_bits)));
    for (group, begun) in sums.as_flattened().iter().enumerate().take(batch.len().div_ceil(GROUP)) {
        let slots = slots >> (group * GROUP) & ((1 << GROUP) - 1);
        if slots == 0 {
            continue;
        }
        // SAFETY: two sums each.
        let begun = |two: usize| unsafe { vld1q_u64(begun[2 * two..][..2].as_ptr()) };
        let begun = [[begun(0), begun(1)], [begun(2), begun(3)]];
        let hashes = add(isa, terms, batch.columns(), group, begun).map(|sums| finish(sums));
        let [first, second] = hashes.map(|hash| {
            let mut places = [0; LANES];
            isa.store(vshlq_u32(hash, shift), &mut places);
            // SAFETY: a hash shifted by `shift` is less than the number of words, as asserted.
            let words = isa.words(places.map(|place| unsafe { *filter.words.get_unchecked(place as usize) }));
            let bits = vorrq_u32(bit(vshrq_n_u32::<1>(hash)), bit(vshrq_n_u32::<6>(hash)));
            vceqq_u32(vandq_u32(words, bits), bits)
        });
        let none = isa.mask_none();
        let passed = u64::from(isa.bits_of_four([first, second, none, none])) & slots;
        if passed != 0 {
            let mut own = [0; GROUP];
            own.as_chunks_mut::<LANES>()
                .0
                .iter_mut()
                .zip(hashes)
                .for_each(|(own, hash)| isa.store(hash, own));
            for i in BitIter(passed) {
                queue.push(batch.lane(group * GROUP + i) as u32, own[i % GROUP], mask);
            }
        }
    }
}

impl MegaflowOps for Neon {
    #[inline(always)]
    fn sum(self, terms: &[Term], batch: &TransposedBatch, sums: &mut Sums) {
        // SAFETY: the witness proves that the CPU has NEON.
        unsafe { sum(self, terms, batch, sums) }
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
        let words = key.words();
        let differences = |four: usize| {
            let places = &subtable.places.as_chunks::<LANES>().0[four];
            let words = self.words(places.map(|place| words[place as usize % WORDS]));
            let masked = self.and(words, self.load(&subtable.masks[LANES * four..]));
            self.xor(masked, self.load(&flow.key[LANES * four..]))
        };
        // Words that the line has not are zero, in the masks, too.
        let first = differences(0);
        if subtable.stored < 1 << LANES {
            return self.is_zero(first);
        }
        // But for the last where there are more than fit.
        let has_last = if subtable.stored >> (KEY_WORDS - 1) == 1 { u32::MAX } else { 0 };
        let kept = self.words([u32::MAX, u32::MAX, u32::MAX, has_last]);
        self.is_zero(self.or(first, self.and(differences(1), kept)))
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
