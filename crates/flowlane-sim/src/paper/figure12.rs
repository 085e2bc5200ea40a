//! Figure 12: a network function on the core's other thread, next to the switch's lookups.
//!
//! The functions of the paper (ACL, Snort, mTCP) are not run. The first and the last are replaced by the library's
//! own, with operations recorded from real tables: an access list table by table, and connections by single lookups
//! with the state of each. Payload scanning is replaced by a stream of loads.

use std::rc::Rc;
use std::sync::Arc;

use flowlane::generate::{Profile, RuleConfig, Trace, TraceConfig, generate_rules};

use super::{Row, Stated, extent};
use crate::config::{Approach, MachineConfig, RunConfig};
use crate::machine::op::Program;
use crate::machine::space::Space;
use crate::machine::{Machine, SimError, ThreadStats};
use crate::parallel::try_map;
use crate::program::{Generated, LookupProgram, Neighbour, Progress, RulePackets, WithWork, Work};
use crate::report::{Chart, Effort, Series};
use crate::workload::rules::{Own, Workload, in_order};
use crate::workload::{Packets, Tables, TablesConfig, tables_for};

/// A network function on the other thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    /// An access list of `rules` rules, in a table for each mask.
    AccessList { rules: usize },
    /// Connections by single lookups, with lines of packet and state that are read and written.
    Connections { entries: u64, lines: u32, instructions: u32 },
    /// Loads from a hot set and, for a share in thousandths, from a cold one; sizes in bytes.
    Scan { hot: u64, cold: u64, cold_permille: u64 },
}

/// The functions. Table 3: an access list of 6 rules and a route; 100 connections.
pub(super) const FUNCTIONS: [(&str, Function); 3] = [
    ("access list", Function::AccessList { rules: 7 }),
    ("connections", Function::Connections { entries: 100, lines: 4, instructions: 200 }),
    ("scan", Function::Scan { hot: 16 << 10, cold: 768 << 10, cold_permille: 60 }),
];

impl Function {
    /// Builds the program for `count` units of work, in an address space shared with the switch.
    fn program(
        self,
        config: &RunConfig,
        machine: &mut Machine,
        space: &mut Space,
        count: u64,
    ) -> Box<dyn Program> {
        let seed = config.run.seed;
        match self {
            Self::AccessList { rules } => {
                let rules = RuleConfig { seed, ..RuleConfig::new(Profile::Acl, rules) };
                let rules = generate_rules(&rules).expect("the profile has enough rules");
                let packets =
                    Trace::generate(&rules, &TraceConfig { seed, ..TraceConfig::new(count as usize) });
                let packets = packets.expect("there are rules to hit").keys().cloned().collect();
                let rules = Workload::in_space("access list", in_order(&rules), packets, seed, space);
                let workload = Arc::new(rules.expect("the profile has few masks"));
                workload.tables.warm(machine);
                let own = Own::new(space);
                own.warm(machine);
                let progress = Rc::new(Progress::default());
                let packets = RulePackets { workload, own, cache: None, next: 0, progress };
                Box::new(LookupProgram::new(packets, Approach::Scalar, &config.machine, count))
            }
            Self::Connections { entries, lines, instructions } => {
                let shape =
                    TablesConfig { tables: 1, entries: entries * 4 / 3, load_percent: 75, seed: seed + 1 };
                let tables = Rc::new(Tables::in_space(&shape, space));
                tables.warm(machine);
                let state = space.region(64 * entries * u64::from(lines));
                let packets = Generated { tables, packets: Packets::new(seed + 1) };
                let lookups = LookupProgram::new(packets, Approach::Scalar, &config.machine, count);
                Box::new(WithWork::new(Box::new(lookups), Work { instructions, lines }, &state))
            }
            Self::Scan { hot, cold, cold_permille } => {
                let (hot, cold) = (space.region(hot), space.region(cold));
                machine.fill_llc(hot.lines().chain(cold.lines()));
                Box::new(Neighbour::new(&hot, &cold, cold_permille, seed, count))
            }
        }
    }

    /// Returns the units to simulate for each lookup of a run; a unit of a scan is a load.
    fn units(self) -> u64 {
        match self {
            Self::Scan { .. } => 10,
            _ => 1,
        }
    }
}

