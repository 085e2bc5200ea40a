//! The parts shared by cores and accelerators: requests over the mesh, slices with their locks, the directory of
//! private copies (the snoop filter), and memory.

use std::collections::VecDeque;

use super::cache::{Evicted, Line};
use super::mesh::{LINE_FLITS, REQUEST_FLITS};
use super::op::Kind;
use super::query::{BatchId, QueryId};
use super::space::slice_of;
use super::thread::Level;
use super::{Event, Machine, MemoryAccess, SimError};
use crate::config::{Fill, MissRegisters, Remote};
use crate::event::{Component, Ps};

/// The number of a request in flight.
pub(super) type RequestId = u32;

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    Core {
        core: u32,
    },
    Snapshot {
        core: u32,
        thread: u8,
        op: u64,
        batch: BatchId,
    },
    Unit {
        query: QueryId,
    },
    /// An accelerator, for an entry of the tables that have a page.
    Walk {
        unit: u32,
        page: u64,
    },
}

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    /// To read the line.
    Read,
    /// To write the line.
    Own,
    /// To read the line without becoming a sharer.
    Snapshot,
    /// To read and lock the line.
    Lock,
    /// To write a result to the line.
    Result,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    origin: Origin,
    ask: Ask,
    line: Line,
    level: Level,
    /// For a snapshot, whether all results were present.
    complete: bool,
}

/// Miss registers, and requests that wait for one.
#[derive(Debug, Default)]
pub(super) struct Registers {
    busy: u32,
    waiting: VecDeque<RequestId>,
}

/// The private copies of a line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sharers {
    cores: u64,
    /// Whether one core has it exclusively and may have modified it.
    exclusive: bool,
    /// Units that have it among their metadata: the core-valid bits of accelerators.
    pub(super) units: u128,
}

impl Machine {
    /// Sends a request at a time.
    pub(super) fn request(&mut self, origin: Origin, ask: Ask, line: Line, at: Ps) {
        let request = Request { origin, ask, line, level: Level::Llc, complete: false };
        let id = match self.free_requests.pop() {
            Some(id) => {
                self.requests[id as usize] = request;
                id
            }
            None => {
                self.requests.push(request);
                self.requests.len() as RequestId - 1
            }
        };
        self.events.at(at, self.component_of_origin(origin), Event::Send(id));
    }

    fn component_of_origin(&self, origin: Origin) -> Component {
        match origin {
            Origin::Core { core } | Origin::Snapshot { core, .. } => core,
            Origin::Unit { query } => self.component_of_unit(self.queries.get(query).unit),
            Origin::Walk { unit, .. } => self.component_of_unit(unit),
        }
    }

    /// Returns the accelerator that sent a request.
    fn unit_of_origin(&self, origin: Origin) -> Option<u32> {
        match origin {
            Origin::Unit { query } => Some(self.queries.get(query).unit),
            Origin::Walk { unit, .. } => Some(unit),
            Origin::Core { .. } | Origin::Snapshot { .. } => None,
        }
    }

    /// Components are numbered in the order cores, units, slices, memory.
    pub(super) fn component_of_unit(&self, unit: u32) -> Component {
        self.config.core.cores + unit
    }

    fn component_of_slice(&self, slice: u32) -> Component {
        2 * self.config.core.cores + self.config.llc.slices + slice
    }

    fn tile_of_origin(&self, origin: Origin) -> u32 {
        match origin {
            Origin::Core { core } | Origin::Snapshot { core, .. } => core,
            Origin::Unit { query } => self.tile_of_unit(self.queries.get(query).unit),
            Origin::Walk { unit, .. } => self.tile_of_unit(unit),
        }
    }

    /// Returns whether an accelerator's access bypasses the mesh.
    fn is_local(&self, origin: Origin, slice: u32) -> bool {
        let Some(unit) = self.unit_of_origin(origin) else { return false };
        unit == slice || unit < self.config.llc.slices && self.config.accelerator.remote == Remote::Ideal
    }

    pub(super) fn send(&mut self, id: RequestId) {
        let Request { origin, ask, line, .. } = self.requests[id as usize];
        let (now, slice) = (self.events.now(), slice_of(line, self.config.llc.slices));
        let flits = if ask == Ask::Result { LINE_FLITS } else { REQUEST_FLITS };
        let at = match self.is_local(origin, slice) {
            true => now,
            false => self.mesh.send(self.tile_of_origin(origin), slice, flits, now),
        };
        self.events.at(at, self.component_of_slice(slice), Event::Slice(id));
    }

