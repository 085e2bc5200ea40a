//! Limits of what clients may ask for.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A token bucket: up to `burst` at once, and `rate` a second.
pub(super) struct Bucket {
    rate: f64,
    burst: f64,
    /// The rest, and the time of the latest request.
    left: Mutex<(f64, Instant)>,
}

impl Bucket {
    pub(super) fn new(rate: u32, burst: u32) -> Self {
        Self { rate: rate.into(), burst: burst.into(), left: Mutex::new((burst.into(), Instant::now())) }
    }

    /// Takes one at a time; returns whether there was one.
    pub(super) fn take(&self, now: Instant) -> bool {
        // Two numbers are valid after any panic.
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(left.1).as_secs_f64();
        let filled = (left.0 + passed * self.rate).min(self.burst);
        let is_left = filled >= 1.0;
        *left = (filled - f64::from(u8::from(is_left)), now.max(left.1));
        is_left
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let bucket = Bucket::new(10, 3);
        let begun = Instant::now();
        let passed = |ms: u64| (0..5).filter(|_| bucket.take(begun + Duration::from_millis(ms))).count();
        assert_eq!([0, 0, 101, 101, 50, 10_000].map(passed), [3, 0, 1, 0, 0, 3]);
    }
}
