//! The counters of mirrors.

use serde::{Deserialize, Serialize};

use crate::datapath::Worker;
use crate::state::mirror::{Mirror, Mirrors};

/// The packets that a mirror has taken, by all workers, with their bytes as they were received.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MirrorReport {
    pub name: String,
    pub packets: u64,
    pub bytes: u64,
}

pub(super) fn reports(worker: &Worker) -> Vec<MirrorReport> {
    let report = |mirror: &Mirror| {
        let (packets, bytes) = mirror.counters.get();
        MirrorReport { name: mirror.settings.name.clone(), packets, bytes }
    };
    worker.egress.mirrors().into_iter().flat_map(Mirrors::iter).map(report).collect()
}