    pub(super) fn at_slice(&mut self, id: RequestId) {
        let Request { origin, ask, line, .. } = self.requests[id as usize];
        let number = slice_of(line, self.config.llc.slices);
        let busy = self.cycles(self.config.llc.busy_cycles);
        let slice = &mut self.slices[number as usize];
        let begun = self.events.now().max(slice.free);
        slice.free = begun + busy;
        slice.busy_ps += busy;
        if ask == Ask::Own && self.locks.contains_key(&line) {
            // A snoop miss: the sender is notified and retries.
            self.counters.snoop_misses += 1;
            let heard = self.mesh.send(number, self.tile_of_origin(origin), REQUEST_FLITS, begun);
            let again = heard + self.cycles(self.config.snoop.retry_cycles);
            return self.events.at(again, self.component_of_origin(origin), Event::Send(id));
        }
        if ask == Ask::Lock {
            self.lock(origin, line);
        }
        if let (Ask::Snapshot, Origin::Snapshot { batch, .. }) = (ask, origin) {
            self.requests[id as usize].complete = self.queries.batch_mut(batch).missing == 0;
        }
        let (tag, whole) = self.slice_cycles(origin);
        let snooped = self.snoop(origin, ask, line, number, begun + self.cycles(tag));
        let slice = &mut self.slices[number as usize];
        if let Some(at) = snooped {
            slice.cache.insert(line, true);
            return self.give(id, number, at);
        }
        if ask != Ask::Result
            && let Some(same) = self.coming.get_mut(&line)
        {
            self.counters.llc_misses += 1;
            self.counters.miss_joins += 1;
            self.requests[id as usize].level = Level::Memory;
            return same.push(id);
        }
        if slice.cache.touch(line) || ask == Ask::Result {
            if ask == Ask::Result {
                slice.cache.insert(line, true);
            }
            self.counters.llc_hits += 1;
            let at = begun + self.cycles(whole);
            return self.give(id, number, at);
        }
        self.counters.llc_misses += 1;
        let limited = self.config.llc.miss_registers_per != MissRegisters::Unlimited;
        let limit = self.config.llc.miss_registers;
        let registers = self.registers_of(number);
        if limited && registers.busy >= limit {
            registers.waiting.push_back(id);
            self.counters.miss_waits += 1;
            return;
        }
        self.fetch_from_memory(id, number, begun + self.cycles(tag));
    }

    /// Returns the cycles of a slice's tags, and of its whole answer.
    fn slice_cycles(&self, origin: Origin) -> (u64, u64) {
        let llc = &self.config.llc;
        if self.unit_of_origin(origin).is_some_and(|unit| unit < llc.slices) {
            let whole = self.config.accelerator.slice_cycles;
            return (llc.tag_cycles.min(whole), whole);
        }
        (llc.tag_cycles, llc.tag_cycles + llc.data_cycles)
    }

    fn registers_of(&mut self, slice: u32) -> &mut Registers {
        let per_slice = self.config.llc.miss_registers_per == MissRegisters::Slice;
        &mut self.registers[if per_slice { slice as usize } else { 0 }]
    }

    /// Takes a miss register and sends a request to memory.
    fn fetch_from_memory(&mut self, id: RequestId, slice: u32, at: Ps) {
        self.registers_of(slice).busy += 1;
        self.coming.insert(self.requests[id as usize].line, Vec::new());
        self.requests[id as usize].level = Level::Memory;
        let controller = self.controller_tile(self.requests[id as usize].line);
        let at = self.mesh.send(slice, controller, REQUEST_FLITS, at);
        self.events.at(at, Component::MAX, Event::Memory(id));
    }

