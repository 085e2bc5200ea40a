//! Meters: token buckets whose bands drop what exceeds a rate, or raise its drop precedence (OpenFlow 1.3.5 §5.7).

use std::sync::{Mutex, MutexGuard};

/// The rate of a meter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rate {
    /// Kilobits a second; a kilobit is 1000 bits.
    Kbps(u64),
    /// Packets a second.
    Pps(u64),
}

/// The unit of a meter's rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Kilobits, of 1000 bits each.
    Kilobits,
    /// Packets.
    Packets,
}

/// The effect of a band on packets beyond its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excess {
    /// They are dropped.
    Drop,
    /// Their drop precedence rises by as many levels: see [`remarked`].
    Remark(u8),
}

/// The decision of a meter about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet goes on unchanged.
    Passes,
    /// The packet goes on; its drop precedence rises by as many levels.
    Remarked(u8),
    /// The packet is dropped.
    Dropped,
}

/// A rate, and the effect on packets beyond it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// Units a second.
    pub rate: u64,
    /// Units that pass at once, at least 1.
    pub burst: u64,
    /// The effect on packets beyond the rate.
    pub excess: Excess,
}

impl Band {
    /// A band that drops packets.
    pub fn drop(rate: u64, burst: u64) -> Self {
        Self { rate, burst, excess: Excess::Drop }
    }

    /// A band that raises the drop precedence of packets.
    pub fn remark(rate: u64, burst: u64, levels: u8) -> Self {
        Self { rate, burst, excess: Excess::Remark(levels) }
    }
}

/// Returns a DSCP with a drop precedence that is higher by `levels`, 3 at most: the class of assured forwarding stays (RFC 2597 §6).
/// Other code points have no drop precedence, and stay.
pub fn remarked(dscp: u8, levels: u8) -> u8 {
    let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
    if dscp & 1 != 0 || !(1..=4).contains(&class) || precedence == 0 {
        return dscp;
    }
    class << 3 | precedence.saturating_add(levels).min(3) << 1
}

/// The meter of packets for controllers, which no rule names (OpenFlow's `OFPM_CONTROLLER`).
pub const CONTROLLER_METER: u32 = 0xffff_fffe;

/// Token buckets, one for each band, that all workers share.
#[derive(Debug)]
pub struct Meter {
    unit: Unit,
    /// Tokens of a unit of rates and bursts, without the factor of time: bits or packets.
    scale: u128,
    bands: Vec<Band>,
    state: Mutex<State>,
}

#[derive(Clone, Debug)]
struct State {
    buckets: Vec<Bucket>,
    last_ns: u64,
    /// Packets and bytes.
    passed: (u64, u64),
}

/// The bucket of a band.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Tokens, in units times nanoseconds per second, so that nothing is ever rounded.
    tokens: u128,
    /// Packets and bytes to which the band was applied.
    exceeded: (u64, u64),
}

/// Packets and bytes that passed unchanged, that were remarked and that were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterCounters {
    pub passed: (u64, u64),
    pub remarked: (u64, u64),
    pub dropped: (u64, u64),
}

const NS: u128 = 1_000_000_000;

fn count(counter: &mut (u64, u64), bytes: usize) {
    *counter = (counter.0 + 1, counter.1 + bytes as u64);
}

impl Meter {
    /// A meter of this rate that lets `burst` kilobits or packets through at once, at least 1. The bucket begins full.
    pub fn new(rate: Rate, burst: u64) -> Self {
        match rate {
            Rate::Kbps(rate) => Self::of_bands(Unit::Kilobits, vec![Band::drop(rate, burst)]),
            Rate::Pps(rate) => Self::of_bands(Unit::Packets, vec![Band::drop(rate, burst)]),
        }
    }

    /// A meter that applies a band to packets beyond its rate. The buckets begin full.
    pub fn of_bands(unit: Unit, bands: Vec<Band>) -> Self {
        let scale = match unit {
            Unit::Kilobits => 1000,
            Unit::Packets => 1,
        };
        Self::with_scale(unit, scale, bands)
    }

    /// A meter that lets `rate` bytes a second and `burst` bytes at once through. The bucket begins full.
    pub fn of_bytes(rate: u64, burst: u64) -> Self {
        Self::with_scale(Unit::Kilobits, 8, vec![Band::drop(rate, burst)])
    }

