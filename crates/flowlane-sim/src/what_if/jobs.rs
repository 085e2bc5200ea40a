//! Parallel runs.

use std::sync::Arc;

use super::run::{Outcome, Run};
use crate::config::{Approach, MachineConfig};
use crate::machine::SimError;
use crate::report::Effort;
use crate::workload::rules::Workload;
use crate::{parallel, workload};

/// The approximate number of table lookups of a run; approaches that visit fewer tables get more packets.
const LOOKUPS: u64 = 40_000;
const LOOKUPS_QUICK: u64 = 1500;
/// Some software looks up packets in batches of this size.
const BATCH: u64 = workload::BATCH as u64;

/// A planned run.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) machine: Arc<MachineConfig>,
    pub(super) workload: Arc<Workload>,
    pub(super) approach: Approach,
    /// Flows of a cache in front; 0 for none.
    pub(super) cache_flows: usize,
    pub(super) cores: u32,
    pub(super) update_pause: Option<u32>,
}

impl Job {
    pub(super) fn new(
        machine: &Arc<MachineConfig>,
        workload: &Arc<Workload>,
        approach: Approach,
        cache_flows: usize,
    ) -> Self {
        let (machine, workload) = (machine.clone(), workload.clone());
        Self { machine, workload, approach, cache_flows, cores: 1, update_pause: None }
    }

    /// Returns the number of counted packets of each core.
    fn packets(&self, effort: Effort) -> u64 {
        let lookups = match (effort.quick, self.cache_flows) {
            (true, _) => LOOKUPS_QUICK,
            (false, 0) => LOOKUPS,
            // If a flow cache knows most packets, the result must not depend on a few others.
            (false, _) => 4 * LOOKUPS,
        };
        let tables = self.workload.tables.len() as u64;
        let least = if effort.quick { BATCH } else { 2 * BATCH };
        let packets = (lookups / tables / u64::from(self.cores)).clamp(least, 4096);
        packets.next_multiple_of(BATCH)
    }
}

/// Executes runs; `watch` receives the number of finished ones.
pub(super) fn simulate(
    jobs: &[Job],
    effort: Effort,
    watch: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Outcome>, SimError> {
    let work = |n: usize| {
        let job = &jobs[n];
        let packets = job.packets(effort);
        let run = Run {
            machine: &job.machine,
            workload: &job.workload,
            approach: job.approach,
            packets,
            warm_up: (packets / 2).next_multiple_of(BATCH),
            cores: job.cores,
            cache_flows: job.cache_flows,
            update_pause: job.update_pause,
            seed: effort.seed,
        };
        run.simulate()
    };
    parallel::run(effort.threads, jobs.len(), watch, &work).into_iter().collect()
}
