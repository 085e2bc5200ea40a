//! What others want to know of a worker: asked between two bursts, by the worker's own thread.
//!
//! So all state of a worker can be read at one time, without a lock. A caller requests
//! little at a time, since packets wait meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::Worker;
use super::notifier::Notifier;

/// Something that is to be asked.
type Request = Box<dyn FnOnce(&mut Worker) + Send>;

/// How long to wait before looking again whether anybody is there.
const RECV_POLL: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Requests {
    waiting: Vec<Request>,
    /// Somebody answers: the worker runs.
    open: bool,
}

/// Where requests to a worker are put.
#[derive(Clone, Default)]
pub struct Mailbox {
    requests: Arc<Mutex<Requests>>,
    full: Arc<AtomicBool>,
    waker: Notifier,
}

impl Mailbox {
    /// Has the worker answer this between two bursts, and waits. None where the worker does not run, or stops before.
    pub fn call<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answers) = channel();
        let request: Request = Box::new(move |worker| {
            // Whoever asked may have gone.
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
        self.wait(&answers)
    }

    fn wait<T>(&self, answers: &Receiver<T>) -> Option<T> {
        loop {
            match answers.recv_timeout(RECV_POLL) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        // A list of requests is valid after any panic.
        self.requests.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn open(&self) {
        self.lock().open = true;
    }

    /// Nobody answers any more; what was asked before is forgotten, so that nobody waits for it.
    pub(super) fn close(&self) {
        let mut requests = self.lock();
        requests.open = false;
        requests.waiting.clear();
        self.full.store(false, Ordering::Release);
    }

    /// Wakes the worker.
    pub fn notifier(&self) -> &Notifier {
        &self.waker
    }

    /// Whether nothing has been asked.
    pub(super) fn is_empty(&self) -> bool {
        !self.full.load(Ordering::Acquire)
    }

    /// What has been asked.
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
