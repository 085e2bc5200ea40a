//! Tables shared by Python threads.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use pyo3::prelude::*;

/// A table behind a readers-writer lock. Threads wait for the lock without holding the GIL.
pub struct Shared<T>(RwLock<T>);

// Changes are atomic: a panic leaves the table unchanged.
impl<T: Send + Sync> Shared<T> {
    pub fn new(table: T) -> Self {
        Self(RwLock::new(table))
    }

    /// Locks the table for reading, for callers that do not hold the GIL.
    pub fn detached(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the table.
    pub fn read<R: Send>(&self, py: Python<'_>, asked: impl FnOnce(&T) -> R + Send) -> R {
        py.detach(|| asked(&self.detached()))
    }

    /// Changes the table.
    pub fn write<R: Send>(&self, py: Python<'_>, change: impl FnOnce(&mut T) -> R + Send) -> R {
        py.detach(|| change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner)))
    }
}
