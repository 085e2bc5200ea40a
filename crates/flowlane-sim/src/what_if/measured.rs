//! Measurements on the host, supplied by the caller, since the simulator has no clock.

use serde::Serialize;

use crate::config::Approach;
use crate::host_calibration::Disturbed;

/// A measured lookup method.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measurement {
    pub name: String,
    /// Whether packets were looked up one by one instead of in batches.
    pub single: bool,
    /// The nanoseconds of a packet: first quartile, median, third quartile.
    pub ns: [f64; 3],
    /// The build time of the table, in milliseconds.
    pub build_ms: f64,
    /// The size of the table.
    pub bytes: usize,
    /// The time to remove and insert a rule, in microseconds, if measured.
    pub update_us: Option<f64>,
    /// The approach that simulates the same lookups.
    pub simulated_as: Option<Approach>,
}

impl Measurement {
    /// Returns the millions of packets a second on one core.
    pub fn millions_per_second(&self) -> f64 {
        1000.0 / self.ns[1]
    }
}

/// All measurements; empty if nothing was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measured {
    pub cpu: String,
    /// The nanoseconds of a core cycle during the measurements, if known. The time-stamp counter runs at its own
    /// rate.
    pub cycle_ns: Option<f64>,
    /// The disturbance by other processes, if examined.
    pub disturbed: Option<Disturbed>,
    /// Measurements with the user's rules.
    pub base: Vec<Measurement>,
    /// Measurements for each of [`Plan::sizes`](super::Plan::sizes).
    pub sizes: Vec<Vec<Measurement>>,
    /// Measurements for each of [`Plan::masks`](super::Plan::masks).
    pub masks: Vec<Vec<Measurement>>,
    /// The time to remove and insert a key of an exact-match table, in microseconds: the cost of a change for lookups
    /// in such tables.
    pub exact_update_us: Option<f64>,
}

/// Returns the fastest of several measurements.
pub fn fastest<'a>(of: impl IntoIterator<Item = &'a Measurement>) -> Option<&'a Measurement> {
    of.into_iter().min_by(|a, b| a.ns[1].total_cmp(&b.ns[1]))
}

impl Measured {
    /// Returns a measurement's quartiles in cycles of the core; `None` if the length of a cycle is unknown.
    pub fn cycles(&self, of: &Measurement) -> Option<[f64; 3]> {
        self.cycle_ns.map(|cycle| of.ns.map(|ns| ns / cycle))
    }

    /// Returns the fastest measurement.
    pub fn best(&self) -> Option<&Measurement> {
        fastest(&self.base)
    }

    /// Returns the fastest measurement that looks up packets one by one.
    pub fn best_single(&self) -> Option<&Measurement> {
        fastest(self.base.iter().filter(|m| m.single))
    }
}