    fn with_scale(unit: Unit, scale: u128, bands: Vec<Band>) -> Self {
        let full = |band: &Band| Bucket { tokens: tokens_max(scale, band), exceeded: (0, 0) };
        let buckets = bands.iter().map(full).collect();
        Self { unit, scale, bands, state: Mutex::new(State { buckets, last_ns: 0, passed: (0, 0) }) }
    }

    /// Returns the unit of the rates; kilobits, where they are bytes.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the bands.
    pub fn bands(&self) -> &[Band] {
        &self.bands
    }

    /// Returns whether a band raises drop precedences.
    pub fn remarks(&self) -> bool {
        self.bands.iter().any(|band| band.excess != Excess::Drop)
    }

    /// Decides whether a packet of `bytes` passes at `now_ns`, whatever drop precedence it is due: see [`Self::take`].
    pub fn allow(&self, bytes: usize, now_ns: u64) -> bool {
        self.take(bytes, now_ns) != Verdict::Dropped
    }

    /// Decides about a packet of `bytes` at `now_ns`, takes its tokens and counts it: the band of the highest rate among those without
    /// tokens applies (OpenFlow 1.3.5, 5.7.1); the others' tokens are taken, as in Open vSwitch. A clock that goes backwards, or a
    /// worker whose packet is earlier than another's, adds no tokens until it has caught up.
    pub fn take(&self, bytes: usize, now_ns: u64) -> Verdict {
        let State { buckets, last_ns, passed } = &mut *self.state();
        let (cost, elapsed_ns) = (self.cost(bytes), now_ns.saturating_sub(*last_ns));
        *last_ns = now_ns.max(*last_ns);
        let mut exceeded: Option<usize> = None;
        for (at, (band, bucket)) in self.bands.iter().zip(&mut *buckets).enumerate() {
            bucket.tokens = self.tokens_after(band, bucket.tokens, elapsed_ns);
            match bucket.tokens.checked_sub(cost) {
                Some(left) => bucket.tokens = left,
                None if exceeded.is_none_or(|other| self.bands[other].rate < band.rate) => {
                    exceeded = Some(at);
                }
                None => {}
            }
        }
        count(exceeded.map_or(passed, |at| &mut buckets[at].exceeded), bytes);
        exceeded.map_or(Verdict::Passes, |at| Verdict::of(self.bands[at].excess))
    }

    /// Returns the decision about a packet. Takes no tokens and counts nothing.
    pub fn decide(&self, bytes: usize, now_ns: u64) -> Verdict {
        let state = self.state();
        let (cost, elapsed_ns) = (self.cost(bytes), now_ns.saturating_sub(state.last_ns));
        let bands = self.bands.iter().zip(&state.buckets);
        let exceeded =
            bands.filter(|(band, bucket)| cost > self.tokens_after(band, bucket.tokens, elapsed_ns));
        // The first of two equal rates, as in `take`.
        let highest = exceeded.map(|(band, _)| band).rev().max_by_key(|band| band.rate);
        highest.map_or(Verdict::Passes, |band| Verdict::of(band.excess))
    }

    /// Returns the counters.
    pub fn counters(&self) -> MeterCounters {
        let state = self.state();
        let mut counters = MeterCounters { passed: state.passed, ..MeterCounters::default() };
        for (band, bucket) in self.bands.iter().zip(&state.buckets) {
            let sum = match band.excess {
                Excess::Drop => &mut counters.dropped,
                Excess::Remark(_) => &mut counters.remarked,
            };
            *sum = (sum.0 + bucket.exceeded.0, sum.1 + bucket.exceeded.1);
        }
        counters
    }

