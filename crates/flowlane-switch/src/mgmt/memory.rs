//! Memory that changes of rules have used for a while: messages while they are read, former copies of tables, engines while they are built.
//! The allocator of the C library keeps it, between blocks that are in use: a third of all memory after 57,000 rules in a bundle.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// As many changes are worth the time: some milliseconds for 100 MiB.
const CHANGES_MIN: u64 = 1024;
/// Engines are built when no more changes come.
const QUIET: Duration = Duration::from_secs(5);
/// Where changes do not end.
const LONGEST: Duration = Duration::from_secs(60);

/// When memory was given back to the system, and rules have changed.
#[derive(Debug)]
pub(super) struct SpareMemory {
    /// The versions of the rules: when memory was given back, and at the last look.
    given_at: u64,
    seen: u64,
    given: Instant,
    changed: Instant,
}

impl SpareMemory {
    pub(super) fn new(now: Instant) -> Self {
        Self { given_at: 0, seen: 0, given: now, changed: now }
    }

    /// Returns whether there is memory to be given back, with rules of this version.
    fn is_due(&mut self, version: u64, now: Instant) -> bool {
        if version != self.seen {
            (self.seen, self.changed) = (version, now);
        }
        let is_quiet = now.duration_since(self.changed) >= QUIET;
        let is_due = version.saturating_sub(self.given_at) >= CHANGES_MIN
            && (is_quiet || now.duration_since(self.given) >= LONGEST);
        if is_due {
            (self.given_at, self.given) = (version, now);
        }
        is_due
    }
}

/// Gives memory back if it is time, with rules of this version.
pub(super) fn look_after(spare: &Mutex<SpareMemory>, version: u64) {
    let is_due = spare.lock().unwrap_or_else(PoisonError::into_inner).is_due(version, Instant::now());
    if is_due {
        give_back();
    }
}

/// Gives memory that is not in use back to the system.
fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim(3) takes no pointer, and is safe to call from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_many_changes() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut spare = SpareMemory::new(begun);
        assert!(!spare.is_due(CHANGES_MIN - 1, at(10)) && !spare.is_due(CHANGES_MIN - 1, at(20)));
        assert!(!spare.is_due(CHANGES_MIN, at(21)), "changes go on");
        assert!(spare.is_due(CHANGES_MIN, at(26)));
        assert!(!spare.is_due(CHANGES_MIN, at(40)));
        // Changes that do not end.
        let due = (0..300).filter(|n| spare.is_due((2 + n) * CHANGES_MIN, at(41 + n))).count();
        assert!((4..=5).contains(&due), "{due}");
    }
}
