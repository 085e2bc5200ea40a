//! Cycles per stage, as VPP's `show runtime` has them.

use flowlane::named_enum;
use strum::{IntoStaticStr, VariantArray};

/// A stage of the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
#[repr(u8)]
pub enum Stage {
    /// Getting frames from the port.
    Receive,
    /// Frame to key.
    Parse,
    /// Exact-match cache.
    ExactMatch,
    /// Signature-match cache.
    SignatureMatch,
    /// Megaflow cache.
    Megaflow,
    /// Making megaflows for packets that no cache knows.
    SlowPath,
    /// Rule tables, for packets that no cache is asked for or knows.
    Tables,
    /// Sending batches to offloaded tables, and receiving their answers.
    Device,
    /// Changing and queueing.
    Actions,
    /// Handing queued frames to the system.
    Transmit,
}

impl Stage {
    /// Every stage, in a packet's order.
    pub const ALL: [Self; 10] = named_enum::all();

    /// The stage's name in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The counters of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounters {
    /// Bursts.
    pub calls: u64,
    pub packets: u64,
    /// Cycles of the time-stamp counter.
    pub cycles: u64,
}

/// The stages' counters.
#[derive(Clone, Debug)]
pub struct Stages {
    counters: [StageCounters; Stage::ALL.len()],
    clock: quanta::Clock,
    begun: Timer,
}

impl Default for Stages {
    fn default() -> Self {
        let clock = quanta::Clock::new();
        Self { counters: Default::default(), begun: Timer(clock.raw()), clock }
    }
}

/// A point in time.
#[derive(Clone, Copy, Debug)]
pub struct Timer(u64);

impl Timer {
    /// Cycles from `earlier` to this point.
    #[inline]
    pub fn since(self, earlier: Timer) -> u64 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl Stages {
    /// The worker begins now.
    pub(super) fn begin(&mut self) {
        self.begun = self.start();
    }

    /// Cycles since the worker began.
    pub fn elapsed(&self) -> u64 {
        self.start().since(self.begun)
    }

    /// Now.
    #[inline]
    pub fn start(&self) -> Timer {
        Timer(self.clock.raw())
    }

    /// Credits a stage with the time since `timer` and returns the present, for the next stage.
    #[inline]
    pub fn stop(&mut self, stage: Stage, packets: u64, timer: Timer) -> Timer {
        let now = self.clock.raw();
        let counters = &mut self.counters[stage as usize];
        counters.calls += 1;
        counters.packets += packets;
        counters.cycles += now.wrapping_sub(timer.0);
        Timer(now)
    }

    /// Ends a timer, less the cycles that other stages have been credited with meanwhile.
    pub fn stop_without(&mut self, stage: Stage, packets: u64, timer: Timer, cycles: u64) {
        self.stop(stage, packets, timer);
        let counters = &mut self.counters[stage as usize];
        counters.cycles = counters.cycles.saturating_sub(cycles);
    }

    /// Cycles of all stages.
    #[inline]
    pub fn cycles(&self) -> u64 {
        self.counters.iter().map(|counters| counters.cycles).sum()
    }

    /// A stage's counters.
    pub fn get(&self, stage: Stage) -> StageCounters {
        self.counters[stage as usize]
    }
}
