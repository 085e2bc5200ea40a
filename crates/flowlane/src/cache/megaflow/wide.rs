//! Looking up a batch, many lanes at a time.
//!
//! ```text
//! keys ── transposed ── sum of the terms that all masks have
//!   for each two masks:  hash all slots, test the filters    → candidates (few); prefetch their slots
//!                        candidates of the two before:       compare keys    → found, lanes leave
//!                        candidates of these two:            read the slots, prefetch the megaflows
//! ```
//!
//! The steps of a candidate lie apart, so that what they fetch has time to come. A lane that will turn out
//! to be found is hashed for two more masks meanwhile, which costs nothing: a register is worked on whole.
//! When enough lanes have left, the others are moved together.

use super::super::bucket::{Bucket, SLOTS};
use super::Tables;
use super::flow::{FlowRef, Megaflow};
use super::subtable::{Filter, Subtable, Term};
use crate::isa::Backend;
use crate::memory::prefetch;
use crate::packet::batch::{BLOCK, LANES_MAX, LaneMask, TransposedBatch};
use crate::packet::key::{FlowKey, FlowMask};

/// Sums of a block's even slots and of its odd ones: where a multiplication of 32 bits leaves its results.
pub(super) type Sums = [[[u64; BLOCK / 2]; 2]; LANES_MAX / BLOCK];

/// Masks still to be tried for which it pays to move lanes together: doing so costs about as much as
/// hashing a block under this number of masks.
const COMPACT_MASKS: usize = 6;

/// Masks whose candidates are worked on together: enough that their loops are long, few enough that lanes
/// that are found leave soon.
const CHUNK: usize = 2;

/// Lanes that passed a subtable's filter, side by side, in the order in which they did.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) lane: [u32; Self::ROOM],
    pub(super) hash: [u32; Self::ROOM],
    /// The mask's place in its chunk.
    pub(super) mask: [u32; Self::ROOM],
    /// Once the slot has been read.
    flow: [u32; Self::ROOM],
    len: usize,
}

impl Queue {
    /// One candidate a lane and mask, and a block more, since blocks are written whole.
    const ROOM: usize = CHUNK * LANES_MAX + BLOCK;

    const EMPTY: Self = Self {
        lane: [0; Self::ROOM],
        hash: [0; Self::ROOM],
        mask: [0; Self::ROOM],
        flow: [0; Self::ROOM],
        len: 0,
    };

    /// Where the next block of candidates goes.
    #[inline(always)]
    pub(super) fn end(&self) -> usize {
        self.len.min(Self::ROOM - BLOCK)
    }

    /// Keeps the first `by` slots of the block as candidates.
    #[inline(always)]
    pub(super) fn grow(&mut self, by: u32) {
        self.len += by as usize;
    }

    #[inline(always)]
    pub(super) fn push(&mut self, lane: u32, hash: u32, mask: u32) {
        let end = self.end();
        (self.lane[end], self.hash[end], self.mask[end]) = (lane, hash, mask);
        self.len += 1;
    }

    /// Asks for the candidates' slots.
    #[inline(always)]
    fn prefetch(&self, chunk: &[&Subtable; CHUNK]) {
        let len = self.len.min(Self::ROOM);
        for (mask, hash) in self.mask[..len].iter().zip(&self.hash[..len]) {
            chunk[*mask as usize % CHUNK].prefetch(*hash);
        }
    }

    /// Reads the candidates' slots, and asks for their megaflows.
    #[inline(always)]
    fn read(&mut self, isa: impl MegaflowOps, chunk: &[&Subtable; CHUNK], flows: &[Megaflow]) {
        let len = self.len.min(Self::ROOM);
        let candidates = self.mask[..len].iter().zip(&self.hash[..len]);
        for ((mask, hash), flow) in candidates.zip(&mut self.flow[..len]) {
            *flow = read(isa, chunk[*mask as usize % CHUNK], *hash);
            prefetch(flows, *flow as usize);
        }
    }
}

/// Buffers that the wide lookup keeps from batch to batch: allocated once.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) batch: TransposedBatch,
    /// Terms that all masks have.
    pub(super) common: Vec<Term>,
    sums: Sums,
    queues: [Box<Queue>; 2],
}

impl Scratch {
    /// For subtables whose terms are to be placed in the batch: says every subtable which columns its words
    /// have, and which terms it does not share with all others. Returns the union of their masks, too.
    pub(super) fn new<'a>(subtables: impl Iterator<Item = &'a mut Subtable>) -> (Self, FlowMask) {
        let mut subtables: Vec<&mut Subtable> = subtables.collect();
        let mut union = FlowMask::zero();
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
        let queues = [Box::new(Queue::EMPTY), Box::new(Queue::EMPTY)];
        (Self { batch, common, sums: Sums::default(), queues }, union)
    }
}

/// No megaflow.
const NO_FLOW: u32 = u32::MAX;

/// The parts of a subtable that a probe reads.
#[derive(Clone, Copy)]
pub(super) struct Probe<'a> {
    pub(super) terms: &'a [Term],
    pub(super) filter: &'a Filter,
    /// The mask's place in its chunk.
    pub(super) mask: u32,
    /// The slots that are still looked for.
    pub(super) slots: u64,
}

/// Operations on the slots of a batch, a bucket and a megaflow, called from the `lookup` of an instruction set.
pub(super) trait MegaflowOps: Copy {
    /// Sums terms of all slots.
    fn sum(self, terms: &[Term], batch: &TransposedBatch, sums: &mut Sums);

