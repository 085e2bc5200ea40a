//! Sensitivity of the values that miss the paper's by more than a quarter, and the effect of the lock's end with a
//! concurrent writer.
//!
//! Each chart varies the parameter that explains a miss, with the paper's value as a reference: their intersection is
//! the value that the paper's machine would need.

use std::rc::Rc;

use super::figure3::{self, TRAFFIC};
use super::figure11::{ENTRIES, TUPLES};
use super::figure12::{FLOWS, FUNCTIONS, neighbour};
use super::{Machines, extent};
use crate::config::{Approach, MachineConfig, MatchingTable, RunConfig};
use crate::machine::SimError;
use crate::parallel::try_map;
use crate::perturb::{Change, varied};
use crate::program::chase_cycles;
use crate::report::{Chart, Effort, Series, number};
use crate::run::{run, tables_of};
use crate::workload::tables_for;

pub(super) fn charts(machines: &Machines, effort: Effort) -> Result<Vec<Chart>, SimError> {
    let (machine, measured) = (&machines.simulated.machine, &machines.measured.machine);
    let mut all = vec![instructions(measured, effort)?, memory(machine, effort)?];
    all.extend(tuples(machine, effort)?);
    all.push(window(measured, effort)?);
    // A writer needs a core of its own.
    if machine.core.cores > 1 {
        all.push(lock(machine, effort)?);
    }
    Ok(all)
}

/// Returns the cycles of a lookup by an approach.
fn cycles(config: &RunConfig, approach: Approach) -> Result<f64, SimError> {
    Ok(run(config, approach, &Rc::new(tables_of(config)))?.cycles_per_lookup)
}

/// Returns the speedup of an approach over software.
fn times(config: &RunConfig, approach: Approach) -> Result<f64, SimError> {
    let tables = Rc::new(tables_of(config));
    let cycles = |approach| run(config, approach, &tables).map(|r| r.cycles_per_lookup);
    Ok(cycles(Approach::Software)? / cycles(approach)?)
}

/// Returns the machine with keys set to, or scaled to this percentage by, each of several numbers.
fn with(
    machine: &MachineConfig,
    keys: &[&str],
    numbers: &[i64],
    change: fn(i64) -> Change,
) -> Vec<(String, MachineConfig)> {
    varied(machine, keys, numbers.iter().map(|n| (n.to_string(), change(*n))))
}

fn set(number: i64) -> Change {
    Change::To(number.into())
}

/// Figure 3 by the instructions of a software lookup.
fn instructions(machine: &MachineConfig, effort: Effort) -> Result<Chart, SimError> {
    let counts: &[i64] = if effort.quick { &[120, 210] } else { &[90, 120, 150, 180, 210] };
    let machines = with(machine, &["software.instructions"], counts, set);
    let ends = [0, TRAFFIC.len() - 1].map(|place| figure3::workload(place, effort));
    let runs: Vec<_> = ends.iter().flat_map(|end| machines.iter().map(move |(_, m)| (m, end))).collect();
    let results = try_map(effort.threads, &runs, |(machine, workload)| {
        figure3::cycles(machine, workload, Approach::Software, effort)
    })?;
    // Relative to the paper's values, so that both share one reference line.
    let [least, most] = [0, 1].map(|end| {
        let results = results.chunks(machines.len()).nth(end).unwrap_or_default();
        let name = TRAFFIC[end * (TRAFFIC.len() - 1)].0;
        Series::new(name, results.iter().map(|cycles| cycles / figure3::STATED[end]))
    });
    let about =
        "Table 1 has 210 instructions for a lookup of rte_hash; Figure 3 was measured in Open vSwitch.";
    let title = "Figure 3: by the instructions of a lookup";
    Ok(Chart::new("sensitivity-instructions", title, about)
        .over("instructions of a lookup", machines.iter().map(|(count, _)| count))
        .curves("of the paper's cycles for classification", vec![least, most])
        .constant("the paper", 1.0))
}