    /// Returns the packets and bytes to which each band was applied.
    pub fn exceeded(&self) -> Vec<(u64, u64)> {
        self.state().buckets.iter().map(|bucket| bucket.exceeded).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the tokens of a band after some time.
    #[inline]
    fn tokens_after(&self, band: &Band, tokens: u128, elapsed_ns: u64) -> u128 {
        // 2^64 kilobits are 2^114 tokens: the products with a rate do not overflow, those with a time may.
        let per_second = u128::from(band.rate) * self.scale;
        let added = u128::from(elapsed_ns).saturating_mul(per_second);
        tokens_max(self.scale, band).min(tokens.saturating_add(added))
    }

    /// Returns the tokens that a packet takes.
    #[inline]
    fn cost(&self, bytes: usize) -> u128 {
        match self.unit {
            Unit::Kilobits => bytes as u128 * 8 * NS,
            Unit::Packets => NS,
        }
    }
}

impl Verdict {
    fn of(excess: Excess) -> Self {
        match excess {
            Excess::Drop => Self::Dropped,
            Excess::Remark(levels) => Self::Remarked(levels),
        }
    }
}

fn tokens_max(scale: u128, band: &Band) -> u128 {
    u128::from(band.burst.max(1)) * scale * NS
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
    fn the_highest_exceeded_band_counts_a_packet() {
        let bands = [(2, 2), (10, 5)].map(|(rate, burst)| Band::drop(rate, burst));
        let meter = Meter::of_bands(Unit::Packets, bands.to_vec());
        let passed: Vec<bool> = (0..7).map(|_| meter.allow(60, 0)).collect();
        assert_eq!(passed, [true, true, false, false, false, false, false]);
        assert_eq!(meter.exceeded(), [(3, 180), (2, 120)]);
        let counters = MeterCounters { passed: (2, 120), dropped: (5, 300), ..MeterCounters::default() };
        assert_eq!(meter.counters(), counters);
        let unlimited = Meter::of_bands(Unit::Packets, Vec::new());
        assert!((0..100).all(|_| unlimited.decide(60, 0) == Verdict::Passes && unlimited.allow(60, 0)));
        assert_eq!(unlimited.counters().passed, (100, 6000));
    }

    #[test]
    fn a_remarking_band_of_a_lower_rate_gives_way_to_the_band_that_drops() {
        let bands = vec![Band::remark(2, 2, 1), Band::drop(10, 5), Band::remark(1, 1, 2)];
        let meter = Meter::of_bands(Unit::Packets, bands);
        let verdicts: Vec<Verdict> = (0..7).map(|_| meter.take(60, 0)).collect();
        use Verdict::{Dropped, Passes, Remarked};
        assert_eq!(verdicts, [Passes, Remarked(2), Remarked(1), Remarked(1), Remarked(1), Dropped, Dropped]);
        assert_eq!(meter.exceeded(), [(3, 180), (2, 120), (1, 60)]);
        let counters = MeterCounters { passed: (1, 60), remarked: (4, 240), dropped: (2, 120) };
        assert_eq!(meter.counters(), counters);
        assert!(meter.remarks() && !Meter::new(Rate::Pps(1), 1).remarks());
    }

    #[test]
    fn drop_precedence_rises_within_its_class_of_assured_forwarding() {
        // AF11, AF12 and AF13 are 10, 12 and 14 (RFC 2597 §6).
        for (before, levels, after) in
            [(10, 1, 12), (10, 2, 14), (10, 200, 14), (12, 1, 14), (14, 1, 14), (34, 1, 36)]
        {
            assert_eq!(remarked(before, levels), after, "{before} by {levels}");
        }
        let assured: Vec<u8> = (0..64).filter(|&dscp| remarked(dscp, 1) != dscp).collect();
        assert_eq!(assured, [10, 12, 18, 20, 26, 28, 34, 36], "classes 1 to 4, precedences 1 and 2");
        assert!((0..64).all(|dscp| remarked(dscp, 0) == dscp));
    }

    #[test]
    fn decide_predicts_take_and_takes_no_tokens() {
        let mut passed = [0; 2];
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let unit = [Unit::Kilobits, Unit::Packets][random.index(2)];
            let mut band = |n| match n {
                0 => Band::drop(random.below(2000), random.below(20)),
                n => Band::remark(random.below(2000), random.below(20), n),
            };
            let bands = (0..=seed as u8 % 3).map(&mut band).collect();
            let (meter, mut now) = (Meter::of_bands(unit, bands), 0_u64);
            for step in 0..500 {
                now = (now + random.below(3_000_000)).saturating_sub(random.below(100_000));
                let (bytes, before) = (random.index(3000), format!("{meter:?}"));
                let decided = meter.decide(bytes, now);
                assert_eq!(format!("{meter:?}"), before, "seed {seed}, step {step}");
                assert_eq!(meter.take(bytes, now), decided, "seed {seed}, step {step}");
                passed[usize::from(decided == Verdict::Passes)] += 1;
            }
        }
        assert!(passed.iter().all(|&n| n > 1000), "{passed:?}");
    }
}
