//! The measuring core: contenders take turns, and each is reported by its median and quartiles.
//!
//! Noise on a machine comes in spells. Contenders that are compared therefore run in turn, one pass each in a round,
//! so that a spell affects all of them. The ratio of their medians is meaningful even if single figures are not. The
//! quartiles next to a median show how far to trust it.
//!
//! ```text
//! round 0 (not counted)   A B C
//! round 1                 A B C      a pass of A: prepare (not timed), warm pass (not timed), timed pass
//! ..                                 until the rounds or the time are used up
//! ```

use serde::Serialize;

/// A source of time.
pub trait Clock {
    /// Returns the time-stamp counter or its substitute.
    fn ticks(&self) -> u64;

    /// Converts ticks to nanoseconds.
    fn nanoseconds(&self, ticks: f64) -> f64;
}

/// The CPU's time-stamp counter, or nanoseconds if it has no usable counter.
#[derive(Debug)]
pub struct TimeStampCounter {
    clock: quanta::Clock,
    ns_per_tick: f64,
}

impl TimeStampCounter {
    /// Calibrates the counter.
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let ns_per_tick = clock.delta_as_nanos(0, 1 << 30) as f64 / (1u64 << 30) as f64;
        Self { clock, ns_per_tick }
    }
}

impl Default for TimeStampCounter {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TimeStampCounter {
    fn ticks(&self) -> u64 {
        self.clock.raw()
    }

    fn nanoseconds(&self, ticks: f64) -> f64 {
        ticks * self.ns_per_tick
    }
}

/// The duration of a measurement.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Effort {
    /// Runs a few rounds of small workloads, to check that everything works.
    pub quick: bool,
    /// The exact number of rounds of each comparison.
    pub rounds: Option<usize>,
    /// The approximate duration of all comparisons together; each has at least [`ROUNDS_MIN`] rounds.
    pub seconds: Option<f64>,
}

/// The fewest rounds under a time limit; fewer make quartiles meaningless.
pub const ROUNDS_MIN: usize = 5;
/// The most rounds under a time limit; more do not move medians.
pub const ROUNDS_MAX: usize = 301;
/// A round that takes longer is the only one: it needs no warm caches, and its noise is small.
const LONG_ROUND_SECONDS: f64 = 3.0;
/// The default duration of a comparison.
const COMPARISON_SECONDS: f64 = 0.7;
const QUICK_SECONDS: f64 = 0.02;
const QUICK_ROUNDS: usize = 3;

/// An implementation in a comparison.
pub struct Contender<'a> {
    name: String,
    prepare: Option<Box<dyn FnMut() + 'a>>,
    run: Box<dyn FnMut() + 'a>,
    warm_passes: usize,
    operations: Option<u64>,
}

impl std::fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contender")
            .field("name", &self.name)
            .field("warm_passes", &self.warm_passes)
            .finish_non_exhaustive()
    }
}

impl<'a> Contender<'a> {
    /// Creates a contender that does its work once a call.
    pub fn new(name: impl Into<String>, run: impl FnMut() + 'a) -> Self {
        Self { name: name.into(), prepare: None, run: Box::new(run), warm_passes: 0, operations: None }
    }

    /// Runs an untimed pass before each timed one, to reload the caches that other contenders evicted.
    pub fn warm(self) -> Self {
        self.warm_by(1)
    }

    /// Runs several untimed passes before each timed one: shared caches give up other contents only gradually.
    pub fn warm_by(self, passes: usize) -> Self {
        Self { warm_passes: passes, ..self }
    }

    /// Overrides the number of operations of a pass.
    pub fn operations(self, operations: usize) -> Self {
        Self { operations: Some(operations as u64), ..self }
    }

    /// Runs `prepare` before each timed pass, untimed.
    pub fn after(self, prepare: impl FnMut() + 'a) -> Self {
        Self { prepare: Some(Box::new(prepare)), ..self }
    }
}

/// The distribution of the readings.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    pub least: f64,
    /// The first quartile.
    pub lower_quartile: f64,
    /// The second quartile.
    pub median: f64,
    /// The third quartile.
    pub upper_quartile: f64,
}

impl Spread {
    /// Computes quartiles of readings in any order, interpolating linearly between neighbours.
    ///
    /// # Panics
    /// Panics if there are no readings.
    pub fn of(readings: &[f64]) -> Self {
        let mut sorted = readings.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * (sorted.len() - 1) as f64;
            let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            low + (high - low) * place.fract()
        };
        Self { least: sorted[0], lower_quartile: at(0.25), median: at(0.5), upper_quartile: at(0.75) }
    }

    /// Applies `f` to each number.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self {
            least: f(self.least),
            lower_quartile: f(self.lower_quartile),
            median: f(self.median),
            upper_quartile: f(self.upper_quartile),
        }
    }
}

