//! Page walks of cores: entries of page tables are lines that L2, the shared cache and memory hold like others.
//!
//! A page that neither translation buffer knows is looked up in a radix tree of tables with 512 entries each. A small cache has
//! the tables below the root that were last used, so that a walk begins at the lowest one that it knows; each level takes one
//! line, from L2 on (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3, 4.10.3; Barr, Cox, Rixner,
//! *Translation caching: skip, don't walk (the page table)*, ISCA 2010). Accesses to the page wait; a core has a few walks under
//! way, further ones wait for one of these.
//!
//! In a virtual machine (`nested_page_kib`), the tables of the guest are in the guest's memory, whose pages the host translates by
//! tables of its own: a walk reads the host's entries for each of the guest's tables that it does not know, and for the page
//! itself. Translation buffers have the smaller one of both pages: a huge page of the guest on small ones of the host is many
//! (Bhargava, Serebrin, Spadini, Manne, *Accelerating two-dimensional page walks for virtualized systems*, ASPLOS 2008; Intel 64
//! and IA-32 Architectures Software Developer's Manual, volume 3, 29.4).

use std::collections::{BTreeSet, VecDeque};

use super::Machine;
use super::cache::{Cache, LINE_BYTES, Line};
use super::core::{Delayed, Waiter};
use super::space::{PAGE_BYTES, PAGES, virtual_line};
use crate::config::{CoreConfig, Walks};
use crate::event::{Ps, UNKNOWN};

/// Entries of a table, by bits.
const TABLE_BITS: u32 = 9;
/// Entries of eight bytes in a line, by bits.
const LINE_ENTRIES_BITS: u32 = 3;
/// Levels of tables: four translate addresses of 48 bits.
const LEVELS: u32 = 4;
/// The first line of page tables, behind the simulated memory; each level has as many lines as the memory.
const TABLES_FROM: Line = PAGES * PAGE_BYTES / LINE_BYTES;

/// The entry of a table, and the table below that is known once it has been read.
#[derive(Clone, Copy, Debug)]
struct Entry {
    line: Line,
    below: Option<u64>,
}

/// A page whose tables are being read.
#[derive(Debug)]
struct Walk {
    page: u64,
    /// The entries that are left to be read, the next one at the end.
    left: Vec<Entry>,
    walker: usize,
    waiters: Vec<Delayed>,
}

/// Translates the addresses of a core.
#[derive(Debug)]
pub(super) struct Translator {
    /// The translation buffers, as caches of pages.
    first: Cache,
    first_small: Cache,
    second: Cache,
    /// The tables that are known, by level and number: of this system, and of a host below.
    tables: Cache,
    host_tables: Cache,
    /// When each walker is free; unknown while it waits for a line.
    walkers: Vec<Ps>,
    walks: Vec<Walk>,
    /// Accesses whose walks have not begun.
    waiting: VecDeque<Delayed>,
}

