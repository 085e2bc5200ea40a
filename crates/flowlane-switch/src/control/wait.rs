//! Waits for a condition that other threads make true.

use std::time::Duration;

/// Sleep between two polls of a condition.
const POLL_INTERVAL: Duration = Duration::from_micros(10);

/// Polls that only yield, before the first sleep.
const YIELD_POLLS: u32 = 200;

/// Waits until a condition holds.
pub(super) fn wait_until(holds: impl Fn() -> bool) {
    for poll in 0u32.. {
        if holds() {
            return;
        }
        match poll < YIELD_POLLS {
            true => std::thread::yield_now(),
            false => std::thread::sleep(POLL_INTERVAL),
        }
    }
}
