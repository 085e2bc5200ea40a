//! A core: a window of instructions that enter and retire in order and finish out of order, with two caches.
//!
//! The entry time of every operation is known. Its finishing time is known at once, or when the data that it waits
//! for have arrived. Operations retire in order as soon as that time is known, which may be in the future; until then
//! `leaving` accounts for their window entries. The threads of a core share the front end, the caches and the miss
//! registers; window and queues are halved.

use std::collections::VecDeque;
use std::fmt::Write;

use super::cache::{Cache, Line};
use super::op::{Class, Kind, Op, Program};
use super::ports::Ports;
use super::query::{Engine, QueryId, Step};
use super::room::Room;
use super::shared::{Ask, Origin};
use super::stats::{Span, ThreadStats};
use super::thread::{Last, Leaving, Level, NO_OP, RETIRED, SOURCES, Slot, Thread, is_load, is_store};
use super::walk::Translator;
use super::{Event, Machine, SimError};
use crate::config::{Blocking, MachineConfig};
use crate::event::{Ps, UNKNOWN};

/// Cycles that a thread may run ahead of the clock.
const AHEAD_CYCLES: u64 = 24;

/// The most instructions that enter at once.
const STRETCH: u32 = 4;

/// A line requested from the shared cache.
#[derive(Debug)]
struct Miss {
    line: Line,
    own: bool,
    waiters: Vec<Waiter>,
}

/// An operation or a walk that waits for a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    /// An operation, by its thread and number.
    Operation(u8, u64),
    /// The walk for a page.
    Walk(u64),
}

/// An access that waits for a miss register, or for its page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delayed {
    pub(super) line: Line,
    pub(super) own: bool,
    pub(super) waiter: Option<Waiter>,
    /// A prefetch, which finishes once it has a register.
    prefetch: Option<(u8, u64)>,
}

pub(super) struct Core {
    pub(super) threads: Vec<Thread>,
    pub(super) followers: Vec<usize>,
    l1: Cache,
    l2: Cache,
    pub(super) translator: Translator,
    ports: Ports,
    misses: Vec<Miss>,
    delayed: VecDeque<Delayed>,
    wake: Ps,
    entry_free: Ps,
    device_free: Ps,
}

impl Core {
    pub(super) fn new(config: &MachineConfig, cycle_ps: Ps) -> Self {
        Self {
            ports: Ports::new(&config.core, cycle_ps),
            threads: Vec::new(),
            followers: Vec::new(),
            l1: Cache::new(config.l1.size_kib << 10, config.l1.ways, 1),
            l2: Cache::new(config.l2.size_kib << 10, config.l2.ways, 1),
            translator: Translator::new(&config.core),
            misses: Vec::new(),
            delayed: VecDeque::new(),
            wake: UNKNOWN,
            entry_free: 0,
            device_free: 0,
        }
    }

    pub(super) fn add_thread(&mut self, program: Box<dyn Program>, warm_up_lookups: u64) {
        self.threads.push(Thread::new(program, warm_up_lookups));
    }

    pub(super) fn is_idle(&self) -> bool {
        self.threads.iter().all(|t| t.ended && t.window.is_empty())
    }

    pub(super) fn describe(&self, number: usize, out: &mut String) {
        for (thread, t) in self.threads.iter().enumerate().filter(|(_, t)| !t.window.is_empty() || !t.ended) {
            let head = t.window.front().map(|slot| slot.op.kind);
            let _ = writeln!(
                out,
                "  core {number} thread {thread}: operation {}, {} in the window, head {head:?}, fence {:?}; {} misses \
                 under way, {} delayed; walks {:?}",
                t.first,
                t.window.len(),
                t.fence,
                self.misses.len(),
                self.delayed.len(),
                self.translator.under_way()
            );
        }
    }

    pub(super) fn has_in_l2(&mut self, line: Line) -> bool {
        self.l2.touch(line)
    }

