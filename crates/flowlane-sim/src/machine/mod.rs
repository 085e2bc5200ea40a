//! The machine: cores, caches, mesh, memory and accelerators, moved on by one heap of events.
//!
//! ```text
//! core ── L1 ── L2 ──┐ Send          Slice                  Memory
//!                    ├──────▶ mesh ──────▶ slice: tags, ────────▶ channel, bank,
//! accelerator ───────┘                    locks, directory        row, bus
//!      ▲                                        │                    │
//!      └────────────── Done ◀───────────────────┴────────────────────┘
//! ```
//!
//! The private parts of a core (window, L1, L2) are computed when an operation enters the window, a little ahead of the
//! clock; everything shared happens in events, in the order of time.

mod busy;
pub mod cache;
mod core;
pub mod cost;
pub mod dram;
mod lines;
pub mod mesh;
pub mod op;
mod page_tables;
mod ports;
mod predictor;
pub mod query;
mod room;
mod series;
mod shared;
pub mod space;
mod stats;
mod thread;
mod unit;
mod walk;

pub use busy::Busy;
pub use series::{Quantity, TimeSeries};
pub use stats::{Counters, Histogram, Span, Stack, ThreadStats};

use std::fmt::Write;

use self::cache::{Cache, Line};
use self::core::Core;
use self::dram::Dram;
use self::lines::LineMap;
use self::mesh::Mesh;
use self::op::{Mismatch, Program};
use self::query::{Queries, QueryId};
use self::series::Sampler;
use self::shared::{Registers, Request, RequestId, Sharers};
use self::space::slice_of;
use self::unit::Unit;
use crate::config::MachineConfig;
use crate::event::{EventHeap, Ps};

/// Lines of a page of 4 KiB.
const LINES_OF_SMALL_PAGE: u64 = 4096 / cache::LINE_BYTES;

/// Events without progress (an operation retired, or a query answered) after which a run counts as stuck.
const IDLE_EVENTS_MAX: u64 = 2_000_000;

/// The reason for a run's failure.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SimError {
    /// An answer differs from the library's.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The run makes no progress.
    #[error("the simulated machine is stuck ({why}):\n{state}")]
    Stuck {
        /// The symptom.
        why: &'static str,
        /// The state of the waiting parts.
        state: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Core(u32),
    Send(RequestId),
    Slice(RequestId),
    Memory(RequestId),
    /// A line from memory arrives, and a miss register of its slice is free.
    Filled(Line),
    Done(RequestId),
    /// A query arrives at its unit.
    Arrive(QueryId),
    /// A query's step ends.
    Step(QueryId),
    /// A query's answer arrives at the core.
    Answer(QueryId),
}

/// A machine with the programs on it.
pub struct Machine {
    config: MachineConfig,
    cycle_ps: Ps,
    events: EventHeap<Event>,
    cores: Vec<Core>,
    mesh: Mesh,
    dram: Dram,
    slices: Vec<Slice>,
    units: Vec<Unit>,
    queries: Queries,
    requests: Vec<Request>,
    free_requests: Vec<RequestId>,
    sharers: LineMap<Sharers>,
    locks: LineMap<u32>,
    /// The miss registers of the shared cache: of each slice, or one for all.
    registers: Vec<Registers>,
    /// The lines on the way from memory, and the requests that wait for the same line.
    coming: LineMap<Vec<RequestId>>,
    /// The accelerators of tables, with [`Dispatch::Balanced`](crate::config::Dispatch::Balanced).
    dispatched: LineMap<u32>,
    counters: Counters,
    query_latency: Histogram,
    /// The watched lookups, whose steps and operations are kept.
    watched: std::ops::Range<u64>,
    spans: Vec<Span>,
    /// The pieces of 2 MiB that are on small pages.
    small: std::collections::HashSet<u64>,
    sampler: Sampler,
    /// The accesses to memory, if recorded.
    accesses: Option<Vec<MemoryAccess>>,
    progress_at: u64,
}

/// An access to memory: a miss of the shared cache, or a modified line that it evicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryAccess {
    pub line: Line,
    pub write: bool,
}

/// A slice of the shared cache.
#[derive(Debug)]
struct Slice {
    cache: Cache,
    free: Ps,
    busy_ps: Ps,
}

