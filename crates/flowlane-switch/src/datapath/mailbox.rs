//! What others want to know of a worker: asked between two bursts, by the worker's own thread.
//!
//! So all state of a worker can be read at one time, without a lock. A caller requests
//! little at a time, since packets wait meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::Worker;
use super::notifier::Waker;

/// Something that is to be asked.
type Question = Box<dyn FnOnce(&mut Worker) + Send>;

/// How long to wait before looking again whether anybody is there.
const PATIENCE: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Questions {
    waiting: Vec<Question>,
    /// Somebody answers: the worker runs.
    open: bool,
}

/// Where questions to a worker are put.
#[derive(Clone, Default)]
pub struct Mailbox {
    questions: Arc<Mutex<Questions>>,
    full: Arc<AtomicBool>,
    waker: Waker,
}

impl Mailbox {
    /// Has the worker answer this between two bursts, and waits. None where the worker does not run, or stops before.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answers) = channel();
        let question: Question = Box::new(move |worker| {
            // Whoever asked may have gone.
            _ = answer.send(question(worker));
        });
        let mut questions = self.lock();
        if !questions.open {
            return None;
        }
        questions.waiting.push(question);
        self.full.store(true, Ordering::Release);
        drop(questions);
        self.waker.wake();
        self.wait(&answers)
    }

    fn wait<T>(&self, answers: &Receiver<T>) -> Option<T> {
        loop {
            match answers.recv_timeout(PATIENCE) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Questions> {
        // A list of questions is right whoever panicked.
        self.questions.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn open(&self) {
        self.lock().open = true;
    }

    /// Nobody answers any more; what was asked before is forgotten, so that nobody waits for it.
    pub(super) fn close(&self) {
        let mut questions = self.lock();
        questions.open = false;
        questions.waiting.clear();
        self.full.store(false, Ordering::Release);
    }

    /// Wakes the worker.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Whether nothing has been asked.
    pub(super) fn is_empty(&self) -> bool {
        !self.full.load(Ordering::Acquire)
    }

    /// What has been asked.
    #[inline]
    pub(super) fn take(&self) -> Vec<Question> {
        if !self.full.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut questions = self.lock();
        self.full.store(false, Ordering::Release);
        std::mem::take(&mut questions.waiting)
    }
}
