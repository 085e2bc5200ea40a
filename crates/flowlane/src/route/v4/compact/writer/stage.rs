//! Staging of a change: new chunks are written, stores are noted.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::Relaxed;

use super::{Entry, NARROW_HOPS_MAX, Writer};
use crate::route::v4::compact::long::{self, Hosts, PLACES, Words};
use crate::route::v4::compact::table::{Code, SLOTS};
use crate::route::{BuildError, Prefix, Rib};

/// Larger buffers are not kept.
const KEPT: usize = 1 << 12;

/// Addresses that have one next hop, by its index.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    last: u32,
    hop: u16,
}

/// Slots side by side of one block that change alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The first 24 bits of the first one's addresses.
    pub(super) first: u32,
    pub(super) len: u32,
    pub(super) before: Entry,
    pub(super) after: Entry,
}

/// The value to store.
#[derive(Debug, Default)]
pub(super) struct Staged {
    spans: Vec<Span>,
    /// Blocks that get a chunk of their own, where that is, and of which next hop the constant one is that they have.
    pub(super) owners: Vec<(u32, u32, u16)>,
    pub(super) runs: Vec<Run>,
    /// Blocks that get the constant chunk of a next hop.
    pub(super) constants: Vec<(u32, u16)>,
    /// Directories of blocks: those that are there before new long chunks are, and those that are there when old ones are
    /// not any more.
    pub(super) early: Vec<(u32, u32)>,
    pub(super) late: Vec<(u32, u32)>,
}

impl Staged {
    pub(super) fn clear(&mut self) {
        if self.spans.capacity().max(self.runs.capacity()) > KEPT {
            *self = Self::default();
        }
        self.owners.clear();
        self.runs.clear();
        self.constants.clear();
        self.early.clear();
        self.late.clear();
    }

    pub(super) fn own_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.runs.capacity() * size_of::<Run>()
    }
}

/// A block that is being painted.
struct Open {
    block: u32,
    /// The place of its first code now.
    first_place: u32,
    /// The next hop of all of it now.
    constant: Option<u16>,
    is_owner: bool,
    /// Its runs are those from here on.
    runs_from: usize,
    long: Option<Long>,
}

/// A slot of it whose addresses differ.
struct Long {
    slot: u32,
    before: Entry,
    hosts: Hosts,
    has_changed: bool,
}

impl Writer {
    /// Gets ready what holds in `changed` now. The table stays as it is.
    pub(super) fn stage(&mut self, rib: &Rib<u32>, changed: Prefix<u32>) -> Result<(), BuildError> {
        let mut spans = std::mem::take(&mut self.staged.spans);
        spans.clear();
        let mut result = Ok(());
        // Neighbours often have the same few next hops: the last one's index is cached.
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
        self.staged.spans = spans;
        let missing = self.room.missing();
        result?;
        if missing == 0 {
            return Ok(());
        }
        let max = self.room.memory_max();
        Err(BuildError::NeedsMemory { needed: (self.table_bytes() + missing).max(max + 1), max })
    }

    /// Returns the index of a next hop, which may be new.
    pub(super) fn index_of(&mut self, next_hop: u64) -> Result<u16, BuildError> {
        loop {
            let all = self.hops.max();
            let max = if self.is_wide() { all } else { all.min(NARROW_HOPS_MAX) };
            if let Some(index) = self.hops.index_of(next_hop, max, &self.table.next_hops) {
                return Ok(index);
            }
            if self.hops.len() < max {
                // The others are free as soon as readers have ended the batches that they are in.
                self.reclaim();
                std::thread::yield_now();
            } else if max < all {
                self.widen()?;
            } else {
                return Err(BuildError::TooManyNextHops { needed: self.hops.len() + 1, max });
            }
        }
    }

    /// Gives codes two bytes. Readers come to them when the change is made; those that are in a batch then go on in the
    /// chunks that they have begun with, which do not change any more.
    fn widen(&mut self) -> Result<(), BuildError> {
        let (needed, max) = (self.table_bytes() + self.room.bytes_to_widen(), self.room.memory_max());
        if needed > max {
            return Err(BuildError::NeedsMemory { needed, max });
        }
        let (narrow, wide) = (&self.table.narrow, &self.table.wide);
        for (before, after) in narrow.direct.iter().zip(wide.direct.iter()) {
            after.store(before.load(Relaxed), Relaxed);
        }
        let widened = |code| if code == u32::from(u8::MAX) { u32::from(u16::MAX) } else { code };
        for (before, after) in narrow.codes[..self.room.codes_touched()].iter().zip(wide.codes.iter()) {
            after.set_code(widened(before.code()));
        }
        self.room.widen();
        Ok(())
    }

