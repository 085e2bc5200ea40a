//! The clock of a worker, which all state with times is of.

use std::time::{Duration, Instant};

use super::{Clock, Worker};

impl Worker {
    /// The clock of meters and ageing.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Lets the clock go on from a time: that of a switch whose place this one takes, or of its saved state.
    pub fn continue_clock(&mut self, now_ns: u64) {
        self.clock_origin = Instant::now().checked_sub(Duration::from_nanos(now_ns));
        self.started = self.clock_origin.unwrap_or(self.started);
        if self.clock == Clock::Frames {
            self.frame_clock_ns = self.frame_clock_ns.max(now_ns);
        }
        self.lookup.pipeline.tell_time(self.now_ns());
        self.lookup.pipeline.move_origin(self.started);
    }

    /// The worker's clock, in whole seconds: the unit of FDB entries.
    pub fn now_s(&self) -> u32 {
        (self.now_ns() / 1_000_000_000) as u32
    }

    /// Returns how long ago a megaflow was used, in seconds; `used` is its time, in units of about a millisecond.
    pub(crate) fn unused_s(&self, used: u32) -> f64 {
        f64::from(super::lookup::ticks(self.now_ns()).wrapping_sub(used)) * 1.048_576e-3
    }

    /// The worker's clock, in milliseconds: the unit of connections.
    pub fn now_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    /// The worker's clock, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        match self.clock {
            Clock::Wall => self.started.elapsed().as_nanos() as u64,
            Clock::Frames => self.frame_clock_ns,
        }
    }
}
