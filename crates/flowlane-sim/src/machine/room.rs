//! Entries of a core's window, queues and scheduler, which its threads share.

use super::core::Core;
use super::thread::Thread;
use crate::config::{CoreConfig, Sharing};

/// The entries that a thread may occupy.
pub(super) struct Room {
    pub(super) rob: u32,
    pub(super) loads: u32,
    pub(super) stores: u32,
    pub(super) scheduler: u32,
    pub(super) results: [u32; 2],
}

impl Core {
    /// Returns the entries that a thread may occupy: a half of all, or those that the other thread leaves, and at least an
    /// eighth.
    pub(super) fn room(&self, thread: usize, limits: &CoreConfig) -> Room {
        let others = || self.threads.iter().enumerate().filter(|(n, _)| *n != thread).map(|(_, t)| t);
        let count = self.threads.len() as u32;
        let share = |sharing: Sharing, all: u32, of: fn(&Thread) -> u32| match sharing {
            Sharing::Halves => all / count,
            Sharing::Competitive => all.saturating_sub(others().map(of).sum()).max(all / 8).max(1),
        };
        Room {
            rob: share(limits.window_sharing, limits.rob_entries, |t| t.rob),
            loads: share(limits.window_sharing, limits.load_queue_entries, |t| t.loads),
            stores: share(limits.window_sharing, limits.store_queue_entries, |t| t.stores),
            results: [
                share(Sharing::Competitive, limits.integer_registers, |t| t.results[0]),
                share(Sharing::Competitive, limits.vector_registers, |t| t.results[1]),
            ],
            scheduler: share(limits.scheduler_sharing, limits.scheduler_entries, |t| t.waiting.taken()),
        }
    }
}
