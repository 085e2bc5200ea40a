//! Sensitivity of the values that miss the paper's by more than a quarter, and the effect of the lock's end with a
//! concurrent writer.
//!
//! Each chart varies the parameter that explains a miss, with the paper's value as a reference: their intersection is
//! the value that the paper's machine would need.

use std::rc::Rc;

use super::Machines;
use super::figure3::{self, TRAFFIC};
use super::figure11::{ENTRIES, TUPLES};
use super::figure12::{CoRunner, FLOWS, FUNCTIONS, neighbour};
use crate::config::MatchingTable;
use crate::config::{Approach, LockHold, MachineConfig, RunConfig};
use crate::machine::SimError;
use crate::parallel;
use crate::program::chase_cycles;
use crate::report::{Chart, Effort, Series, number};
use crate::run::{run, tables_of};
use crate::workload::{Tables, tables_for};

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

/// Returns the speedup of an approach over software.
fn times(config: &RunConfig, tables: &Rc<Tables>, approach: Approach) -> Result<f64, SimError> {
    let cycles = |approach| run(config, approach, tables).map(|r| r.cycles_per_lookup);
    Ok(cycles(Approach::Software)? / cycles(approach)?)
}

/// Returns a constant series.
fn constant(name: &str, value: f64, places: usize) -> Series {
    Series { name: name.into(), values: vec![Some(value); places] }
}

fn simulated(name: &str, values: impl IntoIterator<Item = f64>) -> Series {
    Series { name: name.into(), values: values.into_iter().map(Some).collect() }
}

/// Figure 3 by the instructions of a software lookup.
fn instructions(machine: &MachineConfig, effort: Effort) -> Result<Chart, SimError> {
    let counts: &[u32] = if effort.quick { &[120, 210] } else { &[90, 120, 150, 180, 210] };
    let ends = [0, TRAFFIC.len() - 1];
    let workloads = ends.map(|place| figure3::workload(place, effort));
    let work = |n: usize| {
        let mut machine = machine.clone();
        machine.software.instructions = counts[n / ends.len()];
        figure3::cycles(&machine, &workloads[n % ends.len()], Approach::Software, effort)
    };
    let results = parallel::run(effort.threads, counts.len() * ends.len(), &|_| {}, &work);
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    // Relative to the paper's values, so that both share one reference line.
    let of = |end: usize| results.iter().skip(end).step_by(ends.len()).map(move |c| c / figure3::STATED[end]);
    Ok(Chart {
        id: "sensitivity-instructions",
        title: "Figure 3: by the instructions of a lookup".into(),
        about:
            "Table 1 has 210 instructions for a lookup of rte_hash; Figure 3 was measured in Open vSwitch."
                .into(),
        axis: "instructions of a lookup",
        places: counts.iter().map(u32::to_string).collect(),
        unit: "of the paper's cycles for classification",
        lines: true,
        series: vec![
            simulated(TRAFFIC[ends[0]].0, of(0)),
            simulated(TRAFFIC[ends[1]].0, of(1)),
            constant("the paper", 1.0, counts.len()),
        ],
    })
}

