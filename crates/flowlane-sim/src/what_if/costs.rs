//! Energy, power and area: Table 4 for what somebody's rules need.

use serde::Serialize;

use crate::config::{Approach, MachineConfig};
use crate::machine::cost::{ACCELERATOR, Cost, Outside, sram_tcam, tcam};
use crate::workload::rules::Workload;

/// What a device takes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Energy {
    /// Energy of a packet's queries, in nJ.
    pub query_nj: f64,
    /// Power of doing nothing, in mW.
    pub static_mw: f64,
    /// Area, in tiles.
    pub area_tiles: f64,
}

impl Energy {
    /// Energy of a packet where so many come in a second, with the power of doing nothing shared among them.
    pub fn whole_nj(&self, packets_per_second: f64) -> f64 {
        self.query_nj + self.static_mw * 1e6 / packets_per_second
    }

    fn of(cost: Cost) -> Self {
        Self { query_nj: cost.query_nj, static_mw: cost.static_mw, area_tiles: cost.area_tiles }
    }
}

/// What an approach takes with so many queries a packet; none where Table 4 says nothing of its kind.
///
/// # Errors
/// Where the rules need another capacity than Table 4 has, and nobody asked to extrapolate.
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
