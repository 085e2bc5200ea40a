//! Translations of cores and accelerators.
//!
//! A core has two translation buffers, an accelerator one of its own or its core's. Pages that these do not know are looked up in page
//! [tables](super::page_tables), whose entries are lines that L2, the shared cache and memory hold like others: a core reads them from L2
//! on, an accelerator from the slices. Accesses to the page wait.
//!
//! In a virtual machine (`nested_page_kib`), translation buffers have the smaller one of both pages: a huge page of the guest on small
//! ones of the host is many.

use std::collections::BTreeSet;

use super::Machine;
use super::cache::{Cache, LINE_BYTES, Line};
use super::core::{Delayed, Waiter};
use super::page_tables::{Page, PageWalks, SMALL, is_table, last_entries};
use super::query::QueryId;
use super::shared::{Ask, Origin};
use super::space::{PAGE_BYTES, virtual_line};
use crate::config::{CoreConfig, Walks};
use crate::event::Ps;

/// A line that an accelerator wants for a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) query: QueryId,
    pub(super) line: Line,
    pub(super) ask: Ask,
}

/// An access that waits for a walk of a core.
#[derive(Clone, Copy, Debug)]
enum Access {
    Own(Delayed),
    /// Of an accelerator that uses the core's translation.
    Query(Wanted),
}

/// Translates the addresses of a core.
#[derive(Debug)]
pub(super) struct Translator {
    /// The translation buffers, as caches of pages.
    first: Cache,
    first_small: Cache,
    second: Cache,
    walks: PageWalks<Access>,
}

impl Translator {
    pub(super) fn new(core: &CoreConfig) -> Self {
        Self {
            first: Cache::of_entries(core.tlb_entries, 4),
            first_small: Cache::of_entries(core.small_tlb_entries, 4),
            second: Cache::of_entries(core.second_tlb_entries, 4),
            walks: PageWalks::new(core),
        }
    }

    /// Returns the numbers of walks under way and of accesses that wait for another one to end.
    pub(super) fn under_way(&self) -> [usize; 2] {
        self.walks.under_way()
    }

    fn first_for(&mut self, page: u64) -> &mut Cache {
        if page & SMALL == 0 { &mut self.first } else { &mut self.first_small }
    }
}

/// Translates the addresses of an accelerator.
#[derive(Debug)]
pub(super) struct UnitTranslator {
    /// Its translation buffer, of pages of any size.
    pages: Cache,
    walks: PageWalks<Wanted>,
}

impl UnitTranslator {
    /// With that many pages, and walkers as a core has.
    pub(super) fn new(entries: u32, core: &CoreConfig) -> Self {
        Self { pages: Cache::of_entries(entries, entries.into()), walks: PageWalks::new(core) }
    }

    /// Returns the numbers of walks under way and of accesses that wait for another one to end.
    pub(super) fn under_way(&self) -> [usize; 2] {
        self.walks.under_way()
    }
}

/// The flag of a host's pages, of which several are a page of the guest.
const SPLIT: u64 = 1 << 41;

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
        let entries: BTreeSet<Line> =
            lines.iter().flat_map(|line| last_entries(&self.page_of(*line))).collect();
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
        for entry in buffers.walks.entries(&page, host_bytes).into_iter().rev() {
            if !self.cores[core as usize].has_in_l2(entry.line) {
                self.fill_core(core, entry.line, false);
            }
            self.cores[core as usize].translator.walks.learn(entry);
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
        self.await_walk_of(core, Access::Own(access), access.line, at);
    }

    fn await_walk_of(&mut self, core: u32, access: Access, line: Line, at: Ps) {
        let at = at + self.cycles(self.config.core.tlb_miss_cycles);
        let (page, host_bytes) = (self.page_of(line), self.host_bytes());
        let walks = &mut self.cores[core as usize].translator.walks;
        if let Some(at) = walks.wait(&page, host_bytes, access, at) {
            self.counters.page_walks += 1;
            self.read_entry(core, page.number, at);
        }
    }

    /// Reads the next entry of a walk.
    fn read_entry(&mut self, core: u32, page: u64, at: Ps) {
        self.counters.walk_loads += 1;
        let line = self.cores[core as usize].translator.walks.next_entry(page);
        self.access(core, line, false, Some(Waiter::Walk(page)), at);
    }

    /// Goes on with a walk whose entry has arrived.
    pub(super) fn walked(&mut self, core: u32, page: u64, at: Ps) {
        let buffers = &mut self.cores[core as usize].translator;
        let Some(waiters) = buffers.walks.entry_read(page, at) else {
            return self.read_entry(core, page, at);
        };
        buffers.first_for(page).insert(page, false);
        buffers.second.insert(page, false);
        for access in waiters {
            self.resume(core, access, at);
        }
        // Those whose page is known by now begin no walk, so that others must.
        while let Some(access) = self.cores[core as usize].translator.walks.next_to_walk() {
            self.resume(core, access, at);
        }
    }

    fn resume(&mut self, core: u32, access: Access, at: Ps) {
        match access {
            Access::Own(own) => _ = self.access(core, own.line, own.own, own.waiter, at),
            Access::Query(wanted) => self.fetch_by_core(core, wanted, at),
        }
    }

    /// Fetches a line for an accelerator that uses a core's translation, from the time that the address is there.
    pub(super) fn fetch_by_core(&mut self, core: u32, wanted: Wanted, at: Ps) {
        match self.translation(core, wanted.line) {
            Some(translation) => self.fetch_translated(wanted, at + translation),
            None => self.await_walk_of(core, Access::Query(wanted), wanted.line, at),
        }
    }

    /// Fetches a line for an accelerator with a translation buffer of its own.
    pub(super) fn fetch_by_tlb(&mut self, unit: u32, wanted: Wanted, at: Ps) {
        let (page, host_bytes) = (self.page_of(wanted.line), self.host_bytes());
        let buffer = &mut self.units[unit as usize].translator;
        if buffer.pages.touch(page.number) {
            return self.fetch_translated(wanted, at);
        }
        if self.config.core.walks == Walks::Free {
            buffer.pages.insert(page.number, false);
            self.counters.tlb_misses += 1;
            return self.fetch_translated(wanted, at + self.cycles(self.config.accelerator.tlb_miss_cycles));
        }
        if let Some(at) = buffer.walks.wait(&page, host_bytes, wanted, at) {
            self.counters.tlb_misses += 1;
            self.read_unit_entry(unit, page.number, at);
        }
    }

    /// Reads the next entry of an accelerator's walk.
    fn read_unit_entry(&mut self, unit: u32, page: u64, at: Ps) {
        self.counters.walk_loads += 1;
        let line = self.units[unit as usize].translator.walks.next_entry(page);
        self.request(Origin::Walk { unit, page }, Ask::Read, line, at);
    }

    /// Goes on with an accelerator's walk whose entry has arrived.
    pub(super) fn unit_walked(&mut self, unit: u32, page: u64) {
        let at = self.events.now();
        let buffer = &mut self.units[unit as usize].translator;
        let Some(waiters) = buffer.walks.entry_read(page, at) else {
            return self.read_unit_entry(unit, page, at);
        };
        buffer.pages.insert(page, false);
        for wanted in waiters {
            self.fetch_translated(wanted, at);
        }
        while let Some(wanted) = self.units[unit as usize].translator.walks.next_to_walk() {
            self.fetch_by_tlb(unit, wanted, at);
        }
    }
}
