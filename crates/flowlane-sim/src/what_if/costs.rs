//! Energy, power and area from Table 4, for a user's rules.

use crate::config::{Approach, MachineConfig};
use crate::machine::cost::{ACCELERATOR, Cost, Outside, sram_tcam, tcam};
use crate::workload::rules::Workload;

/// Returns the energy that a core takes for a packet: its power while it works, for the packet's time. Cores that poll work
/// all the time.
pub fn core_nj(machine: &MachineConfig, ns: f64) -> f64 {
    ns * machine.core.active_mw as f64 / 1e3
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
) -> Result<Option<Cost>, Outside> {
    Ok(match approach {
        Approach::HaloBlocking | Approach::HaloNonBlocking => {
            let units = f64::from(machine.llc.slices);
            Some(Cost {
                capacity_bytes: 0.0,
                query_nj: ACCELERATOR.query_nj * queries,
                static_mw: ACCELERATOR.static_mw * units,
                area_tiles: ACCELERATOR.area_tiles * units,
            })
        }
        Approach::Tcam => Some(tcam(workload.tcam_bytes(), extrapolate)?),
        Approach::SramTcam => Some(sram_tcam(workload.tcam_bytes(), extrapolate)?),
        _ => None,
    })
}
