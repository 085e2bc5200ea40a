//! Ports: devices and files that frames are received from and sent to.

#[cfg(target_os = "linux")]
pub mod afpacket;
#[cfg(target_os = "linux")]
pub mod afxdp;
#[cfg(target_os = "linux")]
pub(crate) mod device;
#[cfg(target_os = "linux")]
mod frame_queue;
pub mod r#gen;
mod interface;
pub(crate) mod interface_lock;
pub mod memory;
pub mod offload;
#[cfg(target_os = "linux")]
pub mod patch;
pub mod pcap;
mod pcap_out;
#[cfg(target_os = "linux")]
mod permission;
pub(crate) mod runtime_folder;
pub mod shared;
pub mod spec;
#[cfg(target_os = "linux")]
pub mod tap;
#[cfg(target_os = "linux")]
mod tap_mark;
#[cfg(target_os = "linux")]
pub mod tunnel;

pub use r#gen::{GenConfig, GenPort, GenProfile};
pub use memory::{MemoryHandle, MemoryPort, NullPort};
pub use pcap::{PcapConfig, PcapPort};
pub use pcap_out::{PcapOutConfig, PcapOutPort, Rotation};
pub use shared::SharedPort;
pub use spec::{PortSpec, XdpMode};

use std::os::fd::BorrowedFd;

use crate::packet::{Frame, Frames};

/// The state of a port after [`Port::receive`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// More frames may be ready.
    More,
    /// No frame is ready; more may arrive.
    Idle,
    /// No frame will ever arrive again: the end of a capture.
    Finished,
}

/// An error of opening or using a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The port's specification is invalid.
    #[error("port `{spec}`: {problem}")]
    Spec {
        /// As given.
        spec: String,
        /// The problem and its fix.
        problem: String,
    },
    /// A file could not be opened, read or written.
    #[error("port `{spec}`: {source}")]
    Io {
        /// As given.
        spec: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The content of a capture file is invalid.
    #[error("port `{spec}`: {problem}")]
    Capture {
        /// As given.
        spec: String,
        /// The problem, and its place in the file.
        problem: String,
    },
    /// The system lacks a permission, an interface or kernel support that the port needs.
    #[error("port `{spec}`: {problem}")]
    Environment {
        /// As given.
        spec: String,
        /// The missing thing and how to provide it.
        problem: String,
    },
}

/// A port, or one worker's queue of a port. The worker owns it; no call blocks for longer than a few milliseconds.
pub trait Port: Send {
    /// Appends frames to `frames` until the burst is full or no frame is ready.
    ///
    /// # Errors
    /// When the port has failed permanently; frames appended before that are in the burst.
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError>;

    /// Sets whether received frames may carry [offload metadata](Frame::offload) (GSO packets, partial checksums) or must be
    /// finished. Ports without offloads ignore it.
    fn keep_offloads(&mut self, _keep: bool) {}

    /// Returns whether frames with offload metadata may be sent here.
    fn carries_offloads(&self) -> bool {
        false
    }

    /// Returns how frames are exchanged, in words; empty where there is one way only.
    fn state(&self) -> String {
        String::new()
    }

    /// Returns a descriptor that becomes readable when frames arrive; a port without one is polled.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns whether frames received here must be distributed over all workers in software.
    fn needs_software_rss(&self) -> bool {
        false
    }

    /// Follows the interface, which may have gone or be there again. Receiving does so, too; this is for ports that only send.
    fn check(&mut self) {}

    /// Makes the system accept no further frames for this port, before the run ends. Returns whether frames that have arrived may
    /// wait here: the worker then goes on receiving for a while, until the port is idle.
    fn stop_arrivals(&mut self) -> bool {
        false
    }

    /// Accepts frames again after [`stop_arrivals`](Self::stop_arrivals), since another run begins.
    fn resume_arrivals(&mut self) {}

    /// Checks that another process could open the interface after [`release`](Self::release).
    ///
    /// # Errors
    /// The reason for which it could not.
    fn check_release(&self) -> Result<(), String> {
        Ok(())
    }

    /// Lets another process open the interface. Called between two runs; the next run takes the interface back.
    fn release(&mut self) {}

    /// Returns the number of frames that the system has dropped on receipt since the last call.
    fn rx_dropped(&mut self) -> u64 {
        0
    }

    /// Queues a frame for sending. Returns whether the port accepted it; the caller counts a rejected frame as dropped.
    ///
    /// # Errors
    /// When the port has failed permanently.
    fn send(&mut self, frame: &Frame) -> Result<bool, PortError>;

    /// Sends the queued frames; called once per burst. Returns the number of frames that the system rejected.
    ///
    /// # Errors
    /// When the port has failed permanently.
    fn flush(&mut self) -> Result<u64, PortError> {
        Ok(0)
    }

    /// Flushes and closes the port. Called once at shutdown.
    ///
    /// # Errors
    /// When not everything could be flushed.
    fn close(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Returns whether received frames are [as a capture has them](Frame::captured): possibly truncated, or from before
    /// segmentation.
    fn is_capture(&self) -> bool {
        false
    }

    /// Returns whether frames can be sent here; false for a port that only receives.
    fn sends(&self) -> bool {
        true
    }
}
