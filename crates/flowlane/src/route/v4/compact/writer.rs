//! The one handle that changes a table.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use super::hops::{Hops, NEXT_HOPS_MAX};
use super::node::{self, BITS, FLAT, Hosts, NODE, POOL_WORDS_MAX, SLOTS, Slots, Words};
use super::pool::{Blocks, words_of_block};
use super::table::{DIRECT_BITS, DIRECT_SHIFT, DIRECT_WORDS, Table, words_of_own_codes};
use crate::isa::Variant;
use crate::memory::prefetch;
use crate::route::epoch::Epochs;
use crate::route::{BuildError, FibConfig, HopSize, Prefix, Rib};

/// Blocks taken out before the writer asks which of them are free.
const RETIRED_AT_ONCE: usize = 64;

/// Most words of a pool that a route takes: a chunk and a long chunk of its own, old and new ones.
const WORDS_OF_ROUTE_MAX: usize = 32;

/// Words and next hops besides, for those that wait until no reader can see them.
const WORDS_SPARE: usize = 1 << 13;
const HOPS_SPARE: usize = 64;

/// A spans buffer larger than this is not kept.
const SPANS_KEPT: usize = 1 << 12;

/// Addresses that have one next hop, by its index.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    last: u32,
    hop: u16,
}

/// A change that is ready to be made.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// This entry of the direct table becomes that one.
    Entry { at: u32, entry: u32 },
    /// The chunk that this entry leads to gets the same number of words from `staged`, from there on.
    Codes { chunk: u32, from: u32, len: u32 },
}

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Chunk,
    Long,
}

/// A chunk that is being painted.
#[derive(Debug)]
struct Open {
    /// The entry that leads to it; none: nothing is being painted.
    at: Option<u32>,
    before: Slots,
    slots: Slots,
    /// The slot whose addresses differ, and their next hops.
    long: Option<usize>,
    hosts: Hosts,
    /// What is written.
    words: Words,
}

impl Open {
    const NOTHING: Self = Self {
        at: None,
        before: [0; SLOTS],
        slots: [0; SLOTS],
        long: None,
        hosts: [0; node::LONG],
        words: Words::EMPTY,
    };
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) table: Arc<Table>,
    pub(super) epochs: Epochs,
    hop_size: HopSize,
    default_next_hop: u64,
    memory_max: usize,
    blocks: Blocks,
    hops: Hops,
    /// Blocks taken out of the table, oldest first, each with its stamp.
    retired: VecDeque<(u64, u32)>,
    /// Of the update under way: spans, changes, and by their entries blocks that it has taken and will give back.
    spans: Vec<Span>,
    changes: Vec<Change>,
    staged: Vec<u64>,
    taken: Vec<(u32, Kind)>,
    leaving: Vec<(u32, Kind)>,
    /// Words for which there was no room.
    missing_words: usize,
}

impl Writer {
    pub(super) fn build(rib: &Rib<u32>, config: &FibConfig) -> Result<Self, BuildError> {
        // Old and new ones beside each other while readers may see both.
        let hops_max = NEXT_HOPS_MAX.min(2 * rib.routes_max() + HOPS_SPARE);
        let own_codes = words_of_own_codes(hops_max);
        let (needed, max) = ((DIRECT_WORDS + hops_max + own_codes) * size_of::<u64>(), config.memory_max);
        if needed > max {
            return Err(BuildError::NeedsMemory { needed, max });
        }
        let of_routes = rib.routes_max() * WORDS_OF_ROUTE_MAX + WORDS_SPARE;
        let of_memory = (max - needed) / size_of::<u64>();
        let pool_words = own_codes + of_memory.min(of_routes).min(POOL_WORDS_MAX - own_codes);
        let body = config.choice_of(&[Variant::Avx512, Variant::Avx2]);
        let table = Table::zeroed(pool_words, hops_max, body);
        let mut writer = Self {
            table: Arc::new(table),
            epochs: Epochs::default(),
            hop_size: config.hop_size,
            default_next_hop: config.default_next_hop,
            memory_max: max,
            blocks: Blocks::new(pool_words, own_codes),
            hops: Hops::default(),
            retired: VecDeque::new(),
            spans: Vec::new(),
            changes: Vec::new(),
            staged: Vec::new(),
            taken: Vec::new(),
            leaving: Vec::new(),
            missing_words: 0,
        };
        // The zeros that the direct table begins with are index 0: of the default next hop.
        writer.check_next_hop(config.default_next_hop)?;
        writer.index_of(config.default_next_hop)?;
        (0..1 << DIRECT_BITS).for_each(|_| writer.hops.name(0));
        match writer.update(rib, Prefix::ALL) {
            Err(BuildError::TooManyNextHops { max, .. }) => {
                let mut all: Vec<u64> = rib.walk(Prefix::ALL).map(|(_, next_hop)| next_hop).collect();
                all.push(config.default_next_hop);
                all.sort_unstable();
                all.dedup();
                Err(BuildError::TooManyNextHops { needed: all.len(), max })
            }
            built => built.map(|()| writer),
        }
    }