    /// Removes a line from both caches and returns whether it was dirty.
    pub(super) fn drop_line(&mut self, line: Line) -> bool {
        let first = self.l1.remove(line).unwrap_or(false);
        self.l2.remove(line).unwrap_or(false) | first
    }
}

/// Returns the part of an operation that enters at once, and its further instructions: a long stretch enters little by little.
fn first_of(op: Op) -> (Op, u32) {
    let long = op.kind == Kind::Work && op.instructions > STRETCH;
    let first = if long { Op { instructions: STRETCH, fences: false, ends: 0, ..op } } else { op };
    (first, op.instructions - first.instructions)
}

/// The result of an attempt to enter an operation.
enum Entry {
    Entered,
    /// Another operation must finish first.
    Blocked,
    /// The program has ended.
    Ended,
}

impl Machine {
    /// Wakes a core at a time, unless it wakes earlier.
    pub(super) fn wake(&mut self, core: u32, at: Ps) {
        let c = &mut self.cores[core as usize];
        if at < c.wake {
            c.wake = at;
            self.events.at(at, core, Event::Core(core));
        }
    }

    pub(super) fn core_event(&mut self, core: u32) -> Result<(), SimError> {
        let now = self.events.now();
        let c = &mut self.cores[core as usize];
        if c.wake > now {
            return Ok(()); // Superseded by an earlier one.
        }
        c.wake = UNKNOWN;
        let mut blocked = [false; 2];
        loop {
            let c = &self.cores[core as usize];
            let next = c.threads.iter().enumerate().filter(|(t, _)| !blocked[*t]);
            let Some((thread, at)) =
                next.map(|(t, thread)| (t, thread.next_entry)).min_by_key(|(t, at)| (*at, *t))
            else {
                return Ok(());
            };
            if at > now + self.cycles(AHEAD_CYCLES) {
                self.wake(core, at - self.cycles(AHEAD_CYCLES / 2));
                return Ok(());
            }
            match self.enter(core, thread)? {
                Entry::Entered => {}
                Entry::Blocked | Entry::Ended => blocked[thread] = true,
            }
        }
    }

    /// Enters a thread's next operation.
    fn enter(&mut self, core: u32, thread: usize) -> Result<Entry, SimError> {
        self.leave(core, thread);
        let t = &mut self.cores[core as usize].threads[thread];
        if let Some((op, cycles)) = t.fence {
            let done = t.done(op);
            if done != UNKNOWN {
                t.next_entry = t.next_entry.max(done + cycles * self.cycle_ps);
                t.fence = None;
                return Ok(Entry::Entered); // Perhaps later than the other thread now.
            }
        }
        let room = self.cores[core as usize].room(thread, &self.config.core);
        let c = &mut self.cores[core as usize];
        let first_ended = c.threads[0].ended && c.threads[0].window.is_empty();
        let follows = c.followers.contains(&thread);
        let t = &mut c.threads[thread];
        if follows && first_ended {
            t.ended = true; // After what it has begun.
        }
        while t.next_op == t.ops.len() {
            if t.ended {
                return Ok(Entry::Ended);
            }
            t.ops.clear();
            t.next_op = 0;
            t.ended = !t.program.refill(&mut t.ops, &mut self.queries)?;
        }
        if t.fence.is_some() {
            return Ok(Entry::Blocked);
        }
        let op = t.ops[t.next_op];
        let (op, rest) = first_of(op);
        let (load, store) = (is_load(&op), is_store(&op));
        let Room { rob, loads, stores, scheduler, results } = room;
        let writes = op.results();
        let mut at = t.next_entry.max(c.entry_free);
        while t.rob + op.instructions.min(rob) > rob
            || (load && t.loads >= loads)
            || (store && t.stores >= stores)
            || (0..2).any(|n| writes[n] > 0 && t.results[n] + writes[n] > results[n].max(writes[n]))
        {
            let Some(first) = t.leaving.pop_front() else { return Ok(Entry::Blocked) };
            t.rob -= first.instructions;
            t.loads -= u32::from(first.load);
            t.stores -= u32::from(first.store);
            (0..2).for_each(|n| t.results[n] -= first.results[n]);
            at = at.max(first.at);
        }
        match t.waiting.room(op.in_scheduler(), scheduler, at) {
            Ok(later) => at = later,
            // The limiting time is unknown; retried when the known operations have begun.
            Err(later) => {
                t.next_entry = t.next_entry.max(later);
                return Ok(Entry::Blocked);
            }
        }
        t.rob += op.instructions;
        t.loads += u32::from(load);
        t.stores += u32::from(store);
        (0..2).for_each(|n| t.results[n] += writes[n]);
        match rest {
            0 => t.next_op += 1,
            rest => (t.ops[t.next_op].instructions, t.ops[t.next_op].begins) = (rest, false),
        }
        self.place(core, thread, op, at);
        Ok(Entry::Entered)
    }

