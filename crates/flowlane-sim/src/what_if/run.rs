//! Simulation of one way to look up a user's packets.

use std::rc::Rc;
use std::sync::Arc;

use flowlane::generate::Random;
use flowlane::named_enum::{Named, UnknownName};
use flowlane::packet::key::FlowKey;
use serde::Serialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::text::label;
use crate::config::{Approach, MachineConfig};
use crate::machine::cache::Line;
use crate::machine::op::{Class, Kind, Mismatch, Op, Program};
use crate::machine::query::Queries;
use crate::machine::{Busy, Counters, Machine, SimError};
use crate::program::{FlowCache, LookupProgram, Progress, Replayed, RulePackets, replay};
use crate::report::Effort;
use crate::trace::Trace;
use crate::workload::TablePlace;
use crate::workload::rules::{Own, Workload};
use crate::{parallel, workload};

/// Packets that warm a flow cache, for each of its flows; at most one round of the trace. A cache that knows most
/// packets keeps a flow for several times as many packets as it has flows.
const SEEN: usize = 16;

/// The approximate number of table lookups of a run; approaches that visit fewer tables get more packets.
const LOOKUPS: u64 = 40_000;
const LOOKUPS_QUICK: u64 = 1500;
/// Quantiles of latencies.
const QUANTILES: u64 = 50;
/// Counts of packets are multiples of this.
const BATCH: u64 = workload::BATCH as u64;

/// Where packets come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Arrival>)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// They have been parsed: their headers are in a near cache.
    #[default]
    Parsed,
    /// The network interface has written them, and nothing has read them.
    Nic,
}

impl Named for Arrival {
    const KIND: &'static str = "arrival";
}

/// Software of the host, as recorded.
#[derive(Debug)]
pub struct Recording {
    pub name: String,
    pub trace: Arc<Trace>,
}

/// A way to look packets up.
#[derive(Clone, Debug)]
pub enum Method {
    /// A model of a device or of an accelerator.
    Model(Approach),
    /// Recorded instructions.
    Recorded(Arc<Recording>),
}

impl Method {
    pub fn name(&self) -> &str {
        match self {
            Self::Model(approach) => label(*approach),
            Self::Recorded(recording) => &recording.name,
        }
    }

    /// Returns the approach whose parts of the machine concern it: software, for recorded instructions.
    pub fn approach(&self) -> Approach {
        match self {
            Self::Model(approach) => *approach,
            Self::Recorded(_) => Approach::Software,
        }
    }
}

impl From<Approach> for Method {
    fn from(approach: Approach) -> Self {
        Self::Model(approach)
    }
}

/// A run to simulate.
#[derive(Clone, Debug)]
pub struct Run {
    /// The machine.
    pub machine: Arc<MachineConfig>,
    /// Rules and packets.
    pub workload: Arc<Workload>,
    /// The way to look up. Recorded instructions are as many packets as were recorded, without a cache or changes.
    pub method: Method,
    /// Counted packets of each core.
    pub packets: u64,
    /// Packets before the counted ones.
    pub warm_up: u64,
    /// Where packets come from. Recorded instructions have it in their accesses.
    pub arrival: Arrival,
    /// The number of cores that look up independently.
    pub cores: u32,
    /// Flows of a cache in front; 0 for none. TCAMs never have one.
    pub cache_flows: usize,
    /// Instructions between two table changes by another core; `None` without changes.
    pub update_pause: Option<u32>,
    /// The seed of hashes and of the changes.
    pub seed: u64,
}

