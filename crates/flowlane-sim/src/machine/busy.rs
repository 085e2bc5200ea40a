//! Utilisation of the shared parts.

use serde::Serialize;

use super::Machine;
use crate::event::Ps;

/// The utilisation of the busiest part of each kind over the run, including the warm-up: 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Busy {
    /// The busiest accelerator.
    pub accelerator: f64,
    /// The mean of all accelerators.
    pub accelerators_mean: f64,
    /// The busiest engine next to a second-level cache.
    pub near_l2: f64,
    /// The busiest slice of the shared cache.
    pub slice: f64,
    /// The busiest link of the mesh.
    pub link: f64,
    /// The busiest memory bus.
    pub memory_bus: f64,
}

impl Machine {
    /// Returns the utilisation of the shared parts so far.
    pub fn busy(&self) -> Busy {
        let whole = self.events.now().max(1) as f64;
        let share = |ps: Ps| ps as f64 / whole;
        let (accelerators, near) = self.units.split_at(self.config.llc.slices as usize);
        let most = |units: &[super::Unit]| units.iter().map(super::Unit::busy_ps).max().unwrap_or(0);
        let all: Ps = accelerators.iter().map(super::Unit::busy_ps).sum();
        Busy {
            accelerator: share(most(accelerators)),
            accelerators_mean: share(all) / accelerators.len().max(1) as f64,
            near_l2: share(most(near)),
            slice: share(self.slices.iter().map(|slice| slice.busy_ps).max().unwrap_or(0)),
            link: share(self.mesh.busiest_ps()),
            memory_bus: share(self.dram.buses_ps().max().unwrap_or(0)),
        }
    }
}