/// Figures 9 and 10 beyond the shared cache, by the latency of memory.
fn memory(machine: &MachineConfig, effort: Effort) -> Result<Chart, SimError> {
    // All of memory's times, in percent of the preset's.
    let scales: &[u64] = if effort.quick { &[50, 100] } else { &[10, 25, 50, 75, 100, 150] };
    let entries = if effort.quick { 1 << 14 } else { 1 << 22 };
    let work = |n: usize| -> Result<(f64, f64), SimError> {
        let mut machine = machine.clone();
        let d = &mut machine.dram;
        for ps in [&mut d.controller_ps, &mut d.cas_ps, &mut d.rcd_ps, &mut d.rp_ps] {
            *ps = *ps * scales[n] / 100;
        }
        // From a tile in the middle.
        let core = 5.min(machine.core.cores - 1);
        let load =
            chase_cycles(&machine, 64 << 20, core, false)? / chase_cycles(&machine, 12 << 20, core, true)?;
        let mut config = effort.run(&machine);
        (config.workload.entries, config.workload.warm) = (entries, false);
        Ok((load, times(&config, &Rc::new(tables_of(&config)), Approach::HaloBlocking)?))
    };
    let results = parallel::run(effort.threads, scales.len(), &|_| {}, &work);
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(Chart {
        id: "sensitivity-memory",
        title: "Figure 9 beyond LLC: by memory's distance".into(),
        about: "One table of 2^22 slots that begins in memory, all of memory's times scaled.".into(),
        axis: "a load from memory, in loads from LLC",
        places: results
            .iter()
            .zip(scales)
            .map(|((load, _), scale)| format!("{load:.1}{}", if *scale == 100 { " (as it is)" } else { "" }))
            .collect(),
        unit: "times the throughput of software",
        lines: true,
        series: vec![
            simulated("HALO blocking", results.iter().map(|(_, times)| *times)),
            constant("the paper, mean of Figure 9", 2.1, results.len()),
        ],
    })
}

/// Figure 11 by the packets ahead of the results, and by the size of tables.
fn tuples(machine: &MachineConfig, effort: Effort) -> Result<Vec<Chart>, SimError> {
    let at = |machine: &MachineConfig, entries: u64| -> Result<f64, SimError> {
        let mut config = effort.run(machine);
        let w = &mut config.workload;
        (w.tables, w.entries, w.matching) = (TUPLES[3], entries, MatchingTable::Last);
        (config.run.warm_up_lookups, config.run.lookups) = if effort.quick { (20, 50) } else { (500, 300) };
        times(&config, &Rc::new(tables_of(&config)), Approach::HaloNonBlocking)
    };
    let slots: &[u64] = if effort.quick { &[256, ENTRIES] } else { &[256, ENTRIES, 4096, 16_384, 65_536] };
    let ahead: &[u64] = if effort.quick { &[0, 1] } else { &[0, 1, 2, 3, 5] };
    let jobs = slots.len() + ahead.len();
    let work = |n: usize| match n.checked_sub(slots.len()) {
        None => at(machine, slots[n]),
        Some(n) => {
            let mut machine = machine.clone();
            machine.accelerator.packets_ahead = ahead[n] as u32;
            at(&machine, ENTRIES)
        }
    };
    let results = parallel::run(effort.threads, jobs, &|_| {}, &work);
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (by_slots, by_ahead) = results.split_at(slots.len());
    let chart = |id, what: &str, axis, places: &[u64], values: &[f64]| Chart {
        id,
        title: format!("Figure 11 at 20 tuples: by {what}"),
        about: "All tuples asked.".into(),
        axis,
        places: places.iter().map(u64::to_string).collect(),
        unit: "times the throughput of software",
        lines: true,
        series: vec![
            simulated("HALO non-blocking", values.iter().copied()),
            constant("the paper, at 1024 slots", 23.4, values.len()),
        ],
    };
    Ok(vec![
        chart("sensitivity-ahead", "packets ahead of the results", "packets ahead", ahead, by_ahead),
        chart("sensitivity-slots", "the slots of a tuple", "slots of a tuple", slots, by_slots),
    ])
}

