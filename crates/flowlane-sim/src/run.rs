//! Runs of a machine, tables and an approach.

use std::cmp::Reverse;
use std::rc::Rc;

use serde::Serialize;

use crate::config::{Approach, RunConfig, Sweep};
use crate::machine::op::Program;
use crate::machine::{Counters, Histogram, Machine, MemoryAccess, SimError, Span, ThreadStats, TimeSeries};
use crate::parallel;
use crate::program::{Generated, LookupProgram, Updates, WithWork, Work};
use crate::workload::{Packets, Tables, TablesConfig};

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunResult {
    /// The approach.
    pub approach: Approach,
    /// Cycles of a lookup (of a packet, if there are several tables) on the slowest core.
    pub cycles_per_lookup: f64,
    /// Millions of lookups a second on all cores.
    pub millions_per_second: f64,
    pub instructions_per_lookup: f64,
    /// The statistics of the first core.
    pub thread: ThreadStats,
    /// Latencies from a query's sending to its result, in picoseconds.
    pub query_latency: Histogram,
    /// Counters of the shared parts.
    pub counters: Counters,
    /// The estimate of distinct keys of the accelerators' flow registers ([`Machine::flows`]).
    pub flows: Option<f64>,
    /// The picoseconds of a cycle.
    pub cycle_ps: u64,
    /// The hash of the configuration.
    pub config_hash: String,
    /// Statistics over time, with `run.interval_cycles`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<TimeSeries>,
}

impl RunResult {
    /// Returns the values that repetitions with several seeds estimate, by name.
    pub fn values(&self) -> Vec<(&'static str, f64)> {
        let cycles = |ps: u64| ps as f64 / self.cycle_ps as f64;
        let whole = self.thread.stack.total_ps().max(1) as f64;
        let latency = |permille| cycles(self.thread.latency.permille(permille));
        let parts = ["compute %", "lock %", "L1 %", "L2 %", "LLC %", "mem %", "device %"];
        [
            ("cycles", self.cycles_per_lookup),
            ("M/s", self.millions_per_second),
            ("instr.", self.instructions_per_lookup),
            ("median", latency(500)),
            ("99 %", latency(990)),
        ]
        .into_iter()
        .chain(
            parts
                .into_iter()
                .zip(self.thread.stack.parts())
                .map(|(n, (_, ps))| (n, 100.0 * ps as f64 / whole)),
        )
        .collect()
    }
}

/// Builds the tables of a run.
pub fn tables_of(config: &RunConfig) -> Tables {
    let mut tables = empty_tables(config);
    tables.fill(keys_of(config));
    tables
}

fn empty_tables(config: &RunConfig) -> Tables {
    let w = &config.workload;
    let (tables, entries, load_percent) = (w.tables, w.entries, w.load_percent);
    Tables::empty(&TablesConfig { tables, entries, load_percent, seed: config.run.seed })
}

/// Returns the number of keys of each table, rounded up.
fn keys_of(config: &RunConfig) -> u64 {
    (config.workload.entries * config.workload.load_percent).div_ceil(100)
}

/// A run of a sweep: its values and its results, one for each approach.
#[derive(Clone, Debug)]
pub struct SweptRun {
    pub values: Vec<String>,
    pub config: RunConfig,
    pub results: Vec<RunResult>,
}

impl SweptRun {
    /// Returns the cycles of a lookup by an approach of the run.
    ///
    /// # Panics
    /// Panics if the run does not have the approach.
    pub fn cycles(&self, approach: Approach) -> f64 {
        let result = self.results.iter().find(|result| result.approach == approach);
        result.expect("an approach of the run").cycles_per_lookup
    }

    /// Returns the speedup of an approach over the run's first one.
    ///
    /// # Panics
    /// Panics if the run does not have the approach.
    pub fn times(&self, approach: Approach) -> f64 {
        self.results[0].cycles_per_lookup / self.cycles(approach)
    }
}

/// Runs all approaches of a sweep on some threads; `watch` receives the finished share. Runs that differ in load share
/// their tables, which are filled step by step.
///
/// # Errors
/// Returns the errors of [`run`].
pub fn run_sweep(
    sweep: Sweep,
    threads: usize,
    watch: &(dyn Fn(f64) + Sync),
) -> Result<Vec<SweptRun>, SimError> {
    let shape = |config: &RunConfig| {
        let w = &config.workload;
        (u64::from(w.tables) * w.entries, w.tables, config.run.seed)
    };
    let of = |n: &usize| {
        let config = &sweep.runs[*n].1;
        (shape(config), config.workload.load_percent)
    };
    // Large tables take longest and begin first.
    let mut order: Vec<usize> = (0..sweep.runs.len()).collect();
    order.sort_by_key(|n| (Reverse(of(n).0), of(n).1));
    // Chains of tables of one shape with ascending loads.
    let mut chains: Vec<Vec<usize>> = Vec::new();
    for n in order {
        let extends = |chain: &&mut Vec<usize>| {
            let ((shape, load), (its_shape, its_load)) = (of(&n), of(&chain[chain.len() - 1]));
            shape == its_shape && its_load < load
        };
        match chains.iter_mut().find(extends) {
            Some(chain) => chain.push(n),
            None => chains.push(vec![n]),
        }
    }
    let work = |chain: usize| -> Result<Vec<(usize, Vec<RunResult>)>, SimError> {
        let mut tables = Rc::new(empty_tables(&sweep.runs[chains[chain][0]].1));
        let mut one = |n: usize| {
            let config = &sweep.runs[n].1;
            let filled = Rc::get_mut(&mut tables).expect("earlier runs have ended");
            filled.fill(keys_of(config));
            let results = config.run.approaches.iter().map(|approach| run(config, *approach, &tables));
            Ok((n, results.collect::<Result<_, _>>()?))
        };
        chains[chain].iter().map(|n| one(*n)).collect()
    };
    let done = |finished: usize| watch(finished as f64 / chains.len() as f64);
    let results = parallel::run(threads, chains.len(), &done, &work);
    let mut results = results.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    results.sort_by_key(|(n, _)| *n);
    let swept = sweep.runs.into_iter().zip(results);
    Ok(swept.map(|((values, config), (_, results))| SweptRun { values, config, results }).collect())
}

