//! No recorder: it is for x86-64 and Linux only.

use std::process::Command;

use super::Trace;

/// A recording that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There are no such tables.
    #[error("nothing to record: {0}")]
    Tables(&'static str),
    /// The executable of this process is unknown.
    #[error("the process to record cannot be started: {0}")]
    Start(#[from] std::io::Error),
    /// The system is not supported.
    #[error("instructions are recorded on Linux and x86-64 only")]
    System,
}

/// Executes nothing.
///
/// # Errors
/// Always returns an error.
pub fn recorded<T>(_: impl FnOnce() -> T) -> Result<T, RecordError> {
    Err(RecordError::System)
}

/// Records nothing.
///
/// # Errors
/// Always returns an error.
pub fn record(_: &mut Command) -> Result<Trace, RecordError> {
    Err(RecordError::System)
}