    /// Appends the lanes of the slots that may have a megaflow.
    fn probe(self, with: Probe<'_>, batch: &TransposedBatch, sums: &Sums, queue: &mut Queue);

    fn matching(self, bucket: &Bucket, tag: u32) -> u32;

    /// Returns whether the words in the megaflow's line are the key's.
    fn line_matches(self, subtable: &Subtable, flow: &Megaflow, key: &FlowKey) -> bool;
}

/// As [`scalar::lookup`], for at least one lane and one mask.
///
/// [`scalar::lookup`]: super::scalar::lookup
#[inline(always)]
pub(super) fn lookup(
    isa: impl MegaflowOps,
    body: Backend,
    tables: &mut Tables,
    keys: &[FlowKey],
    live: LaneMask,
    found: &mut [FlowRef],
) -> (LaneMask, u64) {
    let Tables { subtables, order, flows, scratch, .. } = tables;
    let Scratch { batch, common, sums, queues: [current, before] } = scratch;
    let (mut current, mut before) = (current, before);
    (current.len, before.len) = (0, 0);
    batch.fill(body, keys, live);
    isa.sum(common, batch, sums);
    let mut left = live;
    let (mut probes, mut at) = (0, 0);
    // The masks of the candidates before, and how many there are before those.
    let (mut masks_before, mut at_before): (&[u32], _) = (&[], 0);
    let mut slots = LaneMask::first(batch.len()).0;
    let mut slot_of = batch.slots();
    loop {
        let masks = if left.is_empty() { &[] } else { &order[at..order.len().min(at + CHUNK)] };
        if !masks.is_empty() {
            let few = slots.count_ones() as usize <= (batch.len() - 1) / BLOCK * BLOCK;
            if few && order.len() - at > COMPACT_MASKS {
                batch.keep(body, slots);
                slots = LaneMask::first(batch.len()).0;
                slot_of = batch.slots();
                isa.sum(common, batch, sums);
            }
        } else if before.len == 0 {
            break;
        }
        // The first one of all where there are fewer. Passed by reference: a copy waits until the stores have retired.
        let of = |masks: &[u32], i: usize| &subtables[*masks.get(i).unwrap_or(&order[0]) as usize];
        let chunk_now: [&Subtable; CHUNK] = [of(masks, 0), of(masks, 1)];
        let chunk_before: [&Subtable; CHUNK] = [of(masks_before, 0), of(masks_before, 1)];
        current.len = 0;
        for (i, Subtable { own_terms, filter, .. }) in chunk_now[..masks.len()].iter().enumerate() {
            isa.probe(Probe { terms: own_terms, filter, mask: i as u32, slots }, batch, sums, current);
        }
        current.prefetch(&chunk_now);
        let mut hits = [0; CHUNK];
        let len = before.len.min(Queue::ROOM);
        let candidates = before.lane[..len].iter().zip(&before.mask[..len]);
        for ((lane, mask), (flow, hash)) in candidates.zip(before.flow[..len].iter().zip(&before.hash[..len]))
        {
            let (lane, mask) = (*lane as usize, *mask as usize % CHUNK);
            if *flow == NO_FLOW || left.0 >> lane & 1 == 0 {
                continue;
            }
            if let Some(index) = compare(isa, chunk_before[mask], flows, &keys[lane], *flow, *hash) {
                found[lane] = FlowRef { index, serial: flows[index as usize].serial };
                hits[mask] += 1;
                left.remove(lane);
                slots &= !(1 << (slot_of[lane] % 64));
            }
        }
        current.read(isa, &chunk_now, flows);
        probes += note_hits(subtables, masks_before, hits, at_before as u64);
        (masks_before, at_before) = (masks, at);
        at += masks.len();
        std::mem::swap(&mut current, &mut before);
    }
    (left, probes + (left.len() * order.len()) as u64)
}

/// Counts the hits of a chunk's masks, which has this number of masks before it. Returns the probes that led to them.
#[inline(always)]
fn note_hits(subtables: &mut [Subtable], masks: &[u32], hits: [u64; CHUNK], before: u64) -> u64 {
    let mut probes = 0;
    for ((id, hits), place) in masks.iter().zip(hits).zip(before + 1..) {
        // Of the others, the line is not touched.
        if hits > 0 {
            subtables[*id as usize].hits += hits;
            probes += hits * place;
        }
    }
    probes
}

/// The first megaflow of this hash: very likely the one, where there is one.
#[inline(always)]
fn read(isa: impl MegaflowOps, subtable: &Subtable, hash: u32) -> u32 {
    let bucket = subtable.bucket(hash);
    match isa.matching(bucket, hash | 1) {
        0 => subtable.overflowed(hash).unwrap_or(NO_FLOW),
        matching => bucket.flows[matching.trailing_zeros() as usize % SLOTS] - 1,
    }
}

/// The candidate's megaflow, or another of the same 31 bits of hash, where it is the key's.
#[inline(always)]
fn compare(
    isa: impl MegaflowOps,
    subtable: &Subtable,
    flows: &[Megaflow],
    key: &FlowKey,
    flow: u32,
    hash: u32,
) -> Option<u32> {
    let candidate = &flows[flow as usize];
    if isa.line_matches(subtable, candidate, key) && subtable.tail_matches(candidate, key) {
        return Some(flow);
    }
    subtable.find(flows, key, hash)
}
