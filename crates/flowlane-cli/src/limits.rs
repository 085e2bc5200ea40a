//! Limits of the process: those that would end it without a message, and the names of those that an error comes from.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, getrlimit};
use signal_hook::consts::SIGXFSZ;

/// The stack that every command has enough of: at opt-level 1, 256 KiB are enough, and 128 KiB overflow.
const STACK_BYTES_MIN: u64 = 512 << 10;

/// Checks the limit of the stack, and turns a file that reaches its limit into an error of writing.
///
/// # Errors
/// Where the stack would overflow.
pub(crate) fn prepare() -> Result<(), String> {
    if let Some(stack) = getrlimit(Resource::Stack).current.filter(|stack| *stack < STACK_BYTES_MIN) {
        return Err(format!(
            "the limit of the stack is {} KiB; raise it to {} (`ulimit -s`)",
            stack >> 10,
            STACK_BYTES_MIN >> 10
        ));
    }
    // A handler is enough: the signal no longer ends the process. Without one, it would.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    Ok(())
}

/// Returns the limit that an error message of the system comes from, as a suggestion to append to the message.
pub(crate) fn suggestion(message: &str) -> &'static str {
    match () {
        () if message.contains("(os error 24)") => "; raise the limit of open files (`ulimit -n`)",
        () if message.contains("(os error 11)") => {
            "; raise the limit of processes (`ulimit -u`) or of memory (`ulimit -v`)"
        }
        () if message.contains("(os error 12)") => "; raise the limit of memory (`ulimit -v`)",
        () if message.contains("(os error 27)") => "; raise the limit of file sizes (`ulimit -f`)",
        () => "",
    }
}
