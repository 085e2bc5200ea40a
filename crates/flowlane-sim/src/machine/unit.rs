//! Accelerators: one next to each slice, behind a distributor. For comparison, there is an engine next to each core's
//! second-level cache with the same steps and that cache's data.
//!
//! A query has these steps: metadata, key, hash, then access and comparison for each line of the walk, commit,
//! result. The number of queries that an accelerator processes at once is configurable. Further queries wait in its
//! command queue, up to the size of the scoreboard, and beyond that in the distributor, since the busy bit is set.

use std::collections::VecDeque;
use std::fmt::Write;

use flowlane::flow_register::FlowRegister;

use super::cache::{Cache, Line};
use super::mesh::REQUEST_FLITS;
use super::op::{Kind, Mismatch};
use super::query::{Engine, Query, QueryId, Step};
use super::shared::{Ask, Origin};
use super::space::{slice_of, slice_of_table};
use super::stats::Span;
use super::walk::{UnitTranslator, Wanted};
use super::{Event, Machine, SimError};
use crate::config::{Buckets, Dispatch, LockHold, MachineConfig, Translation};
use crate::event::Ps;

/// An accelerator.
#[derive(Debug)]
pub(super) struct Unit {
    near_l2: bool,
    in_flight_max: u32,
    scoreboard: u32,
    /// The number of queries being processed.
    in_flight: u32,
    /// The busy time before the current busy period.
    worked_ps: Ps,
    working_since: Ps,
    /// Unfinished queries, including those in transit.
    outstanding: u32,
    commands: VecDeque<QueryId>,
    /// Queries that met the busy bit.
    distributor: VecDeque<QueryId>,
    /// Tables with cached metadata, by their line.
    metadata: Cache,
    pub(super) translator: UnitTranslator,
    hash_free: Ps,
    comparator_free: Ps,
    pub(super) register: FlowRegister,
}

impl Unit {
    pub(super) fn new(config: &MachineConfig, near_l2: bool) -> Self {
        let a = &config.accelerator;
        let in_flight_max = if near_l2 { config.near_l2.in_flight_queries } else { a.in_flight_queries };
        Self {
            near_l2,
            in_flight_max,
            scoreboard: if near_l2 { u32::MAX } else { a.scoreboard_queries },
            in_flight: 0,
            worked_ps: 0,
            working_since: 0,
            outstanding: 0,
            commands: VecDeque::new(),
            distributor: VecDeque::new(),
            metadata: Cache::of_entries(a.metadata_tables, a.metadata_tables.into()),
            translator: UnitTranslator::new(a.tlb_entries, &config.core),
            hash_free: 0,
            comparator_free: 0,
            register: FlowRegister::new(a.flow_register_bits),
        }
    }

    /// Begins another query.
    fn take(&mut self, now: Ps) {
        if self.in_flight == 0 {
            self.working_since = now;
        }
        self.in_flight += 1;
    }

    /// Ends a query.
    fn release(&mut self, now: Ps) {
        self.in_flight -= 1;
        if self.in_flight == 0 {
            self.worked_ps += now - self.working_since;
        }
    }

    /// Returns the busy time of all periods that have ended.
    pub(super) fn busy_ps(&self) -> Ps {
        self.worked_ps
    }

    /// Returns the busy time, including the current period.
    pub(super) fn busy_until(&self, at: Ps) -> Ps {
        self.worked_ps + if self.in_flight > 0 { at.saturating_sub(self.working_since) } else { 0 }
    }

    /// Returns the number of waiting queries.
    pub(super) fn queue(&self) -> u64 {
        (self.commands.len() + self.distributor.len()) as u64
    }

    pub(super) fn describe(&self, number: usize, out: &mut String) {
        if self.outstanding > 0 || !self.distributor.is_empty() {
            let _ = writeln!(
                out,
                "  unit {number}: {} in flight, {} outstanding, {} commands, {} in the distributor; walks {:?}",
                self.in_flight,
                self.outstanding,
                self.commands.len(),
                self.distributor.len(),
                self.translator.under_way()
            );
        }
    }
}