impl Machine {
    /// Creates an idle machine with empty caches.
    pub fn new(config: &MachineConfig) -> Self {
        let cycle_ps = config.cycle_ps();
        let slices = u64::from(config.llc.slices);
        let slice = || Slice {
            cache: Cache::new(config.llc.slice_kib << 10, config.llc.ways, slices),
            free: 0,
            busy_ps: 0,
        };
        Self {
            cycle_ps,
            events: EventHeap::default(),
            cores: (0..config.core.cores).map(|_| Core::new(config, cycle_ps)).collect(),
            mesh: Mesh::new(&config.mesh, cycle_ps),
            dram: Dram::new(&config.dram),
            slices: (0..config.llc.slices).map(|_| slice()).collect(),
            units: (0..config.llc.slices + config.core.cores)
                .map(|number| Unit::new(config, number >= config.llc.slices))
                .collect(),
            queries: Queries::default(),
            requests: Vec::new(),
            free_requests: Vec::new(),
            sharers: LineMap::default(),
            locks: LineMap::default(),
            registers: (0..config.llc.slices).map(|_| Registers::default()).collect(),
            coming: LineMap::default(),
            dispatched: LineMap::default(),
            counters: Counters::default(),
            query_latency: Histogram::default(),
            watched: 0..0,
            spans: Vec::new(),
            small: std::collections::HashSet::new(),
            sampler: Sampler::default(),
            accesses: None,
            progress_at: 0,
            config: config.clone(),
        }
    }

    /// Inserts lines into the shared cache, as if fetched from memory in order, without taking time; and then the entries of page
    /// tables for them.
    pub fn fill_llc(&mut self, lines: impl Iterator<Item = Line>) {
        let mut pages = Vec::new();
        for line in lines {
            self.insert_shared(line);
            // One line of each page of 4 KiB will do, and neighbours come together.
            if pages.last().is_none_or(|last| last / LINES_OF_SMALL_PAGE != line / LINES_OF_SMALL_PAGE) {
                pages.push(line);
            }
        }
        self.fill_entries(&pages);
    }

    fn insert_shared(&mut self, line: Line) {
        let slice = slice_of(line, self.config.llc.slices);
        self.slices[slice as usize].cache.insert(line, false);
    }

    /// Places lines where the network interface has written them: some in the shared cache, evenly among them, and the others in
    /// memory.
    pub fn write_by_nic(&mut self, lines: impl Iterator<Item = Line>) {
        let (share, mut owed) = (self.config.arrives_in_cache(), 0.0);
        let cached = lines.filter(|_| {
            owed += share;
            let cached = owed >= 1.0;
            owed -= f64::from(u8::from(cached));
            cached
        });
        self.fill_llc(cached.collect::<Vec<_>>().into_iter());
    }

    /// Returns the capacity of the shared cache in lines.
    pub fn llc_lines(&self) -> u64 {
        self.config.llc.bytes() / cache::LINE_BYTES
    }

    /// Inserts modified lines into a core's caches.
    pub fn fill_private(&mut self, core: u32, lines: impl Iterator<Item = Line>) {
        for line in lines {
            self.fill_core(core, line, true);
        }
    }

    /// Inserts lines into a core's caches, as if it had read them in order: their pages and the entries of page tables, too.
    pub fn fill_clean(&mut self, core: u32, lines: impl Iterator<Item = Line>) {
        for line in lines {
            self.fill_translation(core, line);
            self.fill_core(core, line, false);
        }
    }

    /// Runs a program on a core, as another thread if the core already has one. Statistics begin with lookup
    /// `warm_up_lookups`.
    pub fn run_on(&mut self, core: u32, program: Box<dyn Program>, warm_up_lookups: u64) {
        self.cores[core as usize].add_thread(program, warm_up_lookups);
        self.wake(core, 0);
    }

    /// Makes a thread end with the first one of its core.
    pub fn follow_first(&mut self, core: u32, thread: usize) {
        self.cores[core as usize].followers.push(thread);
    }

    /// Keeps the steps of these lookups, counted from the first, including the warm-up.
    pub fn watch(&mut self, lookups: std::ops::Range<u64>) {
        self.watched = lookups;
    }

    /// Records the accesses to memory.
    pub fn record_accesses(&mut self) {
        self.accesses = Some(Vec::new());
    }

