//! The envelope: key values over all combinations of the choices that the paper leaves open.

use std::rc::Rc;

use super::figure11::{ENTRIES, TUPLES};
use crate::config::MatchingTable;
use crate::config::{Approach, Blocking, Dispatch, KeyPlace, MachineConfig, Remote, RunConfig, Translation};
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

/// Returns the three values of one combination.
fn values(machine: &MachineConfig, effort: Effort) -> Result<[f64; 3], SimError> {
    let cycles = |config: &RunConfig, approaches: &[Approach]| -> Result<Vec<f64>, SimError> {
        let tables = Rc::new(tables_of(config));
        approaches
            .iter()
            .map(|approach| run(config, *approach, &tables).map(|r| r.cycles_per_lookup))
            .collect()
    };
    let all = [Approach::Software, Approach::HaloBlocking, Approach::HaloNonBlocking];
    let mut config = effort.run(machine);
    (config.run.lookups, config.run.warm_up_lookups) = (400, 200);
    config.workload.entries = 1 << 16;
    let one = cycles(&config, &all)?;
    (config.workload.tables, config.workload.entries) = (TUPLES[3], ENTRIES);
    config.workload.matching = MatchingTable::Last;
    (config.run.lookups, config.run.warm_up_lookups) = (100, 60);
    let tuples = cycles(&config, &all)?;
    Ok([one[0] / one[1], 100.0 * (one[2] / one[1] - 1.0), tuples[0] / tuples[2]])
}

pub(super) fn envelope(machine: &MachineConfig, effort: Effort) -> Result<Envelope, SimError> {
    let machines = choices(machine, effort.quick);
    let results = parallel::run(effort.threads, machines.len(), &|_| {}, &|n| values(&machines[n], effort));
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let extent = |n: usize| {
        let values = results.iter().map(|r| r[n]);
        Some(values.fold([f64::MAX, f64::MIN], |[low, high], v| [low.min(v), high.max(v)]))
    };
    Ok(Envelope { single: extent(0), slower_percent: extent(1), tuples: extent(2) })
}
