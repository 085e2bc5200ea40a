//! The pace of a core: the length of its cycles, and how much of it other processes use.
//!
//! Two loops use registers only. In the first, every operation depends on the previous one and takes a cycle on every
//! core, whatever else runs: it measures the length of a cycle, which the time-stamp counter does not. In the second,
//! eight chains run in parallel with four operations a step, one of them a multiplication. Cores issue one
//! multiplication and three further operations in a cycle, so a step takes one cycle. When the core's other thread
//! takes half of the issue slots, a step takes one and a half to two cycles, on cores of four to six operations a
//! cycle. The loop runs before and after each pass, so that passes beside another process are left out.

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;

/// Steps of the first loop, of two operations.
const CHAINED_STEPS: u64 = 100_000;
/// Steps of the second loop.
const STEPS: u64 = 1000;
const CHAINS: usize = 8;

/// The excess of the second loop's time over the shortest that still counts as calm.
const CALM: f64 = 0.06;

/// Calm passes that are enough, in thousandths of all.
const ENOUGH_PERMILLE: usize = 20;

/// The share of calm passes that a median over them needs.
pub(super) const ENOUGH: f64 = ENOUGH_PERMILLE as f64 / 1000.0;

/// The excess of the second loop's shortest time over a cycle that another process on the core's other thread gives: undisturbed
/// it was 0.15 to 0.3 on Zen 3 in several builds, and half a cycle or more beside another thread.
const STEADY: f64 = 0.4;

/// The largest acceptable share of waiting.
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

/// Equal passes, each with the longer time of a step of the second loop before and after it.
#[derive(Clone, Debug, Default)]
pub(super) struct Passes(pub(super) Vec<(f64, f64)>);

impl Passes {
    /// Times a pass.
    pub(super) fn time(&mut self, pass: &mut dyn FnMut() -> f64) {
        let before = step_ns();
        let ns = pass();
        self.0.push((ns, before.max(step_ns())));
    }

    fn calm_passes(&self, step_ns: f64) -> Vec<f64> {
        let most = step_ns * (1.0 + CALM);
        self.0.iter().filter(|(_, step)| *step <= most).map(|(ns, _)| *ns).collect()
    }

    /// Returns the median of the calm passes, or of the calmest ones if too few were calm.
    pub(super) fn calm(&self, step_ns: f64) -> f64 {
        let enough = (self.0.len() * ENOUGH_PERMILLE / 1000).max(1);
        let mut calm = self.calm_passes(step_ns);
        if calm.len() < enough {
            let mut all = self.0.clone();
            all.sort_by(|a, b| a.1.total_cmp(&b.1));
            calm = all[..enough].iter().map(|(ns, _)| *ns).collect();
        }
        permille(&calm, 500)
    }
}

/// Disturbance of a measurement by other processes.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Disturbed {
    /// The least share of calm passes that any measured figure has, and the share that its value needs.
    pub calm: f64,
    pub needed: f64,
    /// Constant load: the excess of the second loop's shortest time over a step of one cycle.
    pub steady: f64,
    /// The share of time spent waiting for a core; `None` if the system does not report it.
    pub waited: Option<f64>,
}

impl Disturbed {
    /// Computes the disturbance of equal passes, of which a share must be calm, from the shortest step and a cycle.
    pub(super) fn of(
        passes: &[Passes],
        needed: f64,
        [step_ns, cycle_ns]: [f64; 2],
        waited: Option<f64>,
    ) -> Self {
        let share = |of: &Passes| of.calm_passes(step_ns).len() as f64 / of.0.len().max(1) as f64;
        let calm = passes.iter().map(share).fold(1.0, f64::min);
        Self { calm, needed, steady: (step_ns / cycle_ns - 1.0).max(0.0), waited }
    }

    /// Describes the disturbance; `None` if it is acceptable.
    pub fn sentence(&self) -> Option<String> {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut parts = Vec::new();
        if self.calm < self.needed {
            parts.push(format!(
                "another process used this core at times (a loop over registers was slowed down around all but {} of the passes \
                 of a figure)",
                percent(self.calm)
            ));
        }
        if self.steady > STEADY {
            parts.push(format!(
                "another process used this core throughout (a loop over registers takes {} longer than a cycle for a step)",
                percent(self.steady)
            ));
        }
        if let Some(waited) = self.waited.filter(|waited| *waited > MOST) {
            parts.push(format!("there was no core to run on for {} of the time", percent(waited)));
        }
        (!parts.is_empty()).then(|| format!("the machine was disturbed: {}", parts.join("; ")))
    }
}

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
        (!self.cycles_ns.is_empty()).then(|| permille(&self.cycles_ns, 100))
    }

    /// Returns the disturbance; `None` without samples.
    pub fn disturbed(&self) -> Option<Disturbed> {
        let cycle_ns = self.cycle_ns()?;
        let least = permille(&self.steps_ns, 0);
        let passes = Passes(self.steps_ns.iter().map(|step| (*step, *step)).collect());
        // Values between the samples are medians of all passes.
        Some(Disturbed::of(&[passes], 0.5, [least, cycle_ns], waited_since(self.begun)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calm_passes_are_reported_and_too_few_of_them_are_a_disturbance() {
        // Another process uses the core for most of the time.
        let mut passes = Passes((0..90).map(|_| (80.0, 1.9)).collect());
        passes.0.extend([(50.0, 1.0), (52.0, 1.05), (51.0, 1.02)]);
        assert_eq!(passes.calm(1.0), 51.0);
        let disturbed = Disturbed::of(&[passes.clone()], ENOUGH, [1.0, 0.9], Some(0.01));
        assert!((disturbed.calm - 3.0 / 93.0).abs() < 1e-9 && disturbed.sentence().is_none());
        // Too few for a median of all passes.
        let of_all = Disturbed::of(&[passes.clone()], 0.5, [1.0, 0.9], None).sentence().unwrap();
        assert!(of_all.contains("at times") && !of_all.contains("throughout"), "{of_all}");
        // All of the time, so that only the calmest passes are left, and nothing is calm by comparison with a cycle.
        let throughout = Passes(vec![(80.0, 1.9), (70.0, 1.5)]);
        assert_eq!(throughout.calm(1.0), 70.0);
        let disturbed = Disturbed::of(&[passes, throughout], ENOUGH, [1.0, 0.9], Some(0.5));
        assert!(disturbed.sentence().unwrap().contains("at times"));
        assert!(disturbed.sentence().unwrap().contains("50 % of the time"));
        let constant = Disturbed::of(&[Passes(vec![(80.0, 1.7); 9])], ENOUGH, [1.7, 1.0], None);
        assert!(constant.calm == 1.0 && constant.sentence().unwrap().contains("throughout"));
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
