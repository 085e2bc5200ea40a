//! Calibration on Figure 10's bars with the table in the shared cache, and on no other statement.
//!
//! The text gives four ratios: HALO computes in 48.1 % less time, fetches 4.1 times faster, is 3.3 times faster as a
//! whole, and software's lock takes 13.1 %. They have one solution: of software's time, 33 % is computing, 54 % data
//! and 13 % lock; the accelerator takes 17 % and 13 % of software's time. Four numbers of the machine correspond to
//! them: the instructions of the lock, the base CPI, the accelerator's fixed cycles, and the cycles between a CHA and
//! its slice.

use super::figure10::bars;
use crate::config::{Approach, MachineConfig, Preset};
use crate::machine::SimError;
use crate::perturb::number;
use crate::report::Effort;
use crate::search::least;

/// Shares of software's time: software's data and lock, the accelerator's computing and data.
pub(super) const SOFTWARE_DATA: f64 = 0.54;
const LOCK: f64 = 0.131;
pub(super) const HALO_COMPUTE: f64 = 0.171;
pub(super) const HALO_DATA: f64 = 0.132;

/// The keys of the calibrated numbers.
pub const CALIBRATED: [&str; 4] = [
    "core.base_cpi_milli",
    "software.lock_instructions",
    "accelerator.fixed_cycles",
    "accelerator.slice_cycles",
];

/// Returns the calibrated numbers of a machine, in the order of [`CALIBRATED`].
pub fn calibrated(machine: &MachineConfig) -> [u64; 4] {
    CALIBRATED.map(|key| number(machine, key).expect("the keys are numbers"))
}

/// Returns whether a machine has one of the four calibrated numbers, in which case its bars of Figure 10 are not
/// predictions.
pub(super) fn is_calibrated(machine: &MachineConfig) -> bool {
    calibrated(machine).into_iter().zip(calibrated(&Preset::Paper.machine())).any(|(its, found)| its == found)
}

/// Calibrates a machine, and returns its calibrated numbers.
///
/// # Errors
/// Returns an error if a run fails.
pub fn calibrate(machine: &MachineConfig, effort: Effort) -> Result<[u64; 4], SimError> {
    let mut machine = machine.clone();
    // A fixed starting point, so that the result does not depend on earlier calibrations.
    machine.software.lock_instructions = 57;
    machine.accelerator.fixed_cycles = 9;
    for _ in 0..2 {
        let base = least(120, 3000, |cpi| {
            machine.core.base_cpi_milli = cpi;
            let software = bars(&machine, effort, Approach::Software, false)?;
            Ok(software.data <= SOFTWARE_DATA * software.total())
        })?;
        machine.core.base_cpi_milli = base;
        let lock = least(1, machine.software.instructions.into(), |instructions| {
            machine.software.lock_instructions = instructions as u32;
            let software = bars(&machine, effort, Approach::Software, false)?;
            Ok(software.lock >= LOCK * software.total())
        })?;
        machine.software.lock_instructions = lock as u32;
    }
    let software = bars(&machine, effort, Approach::Software, false)?.total();
    let slice = least(1, 100, |cycles| {
        machine.accelerator.slice_cycles = cycles;
        Ok(bars(&machine, effort, Approach::HaloBlocking, false)?.data >= HALO_DATA * software)
    })?;
    machine.accelerator.slice_cycles = slice;
    machine.accelerator.fixed_cycles = least(0, 200, |cycles| {
        machine.accelerator.fixed_cycles = cycles;
        Ok(bars(&machine, effort, Approach::HaloBlocking, false)?.compute >= HALO_COMPUTE * software)
    })?;
    Ok(calibrated(&machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_9_follows_from_the_targets_of_the_calibration() {
        assert!((1.0 / (HALO_COMPUTE + HALO_DATA) - 3.3).abs() < 0.01);
    }

    #[test]
    fn a_machine_with_one_calibrated_number_is_a_calibrated_one() {
        assert!(is_calibrated(&Preset::Paper.machine()));
        // The accelerator is the paper's on a real Skylake, too; the core is not.
        let mut machine = Preset::SkylakeSp.machine();
        assert!(is_calibrated(&machine));
        assert_ne!(machine.core.base_cpi_milli, Preset::Paper.machine().core.base_cpi_milli);
        machine.software.lock_instructions += 1;
        machine.accelerator.fixed_cycles += 1;
        machine.accelerator.slice_cycles += 1;
        assert!(!is_calibrated(&machine));
    }
}