/// Figures 9 and 10 beyond the shared cache, by the latency of memory.
fn memory(machine: &MachineConfig, effort: Effort) -> Result<Chart, SimError> {
    // All of memory's times, in percent of the preset's.
    let scales: &[i64] = if effort.quick { &[50, 100] } else { &[10, 25, 50, 75, 100, 150] };
    let entries = if effort.quick { 1 << 14 } else { 1 << 22 };
    let keys = ["dram.controller_ps", "dram.cas_ps", "dram.rcd_ps", "dram.rp_ps"];
    let machines = with(machine, &keys, scales, Change::Percent);
    let results = try_map(effort.threads, &machines, |(scale, machine)| -> Result<_, SimError> {
        // From a tile in the middle.
        let core = 5.min(machine.core.cores - 1);
        let load =
            chase_cycles(machine, 64 << 20, core, false)? / chase_cycles(machine, 12 << 20, core, true)?;
        let mut config = effort.run(machine);
        (config.workload.entries, config.workload.warm) = (entries, false);
        let now = if scale == "100" { " (as it is)" } else { "" };
        Ok((format!("{load:.1}{now}"), times(&config, Approach::HaloBlocking)?))
    })?;
    let (places, times): (Vec<String>, Vec<f64>) = results.into_iter().unzip();
    let about = "One table of 2^22 slots that begins in memory, all of memory's times scaled.";
    Ok(Chart::new("sensitivity-memory", "Figure 9 beyond LLC: by memory's distance", about)
        .over("a load from memory, in loads from LLC", places)
        .curves("times the throughput of software", vec![Series::new("HALO blocking", times)])
        .constant("the paper, mean of Figure 9", 2.1))
}

/// Figure 11 by the packets ahead of the results, and by the size of tables.
fn tuples(machine: &MachineConfig, effort: Effort) -> Result<Vec<Chart>, SimError> {
    let slots: &[u64] = if effort.quick { &[256, ENTRIES] } else { &[256, ENTRIES, 4096, 16_384, 65_536] };
    let ahead: &[i64] = if effort.quick { &[0, 1] } else { &[0, 1, 2, 3, 5] };
    let ahead = with(machine, &["accelerator.packets_ahead"], ahead, set);
    let by_slots = slots.iter().map(|slots| (slots.to_string(), *slots, machine));
    let by_ahead = ahead.iter().map(|(name, machine)| (name.clone(), ENTRIES, machine));
    let all: Vec<(String, u64, &MachineConfig)> = by_slots.chain(by_ahead).collect();
    let results = try_map(effort.threads, &all, |(_, entries, machine)| {
        let mut config = effort.run(machine);
        let w = &mut config.workload;
        (w.tables, w.entries, w.matching) = (TUPLES[3], *entries, MatchingTable::Last);
        (config.run.warm_up_lookups, config.run.lookups) = if effort.quick { (20, 50) } else { (500, 300) };
        times(&config, Approach::HaloNonBlocking)
    })?;
    let chart = |id, what: &str, axis, runs: std::ops::Range<usize>| {
        let title = format!("Figure 11 at 20 tuples: by {what}");
        let series = Series::new("HALO non-blocking", results[runs.clone()].iter().copied());
        Chart::new(id, title, "All tuples asked.")
            .over(axis, all[runs].iter().map(|(place, ..)| place))
            .curves("times the throughput of software", vec![series])
            .constant("the paper, at 1024 slots", 23.4)
    };
    Ok(vec![
        chart("sensitivity-ahead", "packets ahead of the results", "packets ahead", slots.len()..all.len()),
        chart("sensitivity-slots", "the slots of a tuple", "slots of a tuple", 0..slots.len()),
    ])
}

