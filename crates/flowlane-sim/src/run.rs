//! Runs of a machine, tables and an approach.

use std::rc::Rc;

use serde::Serialize;

use crate::config::{Approach, KeyPlace, RunConfig};
use crate::machine::op::Program;
use crate::machine::space::Space;
use crate::machine::{Counters, Histogram, Machine, MemoryAccess, SimError, Span, ThreadStats, TimeSeries};
use crate::program::{
    DeviceProgram, FlatDevice, Halo, HaloProgram, Software, SoftwareProgram, TupleSearchProgram, Updates,
    WithWork, Work,
};
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
    let w = &config.workload;
    Tables::new(&TablesConfig {
        tables: w.tables,
        entries: w.entries,
        load_percent: w.load_percent,
        seed: config.run.seed,
    })
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
    let writes_key = m.accelerator.key == KeyPlace::Core;
    let software = |style| -> Box<dyn Program> {
        let (tables, packets) = (tables.clone(), packets.clone());
        Box::new(SoftwareProgram::new(tables, packets, style, &m.software, writes_key, count))
    };
    let halo = |mode| -> Box<dyn Program> {
        let halo = HaloProgram::new(tables.clone(), packets.clone(), mode, writes_key, count);
        Box::new(halo.ahead(m.accelerator.packets_ahead).at_once(m.accelerator.packets_at_once))
    };
    let device = |device| -> Box<dyn Program> {
        Box::new(DeviceProgram::new(tables.clone(), packets.clone(), device, count))
    };
    let program = match approach {
        Approach::Software => software(Software::Rte),
        Approach::Scalar => software(Software::Scalar),
        Approach::Bulk => software(Software::Bulk),
        Approach::Avx512 => software(Software::Avx512),
        Approach::HaloBlocking => halo(Halo::Blocking),
        Approach::HaloNonBlocking => halo(Halo::NonBlocking),
        Approach::NearL2 => halo(Halo::NearL2),
        Approach::Tcam => device(FlatDevice::tcam(&m.tcam)),
        Approach::SramTcam => device(FlatDevice::sram_tcam(&m.tcam)),
        Approach::TupleSearch => {
            let rules = (u64::from(w.tables) * w.entries * w.load_percent / 100).clamp(1, 20_000);
            Box::new(TupleSearchProgram::new(rules as usize, config.run.seed, count, &mut Space::default()))
        }
    };
    let work = Work { instructions: w.beside_instructions, lines: w.beside_lines };
    if work == Work::default() {
        return program;
    }
    let packets = tables.space.clone().region(u64::from(core + 1) * 8192);
    Box::new(WithWork::new(program, work, &packets))
}
