//! Looking up a batch, many lanes at a time.
//!
//! ```text
//! keys ── transposed ── sum of the terms that all masks have
//!   for each mask:  hash all slots, test the filter          → candidates (few)
//!                   candidates of this mask:        prefetch the slot
//!                   candidates of the mask before:  read the slot, prefetch the megaflow
//!                   candidates of the one before:   compare the key    → found, lane leaves
//! ```
//!
//! The stages of a candidate lie a mask's hashing apart, so that what they fetch has time to come. A lane
//! that will turn out to be found is hashed for two more masks meanwhile, which costs nothing: a register
//! is worked on whole. When enough lanes have left, the others are moved together.

use super::flow::{FlowRef, Megaflow};
use super::subtable::{Filter, Subtable, Term};
use super::{Tables, scalar};
use crate::isa::Body;
use crate::memory::prefetch;
use crate::packet::batch::{BLOCK, Column, LANES_MAX, LaneMask, TransposedBatch};
use crate::packet::key::{BitIter, FlowKey};

/// Sums of a block's even slots and of its odd ones: where a multiplication of 32 bits leaves its results.
pub(super) type Sums = [[[u64; BLOCK / 2]; 2]; LANES_MAX / BLOCK];

/// How many blocks are in use: 1 to 4.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks(usize);

impl Blocks {
    fn of(slots: usize) -> Self {
        Self(slots.div_ceil(BLOCK))
    }

    #[inline(always)]
    pub(super) fn count(self) -> usize {
        self.0
    }
}

/// Masks still to be tried for which it pays to move lanes together: doing so costs about as much as
/// hashing a block under so many.
const COMPACT_MASKS: usize = 6;

/// A lane that passed a subtable's filter.
#[derive(Clone, Copy, Default)]
struct Candidate {
    lane: u32,
    subtable: u32,
    hash: u32,
    /// Once the slot has been read.
    flow: u32,
}

/// Candidates of one stage: at most one a lane and mask.
struct Queue {
    items: [Candidate; LANES_MAX],
    len: usize,
}

impl Queue {
    fn new() -> Self {
        Self { items: [Candidate::default(); LANES_MAX], len: 0 }
    }

    #[inline(always)]
    fn push(&mut self, candidate: Candidate) {
        self.items[self.len % LANES_MAX] = candidate;
        self.len += 1;
    }

    #[inline(always)]
    fn items(&self) -> &[Candidate] {
        &self.items[..self.len.min(LANES_MAX)]
    }
}

/// What the wide lookup keeps from batch to batch: allocated once.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) batch: TransposedBatch,
    /// Terms that all masks have.
    pub(super) common: Vec<Term>,
    sums: Sums,
}

impl Scratch {
    /// For subtables whose terms are to be placed in the batch: says every subtable which columns its words
    /// have, and which terms it does not share with all others.
    pub(super) fn new<'a>(subtables: impl Iterator<Item = &'a mut Subtable>) -> Self {
        let mut subtables: Vec<&mut Subtable> = subtables.collect();
        let mut union = crate::packet::key::FlowMask::zero();
        subtables.iter().for_each(|s| union.add(&s.mask));
        let batch = TransposedBatch::new(&union);
        for subtable in &mut subtables {
            for term in &mut subtable.terms {
                term.place = batch.place(term.word.into()).expect("a column for every word") as u8;
            }
        }
        let mut common: Vec<Term> = subtables.first().map_or_else(Vec::new, |s| s.terms.clone());
        for subtable in &subtables {
            common.retain(|term| subtable.terms.contains(term));
        }
        for subtable in &mut subtables {
            subtable.own_terms = subtable.terms.iter().filter(|t| !common.contains(t)).copied().collect();
        }
        Self { batch, common, sums: Sums::default() }
    }
}

