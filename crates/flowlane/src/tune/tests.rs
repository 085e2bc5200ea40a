//! The contest with a clock that the test turns; the built-in table; choices that can be parsed.

use std::cell::Cell;

use super::measure::{Budget, Rules, Verdict, Workload, contest, measure};
use super::{Family, KernelSlot, built_in, is_usable};

/// Candidates take a given number of ticks, and a neighbour slows all of them down now and then.
struct Sleeping<'a> {
    now: &'a Cell<u64>,
    neighbour: &'a dyn Fn(u64) -> u64,
    runs: u64,
}

impl Workload for Sleeping<'_> {
    type Entrant = u64;

    fn prepare(&mut self, _: &u64) {
        self.now.set(self.now.get() + 1_000_000);
    }

    fn run(&mut self, ticks: &u64) {
        self.runs += 1;
        self.now.set(self.now.get() + ticks + (self.neighbour)(self.runs));
    }
}

fn hold(candidates: &[u64], default: usize, neighbour: &dyn Fn(u64) -> u64) -> super::Contest {
    let now = Cell::new(0);
    let mut work = Sleeping { now: &now, neighbour, runs: 0 };
    let rules = Rules { ticks: u64::MAX, items: 10, default };
    contest(&mut || now.get(), "test".to_owned(), rules, candidates, &mut work)
}

#[test]
fn the_faster_candidate_replaces_the_default() {
    let found = hold(&[1000, 800, 700], 0, &|_| 0);
    assert_eq!((found.chosen, found.winner().ticks), (2, 70.0));
    assert_eq!(found.verdict, Verdict::Faster { ratio: 0.7 });
    assert_eq!(found.default_share(), 0.7);
    assert_eq!(hold(&[700, 1000], 0, &|_| 0).default_share(), 1.0);
    // Slow ones leave; the default does not.
    let rounds: Vec<usize> = found.candidates.iter().map(|c| c.rounds).collect();
    assert!(rounds[0] == rounds[2] && rounds[2] > 100, "{rounds:?}");
    let found = hold(&[1000, 2000], 0, &|_| 0);
    assert!(found.candidates[1].rounds < 10);
}

#[test]
fn the_default_stays_where_nothing_is_faster_by_more_than_noise() {
    for candidates in [[1000, 1000, 1000], [1000, 980, 1100], [1000, 975, 971]] {
        let found = hold(&candidates, 0, &|_| 0);
        assert_eq!((found.chosen, found.verdict), (0, Verdict::NoneFaster), "{candidates:?}");
    }
    // A little faster, but the noise of a run, 0 to 1023, follows no pattern.
    let noisy = |run: u64| run.wrapping_mul(run).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    assert_eq!(hold(&[1000, 930], 0, &noisy).chosen, 0);
    // Far more than noise.
    assert_eq!(hold(&[1000, 400], 0, &noisy).chosen, 1);
}

#[test]
fn of_candidates_that_are_as_fast_the_first_is_taken() {
    assert_eq!(hold(&[705, 1000, 700, 699], 1, &|_| 0).chosen, 0);
}

#[test]
fn a_stopped_clock_changes_no_choice() {
    let mut seen = 0;
    // Nothing is ever over by the clock, so that contests end by their number of rounds: one tick a reading.
    let mut time = 0;
    let mut clock = || {
        time += 1;
        time
    };
    let tuning = measure(&mut clock, Budget { ticks: 0, table_bytes_max: 1 << 20 }, &mut |_, done, all| {
        assert!(done == seen && done < all);
        seen += 1;
    });
    let slots: Vec<KernelSlot> = tuning.outcomes.iter().map(|o| o.slot).collect();
    assert_eq!(slots, KernelSlot::all().collect::<Vec<_>>());
    for outcome in &tuning.outcomes {
        assert_eq!(outcome.choice, outcome.built_in, "{}", outcome.slot);
        assert_eq!(is_usable(outcome.slot, &outcome.choice), Ok(true));
    }
    assert_eq!(tuning.choices().iter().count(), slots.len());
    let worst = tuning.worst().expect("there are slots").built_in_share();
    assert!(worst > 0.0 && tuning.outcomes.iter().all(|o| (worst..=1.0).contains(&o.built_in_share())));
}

#[test]
fn every_family_has_a_choice_that_is_read_for_every_slot() {
    for family in Family::ALL {
        for slot in KernelSlot::all() {
            let choice = family.choice(slot);
            assert!(is_usable(slot, choice).is_ok(), "{family}, {slot}: {choice}");
        }
    }
    for slot in KernelSlot::all() {
        assert_eq!(is_usable(slot, Family::Portable.choice(slot)), Ok(true), "{slot}");
        assert_eq!(is_usable(slot, &built_in(slot).choice), Ok(true), "{slot}");
    }
}

#[test]
fn unknown_choices_are_refused_with_the_known_ones() {
    let problem = |slot| is_usable(slot, "avx9").unwrap_err().to_string();
    for slot in KernelSlot::all() {
        assert!(problem(slot).starts_with(&format!("{slot}: ")) && problem(slot).contains("`avx9`"));
    }
    assert!(problem(KernelSlot::Murmur3).contains("avx512"));
    assert!(problem(KernelSlot::Megaflow).contains("avx2/from4"));
}
