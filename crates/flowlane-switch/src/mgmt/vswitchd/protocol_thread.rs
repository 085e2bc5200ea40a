//! The thread of a protocol between neighbours: of bonds and their LACP, or of a bridge's spanning tree.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use flowlane::rule::action::PortNo;

use crate::mgmt::rpc::ControlServer;

/// The longest pause of the thread.
const PAUSE: Duration = Duration::from_secs(1);

/// A thread that runs state machines, and the clock that they go by.
pub(super) struct ProtocolThread {
    begun: Instant,
    /// Held while workers get what has changed, so that the latest change is the last.
    turn: Mutex<()>,
    thread: OnceLock<Thread>,
}

impl Default for ProtocolThread {
    fn default() -> Self {
        Self { begun: Instant::now(), turn: Mutex::default(), thread: OnceLock::new() }
    }
}

impl ProtocolThread {
    /// Returns a time by the clock of the state machines.
    pub(super) fn ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.begun).as_millis() as u64
    }

    /// Returns the present time by that clock.
    pub(super) fn now_ms(&self) -> u64 {
        self.ms(Instant::now())
    }

    /// Returns the thread, if it has begun.
    pub(super) fn get(&self) -> Option<&Thread> {
        self.thread.get()
    }

    /// Notes the thread that [runs](Self::run).
    pub(super) fn set(&self, thread: Thread) {
        _ = self.thread.set(thread);
    }

    /// Waits until no other thread gives workers a change.
    pub(super) fn take_turn(&self) -> MutexGuard<'_, ()> {
        // Nothing is left half done by a thread that panics here: the next update is whole.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `update`, which returns when there is more to do, until `stop` is set.
    pub(super) fn run(&self, served: &ControlServer, stop: &AtomicBool, update: impl Fn() -> u64) {
        served.watch_links(std::thread::current());
        while !stop.load(Ordering::Relaxed) {
            let until = Duration::from_millis(update()).saturating_sub(self.begun.elapsed());
            std::thread::park_timeout(until.min(PAUSE));
        }
    }
}

/// Sends frames through ports.
pub(super) fn send(frames: Vec<(PortNo, Vec<u8>)>, served: &ControlServer) {
    if !frames.is_empty() {
        _ = served.call_worker(0, move |worker| worker.send_frames(&frames));
    }
}
