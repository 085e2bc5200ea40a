//! Publication of snapshots to other threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::snapshot::ClassifierSnapshot;

/// The last publication of a classifier, and its number.
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
        // Freed outside the lock, since that may take a while.
        drop(old);
    }

    // Snapshots are stored whole: a thread that panicked has left a valid one.
    fn latest(&self) -> MutexGuard<'_, ClassifierSnapshot> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reading side of a [`Classifier`](super::Classifier), for one thread. It stays usable while the classifier is changed, and
/// after it is dropped. Clone it for other threads.
#[derive(Clone, Debug)]
pub struct Reader {
    published: Arc<Published>,
    version: u64,
    list: ClassifierSnapshot,
}

impl Reader {
    pub(super) fn of(published: &Arc<Published>) -> Self {
        // The version first: a publication in between is only fetched once more.
        let version = published.version.load(Ordering::Acquire);
        let list = published.latest().clone();
        Self { published: Arc::clone(published), version, list }
    }

    /// Returns the last published snapshot: a load and a comparison, unless there is a new one. It stays the same until the next
    /// call, so that all packets of a batch meet the same rules. Call it once a batch.
    #[inline]
    pub fn list(&mut self) -> &ClassifierSnapshot {
        let version = self.published.version.load(Ordering::Acquire);
        if version != self.version {
            self.refresh(version);
        }
        &self.list
    }

    #[cold]
    fn refresh(&mut self, version: u64) {
        self.list = self.published.latest().clone();
        self.version = version;
    }
}