    fn stage_spans(&mut self, spans: &[Span]) {
        let mut open: Option<Open> = None;
        for span in spans {
            for block in span.first >> 16..=span.last >> 16 {
                let from = if block == span.first >> 16 { span.first & 0xffff } else { 0 };
                let to = if block == span.last >> 16 { span.last & 0xffff } else { 0xffff };
                if let Some(other) = open.take_if(|open| open.block != block) {
                    self.close(other);
                }
                if (from, to) == (0, 0xffff) {
                    self.stage_constant(block, span.hop);
                } else {
                    self.paint(open.get_or_insert_with(|| self.open(block)), from, to, span.hop);
                }
            }
        }
        open.into_iter().for_each(|open| self.close(open));
    }

    fn stage_constant(&mut self, block: u32, hop: u16) {
        match self.room.constant(hop) {
            Some(place) if place == self.first_place(block) => return,
            Some(_) => {}
            None => {
                let Some(place) = self.take_chunk() else { return };
                self.set(place, SLOTS as u32, Entry::Hop(hop));
                self.room.make_constant(hop, place);
            }
        }
        self.staged.constants.push((block, hop));
    }

    fn open(&self, block: u32) -> Open {
        let first_place = self.first_place(block);
        let constant = self.constant_of(first_place);
        Open { block, first_place, constant, is_owner: false, runs_from: self.staged.runs.len(), long: None }
    }

    /// Returns the next hop of the constant chunk there, if that is one.
    pub(super) fn constant_of(&self, first_place: u32) -> Option<u16> {
        self.hop_at(first_place).filter(|hop| self.room.constant(*hop) == Some(first_place))
    }

    /// Returns the present target of a slot of an open block.
    fn entry(&self, open: &Open, slot: u32) -> Entry {
        match open.constant.or_else(|| self.hop_at(open.first_place + slot)) {
            Some(hop) => Entry::Hop(hop),
            None => {
                let directory = self.table.directories[open.block as usize].load(Relaxed);
                let chunk = long::chunk(&self.table.pool, directory, slot);
                Entry::Long(chunk.expect("a slot with that code is in its block's directory"))
            }
        }
    }

    /// Gives the addresses `from` to `to` of an open block a next hop.
    fn paint(&mut self, open: &mut Open, from: u32, to: u32, hop: u16) {
        let (first, last) = (from >> 8, to >> 8);
        let (starts_whole, ends_whole) = (from & 0xff == 0, to & 0xff == 0xff);
        if first == last && !(starts_whole && ends_whole) {
            return self.paint_part(open, first, from & 0xff..=to & 0xff, hop);
        }
        if !starts_whole {
            self.paint_part(open, first, from & 0xff..=0xff, hop);
        }
        self.paint_whole(open, first + u32::from(!starts_whole), last + u32::from(ends_whole), hop);
        if !ends_whole {
            self.paint_part(open, last, 0..=to & 0xff, hop);
        }
    }

    /// Gives slots, from one to before another, a next hop.
    fn paint_whole(&mut self, open: &mut Open, mut slot: u32, end: u32, hop: u16) {
        while slot < end {
            let before = self.entry(open, slot);
            let alike = match before {
                Entry::Hop(_) if open.constant.is_some() => end,
                Entry::Hop(before) => {
                    let same = |slot: &u32| self.hop_at(open.first_place + slot) == Some(before);
                    (slot + 1..end).find(|slot| !same(slot)).unwrap_or(end)
                }
                Entry::Long(_) => slot + 1,
            };
            self.run(open, slot, alike - slot, before, Entry::Hop(hop));
            slot = alike;
        }
    }

    /// Gives some addresses of a slot a next hop.
    fn paint_part(&mut self, open: &mut Open, slot: u32, hosts: RangeInclusive<u32>, hop: u16) {
        if let Some(other) = open.long.take_if(|long| long.slot != slot) {
            self.close_long(open, other);
        }
        if open.long.is_none() {
            let before = self.entry(open, slot);
            let hosts = match before {
                Entry::Hop(hop) => [hop; PLACES],
                Entry::Long(chunk) => long::hosts(&self.table.pool, chunk),
            };
            open.long = Some(Long { slot, before, hosts, has_changed: false });
        }
        let long = open.long.as_mut().expect("it was opened");
        let hosts = &mut long.hosts[*hosts.start() as usize..=*hosts.end() as usize];
        long.has_changed |= hosts.iter().any(|host| *host != hop);
        hosts.fill(hop);
    }

