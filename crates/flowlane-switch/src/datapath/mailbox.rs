//! Control requests to a worker, executed by the worker's own thread between two bursts.
//!
//! So all state of a worker can be read consistently without a lock. A request must be short, since packets wait meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard};

use super::Worker;
use super::notifier::Notifier;

/// A request: a closure that the worker runs.
type Request = Box<dyn FnOnce(&mut Worker) + Send>;

#[derive(Default)]
struct Requests {
    waiting: Vec<Request>,
    /// The worker runs, and accepts requests.
    open: bool,
}

/// A queue of requests to a worker.
#[derive(Clone, Default)]
pub struct Mailbox {
    requests: Arc<Mutex<Requests>>,
    full: Arc<AtomicBool>,
    waker: Notifier,
    rounds: Arc<Rounds>,
}

/// The rounds of the worker's loop, in a cache line of their own: each round writes there.
#[derive(Default)]
#[repr(align(64))]
struct Rounds(AtomicU64);

impl Mailbox {
    /// Has the worker run `request` between two bursts; returns its reply, or `None` if the worker does not run or stops before.
    pub fn call<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answers) = channel();
        let request: Request = Box::new(move |worker| {
            // The caller may have gone.
            _ = answer.send(request(worker));
        });
        let mut requests = self.lock();
        if !requests.open {
            return None;
        }
        requests.waiting.push(request);
        self.full.store(true, Ordering::Release);
        drop(requests);
        self.waker.wake();
        answers.recv().ok()
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        // A list of requests is valid after any panic.
        self.requests.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn open(&self) {
        self.lock().open = true;
    }

    /// Closes the mailbox and drops pending requests, so that no caller waits for a reply.
    pub(super) fn close(&self) {
        let mut requests = self.lock();
        requests.open = false;
        requests.waiting.clear();
        self.full.store(false, Ordering::Release);
    }

    /// Counts a round of the worker's loop.
    #[inline]
    pub(super) fn count_round(&self) {
        // The worker alone writes.
        let rounds = &self.rounds.0;
        rounds.store(rounds.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the number of rounds of the worker's loop; `None` while the worker does not run. A worker that waits for packets goes
    /// round ten times a second.
    pub fn rounds(&self) -> Option<u64> {
        let is_open = self.lock().open;
        is_open.then(|| self.rounds.0.load(Ordering::Relaxed))
    }

    /// Returns the notifier that wakes the worker.
    pub fn notifier(&self) -> &Notifier {
        &self.waker
    }

    /// Returns whether no request is pending.
    pub(super) fn is_empty(&self) -> bool {
        !self.full.load(Ordering::Acquire)
    }

    /// Takes the pending requests.
    #[inline]
    pub(super) fn take(&self) -> Vec<Request> {
        if !self.full.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut requests = self.lock();
        self.full.store(false, Ordering::Release);
        std::mem::take(&mut requests.waiting)
    }
}
