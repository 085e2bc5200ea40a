//! Adaptive dispatch: a table times its first batches of real work, and keeps the kernel that took least.
//!
//! All kernels give the same answers, so any of them may look any batch up, and threads that share a table may share its
//! trial: each batch runs the next candidate in turn. Samples are relaxed atomics. Each is written once, by the thread that
//! was given its index, and none is 0; so all threads that see all samples see the same values and select the same winner.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{Clock, KernelSlot, WIN_BELOW, select_kernel};

/// Most kernels that are compared.
pub(super) const CANDIDATES_MAX: usize = 4;

/// Batches of each candidate that are timed: a third of them may have been interrupted, or have met cold caches.
const SAMPLES: usize = 15;

/// The most calls, of at least 16 keys each, after which a table has selected its kernel.
pub const CALLS_MAX: usize = CANDIDATES_MAX * SAMPLES;

/// Keys of the smallest batch that is timed: with fewer, reading the clock takes as long as the work.
const KEYS_MIN: usize = 16;

/// Set in [`AdaptiveDispatch::state`] while the trial runs.
const TRYING: u8 = 0x80;

/// Samples count this fraction of a tick a key.
const TICK_PARTS: u64 = 1024;

/// The kernel of a table: selected when the table was built, or by a trial in its first batches.
///
/// Where nothing is tried, or not any more, it costs one load and one branch a batch.
pub(crate) struct AdaptiveDispatch<T> {
    /// The place of the present candidate.
    state: AtomicU8,
    /// The first is the built-in one; unused places repeat it.
    candidates: [T; CANDIDATES_MAX],
    trial: Option<Box<Trial>>,
}

impl<T: Copy> AdaptiveDispatch<T> {
    /// Uses the choice of the caller, without a trial.
    pub(crate) fn named(choice: T) -> Self {
        Self { state: AtomicU8::new(0), candidates: [choice; CANDIDATES_MAX], trial: None }
    }

    /// Uses the selection for a slot ([`select_kernel`]), with a trial if there are candidates.
    pub(crate) fn of(slot: KernelSlot, read: impl Fn(&str) -> Option<T>) -> Self {
        let decision = select_kernel(slot, read);
        Self::between(decision.choice, &decision.candidates)
    }

    /// Uses `choice`, or the faster of it and `candidates` if there is a clock for a trial.
    pub(crate) fn between(choice: T, candidates: &[T]) -> Self {
        match super::clock() {
            Some(clock) if !candidates.is_empty() => Self::trying(choice, candidates, clock),
            _ => Self::named(choice),
        }
    }

    /// Tries `choice` against the first [`CANDIDATES_MAX`] - 1 of `others`, timed by `clock`.
    pub(crate) fn trying(choice: T, others: &[T], clock: Clock) -> Self {
        let mut candidates = [choice; CANDIDATES_MAX];
        candidates[1..].iter_mut().zip(others).for_each(|(to, other)| *to = *other);
        let count = CANDIDATES_MAX.min(1 + others.len());
        Self { state: AtomicU8::new(TRYING), candidates, trial: Some(Box::new(Trial::new(count, clock))) }
    }

    /// Returns the present choice: while the trial runs, the built-in one.
    #[inline]
    pub(crate) fn get(&self) -> T {
        self.candidates[usize::from(self.state.load(Relaxed)) % CANDIDATES_MAX]
    }

    /// Returns whether a trial runs.
    #[inline]
    pub(crate) fn is_trying(&self) -> bool {
        self.state.load(Relaxed) & TRYING != 0
    }

    /// Looks a batch up by `run`, with the present choice, or during a trial with the candidate whose turn it is.
    /// `keys` returns the number of keys and is called during a trial only; of an empty table, whose timing says nothing, it returns 0.
    #[inline]
    pub(crate) fn run_batch<R>(&self, keys: impl FnOnce() -> usize, run: impl FnOnce(T) -> R) -> R {
        let state = self.state.load(Relaxed);
        // `run` is called in one place, and so inlined: its arguments would else be copied, by wider loads than they were stored by,
        // which wait until the stores have retired.
        let timed = if state & TRYING == 0 { None } else { self.turn(keys()) };
        let place = timed.map_or(usize::from(state), |timed| timed.place);
        let answer = run(self.candidates[place % CANDIDATES_MAX]);
        if let Some(timed) = timed {
            self.note(timed);
        }
        answer
    }

    /// Begins to time a batch, if it has enough keys.
    #[cold]
    #[inline(never)]
    fn turn(&self, keys: usize) -> Option<Timed> {
        let trial = self.trial.as_deref().filter(|_| keys >= KEYS_MIN)?;
        Some(Timed { place: trial.turn(), keys, before: (trial.clock)() })
    }

    #[cold]
    #[inline(never)]
    fn note(&self, Timed { place, keys, before }: Timed) {
        let Some(trial) = self.trial.as_deref() else { return };
        trial.note(place, (trial.clock)().wrapping_sub(before), keys);
        if let Some(winner) = trial.winner() {
            self.state.store(winner as u8, Relaxed);
        }
    }
}

