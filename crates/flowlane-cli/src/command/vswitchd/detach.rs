//! Running in the background: this process starts itself again, waits until that one is ready, and returns.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::failure::Failure;

/// Set in the process that runs in the background.
const VARIABLE: &str = "FLOWLANE_DETACHED";
/// The word by which it says that it is ready.
const READY: &[u8] = b"ready\n";

/// Returns whether this process is the one in the background.
pub(super) fn is_detached() -> bool {
    std::env::var_os(VARIABLE).as_deref() == Some(OsStr::new("1"))
}

/// Returns this program with the same arguments, and a variable for it.
pub(super) fn again(variable: &str) -> io::Result<Command> {
    let mut own = Command::new(std::env::current_exe()?);
    own.args(std::env::args_os().skip(1)).env(variable, "1");
    Ok(own)
}

/// Starts a process, and waits until it says that it is ready, or ends. Returns whether it is.
pub(super) fn start_until_ready(process: &mut Command) -> io::Result<(Child, bool)> {
    let mut child = process.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut said = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut said)?;
    }
    Ok((child, said == READY))
}

/// Ends this process as the other one has, which has said why.
pub(super) fn end_as(status: ExitStatus) -> ! {
    std::process::exit(status.code().filter(|code| *code != 0).unwrap_or(3));
}

/// Starts the process in the background, and waits until it is ready. It ends this process with its exit code where it fails.
pub(super) fn start() -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Environment(format!("cannot run in the background: {error}"));
    let started = again(VARIABLE).and_then(|mut own| start_until_ready(&mut own));
    let (mut child, is_ready) = started.map_err(failed)?;
    if is_ready {
        return Ok(());
    }
    end_as(child.wait().map_err(failed)?)
}

/// Makes this process one of its own session.
pub(super) fn leave_session() {
    // It is refused to the leader of a session only, which this process is then already.
    _ = rustix::process::setsid();
}

/// Says that this process is ready, and lets go of what its parent has given it: its output, and unless it stays the working directory.
pub(super) fn ready(stays: bool) {
    // The command returns when its output is let go of: from then on nothing holds the folder.
    if !stays {
        _ = std::env::set_current_dir("/");
    }
    let mut stdout = io::stdout();
    // Without a parent it runs on all the same.
    _ = stdout.write_all(READY).and_then(|()| stdout.flush());
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        _ = rustix::stdio::dup2_stdout(&null);
        _ = rustix::stdio::dup2_stderr(&null);
    }
}
