//! Looking up few packets, each under several masks at once.
//!
//! HALO sends a packet's queries to all tables before it waits for the first answer (LOOKUP_NB: Yuan, Wang, Wang, Huang,
//! *HALO*, ISCA 2019, §4.3). A CPU has no such queries, but loads that nothing waits for are under way together, as many
//! as its core has line-fill buffers (10 to 12 of Intel's) and its window instructions between them.
//!
//! ```text
//! first mask         as the definition has it: it is the one that most packets need
//! 4 masks, 8, 16 ..  hash each packet under four masks side by side; ask for filters that are far
//!                    test the filters, without a branch          → candidates (few)
//!                    ask for their buckets; read those, ask for the megaflows; compare
//! ```
//!
//! The number of masks doubles, so that at most about twice as many are asked as are needed; answers, and the probes that
//! are counted, are the definition's. Words that all masks have in common are summed once a packet. Hashing is side by
//! side over *masks*, as the wide lookup's is over packets: it pays for a single packet, too.
//!
//! Tried and left (`docs/lab/megaflow-cache-2026-11-21.md`, *Few packets*, has what each gave): hashing under one mask after the other, with
//! filters asked for ahead, and with filters tested together; filters asked for ahead in the wide lookup.

use super::Tables;
use super::flow::{FlowRef, Megaflow};
use super::subtable::Subtable;
use crate::hash::multilinear;
use crate::isa::Backend;
use crate::memory::prefetch;
use crate::packet::batch::{LANES_MAX, LaneMask};
use crate::packet::key::{BitIter, FlowKey, WORDS};

/// Masks that are hashed side by side: sums of 64 bits in a register of AVX2.
pub(super) const GROUP: usize = 4;

/// The most masks under which a packet is looked for at once.
pub(super) const MASKS_MAX: usize = 16;

/// A single packet is looked for under no more masks than these one after the other: with 5 and 10 masks, asking ahead took
/// 3 to 8 % longer (`docs/lab/megaflow-cache-2026-11-21.md`).
pub(super) const ALONE_MASKS: usize = 16;

/// The most queries, of a packet under a mask, at once, where a group of masks does not make more: the lines that they
/// ask for fit the nearest cache beside the rest.
const QUERIES: usize = 64;

/// A group of masks and all lanes.
const CANDIDATES_MAX: usize = GROUP * LANES_MAX;

const _: () = assert!(QUERIES <= CANDIDATES_MAX && MASKS_MAX.is_multiple_of(GROUP));

/// A word under four masks.
#[derive(Clone, Copy, Debug)]
struct GroupTerm {
    masks: [u32; GROUP],
    multiplier: u32,
    word: u32,
}

/// The masks but the first, in the order in which they are tried, made to be hashed in groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    /// Where the terms of each group end.
    ends: Vec<usize>,
    terms: Vec<GroupTerm>,
}

impl Groups {
    /// For masks in this order, whose own terms are known.
    pub(super) fn new(order: &[u32], subtables: &[Subtable]) -> Self {
        let mut groups = Self::default();
        for group in order.get(1..).unwrap_or_default().chunks(GROUP) {
            let own = |i: usize| group.get(i).map_or(&[][..], |&id| &subtables[id as usize].own_terms);
            for word in 0..WORDS {
                let term = |i| own(i).iter().find(|t| usize::from(t.word) == word);
                let Some(multiplier) = (0..GROUP).find_map(|i| Some(term(i)?.multiplier)) else { continue };
                let masks = std::array::from_fn(|i| term(i).map_or(0, |t| t.mask));
                groups.terms.push(GroupTerm { masks, multiplier, word: word as u32 });
            }
            groups.ends.push(groups.terms.len());
        }
        groups
    }
}

/// A packet that passed a subtable's filter.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    lane: u32,
    /// The mask's place in the order.
    at: u32,
    hash: u32,
}