/// A batch that is being timed.
#[derive(Clone, Copy)]
struct Timed {
    /// The place of its candidate.
    place: usize,
    keys: usize,
    before: u64,
}

impl<T: Copy> Clone for AdaptiveDispatch<T> {
    /// Copies the result of a trial. A trial under way starts again in the clone, which may serve other traffic.
    fn clone(&self) -> Self {
        match &self.trial {
            Some(trial) if self.is_trying() => {
                Self::trying(self.candidates[0], &self.candidates[1..trial.count], trial.clock)
            }
            _ => Self::named(self.get()),
        }
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for AdaptiveDispatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveDispatch")
            .field("present", &self.get())
            .field("trying", &self.is_trying())
            .finish()
    }
}

/// The samples so far.
struct Trial {
    clock: Clock,
    /// How many candidates there are.
    count: usize,
    /// Batches that were given a candidate.
    turns: AtomicU32,
    /// Samples of each candidate that were given a place.
    given: [AtomicU32; CANDIDATES_MAX],
    /// In 1/[`TICK_PARTS`] of a tick a key; 0: none yet.
    samples: [[AtomicU64; SAMPLES]; CANDIDATES_MAX],
}

impl Trial {
    fn new(count: usize, clock: Clock) -> Self {
        Self {
            clock,
            count,
            turns: AtomicU32::new(0),
            given: Default::default(),
            samples: Default::default(),
        }
    }

    /// Whose turn it is. Each begins a round in turn, so that none always comes after the same other, and work that
    /// comes in pairs meets all.
    fn turn(&self) -> usize {
        let turn = self.turns.fetch_add(1, Relaxed) as usize;
        (turn + turn / self.count) % self.count
    }

    fn note(&self, place: usize, ticks: u64, keys: usize) {
        let at = self.given[place].fetch_add(1, Relaxed) as usize;
        if let Some(sample) = self.samples[place].get(at) {
            sample.store((ticks.saturating_mul(TICK_PARTS) / keys as u64).max(1), Relaxed);
        }
    }

    /// The place of the winner, once all have their samples: the built-in one, unless another takes less by more than
    /// noise.
    fn winner(&self) -> Option<usize> {
        let mut medians = [0; CANDIDATES_MAX];
        for (median, samples) in medians.iter_mut().zip(&self.samples[..self.count]) {
            let mut sorted: [u64; SAMPLES] = std::array::from_fn(|at| samples[at].load(Relaxed));
            sorted.sort_unstable();
            (sorted[0] > 0).then_some(())?;
            *median = sorted[SAMPLES / 2];
        }
        let below = medians[0] as f64 * WIN_BELOW;
        let faster = (1..self.count).filter(|place| (medians[*place] as f64) < below);
        Some(faster.min_by_key(|place| medians[*place]).unwrap_or(0))
    }
}

/// For tests of tables: a trial where there would be none.
#[cfg(test)]
pub(crate) mod testing {
    use std::cell::Cell;

    use super::super::Clock;

    thread_local! {
        static FORCED: Cell<Option<Clock>> = const { Cell::new(None) };
        static SCRIPT: Cell<Script> = const { Cell::new(Script { place: 0, count: 1, readings: 0, now: 0 }) };
    }

    /// The state of [`scripted`].
    #[derive(Clone, Copy)]
    struct Script {
        /// The candidate that is cheap, and of how many.
        place: usize,
        count: usize,
        readings: usize,
        now: u64,
    }

    /// Tables that `make` makes on this thread try all that they have by this clock.
    pub(crate) fn forcing<R>(clock: Clock, make: impl FnOnce() -> R) -> R {
        FORCED.set(Some(clock));
        let made = make();
        FORCED.set(None);
        made
    }

    /// Returns the clock of [`forcing`], while it makes something.
    pub(in crate::dispatch) fn forced() -> Option<Clock> {
        FORCED.get()
    }

    /// Restarts [`scripted`], with one of `count` candidates cheap.
    pub(crate) fn favour(place: usize, count: usize) {
        SCRIPT.set(Script { place, count, readings: 0, now: 0 });
    }

