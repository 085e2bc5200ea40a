//! Page tables in memory, and walks through them.
//!
//! A page that a translation buffer does not know is looked up in a radix tree of tables with 512 entries each. A small cache has
//! the tables below the root that were last used, so that a walk begins at the lowest one that it knows; each level takes one
//! line (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3, 4.10.3; Barr, Cox, Rixner,
//! *Translation caching: skip, don't walk (the page table)*, ISCA 2010). A few walks are under way at a time, further ones wait for
//! one of these.
//!
//! In a virtual machine, the tables of the guest are in the guest's memory, whose pages the host translates by tables of its own: a
//! walk reads the host's entries for each of the guest's tables that it does not know, and for the page itself (Bhargava, Serebrin,
//! Spadini, Manne, *Accelerating two-dimensional page walks for virtualized systems*, ASPLOS 2008; Intel 64 and IA-32 Architectures
//! Software Developer's Manual, volume 3, 29.4).

use std::collections::VecDeque;

use super::cache::{Cache, LINE_BYTES, Line};
use super::space::{PAGE_BYTES, PAGES};
use crate::config::CoreConfig;
use crate::event::{Ps, UNKNOWN};

/// Entries of a table, by bits.
const TABLE_BITS: u32 = 9;
/// Entries of eight bytes in a line, by bits.
const LINE_ENTRIES_BITS: u32 = 3;
/// Levels of tables: four translate addresses of 48 bits.
const LEVELS: u32 = 4;
/// The first line of page tables, behind the simulated memory; each level has as many lines as the memory.
const TABLES_FROM: Line = PAGES * PAGE_BYTES / LINE_BYTES;

/// A page as translation buffers have it, and its numbers in the tables of this system and of a host below.
pub(super) struct Page {
    pub(super) number: u64,
    pub(super) own: u64,
    pub(super) host: Option<u64>,
}

/// The flag of a host's tables.
const HOST: u64 = 1 << 63;

/// The flag of small pages among pages of both sizes.
pub(super) const SMALL: u64 = 1 << 40;

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
pub(super) fn is_table(line: Line) -> bool {
    line >= TABLES_FROM
}

/// Returns the lines of the last entries for a page, of this system and of a host below.
pub(super) fn last_entries(page: &Page) -> impl Iterator<Item = Line> + use<> {
    [Some(entry_line(page.own, 0)), page.host.map(|host| host_entry_line(host, 0))].into_iter().flatten()
}

/// The entry of a table, and the table below that is known once it has been read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) line: Line,
    below: Option<u64>,
}

/// A page whose tables are being read.
#[derive(Debug)]
struct Walk<A> {
    page: u64,
    /// The entries that are left to be read, the next one at the end.
    left: Vec<Entry>,
    walker: usize,
    waiters: Vec<A>,
}

/// Walks under way, and accesses `A` that wait for them.
#[derive(Debug)]
pub(super) struct PageWalks<A> {
    /// The tables that are known, by level and number: of this system, and of a host below.
    tables: Cache,
    host_tables: Cache,
    /// When each walker is free; unknown while it waits for a line.
    walkers: Vec<Ps>,
    walks: Vec<Walk<A>>,
    /// Accesses whose walks have not begun.
    waiting: VecDeque<A>,
}

impl<A> PageWalks<A> {
    /// With the walkers of a core, and its cache of tables.
    pub(super) fn new(core: &CoreConfig) -> Self {
        let tables = || Cache::of_entries(core.walk_cache_entries, core.walk_cache_entries.into());
        Self {
            tables: tables(),
            host_tables: tables(),
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
    pub(super) fn next_to_walk(&mut self) -> Option<A> {
        self.free_walker().and_then(|_| self.waiting.pop_front())
    }

    /// Lets an access wait until its page has been looked up. Returns when to read the first entry if a walk begins with it. The host
    /// has pages of `host_bytes`, if there is one below.
    pub(super) fn wait(&mut self, page: &Page, host_bytes: Option<u64>, access: A, at: Ps) -> Option<Ps> {
        if let Some(walk) = self.walks.iter_mut().find(|walk| walk.page == page.number) {
            walk.waiters.push(access);
            return None;
        }
        let Some((walker, free)) = self.free_walker() else {
            self.waiting.push_back(access);
            return None;
        };
        let left = self.entries(page, host_bytes);
        self.walkers[walker] = UNKNOWN;
        self.walks.push(Walk { page: page.number, left, walker, waiters: vec![access] });
        Some(at.max(free))
    }

    /// Returns the line of the next entry for a page.
    pub(super) fn next_entry(&self, page: u64) -> Line {
        let walk = self.walks.iter().find(|walk| walk.page == page);
        walk.and_then(|walk| walk.left.last()).expect("it is under way").line
    }

    /// Notes that the next entry for a page has been read. Returns the accesses that waited for the last one.
    pub(super) fn entry_read(&mut self, page: u64, at: Ps) -> Option<Vec<A>> {
        let place = self.walks.iter().position(|walk| walk.page == page).expect("it is under way");
        let entry = self.walks[place].left.pop().expect("it has been read");
        self.learn(entry);
        if !self.walks[place].left.is_empty() {
            return None;
        }
        let walk = self.walks.swap_remove(place);
        self.walkers[walk.walker] = at;
        Some(walk.waiters)
    }

    /// Returns the entries to read for a page, the first one at the end, and marks the known table as used.
    pub(super) fn entries(&mut self, page: &Page, host_bytes: Option<u64>) -> Vec<Entry> {
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

    /// Marks the table that an entry leads to as known.
    pub(super) fn learn(&mut self, entry: Entry) {
        let Some(table) = entry.below else { return };
        let (tables, table) = match table & HOST {
            0 => (&mut self.tables, table),
            _ => (&mut self.host_tables, table & !HOST),
        };
        if !tables.touch(table) {
            tables.insert(table, false);
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
