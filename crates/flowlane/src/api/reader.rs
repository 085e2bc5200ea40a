//! Publication of snapshots to other threads.

use std::sync::Arc;

use super::snapshot::ClassifierSnapshot;
use crate::published::{Published, Versioned};

/// A published snapshot, and the number of its publication.
#[derive(Clone, Debug)]
pub(super) struct Publication {
    pub(super) number: u64,
    pub(super) list: ClassifierSnapshot,
}

impl Versioned for Publication {
    #[inline]
    fn version(&self) -> u64 {
        self.number
    }
}

/// The reading side of a [`Classifier`](super::Classifier), for one thread. It stays usable while the classifier is changed, and
/// after it is dropped. Clone it for other threads.
#[derive(Clone, Debug)]
pub struct Reader {
    published: Arc<Published<Publication>>,
    held: Publication,
}

impl Reader {
    pub(super) fn of(published: &Arc<Published<Publication>>) -> Self {
        Self { published: Arc::clone(published), held: published.newest() }
    }

    /// Returns the last published snapshot: a load and a comparison, unless there is a new one. It stays the same until the next
    /// call, so that all packets of a batch meet the same rules. Call it once a batch.
    #[inline]
    pub fn list(&mut self) -> &ClassifierSnapshot {
        self.published.refresh(&mut self.held);
        &self.held.list
    }
}