/// The result of one contender.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measured {
    /// The name of the contender.
    pub name: String,
    /// Time-stamp cycles an operation.
    pub cycles: Spread,
    /// Nanoseconds an operation.
    pub ns: Spread,
    /// The number of timed passes.
    pub rounds: usize,
}

/// Receives a comparison's name and its results.
pub type Finished<'a> = dyn FnMut(&str, &[Measured]) + 'a;

/// Runs comparisons within a common time limit.
pub struct Meter<'a> {
    clock: &'a dyn Clock,
    effort: Effort,
    watch: &'a mut dyn FnMut(&str, f64),
    /// Receives each comparison when it is finished.
    finished: Option<&'a mut Finished<'a>>,
    begun: u64,
    /// The number of announced comparisons, and of finished ones.
    announced: usize,
    done: usize,
}

impl std::fmt::Debug for Meter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter")
            .field("effort", &self.effort)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl<'a> Meter<'a> {
    /// Creates a meter; `watch` receives the current activity and the finished share.
    pub fn new(clock: &'a dyn Clock, effort: Effort, watch: &'a mut dyn FnMut(&str, f64)) -> Self {
        Self { clock, effort, watch, finished: None, begun: clock.ticks(), announced: 0, done: 0 }
    }

    /// Reports the results of each comparison, too, as soon as it is finished: a run that is interrupted leaves these.
    pub fn reporting(self, finished: &'a mut Finished<'a>) -> Self {
        Self { finished: Some(finished), ..self }
    }

    /// Returns whether workloads should be small.
    pub fn quick(&self) -> bool {
        self.effort.quick
    }

    /// Adds to the expected number of comparisons.
    pub fn announce(&mut self, comparisons: usize) {
        self.announced += comparisons;
    }

    /// Reports an activity between comparisons.
    pub fn say(&mut self, what: &str) {
        let share = self.share(0.0);
        (self.watch)(what, share);
    }

    fn share(&self, of_this: f64) -> f64 {
        ((self.done as f64 + of_this) / self.announced.max(1) as f64).min(1.0)
    }

    fn seconds_since(&self, ticks: u64) -> f64 {
        self.clock.nanoseconds((self.clock.ticks().wrapping_sub(ticks)) as f64) / 1e9
    }

    /// Returns the fewest and the most rounds, and the time limit that applies between them.
    fn budget(&self) -> (usize, usize, f64) {
        let Effort { quick, rounds, seconds } = self.effort;
        if let Some(rounds) = rounds {
            return (rounds.max(1), rounds.max(1), 0.0);
        }
        let least = if quick { QUICK_ROUNDS } else { ROUNDS_MIN };
        let seconds = match seconds {
            Some(all) => {
                let left = (all - self.seconds_since(self.begun)).max(0.0);
                left / self.announced.saturating_sub(self.done).max(1) as f64
            }
            None if quick => QUICK_SECONDS,
            None => COMPARISON_SECONDS,
        };
        (least, ROUNDS_MAX, seconds)
    }

    /// Runs the contenders in turn; a pass does `operations`, and results are for one operation.
    pub fn compare(
        &mut self,
        what: &str,
        operations: u64,
        mut contenders: Vec<Contender<'_>>,
    ) -> Vec<Measured> {
        let (least, most, seconds) = self.budget();
        let begun = self.clock.ticks();
        let mut readings: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::with_capacity(least)).collect();
        let mut rounds = 0;
        loop {
            for (readings, contender) in readings.iter_mut().zip(&mut contenders) {
                let taken = pass(self.clock, contender, rounds > 0);
                let operations = contender.operations.unwrap_or(operations).max(1);
                readings.push(taken as f64 / operations as f64);
            }
            let used = self.seconds_since(begun);
            let long = self.effort.rounds.is_none() && used > LONG_ROUND_SECONDS;
            if rounds == 0 && !long {
                // The first round is not counted: it fills caches and learns branches.
                readings.iter_mut().for_each(Vec::clear);
            }
            // The share is an estimate from rounds and time.
            let share = self.share((rounds as f64 / least as f64).min(used / seconds.max(1e-9)).min(1.0));
            (self.watch)(what, share);
            if rounds >= most || rounds >= least && used >= seconds || rounds == 0 && long {
                break;
            }
            rounds += 1;
        }
        self.done += 1;
        let measured = |(contender, readings): (Contender<'_>, Vec<f64>)| {
            let cycles = Spread::of(&readings);
            let ns = cycles.map(|ticks| self.clock.nanoseconds(ticks));
            Measured { name: contender.name, cycles, ns, rounds: readings.len() }
        };
        let measured: Vec<Measured> = contenders.into_iter().zip(readings).map(measured).collect();
        if let Some(finished) = &mut self.finished {
            finished(what, &measured);
        }
        measured
    }
}

