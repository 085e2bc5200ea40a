//! A process that watches the daemon, and starts it again when it crashes (ovs-vswitchd(8), `--monitor`).

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::detach;
use crate::failure::Failure;

/// Set in the process that is watched.
const VARIABLE: &str = "FLOWLANE_MONITORED";
/// The least time between two starts, as in Open vSwitch: a daemon that fails at once must not use up the machine.
const PAUSE: Duration = Duration::from_secs(10);
/// The exit code of a program of Rust that has panicked.
const PANICKED: i32 = 101;
/// The signals of a crash.
const CRASH_SIGNALS: [Signal; 9] = [
    Signal::ABORT,
    Signal::ALARM,
    Signal::BUS,
    Signal::FPE,
    Signal::ILL,
    Signal::PIPE,
    Signal::SEGV,
    Signal::XCPU,
    Signal::XFSZ,
];

/// Returns whether this process is the one that is watched.
pub(super) fn is_monitored() -> bool {
    std::env::var_os(VARIABLE).as_deref() == Some(OsStr::new("1"))
}

fn is_crash(status: ExitStatus) -> bool {
    let is_signal = |number| CRASH_SIGNALS.iter().any(|signal| signal.as_raw() == number);
    status.code() == Some(PANICKED) || status.signal().is_some_and(is_signal)
}

/// Watches the daemon until it ends without a crash, and ends this process with its exit code. In the background, `ready` is
/// called when the daemon is ready; `say` is for the log.
pub(super) fn run(in_background: bool, ready: impl Fn(), say: impl Fn(&str)) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Environment(format!("cannot start the daemon: {error}"));
    // The program of this path then, which may be a newer one.
    let mut daemon = detach::again(VARIABLE).map_err(failed)?;
    let mut begun = Instant::now();
    let mut child = if in_background {
        let (mut child, is_ready) = detach::start_until_ready(&mut daemon).map_err(failed)?;
        if !is_ready {
            detach::end_as(child.wait().map_err(failed)?);
        }
        ready();
        daemon.stdout(Stdio::null());
        child
    } else {
        daemon.spawn().map_err(failed)?
    };
    loop {
        let status = child.wait().map_err(failed)?;
        if !is_crash(status) {
            return match status.success() {
                true => Ok(()),
                false => detach::end_as(status),
            };
        }
        say(&format!("the daemon (pid {}) has ended ({status}), and is started again", child.id()));
        std::thread::sleep(PAUSE.saturating_sub(begun.elapsed()));
        begun = Instant::now();
        child = daemon.spawn().map_err(failed)?;
    }
}
