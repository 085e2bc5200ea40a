//! Measurements on the host, supplied by the caller, since the simulator has no clock.

use std::sync::Arc;

use serde::Serialize;

use crate::config::MachineConfig;
use crate::host_calibration::Disturbed;
use crate::trace::Trace;

/// A measured lookup method.
#[derive(Clone, Debug, Serialize)]
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
    /// Calls with few packets, ascending by their number.
    pub calls: Vec<Call>,
    /// The millions of packets a second of several threads, each on a core of its own.
    pub threads: Vec<(u32, f64)>,
    /// The recorded instructions, if the system allows it.
    #[serde(skip)]
    pub recording: Option<Arc<Trace>>,
}

/// The measured time of calls that look up a number of packets.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Call {
    pub packets: u32,
    /// Quantiles of the nanoseconds, ascending and evenly spaced.
    pub ns: Vec<f64>,
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
    /// The machine that was fitted to the host; `None` if it was not.
    pub host: Option<MachineConfig>,
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
    /// The reason why no lookups were recorded, if any.
    pub not_recorded: Option<String>,
    /// The reason why no GPU was measured, if any.
    pub no_gpu: Option<String>,
}

impl Measured {
    /// Returns a measurement's quartiles in cycles of the core; `None` if the length of a cycle is unknown.
    pub fn cycles(&self, of: &Measurement) -> Option<[f64; 3]> {
        self.cycle_ns.map(|cycle| of.ns.map(|ns| ns / cycle))
    }
}