/// Runs one pass and returns its ticks.
fn pass(clock: &dyn Clock, contender: &mut Contender<'_>, counted: bool) -> u64 {
    if let Some(prepare) = &mut contender.prepare {
        prepare();
    }
    if counted {
        (0..contender.warm_passes).for_each(|_| (contender.run)());
    }
    let before = clock.ticks();
    (contender.run)();
    clock.ticks().wrapping_sub(before)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A clock of one tick a nanosecond that advances only through contenders.
    #[derive(Default)]
    struct FakeClock(Cell<u64>);

    impl Clock for FakeClock {
        fn ticks(&self) -> u64 {
            self.0.get()
        }

        fn nanoseconds(&self, ticks: f64) -> f64 {
            ticks
        }
    }

    impl FakeClock {
        fn advance(&self, ticks: u64) {
            self.0.set(self.0.get() + ticks);
        }
    }

    fn rounds(n: usize) -> Effort {
        Effort { rounds: Some(n), ..Effort::default() }
    }

    #[test]
    fn contenders_take_turns_and_the_first_round_is_not_counted() {
        let clock = FakeClock::default();
        let order = RefCell::new(String::new());
        let mut watch = |_: &str, _| ();
        let mut meter = Meter::new(&clock, rounds(2), &mut watch);
        let contender = |name: &'static str, ticks| {
            let (clock, order) = (&clock, &order);
            Contender::new(name, move || {
                order.borrow_mut().push_str(name);
                clock.advance(ticks);
            })
        };
        let measured = meter.compare("", 10, vec![contender("a", 100), contender("b", 250)]);
        assert_eq!(*order.borrow(), "ababab");
        assert_eq!(measured.iter().map(|m| m.cycles.median).collect::<Vec<_>>(), [10.0, 25.0]);
        assert_eq!((measured[1].name.as_str(), measured[1].rounds), ("b", 2));
    }

    #[test]
    fn preparation_and_warm_passes_are_not_timed() {
        let clock = FakeClock::default();
        let passes = Cell::new(0);
        let mut watch = |_: &str, _| ();
        let mut meter = Meter::new(&clock, rounds(3), &mut watch);
        let contender = Contender::new("a", || {
            passes.set(passes.get() + 1);
            clock.advance(7);
        })
        .warm()
        .after(|| clock.advance(1000));
        let measured = meter.compare("", 1, vec![contender]);
        assert_eq!((measured[0].cycles.least, measured[0].cycles.upper_quartile), (7.0, 7.0));
        assert_eq!(passes.get(), 1 + 2 * 3);
    }

    #[test]
    fn the_median_and_the_quartiles_are_those_of_the_readings() {
        let spread = Spread::of(&[9.0, 1.0, 3.0, 5.0, 7.0]);
        assert_eq!(spread, Spread { least: 1.0, lower_quartile: 3.0, median: 5.0, upper_quartile: 7.0 });
        // The median of an even number of readings lies halfway.
        assert_eq!(Spread::of(&[4.0, 2.0]).median, 3.0);
        assert_eq!(Spread::of(&[4.0]).lower_quartile, 4.0);
    }

    #[test]
    fn a_spike_moves_no_median() {
        let clock = FakeClock::default();
        let count = Cell::new(0);
        let mut watch = |_: &str, _| ();
        let mut meter = Meter::new(&clock, rounds(9), &mut watch);
        let contender = Contender::new("a", || {
            count.set(count.get() + 1);
            clock.advance(if count.get() % 4 == 0 { 1_000_000 } else { 5 });
        });
        assert_eq!(meter.compare("", 1, vec![contender])[0].cycles.median, 5.0);
    }

    #[test]
    fn a_round_of_seconds_is_the_only_one_unless_rounds_were_asked_for() {
        let clock = FakeClock::default();
        let mut watch = |_: &str, _| ();
        let slow = || Contender::new("a", || clock.advance(4_000_000_000));
        let mut meter = Meter::new(&clock, Effort::default(), &mut watch);
        let measured = &meter.compare("", 4, vec![slow()])[0];
        assert_eq!((measured.rounds, measured.cycles.median), (1, 1e9));
        assert_eq!(Meter::new(&clock, rounds(2), &mut |_, _| ()).compare("", 1, vec![slow()])[0].rounds, 2);
    }

    #[test]
    fn the_time_is_shared_among_the_comparisons_announced() {
        let clock = FakeClock::default();
        let mut shares = vec![];
        let mut watch = |_: &str, share| shares.push(share);
        let effort = Effort { seconds: Some(2.0), ..Effort::default() };
        let mut meter = Meter::new(&clock, effort, &mut watch);
        meter.announce(2);
        let tenth = || Contender::new("a", || clock.advance(100_000_000));
        // A second each: ten passes, without the first.
        assert_eq!(meter.compare("", 1, vec![tenth()])[0].rounds, 9);
        assert_eq!(meter.compare("", 1, vec![tenth()])[0].rounds, 9);
        // No time is left, so the fewest rounds run.
        assert_eq!(meter.compare("", 1, vec![tenth()])[0].rounds, ROUNDS_MIN);
        assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
    }
}
