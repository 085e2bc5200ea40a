//! State of other processes: of the switch whose place is taken, and of the file.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowlane_switch::control::Control;
use flowlane_switch::datapath::Worker;
use flowlane_switch::mgmt::rpc::{CallError, ControlServer, RpcError, TakeOver, Unconfirmed};
use flowlane_switch::mgmt::saved::{Restored, SavedFile, StateFile};
use flowlane_switch::mgmt::setup::{Reload, Setup, SetupError};

use crate::failure::Failure;
use crate::output::count;
use crate::stderr::{note, warning};

/// Interval at which saving looks whether the run has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// Finds the switch whose place is to be taken; none if no switch runs there.
pub(super) fn find_other(path: &Path, setup: &Setup) -> Result<Option<TakeOver>, Failure> {
    match TakeOver::connect(path) {
        Ok(other) => {
            setup.check_take_over().map_err(SetupError::from)?;
            Ok(Some(other))
        }
        Err(CallError::Io(error))
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
        {
            note!("flowlane: no switch runs on {}: there is none to take over", path.display());
            Ok(None)
        }
        Err(CallError::Rpc(error)) if error.code == RpcError::METHOD => {
            let message =
                format!("the switch on {} is of a version that cannot be taken over", path.display());
            Err(Failure::Environment(message))
        }
        Err(error) => Err(Failure::Environment(format!("{}: {error}", path.display()))),
    }
}

/// Asks the other switch to stop and to hand over its state.
pub(super) fn stop_other(other: &mut TakeOver) -> Result<(), Failure> {
    let process = other.process();
    let failed = |error| Failure::Environment(format!("process {process} does not hand over: {error}"));
    other.begin().map_err(failed)
}

/// Takes over the state of the other switch.
pub(super) fn restore_other(
    other: TakeOver,
    workers: &mut [Worker],
    control: &mut Control,
    reload: &Reload,
) -> Result<Unconfirmed, Failure> {
    let process = other.process();
    let failed =
        |error| Failure::Environment(format!("the state of process {process} is not taken over: {error}"));
    let (restored, unconfirmed) = other.restore(workers, control, reload).map_err(failed)?;
    note!("flowlane: taken over from process {process}: {}", numbers(&restored));
    Ok(unconfirmed)
}

/// Reads and checks the file of state. One that is of no use is reported, and not used.
pub(super) fn read(file: &StateFile) -> Option<SavedFile> {
    file.read().unwrap_or_else(|error| {
        warning!("the saved state is not used: {error}");
        None
    })
}

/// Restores the state of a file, if it is of a switch with the same ports and stages.
pub(super) fn restore_file(saved: SavedFile, workers: &mut [Worker]) -> Result<(), Failure> {
    if let Err(error) = saved.check_shape(&workers[0]) {
        warning!("the saved state is not used: {error}");
        return Ok(());
    }
    let (restored, _) =
        saved.restore(workers, None).map_err(|error| Failure::Environment(error.to_string()))?;
    note!("flowlane: restored: {}", numbers(&restored));
    Ok(())
}

fn numbers(restored: &Restored) -> String {
    let Restored { connections, addresses, sessions, rules, routes, left_out } = *restored;
    let parts = [
        (connections, "connections"),
        (addresses, "addresses"),
        (sessions, "sessions"),
        (rules, "rules, groups and meters"),
        (routes, "routes"),
        (left_out, "left out, which have expired or do not fit"),
    ];
    let parts = parts.into_iter().filter(|(number, what)| *number > 0 || *what == "connections");
    parts.map(|(number, what)| format!("{} {what}", count(number))).collect::<Vec<_>>().join(", ")
}

/// Saves the state again and again, until the run has ended.
pub(super) fn save(file: &StateFile, served: &ControlServer, ended: &AtomicBool) {
    let is_over = || ended.load(Ordering::Relaxed);
    let (mut saved, mut problem) = (Instant::now(), String::new());
    while !is_over() {
        if saved.elapsed() < file.every {
            std::thread::sleep(PAUSE.min(file.every));
            continue;
        }
        saved = Instant::now();
        let now =
            file.write(&mut &*served, &is_over).err().map_or_else(String::new, |error| error.to_string());
        // One that lasts is reported once.
        if now != problem && !now.is_empty() && !is_over() {
            warning!("state is not saved: {now}");
        }
        problem = now;
    }
}