    /// Puts an operation into the window and begins it if its operands are ready.
    fn place(&mut self, core: u32, thread: usize, op: Op, at: Ps) {
        let limits = &self.config.core;
        let c = &mut self.cores[core as usize];
        let port = c.ports.bind(op.work, op.wide);
        let t = &mut c.threads[thread];
        let cost = u64::from(op.instructions) * self.cycle_ps;
        t.next_entry = at + cost * limits.base_cpi_milli / 1000;
        c.entry_free = at + cost / u64::from(limits.width);
        let number = t.first + t.window.len() as u64;
        t.window.push_back(Slot::new(op, at, port));
        let (reads, writes) = op.registers();
        for (source, register) in reads.iter().enumerate().filter(|(_, register)| **register != 0) {
            let last = t.registers[usize::from(*register)];
            t.wait(number, source, last);
        }
        if op.after > 0 {
            t.wait_by_distance(number, &op, u64::from(limits.blocked_load_cycles) * self.cycle_ps);
        }
        for register in writes.into_iter().filter(|register| *register != 0) {
            t.registers[usize::from(register)] = Last::Pending(number);
        }
        let after = (t.slot(number).missing == 0).then_some(t.slot(number).ready);
        if let Kind::Branch { id, taken } = op.kind
            && t.mispredicts(id, taken)
        {
            t.fence = Some((number, limits.mispredict_cycles));
        }
        if op.fences {
            t.fence = Some((number, 0));
        }
        if let Kind::Lookup(query) = op.kind
            && self.config.accelerator.blocking == Blocking::Serialise
            && self.queries.get(query).engine == Engine::Cha
        {
            t.fence = Some((number, 0));
        }
        match after {
            Some(at) => self.begin(core, thread, number, at),
            None => t.waiting.enter(op.in_scheduler(), None),
        }
    }

