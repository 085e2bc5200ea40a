//! Energy, power and area from Table 4, for a user's rules.

use serde::Serialize;

use crate::config::{Approach, MachineConfig};
use crate::machine::cost::{ACCELERATOR, Cost, Outside, sram_tcam, tcam};
use crate::workload::rules::Workload;

/// The cost of a device.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Energy {
    /// The energy of a packet's queries, in nJ.
    pub query_nj: f64,
    /// The static power, in mW.
    pub static_mw: f64,
    /// The area, in tiles.
    pub area_tiles: f64,
}

impl Energy {
    /// Returns the energy of a packet at a rate, including its share of the static power.
    pub fn whole_nj(&self, packets_per_second: f64) -> f64 {
        self.query_nj + self.static_mw * 1e6 / packets_per_second
    }

    fn of(cost: Cost) -> Self {
        Self { query_nj: cost.query_nj, static_mw: cost.static_mw, area_tiles: cost.area_tiles }
    }
}

/// Returns the cost of an approach with a number of queries a packet; `None` if Table 4 does not cover its kind.
///
/// # Errors
/// Returns an error if the rules need a capacity outside Table 4 and extrapolation is not requested.
pub fn energy(
    approach: Approach,
    queries: f64,
    machine: &MachineConfig,
    workload: &Workload,
    extrapolate: bool,
) -> Result<Option<Energy>, Outside> {
    Ok(match approach {
        Approach::HaloBlocking | Approach::HaloNonBlocking => {
            let units = f64::from(machine.llc.slices);
            Some(Energy {
                query_nj: ACCELERATOR.query_nj * queries,
                static_mw: ACCELERATOR.static_mw * units,
                area_tiles: ACCELERATOR.area_tiles * units,
            })
        }
        Approach::Tcam => Some(Energy::of(tcam(workload.tcam_bytes(), extrapolate)?)),
        Approach::SramTcam => Some(Energy::of(sram_tcam(workload.tcam_bytes(), extrapolate)?)),
        _ => None,
    })
}
