//! Lists that are published to other threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::snapshot::ClassifierSnapshot;

/// What was published last.
#[derive(Debug)]
pub(super) struct Published {
    version: AtomicU64,
    latest: Mutex<ClassifierSnapshot>,
}

impl Published {
    pub(super) fn new(list: ClassifierSnapshot) -> Self {
        Self { version: AtomicU64::new(0), latest: Mutex::new(list) }
    }

    pub(super) fn show(&self, list: ClassifierSnapshot) {
        let old = std::mem::replace(&mut *self.latest(), list);
        self.version.fetch_add(1, Ordering::Release);
        // Not under the lock: it may take a while.
        drop(old);
    }

    // A list is put there whole: whoever panicked has left one.
    fn latest(&self) -> MutexGuard<'_, ClassifierSnapshot> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks packets up on a thread of its own, while a [`Classifier`](super::Classifier) is changed, and even when it is gone.
/// A clone is another thread's.
#[derive(Clone, Debug)]
pub struct Reader {
    published: Arc<Published>,
    version: u64,
    list: ClassifierSnapshot,
}

impl Reader {
    pub(super) fn of(published: &Arc<Published>) -> Self {
        // The version first: where a list comes between, it is only fetched once more.
        let version = published.version.load(Ordering::Acquire);
        let list = published.latest().clone();
        Self { published: Arc::clone(published), version, list }
    }

    /// The list that was published last: a load and a comparison, unless there is a new one. It stays the same until the next
    /// call, so that all packets of a batch meet the same rules. Ask once a batch.
    #[inline]
    pub fn list(&mut self) -> &ClassifierSnapshot {
        let version = self.published.version.load(Ordering::Acquire);
        if version != self.version {
            self.follow(version);
        }
        &self.list
    }

    #[cold]
    fn follow(&mut self, version: u64) {
        self.list = self.published.latest().clone();
        self.version = version;
    }
}
