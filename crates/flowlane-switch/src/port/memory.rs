//! Ports without files or interfaces.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::{Port, PortError, Received};
use crate::packet::{Frame, Frames};

/// A port that never receives, and discards sent frames.
#[derive(Debug, Default)]
pub struct NullPort;

impl Port for NullPort {
    fn receive(&mut self, _: &mut Frames) -> Result<Received, PortError> {
        Ok(Received::Finished)
    }

    fn send(&mut self, _: &Frame) -> Result<bool, PortError> {
        Ok(true)
    }
}

/// Frames on their way in and out of a [`MemoryPort`].
#[derive(Debug, Default)]
struct Queues {
    incoming: VecDeque<Vec<u8>>,
    closed: bool,
    sent: Vec<Vec<u8>>,
}

/// A port whose other end is a [`MemoryHandle`]: for tests, and for programs that bring their own frames.
#[derive(Debug)]
pub struct MemoryPort(Arc<Mutex<Queues>>);

/// The other end of a [`MemoryPort`].
#[derive(Clone, Debug)]
pub struct MemoryHandle(Arc<Mutex<Queues>>);

impl MemoryPort {
    /// A port and its other end.
    pub fn new() -> (MemoryPort, MemoryHandle) {
        let queues = Arc::new(Mutex::new(Queues::default()));
        (MemoryPort(queues.clone()), MemoryHandle(queues))
    }
}

impl MemoryHandle {
    /// Gives the port a frame to receive.
    pub fn push(&self, frame: &[u8]) {
        self.queues().incoming.push_back(frame.to_vec());
    }

    /// Ends the input: the port finishes when it has received everything.
    pub fn close(&self) {
        self.queues().closed = true;
    }

    /// Takes the frames that were sent to the port.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.queues().sent)
    }

    fn queues(&self) -> std::sync::MutexGuard<'_, Queues> {
        // A panic elsewhere leaves the queues as they were: frames are moved whole.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Port for MemoryPort {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        let handle = MemoryHandle(self.0.clone());
        let queues = &mut *handle.queues();
        while let Some(bytes) = queues.incoming.pop_front() {
            match frames.next_frame() {
                Some(frame) => frame.fill(&bytes),
                None => {
                    queues.incoming.push_front(bytes);
                    return Ok(Received::More);
                }
            }
        }
        Ok(if queues.closed { Received::Finished } else { Received::Idle })
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        MemoryHandle(self.0.clone()).queues().sent.push(frame.bytes().to_vec());
        Ok(true)
    }
}