    /// Begins an operation whose operands are ready at `at`.
    fn begin(&mut self, core: u32, thread: usize, number: u64, at: Ps) {
        let cycle = self.cycle_ps;
        let c = &mut self.cores[core as usize];
        let slot = c.threads[thread].slot(number);
        let (op, entered, port) = (slot.op, slot.entered, slot.port);
        let mut last = c.ports.begin(port, at);
        let first = last;
        // Further ones of a stretch follow each other as far as they depend on each other.
        let dependent = op.waits && matches!(op.kind, Kind::Work);
        for n in 1..u64::from(op.instructions.max(op.count.into())) {
            let ready = if dependent { at + n / self.config.core.alu_per_cycle * cycle } else { at };
            let port = c.ports.bind(op.work, op.wide);
            last = c.ports.begin(port, ready);
        }
        if last > entered {
            c.threads[thread].waiting.enter(op.in_scheduler(), Some(last));
        }
        let at = first;
        match op.kind {
            Kind::Work | Kind::Branch { .. } => {
                self.end(core, thread, number, last + u64::from(op.latency) * cycle);
            }
            Kind::LookupNonBlocking(_) => self.end(core, thread, number, at + cycle),
            Kind::Load(line) => {
                self.access(core, line, false, Some(Waiter::Operation(thread as u8, number)), at);
            }
            // A store finishes when its address is known; the line is fetched in parallel.
            Kind::Store(line) => {
                self.access(core, line, true, None, at);
                self.end(core, thread, number, at + cycle);
            }
            // A prefetch waits only for a register; until then it blocks later operations.
            Kind::Prefetch(line) => {
                if self.access(core, line, false, None, at) {
                    self.end(core, thread, number, at + cycle);
                } else {
                    let delayed = self.cores[core as usize].delayed.back_mut();
                    delayed.expect("it has just been put there").prefetch = Some((thread as u8, number));
                }
            }
            Kind::Device { latency_cycles, busy_cycles } => {
                let begun = at.max(c.device_free);
                c.device_free = begun + busy_cycles * cycle;
                self.end(core, thread, number, begun + latency_cycles * cycle);
            }
            Kind::Lookup(query) => self.send_query(core, thread, number, query, at),
            Kind::Snapshot(batch) => {
                let line = self.queries.batch_mut(batch).line;
                let origin = Origin::Snapshot { core, thread: thread as u8, op: number, batch };
                self.request(origin, Ask::Snapshot, line, at);
            }
        }
    }

    /// Sends a query to its unit.
    pub(super) fn send_query(&mut self, core: u32, thread: usize, op: u64, query: QueryId, at: Ps) {
        let unit = self.unit_of(core, query);
        let q = self.queries.get_mut(query);
        (q.core, q.thread, q.op, q.unit, q.sent, q.since) = (core, thread as u8, op, unit, at, at);
        q.step = Step::Sent;
        let arrival = match q.engine {
            Engine::NearL2 => at + self.cycles(self.config.near_l2.attach_cycles),
            Engine::Cha => at + self.cycles(self.config.accelerator.distributor_cycles),
        };
        self.events.at(arrival, self.component_of_unit(unit), Event::Arrive(query));
    }

    /// Records the finishing time of an operation.
    pub(super) fn end(&mut self, core: u32, thread: usize, number: u64, done: Ps) {
        let mut ended = vec![(number, done)];
        while let Some((number, done)) = ended.pop() {
            let t = &mut self.cores[core as usize].threads[thread];
            let slot = t.slot(number);
            slot.done = done;
            let mut waiter = std::mem::replace(&mut slot.first_waiter, NO_OP);
            while waiter != NO_OP {
                let t = &mut self.cores[core as usize].threads[thread];
                let (number, source) = (waiter / SOURCES as u64, waiter as usize % SOURCES);
                waiter = std::mem::replace(&mut t.slot(number).next_waiter[source], NO_OP);
                self.operand(core, thread, number, done);
            }
        }
    }

    /// Notes when an operand of an operation is ready, and begins it if that was the last one.
    fn operand(&mut self, core: u32, thread: usize, number: u64, ready: Ps) {
        let t = &mut self.cores[core as usize].threads[thread];
        let slot = t.slot(number);
        slot.ready = slot.ready.max(ready);
        slot.missing -= 1;
        if slot.missing == 0 {
            let (at, op) = (slot.ready, slot.op);
            t.waiting.unknown_ends(op.in_scheduler());
            self.begin(core, thread, number, at);
        }
    }

