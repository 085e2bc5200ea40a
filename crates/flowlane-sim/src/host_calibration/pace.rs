//! The pace of a core: the length of its cycles, and how much of it other processes use.
//!
//! Two loops use registers only. In the first, every operation depends on the previous one and takes a cycle on every
//! core, whatever else runs: it measures the length of a cycle, which the time-stamp counter does not. In the second,
//! eight chains run in parallel with four operations a step, one of them a multiplication. Cores issue one
//! multiplication and three further operations in a cycle, so a step takes one cycle. When the core's other thread
//! takes half of the issue slots, a step takes one and a half to two cycles, on cores of four to six operations a
//! cycle. This detects a constant load, which no comparison of passes with each other can.

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;

/// Steps of the first loop, of two operations.
const CHAINED_STEPS: u64 = 100_000;
/// Steps of the second loop.
const STEPS: u64 = 4000;
const CHAINS: usize = 8;

/// Cycles of a step of the second loop on an undisturbed core.
const UNDISTURBED: f64 = 1.0;

/// The largest acceptable disturbance.
const MOST: f64 = 0.15;

/// Returns the nanoseconds of a cycle.
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

/// Returns the nanoseconds of a step of the second loop.
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

/// Disturbance of a measurement by other processes, as shares.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Disturbed {
    /// Intermittent load: the excess of the median pass over the reported percentile.
    pub spells: f64,
    /// Constant load: the excess of the second loop's time over that of an undisturbed core.
    pub steady: f64,
    /// The share of time spent waiting for a core; `None` if the system does not report it.
    pub waited: Option<f64>,
}

impl Disturbed {
    /// Computes the disturbance from equal passes, the cycles of the loop's steps, and the share of time spent
    /// waiting.
    pub(super) fn of(passes: &[f64], step_cycles: &[f64], waited: Option<f64>) -> Self {
        let longer = |than: f64, what: f64| (what / than - 1.0).max(0.0);
        let spells = longer(permille(passes, REPORTED_PERMILLE), permille(passes, 500));
        Self { spells, steady: longer(UNDISTURBED, permille(step_cycles, REPORTED_PERMILLE)), waited }
    }

    /// Describes the disturbance; `None` if it is acceptable.
    pub fn sentence(&self) -> Option<String> {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut parts = Vec::new();
        if self.spells > MOST {
            parts.push(format!(
                "half of the passes took {} longer than the reported value",
                percent(self.spells)
            ));
        }
        if self.steady > MOST {
            parts.push(format!(
                "another process used this core throughout (a loop over registers takes {} longer than on an idle core)",
                percent(self.steady)
            ));
        }
        if let Some(waited) = self.waited.filter(|waited| *waited > MOST) {
            parts.push(format!("there was no core to run on for {} of the time", percent(waited)));
        }
        (!parts.is_empty()).then(|| format!("the machine was disturbed: {}", parts.join("; ")))
    }
}

/// The reported percentile of passes, in thousandths: interference lengthens passes, and nothing shortens them.
pub(super) const REPORTED_PERMILLE: usize = 100;

fn permille(passes: &[f64], permille: usize) -> f64 {
    let mut sorted = passes.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() * permille / 1000]
}

/// Returns the nanoseconds that this thread ran and that it waited for a core (Linux: `schedstat`).
pub(super) fn ran_and_waited() -> Option<[u64; 2]> {
    parse_schedstat(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

fn parse_schedstat(text: &str) -> Option<[u64; 2]> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

/// Returns the share of time spent waiting for a core since `begun`.
pub(super) fn waited_since(begun: Option<[u64; 2]>) -> Option<f64> {
    let ([ran, waited], [ran_before, waited_before]) = (ran_and_waited()?, begun?);
    let (ran, waited) = (ran - ran_before, waited - waited_before);
    Some(waited as f64 / (ran + waited).max(1) as f64)
}

/// The pace of a core, sampled between the passes of another measurement.
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
    /// Takes a sample, which takes about a tenth of a millisecond.
    pub fn take(&mut self) {
        self.cycles_ns.push(cycle_ns());
        self.steps_ns.push(step_ns());
    }

    /// Returns the nanoseconds of a cycle; `None` without samples.
    pub fn cycle_ns(&self) -> Option<f64> {
        (!self.cycles_ns.is_empty()).then(|| permille(&self.cycles_ns, REPORTED_PERMILLE))
    }

    /// Returns the disturbance; `None` without samples.
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
    fn constant_and_intermittent_load_is_detected() {
        let calm = Disturbed::of(&[50.0; 20], &[1.05; 20], Some(0.01));
        assert_eq!((calm.spells, calm.sentence()), (0.0, None));
        // All passes take twice as long, so their comparison shows no difference.
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
        // A core that executes more operations in a cycle is not disturbed.
        assert_eq!(Disturbed::of(&[50.0; 20], &[0.7; 20], None).steady, 0.0);
    }

    #[test]
    fn schedstat_is_parsed() {
        assert_eq!(parse_schedstat("8037 1500 3\n"), Some([8037, 1500]));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn a_pace_without_samples_is_unknown() {
        let mut pace = Pace::default();
        assert_eq!((pace.cycle_ns(), pace.disturbed()), (None, None));
        pace.take();
        assert!(pace.cycle_ns().unwrap() > 0.0 && pace.disturbed().is_some());
    }
}