/// Simulates runs with the numbers of packets of an effort; `watch` receives the number of finished ones.
pub(super) fn simulate(
    runs: &[Run],
    effort: Effort,
    watch: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Outcome>, SimError> {
    let work = |n: usize| runs[n].sized(effort).simulate();
    parallel::run(effort.threads, runs.len(), watch, &work).into_iter().collect()
}

/// The outcome of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The way to look up.
    pub name: String,
    /// The approach that simulated it: software, for recorded instructions.
    pub approach: Approach,
    /// Flows of the cache in front; 0 without one.
    pub cache_flows: usize,
    /// The hit rate of this cache, including the warm-up.
    pub known: f64,
    /// Cycles of a packet on the slowest core.
    pub cycles: f64,
    /// Millions of packets a second on all cores.
    pub millions_per_second: f64,
    /// Instructions of a packet.
    pub instructions: f64,
    /// Accelerator queries of a packet.
    pub queries: f64,
    /// The cycle stack of the first core, in cycles of a packet.
    pub stack: Vec<(&'static str, f64)>,
    /// Table loads of a packet, by the location of their line: L1, L2, shared cache, memory.
    pub loads: [f64; 4],
    /// Mispredicted branches of a packet.
    pub mispredicted: f64,
    /// The packets of a unit of work.
    pub unit: u32,
    /// Quantiles, evenly spaced, of the cycles from the entry of a unit of work to its end; none for recorded instructions.
    pub latency_quantiles: Vec<f64>,
    /// The utilisation of the shared parts.
    pub busy: Busy,
    /// Counters of the shared parts, including the warm-up.
    pub counters: Counters,
    /// Table changes a second.
    pub updates_per_second: f64,
    /// The picoseconds of a cycle.
    pub cycle_ps: u64,
}

impl Outcome {
    /// Returns the nanoseconds of a packet.
    pub fn ns(&self) -> f64 {
        self.cycles * self.cycle_ps as f64 / 1000.0
    }

    /// Returns the share of time of a part of the cycle stack.
    pub fn share(&self, part: &str) -> f64 {
        let all: f64 = self.stack.iter().map(|(_, cycles)| cycles).sum();
        self.stack.iter().find(|(name, _)| *name == part).map_or(0.0, |(_, cycles)| cycles / all.max(1e-9))
    }
}

impl Run {
    /// Creates a run of a batch of packets on one core, without a cache and changes.
    pub fn new(machine: &Arc<MachineConfig>, workload: &Arc<Workload>, method: impl Into<Method>) -> Self {
        let method = method.into();
        let (machine, workload) = (machine.clone(), workload.clone());
        let (packets, warm_up, cores, cache_flows) = (BATCH, BATCH, 1, 0);
        let (arrival, update_pause, seed) = (Arrival::Parsed, None, 1);
        Self { machine, workload, method, packets, warm_up, arrival, cores, cache_flows, update_pause, seed }
    }

    /// Returns the run with the number of packets, and the seed, of an effort.
    fn sized(&self, effort: Effort) -> Self {
        let lookups = match (effort.quick, self.cache_flows) {
            (true, _) => LOOKUPS_QUICK,
            (false, 0) => LOOKUPS,
            // If a flow cache knows most packets, the result must not depend on a few others.
            (false, _) => 4 * LOOKUPS,
        };
        let tables = self.workload.tables.len() as u64;
        let least = if effort.quick { BATCH } else { 2 * BATCH };
        let packets = (lookups / tables / u64::from(self.cores)).clamp(least, 4096).next_multiple_of(BATCH);
        let warm_up = (packets / 2).next_multiple_of(BATCH);
        Self { packets, warm_up, seed: effort.seed, ..self.clone() }
    }

    /// Simulates the run.
    ///
    /// # Errors
    /// Returns an error if an answer contradicts the rules, or if the run makes no progress.
    pub fn simulate(&self) -> Result<Outcome, SimError> {
        let approach = match &self.method {
            Method::Model(approach) => *approach,
            Method::Recorded(recording) => {
                let replayed = replay(&recording.trace, &self.machine, self.cores)?;
                return Ok(replayed_outcome(&recording.name, replayed));
            }
        };
        let largest = self.workload.tables.places.iter().map(TablePlace::largest_piece).max();
        let mut machine = Machine::new(&self.machine.with_pieces_of(largest.unwrap_or(0)));
        let progress = self.programs(approach, &mut machine);
        if let Some(pause) = self.update_pause {
            let lines = self.workload.tables.places.iter().flat_map(|place| place.buckets.lines()).collect();
            let random = Random::for_purpose(self.seed, "updates");
            let writer = Writer { lines, random, pause, progress: progress.clone() };
            machine.run_on(self.cores, Box::new(writer), 0);
        }
        machine.run()?;
        Ok(self.outcome(approach, &machine, &progress))
    }

    /// Places a program on every core, and returns their progress.
    fn programs(&self, approach: Approach, machine: &mut Machine) -> Vec<Rc<Progress>> {
        let (tables, count) = (&self.workload.tables, self.packets + self.warm_up);
        tables.warm(machine);
        let packets = self.workload.packets.len();
        let first = |core: u32| packets * core as usize / self.cores as usize;
        let mut space = tables.space.clone();
        let mut progress = Vec::new();
        for core in 0..self.cores {
            let own_progress = Rc::new(Progress::default());
            let flows = self.cache_flows(approach);
            let cache = (flows > 0).then(|| {
                let seed = self.seed ^ u64::from(core);
                let mut cache = FlowCache::new(tables.words(), flows, &mut space, seed);
                cache.precede(self.before(first(core), flows));
                cache.warm(machine);
                cache
            });
            let own = match self.arrival {
                Arrival::Parsed => Own::new(&mut space),
                Arrival::Nic => Own::with_headers(&mut space, count),
            };
            match self.arrival {
                Arrival::Parsed => own.warm(machine),
                Arrival::Nic => own.arrive(machine),
            }
            let (workload, next) = (self.workload.clone(), first(core));
            let packets = RulePackets { workload, own, cache, next, progress: own_progress.clone() };
            let program = LookupProgram::new(packets, approach, &self.machine, count);
            machine.run_on(core, Box::new(program), self.warm_up);
            progress.push(own_progress);
        }
        progress
    }

    /// Returns the flows of the cache in front: none for devices, which it would only slow down.
    fn cache_flows(&self, approach: Approach) -> usize {
        if [Approach::Tcam, Approach::SramTcam].contains(&approach) { 0 } else { self.cache_flows }
    }

    /// Returns the packets that a flow cache has seen before a packet of the trace, which repeats: none of those that
    /// follow, unless they recur soon. First in first out, the cache would have lost the first flows of a round
    /// first.
    fn before(&self, first: usize, flows: usize) -> impl Iterator<Item = (&FlowKey, Option<u32>)> {
        let (packets, expected) = (&self.workload.packets, &self.workload.expected);
        let (len, next) = (packets.len(), (self.packets + self.warm_up) as usize);
        let others = if len < 2 * next { len } else { len - next };
        let count = others.min(flows.saturating_mul(SEEN));
        (0..count).map(move |n| {
            let at = (first + len - count + n) % len;
            (&packets[at], expected[at])
        })
    }

    fn outcome(&self, approach: Approach, machine: &Machine, progress: &[Rc<Progress>]) -> Outcome {
        let cycle_ps = machine.cycle_ps();
        let cycles = |core| machine.thread(core, 0).cycles_per_lookup(cycle_ps);
        let thread = machine.thread(0, 0);
        let packets = thread.lookups.max(1) as f64;
        let each = |n: u64| n as f64 / packets;
        let all = (self.packets + self.warm_up) * u64::from(self.cores);
        let in_cycles = |ps: u64| ps as f64 / cycle_ps as f64;
        let updates_per_second = self.update_pause.map_or(0.0, |_| {
            let writer = machine.thread(self.cores, 0);
            writer.lookups as f64 * 1e12 / (writer.to_ps - writer.from_ps).max(1) as f64
        });
        Outcome {
            name: label(approach).to_owned(),
            approach,
            cache_flows: self.cache_flows(approach),
            known: progress.iter().map(|p| p.known.get()).sum::<u64>() as f64 / all as f64,
            cycles: (0..self.cores).map(cycles).fold(0.0, f64::max),
            millions_per_second: (0..self.cores).map(|core| 1e6 / (cycles(core) * cycle_ps as f64)).sum(),
            instructions: each(thread.instructions),
            queries: machine.query_latency().count() as f64 / all as f64,
            stack: thread.stack.parts().map(|(name, ps)| (name, in_cycles(ps) / packets)).to_vec(),
            loads: thread.loads.map(each),
            mispredicted: each(thread.mispredicted),
            unit: (thread.lookups as f64 / thread.units.max(1) as f64).round().max(1.0) as u32,
            latency_quantiles: (0..QUANTILES)
                .map(|n| in_cycles(thread.latency.permille((2 * n + 1) * 500 / QUANTILES)))
                .collect(),
            busy: machine.busy(),
            counters: machine.counters(),
            updates_per_second,
            cycle_ps,
        }
    }
}

/// Returns the outcome of a replay.
fn replayed_outcome(name: &str, replayed: Replayed) -> Outcome {
    let Replayed { cycles, millions_per_second, stats, busy, counters, cycle_ps } = replayed;
    let each = |n: u64| n as f64 / stats.lookups.max(1) as f64;
    Outcome {
        name: name.to_owned(),
        approach: Approach::Software,
        cache_flows: 0,
        known: 0.0,
        cycles,
        millions_per_second,
        instructions: each(stats.instructions),
        queries: 0.0,
        stack: stats.stack.parts().map(|(part, ps)| (part, each(ps) / cycle_ps as f64)).to_vec(),
        loads: stats.loads.map(each),
        mispredicted: each(stats.mispredicted),
        unit: 1,
        latency_quantiles: Vec::new(),
        busy,
        counters,
        updates_per_second: 0.0,
        cycle_ps,
    }
}

/// Changes buckets until the lookups have ended.
struct Writer {
    lines: Vec<Line>,
    random: Random,
    pause: u32,
    progress: Vec<Rc<Progress>>,
}

impl Program for Writer {
    fn refill(&mut self, ops: &mut Vec<Op>, _: &mut Queries) -> Result<bool, Mismatch> {
        if self.progress.iter().all(|p| p.ended.get()) {
            return Ok(false);
        }
        let line = self.lines[self.random.index(self.lines.len())];
        ops.push(Op { begins: true, ..Op::work(self.pause.max(1), Class::Compute).chained(0) });
        ops.push(Op { ends: 1, waits: true, fences: true, ..Op::new(Kind::Store(line), Class::Data) });
        Ok(true)
    }
}
