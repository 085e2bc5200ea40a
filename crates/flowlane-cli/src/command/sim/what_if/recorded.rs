//! The instructions of each method's lookups, recorded in another process of this program.

use std::process::{Command, Stdio};
use std::sync::Arc;

use flowlane_sim::trace::{self, RecordError, Trace};
use flowlane_sim::what_if::Measurement;
use flowlane_sim::workload::rules::Workload;
use indicatif::ProgressBar;

use super::field::Field;
use crate::failure::Failure;

/// The approximate number of instructions of a recording, and those in a cycle.
const INSTRUCTIONS: f64 = 150_000.0;
const PER_CYCLE: f64 = 1.5;
/// Packets of a recording: one by one, enough for a mean, and else a multiple of a call's.
const PACKETS_MIN: usize = 64;
const PACKETS: usize = 256;
const PACKETS_MAX: usize = 4096;
const PACKETS_QUICK: usize = 16;

/// Records all methods, but those of devices.
///
/// # Errors
/// Returns an error if the system refuses to trace a process, or if the inputs cannot be read again.
pub(super) fn record(
    of: &mut [Measurement],
    cycle_ns: f64,
    quick: bool,
    bar: &ProgressBar,
) -> Result<(), RecordError> {
    for m in of.iter_mut().filter(|m| !m.name.starts_with("GPU")) {
        bar.set_message(format!("recording {}", m.name));
        let packets = (INSTRUCTIONS / (m.ns[1] / cycle_ns * PER_CYCLE)) as usize;
        let least = if m.single { PACKETS_MIN } else { PACKETS };
        let packets = packets.clamp(least, PACKETS_MAX).next_multiple_of(least);
        let packets = if quick { PACKETS_QUICK } else { packets };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).stdin(Stdio::null()).stdout(Stdio::null());
        command.args(["--recorded", &m.name, &packets.to_string()]);
        let trace = trace::record(&mut command)?;
        m.recording = Some(Arc::new(Trace { lookups: packets as u64, ..trace }));
    }
    Ok(())
}

/// Looks up packets by a method under a recorder, in the process that it started.
pub(super) fn look_up(method: &str, packets: &str, workload: &Workload) -> Result<(), Failure> {
    let field = Field::all(workload);
    let candidate = field.candidates.iter().find(|candidate| candidate.name == method);
    let (Some(candidate), Ok(count)) = (candidate, packets.parse::<usize>()) else {
        return Err(Failure::input(format!("--recorded {method} {packets}: no such lookups")));
    };
    let table = &field.tables[candidate.table].0;
    let all = workload.packets.len();
    let near: Vec<_> = workload.packets.iter().cycle().take(count).cloned().collect();
    // Those that precede them, so that caches are as the traffic leaves them.
    let before: Vec<_> =
        workload.packets.iter().cycle().skip(all - count % all).take(count).cloned().collect();
    let mut found = vec![None; count];
    for keys in [&near, &before] {
        table.look_up(keys, candidate.single, &mut found);
    }
    trace::recorded(|| table.look_up(&near, candidate.single, &mut found))
        .map_err(|e| Failure::Environment(e.to_string()))
}
