//! Standard error: notes, warnings and failures, which are lost where it takes nothing.
//!
//! Where it is the journal's stream (`JOURNAL_STREAM`, systemd.exec(5)), each line begins with its severity (sd-daemon(3)). A daemon
//! [limits](limit_repeats) messages that repeat.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::repeats::Repeats;

/// The weight of a message, as syslog(3) has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Severity {
    Error = 3,
    Warning = 4,
    Info = 6,
}

/// The messages that repeat, where there is a limit.
static REPEATS: Mutex<Option<Repeats>> = Mutex::new(None);

/// Removes colours from a text, unless `stream` shows them.
pub(crate) fn for_terminal(stream: &impl anstream::stream::RawStream, text: String) -> String {
    match anstream::AutoStream::choice(stream) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(&text).to_string(),
        _ => text,
    }
}

/// Writes text to standard error, and goes on where that is closed or full. `eprintln!` would end the thread.
pub(crate) fn write(severity: Severity, text: &str) {
    let of_journal = is_journal().then(|| with_severity(severity, text));
    // There is no other place to report a failure.
    let _ = io::stderr().write_all(of_journal.as_deref().unwrap_or(text).as_bytes());
}

/// Writes a message as a line, unless too many of its kind were written.
pub(crate) fn say(severity: Severity, text: &str) {
    let mut repeats = REPEATS.lock().unwrap_or_else(PoisonError::into_inner);
    if repeats.as_mut().is_none_or(|repeats| repeats.admit(text, Instant::now())) {
        write(severity, &format!("{text}\n"));
    }
}

/// Limits messages that repeat from now on, until the result is dropped.
pub(crate) fn limit_repeats() -> RepeatLimit {
    *REPEATS.lock().unwrap_or_else(PoisonError::into_inner) = Some(Repeats::default());
    RepeatLimit(())
}

/// The limit of messages that repeat.
#[must_use]
pub(crate) struct RepeatLimit(());

impl Drop for RepeatLimit {
    fn drop(&mut self) {
        let repeats = REPEATS.lock().unwrap_or_else(PoisonError::into_inner).take();
        report(repeats.map(|mut repeats| repeats.end_all(Instant::now())));
    }
}

/// Reports how many messages were left out: to be called now and then.
pub(crate) fn report_left_out() {
    let mut repeats = REPEATS.lock().unwrap_or_else(PoisonError::into_inner);
    report(repeats.as_mut().map(|repeats| repeats.end_periods(Instant::now())));
}

fn report(left_out: Option<Vec<String>>) {
    left_out.iter().flatten().for_each(|text| write(Severity::Info, &format!("flowlane: {text}\n")));
}

/// Begins each line with its severity.
fn with_severity(severity: Severity, text: &str) -> String {
    let lines = text.split_inclusive('\n').filter(|line| !line.trim().is_empty());
    lines.map(|line| format!("<{}>{line}", severity as u8)).collect()
}

/// Returns whether standard error is the stream of the journal.
fn is_journal() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| std::env::var("JOURNAL_STREAM").is_ok_and(|stream| is_stream(&stream)))
}

/// Returns whether standard error is the file of this device and inode: `DEVICE:INODE`.
#[cfg(unix)]
fn is_stream(stream: &str) -> bool {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    let Some((device, inode)) = stream.split_once(':') else { return false };
    let own = io::stderr().as_fd().try_clone_to_owned().map(std::fs::File::from);
    let own = own.and_then(|own| own.metadata());
    own.is_ok_and(|own| device.parse() == Ok(own.dev()) && inode.parse() == Ok(own.ino()))
}

#[cfg(not(unix))]
fn is_stream(_: &str) -> bool {
    false
}

/// Writes a line to standard error; the arguments are those of `format!`.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::stderr::say($crate::stderr::Severity::Info, &format!($($text)*))
    };
}
pub(crate) use note;

/// Writes a warning to standard error; the arguments are those of `format!`.
macro_rules! warning {
    ($($text:tt)*) => {
        $crate::stderr::say(
            $crate::stderr::Severity::Warning,
            &format!("flowlane: warning: {}", format_args!($($text)*)),
        )
    };
}
pub(crate) use warning;

/// Writes an error to standard error; the arguments are those of `format!`.
macro_rules! error {
    ($($text:tt)*) => {
        $crate::stderr::say(
            $crate::stderr::Severity::Error,
            &format!("flowlane: {}", format_args!($($text)*)),
        )
    };
}
pub(crate) use error;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_severity() {
        assert_eq!(with_severity(Severity::Error, "one\ntwo\n\n"), "<3>one\n<3>two\n");
        assert!(!is_stream("") && !is_stream("1:2") && !is_stream("x:y"));
    }
}
