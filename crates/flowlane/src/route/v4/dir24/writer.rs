//! The one handle that changes a table.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::next_hop_max;
use super::table::{GROUP, PADDING, TBL24, Table};
use crate::isa::Variant;
use crate::memory::HUGE_BYTES;
use crate::route::cell::Cell;
use crate::route::epoch::Epochs;
use crate::route::{BuildError, FibConfig, HopSize, Prefix, Rib};

/// Most groups: a lane's index of an entry has 31 bits.
const GROUPS_MAX: usize = 1 << 23;

/// Groups beside those of all routes, for those that wait until no reader can see them.
const GROUPS_SPARE: usize = 64;

const _: () =
    assert!(TBL24 * size_of::<u64>() / HUGE_BYTES <= u64::BITS as usize, "a bit for each huge page");

/// A buffer for more spans than these is not kept.
const SPANS_KEPT: usize = 1 << 12;

/// Addresses that have one next hop.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    last: u32,
    next_hop: u64,
}

/// Returns the group that an entry of the first table leads to.
fn group_of(entry: u64) -> Option<u32> {
    (entry & 1 != 0).then_some((entry >> 1) as u32)
}

#[derive(Debug)]
pub(super) struct Writer<W: Cell> {
    pub(super) table: Arc<Table<W>>,
    pub(super) epochs: Epochs,
    hop_size: HopSize,
    default_next_hop: u64,
    memory_max: usize,
    groups_max: usize,
    /// The huge pages of the first table that have been written to, a bit each.
    touched: u64,
    /// Groups from here on were never used.
    groups_touched: usize,
    free: Vec<u32>,
    /// Taken out of the table, oldest first, each with its stamp.
    retired: std::collections::VecDeque<(u64, u32)>,
    /// Taken out in the update under way.
    leaving: Vec<u32>,
    spans: Vec<Span>,
}

impl<W: Cell> Writer<W> {
    pub(super) fn build(rib: &Rib<u32>, config: &FibConfig) -> Result<Self, BuildError> {
        let (needed, max) = ((TBL24 + PADDING) * W::BYTES, config.memory_max);
        if needed > max {
            return Err(BuildError::NeedsMemory { needed, max });
        }
        let by_entry = next_hop_max(config.hop_size).saturating_add(1);
        let by_memory = (max - needed) / (GROUP * W::BYTES);
        let by_routes = 2 * rib.routes_max() + GROUPS_SPARE;
        let groups_max =
            by_memory.min(by_routes).min(GROUPS_MAX).min(usize::try_from(by_entry).unwrap_or(usize::MAX));
        let backend = config.backend_of(&[Variant::Avx512, Variant::Avx2, Variant::Neon]);
        let mut writer = Self {
            table: Arc::new(Table::empty(backend)),
            epochs: Epochs::default(),
            hop_size: config.hop_size,
            default_next_hop: config.default_next_hop,
            memory_max: max,
            groups_max,
            touched: 0,
            groups_touched: 0,
            free: Vec::new(),
            retired: std::collections::VecDeque::new(),
            leaving: Vec::new(),
            spans: Vec::new(),
        };
        writer.check_next_hop(config.default_next_hop)?;
        let spans = writer.spans_of(rib, Prefix::ALL)?;
        writer.check_groups(groups_in(&spans))?;
        let base = rib.get(Prefix::ALL).unwrap_or(config.default_next_hop);
        writer.table = Arc::new(Table::new(base, groups_max, backend));
        spans.iter().filter(|span| span.next_hop != base).for_each(|span| writer.paint(*span));
        Ok(writer)
    }

    pub(super) fn update(&mut self, rib: &Rib<u32>, changed: Prefix<u32>) -> Result<(), BuildError> {
        let spans = self.spans_of(rib, changed)?;
        let new = partial(&spans).filter(|at| self.group_at(*at).is_none()).count();
        let checked = self.check_groups(new);
        if checked.is_ok() {
            spans.iter().for_each(|span| self.paint(*span));
            if changed.len() > 24 {
                self.collapse(changed.first() >> 8);
            }
            self.retire();
        }
        if spans.capacity() <= SPANS_KEPT {
            self.spans = spans;
        }
        checked
    }

    pub(super) fn groups(&self) -> usize {
        self.groups_touched - self.free.len() - self.retired.len() - self.leaving.len()
    }

    /// Returns the bytes in memory: of the first table the huge pages that were written to.
    pub(super) fn table_bytes(&self) -> usize {
        self.touched.count_ones() as usize * HUGE_BYTES + self.groups_touched * GROUP * W::BYTES
    }

    /// Notes that entries `first` to `last` of the first table are written to.
    fn note_touched(&mut self, first: usize, last: usize) {
        let page = |at: usize| at * W::BYTES / HUGE_BYTES;
        self.touched |= (u64::MAX >> (63 - (page(last) - page(first)))) << page(first);
    }

    fn bytes(&self, groups: usize) -> usize {
        (TBL24 + PADDING + groups * GROUP) * W::BYTES
    }