/// Figure 12a by the share of the window that each of two threads has.
fn window(machine: &MachineConfig, effort: Effort) -> Result<Chart, SimError> {
    // Percent of the window and of the queues, for each of the two threads; a thread of two has half of the machine's.
    let shares: &[i64] = if effort.quick { &[50, 100] } else { &[50, 60, 75, 100] };
    let keys = ["rob", "scheduler", "load_queue", "store_queue"].map(|key| format!("core.{key}_entries"));
    let together = varied(machine, &keys, shares.iter().map(|s| (s.to_string(), Change::Percent(2 * s))));
    let runs: Vec<_> =
        together.iter().flat_map(|(_, m)| FUNCTIONS.map(|(_, function)| (m, function))).collect();
    let results = try_map(effort.threads, &runs, |(machine_together, function)| -> Result<_, SimError> {
        let tables = Rc::new(tables_for(FLOWS[1].1 * 4 / 3, 75, effort.seed));
        let cycles = |machine: &MachineConfig, beside| -> Result<f64, SimError> {
            Ok(neighbour(&effort.run(machine), &tables, *function, beside)?.1)
        };
        let alone = cycles(machine, None)?;
        let lost = |cycles: f64| 100.0 * (1.0 - alone / cycles);
        let [software, halo] = [Some(Approach::Software), Some(Approach::HaloBlocking)]
            .map(|beside| cycles(machine_together, beside));
        Ok([lost(software?), lost(halo?)])
    })?;
    let lost = |beside: usize, end: usize| {
        let shares = results.chunks(FUNCTIONS.len());
        shares.map(move |share| extent(share.iter().map(|lost| lost[beside]))[end])
    };
    let about = "Half is the preset's: a hard division. 100: each has as much as alone, as if the other one held nothing \
                 while it waits.";
    let title = "Figure 12a at 10K flows: by each thread's share of the window";
    let series = vec![
        Series::new("lost beside software, least", lost(0, 0)),
        Series::new("lost beside software, most", lost(0, 1)),
        Series::new("lost beside HALO, most", lost(1, 1)),
    ];
    Ok(Chart::new("sensitivity-window", title, about)
        .over("percent of window and queues that each thread has", together.iter().map(|(share, _)| share))
        .curves("% of the function's throughput alone", series)
        .constant("the paper: beside software, least", 17.0)
        .constant("the paper: beside HALO, less than", 3.2))
}

/// The end of the lock, which matters only with a concurrent writer; none of the paper's runs has one.
fn lock(machine: &MachineConfig, effort: Effort) -> Result<Chart, SimError> {
    let intervals: &[u32] = if effort.quick { &[100, 10_000] } else { &[50, 100, 300, 1000, 3000, 10_000] };
    let holds = [("until the query ends", "commit"), ("until the line is read", "data")];
    let holds = holds.map(|(name, hold)| (name.to_owned(), Change::To(hold.into())));
    let holds = varied(machine, &["accelerator.lock_hold"], holds);
    let config = |machine: &MachineConfig| {
        let mut config = effort.run(machine);
        config.workload.entries = 1024;
        config
    };
    let runs: Vec<_> = holds.iter().flat_map(|(_, m)| intervals.iter().map(move |i| (m, *i))).collect();
    let results = try_map(effort.threads, &runs, |(machine, interval)| {
        let mut config = config(machine);
        // More changes than fit the run.
        let lookups = config.run.lookups + config.run.warm_up_lookups;
        config.workload.updates = lookups * 300 / u64::from(*interval);
        config.workload.update_instructions = *interval;
        cycles(&config, Approach::HaloBlocking)
    })?;
    let series = holds.into_iter().zip(results.chunks(intervals.len()));
    let about = format!(
        "HALO blocking, one table of 1024 slots, another core writes a line of its buckets at this interval of instructions. \
         Without a writer both take equal time: {} cycles.",
        number(cycles(&config(machine), Approach::HaloBlocking)?)
    );
    let series = series.map(|((name, _), values)| Series::new(name, values.iter().copied())).collect();
    Ok(Chart::new("sensitivity-lock", "Lookups with a concurrent writer, by the end of the lock", about)
        .over("instructions of the writer from a change to the next", intervals)
        .curves("cycles a lookup", series))
}
