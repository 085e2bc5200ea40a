//! How busy the shared parts were: the first thing to look at where something is slow.

use serde::Serialize;

use super::Machine;
use crate::event::Ps;

/// Shares of a run's time, warm-up included, in which the busiest part of each kind was busy: 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Busy {
    /// The busiest accelerator had a query to work on.
    pub accelerator: f64,
    /// All accelerators, in the mean.
    pub accelerators_mean: f64,
    /// The busiest engine beside a second cache had one.
    pub near_l2: f64,
    /// The busiest slice of the shared cache began a request.
    pub slice: f64,
    /// The busiest link of the mesh carried flits.
    pub link: f64,
    /// The busiest bus of memory carried a line.
    pub memory_bus: f64,
}

impl Machine {
    /// How busy the shared parts were until now.
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
            memory_bus: share(self.dram.busiest_ps()),
        }
    }
}
