//! Where frames come from and go to.

#[cfg(target_os = "linux")]
pub mod afpacket;
#[cfg(target_os = "linux")]
pub mod afxdp;
pub(crate) mod claim;
pub mod r#gen;
pub mod memory;
pub mod offload;
pub mod pcap;
#[cfg(target_os = "linux")]
mod permission;
pub mod shared;
pub mod spec;
#[cfg(target_os = "linux")]
pub mod tap;

pub use r#gen::{GenConfig, GenPort, GenProfile};
pub use memory::{MemoryHandle, MemoryPort, NullPort};
pub use pcap::{PcapConfig, PcapOutPort, PcapPort};
pub use shared::SharedPort;
pub use spec::{PortSpec, XdpMode};

use std::os::fd::BorrowedFd;

use crate::packet::{Frame, Frames};

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

/// A port, or a worker's queue of one. That worker owns it; none of its calls blocks for longer than a few milliseconds.
pub trait Port: Send {
    /// Appends frames to `burst` until it is full or there are no more for now.
    ///
    /// # Errors
    /// When the port has failed for good; frames appended before that are in the burst.
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError>;

    /// From now on frames may, or may not, come with [something left to do](Frame::offload): large ones whole, checksums to be
    /// completed. A port that knows of none need not do anything.
    fn keep_offloads(&mut self, _keep: bool) {}

    /// Whether frames may be sent here with something left to do.
    fn carries_offloads(&self) -> bool {
        false
    }

    /// What is ready to be read when frames have come; none where there is no such thing: the port is asked again and again.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether what is received here is for all workers: it is to be spread over them.
    fn is_for_all(&self) -> bool {
        false
    }

    /// How many frames have come, since this was last asked, that the system could not hand over.
    fn lost(&mut self) -> u64 {
        0
    }

    /// Queues a frame for sending. Says whether it was taken; a frame that was not is counted as dropped
    /// by the caller.
    ///
    /// # Errors
    /// When the port has failed for good.
    fn send(&mut self, frame: &Frame) -> Result<bool, PortError>;

    /// Sends what is queued: called once per burst. Returns the number of queued frames that the system did
    /// not take.
    ///
    /// # Errors
    /// When the port has failed for good.
    fn flush(&mut self) -> Result<u64, PortError> {
        Ok(0)
    }

    /// Brings everything that was sent to where it goes: called once, before the switch stops.
    ///
    /// # Errors
    /// When not all of it got there.
    fn close(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Whether frames are worth sending here: false for a port that only receives.
    fn sends(&self) -> bool {
        true
    }
}
