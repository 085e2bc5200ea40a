//! Publication of whole values to other threads: the newest one is behind a lock that readers take only when there is another.
//!
//! Readers own a value and compare its version with the published one, once a batch: an acquire load and a comparison. They see
//! a publication at their next look, and use the value before it until then. The publisher does not learn when that is; the
//! switch's workers announce it (`ruleset::publication` there). Where a table is too large to be copied for a change, it is changed
//! in place instead and readers enter epochs (`route::epoch`).
//!
//! The switch's models go through the lock and the version. So with the feature `loom`, which its tests name, both are loom's under
//! `--cfg loom`, also where this crate is not built for tests.

#[cfg(all(loom, feature = "loom"))]
use loom::sync;
#[cfg(not(all(loom, feature = "loom")))]
use std::sync;
use std::sync::{Arc, PoisonError};

use sync::atomic::{AtomicU64, Ordering, fence};
use sync::{Mutex, MutexGuard};

/// A value that has its version in it. Values of equal version are equal.
pub trait Versioned {
    /// Returns the version.
    fn version(&self) -> u64;
}

impl<T: Versioned> Versioned for Arc<T> {
    #[inline]
    fn version(&self) -> u64 {
        T::version(self)
    }
}

/// The newest version of a value, which one thread publishes and others read. Values are cloned under the lock: let a clone cost
/// little, as that of an [`Arc`] does.
#[derive(Debug)]
pub struct Published<T> {
    newest: Mutex<T>,
    version: AtomicU64,
}

impl<T: Versioned + Clone> Published<T> {
    /// Publishes the first value.
    pub fn new(value: T) -> Self {
        Self { version: AtomicU64::new(value.version()), newest: Mutex::new(value) }
    }

    /// Publishes a newer value, and returns the one before, which the caller frees outside the lock.
    pub fn publish(&self, value: T) -> T {
        let version = value.version();
        let before = std::mem::replace(&mut *self.lock(), value);
        self.version.store(version, Ordering::SeqCst);
        // A reader that announces itself, and whose announcement the publisher does not see after this, looks at the version after
        // it and sees this one.
        fence(Ordering::SeqCst);
        before
    }

    /// Returns the published version.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the newest value.
    pub fn newest(&self) -> T {
        self.lock().clone()
    }

    /// Returns whether a reader's value must be [refreshed](Self::refresh). That is so, for a moment, for a value that was taken
    /// before its version was stored, too: it is only taken again.
    #[inline]
    pub fn is_stale(&self, held: &T) -> bool {
        self.version() != held.version()
    }

    /// Replaces a reader's value by the newest one if it is stale, and returns the one before.
    #[inline]
    pub fn refresh(&self, held: &mut T) -> Option<T> {
        self.is_stale(held).then(|| self.replace(held))
    }

    #[cold]
    fn replace(&self, held: &mut T) -> T {
        std::mem::replace(held, self.newest())
    }

    // Values are stored whole: a thread that panicked has left a valid one.
    fn lock(&self) -> MutexGuard<'_, T> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// The switch's `ruleset::loom` has the model.
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    impl Versioned for u64 {
        fn version(&self) -> u64 {
            *self
        }
    }

    #[test]
    fn readers_refresh_once_a_publication() {
        let published = Published::new(Arc::new(1));
        let mut held = published.newest();
        assert_eq!(published.refresh(&mut held), None);
        assert_eq!(*published.publish(Arc::new(5)), 1);
        assert_eq!((published.version(), *held), (5, 1));
        assert!(published.is_stale(&held));
        assert_eq!(published.refresh(&mut held), Some(Arc::new(1)), "readers skip what they have not seen");
        assert_eq!(*held, 5);
        assert!(!published.is_stale(&held));
    }

    #[test]
    fn a_value_taken_before_its_version_was_stored_is_taken_again() {
        let published = Published::new(2);
        published.version.store(1, Ordering::Relaxed);
        let mut held = published.newest();
        assert_eq!((published.refresh(&mut held), held), (Some(2), 2));
    }
}
