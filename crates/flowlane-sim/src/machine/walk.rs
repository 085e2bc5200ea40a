//! Page walks of cores: entries of page tables are lines that L2, the shared cache and memory hold like others.
//!
//! A page that neither translation buffer knows is looked up in a radix tree of tables with 512 entries each. A small cache has
//! the tables below the root that were last used, so that a walk begins at the lowest one that it knows; each level takes one
//! line, from L2 on (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3, 4.10.3; Barr, Cox, Rixner,
//! *Translation caching: skip, don't walk (the page table)*, ISCA 2010). Accesses to the page wait; a core has a few walks under
//! way, further ones wait for one of these.

use std::collections::VecDeque;

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

/// A page whose tables are being read.
#[derive(Debug)]
struct Walk {
    page: u64,
    /// The level that is being read; 0 has the page.
    level: u32,
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
    /// The tables that are known, by level and number.
    tables: Cache,
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

    /// Returns the level at which a walk begins, and marks its table as used.
    fn first_level(&mut self, page: u64) -> u32 {
        (0..LEVELS - 1).find(|level| self.tables.touch(table(page, *level))).unwrap_or(LEVELS - 1)
    }
}

/// Returns the name of the table of a level that has a page, unique among all levels.
fn table(page: u64, level: u32) -> u64 {
    (page >> (TABLE_BITS * (level + 1))) << 2 | u64::from(level)
}

/// Returns the line with the entry of a page at a level.
fn entry_line(page: u64, level: u32) -> Line {
    TABLES_FROM * u64::from(1 + level) + (page >> (TABLE_BITS * level + LINE_ENTRIES_BITS))
}

/// Returns whether a line is of a page table.
fn is_table(line: Line) -> bool {
    line >= TABLES_FROM
}

/// The flag of small pages among pages of both sizes.
const SMALL: u64 = 1 << 40;

impl Translator {
    fn first_for(&mut self, page: u64) -> &mut Cache {
        if page & SMALL == 0 { &mut self.first } else { &mut self.first_small }
    }
}

impl Machine {
    /// Returns the page of a line: a small one if its memory was [placed](Self::on_small_pages) on such.
    fn page_of(&self, line: Line) -> u64 {
        let address = virtual_line(line) * LINE_BYTES;
        if self.small.contains(&(address / PAGE_BYTES)) {
            return SMALL | (address / 4096);
        }
        address / (self.config.core.page_kib * 1024)
    }

    /// Places memory on pages of 4 KiB, by the numbers of pieces of 2 MiB.
    pub fn on_small_pages(&mut self, pieces: impl Iterator<Item = u64>) {
        self.small.extend(pieces);
    }

    /// Returns the additional latency of an access for its address, or `None` if its page must be looked up in the tables.
    pub(super) fn translation(&mut self, core: u32, line: Line) -> Option<Ps> {
        let limits = &self.config.core;
        let is_free = limits.walks == Walks::Free && limits.tlb_miss_cycles == 0;
        if is_free || is_table(line) {
            return Some(0);
        }
        let page = self.page_of(line);
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
        let buffers = &mut self.cores[core as usize].translator;
        if let Some(walk) = buffers.walks.iter_mut().find(|walk| walk.page == page) {
            return walk.waiters.push(access);
        }
        let Some((walker, free)) = buffers.free_walker() else { return buffers.waiting.push_back(access) };
        let level = buffers.first_level(page);
        buffers.walkers[walker] = UNKNOWN;
        buffers.walks.push(Walk { page, level, walker, waiters: vec![access] });
        self.counters.page_walks += 1;
        let at = at + limits.tlb_miss_cycles * self.cycle_ps;
        self.read_entry(core, page, level, at.max(free));
    }

    fn read_entry(&mut self, core: u32, page: u64, level: u32, at: Ps) {
        self.counters.walk_loads += 1;
        self.access(core, entry_line(page, level), false, Some(Waiter::Walk(page)), at);
    }

    /// Goes on with a walk whose entry has arrived.
    pub(super) fn walked(&mut self, core: u32, page: u64, at: Ps) {
        let buffers = &mut self.cores[core as usize].translator;
        let place = buffers.walks.iter().position(|walk| walk.page == page).expect("it is under way");
        let level = buffers.walks[place].level;
        if let Some(below) = level.checked_sub(1) {
            // The entry says where the table below is.
            let known = table(page, below);
            if !buffers.tables.touch(known) {
                buffers.tables.insert(known, false);
            }
            buffers.walks[place].level = below;
            return self.read_entry(core, page, below, at);
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
        assert_eq!((table(511, 0), table(512, 0)), (0, 4));
        assert_ne!(table(0, 0), table(0, 1));
    }
}