    /// Gives a line from memory to the requests that wait for it, and its miss register to requests for other lines.
    pub(super) fn filled(&mut self, line: Line) {
        let (now, slice) = (self.events.now(), slice_of(line, self.config.llc.slices));
        for id in self.coming.remove(&line).unwrap_or_default() {
            let whole = self.slice_cycles(self.requests[id as usize].origin).1;
            self.give(id, slice, now + self.cycles(whole));
        }
        self.registers_of(slice).busy -= 1;
        while let Some(id) = self.registers_of(slice).waiting.pop_front() {
            let Request { origin, line, .. } = self.requests[id as usize];
            let number = slice_of(line, self.config.llc.slices);
            let same = self.coming.get_mut(&line);
            if same.is_none() && !self.slices[number as usize].cache.touch(line) {
                return self.fetch_from_memory(id, number, now);
            }
            self.counters.miss_joins += 1;
            self.requests[id as usize].level = Level::Memory;
            match same {
                Some(same) => same.push(id),
                None => self.give(id, number, now + self.cycles(self.slice_cycles(origin).1)),
            }
        }
    }

    pub(super) fn at_memory(&mut self, id: RequestId) {
        let Request { origin, line, .. } = self.requests[id as usize];
        let at = self.access_memory(line, false, self.events.now());
        let slice = slice_of(line, self.config.llc.slices);
        let keeps = self.config.llc.fill == Fill::Allocate || !matches!(origin, Origin::Core { .. });
        if keeps && let Some(evicted) = self.slices[slice as usize].cache.insert(line, false) {
            self.write_back(evicted, at);
        }
        let to = match self.is_local(origin, slice) {
            true => slice,
            false => self.tile_of_origin(origin),
        };
        let controller = self.controller_tile(line);
        let (filled, at) = match (origin, self.config.llc.fill) {
            // An allocating cache forwards a line after it has stored it.
            (Origin::Core { .. }, Fill::Allocate) => {
                let filled = self.mesh.send(controller, slice, LINE_FLITS, at);
                let kept = filled + self.cycles(self.config.llc.data_cycles);
                (filled, self.mesh.send(slice, to, LINE_FLITS, kept))
            }
            _ => {
                let at = self.mesh.send(controller, to, LINE_FLITS, at);
                (at, at)
            }
        };
        self.events.at(filled, self.component_of_slice(slice), Event::Filled(line));
        self.events.at(at, self.component_of_origin(origin), Event::Done(id));
    }

    /// Sends the requested line back.
    fn give(&mut self, id: RequestId, slice: u32, at: Ps) {
        let Request { origin, ask, .. } = self.requests[id as usize];
        let flits = if ask == Ask::Result { REQUEST_FLITS } else { LINE_FLITS };
        let at = match self.is_local(origin, slice) {
            true => at,
            false => self.mesh.send(slice, self.tile_of_origin(origin), flits, at),
        };
        self.events.at(at, self.component_of_origin(origin), Event::Done(id));
    }

    pub(super) fn done(&mut self, id: RequestId) -> Result<(), SimError> {
        let request = self.requests[id as usize];
        match request.origin {
            Origin::Snapshot { core, thread, op, .. } if !request.complete => {
                self.cores[core as usize].threads[usize::from(thread)].stats.snapshot_retries += 1;
                let again =
                    self.events.now() + self.cycles(self.config.accelerator.snapshot_retry_cycles.max(1));
                debug_assert!(op < u64::MAX);
                self.events.at(again, core, Event::Send(id));
                return Ok(());
            }
            Origin::Snapshot { core, thread, op, .. } => {
                let now = self.events.now();
                self.end(core, thread.into(), op, now);
                self.wake(core, now);
            }
            Origin::Core { core } => self.arrived(core, request.line, request.ask == Ask::Own, request.level),
            Origin::Unit { query } => self.fetched(query, request.line)?,
            Origin::Walk { unit, page } => self.unit_walked(unit, page),
        }
        self.free_requests.push(id);
        self.progress();
        Ok(())
    }