/// Numbers of flows of the switch.
pub(super) const FLOWS: [(&str, u64); 3] =
    [("1K flows", 1 << 10), ("10K flows", 10_000), ("100K flows", 100_000)];

/// Returns the statistics of a function, and its cycles of a unit, alone or beside lookups on the other thread.
pub(super) fn neighbour(
    config: &RunConfig,
    tables: &Rc<Tables>,
    function: Function,
    beside: Option<Approach>,
) -> Result<(ThreadStats, f64), SimError> {
    let mut machine = Machine::new(&config.machine.with_pieces_of(tables.largest_piece()));
    tables.warm(&mut machine);
    let mut space = tables.space.clone();
    let (count, warm) = (config.run.lookups * function.units(), config.run.lookups * function.units() / 5);
    let program = function.program(config, &mut machine, &mut space, count + warm);
    machine.run_on(0, program, warm);
    if let Some(approach) = beside {
        let packets = Generated { tables: tables.clone(), packets: Packets::new(config.run.seed) };
        let lookups = LookupProgram::new(packets, approach, &config.machine, u64::MAX / 2);
        machine.run_on(0, Box::new(lookups), 0);
        machine.follow_first(0, 1);
    }
    machine.run()?;
    let stats = machine.thread(0, 0).clone();
    let cycles = stats.cycles_per_unit(machine.cycle_ps());
    Ok((stats, cycles))
}

pub(super) fn figure(machine: &MachineConfig, effort: Effort) -> Result<(Vec<Row>, Vec<Chart>), SimError> {
    let mut config = effort.run(machine);
    config.workload.load_percent = 75;
    let jobs: Vec<_> = FLOWS.iter().flat_map(|flows| FUNCTIONS.iter().map(move |f| (flows, f))).collect();
    let results = try_map(effort.threads, &jobs, |((_, flows), (_, function))| -> Result<_, SimError> {
        let tables = Rc::new(tables_for(flows * 4 / 3, 75, effort.seed));
        let (_, alone) = neighbour(&config, &tables, *function, None)?;
        let (soft_stats, soft) = neighbour(&config, &tables, *function, Some(Approach::Software))?;
        let (halo_stats, halo) = neighbour(&config, &tables, *function, Some(Approach::HaloBlocking))?;
        let missed = |stats: &ThreadStats| {
            let [l1, rest @ ..] = stats.loads;
            100.0 * rest.iter().sum::<u64>() as f64 / (l1 + rest.iter().sum::<u64>()).max(1) as f64
        };
        let drop = |cycles: f64| 100.0 * (1.0 - alone / cycles);
        Ok([drop(soft), drop(halo), missed(&soft_stats), missed(&halo_stats)])
    })?;
    let lost = |beside: usize| extent(results.iter().map(|r| r[beside]));
    let ([soft_low, soft_high], [halo_low, halo_high]) = (lost(0), lost(1));
    let row = |beside: &str, low, high| {
        let what = format!("throughput lost beside {beside} (%)");
        Row::predicted("Figure 12a", what, Stated::Range { low, high })
            .assumption(
                "the paper's functions are not run: the library's and a stream, of loads and instructions that are ours, stand \
                 for them",
            )
            .note("the paper emulated HALO by waiting")
    };
    let rows = vec![
        row("software", 17.0, 26.0).between(soft_low, soft_high),
        row("HALO", 0.0, 3.2).between(halo_low, halo_high),
    ];
    let places = jobs.iter().map(|((flows, _), (function, _))| format!("{flows}, {function}"));
    let series = |name: &str, of: usize| Series::new(name, results.iter().map(|r| r[of]));
    let about = "A function on one thread of a core, lookups on the other.";
    let chart = |id, title, unit, of: usize| {
        Chart::new(id, title, about)
            .over("flows of the switch, and function", places.clone())
            .bars(unit, vec![series("beside software", of), series("beside HALO", of + 1)])
    };
    let charts = vec![
        chart("figure-12a", "Figure 12a: throughput lost", "% of the function's throughput alone", 0),
        chart("figure-12b", "Figure 12b: loads that miss L1", "% of the function's loads", 2),
    ];
    Ok((rows, charts))
}