    /// Reads a line, or requests it for writing, and notifies the waiter when it arrives. Returns whether the access
    /// has begun, perhaps with the walk for its page; if not, it waits for a miss register.
    pub(super) fn access(
        &mut self,
        core: u32,
        line: Line,
        own: bool,
        waiter: Option<Waiter>,
        at: Ps,
    ) -> bool {
        let (l1_ps, l2_ps) =
            (self.cycles(self.config.l1.latency_cycles), self.cycles(self.config.l2.latency_cycles));
        let Some(translation) = self.translation(core, line) else {
            self.await_walk(core, Delayed { line, own, waiter, prefetch: None }, at);
            return true;
        };
        let owned = !own || self.owns(core, line);
        let at = at + translation;
        let is_walk = matches!(waiter, Some(Waiter::Walk(_)));
        let c = &mut self.cores[core as usize];
        let found = match () {
            () if !is_walk && c.l1.touch(line) => Some((Level::L1, l1_ps)),
            () if c.l2.touch(line) => {
                if !is_walk {
                    c.l1.insert(line, false);
                }
                Some((Level::L2, l2_ps))
            }
            () => None,
        };
        if let (Some((level, latency)), true) = (found, owned) {
            if own {
                c.l2.dirty(line);
            }
            if let Some(waiter) = waiter {
                self.notify(core, waiter, level, at + latency);
            }
            return true;
        }
        if let Some(miss) = c.misses.iter_mut().find(|m| m.line == line && m.own >= own) {
            miss.waiters.extend(waiter);
            return true;
        }
        if c.misses.len() >= self.config.core.miss_registers as usize {
            c.delayed.push_back(Delayed { line, own, waiter, prefetch: None });
            return false;
        }
        c.misses.push(Miss { line, own, waiters: waiter.into_iter().collect() });
        let ask = if own { Ask::Own } else { Ask::Read };
        self.request(Origin::Core { core }, ask, line, at + l2_ps);
        true
    }

    /// Gives a line to its waiter at a time.
    fn notify(&mut self, core: u32, waiter: Waiter, level: Level, at: Ps) {
        match waiter {
            Waiter::Operation(thread, op) => {
                let t = &mut self.cores[core as usize].threads[usize::from(thread)];
                t.slot(op).level = level;
                if t.slot(op).op.class == Class::Data {
                    t.stats.loads[level as usize] += 1;
                }
                let latency = u64::from(t.slot(op).op.latency) * self.cycle_ps;
                self.end(core, thread.into(), op, at + latency);
            }
            Waiter::Walk(page) => self.walked(core, page, at),
        }
    }

    /// Handles the arrival of a line at a core.
    pub(super) fn arrived(&mut self, core: u32, line: Line, own: bool, level: Level) {
        let now = self.events.now();
        self.fill_core(core, line, own);
        let c = &mut self.cores[core as usize];
        let at = c.misses.iter().position(|m| m.line == line && m.own == own).expect("it was asked for");
        let miss = c.misses.swap_remove(at);
        for waiter in miss.waiters {
            self.notify(core, waiter, level, now);
        }
        let registers = self.config.core.miss_registers as usize;
        while self.cores[core as usize].misses.len() < registers
            && let Some(next) = self.cores[core as usize].delayed.pop_front()
        {
            self.access(core, next.line, next.own, next.waiter, now);
            if let Some((thread, op)) = next.prefetch {
                self.end(core, thread.into(), op, now);
            }
        }
        self.wake(core, now);
    }

    /// Inserts a line into a core's caches; an eviction from the second level evicts from the first.
    pub(super) fn fill_core(&mut self, core: u32, line: Line, own: bool) {
        self.note_sharer(core, line, own);
        let c = &mut self.cores[core as usize];
        c.l1.insert(line, false);
        if let Some(evicted) = c.l2.insert(line, own) {
            c.l1.remove(evicted.line);
            self.evicted(core, evicted);
        }
    }

