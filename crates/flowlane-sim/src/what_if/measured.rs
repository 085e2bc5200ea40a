//! What was measured on the machine at hand, as whoever measured it hands it over: the simulator has no clock.

use serde::Serialize;

use crate::config::Approach;
use crate::host_calibration::Disturbed;

/// A way of looking up that was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measurement {
    pub name: String,
    /// Whether packets were looked up one by one, and not in batches.
    pub single: bool,
    /// Nanoseconds a packet: a quarter, half, three quarters of the rounds took less.
    pub ns: [f64; 3],
    /// How long it took to build the table, in milliseconds.
    pub build_ms: f64,
    /// Bytes of the table.
    pub bytes: usize,
    /// A rule removed and inserted again, in microseconds; none where it was not measured.
    pub update_us: Option<f64>,
    /// The approach that simulates the same lookups.
    pub simulated_as: Option<Approach>,
}

impl Measurement {
    /// Millions of packets a second, of one core.
    pub fn millions_per_second(&self) -> f64 {
        1000.0 / self.ns[1]
    }
}

/// Everything that was measured. Empty where nothing was.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measured {
    pub cpu: String,
    /// Nanoseconds of a cycle of the core, taken meanwhile; none where it was not. The time-stamp counter has its own pace.
    pub cycle_ns: Option<f64>,
    /// By how much others disturbed it, where that was looked at.
    pub disturbed: Option<Disturbed>,
    /// With the rules that were asked about.
    pub base: Vec<Measurement>,
    /// For each of [`Plan::sizes`](super::Plan::sizes).
    pub sizes: Vec<Vec<Measurement>>,
    /// For each of [`Plan::masks`](super::Plan::masks).
    pub masks: Vec<Vec<Measurement>>,
    /// A key of an exact-match table removed and inserted again, in microseconds: what a change costs whoever looks up in
    /// such tables.
    pub exact_update_us: Option<f64>,
}

/// The fastest of some measurements.
pub fn fastest<'a>(of: impl IntoIterator<Item = &'a Measurement>) -> Option<&'a Measurement> {
    of.into_iter().min_by(|a, b| a.ns[1].total_cmp(&b.ns[1]))
}

impl Measured {
    /// Cycles of the core that something took: quartiles; none where nobody knows how long a cycle is.
    pub fn cycles(&self, of: &Measurement) -> Option<[f64; 3]> {
        self.cycle_ns.map(|cycle| of.ns.map(|ns| ns / cycle))
    }

    /// The fastest of all.
    pub fn best(&self) -> Option<&Measurement> {
        fastest(&self.base)
    }

    /// The fastest that looks packets up one by one.
    pub fn best_single(&self) -> Option<&Measurement> {
        fastest(self.base.iter().filter(|m| m.single))
    }
}