/// Buffers that are kept from lookup to lookup, so that no lookup clears them.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// Of each lane, under the terms that all masks have.
    sums: [u64; LANES_MAX],
    hashes: [[u32; MASKS_MAX]; LANES_MAX],
    candidates: [Candidate; CANDIDATES_MAX],
}

impl Room {
    pub(super) fn boxed() -> Box<Self> {
        Box::new(Self {
            sums: [0; LANES_MAX],
            hashes: [[0; MASKS_MAX]; LANES_MAX],
            candidates: [Candidate { lane: 0, at: 0, hash: 0 }; CANDIDATES_MAX],
        })
    }
}

/// How far ahead to ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    /// The most masks at once: [`GROUP`] to [`MASKS_MAX`].
    pub(super) masks: usize,
    /// Whether filters are asked for before they are tested: where they are beyond the second-level cache.
    pub(super) far: bool,
}

/// As [`scalar::lookup`](super::scalar::lookup), of keys hashed by [`multilinear`].
#[inline]
pub(super) fn lookup(
    body: Backend,
    tables: &mut Tables,
    keys: &[FlowKey],
    live: LaneMask,
    found: &mut [FlowRef],
    ahead: Ahead,
) -> (LaneMask, u64) {
    match body {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: either witness proves that the CPU has AVX2 and the instructions on bits, and that 256 bits are allowed.
        Backend::Avx2(_) | Backend::Avx512(_) => unsafe { avx2(tables, keys, live, found, ahead) },
        _ => portable(tables, keys, live, found, ahead),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn avx2(
    tables: &mut Tables,
    keys: &[FlowKey],
    live: LaneMask,
    found: &mut [FlowRef],
    ahead: Ahead,
) -> (LaneMask, u64) {
    portable(tables, keys, live, found, ahead)
}

#[inline(always)]
fn portable(
    tables: &mut Tables,
    keys: &[FlowKey],
    live: LaneMask,
    found: &mut [FlowRef],
    ahead: Ahead,
) -> (LaneMask, u64) {
    let Tables { subtables, order, flows, scratch, groups, room, .. } = tables;
    let Some((&first, order)) = order.split_first() else { return (live, 0) };
    let mut search = Search { subtables, flows, keys, found, left: live, probes: 0 };
    search.first(first, room);
    for lane in search.left.lanes() {
        let key = keys[lane].words();
        let terms = scratch.common.iter().map(|t| (t.multiplier, key[usize::from(t.word) % WORDS] & t.mask));
        room.sums[lane] = terms.fold(0, |sum, (m, word)| sum.wrapping_add(multilinear::term(m, word)));
    }
    let (mut together, mut group, mut from) = (1, 0, 0);
    while group < groups.ends.len() && !search.left.is_empty() {
        let most = (QUERIES / search.left.len()).min(ahead.masks).min(MASKS_MAX) / GROUP;
        let ends = &groups.ends[group..][..together.min(most.max(1)).min(groups.ends.len() - group)];
        let masks = &order[group * GROUP..order.len().min((group + ends.len()) * GROUP)];
        for (i, &end) in ends.iter().enumerate() {
            search.hash(&groups.terms[from..end], i * GROUP, masks, ahead.far, room);
            from = end;
        }
        search.test_and_compare(masks, 1 + group * GROUP, room);
        group += ends.len();
        together = (together * 2).min(MASKS_MAX / GROUP);
    }
    let masks = order.len() as u64 + 1;
    (search.left, search.probes + search.left.len() as u64 * masks)
}

struct Search<'a> {
    subtables: &'a mut [Subtable],
    flows: &'a [Megaflow],
    keys: &'a [FlowKey],
    found: &'a mut [FlowRef],
    left: LaneMask,
    /// For packets that were found.
    probes: u64,
}

impl Search<'_> {
    /// Looks all packets up under the first mask.
    #[inline(always)]
    fn first(&mut self, id: u32, room: &mut Room) {
        let mut len = 0;
        for lane in self.left.lanes() {
            let subtable = &self.subtables[id as usize];
            let hash = subtable.hash(&self.keys[lane]);
            if subtable.filter.may_have(hash) {
                subtable.prefetch(hash);
                room.candidates[len % CANDIDATES_MAX] = Candidate { lane: lane as u32, at: 0, hash };
                len += 1;
            }
        }
        for candidate in &room.candidates[..len] {
            self.compare(candidate, id);
        }
    }

    /// Hashes all packets under a group of `masks`, the one from `at` on.
    #[inline(always)]
    fn hash(&mut self, terms: &[GroupTerm], at: usize, masks: &[u32], far: bool, room: &mut Room) {
        for lane in self.left.lanes() {
            let hashes = hash_group(room.sums[lane], terms, &self.keys[lane]);
            room.hashes[lane][at..][..GROUP].copy_from_slice(&hashes);
            if far {
                for (hash, &id) in hashes.iter().zip(&masks[at..]) {
                    self.subtables[id as usize].filter.prefetch(*hash);
                }
            }
        }
    }

    /// Goes on with the packets that were hashed under `masks`, the first of which has the place `at` in the order.
    #[inline(always)]
    fn test_and_compare(&mut self, masks: &[u32], at: usize, room: &mut Room) {
        let mut len = 0;
        for lane in self.left.lanes() {
            let hashes = &room.hashes[lane];
            let mut passed = 0u64;
            for (i, (&id, &hash)) in masks.iter().zip(hashes).enumerate() {
                passed |= u64::from(self.subtables[id as usize].filter.may_have(hash)) << i;
            }
            for i in BitIter(passed) {
                let hash = hashes[i % MASKS_MAX];
                room.candidates[len % CANDIDATES_MAX] =
                    Candidate { lane: lane as u32, at: (at + i) as u32, hash };
                len += 1;
            }
        }
        let candidates = &room.candidates[..len];
        let id = |c: &Candidate| masks[c.at as usize - at];
        // Of a single candidate nothing can be asked for before it is read.
        if candidates.len() > 1 {
            candidates.iter().for_each(|c| self.subtables[id(c) as usize].prefetch(c.hash));
            for c in candidates {
                let bucket = self.subtables[id(c) as usize].bucket(c.hash);
                let slot = bucket.matching(c.hash | 1).trailing_zeros() as usize;
                // No slot, or a free one, leads to no place: nothing is asked for.
                let flow = bucket.flows.get(slot).map_or(0, |flow| *flow);
                prefetch(self.flows, flow.wrapping_sub(1) as usize);
            }
        }
        for candidate in candidates {
            self.compare(candidate, id(candidate));
        }
    }

    /// Finds a candidate's megaflow, where there is one and the packet has none yet.
    #[inline(always)]
    fn compare(&mut self, candidate: &Candidate, id: u32) {
        let lane = candidate.lane as usize;
        let subtable = &mut self.subtables[id as usize];
        if self.left.0 >> lane & 1 == 0 {
            return;
        }
        if let Some(index) = subtable.find(self.flows, &self.keys[lane], candidate.hash) {
            self.found[lane] = FlowRef { index, serial: self.flows[index as usize].serial };
            subtable.hits += 1;
            self.probes += u64::from(candidate.at) + 1;
            self.left.remove(lane);
        }
    }
}

/// The hashes of a key under four masks, from the sum of what they have in common.
#[inline(always)]
fn hash_group(common: u64, terms: &[GroupTerm], key: &FlowKey) -> [u32; GROUP] {
    let mut sums = [common; GROUP];
    for term in terms {
        let word = key.words()[term.word as usize % WORDS];
        for (sum, mask) in sums.iter_mut().zip(term.masks) {
            *sum = sum.wrapping_add(multilinear::term(term.multiplier, word & mask));
        }
    }
    sums.map(multilinear::finish)
}