    /// Returns the recorded accesses to memory in the order of the requests.
    pub fn accesses(&mut self) -> Vec<MemoryAccess> {
        self.accesses.take().unwrap_or_default()
    }

    /// Runs until every program has ended.
    ///
    /// # Errors
    /// Returns an error if an answer differs from the library's, or if the run makes no progress.
    pub fn run(&mut self) -> Result<(), SimError> {
        while let Some(event) = self.events.next() {
            if self.events.now() >= self.sampler.next {
                self.sample();
            }
            match event {
                Event::Core(core) => self.core_event(core)?,
                Event::Send(request) => self.send(request),
                Event::Slice(request) => self.at_slice(request),
                Event::Memory(request) => self.at_memory(request),
                Event::Filled(line) => self.filled(line),
                Event::Done(request) => self.done(request)?,
                Event::Arrive(query) => self.arrive(query),
                Event::Step(query) => self.step(query),
                Event::Answer(query) => self.answer(query)?,
            }
            if self.events.scheduled() > self.progress_at + IDLE_EVENTS_MAX {
                return Err(self.stuck("nothing was finished in two million events"));
            }
        }
        if self.cores.iter().any(|core| !core.is_idle()) {
            return Err(self.stuck("no event is left, and threads still wait"));
        }
        if !self.is_settled() {
            return Err(self.stuck("all threads have ended, and something is left over"));
        }
        Ok(())
    }

    /// Records progress.
    fn progress(&mut self) {
        self.progress_at = self.events.scheduled();
    }

    fn stuck(&self, why: &'static str) -> SimError {
        let mut state = format!("  at {} ps, {} events\n", self.events.now(), self.events.scheduled());
        for (number, core) in self.cores.iter().enumerate() {
            core.describe(number, &mut state);
        }
        for (number, unit) in self.units.iter().enumerate() {
            unit.describe(number, &mut state);
        }
        for query in self.queries.under_way().take(20) {
            let _ = writeln!(state, "  query {}: {:?} at unit {}", query.number, query.step, query.unit);
        }
        let _ = writeln!(state, "  {} lines locked", self.locks.len());
        SimError::Stuck { why, state }
    }

    fn cycles(&self, cycles: u64) -> Ps {
        cycles * self.cycle_ps
    }

    /// Returns the tile of a memory controller; channels alternate between the left and right edge of the mesh.
    fn controller_tile(&self, line: Line) -> u32 {
        let channel = self.dram.channel(line);
        let row = (channel / 2) % self.config.mesh.rows;
        row * self.config.mesh.columns
            + if channel.is_multiple_of(2) { 0 } else { self.config.mesh.columns - 1 }
    }

    /// Returns the statistics of a thread.
    pub fn thread(&self, core: u32, thread: usize) -> &ThreadStats {
        &self.cores[core as usize].threads[thread].stats
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        let (link_flits, link_waited_ps) = self.mesh.load();
        let [row_hits, row_opens, row_conflicts] = self.dram.outcomes();
        Counters {
            link_flits,
            link_waited_ps,
            row_hits,
            row_opens,
            row_conflicts,
            events: self.events.scheduled(),
            ..self.counters
        }
    }

    /// Returns the latencies from a query's sending to its result, in picoseconds.
    pub fn query_latency(&self) -> &Histogram {
        &self.query_latency
    }

    /// Returns the steps of the watched lookups.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns the largest estimate of distinct keys of the accelerators' flow registers; `None` if one is full.
    pub fn flows(&self) -> Option<f64> {
        self.units.iter().try_fold(0.0, |most: f64, unit| Some(most.max(unit.register.flows()?)))
    }

    /// Returns the picoseconds of a cycle.
    pub fn cycle_ps(&self) -> Ps {
        self.cycle_ps
    }

    /// Returns whether everything is settled: all queries answered once, all locks released, no request or batch in
    /// flight.
    fn is_settled(&self) -> bool {
        let (made, answered) = self.queries.count();
        let requests = self.requests.len() == self.free_requests.len();
        let walks = self.cores.iter().all(|core| core.translator.under_way() == [0; 2])
            && self.units.iter().all(|unit| unit.translator.under_way() == [0; 2]);
        let batches = self.queries.batches_under_way() == 0;
        made == answered && self.locks.is_empty() && requests && walks && batches
    }
}