impl Machine {
    /// Returns the unit of a query.
    pub(super) fn unit_of(&mut self, core: u32, query: QueryId) -> u32 {
        let (q, slices) = (self.queries.get(query), self.config.llc.slices);
        match (q.engine, self.config.accelerator.dispatch) {
            (Engine::NearL2, _) => slices + core,
            (Engine::Cha, Dispatch::Table) => {
                slice_of_table(q.walk.table, slices, self.config.accelerator.dispatch_seed)
            }
            (Engine::Cha, Dispatch::Balanced) => {
                let next = self.dispatched.len() as u32 % slices;
                *self.dispatched.entry(q.walk.table).or_insert(next)
            }
            (Engine::Cha, Dispatch::Bucket) => {
                slice_of(q.walk.lines.first().map_or(q.walk.table, |(line, _)| *line), slices)
            }
        }
    }

    pub(super) fn tile_of_unit(&self, unit: u32) -> u32 {
        unit.checked_sub(self.config.llc.slices).unwrap_or(unit)
    }

    pub(super) fn kind_of(&self, core: u32, thread: usize, op: u64) -> Kind {
        self.cores[core as usize].threads[thread].kind(op)
    }

    /// Handles a query that arrives at the distributor or, past it, at its unit.
    pub(super) fn arrive(&mut self, query: QueryId) {
        let (unit, step) = (self.queries.get(query).unit, self.queries.get(query).step);
        if step == Step::Sent {
            let u = &mut self.units[unit as usize];
            if u.outstanding >= u.scoreboard {
                self.counters.distributor_waits += 1;
                u.distributor.push_back(query);
                return;
            }
            return self.pass_on(query);
        }
        let now = self.events.now();
        let u = &mut self.units[unit as usize];
        if u.in_flight >= u.in_flight_max {
            u.commands.push_back(query);
            return;
        }
        u.take(now);
        self.enter_step(query, Step::Metadata);
    }

    /// Forwards a query from the distributor to its unit.
    fn pass_on(&mut self, query: QueryId) {
        let now = self.events.now();
        let q = self.queries.get_mut(query);
        q.step = Step::Queued;
        let (unit, core) = (q.unit, q.core);
        self.units[unit as usize].outstanding += 1;
        let at = self.mesh.send(core, self.tile_of_unit(unit), REQUEST_FLITS, now);
        self.events.at(at, self.component_of_unit(unit), Event::Arrive(query));
    }

    /// Begins a step of a query.
    fn enter_step(&mut self, query: QueryId, step: Step) {
        let now = self.events.now();
        let q = self.queries.get_mut(query);
        if self.watched.contains(&q.number) {
            let span = Span {
                number: q.number,
                track: format!("unit {}", q.unit),
                name: format!("{:?}", q.step),
                from_ps: q.since,
                to_ps: now,
            };
            self.spans.push(span);
        }
        if matches!(q.step, Step::Key | Step::Access(_) | Step::Metadata) {
            q.data_ps += now - q.since;
        }
        (q.step, q.since) = (step, now);
        let (unit, key) = (q.unit, q.walk.key);
        let near = self.units[unit as usize].near_l2;
        let a = &self.config.accelerator;
        let (hash, compare, fixed) = match near {
            true => (
                self.config.near_l2.hash_cycles,
                self.config.near_l2.compare_cycles,
                self.config.near_l2.fixed_cycles,
            ),
            false => (a.hash_cycles, a.compare_cycles, a.fixed_cycles),
        };
        match step {
            Step::Metadata => self.metadata(query),
            Step::Key => self.fetch(query, key, Ask::Read),
            Step::Hash => {
                let hash_of_key = self.queries.get(query).walk.hash;
                let cycle = self.cycle_ps;
                let u = &mut self.units[unit as usize];
                u.register.note(hash_of_key);
                let begun = now.max(u.hash_free);
                u.hash_free = begun + cycle;
                self.after(query, begun + hash * cycle);
            }
            Step::Access(n) => self.fetch_line(query, n, near),
            Step::Compare(n) => {
                if self.config.accelerator.lock_hold == LockHold::Data {
                    let line = self.queries.get(query).walk.lines[n as usize].0;
                    self.unlock(query, |locked| locked == line);
                }
                let cycle = self.cycle_ps;
                let u = &mut self.units[unit as usize];
                let begun = now.max(u.comparator_free);
                u.comparator_free = begun + cycle;
                self.after(query, begun + compare * cycle);
            }
            Step::Commit => self.after(query, now + fixed * self.cycle_ps),
            Step::Sent | Step::Queued | Step::Result => {}
        }
    }

