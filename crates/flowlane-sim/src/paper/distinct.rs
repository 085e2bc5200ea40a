//! Runs of many machines, of which those that an approach cannot distinguish are simulated once.

use std::rc::Rc;

use crate::config::{AcceleratorConfig, Approach, Blocking, Dispatch, MachineConfig, RunConfig};
use crate::machine::SimError;
use crate::parallel::try_map;
use crate::report::Effort;
use crate::run::{run, tables_of};

/// Consecutive jobs of one thread, which share tables.
const CHUNK: usize = 8;

/// Returns the run without the choices that an approach ignores.
fn relevant(config: &RunConfig, base: &MachineConfig, approach: Approach) -> RunConfig {
    let mut config = config.clone();
    let a = &mut config.machine.accelerator;
    match approach {
        Approach::HaloBlocking => {
            (a.packets_ahead, a.packets_at_once) = (0, 1);
            if a.blocking == Blocking::Serialise {
                a.in_flight_queries = 1;
            }
        }
        Approach::HaloNonBlocking => {
            a.blocking = Blocking::Serialise;
            if config.workload.tables == 1 {
                a.packets_at_once = 1;
            }
        }
        // Only that a key is written concerns software.
        _ => *a = AcceleratorConfig { key: a.key, ..base.accelerator.clone() },
    }
    if a.dispatch != Dispatch::Table {
        a.dispatch_seed = 0;
    }
    config
}

/// Returns the cycles of a lookup of each run by each approach.
///
/// # Errors
/// Returns an error if a run fails.
pub(super) fn cycles(
    base: &MachineConfig,
    runs: &[RunConfig],
    approaches: &[Approach],
    effort: Effort,
) -> Result<Vec<Vec<f64>>, SimError> {
    let mut jobs: Vec<(RunConfig, Approach)> = Vec::new();
    let mut places = Vec::new();
    for config in runs {
        let place = |approach: &Approach| {
            let job = (relevant(config, base, *approach), *approach);
            jobs.iter().rposition(|known| *known == job).unwrap_or_else(|| {
                jobs.push(job);
                jobs.len() - 1
            })
        };
        places.push(approaches.iter().map(place).collect::<Vec<_>>());
    }
    let chunks: Vec<&[(RunConfig, Approach)]> = jobs.chunks(CHUNK).collect();
    let cycles = try_map(effort.threads, &chunks, |chunk| -> Result<_, SimError> {
        let mut out = Vec::new();
        for same in chunk.chunk_by(|(a, _), (b, _)| a.workload == b.workload) {
            let tables = Rc::new(tables_of(&same[0].0));
            for (config, approach) in same {
                out.push(run(config, *approach, &tables)?.cycles_per_lookup);
            }
        }
        Ok(out)
    })?;
    let cycles = cycles.concat();
    Ok(places.into_iter().map(|places| places.into_iter().map(|place| cycles[place]).collect()).collect())
}
