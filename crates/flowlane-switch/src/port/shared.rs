//! One port shared by several workers, where it has no queue for each.
//!
//! Each worker has a handle. Frames that it sends are queued until the end of its burst, and then sent under a lock. One worker
//! receives, and hands frames of other workers off to them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Port, PortError, Received};
use crate::packet::{Frame, Frames};

/// Frames that a handle queues before it takes the lock.
const KEPT: usize = 64;

struct Inner {
    port: Box<dyn Port>,
    /// Handles that are not closed.
    open: usize,
    handles: usize,
}

/// Locks the port. A panic of another thread has left it between two frames.
fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker's handle on a port.
pub struct SharedPort {
    inner: Arc<Mutex<Inner>>,
    receives: bool,
    /// Readable when frames have arrived.
    descriptor: Option<OwnedFd>,
    sends: bool,
    kept: Frames,
    dropped: u64,
}

impl SharedPort {
    /// Makes a handle for each worker; the first receives.
    pub fn handles(port: Box<dyn Port>, workers: usize) -> Vec<Self> {
        let sends = port.sends();
        let descriptor = port.descriptor().and_then(|fd| fd.try_clone_to_owned().ok());
        let inner = Arc::new(Mutex::new(Inner { port, open: workers, handles: workers }));
        let handle = |place| Self {
            inner: inner.clone(),
            receives: place == 0,
            descriptor: None,
            sends,
            kept: Frames::new(if sends { KEPT } else { 0 }),
            dropped: 0,
        };
        let mut handles: Vec<Self> = (0..workers).map(handle).collect();
        handles[0].descriptor = descriptor;
        handles
    }

    /// Sends the queued frames.
    fn send_kept(&mut self) -> Result<(), PortError> {
        let mut inner = lock(&self.inner);
        let sent = self.kept.iter().try_for_each(|frame| {
            self.dropped += u64::from(!inner.port.send(frame)?);
            Ok(())
        });
        self.kept.clear();
        self.dropped += inner.port.flush()?;
        sent
    }
}

impl Port for SharedPort {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        if self.receives { lock(&self.inner).port.receive(frames) } else { Ok(Received::Finished) }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    fn needs_software_rss(&self) -> bool {
        self.receives
    }

    fn stop_arrivals(&mut self) -> bool {
        self.receives && lock(&self.inner).port.stop_arrivals()
    }

    fn rx_dropped(&mut self) -> u64 {
        if self.receives { lock(&self.inner).port.rx_dropped() } else { 0 }
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        if !self.sends {
            return Ok(false);
        }
        if self.kept.is_full() {
            self.send_kept()?;
        }
        if let Some(place) = self.kept.next_frame() {
            place.fill_captured(frame.captured().bytes(), frame.len());
            place.time_ns = frame.time_ns;
        }
        Ok(true)
    }

    fn flush(&mut self) -> Result<u64, PortError> {
        if !self.kept.is_empty() {
            self.send_kept()?;
        } else if self.receives && self.sends {
            // What waits in the port does not wait for the next frame. Where another worker is there, it flushes.
            if let Ok(mut inner) = self.inner.try_lock() {
                self.dropped += inner.port.flush()?;
            }
        }
        Ok(std::mem::take(&mut self.dropped))
    }

    fn close(&mut self) -> Result<(), PortError> {
        let mut inner = lock(&self.inner);
        inner.open -= 1;
        if inner.open > 0 {
            return Ok(());
        }
        inner.open = inner.handles;
        let closed = inner.port.close();
        self.dropped += inner.port.flush()?;
        closed
    }

    fn sends(&self) -> bool {
        self.sends
    }
}