    /// Downgrades or invalidates the exclusive copy of a line, and for a writer all copies. Returns the completion
    /// time if the data come from another core.
    fn snoop(&mut self, origin: Origin, ask: Ask, line: Line, slice: u32, at: Ps) -> Option<Ps> {
        let sharers = *self.sharers.get(&line)?;
        let asker = match origin {
            Origin::Core { core } => Some(core),
            _ => None,
        };
        let writes = matches!(ask, Ask::Own | Ask::Result);
        let others = sharers.cores & !asker.map_or(0, |core| 1 << core);
        let owner = (sharers.exclusive && others != 0).then(|| others.trailing_zeros());
        if ask == Ask::Snapshot {
            // The data are sent without a change of ownership.
            return owner.map(|owner| self.request_from_core(owner, slice, at));
        }
        let mut end = owner.map(|owner| self.request_from_core(owner, slice, at));
        self.counters.snoops += u64::from(owner.is_some());
        if writes {
            for core in (0..64).filter(|core| others >> core & 1 == 1) {
                self.cores[core as usize].drop_line(line);
                if owner.is_none() {
                    end = end.max(Some(self.request_from_core(core, slice, at)));
                }
            }
            self.take_metadata(line, sharers.units);
            let left = Sharers { cores: sharers.cores & !others, exclusive: false, units: 0 };
            self.set_sharers(line, left);
        } else if owner.is_some() {
            self.set_sharers(line, Sharers { exclusive: false, ..sharers });
        }
        end
    }

    fn request_from_core(&mut self, core: u32, slice: u32, at: Ps) -> Ps {
        let there = self.mesh.send(slice, core, REQUEST_FLITS, at);
        self.mesh.send(core, slice, LINE_FLITS, there + self.cycles(self.config.snoop.private_cycles))
    }

    pub(super) fn set_sharers(&mut self, line: Line, sharers: Sharers) {
        if sharers.cores == 0 && sharers.units == 0 {
            self.sharers.remove(&line);
        } else {
            self.sharers.insert(line, sharers);
        }
    }

    pub(super) fn sharers_of(&self, line: Line) -> Sharers {
        self.sharers.get(&line).copied().unwrap_or_default()
    }

    /// Returns whether a core may write a line without a request.
    pub(super) fn owns(&self, core: u32, line: Line) -> bool {
        self.sharers.get(&line).is_some_and(|s| s.exclusive && s.cores == 1 << core)
    }

    pub(super) fn note_sharer(&mut self, core: u32, line: Line, own: bool) {
        let entry = self.sharers.entry(line).or_default();
        entry.exclusive = own
            || entry.cores & !(1 << core) == 0 && (entry.exclusive || entry.units == 0 && entry.cores == 0);
        entry.cores |= 1 << core;
    }

    /// Handles an eviction from a core's second-level cache.
    pub(super) fn evicted(&mut self, core: u32, evicted: Evicted) {
        let mut sharers = self.sharers_of(evicted.line);
        sharers.cores &= !(1 << core);
        sharers.exclusive = false;
        self.set_sharers(evicted.line, sharers);
        let slice = slice_of(evicted.line, self.config.llc.slices) as usize;
        let cache = &mut self.slices[slice].cache;
        if (evicted.dirty || self.config.llc.fill == Fill::Victim)
            && let Some(next) = cache.insert(evicted.line, evicted.dirty)
        {
            self.write_back(next, self.events.now());
        }
    }

    /// Writes dirty evictions of the shared cache to memory.
    fn write_back(&mut self, evicted: Evicted, at: Ps) {
        if evicted.dirty {
            self.access_memory(evicted.line, true, at);
        }
    }

    fn access_memory(&mut self, line: Line, write: bool, at: Ps) -> Ps {
        if let Some(accesses) = &mut self.accesses {
            accesses.push(MemoryAccess { line, write });
        }
        self.dram.access(line, at)
    }

    fn lock(&mut self, origin: Origin, line: Line) {
        let Origin::Unit { query } = origin else { return };
        *self.locks.entry(line).or_default() += 1;
        self.counters.locked += 1;
        self.queries.get_mut(query).locked.push(line);
    }

    /// Releases those of the lines that a query has locked.
    pub(super) fn unlock(&mut self, query: QueryId, of: impl Fn(Line) -> bool) {
        let locked = &mut self.queries.get_mut(query).locked;
        for line in locked.extract_if(.., |line| of(*line)).collect::<Vec<_>>() {
            let count = self.locks.get_mut(&line).expect("it was locked");
            *count -= 1;
            if *count == 0 {
                self.locks.remove(&line);
            }
            self.counters.unlocked += 1;
        }
    }

    /// Delivers the answer to the operation of a blocking query.
    pub(super) fn answered(&mut self, core: u32, thread: usize, op: u64) {
        debug_assert!(matches!(self.kind_of(core, thread, op), Kind::Lookup(_)));
        let now = self.events.now();
        self.end(core, thread, op, now);
        self.wake(core, now);
    }
}