    fn after(&mut self, query: QueryId, at: Ps) {
        let component = self.component_of_unit(self.queries.get(query).unit);
        self.events.at(at, component, Event::Step(query));
    }

    /// Ends a step of a query and begins the next.
    pub(super) fn step(&mut self, query: QueryId) {
        let q = self.queries.get(query);
        let lines = q.walk.lines.len() as u32;
        let next = match q.step {
            Step::Metadata => Step::Key,
            Step::Key => Step::Hash,
            Step::Hash if lines == 0 => Step::Commit,
            Step::Hash => Step::Access(0),
            Step::Access(n) if n == lines => Step::Commit,
            Step::Access(n) => Step::Compare(n),
            Step::Compare(n) if n + 1 < lines || q.is_fetching_ahead() => Step::Access(n + 1),
            Step::Compare(_) => Step::Commit,
            Step::Commit => return self.commit(query),
            Step::Sent | Step::Queued | Step::Result => unreachable!("these end otherwise"),
        };
        self.enter_step(query, next);
    }

    /// Obtains the table's metadata from the metadata cache, or fetches them.
    fn metadata(&mut self, query: QueryId) {
        let (line, number) = (self.queries.get(query).walk.table, self.queries.get(query).unit);
        if self.units[number as usize].metadata.touch(line) {
            self.counters.metadata_hits += 1;
            let at = self.events.now() + self.cycles(self.config.accelerator.metadata_cycles);
            return self.after(query, at);
        }
        self.counters.metadata_misses += 1;
        self.fetch(query, line, Ask::Read);
    }

    /// Caches fetched metadata and registers them with the snoop filter.
    fn keep_metadata(&mut self, number: u32, line: Line) {
        let metadata = &mut self.units[number as usize].metadata;
        if metadata.has(line) {
            return;
        }
        let dropped = metadata.insert(line, false);
        let bit = 1u128 << (number % 128);
        let mut sharers = self.sharers_of(line);
        sharers.units |= bit;
        self.set_sharers(line, sharers);
        if let Some(dropped) = dropped {
            let mut sharers = self.sharers_of(dropped.line);
            sharers.units &= !bit;
            self.set_sharers(dropped.line, sharers);
        }
    }

    /// Invalidates metadata after a write.
    pub(super) fn take_metadata(&mut self, line: Line, units: u128) {
        for number in (0..self.units.len()).filter(|number| units >> (number % 128) & 1 == 1) {
            let known = self.units[number].metadata.remove(line).is_some();
            self.counters.metadata_invalidated += u64::from(known);
        }
    }

    /// Fetches a line of the walk. Buckets are locked once their indexes are known, an entry once its signature matched
    /// (4.4).
    fn fetch_line(&mut self, query: QueryId, n: u32, near: bool) {
        let boundary = self.config.accelerator.boundary_cycles;
        let now = self.events.now();
        let q = self.queries.get_mut(query);
        let mut other = None;
        if n == 0 && !near && self.config.accelerator.buckets == Buckets::Together {
            other = q.fetch_both();
        }
        let next = q.walk.lines.get(n as usize).copied();
        match (next, q.ahead) {
            (Some((line, _)), Some((ahead, arrived))) if line == ahead => {
                if arrived {
                    self.after(query, now);
                }
            }
            (Some((line, bucket)), _) => {
                let ask = if near { Ask::Read } else { Ask::Lock };
                self.fetch_after(query, line, ask, if bucket { boundary } else { 0 });
            }
            (None, _) => debug_assert!(q.is_fetching_ahead()),
        }
        if let Some(other) = other {
            self.fetch_after(query, other, Ask::Lock, boundary);
        }
    }

    fn fetch(&mut self, query: QueryId, line: Line, ask: Ask) {
        self.fetch_after(query, line, ask, 0);
    }

    /// Fetches a line for a query after a delay.
    fn fetch_after(&mut self, query: QueryId, line: Line, ask: Ask, cycles: u64) {
        let q = self.queries.get(query);
        let (unit, core) = (q.unit, q.core);
        let at = self.events.now() + self.cycles(cycles);
        let wanted = Wanted { query, line, ask };
        match self.config.accelerator.translation {
            // The engine uses the core's translation and second-level cache.
            _ if self.units[unit as usize].near_l2 => self.fetch_by_core(core, wanted, at),
            Translation::Ideal => self.fetch_translated(wanted, at),
            Translation::Core => {
                let there = self.mesh.send(unit, core, REQUEST_FLITS, at);
                self.fetch_by_core(core, wanted, there + self.cycle_ps);
            }
            Translation::Tlb => self.fetch_by_tlb(unit, wanted, at),
        }
    }