    /// Collects the spans of `prefix` in the buffer, and checks them.
    fn spans_of(&mut self, rib: &Rib<u32>, prefix: Prefix<u32>) -> Result<Vec<Span>, BuildError> {
        let mut spans = std::mem::take(&mut self.spans);
        spans.clear();
        rib.spans(prefix, |first, last, next_hop| {
            let next_hop = next_hop.unwrap_or(self.default_next_hop);
            match spans.last_mut() {
                // A route to the default next hop beside none at all.
                Some(before) if before.next_hop == next_hop => before.last = last,
                _ => spans.push(Span { first, last, next_hop }),
            }
        });
        match spans.iter().try_for_each(|span| self.check_next_hop(span.next_hop)) {
            Ok(()) => Ok(spans),
            Err(error) => {
                self.spans = spans;
                Err(error)
            }
        }
    }

    fn check_next_hop(&self, next_hop: u64) -> Result<(), BuildError> {
        let (max, hop_size) = (next_hop_max(self.hop_size), self.hop_size);
        if next_hop > max { Err(BuildError::HopTooLarge { next_hop, max, hop_size }) } else { Ok(()) }
    }

    /// Returns whether `new` more groups are allowed.
    fn check_groups(&self, new: usize) -> Result<(), BuildError> {
        let groups = self.groups() + new;
        if groups <= self.groups_max {
            return Ok(());
        }
        let needed = self.bytes(groups);
        if needed > self.memory_max {
            return Err(BuildError::NeedsMemory { needed, max: self.memory_max });
        }
        Err(BuildError::TooManyGroups { needed: groups, max: self.groups_max, hop_size: self.hop_size })
    }

    fn group_at(&self, at: u32) -> Option<u32> {
        group_of(self.table.entry(at as usize))
    }

    fn group(&self, group: u32) -> &[W] {
        &self.table.tbl8[group as usize * GROUP..][..GROUP]
    }

    /// Gives all addresses of a span their next hop.
    fn paint(&mut self, span: Span) {
        let (first, last) = (span.first >> 8, span.last >> 8);
        let (from, to) = ((span.first & 0xff) as usize, (span.last & 0xff) as usize);
        if first == last && (from, to) != (0, 0xff) {
            return self.paint_part(first, from..=to, span.next_hop);
        }
        let (mut whole, mut end) = (first as usize, last as usize + 1);
        if from != 0 {
            self.paint_part(first, from..=0xff, span.next_hop);
            whole += 1;
        }
        if to != 0xff {
            self.paint_part(last, 0..=to, span.next_hop);
            end -= 1;
        }
        let table = &*self.table;
        self.leaving.extend((whole..end).filter_map(|at| group_of(table.entry(at))));
        (whole..end).for_each(|at| table.set_entry(at, span.next_hop << 1));
        if whole < end {
            self.note_touched(whole, end - 1);
        }
    }

    /// Gives some addresses of one entry their next hop.
    fn paint_part(&mut self, at: u32, addresses: RangeInclusive<usize>, next_hop: u64) {
        let known = self.group_at(at);
        let group = known.unwrap_or_else(|| self.new_group(at));
        self.group(group)[addresses].iter().for_each(|entry| entry.set(next_hop << 1));
        if known.is_none() {
            self.set(at, u64::from(group) << 1 | 1);
        }
    }

    /// Changes an entry of the first table, and takes out the group that it led to.
    fn set(&mut self, at: u32, entry: u64) {
        self.leaving.extend(self.group_at(at));
        self.table.set_entry(at as usize, entry);
        self.note_touched(at as usize, at as usize);
    }

    /// Takes a group out whose addresses have all the same next hop.
    fn collapse(&mut self, at: u32) {
        let Some(group) = self.group_at(at) else { return };
        let entries = self.group(group);
        let entry = entries[0].get();
        if entries.iter().all(|other| other.get() == entry) {
            self.set(at, entry);
        }
    }

    /// Returns a group with the next hop that `at` has now.
    fn new_group(&mut self, at: u32) -> u32 {
        let group = self.free_group();
        let entry = self.table.entry(at as usize);
        self.group(group).iter().for_each(|place| place.set(entry));
        group
    }

    fn free_group(&mut self) -> u32 {
        loop {
            if let Some(group) = self.free.pop() {
                return group;
            }
            let oldest = if self.retired.is_empty() { 0 } else { self.epochs.oldest() };
            while let Some((_, group)) = self.retired.pop_front_if(|(stamp, _)| *stamp < oldest) {
                self.free.push(group);
            }
            if self.free.is_empty() {
                if self.groups_touched < self.groups_max {
                    self.groups_touched += 1;
                    return self.groups_touched as u32 - 1;
                }
                // All are there, but some readers are still in a batch that may see them.
                std::thread::yield_now();
            }
        }
    }

    fn retire(&mut self) {
        if !self.leaving.is_empty() {
            let stamp = self.epochs.stamp();
            self.retired.extend(self.leaving.drain(..).map(|group| (stamp, group)));
        }
    }
}

/// Returns the places of the first table, each once, of which a span has only a part.
fn partial(spans: &[Span]) -> impl Iterator<Item = u32> + '_ {
    let mut before = None;
    let ends = spans.iter().flat_map(|span| {
        let first = (span.first & 0xff != 0 || span.first >> 8 == span.last >> 8 && span.last & 0xff != 0xff)
            .then_some(span.first >> 8);
        let last = (span.last & 0xff != 0xff).then_some(span.last >> 8);
        [first, last]
    });
    ends.flatten().filter(move |at| before.replace(*at) != Some(*at))
}

fn groups_in(spans: &[Span]) -> usize {
    partial(spans).count()
}