    /// Retires operations with a known finishing time, in order.
    fn leave(&mut self, core: u32, thread: usize) {
        loop {
            let t = &mut self.cores[core as usize].threads[thread];
            let Some(slot) = t.window.front() else { return };
            if slot.done == UNKNOWN {
                return;
            }
            let slot = t.window.pop_front().expect("there is one");
            for register in slot.op.registers().1.into_iter().filter(|register| *register != 0) {
                let last = &mut t.registers[usize::from(register)];
                if matches!(*last, Last::Pending(op) if op == t.first) {
                    *last = Last::Known(slot.done);
                }
            }
            let number = t.first;
            t.first += 1;
            let op = &slot.op;
            let own_ps = u64::from(op.instructions) * self.cycle_ps / u64::from(self.config.core.width);
            let before = t.last_left;
            let left = (before + own_ps).max(slot.done);
            t.last_left = left;
            let place = (number % RETIRED) as usize;
            (t.retired[place], t.left[place]) = (slot.done, left);
            t.leaving.push_back(Leaving {
                at: left,
                instructions: op.instructions,
                load: is_load(op),
                store: is_store(op),
                results: op.results(),
            });
            self.count(core, thread, &slot, before, left);
            if let Kind::LookupNonBlocking(query) = slot.op.kind {
                self.send_query(core, thread, number, query, left);
            }
            if let Kind::Snapshot(batch) = slot.op.kind {
                self.queries.end_batch(batch);
            }
            let written = left + u64::from(self.config.core.blocked_load_cycles) * self.cycle_ps;
            while let Some(load) = self.cores[core as usize].threads[thread].next_blocked(number) {
                self.operand(core, thread, load, written);
            }
            self.progress();
        }
    }

    /// Accounts for a retired operation.
    fn count(&mut self, core: u32, thread: usize, slot: &Slot, before: Ps, left: Ps) {
        let cycle = self.cycle_ps;
        let own_ps = u64::from(slot.op.instructions) * cycle * self.config.core.base_cpi_milli / 1000;
        let t = &mut self.cores[core as usize].threads[thread];
        let (stats, op) = (&mut t.stats, &slot.op);
        let whole = left - before;
        // Time before entry is attributed to the front end and branches, not to data.
        let own = whole.min(own_ps);
        let late = slot.entered.saturating_sub(before + own).min(whole - own);
        let base =
            if op.class == Class::Lock { &mut stats.stack.lock_ps } else { &mut stats.stack.compute_ps };
        *base += own;
        stats.stack.compute_ps += late;
        let stack = &mut stats.stack;
        *match (op.kind, op.class, slot.level) {
            (Kind::Lookup(_) | Kind::Snapshot(_) | Kind::Device { .. }, ..) => &mut stack.device_ps,
            (_, Class::Lock, _) => &mut stack.lock_ps,
            (Kind::Load(_), Class::Data, Level::L1) => &mut stack.l1_ps,
            (Kind::Load(_), Class::Data, Level::L2) => &mut stack.l2_ps,
            (Kind::Load(_), Class::Data, Level::Llc) => &mut stack.llc_ps,
            (Kind::Load(_), Class::Data, Level::Memory) => &mut stack.memory_ps,
            _ => &mut stack.compute_ps,
        } += whole - late - own;
        stats.instructions += u64::from(op.instructions);
        t.instructions += u64::from(op.instructions);
        if op.begins {
            t.units_entered.push_back(slot.entered);
        }
        if self.watched.contains(&t.lookups) {
            let span = |track: &str, from_ps, to_ps| Span {
                number: t.lookups,
                track: format!("core {core} {track}"),
                name: format!("{:?}", op.kind),
                from_ps,
                to_ps,
            };
            self.spans.push(span("window", slot.entered, left));
            self.spans.push(span("execution", slot.entered, slot.done));
        }
        if op.ends > 0 {
            stats.lookups += u64::from(op.ends);
            stats.units += 1;
            if let Some(entered) = t.units_entered.pop_front() {
                stats.latency.note(left - entered);
            }
            stats.to_ps = left;
            t.lookups += u64::from(op.ends);
            if t.lookups >= t.warm_up_lookups && t.lookups - u64::from(op.ends) < t.warm_up_lookups {
                t.stats = ThreadStats { from_ps: left, to_ps: left, ..ThreadStats::default() };
            }
        }
    }
}