impl Translator {
    pub(super) fn new(core: &CoreConfig) -> Self {
        Self {
            first: Cache::of_entries(core.tlb_entries, 4),
            first_small: Cache::of_entries(core.small_tlb_entries, 4),
            second: Cache::of_entries(core.second_tlb_entries, 4),
            tables: Cache::of_entries(core.walk_cache_entries, core.walk_cache_entries.into()),
            host_tables: Cache::of_entries(core.walk_cache_entries, core.walk_cache_entries.into()),
            walkers: vec![0; core.walkers as usize],
            walks: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Returns the numbers of walks under way and of accesses that wait for another one to end.
    pub(super) fn under_way(&self) -> [usize; 2] {
        [self.walks.len(), self.waiting.len()]
    }

    /// Returns the walker that is free first, and when; none if all wait for lines.
    fn free_walker(&self) -> Option<(usize, Ps)> {
        let known = self.walkers.iter().copied().enumerate().filter(|(_, free)| *free != UNKNOWN);
        known.min_by_key(|(walker, free)| (*free, *walker))
    }

    /// Returns the next access that waits for another walk, if one may begin.
    fn next_to_walk(&mut self) -> Option<Delayed> {
        self.free_walker().and_then(|_| self.waiting.pop_front())
    }

    /// Returns the entries to read for a page, the first one at the end, and marks the known table as used. The host has pages of
    /// `host_bytes`, if there is one below.
    fn entries(&mut self, page: &Page, host_bytes: Option<u64>) -> Vec<Entry> {
        let mut all = Vec::new();
        let known = (0..LEVELS - 1).find(|level| self.tables.touch(table(page.own, *level)));
        let first = known.unwrap_or(LEVELS - 1);
        for level in (0..=first).rev() {
            let line = entry_line(page.own, level);
            // The address of a table that is known is one of the host.
            if let (Some(bytes), true) = (host_bytes, level < first) {
                self.host_entries(line * LINE_BYTES / bytes, &mut all);
            }
            all.push(Entry { line, below: level.checked_sub(1).map(|below| table(page.own, below)) });
        }
        if let Some(host) = page.host {
            self.host_entries(host, &mut all);
        }
        all.reverse();
        all
    }

    fn host_entries(&mut self, host: u64, all: &mut Vec<Entry>) {
        let known = (0..LEVELS - 1).find(|level| self.host_tables.touch(table(host, *level)));
        all.extend((0..=known.unwrap_or(LEVELS - 1)).rev().map(|level| {
            let below = level.checked_sub(1).map(|below| table(host, below) | HOST);
            Entry { line: host_entry_line(host, level), below }
        }));
    }

    /// Marks a table as known.
    fn learn(&mut self, table: u64) {
        let (tables, table) = match table & HOST {
            0 => (&mut self.tables, table),
            _ => (&mut self.host_tables, table & !HOST),
        };
        if !tables.touch(table) {
            tables.insert(table, false);
        }
    }
}

/// A page as translation buffers have it, and its numbers in the tables of this system and of a host below.
struct Page {
    number: u64,
    own: u64,
    host: Option<u64>,
}

/// The flag of a host's tables.
const HOST: u64 = 1 << 63;

/// Returns the name of the table of a level that has a page, unique among all levels.
fn table(page: u64, level: u32) -> u64 {
    (page >> (TABLE_BITS * (level + 1))) << 2 | u64::from(level)
}

/// Returns the line with the entry of a page at a level.
fn entry_line(page: u64, level: u32) -> Line {
    TABLES_FROM * u64::from(1 + level) + (page >> (TABLE_BITS * level + LINE_ENTRIES_BITS))
}

/// Returns the line with the host's entry of one of its pages at a level.
fn host_entry_line(page: u64, level: u32) -> Line {
    entry_line(page, level) + TABLES_FROM * u64::from(LEVELS)
}

/// Returns whether a line is of a page table.
fn is_table(line: Line) -> bool {
    line >= TABLES_FROM
}

/// The flag of small pages among pages of both sizes.
const SMALL: u64 = 1 << 40;
/// The flag of a host's pages, of which several are a page of the guest.
const SPLIT: u64 = 1 << 41;

impl Translator {
    fn first_for(&mut self, page: u64) -> &mut Cache {
        if page & SMALL == 0 { &mut self.first } else { &mut self.first_small }
    }
}

impl Machine {
    /// Returns the size of the host's pages, if there is a host below.
    fn host_bytes(&self) -> Option<u64> {
        Some(self.config.core.nested_page_kib << 10).filter(|bytes| *bytes > 0)
    }

    /// Returns the page of a line: a small one if its memory was [placed](Self::on_small_pages) on such.
    fn page_of(&self, line: Line) -> Page {
        let address = virtual_line(line) * LINE_BYTES;
        let bytes = self.config.core.page_kib << 10;
        let own = match self.small.contains(&(address / PAGE_BYTES)) {
            true => SMALL | (address / 4096),
            false => address / bytes,
        };
        let host = self.host_bytes().map(|bytes| line * LINE_BYTES / bytes);
        let number = match self.host_bytes() {
            Some(host) if own & SMALL == 0 && host < bytes => SMALL | SPLIT | (address / host),
            _ => own,
        };
        Page { number, own, host }
    }

    /// Inserts the last entries for lines into the shared cache: they are used more often than what they translate.
    pub(super) fn fill_entries(&mut self, lines: &[Line]) {
        if self.config.core.walks == Walks::Free {
            return;
        }
        let entries = lines.iter().flat_map(|line| {
            let page = self.page_of(*line);
            [Some(entry_line(page.own, 0)), page.host.map(|host| host_entry_line(host, 0))]
        });
        let entries: BTreeSet<Line> = entries.flatten().collect();
        for line in entries {
            self.insert_shared(line);
        }
    }

    /// Places memory on pages of 4 KiB, by the numbers of pieces of 2 MiB.
    pub fn on_small_pages(&mut self, pieces: impl Iterator<Item = u64>) {
        self.small.extend(pieces);
    }

    /// Makes a core know the page of a line, as if it had read it just now.
    pub(super) fn fill_translation(&mut self, core: u32, line: Line) {
        if self.config.core.walks == Walks::Free {
            return;
        }
        let (page, host_bytes) = (self.page_of(line), self.host_bytes());
        let buffers = &mut self.cores[core as usize].translator;
        if buffers.first_for(page.number).touch(page.number) {
            return;
        }
        buffers.first_for(page.number).insert(page.number, false);
        if buffers.second.touch(page.number) {
            return;
        }
        buffers.second.insert(page.number, false);
        for entry in buffers.entries(&page, host_bytes).into_iter().rev() {
            if !self.cores[core as usize].has_in_l2(entry.line) {
                self.fill_core(core, entry.line, false);
            }
            if let Some(below) = entry.below {
                self.cores[core as usize].translator.learn(below);
            }
        }
    }

    /// Returns the additional latency of an access for its address, or `None` if its page must be looked up in the tables.
    pub(super) fn translation(&mut self, core: u32, line: Line) -> Option<Ps> {
        let limits = &self.config.core;
        let is_free = limits.walks == Walks::Free && limits.tlb_miss_cycles == 0;
        if is_free || is_table(line) {
            return Some(0);
        }
        let page = self.page_of(line).number;
        let buffers = &mut self.cores[core as usize].translator;
        let first = buffers.first_for(page);
        if first.touch(page) {
            return Some(0);
        }
        first.insert(page, false);
        if limits.walks == Walks::Caches && !buffers.second.touch(page) {
            buffers.first_for(page).remove(page);
            return None;
        }
        Some(limits.tlb_miss_cycles * self.cycle_ps)
    }

    /// Lets an access wait until its page has been looked up.
    pub(super) fn await_walk(&mut self, core: u32, access: Delayed, at: Ps) {
        let limits = &self.config.core;
        let page = self.page_of(access.line);
        let host_bytes = self.host_bytes();
        let buffers = &mut self.cores[core as usize].translator;
        if let Some(walk) = buffers.walks.iter_mut().find(|walk| walk.page == page.number) {
            return walk.waiters.push(access);
        }
        let Some((walker, free)) = buffers.free_walker() else { return buffers.waiting.push_back(access) };
        let left = buffers.entries(&page, host_bytes);
        buffers.walkers[walker] = UNKNOWN;
        buffers.walks.push(Walk { page: page.number, left, walker, waiters: vec![access] });
        self.counters.page_walks += 1;
        let at = at + limits.tlb_miss_cycles * self.cycle_ps;
        self.read_entry(core, page.number, at.max(free));
    }

    /// Reads the next entry of a walk.
    fn read_entry(&mut self, core: u32, page: u64, at: Ps) {
        self.counters.walk_loads += 1;
        let walks = &self.cores[core as usize].translator.walks;
        let next = walks.iter().find(|walk| walk.page == page).and_then(|walk| walk.left.last());
        let line = next.expect("it is under way").line;
        self.access(core, line, false, Some(Waiter::Walk(page)), at);
    }

    /// Goes on with a walk whose entry has arrived.
    pub(super) fn walked(&mut self, core: u32, page: u64, at: Ps) {
        let buffers = &mut self.cores[core as usize].translator;
        let place = buffers.walks.iter().position(|walk| walk.page == page).expect("it is under way");
        let entry = buffers.walks[place].left.pop().expect("it has been read");
        if let Some(below) = entry.below {
            buffers.learn(below);
        }
        if !buffers.walks[place].left.is_empty() {
            return self.read_entry(core, page, at);
        }
        let walk = buffers.walks.swap_remove(place);
        buffers.walkers[walk.walker] = at;
        buffers.first_for(page).insert(page, false);
        buffers.second.insert(page, false);
        for access in walk.waiters {
            self.access(core, access.line, access.own, access.waiter, at);
        }
        // Those whose page is known by now begin no walk, so that others must.
        while let Some(access) = self.cores[core as usize].translator.next_to_walk() {
            self.access(core, access.line, access.own, access.waiter, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_a_page_have_lines_of_their_own_and_neighbours_share_them() {
        let pages = [0, 7, 8, 511, 512, 1 << 18, 1 << 27];
        for level in 0..LEVELS {
            for page in pages {
                assert!(is_table(entry_line(page, level)));
            }
            assert_eq!(entry_line(0, level), entry_line((8 << (TABLE_BITS * level)) - 1, level));
            assert_ne!(entry_line(0, level), entry_line(8 << (TABLE_BITS * level), level));
        }
        assert!((0..LEVELS - 1).all(|l| entry_line(1 << 27, l) < entry_line(0, l + 1)));
        // Those of a host, whose memory has all of the guest's tables, too, and those of small pages are others.
        assert!(entry_line(1 << 27, LEVELS - 1) < host_entry_line(0, 0));
        let host_last = entry_line(SMALL | 1 << 27, LEVELS - 1) * LINE_BYTES / 4096;
        assert!((0..LEVELS - 1).all(|l| host_entry_line(host_last, l) < host_entry_line(0, l + 1)));
        assert!(host_entry_line(host_last, LEVELS - 1) < entry_line(SMALL, 0));
        assert_eq!((table(511, 0), table(512, 0)), (0, 4));
        assert_ne!(table(0, 0), table(0, 1));
    }
}
