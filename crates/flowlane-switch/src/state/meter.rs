//! Meters: token buckets that drop what exceeds a rate (OpenFlow 1.3 §5.7, the drop band).

use std::sync::{Mutex, MutexGuard};

/// The rate of a meter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rate {
    /// Kilobits a second; a kilobit is 1000 bits.
    Kbps(u64),
    /// Packets a second.
    Pps(u64),
}

/// A token bucket that all workers share.
#[derive(Debug)]
pub struct Meter {
    /// Units a second: bits or packets.
    per_second: u128,
    /// Counts bits, not packets.
    bits: bool,
    tokens_max: u128,
    bucket: Mutex<Bucket>,
}

#[derive(Clone, Debug)]
struct Bucket {
    /// Tokens, in units times nanoseconds per second, so that nothing is ever rounded.
    tokens: u128,
    last_ns: u64,
    counters: MeterCounters,
}

/// Packets and bytes that passed and that were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterCounters {
    pub passed: (u64, u64),
    pub dropped: (u64, u64),
}

/// A decision on a packet.
#[derive(Clone, Copy, Debug)]
struct Decision {
    passes: bool,
    /// The tokens left.
    tokens: u128,
}

impl Bucket {
    #[inline]
    fn commit(&mut self, decision: Decision, bytes: usize, now_ns: u64) {
        self.tokens = decision.tokens;
        self.last_ns = self.last_ns.max(now_ns);
        let MeterCounters { passed, dropped } = &mut self.counters;
        let counter = if decision.passes { passed } else { dropped };
        *counter = (counter.0 + 1, counter.1 + bytes as u64);
    }
}

const NS: u128 = 1_000_000_000;

impl Meter {
    /// A meter of this rate that lets `burst` kilobits or packets through at once, at least 1. The bucket begins full.
    pub fn new(rate: Rate, burst: u64) -> Self {
        // 2^64 kilobits are 2^114 tokens: no product here overflows.
        let (per_second, unit, bits) = match rate {
            Rate::Kbps(n) => (u128::from(n) * 1000, 1000, true),
            Rate::Pps(n) => (n.into(), 1, false),
        };
        let tokens_max = u128::from(burst.max(1)) * unit * NS;
        let bucket = Bucket { tokens: tokens_max, last_ns: 0, counters: MeterCounters::default() };
        Self { per_second, bits, tokens_max, bucket: Mutex::new(bucket) }
    }

    /// Decides whether a packet of `bytes` passes at `now_ns`, takes its tokens and counts it. A clock that goes backwards,
    /// or a worker whose packet is earlier than another's, adds no tokens until it has caught up.
    pub fn allow(&self, bytes: usize, now_ns: u64) -> bool {
        let mut bucket = self.bucket();
        let decision = self.decide_on(&bucket, bytes, now_ns);
        bucket.commit(decision, bytes, now_ns);
        decision.passes
    }

    /// Returns whether a packet would pass. Takes no tokens and counts nothing.
    pub fn decide(&self, bytes: usize, now_ns: u64) -> bool {
        self.decide_on(&self.bucket(), bytes, now_ns).passes
    }

    #[inline]
    fn decide_on(&self, bucket: &Bucket, bytes: usize, now_ns: u64) -> Decision {
        let (cost, tokens) = (self.cost(bytes), self.tokens_at(bucket, now_ns));
        let passes = cost <= tokens;
        Decision { passes, tokens: tokens - if passes { cost } else { 0 } }
    }

    /// Returns the counters.
    pub fn counters(&self) -> MeterCounters {
        self.bucket().counters
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        // Nothing panics while it is locked.
        self.bucket.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the tokens at a time.
    #[inline]
    fn tokens_at(&self, bucket: &Bucket, now_ns: u64) -> u128 {
        if now_ns <= bucket.last_ns {
            return bucket.tokens;
        }
        let elapsed = u128::from(now_ns - bucket.last_ns);
        self.tokens_max.min(bucket.tokens.saturating_add(elapsed.saturating_mul(self.per_second)))
    }

    /// Returns the tokens that a packet takes.
    #[inline]
    fn cost(&self, bytes: usize) -> u128 {
        if self.bits { bytes as u128 * 8 * NS } else { NS }
    }
}

#[cfg(test)]
mod tests {
    use flowlane::generate::Random;

    use super::*;

    #[test]
    fn the_long_run_rate_is_exact() {
        let packets = Meter::new(Rate::Pps(1000), 10);
        // A hundred thousand packets a second, for ten seconds.
        for i in 0..1_000_000u64 {
            packets.allow(64, i * 10_000);
        }
        assert_eq!(packets.counters().passed.0, 10 + 10_000 - 1);
        let bits = Meter::new(Rate::Kbps(800), 8);
        for i in 0..1_000_000u64 {
            bits.allow(100, i * 10_000);
        }
        assert_eq!(bits.counters().passed.0, 10 + 10_000 - 1);
        assert_eq!(bits.counters().passed.0 + bits.counters().dropped.0, 1_000_000);
    }

    #[test]
    fn a_burst_passes_and_a_clock_that_goes_back_does_no_harm() {
        let meter = Meter::new(Rate::Pps(1), 3);
        let passed = |m: &Meter, now| (0..5).filter(|_| m.allow(60, now)).count();
        assert_eq!(passed(&meter, u64::MAX), 3);
        assert_eq!(passed(&meter, 0), 0);
        assert_eq!(passed(&mut Meter::new(Rate::Kbps(u64::MAX), u64::MAX), u64::MAX), 5);
    }

    #[test]
    fn decide_predicts_allow_and_takes_no_tokens() {
        let mut passed = [0; 2];
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let rate = [Rate::Kbps, Rate::Pps][random.index(2)](random.below(2000));
            let (meter, mut now) = (Meter::new(rate, random.below(20)), 0_u64);
            for step in 0..500 {
                now = (now + random.below(3_000_000)).saturating_sub(random.below(100_000));
                let (bytes, before) = (random.index(3000), format!("{meter:?}"));
                let decided = meter.decide(bytes, now);
                assert_eq!(format!("{meter:?}"), before, "seed {seed}, step {step}");
                assert_eq!(meter.allow(bytes, now), decided, "seed {seed}, step {step}");
                passed[usize::from(decided)] += 1;
            }
        }
        assert!(passed.iter().all(|&n| n > 1000), "{passed:?}");
    }
}
