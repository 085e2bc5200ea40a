//! A contest: candidates take turns at the same work; one wins, or the default stays.

use std::fmt::Display;

use crate::dispatch::WIN_BELOW;

/// Rounds that every candidate has, whatever the time.
const ROUNDS_MIN: usize = 25;
/// Rounds after which more would tell no more.
const ROUNDS_MAX: usize = 501;
/// Candidates that take this multiple of the best time are dropped, checked once in this number of rounds.
const LEAVE_AT: f64 = 1.25;
const LEAVE_EVERY: usize = 5;

/// Work that candidates do.
pub(in crate::tune) trait Workload {
    /// The identity of a candidate.
    type Entrant;

    /// Runs before the clock is read.
    fn prepare(&mut self, entrant: &Self::Entrant);

    /// The work.
    fn run(&mut self, entrant: &Self::Entrant);
}

/// A candidate and how long it took.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name, as the slot's table reads it.
    pub choice: String,
    /// The median of its rounds, in ticks per key or packet.
    pub ticks: f64,
    /// The quartiles.
    pub quartiles: [f64; 2],
    /// How many rounds it was in: slow ones leave.
    pub rounds: usize,
}

/// Why a candidate was chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// It is the default and there is no other.
    Alone,
    /// It is the default and no other is faster by more than noise.
    NoneFaster,
    /// It is faster than the default.
    Faster {
        /// Its time is so much of the default's: the median of the rounds' ratios.
        ratio: f64,
    },
}

/// The result of a contest.
#[derive(Clone, Debug)]
pub struct Contest {
    /// The subject.
    pub name: String,
    /// All of them.
    pub candidates: Vec<Candidate>,
    /// The place of the default.
    pub default: usize,
    /// The place of the one that was chosen.
    pub chosen: usize,
    /// Why.
    pub verdict: Verdict,
}

impl Contest {
    /// The one that was chosen.
    pub fn winner(&self) -> &Candidate {
        &self.candidates[self.chosen]
    }

    /// The default's rate as a share of the best one's: 1 where it is the best.
    pub fn default_share(&self) -> f64 {
        let own = self.candidates[self.default].ticks;
        let best = self.candidates.iter().map(|candidate| candidate.ticks).fold(own, f64::min);
        if own > 0.0 { best / own } else { 1.0 }
    }
}

/// The clock, and the ticks for a slot.
pub(super) struct Measuring<'a> {
    pub(super) clock: &'a mut dyn FnMut() -> u64,
    pub(super) ticks: u64,
    pub(super) table_bytes_max: u64,
}

/// The means of measurement.
#[derive(Clone, Copy)]
pub(in crate::tune) struct Rules {
    /// Ticks after which no further round begins.
    pub(in crate::tune) ticks: u64,
    /// Keys or packets in one run.
    pub(in crate::tune) items: u64,
    /// The place of the default.
    pub(in crate::tune) default: usize,
}

impl Measuring<'_> {
    /// Holds a contest.
    pub(super) fn contest<T: Display>(
        &mut self,
        name: String,
        ticks: u64,
        items: u64,
        candidates: &[T],
        default: usize,
        workload: &mut impl Workload<Entrant = T>,
    ) -> Contest {
        contest(self.clock, name, Rules { ticks, items, default }, candidates, workload)
    }
}

/// Holds a contest.
pub(in crate::tune) fn contest<T: Display>(
    clock: &mut dyn FnMut() -> u64,
    name: String,
    rules: Rules,
    candidates: &[T],
    workload: &mut impl Workload<Entrant = T>,
) -> Contest {
    let names = candidates.iter().map(T::to_string).collect();
    hold(clock, name, rules, names, &mut |step, place| match step {
        Step::Prepare => workload.prepare(&candidates[place]),
        Step::Run => workload.run(&candidates[place]),
    })
}

/// The phase of a candidate.
#[derive(Clone, Copy)]
enum Step {
    Prepare,
    Run,
}

/// Measures candidates of any kind, which are identified by their index.
fn hold(
    clock: &mut dyn FnMut() -> u64,
    name: String,
    rules: Rules,
    names: Vec<String>,
    work: &mut dyn FnMut(Step, usize),
) -> Contest {
    let mut samples = vec![Vec::new(); names.len()];
    let mut stays = vec![true; names.len()];
    let begun = clock();
    // One round to warm up, which does not count.
    for round in 0..=ROUNDS_MAX {
        // Each begins in turn, so that none always comes after the same other.
        for place in (0..names.len()).map(|i| (i + round) % names.len()).filter(|i| stays[*i]) {
            work(Step::Prepare, place);
            let before = clock();
            work(Step::Run, place);
            let taken = clock().wrapping_sub(before);
            if round > 0 {
                samples[place].push(taken as f64 / rules.items as f64);
            }
        }
        if round > 0 && round.is_multiple_of(LEAVE_EVERY) {
            let best = samples.iter().map(|s| quantile(s, 0.5)).fold(f64::INFINITY, f64::min);
            for (place, samples) in samples.iter().enumerate() {
                stays[place] &= place == rules.default || quantile(samples, 0.5) <= best * LEAVE_AT;
            }
        }
        if round >= ROUNDS_MIN && clock().wrapping_sub(begun) >= rules.ticks {
            break;
        }
    }
    let (chosen, verdict) = judge(&samples, rules.default);
    let candidates = names.into_iter().zip(&samples).map(|(choice, samples)| Candidate {
        choice,
        ticks: quantile(samples, 0.5),
        quartiles: [quantile(samples, 0.25), quantile(samples, 0.75)],
        rounds: samples.len(),
    });
    Contest { name, candidates: candidates.collect(), default: rules.default, chosen, verdict }
}

/// The place of the winner, and why it is that.
fn judge(samples: &[Vec<f64>], default: usize) -> (usize, Verdict) {
    if samples.len() == 1 {
        return (default, Verdict::Alone);
    }
    // Round by round: what else the machine did hit both. In three of four rounds it must be faster.
    let ratios = |place: usize| -> Vec<f64> {
        let pairs = samples[place].iter().zip(&samples[default]);
        pairs.map(|(own, default)| if *default > 0.0 { own / default } else { 1.0 }).collect()
    };
    let faster: Vec<(usize, f64)> = (0..samples.len())
        .filter(|place| *place != default)
        .map(|place| (place, ratios(place)))
        .filter(|(_, ratios)| quantile(ratios, 0.75) < WIN_BELOW)
        .map(|(place, ratios)| (place, quantile(&ratios, 0.5)))
        .collect();
    let best = faster.iter().map(|(_, ratio)| *ratio).fold(f64::INFINITY, f64::min);
    match faster.iter().find(|(_, ratio)| ratio * WIN_BELOW <= best) {
        Some(&(place, ratio)) => (place, Verdict::Faster { ratio }),
        None => (default, Verdict::NoneFaster),
    }
}

/// The sample below which this share lies.
fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(f64::INFINITY)
}