    /// Fetches a line whose physical address is known at a time.
    pub(super) fn fetch_translated(&mut self, Wanted { query, line, ask }: Wanted, at: Ps) {
        let q = self.queries.get(query);
        let (unit, core) = (q.unit, q.core);
        if self.units[unit as usize].near_l2 {
            if self.cores[core as usize].has_in_l2(line) {
                return self.after(query, at + self.cycles(self.config.l2.latency_cycles));
            }
            return self.request(Origin::Unit { query }, ask, line, at);
        }
        let at = match self.config.accelerator.translation {
            Translation::Core => self.mesh.send(core, unit, REQUEST_FLITS, at),
            Translation::Ideal | Translation::Tlb => at,
        };
        self.request(Origin::Unit { query }, ask, line, at);
    }

    /// Handles the arrival of a line for a query, or the write of its result.
    pub(super) fn fetched(&mut self, query: QueryId, line: Line) -> Result<(), SimError> {
        let q = self.queries.get(query);
        let (step, unit, core) = (q.step, q.unit, q.core);
        if step == Step::Result {
            check(q)?;
            let batch = q.batch.expect("only results of batches are written");
            self.queries.batch_mut(batch).missing -= 1;
            self.finish(query);
            return Ok(());
        }
        if q.ahead == Some((line, false)) {
            let lines = &q.walk.lines;
            let awaited =
                matches!(step, Step::Access(n) if lines.get(n as usize).is_none_or(|l| l.0 == line));
            self.queries.get_mut(query).ahead = Some((line, true));
            if !awaited {
                return Ok(());
            }
        }
        if step == Step::Metadata {
            self.keep_metadata(unit, line);
        }
        if self.units[unit as usize].near_l2 {
            self.fill_core(core, line, false);
        }
        self.step(query);
        Ok(())
    }

    /// Commits a query: the unit is free for another, and the result is sent.
    fn commit(&mut self, query: QueryId) {
        self.enter_step(query, Step::Result);
        self.unlock(query, |_| true);
        let now = self.events.now();
        let q = self.queries.get(query);
        let (number, core, batch) = (q.unit, q.core, q.batch);
        let near = self.units[number as usize].near_l2;
        match batch {
            Some(batch) => {
                let line = self.queries.batch_mut(batch).line;
                self.request(Origin::Unit { query }, Ask::Result, line, now);
            }
            None => {
                let at = match near {
                    true => now + self.cycles(self.config.near_l2.attach_cycles),
                    false => self.mesh.send(self.tile_of_unit(number), core, REQUEST_FLITS, now),
                };
                self.events.at(at, core, Event::Answer(query));
            }
        }
        let unit = &mut self.units[number as usize];
        unit.release(now);
        unit.outstanding -= 1;
        let next = unit.commands.pop_front();
        let waiting = unit.distributor.pop_front();
        if let Some(next) = next {
            self.units[number as usize].take(now);
            self.enter_step(next, Step::Metadata);
        }
        if let Some(waiting) = waiting {
            self.pass_on(waiting);
        }
        self.progress();
    }

    /// Delivers a blocking query's answer to the core.
    pub(super) fn answer(&mut self, query: QueryId) -> Result<(), SimError> {
        let q = self.queries.get(query);
        let (core, thread, op) = (q.core, usize::from(q.thread), q.op);
        check(q)?;
        self.finish(query);
        self.answered(core, thread, op);
        Ok(())
    }

    fn finish(&mut self, query: QueryId) {
        self.query_latency.note(self.events.now() - self.queries.get(query).sent);
        let ended = self.queries.end(query);
        let stats = &mut self.cores[ended.core as usize].threads[usize::from(ended.thread)].stats;
        stats.query_data_ps += ended.data_ps;
        self.progress();
    }
}

/// Checks the delivered answer against the library's.
fn check(query: &Query) -> Result<(), Mismatch> {
    let (simulated, library) = (query.walk.answer, query.walk.expected);
    if simulated == library {
        return Ok(());
    }
    Err(Mismatch { lookup: query.number, table: "a table".into(), simulated, library })
}