    pub(super) fn update(&mut self, rib: &Rib<u32>, changed: Prefix<u32>) -> Result<(), BuildError> {
        if self.retired.len() >= RETIRED_AT_ONCE {
            self.reclaim();
        }
        // What will be read of the table comes while the routes are asked.
        let entry = self.table.direct()[(changed.first() >> DIRECT_SHIFT) as usize].load(Relaxed);
        prefetch(self.table.pool(), node::place(entry));
        let staged = self.stage(rib, changed);
        if staged.is_ok() {
            self.commit();
        } else {
            self.taken.drain(..).for_each(|(entry, _)| self.blocks.give(node::place(entry) as u32));
        }
        self.changes.clear();
        self.staged.clear();
        self.taken.clear();
        self.leaving.clear();
        let epochs = &self.epochs;
        self.hops.settle(|| epochs.stamp());
        if self.changes.capacity() > SPANS_KEPT {
            (self.changes, self.staged, self.leaving) = Default::default();
        }
        staged
    }

    /// Bytes of what lookups read.
    pub(super) fn table_bytes(&self) -> usize {
        self.bytes(self.blocks.words_touched())
    }

    /// Bytes of the writer's accounts.
    pub(super) fn writer_bytes(&self) -> usize {
        self.blocks.own_bytes()
            + self.hops.own_bytes()
            + self.retired.capacity() * size_of::<(u64, u32)>()
            + self.spans.capacity() * size_of::<Span>()
    }

    /// Bytes of chunks that are in use.
    pub(super) fn chunk_bytes(&self) -> usize {
        self.blocks.words_taken() * size_of::<u64>()
    }

    /// How many different next hops there are.
    pub(super) fn next_hops(&self) -> usize {
        self.hops.len()
    }

    fn bytes(&self, pool_words: usize) -> usize {
        (DIRECT_WORDS + self.table.next_hops.len() + pool_words) * size_of::<u64>()
    }

    fn check_next_hop(&self, next_hop: u64) -> Result<(), BuildError> {
        let (max, hop_size) = (self.hop_size.max(), self.hop_size);
        if next_hop > max { Err(BuildError::HopTooLarge { next_hop, max, hop_size }) } else { Ok(()) }
    }

    fn index_of(&mut self, next_hop: u64) -> Result<u16, BuildError> {
        loop {
            if let Some(index) = self.hops.index_of(next_hop, &self.table.next_hops) {
                return Ok(index);
            }
            if !self.hops.is_waiting() {
                return Err(BuildError::TooManyNextHops {
                    needed: self.hops.len() + 1,
                    max: self.table.next_hops.len(),
                });
            }
            // Some are free as soon as readers have ended the batches that they are in.
            std::thread::yield_now();
            self.reclaim();
        }
    }

