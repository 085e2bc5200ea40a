//! Cache selection: which caches are probed, if any, by their measured cost on the current traffic.
//!
//! A cache in front of another, or in front of the tables, pays only while it hits often enough: Open vSwitch's exact-match cache
//! makes it slower than none where the working set is larger. So every available combination of caches, and the tables without
//! any (*sets*), is tried on a few bursts now and then; its cycles per packet are averaged, from parsing to sending, and the
//! cheapest is used. Insertion continues in all caches, though seldom in those that are not probed, so that a trial finds the
//! caches filled.
//!
//! Earlier costs of a set on trial count little: they date from before the caches filled, or from other traffic.
//!
//! The cost: 4 of every 128 bursts run a set other than the best, and 4 of every 4096 once trials have changed nothing for a
//! while.

/// A set of caches to probe in front of the megaflow cache: bit 0 for the exact-match cache, bit 1 for the signature-match cache;
/// or bit 2 alone: the tables, without any cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheSet(pub u8);

impl CacheSet {
    /// Only the megaflow cache.
    pub const NONE: CacheSet = CacheSet(0);

    /// No cache: the tables.
    pub const TABLES: CacheSet = CacheSet(4);

    /// Returns whether no cache is probed.
    #[inline]
    pub fn tables(self) -> bool {
        self.0 & 4 != 0
    }

    /// Returns whether the exact-match cache is probed.
    #[inline]
    pub fn exact(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns whether the signature-match cache is probed.
    #[inline]
    pub fn signature(self) -> bool {
        self.0 & 2 != 0
    }
}

/// Bursts between two trials: initially and after a change, and at most; each trial that changes nothing doubles the period.
const PERIOD_LEAST: u32 = 128;
const PERIOD_MOST: u32 = 4096;

/// A cache that is not probed is offered the packets of one burst in `SELDOM`.
const SELDOM: u32 = 16;

/// Bursts of a trial; the first is a warm-up.
const TRIAL: u32 = 4;

/// Weights of a burst in its set's moving average: of the set in use, and of the set on trial, whose average is old and whose
/// caches may have filled since.
const WEIGHT: f64 = 0.125;
const WEIGHT_ON_TRIAL: f64 = 0.5;

/// A set replaces the best one if its cost is below this fraction of the best one's.
const ADVANTAGE: f64 = 0.97;

/// Selects among cache sets.
#[derive(Clone, Debug)]
pub(super) struct CacheSelector {
    sets: Vec<CacheSet>,
    /// Average cycles per packet; `None` before the first trial.
    cycles: Vec<Option<f64>>,
    best: usize,
    /// The set that is on trial, or was last.
    trial: usize,
    burst: u32,
    period: u32,
}

impl CacheSelector {
    /// Makes a selector among `sets`, with the last as the initial best.
    ///
    /// # Panics
    /// If `sets` is empty.
    pub(super) fn new(sets: Vec<CacheSet>) -> Self {
        let best = sets.len() - 1;
        Self { cycles: vec![None; sets.len()], sets, best, trial: 0, burst: 0, period: PERIOD_LEAST }
    }

    /// Returns the set for the next burst.
    #[inline]
    pub(super) fn cache_set(&self) -> CacheSet {
        self.sets[if self.on_trial() { self.trial } else { self.best }]
    }

    /// Returns the set that is used between trials.
    pub(super) fn best(&self) -> CacheSet {
        self.sets[self.best]
    }

    /// Returns whether a cache is offered the packets of this burst; `asked`: the best set probes it.
    #[inline]
    pub(super) fn offers(&self, asked: bool) -> bool {
        asked || self.burst.is_multiple_of(SELDOM)
    }

    #[inline]
    fn on_trial(&self) -> bool {
        self.burst < TRIAL && self.sets.len() > 1
    }

    /// Records the cost of the burst that [`cache_set`](Self::cache_set) was called for. `cycles` excludes the installation of
    /// megaflows, which makes later bursts cheaper.
    #[inline]
    pub(super) fn report(&mut self, packets: usize, cycles: u64) {
        if self.sets.len() < 2 {
            return;
        }
        if self.burst == 0 || packets == 0 {
            self.burst = 1;
            return;
        }
        let (used, weight) = match self.on_trial() {
            true => (self.trial, WEIGHT_ON_TRIAL),
            false => (self.best, WEIGHT),
        };
        let cost = cycles as f64 / packets as f64;
        // Skips a burst that was interrupted.
        if self.cycles[used].is_none_or(|average| cost < 8.0 * average) {
            let average = self.cycles[used].get_or_insert(cost);
            *average += weight * (cost - *average);
        }
        self.burst += 1;
        if self.burst == self.period {
            self.burst = 0;
            self.trial = (self.trial + 1) % self.sets.len();
            if self.trial == self.best {
                self.trial = (self.trial + 1) % self.sets.len();
            }
        } else if self.burst == TRIAL {
            self.choose();
        }
    }

    fn choose(&mut self) {
        let before = self.best;
        for set in 0..self.sets.len() {
            if let (Some(other), Some(best)) = (self.cycles[set], self.cycles[self.best])
                && other < ADVANTAGE * best
            {
                self.best = set;
            }
        }
        let changed = self.best != before;
        self.period = if changed { PERIOD_LEAST } else { (2 * self.period).min(PERIOD_MOST) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs bursts at the `cost` of their set; returns the number of bursts per set.
    fn run(selector: &mut CacheSelector, bursts: usize, cost: impl Fn(CacheSet) -> u64) -> [usize; 4] {
        let mut ran = [0; 4];
        for _ in 0..bursts {
            let set = selector.cache_set();
            ran[usize::from(set.0)] += 1;
            selector.report(32, 32 * cost(set));
        }
        ran
    }

    #[test]
    fn the_cheapest_arm_is_used_nearly_always_and_a_change_is_noticed() {
        let mut selector = CacheSelector::new(vec![CacheSet(0), CacheSet(1), CacheSet(2), CacheSet(3)]);
        run(&mut selector, 2000, |set| [50, 80, 40, 90][usize::from(set.0)]);
        assert_eq!(selector.best(), CacheSet(2));
        let ran = run(&mut selector, 128_000, |set| [50, 80, 40, 90][usize::from(set.0)]);
        assert!(ran[2] > 127_800 && ran.iter().all(|&n| n > 20), "{ran:?}");
        run(&mut selector, 100_000, |set| [20, 80, 40, 90][usize::from(set.0)]);
        assert_eq!(selector.best(), CacheSet(0));
    }

    #[test]
    fn equal_arms_do_not_take_turns_and_interruptions_do_not_count() {
        let mut selector = CacheSelector::new(vec![CacheSet(0), CacheSet(2)]);
        run(&mut selector, 5000, |_| 50);
        assert_eq!(selector.best(), CacheSet(2));
        selector.report(32, 1 << 40);
        run(&mut selector, 20_000, |_| 50);
        assert_eq!(selector.best(), CacheSet(2));
    }

    #[test]
    fn one_arm_is_no_choice() {
        let mut selector = CacheSelector::new(vec![CacheSet::NONE]);
        assert_eq!(run(&mut selector, 1000, |_| 10), [1000, 0, 0, 0]);
    }
}
