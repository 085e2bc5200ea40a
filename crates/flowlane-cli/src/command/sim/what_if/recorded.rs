//! The instructions of each method's lookups, recorded in another process of this program.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use flowlane_sim::config::{Preset, RunConfig};
use flowlane_sim::trace::{self, RecordError, Trace};
use flowlane_sim::what_if::{Measured, Measurement};
use flowlane_sim::workload::rules::Workload;
use indicatif::ProgressBar;

use super::super::{record, replay};
use super::field::{Field, Headers};
use crate::failure::Failure;

/// The approximate number of instructions of a recording, the most, and those in a cycle.
const INSTRUCTIONS: f64 = 150_000.0;
const INSTRUCTIONS_MAX: f64 = 2_000_000.0;
const PER_CYCLE: f64 = 2.0;
/// Packets of a recording, at least and at most, and the packets of a call, of which many are a multiple.
const PACKETS_MIN: usize = 64;
const PACKETS_MAX: usize = 4096;
const CALL: usize = 256;
const PACKETS_QUICK: usize = 16;

/// Records all methods, but those of devices.
///
/// # Errors
/// Returns an error if the system refuses to trace a process, or if the inputs cannot be read again.
pub(super) fn record_all(
    of: &mut [Measurement],
    cycle_ns: f64,
    quick: bool,
    bar: &ProgressBar,
) -> Result<(), RecordError> {
    if std::env::args_os().any(|argument| argument == "-" || argument.as_encoded_bytes().ends_with(b"=-")) {
        return Err(RecordError::Tables(
            "rules or packets came from standard input, which cannot be read again",
        ));
    }
    for m in of.iter_mut().filter(|m| !m.name.starts_with("GPU")) {
        bar.set_message(format!("recording {}", m.name));
        let each = m.ns[1] / cycle_ns * PER_CYCLE;
        let most = ((INSTRUCTIONS_MAX / each) as usize).max(1);
        let packets = ((INSTRUCTIONS / each) as usize).clamp(PACKETS_MIN, PACKETS_MAX).min(most);
        let packets = match packets {
            _ if quick => PACKETS_QUICK.min(most),
            few if few < CALL / 2 => few,
            many => many.next_multiple_of(CALL),
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).stdin(Stdio::null()).stdout(Stdio::null());
        command.args(["--recorded", &m.name, &packets.to_string()]);
        let trace = trace::record(&mut command)?;
        m.recording = Some(Arc::new(Trace { lookups: packets as u64, bytes: m.bytes as u64, ..trace }));
    }
    Ok(())
}

/// Writes the recordings, their measured cycles and the machine to a folder for `sim replay`.
///
/// # Errors
/// Returns an error if nothing was recorded, or if a file cannot be written.
pub(super) fn write(folder: &Path, measured: &Measured) -> Result<(), Failure> {
    if let Some(refused) = &measured.not_recorded {
        return Err(Failure::Environment(refused.clone()));
    }
    let mut list = String::from(replay::MEASURED_HEAD);
    for m in &measured.base {
        let (Some(trace), Some([_, cycles, _])) = (&m.recording, measured.cycles(m)) else { continue };
        let name = format!("{}.trace", m.name.replace(", ", "-").replace(' ', "-"));
        record::write(trace, &folder.join(&name))?;
        let _ = writeln!(list, "{name},{cycles:.2}");
    }
    let preset = Preset::nearest();
    let machine = measured.host.clone().unwrap_or_else(|| preset.machine());
    replay::write_list(folder, &list, &RunConfig { machine, ..RunConfig::on(preset) }.text())
}

/// Looks up packets by a method under a recorder, in the process that it started.
pub(super) fn look_up(
    method: &str,
    packets: &str,
    workload: &Workload,
    headers: Option<&Headers>,
) -> Result<(), Failure> {
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
    table.look_up(&before, headers, candidate.single, &mut found);
    trace::recorded(|| table.look_up(&near, headers, candidate.single, &mut found))
        .map_err(|e| Failure::Environment(e.to_string()))
}