    /// Gets ready what holds in `changed` now. The table stays as it is.
    fn stage(&mut self, rib: &Rib<u32>, changed: Prefix<u32>) -> Result<(), BuildError> {
        let mut spans = std::mem::take(&mut self.spans);
        spans.clear();
        let mut result = Ok(());
        // Neighbours often have the same few next hops: the last one's index is at hand.
        let mut known = None;
        rib.spans(changed, |first, last, next_hop| {
            let next_hop = next_hop.unwrap_or(self.default_next_hop);
            let index = match known {
                Some((same, index)) if same == next_hop => Ok(index),
                _ => self.check_next_hop(next_hop).and_then(|()| self.index_of(next_hop)),
            };
            match index {
                Ok(hop) => {
                    known = Some((next_hop, hop));
                    match spans.last_mut() {
                        // A route to the default next hop beside none at all.
                        Some(before) if before.hop == hop => before.last = last,
                        _ => spans.push(Span { first, last, hop }),
                    }
                }
                Err(error) => result = Err(error),
            }
        });
        if result.is_ok() {
            self.stage_spans(&spans);
        }
        if spans.capacity() <= SPANS_KEPT {
            self.spans = spans;
        }
        result?;
        match std::mem::take(&mut self.missing_words) {
            0 => Ok(()),
            missing => {
                let needed = self.bytes(self.blocks.words_touched() + missing).max(self.memory_max + 1);
                Err(BuildError::NeedsMemory { needed, max: self.memory_max })
            }
        }
    }

    fn stage_spans(&mut self, spans: &[Span]) {
        const WITHIN: u32 = (1 << DIRECT_SHIFT) - 1;
        let mut open = Open::NOTHING;
        for span in spans {
            let (first, last) = (span.first >> DIRECT_SHIFT, span.last >> DIRECT_SHIFT);
            for at in first..=last {
                let from = if at == first { span.first & WITHIN } else { 0 };
                let to = if at == last { span.last & WITHIN } else { WITHIN };
                if open.at.is_some_and(|open| open != at) {
                    self.close(&mut open);
                }
                if (from, to) == (0, WITHIN) {
                    self.stage_entry(at, span.hop.into());
                } else {
                    self.open(&mut open, at);
                    self.paint(&mut open, from, to, span.hop);
                }
            }
        }
        self.close(&mut open);
    }

    fn stage_entry(&mut self, at: u32, entry: u32) {
        if self.table.direct()[at as usize].load(Relaxed) != entry {
            self.changes.push(Change::Entry { at, entry });
        }
    }

    fn open(&self, open: &mut Open, at: u32) {
        if open.at.is_some() {
            return;
        }
        let entry = self.table.direct()[at as usize].load(Relaxed);
        open.at = Some(at);
        open.before = match entry & NODE {
            0 => [entry; SLOTS],
            _ => node::decode(self.table.pool(), entry),
        };
        open.slots = open.before;
    }

    /// Gives the addresses `from` to `to` of an open chunk a next hop.
    fn paint(&mut self, open: &mut Open, from: u32, to: u32, hop: u16) {
        let (first, last) = (from as usize >> 8, to as usize >> 8);
        for slot in first..=last {
            let from = if slot == first { from as usize & 0xff } else { 0 };
            let to = if slot == last { to as usize & 0xff } else { 0xff };
            if open.long.is_some_and(|long| long != slot) {
                self.close_long(open);
            }
            if (from, to) == (0, 0xff) {
                open.slots[slot] = hop.into();
                continue;
            }
            let entry = open.slots[slot];
            if open.long.is_none() {
                open.long = Some(slot);
                open.hosts = match entry & NODE {
                    0 => [entry as u16; node::LONG],
                    _ => node::decode_long(self.table.pool(), node::place(entry)),
                };
            }
            open.hosts[from..=to].fill(hop);
        }
    }

    fn close_long(&mut self, open: &mut Open) {
        let Some(slot) = open.long.take() else { return };
        let hop = open.hosts[0];
        open.slots[slot] = if open.hosts == [hop; node::LONG] {
            hop.into()
        } else {
            node::encode_long(&open.hosts, &mut open.words);
            self.write(&open.words, BITS, Kind::Long)
        };
    }

