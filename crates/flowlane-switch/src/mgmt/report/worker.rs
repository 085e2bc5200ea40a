//! Where a packet's time goes: what each worker has done, by stage and by queue.

use serde::{Deserialize, Serialize};

use super::{DropReport, StageReport, drops, malformed, stages};
use crate::datapath::{Clock, PortCounters, Worker};

/// The counters of one worker since its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its place among the workers, from 0.
    pub worker: usize,
    /// Cycles of the time-stamp counter since it began. Those of its stages are those in which it was busy.
    pub cycles: u64,
    /// Packets that it handed over to other workers.
    pub handed_packets: u64,
    pub stages: Vec<StageReport>,
    pub queues: Vec<QueueReport>,
    /// Where time is the machine's: times from receive to send in nanoseconds, and how many packets took so long, of the rounds that
    /// were measured.
    pub latency_ns: Vec<(u64, u64)>,
    pub drops: DropReport,
}

/// A worker's queue of a port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueReport {
    /// The port's.
    pub number: u32,
    /// The port's.
    pub name: String,
    /// Cycles in which the worker was busy with what it received here.
    pub cycles: u64,
    #[serde(flatten)]
    pub counters: PortCounters,
}

impl WorkerReport {
    /// Returns the cycles in which it was busy: those of its stages.
    pub(crate) fn busy_cycles(&self) -> u64 {
        self.stages.iter().map(StageReport::cycles).sum()
    }

    /// Reports the counters of `worker`, the one at position `place`.
    pub fn of(place: usize, worker: &Worker) -> Self {
        let slots = worker.egress.ports.in_order().into_iter();
        let queue = |slot: &crate::datapath::PortSlot| QueueReport {
            number: slot.number.0,
            name: slot.name.clone(),
            cycles: slot.cycles,
            counters: slot.counters,
        };
        let times = worker.latency.times().iter_recorded();
        let latency_ns = times.map(|step| (step.value_iterated_to(), step.count_at_value()));
        Self {
            worker: place,
            cycles: worker.stages.elapsed(),
            handed_packets: worker.handed,
            stages: stages(worker),
            queues: slots.map(queue).collect(),
            latency_ns: match worker.clock() {
                Clock::Wall => latency_ns.collect(),
                Clock::Frames => Vec::new(),
            },
            drops: drops(worker, malformed(worker).iter().map(|m| m.packets).sum()),
        }
    }
}