    fn close_long(&mut self, open: &mut Open, long: Long) {
        if !long.has_changed {
            return;
        }
        let hop = long.hosts[0];
        let after = if long.hosts == [hop; PLACES] {
            Entry::Hop(hop)
        } else {
            let mut words = Words::EMPTY;
            words.set_hosts(&long.hosts);
            let Some(place) = self.write(&words) else { return };
            Entry::Long(place)
        };
        self.run(open, long.slot, 1, long.before, after);
    }

    /// Notes a change of consecutive slots of an open block, unless they have the value already.
    fn run(&mut self, open: &mut Open, slot: u32, len: u32, before: Entry, after: Entry) {
        if before == after {
            return;
        }
        if let Some(hop) = open.constant.filter(|_| !open.is_owner) {
            let Some(place) = self.take_chunk() else { return };
            // As before: the changes follow when it is the block's.
            self.set(place, SLOTS as u32, Entry::Hop(hop));
            self.staged.owners.push((open.block, place, hop));
            open.is_owner = true;
        }
        let first = open.block << 8 | slot;
        let alike = |run: &&mut Run| {
            run.first + run.len == first
                && (run.before, run.after) == (before, after)
                && matches!((before, after), (Entry::Hop(_), Entry::Hop(_)))
        };
        match self.staged.runs[open.runs_from..].last_mut().filter(alike) {
            Some(run) => run.len += len,
            None => self.staged.runs.push(Run { first, len, before, after }),
        }
    }

    fn close(&mut self, mut open: Open) {
        if let Some(long) = open.long.take() {
            self.close_long(&mut open, long);
        }
        let runs = &self.staged.runs[open.runs_from..];
        let is_long = |entry| matches!(entry, Entry::Long(_));
        let gets = runs.iter().any(|run| is_long(run.after));
        let loses = runs.iter().any(|run| is_long(run.before) && !is_long(run.after));
        if !gets && !loses {
            return;
        }
        let before = self.table.directories[open.block as usize].load(Relaxed);
        let mut directory = long::directory(&self.table.pool, before);
        for run in runs {
            if let Entry::Long(place) = run.after {
                directory[run.first as usize % SLOTS] = place;
            }
        }
        if gets {
            // With those that it loses, which readers have codes for until the changes are made.
            let place = self.write_directory(&directory);
            self.staged.early.push((open.block, place));
        }
        if loses {
            let runs = &self.staged.runs[open.runs_from..];
            runs.iter().filter(|run| is_long(run.before) && !is_long(run.after)).for_each(|run| {
                directory[run.first as usize % SLOTS] = 0;
            });
            let place = self.write_directory(&directory);
            self.staged.late.push((open.block, place));
        }
    }

    /// Where the directory is written; 0: it is empty, or there was no room.
    fn write_directory(&mut self, directory: &long::Directory) -> u32 {
        if directory.iter().all(|place| *place == 0) {
            return 0;
        }
        let mut words = Words::EMPTY;
        words.set_directory(directory);
        self.write(&words).unwrap_or(0)
    }

    /// Writes words that no reader sees yet; returns where. None: there was no room.
    fn write(&mut self, words: &Words) -> Option<u32> {
        let words = words.as_slice();
        let place = self.take(|room| room.words(words.len()), Some(words.len()))?;
        for (place, word) in self.table.pool[place as usize..].iter().zip(words) {
            place.store(*word, Relaxed);
        }
        Some(place)
    }

    /// Returns a chunk that no reader sees yet. None: there was no room.
    pub(super) fn take_chunk(&mut self) -> Option<u32> {
        self.take(super::Room::chunk, None)
    }

    fn take(&mut self, piece: impl Fn(&mut super::Room) -> Option<u32>, words: Option<usize>) -> Option<u32> {
        loop {
            if let Some(place) = piece(&mut self.room) {
                return Some(place);
            }
            if self.room.waiting() == 0 {
                self.room.lacks(words);
                return None;
            }
            // Some are free as soon as readers have ended the batches that they are in.
            std::thread::yield_now();
            self.reclaim();
        }
    }
}