    fn close(&mut self, open: &mut Open) {
        self.close_long(open);
        let Some(at) = open.at.take() else { return };
        if open.slots == open.before {
            return;
        }
        if open.slots[0] & NODE == 0 && open.slots == [open.slots[0]; SLOTS] {
            self.stage_entry(at, open.slots[0]);
            return;
        }
        let mark = node::encode(&open.slots, &mut open.words);
        let words = open.words.as_slice();
        let chunk = self.table.direct()[at as usize].load(Relaxed);
        let is_plain = |slots: &Slots| slots.iter().fold(0, |all, entry| all | entry) & NODE == 0;
        if chunk & NODE == mark
            && (mark == FLAT || self.table.pool()[node::place(chunk)].load(Relaxed) == words[0])
            && is_plain(&open.slots)
            && is_plain(&open.before)
        {
            let (from, len) = (self.staged.len() as u32, words.len() as u32);
            self.staged.extend_from_slice(words);
            self.changes.push(Change::Codes { chunk, from, len });
            return;
        }
        if !is_plain(&open.before) {
            let replaced = open.before.iter().zip(&open.slots).filter(|(before, after)| before != after);
            let children = replaced.filter(|(before, _)| **before & NODE != 0);
            self.leaving.extend(children.map(|(before, _)| (*before, Kind::Long)));
        }
        let entry = self.write(&open.words, mark, Kind::Chunk);
        self.changes.push(Change::Entry { at, entry });
    }

    /// Writes a chunk that no reader sees yet; returns the entry with this mark that leads to it.
    fn write(&mut self, words: &Words, mark: u32, kind: Kind) -> u32 {
        let words = words.as_slice();
        let block = loop {
            if let Some(block) = self.blocks.take(words.len()) {
                break block;
            }
            if self.retired.is_empty() {
                self.missing_words += words_of_block(words.len());
                return mark;
            }
            // Some are free as soon as readers have ended the batches that they are in.
            std::thread::yield_now();
            self.reclaim();
        };
        let entry = node::entry_to(block, mark);
        self.taken.push((entry, kind));
        for (place, word) in self.table.pool()[block as usize..].iter().zip(words) {
            place.store(*word, Relaxed);
        }
        entry
    }

    /// Makes the changes that are ready.
    fn commit(&mut self) {
        // Not a handle of its own: readers read the line that handles are counted in.
        let table = &*self.table;
        // What is new is named before what is old is not any more: a next hop that stays is never without.
        for &(entry, kind) in &self.taken {
            hops_in(table, entry, kind, |hop| self.hops.name(hop));
        }
        for &change in &self.changes {
            match change {
                Change::Entry { at, entry } => {
                    if entry & NODE == 0 {
                        self.hops.name(entry as u16);
                    }
                    let before = table.direct()[at as usize].swap(entry, AcqRel);
                    if before & NODE == 0 {
                        self.hops.unname(before as u16);
                        continue;
                    }
                    self.leaving.push((before, Kind::Chunk));
                    if entry & NODE == 0 {
                        let leave = |child| self.leaving.push((child, Kind::Long));
                        node::contents(table.pool(), before, drop, leave);
                    }
                }
                Change::Codes { chunk, from, len } => {
                    let words = &self.staged[from as usize..][..len as usize];
                    let places = &table.pool()[node::place(chunk)..][..len as usize];
                    for (place, &word) in places.iter().zip(words) {
                        let before = place.load(Relaxed);
                        if word != before {
                            node::codes_in(word).into_iter().for_each(|hop| self.hops.name(hop));
                            node::codes_in(before).into_iter().for_each(|hop| self.hops.unname(hop));
                            place.store(word, Release);
                        }
                    }
                }
            }
        }
        if !self.leaving.is_empty() {
            let stamp = self.epochs.stamp();
            for (entry, kind) in self.leaving.drain(..) {
                hops_in(table, entry, kind, |hop| self.hops.unname(hop));
                self.retired.push_back((stamp, node::place(entry) as u32));
            }
        }
    }

    /// Takes back what no reader can see any more.
    fn reclaim(&mut self) {
        let oldest = self.epochs.oldest();
        while let Some((_, block)) = self.retired.pop_front_if(|(stamp, _)| *stamp < oldest) {
            self.blocks.give(block);
        }
        self.hops.reclaim(oldest);
    }
}

/// Shows `hop` the index of each next hop that the block names that `entry` leads to.
fn hops_in(table: &Table, entry: u32, kind: Kind, hop: impl FnMut(u16)) {
    match kind {
        Kind::Chunk => node::contents(table.pool(), entry, hop, drop),
        Kind::Long => node::hops_of_long(table.pool(), node::place(entry), hop),
    }
}
