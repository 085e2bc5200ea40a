//! What threads of Python share.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use pyo3::prelude::*;

/// A table that any number of threads ask, and one at a time changes. Who waits for it waits without the interpreter's lock, so that
/// all others go on.
pub struct Shared<T>(RwLock<T>);

// A change is made whole or not at all: whoever panicked has left the table as it was.
impl<T: Send + Sync> Shared<T> {
    pub fn new(table: T) -> Self {
        Self(RwLock::new(table))
    }

    /// The table, for one who does not hold the interpreter's lock.
    pub fn detached(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks it.
    pub fn read<R: Send>(&self, py: Python<'_>, asked: impl FnOnce(&T) -> R + Send) -> R {
        py.detach(|| asked(&self.detached()))
    }

    /// Changes it.
    pub fn write<R: Send>(&self, py: Python<'_>, change: impl FnOnce(&mut T) -> R + Send) -> R {
        py.detach(|| change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner)))
    }
}
