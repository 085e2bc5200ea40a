//! Where frames come from and go to.

pub mod r#gen;

pub use r#gen::{GenConfig, GenPort, GenProfile};

use crate::frame::{Burst, Frame};

/// What [`Port::receive`] says beside the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// There may be more at once.
    More,
    /// Nothing now; more may come.
    Idle,
    /// Nothing now and never again: the end of a capture.
    Finished,
}

/// Why a port could not be opened or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The port's specification is not understood.
    #[error("port `{spec}`: {problem}")]
    Spec {
        /// As given.
        spec: String,
        /// What is wrong and how to mend it.
        problem: String,
    },
    /// A file could not be opened, read or written.
    #[error("port `{spec}`: {source}")]
    Io {
        /// As given.
        spec: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A capture file's content is wrong.
    #[error("port `{spec}`: {problem}")]
    Capture {
        /// As given.
        spec: String,
        /// What is wrong, and where in the file.
        problem: String,
    },
    /// The system refuses what the port needs: permission, interface, kernel support.
    #[error("port `{spec}`: {problem}")]
    Environment {
        /// As given.
        spec: String,
        /// What is missing and how to get it.
        problem: String,
    },
}

/// A port. One worker owns it; none of its calls blocks for longer than a few milliseconds.
pub trait Port: Send {
    /// Appends frames to `burst` until it is full or there are no more for now.
    ///
    /// # Errors
    /// When the port has failed for good; frames appended before that are in the burst.
    fn receive(&mut self, burst: &mut Burst) -> Result<Received, PortError>;

    /// Queues a frame for sending. Says whether it was taken; a frame that was not is counted as dropped
    /// by the caller.
    ///
    /// # Errors
    /// When the port has failed for good.
    fn send(&mut self, frame: &Frame) -> Result<bool, PortError>;

    /// Sends what is queued: called once per burst, and before the switch stops. Returns the number of
    /// queued frames that the system did not take.
    ///
    /// # Errors
    /// When the port has failed for good.
    fn flush(&mut self) -> Result<u64, PortError> {
        Ok(0)
    }

    /// Whether frames are worth sending here: false for a port that only receives.
    fn sends(&self) -> bool {
        true
    }
}
