//! The pace of a core: how long its cycles are, and whether somebody else has a part of it.
//!
//! Two loops over registers alone. In the first every operation waits for the one before, a cycle each on every core that
//! there is, whoever else is on it: it tells how long a cycle is, which the time-stamp counter does not. In the second eight
//! chains go on at once, four operations a step of which one is a multiplication: a cycle a step, since cores multiply once a
//! cycle and do three operations more beside. Where the core's other thread takes every second place in the queue, it is one
//! and a half to two, on cores of four to six operations a cycle. So that who is there all the while is seen, too, whom no
//! comparison of passes with each other finds.

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;

/// Steps of the first loop, of two operations.
const CHAINED_STEPS: u64 = 100_000;
/// Steps of the second one's chains.
const STEPS: u64 = 4000;
const CHAINS: usize = 8;

/// Cycles a step of the second loop where nobody else is on the core.
const UNDISTURBED: f64 = 1.0;

/// Above this numbers say more of others than of the machine.
const MOST: f64 = 0.15;

/// Nanoseconds of a cycle.
pub(super) fn cycle_ns() -> f64 {
    let mut value = black_box(1u64);
    let add = black_box(0x9e37_79b9_7f4a_7c15u64);
    let begun = Instant::now();
    for _ in 0..CHAINED_STEPS {
        value = value.rotate_left(7).wrapping_add(add);
    }
    let took = begun.elapsed();
    black_box(value);
    took.as_secs_f64() * 1e9 / (2 * CHAINED_STEPS) as f64
}

/// Nanoseconds of a step of the second loop.
pub(super) fn step_ns() -> f64 {
    let mut values: [u64; CHAINS] = black_box(std::array::from_fn(|n| n as u64 + 1));
    let (by, mix) = (black_box(0x5851_f42d_4c95_7f2du64), black_box(0x9e37_79b9_7f4a_7c15u64));
    let begun = Instant::now();
    for _ in 0..STEPS {
        for value in &mut values {
            *value = (value.wrapping_mul(by) ^ mix).rotate_left(7).wrapping_add(1);
        }
    }
    let took = begun.elapsed();
    black_box(values);
    took.as_secs_f64() * 1e9 / (STEPS * CHAINS as u64) as f64
}

/// By how much others disturbed a measurement, in shares.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Disturbed {
    /// Who came and went: how much longer than what is told half of the passes of the same work took.
    pub spells: f64,
    /// Who stayed: how much longer than on a core of one's own the loop took whose time there is known.
    pub steady: f64,
    /// The share of the time in which there was no core to run on; none where the system does not tell.
    pub waited: Option<f64>,
}

impl Disturbed {
    /// By passes of the same work, by cycles a step of the loop, and by the share of the time that was waited.
    pub(super) fn of(passes: &[f64], step_cycles: &[f64], waited: Option<f64>) -> Self {
        let longer = |than: f64, what: f64| (what / than - 1.0).max(0.0);
        let spells = longer(permille(passes, REPORTED_PERMILLE), permille(passes, 500));
        Self { spells, steady: longer(UNDISTURBED, permille(step_cycles, REPORTED_PERMILLE)), waited }
    }

    /// Why what was measured is not this machine's alone; none where it is.
    pub fn sentence(&self) -> Option<String> {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut parts = Vec::new();
        if self.spells > MOST {
            parts.push(format!(
                "half of the passes took {} longer than what is told here",
                percent(self.spells)
            ));
        }
        if self.steady > MOST {
            parts.push(format!(
                "somebody else was on this core all the while (a loop over registers takes {} longer than by itself)",
                percent(self.steady)
            ));
        }
        if let Some(waited) = self.waited.filter(|waited| *waited > MOST) {
            parts.push(format!("there was no core to run on for {} of the time", percent(waited)));
        }
        (!parts.is_empty()).then(|| format!("the machine was disturbed: {}", parts.join("; ")))
    }
}

/// Of a thousand passes so many took less than what is told: spells of others lengthen passes, and nothing shortens them.
pub(super) const REPORTED_PERMILLE: usize = 100;

fn permille(passes: &[f64], permille: usize) -> f64 {
    let mut sorted = passes.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() * permille / 1000]
}

/// Nanoseconds that this thread ran, and that it waited for a core (Linux: `schedstat`).
pub(super) fn ran_and_waited() -> Option<[u64; 2]> {
    parse_schedstat(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

fn parse_schedstat(text: &str) -> Option<[u64; 2]> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

/// The share of the time since then in which there was no core.
pub(super) fn waited_since(begun: Option<[u64; 2]>) -> Option<f64> {
    let ([ran, waited], [ran_before, waited_before]) = (ran_and_waited()?, begun?);
    let (ran, waited) = (ran - ran_before, waited - waited_before);
    Some(waited as f64 / (ran + waited).max(1) as f64)
}

/// The pace of the core that something else is measured on, taken between its passes.
#[derive(Debug)]
pub struct Pace {
    cycles_ns: Vec<f64>,
    steps_ns: Vec<f64>,
    begun: Option<[u64; 2]>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { cycles_ns: Vec::new(), steps_ns: Vec::new(), begun: ran_and_waited() }
    }
}

impl Pace {
    /// Takes it once more: about a tenth of a millisecond.
    pub fn take(&mut self) {
        self.cycles_ns.push(cycle_ns());
        self.steps_ns.push(step_ns());
    }

    /// Nanoseconds of a cycle; none where it was never taken.
    pub fn cycle_ns(&self) -> Option<f64> {
        (!self.cycles_ns.is_empty()).then(|| permille(&self.cycles_ns, REPORTED_PERMILLE))
    }

    /// By how much others disturbed it; none where it was never taken.
    pub fn disturbed(&self) -> Option<Disturbed> {
        let cycle_ns = self.cycle_ns()?;
        let steps: Vec<f64> = self.steps_ns.iter().map(|ns| ns / cycle_ns).collect();
        Some(Disturbed::of(&self.steps_ns, &steps, waited_since(self.begun)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stays_all_the_while_is_seen_as_is_who_comes_and_goes() {
        let calm = Disturbed::of(&[50.0; 20], &[1.05; 20], Some(0.01));
        assert_eq!((calm.spells, calm.sentence()), (0.0, None));
        // All passes take twice as long: none differs from another.
        let steady = Disturbed::of(&[100.0; 20], &[1.9; 20], None);
        assert_eq!(steady.spells, 0.0);
        assert!((steady.steady - 0.9).abs() < 1e-9 && steady.sentence().unwrap().contains("90 % longer"));
        let mut spells = [50.0; 20];
        spells[8..].fill(80.0);
        let spells = Disturbed::of(&spells, &[1.0; 20], None);
        assert!((spells.spells - 0.6).abs() < 1e-9 && spells.steady == 0.0);
        assert!(spells.sentence().unwrap().contains("60 % longer"));
        let waited = Disturbed::of(&[50.0; 20], &[1.0; 20], Some(0.5));
        assert!(waited.sentence().unwrap().contains("50 % of the time"));
        // A core that does more at a time is not disturbed.
        assert_eq!(Disturbed::of(&[50.0; 20], &[0.7; 20], None).steady, 0.0);
    }

    #[test]
    fn what_the_scheduler_tells_is_read() {
        assert_eq!(parse_schedstat("8037 1500 3\n"), Some([8037, 1500]));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn a_pace_that_was_never_taken_says_nothing() {
        let mut pace = Pace::default();
        assert_eq!((pace.cycle_ns(), pace.disturbed()), (None, None));
        pace.take();
        assert!(pace.cycle_ns().unwrap() > 0.0 && pace.disturbed().is_some());
    }
}
