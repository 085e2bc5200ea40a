//! Figure 10: the cycle stack of a lookup, with its table in the shared cache and in memory.

use std::rc::Rc;

use serde::Serialize;

use super::calibrate::is_calibrated;
use super::{Row, SLOT_BYTES, Stated};
use crate::config::{Approach, MachineConfig};
use crate::machine::SimError;
use crate::report::{Chart, Effort, Series};
use crate::run::{run, tables_of};

/// Returns the slots of a table that fits the shared cache easily but mostly not L2: 14 MiB on the paper's machine.
fn llc_entries(machine: &MachineConfig) -> u64 {
    let slots = (machine.llc.bytes() / 2 / SLOT_BYTES).max(8);
    1 << slots.ilog2()
}

/// The factor of slots for a table that is hardly cached.
const IN_MEMORY: u64 = 8;

/// The parts of a lookup's time in cycles.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Bars {
    /// Computing, and waiting for an accelerator that computes.
    pub compute: f64,
    /// Fetching data.
    pub data: f64,
    /// Synchronisation with writers.
    pub lock: f64,
}

impl Bars {
    pub fn total(&self) -> f64 {
        self.compute + self.data + self.lock
    }
}

/// Returns the bars of an approach.
///
/// # Errors
/// Returns an error if a run fails.
pub fn bars(
    machine: &MachineConfig,
    effort: Effort,
    approach: Approach,
    in_memory: bool,
) -> Result<Bars, SimError> {
    let mut config = effort.run(machine);
    config.workload.entries = match (in_memory, effort.quick) {
        (false, _) => llc_entries(machine),
        (true, false) => llc_entries(machine) * IN_MEMORY,
        (true, true) => llc_entries(machine) * 2,
    };
    config.workload.warm = !in_memory;
    if in_memory {
        // Few warm-up lookups of a large table, so that hardly any line is cached.
        config.run.warm_up_lookups = 200;
        config.run.lookups = config.run.lookups.min(2000);
    }
    let result = run(&config, approach, &Rc::new(tables_of(&config)))?;
    let cycles = |ps: u64| ps as f64 / result.cycle_ps as f64 / result.thread.lookups as f64;
    let stack = &result.thread.stack;
    Ok(match approach {
        Approach::HaloBlocking | Approach::HaloNonBlocking => {
            let data = cycles(result.thread.query_data_ps);
            Bars { compute: result.cycles_per_lookup - data, data, lock: 0.0 }
        }
        _ => {
            let (data, lock) = (cycles(stack.data_ps()), cycles(stack.lock_ps));
            Bars { compute: result.cycles_per_lookup - data - lock, data, lock }
        }
    })
}

pub(super) fn figure(machine: &MachineConfig, effort: Effort) -> Result<(Vec<Row>, Vec<Chart>), SimError> {
    let soft = bars(machine, effort, Approach::Software, false)?;
    let halo = bars(machine, effort, Approach::HaloBlocking, false)?;
    let soft_memory = bars(machine, effort, Approach::Software, true)?;
    let halo_memory = bars(machine, effort, Approach::HaloBlocking, true)?;
    let row = |what: &str, value| Row::predicted("Figure 10", what, Stated::Exact { value });
    let target = |row: Row| match is_calibrated(machine) {
        true => row.calibrated("a target of the calibration, whose numbers the machine has"),
        false => row,
    };
    let rows = vec![
        target(row("computing, less than software's, table in LLC (%)", 48.1))
            .is(100.0 * (1.0 - halo.compute / soft.compute)),
        target(row("data in LLC, times faster", 4.1)).is(soft.data / halo.data),
        target(row("lock, share of software's time (%)", 13.1)).is(100.0 * soft.lock / soft.total()),
        row("data in memory, times faster", 1.6).is(soft_memory.data / halo_memory.data).note(
            "1.6 with 4.1 in LLC needs memory at 2.0 times the LLC's latency; DDR4-2400 is further away",
        ),
    ];
    let all = [
        ("software, LLC", soft),
        ("HALO, LLC", halo),
        ("software, memory", soft_memory),
        ("HALO, memory", halo_memory),
    ];
    let series = |name: &str, part: fn(&Bars) -> f64| {
        Series::new(name, all.iter().map(|(_, bars)| part(bars) / soft.total()))
    };
    let about = format!(
        "Parts of a lookup's time, over software's whole with the table in the shared cache ({:.0} cycles).",
        soft.total()
    );
    let parts =
        vec![series("compute", |b| b.compute), series("data", |b| b.data), series("lock", |b| b.lock)];
    let chart = Chart::new("figure-10", "Figure 10: where a lookup's time goes", about)
        .over("approach and place of the table", all.map(|(name, _)| name))
        .bars("of software's time", parts);
    Ok((rows, vec![chart]))
}
