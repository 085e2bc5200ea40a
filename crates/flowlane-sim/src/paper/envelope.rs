//! The envelope: key values over all combinations of the choices that the paper leaves open.

use std::rc::Rc;

use super::figure11::{ENTRIES, TUPLES};
use crate::config::{
    AcceleratorConfig, Approach, Blocking, Dispatch, KeyPlace, MachineConfig, MatchingTable, Remote,
    RunConfig, Translation,
};
use crate::machine::SimError;
use crate::parallel;
use crate::report::Effort;
use crate::run::{run, tables_of};

/// The least and largest of the key values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Envelope {
    /// Speedup of blocking over software, with one table in the shared cache.
    pub(super) single: Option<[f64; 2]>,
    /// Slowdown of non-blocking against blocking there, in percent.
    pub(super) slower_percent: Option<[f64; 2]>,
    /// Speedup of non-blocking over software, with the most tuples.
    pub(super) tuples: Option<[f64; 2]>,
}

/// Locations of keys, and packets ahead.
const KEYS_AND_AHEAD: [(KeyPlace, u32); 4] =
    [(KeyPlace::Llc, 0), (KeyPlace::Core, 0), (KeyPlace::Llc, 3), (KeyPlace::Core, 3)];

/// Returns all combinations of the choices except the end of the lock, which has no effect without a writer.
fn choices(machine: &MachineConfig, quick: bool) -> Vec<MachineConfig> {
    let mut out = Vec::new();
    let translations: &[Translation] = if quick {
        &[Translation::Ideal]
    } else {
        &[Translation::Ideal, Translation::Tlb, Translation::Core]
    };
    for in_flight in [1, machine.accelerator.scoreboard_queries] {
        for dispatch in [Dispatch::Table, Dispatch::Bucket] {
            for remote in [Remote::Ideal, Remote::Mesh] {
                for translation in translations {
                    for blocking in [Blocking::Serialise, Blocking::LoadLike] {
                        for (key, ahead) in KEYS_AND_AHEAD {
                            let mut machine = machine.clone();
                            let a = &mut machine.accelerator;
                            (a.in_flight_queries, a.dispatch, a.remote) = (in_flight, dispatch, remote);
                            (a.translation, a.blocking) = (*translation, blocking);
                            (a.key, a.packets_ahead) = (key, ahead);
                            out.push(machine);
                        }
                    }
                }
            }
        }
    }
    out
}

/// Returns the machine without the choices that an approach ignores.
fn relevant(machine: &MachineConfig, preset: &MachineConfig, approach: Approach) -> MachineConfig {
    let mut machine = machine.clone();
    let a = &mut machine.accelerator;
    match approach {
        // Only that a key is written concerns software.
        Approach::Software => *a = AcceleratorConfig { key: a.key, ..preset.accelerator.clone() },
        Approach::HaloBlocking => a.packets_ahead = 0,
        _ => a.blocking = Blocking::Serialise,
    }
    machine
}

/// Jobs of one thread, which share the tables.
const CHUNK: usize = 8;

/// Returns the cycles of a lookup for each of the distinct machines and approaches.
fn cycles(
    workload: &RunConfig,
    jobs: &[(MachineConfig, Approach)],
    effort: Effort,
) -> Result<Vec<f64>, SimError> {
    let chunks: Vec<&[(MachineConfig, Approach)]> = jobs.chunks(CHUNK).collect();
    let work = |n: usize| -> Result<Vec<f64>, SimError> {
        let tables = Rc::new(tables_of(workload));
        let one = |(machine, approach): &(MachineConfig, Approach)| {
            let config = RunConfig { machine: machine.clone(), ..workload.clone() };
            Ok(run(&config, *approach, &tables)?.cycles_per_lookup)
        };
        chunks[n].iter().map(one).collect()
    };
    let results = parallel::run(effort.threads, chunks.len(), &|_| {}, &work);
    Ok(results.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}

/// Returns the cycles of a lookup on each machine by each approach. Machines that an approach cannot distinguish are
/// simulated once.
fn cycles_of_all(
    preset: &MachineConfig,
    machines: &[MachineConfig],
    approaches: &[Approach],
    workload: &RunConfig,
    effort: Effort,
) -> Result<Vec<Vec<f64>>, SimError> {
    let mut jobs: Vec<(MachineConfig, Approach)> = Vec::new();
    let mut places = Vec::new();
    for machine in machines {
        let place = |approach: &Approach| {
            let job = (relevant(machine, preset, *approach), *approach);
            jobs.iter().position(|known| *known == job).unwrap_or_else(|| {
                jobs.push(job);
                jobs.len() - 1
            })
        };
        places.push(approaches.iter().map(place).collect::<Vec<_>>());
    }
    let cycles = cycles(workload, &jobs, effort)?;
    Ok(places.into_iter().map(|places| places.into_iter().map(|place| cycles[place]).collect()).collect())
}

pub(super) fn envelope(machine: &MachineConfig, effort: Effort) -> Result<Envelope, SimError> {
    let machines = choices(machine, effort.quick);
    let mut config = effort.run(machine);
    (config.run.lookups, config.run.warm_up_lookups) = (400, 200);
    config.workload.entries = 1 << 16;
    let all = [Approach::Software, Approach::HaloBlocking, Approach::HaloNonBlocking];
    let single = cycles_of_all(machine, &machines, &all, &config, effort)?;
    (config.workload.tables, config.workload.entries) = (TUPLES[3], ENTRIES);
    config.workload.matching = MatchingTable::Last;
    (config.run.lookups, config.run.warm_up_lookups) = (100, 60);
    let both = [Approach::Software, Approach::HaloNonBlocking];
    let tuples = cycles_of_all(machine, &machines, &both, &config, effort)?;
    let extent = |values: &mut dyn Iterator<Item = f64>| {
        Some(values.fold([f64::MAX, f64::MIN], |[low, high], v| [low.min(v), high.max(v)]))
    };
    Ok(Envelope {
        single: extent(&mut single.iter().map(|c| c[0] / c[1])),
        slower_percent: extent(&mut single.iter().map(|c| 100.0 * (c[2] / c[1] - 1.0))),
        tuples: extent(&mut tuples.iter().map(|c| c[0] / c[1])),
    })
}