/// Runs an approach.
///
/// # Errors
/// Returns an error if an answer differs from the library's, or if the run makes no progress.
pub fn run(config: &RunConfig, approach: Approach, tables: &Rc<Tables>) -> Result<RunResult, SimError> {
    traced(config, approach, tables, 0..0).map(|(result, _)| result)
}

/// Runs an approach and records the steps of some lookups, counted after the warm-up.
///
/// # Errors
/// Returns the errors of [`run`].
pub fn traced(
    config: &RunConfig,
    approach: Approach,
    tables: &Rc<Tables>,
    lookups: std::ops::Range<u64>,
) -> Result<(RunResult, Vec<Span>), SimError> {
    let mut machine = machine(config, approach, tables);
    let warm_up = config.run.warm_up_lookups;
    if !lookups.is_empty() {
        machine.watch(lookups.start + warm_up..lookups.end + warm_up);
    }
    let result = finish(config, approach, &mut machine)?;
    Ok((result, machine.spans().to_vec()))
}

/// Runs an approach and records the accesses to memory, including those of the warm-up.
///
/// # Errors
/// Returns the errors of [`run`].
pub fn with_accesses(
    config: &RunConfig,
    approach: Approach,
    tables: &Rc<Tables>,
) -> Result<(RunResult, Vec<MemoryAccess>), SimError> {
    let mut machine = machine(config, approach, tables);
    machine.record_accesses();
    let result = finish(config, approach, &mut machine)?;
    Ok((result, machine.accesses()))
}

/// Runs a machine to its end.
fn finish(config: &RunConfig, approach: Approach, machine: &mut Machine) -> Result<RunResult, SimError> {
    machine.run()?;
    let cores = config.run.cores;
    let cycle_ps = machine.cycle_ps();
    let cycles = |core| machine.thread(core, 0).cycles_per_lookup(cycle_ps);
    let slowest = (0..cores).map(cycles).fold(0.0, f64::max);
    let thread = machine.thread(0, 0).clone();
    Ok(RunResult {
        approach,
        cycles_per_lookup: slowest,
        millions_per_second: (0..cores).map(|core| 1e6 / (cycles(core) * cycle_ps as f64)).sum(),
        instructions_per_lookup: thread.instructions as f64 / thread.lookups.max(1) as f64,
        query_latency: machine.query_latency().clone(),
        counters: machine.counters(),
        flows: machine.flows(),
        cycle_ps,
        config_hash: format!("{:016x}", config.hash()),
        series: machine.series(),
        thread,
    })
}

/// Builds the machine with filled caches and programs on its cores.
fn machine(config: &RunConfig, approach: Approach, tables: &Rc<Tables>) -> Machine {
    let mut machine = Machine::new(&config.machine.with_pieces_of(tables.largest_piece()));
    if config.run.interval_cycles > 0 {
        machine.sample_every(config.run.interval_cycles * machine.cycle_ps());
    }
    if config.workload.warm {
        tables.warm(&mut machine);
    } else {
        tables.warm_headers(&mut machine);
    }
    for core in 0..config.run.cores {
        let program = program(config, approach, tables, core);
        machine.run_on(core, program, config.run.warm_up_lookups);
    }
    if config.workload.updates > 0 {
        let lines = tables.places.iter().flat_map(|place| place.buckets.lines()).collect();
        let w = &config.workload;
        let updates = Updates::new(lines, w.update_instructions, config.run.seed, w.updates);
        machine.run_on(config.run.cores, Box::new(updates), 0);
    }
    machine
}

fn program(config: &RunConfig, approach: Approach, tables: &Rc<Tables>, core: u32) -> Box<dyn Program> {
    let (w, m) = (&config.workload, &config.machine);
    let count = config.run.warm_up_lookups + config.run.lookups;
    let packets = Packets::new(config.run.seed ^ u64::from(core) << 32)
        .matching(w.matching)
        .hits(w.hit_permille)
        .of(w.working_set);
    let program: Box<dyn Program> =
        Box::new(LookupProgram::new(Generated { tables: tables.clone(), packets }, approach, m, count));
    let work = Work { instructions: w.beside_instructions, lines: w.beside_lines };
    if work == Work::default() {
        return program;
    }
    let packets = tables.space.clone().region(u64::from(core + 1) * 8192);
    Box::new(WithWork::new(program, work, &packets))
}