#[inline(always)]
fn sum(body: Body, terms: &[Term], columns: &[Column], blocks: Blocks, sums: &mut Sums) {
    match body {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has AVX2.
        Body::Avx2(_) => unsafe { super::avx2::sum(terms, columns, blocks, sums) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
        Body::Avx512(_) => unsafe { super::avx512::sum(terms, columns, blocks, sums) },
        _ => unreachable!("narrower variants look up lane by lane"),
    }
}

/// The slots that may have a megaflow, and the hashes of all.
#[inline(always)]
fn probe(
    body: Body,
    (terms, filter): (&[Term], &Filter),
    columns: &[Column],
    blocks: Blocks,
    sums: &Sums,
    hashes: &mut [u32; LANES_MAX],
) -> u64 {
    match body {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has AVX2.
        Body::Avx2(_) => unsafe { super::avx2::probe(terms, filter, columns, blocks, sums, hashes) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
        Body::Avx512(_) => unsafe { super::avx512::probe(terms, filter, columns, blocks, sums, hashes) },
        _ => unreachable!("narrower variants look up lane by lane"),
    }
}

/// As [`scalar::lookup`].
pub(super) fn lookup(
    tables: &mut Tables,
    body: Body,
    threshold: usize,
    keys: &[FlowKey],
    live: LaneMask,
    found: &mut [FlowRef],
) -> (LaneMask, u64) {
    if live.len() < threshold || tables.order.is_empty() {
        return scalar::lookup(tables, keys, live, found);
    }
    let Tables { subtables, order, flows, scratch } = tables;
    let Scratch { batch, common, sums } = scratch;
    batch.fill(body, keys, live);
    let mut blocks = Blocks::of(batch.len());
    sum(body, common, batch.columns(), blocks, sums);
    let mut left = live;
    let mut slots = LaneMask::first(batch.len()).0;
    let mut slot_of = [0u8; LANES_MAX];
    number_slots(batch, &mut slot_of);
    let mut hashes = [0; LANES_MAX];
    let (mut reading, mut comparing, mut fresh) = (Queue::new(), Queue::new(), Queue::new());
    let mut probes = 0;
    let mut masks = order.iter().enumerate();
    loop {
        fresh.len = 0;
        let mask = if slots == 0 { None } else { masks.next() };
        if let Some((at, &id)) = mask {
            if order.len() - at > COMPACT_MASKS && slots.count_ones() as usize <= (blocks.count() - 1) * BLOCK
            {
                batch.keep(body, slots);
                blocks = Blocks::of(batch.len());
                slots = LaneMask::first(batch.len()).0;
                number_slots(batch, &mut slot_of);
                sum(body, common, batch.columns(), blocks, sums);
            }
            let subtable = &subtables[id as usize];
            probes += u64::from(slots.count_ones());
            let tested = (&subtable.own_terms[..], &subtable.filter);
            let candidates = probe(body, tested, batch.columns(), blocks, sums, &mut hashes) & slots;
            for slot in BitIter(candidates) {
                let (lane, hash) = (batch.lane(slot) as u32, hashes[slot]);
                subtable.prefetch(hash);
                fresh.push(Candidate { lane, subtable: id, hash, flow: 0 });
            }
        } else if reading.len == 0 && comparing.len == 0 {
            break;
        }
        for c in comparing.items() {
            let lane = c.lane as usize;
            if left.0 >> lane & 1 == 0 {
                continue;
            }
            let subtable = &mut subtables[c.subtable as usize];
            if let Some(index) = verify(subtable, flows, &keys[lane], c) {
                found[lane] = FlowRef { index, serial: flows[index as usize].serial };
                subtable.hits += 1;
                left.remove(lane);
                slots &= !(1 << (slot_of[lane] % 64));
            }
        }
        comparing.len = 0;
        for c in reading.items() {
            if let Some(flow) = subtables[c.subtable as usize].candidate(c.hash) {
                prefetch(flows, flow as usize);
                comparing.push(Candidate { flow, ..*c });
            }
        }
        std::mem::swap(&mut reading, &mut fresh);
    }
    (left, probes)
}

#[inline(always)]
fn number_slots(batch: &TransposedBatch, slot_of: &mut [u8; LANES_MAX]) {
    for slot in 0..batch.len() {
        slot_of[batch.lane(slot) % LANES_MAX] = slot as u8;
    }
}

/// The candidate's megaflow, where it is the key's. A second one of the same hash is as good as never there.
#[inline(always)]
fn verify(subtable: &Subtable, flows: &[Megaflow], key: &FlowKey, c: &Candidate) -> Option<u32> {
    if subtable.matches(&flows[c.flow as usize], key) {
        return Some(c.flow);
    }
    subtable.find(flows, key, c.hash)
}