    /// A clock by which the favoured candidate takes half of what others take, where batches are of one size and
    /// looked up by this thread only.
    pub(crate) fn scripted() -> u64 {
        let Script { place, count, readings, now } = SCRIPT.get();
        let turn = readings / 2;
        let taken = match readings % 2 {
            0 => 1,
            _ if (turn + turn / count) % count == place => 1000,
            _ => 2000,
        };
        SCRIPT.set(Script { place, count, readings: readings + 1, now: now + taken });
        now + taken
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;
    use crate::isa::Backend;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    fn now() -> u64 {
        NOW.get()
    }

    /// Looks up by a kernel that takes the given ticks a batch.
    fn run(choice: &AdaptiveDispatch<u64>, keys: usize) -> u64 {
        choice.run_batch(
            || keys,
            |ticks| {
                NOW.set(NOW.get() + ticks);
                ticks
            },
        )
    }

    /// Returns the winner of a trial, and the candidates of all batches until then.
    fn tried(choice: u64, candidates: &[u64]) -> (u64, Vec<u64>) {
        let made = AdaptiveDispatch::trying(choice, candidates, now);
        let mut used = Vec::new();
        while made.is_trying() {
            assert_eq!(made.get(), choice, "the built-in one until the end");
            used.push(run(&made, 32));
            assert!(used.len() <= SAMPLES * CANDIDATES_MAX);
        }
        (made.get(), used)
    }

    #[test]
    fn the_fastest_candidate_wins_after_equally_many_samples() {
        let (winner, used) = tried(1000, &[900, 700, 800]);
        assert_eq!((winner, used.len()), (700, 4 * SAMPLES));
        for ticks in [1000, 900, 700, 800] {
            assert_eq!(used.iter().filter(|used| **used == ticks).count(), SAMPLES);
        }
        let choice = AdaptiveDispatch::trying(1000, &[700], now);
        (0..100).for_each(|_| _ = run(&choice, 16));
        assert!(!choice.is_trying() && (0..100).all(|_| run(&choice, 64) == 700));
    }

    #[test]
    fn the_built_in_choice_wins_within_noise() {
        assert_eq!(tried(1000, &[980]).0, 1000);
        assert_eq!(tried(1000, &[1000, 980, 975]).0, 1000);
        assert_eq!(tried(1000, &[960]).0, 960);
        assert_eq!(tried(0, &[0]).0, 0, "a clock that does not advance");
    }

    #[test]
    fn a_third_of_the_batches_may_be_interrupted() {
        let choice = AdaptiveDispatch::trying(1000, &[700], now);
        for batch in 0.. {
            if !choice.is_trying() {
                break;
            }
            let more = if batch % 3 == 0 { 1_000_000 } else { 0 };
            choice.run_batch(|| 32, |ticks| NOW.set(NOW.get() + ticks + more));
        }
        assert_eq!(choice.get(), 700);
    }

    #[test]
    fn time_a_key_is_compared_and_small_batches_are_not_timed() {
        let choice = AdaptiveDispatch::trying(10, &[5], now);
        for keys in (16..).take(2 * SAMPLES) {
            assert!(choice.is_trying());
            (0..KEYS_MIN).for_each(|few| assert_eq!(run(&choice, few), 10, "{few} keys are not timed"));
            choice.run_batch(|| keys, |ticks| NOW.set(NOW.get() + ticks * keys as u64));
        }
        assert_eq!((choice.is_trying(), choice.get()), (false, 5));
    }

    #[test]
    fn a_trial_ends_within_its_calls_whatever_there_is_to_try() {
        for others in [&[700][..], &[700, 800], &[700, 800, 900], &[700, 800, 900, 950, 960]] {
            let choice = AdaptiveDispatch::trying(1000, others, now);
            (0..CALLS_MAX).for_each(|_| _ = run(&choice, KEYS_MIN));
            assert_eq!((choice.is_trying(), choice.get()), (false, 700), "{others:?}");
        }
    }

    #[test]
    fn clones_keep_a_winner_and_restart_an_unfinished_trial() {
        let choice = AdaptiveDispatch::trying(1000, &[700], now);
        (0..SAMPLES).for_each(|_| _ = run(&choice, 16));
        let clone = choice.clone();
        (0..SAMPLES).for_each(|_| _ = run(&choice, 16));
        assert_eq!((choice.is_trying(), choice.clone().get()), (false, 700));
        assert!(clone.is_trying() && !choice.clone().is_trying());
        (0..2 * SAMPLES).for_each(|_| _ = run(&clone, 16));
        assert_eq!((clone.is_trying(), clone.get()), (false, 700));
    }

    #[test]
    fn named_choices_and_tables_without_a_clock_have_no_trial() {
        for choice in [
            AdaptiveDispatch::named(1),
            AdaptiveDispatch::between(1, &[2]),
            AdaptiveDispatch::between(1, &[]),
        ] {
            assert!(!choice.is_trying());
            assert!((0..100).all(|_| choice.run_batch(|| 64, |body| body) == 1));
        }
        assert_eq!(size_of::<AdaptiveDispatch<Backend>>(), 16);
    }

    #[test]
    fn threads_share_a_trial_and_select_one_winner() {
        static TICKS: AtomicU64 = AtomicU64::new(0);
        for _ in 0..20 {
            let choice = AdaptiveDispatch::trying(0u64, &[1, 2], || TICKS.fetch_add(1, Relaxed));
            let winners: Vec<u64> = thread::scope(|scope| {
                let work = || {
                    // A thread may yet be waiting to note what it saw when another has decided.
                    (0..1000).for_each(|_| assert!(choice.run_batch(|| 16, |body| body) < 3));
                    choice.get()
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            assert!(!choice.is_trying() && winners.iter().all(|winner| *winner == choice.get()));
        }
    }
}