/// Figure 12a by the share of the window that each of two threads has.
fn window(machine: &MachineConfig, effort: Effort) -> Result<Chart, SimError> {
    // Percent of the window and of the queues, for each of the two threads.
    let shares: &[u32] = if effort.quick { &[50, 100] } else { &[50, 60, 75, 100] };
    let jobs: Vec<(u32, usize)> =
        shares.iter().flat_map(|share| (0..FUNCTIONS.len()).map(move |f| (*share, f))).collect();
    let work = |n: usize| -> Result<[f64; 2], SimError> {
        let (share, function) = (jobs[n].0, FUNCTIONS[jobs[n].1].1);
        let tables = Rc::new(tables_for(FLOWS[1].1 * 4 / 3, 75, effort.seed));
        let alone = effort.run(machine);
        let mut together = alone.clone();
        let core = &mut together.machine.core;
        for entries in [
            &mut core.rob_entries,
            &mut core.scheduler_entries,
            &mut core.load_queue_entries,
            &mut core.store_queue_entries,
        ] {
            *entries = *entries * 2 * share / 100;
        }
        let (_, cycles) = neighbour(&alone, &tables, function, CoRunner::Nothing)?;
        let lost = |beside| -> Result<f64, SimError> {
            Ok(100.0 * (1.0 - cycles / neighbour(&together, &tables, function, beside)?.1))
        };
        Ok([lost(CoRunner::Software)?, lost(CoRunner::Halo)?])
    };
    let results = parallel::run(effort.threads, jobs.len(), &|_| {}, &work);
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let places = results.chunks(FUNCTIONS.len());
    let least = |of: usize| places.clone().map(move |p| p.iter().map(|r| r[of]).fold(f64::MAX, f64::min));
    let most = |of: usize| places.clone().map(move |p| p.iter().map(|r| r[of]).fold(f64::MIN, f64::max));
    Ok(Chart {
        id: "sensitivity-window",
        title: "Figure 12a at 10K flows: by each thread's share of the window".into(),
        about: "Half is the preset's: a hard division. 100: each has as much as alone, as if the other one held nothing while \
                it waits."
            .into(),
        axis: "percent of window and queues that each thread has",
        places: shares.iter().map(u32::to_string).collect(),
        unit: "% of the function's throughput alone",
        lines: true,
        series: vec![
            simulated("lost beside software, least", least(0)),
            simulated("lost beside software, most", most(0)),
            simulated("lost beside HALO, most", most(1)),
            constant("the paper: beside software, least", 17.0, shares.len()),
            constant("the paper: beside HALO, less than", 3.2, shares.len()),
        ],
    })
}

/// The end of the lock, which matters only with a concurrent writer; none of the paper's runs has one.
fn lock(machine: &MachineConfig, effort: Effort) -> Result<Chart, SimError> {
    let intervals: &[u32] = if effort.quick { &[100, 10_000] } else { &[50, 100, 300, 1000, 3000, 10_000] };
    let holds = [(LockHold::Commit, "until the query ends"), (LockHold::Data, "until the line is read")];
    let jobs: Vec<(u32, LockHold)> =
        holds.iter().flat_map(|(hold, _)| intervals.iter().map(move |i| (*i, *hold))).collect();
    let work = |n: usize| -> Result<f64, SimError> {
        let mut config = effort.run(machine);
        config.machine.accelerator.lock_hold = jobs[n].1;
        // More changes than fit the run.
        let lookups = config.run.lookups + config.run.warm_up_lookups;
        config.workload.updates = lookups * 300 / u64::from(jobs[n].0);
        config.workload.update_instructions = jobs[n].0;
        config.workload.entries = 1024;
        Ok(run(&config, Approach::HaloBlocking, &Rc::new(tables_of(&config)))?.cycles_per_lookup)
    };
    let results = parallel::run(effort.threads, jobs.len(), &|_| {}, &work);
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let series = holds.iter().zip(results.chunks(intervals.len()));
    Ok(Chart {
        id: "sensitivity-lock",
        title: "Lookups with a concurrent writer, by the end of the lock".into(),
        about: format!(
            "HALO blocking, one table of 1024 slots, another core writes a line of its buckets at this interval of instructions. \
             Without a writer both take equal time: {} cycles.",
            number({
                let mut config = effort.run(machine);
                config.workload.entries = 1024;
                run(&config, Approach::HaloBlocking, &Rc::new(tables_of(&config)))?.cycles_per_lookup
            })
        ),
        axis: "instructions of the writer from a change to the next",
        places: intervals.iter().map(u32::to_string).collect(),
        unit: "cycles a lookup",
        lines: true,
        series: series.map(|((_, name), values)| simulated(name, values.iter().copied())).collect(),
    })
}
