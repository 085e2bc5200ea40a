//! From when on what is better: by the number of rules, of masks, of packets a second and of changes a second.

use std::sync::Arc;

use serde::Serialize;

use super::crossing::{Crossing, crossing, place_text};
use super::jobs::Job;
use super::measured::{Measured, Measurement, fastest};
use super::text::label;
use super::{Base, Outcome, energy};
use crate::config::Approach;
use crate::machine::cost::ACCELERATOR;
use crate::paper::{Chart, Series};
use crate::workload::rules::Workload;

/// Instructions between two changes by another core.
const PAUSES: [u32; 6] = [100_000, 20_000, 5000, 1000, 300, 100];
/// Packets a second (millions) that are offered: 10, 25, 40, 100 and 200 Gbit/s of the smallest frames among them.
const RATES: [f64; 12] = [0.1, 0.3, 1.0, 3.0, 7.44, 14.88, 29.76, 37.2, 59.52, 148.8, 297.6, 595.2];
/// Packets with which the number of tables that are asked is found.
const SAMPLE: usize = 512;

/// A question, and from when on the answer is yes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BreakEven {
    /// What is varied.
    pub axis: &'static str,
    /// What is asked.
    pub question: String,
    /// In words.
    pub answer: String,
    /// In numbers, where it is one of a curve passing another.
    pub crossing: Option<Crossing>,
}

/// Tables that a search in order asks for a packet, in the mean.
pub(super) fn asked(workload: &Workload) -> f64 {
    let own = crate::workload::rules::Own::new(&mut workload.tables.space.clone());
    let step = (workload.packets.len() / SAMPLE).max(1);
    let some = workload.packets.iter().zip(&workload.expected).step_by(step);
    let asked: Vec<usize> = some
        .filter_map(|(key, rule)| workload.tables.search(key, (0, own.key(0)), *rule, false).ok())
        .map(|search| search.asked)
        .collect();
    asked.iter().sum::<usize>() as f64 / asked.len().max(1) as f64
}

/// The runs of all curves, in their order.
pub(super) struct Curves {
    along: Vec<Approach>,
    cores: Vec<u32>,
    jobs: Vec<Job>,
}

/// Whose changes are looked at.
fn changing(base: &Base<'_>) -> [Approach; 4] {
    [Approach::Scalar, base.software, Approach::HaloBlocking, Approach::HaloNonBlocking]
}

/// Who is looked at with several cores.
fn scaling(base: &Base<'_>) -> [Approach; 4] {
    [base.software, Approach::HaloBlocking, Approach::HaloNonBlocking, Approach::NearL2]
}

impl Curves {
    pub(super) fn of(base: &Base<'_>) -> Self {
        let mut along = vec![
            Approach::Scalar,
            base.software,
            Approach::HaloBlocking,
            Approach::HaloNonBlocking,
            Approach::NearL2,
            Approach::Tcam,
        ];
        along.dedup();
        let on = |workload: &Arc<Workload>, approach| Job::new(&base.machine, workload, approach);
        let axes = base.plan.sizes.iter().chain(&base.plan.masks);
        let mut jobs: Vec<Job> =
            axes.flat_map(|(_, workload)| along.iter().map(move |approach| on(workload, *approach))).collect();
        let most = base.machine.core.cores;
        let cores: Vec<u32> = [2, 4, 8, 16].into_iter().filter(|n| *n <= most).collect();
        let several = cores.iter().filter(|n| !base.question.effort.quick || **n <= 4);
        let cores: Vec<u32> = several.copied().collect();
        for cores in &cores {
            jobs.extend(scaling(base).map(|a| Job { cores: *cores, ..on(&base.plan.base, a) }));
        }
        if most > 1 {
            for pause in PAUSES {
                let job = |a| Job { update_pause: Some(pause), ..on(&base.plan.base, a) };
                jobs.extend(changing(base).map(job));
            }
        }
        Self { along, cores, jobs }
    }

    pub(super) fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// What the runs say.
    pub(super) fn finish(
        &self,
        base: &Base<'_>,
        measured: &Measured,
        outcomes: &[Outcome],
    ) -> (Vec<BreakEven>, Vec<Chart>) {
        let plan = base.plan;
        let (by_size, rest) = outcomes.split_at(plan.sizes.len() * self.along.len());
        let (by_masks, rest) = rest.split_at(plan.masks.len() * self.along.len());
        let (by_cores, by_changes) = rest.split_at(self.cores.len() * scaling(base).len());
        let mut charts = vec![stacks(base)];
        let mut answers = Vec::new();
        for (axis, workloads, outcomes, measured) in [
            ("rules", &plan.sizes, by_size, &measured.sizes),
            ("masks", &plan.masks, by_masks, &measured.masks),
        ] {
            let axis = Axis { base, axis, workloads, along: &self.along, outcomes, measured };
            answers.extend(axis.answers());
            charts.push(axis.chart());
            if axis.axis == "rules" {
                let (more, chart) = axis.energies();
                answers.extend(more);
                charts.push(chart);
            }
        }
        let (more, chart) = rates(base, measured, &self.cores, by_cores);
        answers.extend(more);
        charts.extend(chart);
        let (more, chart) = changes(base, measured, by_changes);
        answers.extend(more);
        charts.extend(chart);
        (answers, charts)
    }
}

/// Where the time goes, of all approaches.
fn stacks(base: &Base<'_>) -> Chart {
    let parts: Vec<&'static str> = base.outcomes[0].stack.iter().map(|(name, _)| *name).collect();
    let series = |(n, name): (usize, &&'static str)| Series {
        name: (*name).to_owned(),
        values: base.outcomes.iter().map(|o| Some(o.stack[n].1)).collect(),
    };
    Chart {
        id: "stacks",
        title: "Where the time goes".into(),
        about: "What the instruction at the head of the core's window waits for, simulated; `device` is an accelerator or a \
                TCAM."
            .into(),
        axis: "approach",
        places: base.outcomes.iter().map(|o| o.approach.name().to_owned()).collect(),
        unit: "cycles a packet",
        lines: false,
        series: parts.iter().enumerate().map(series).collect(),
    }
}

/// Workloads along an axis, with what was simulated and measured of each.
struct Axis<'a> {
    base: &'a Base<'a>,
    axis: &'static str,
    workloads: &'a [(f64, Arc<Workload>)],
    along: &'a [Approach],
    outcomes: &'a [Outcome],
    measured: &'a [Vec<Measurement>],
}

type Values = Vec<Option<f64>>;

impl Axis<'_> {
    fn places(&self) -> Vec<f64> {
        self.workloads.iter().map(|(at, _)| *at).collect()
    }

    fn outcomes_of(&self, approach: Approach) -> Vec<&Outcome> {
        let at = self.along.iter().position(|a| *a == approach).expect("it was simulated along");
        self.outcomes.iter().skip(at).step_by(self.along.len()).collect()
    }

    fn simulated(&self, approach: Approach) -> Values {
        self.outcomes_of(approach).into_iter().map(|outcome| Some(outcome.ns())).collect()
    }

    fn measured(&self, single: bool) -> Values {
        let of = |n: usize| {
            let here = self.measured.get(n)?.iter().filter(|m| m.single || !single);
            fastest(here).map(|m| m.ns[1])
        };
        (0..self.workloads.len()).map(of).collect()
    }

    /// Nanoseconds a packet of all that is compared, with names.
    fn curves(&self) -> Vec<(String, Values)> {
        let simulated = |a: &Approach| (format!("{}, simulated", label(*a)), self.simulated(*a));
        let mut curves: Vec<(String, Values)> = self.along.iter().map(simulated).collect();
        for (name, single) in [("fastest measured here, one by one", true), ("fastest measured here", false)] {
            let values = self.measured(single);
            if values.iter().any(Option::is_some) {
                curves.push((name.to_owned(), values));
            }
        }
        curves
    }

    fn answers(&self) -> Vec<BreakEven> {
        let places = self.places();
        let software = self.base.software;
        let mut rivals = vec![
            ("single lookups in software, simulated".to_owned(), self.simulated(Approach::Scalar)),
            (format!("{}, simulated", label(software)), self.simulated(software)),
            ("single lookups measured here (the fastest)".to_owned(), self.measured(true)),
            ("the fastest software measured here".to_owned(), self.measured(false)),
        ];
        rivals.dedup_by(|a, b| a.1 == b.1);
        let mut out = Vec::new();
        for approach in [self.base.accelerator, Approach::NearL2] {
            for (name, theirs) in &rivals {
                let crossed = crossing(&places, &self.simulated(approach), theirs);
                out.push(self.answer(format!("{} is faster than {name}", label(approach)), crossed));
            }
        }
        out
    }

    fn answer(&self, question: String, crossing: Option<Crossing>) -> BreakEven {
        let answer = crossing.as_ref().map_or_else(|| "not measured".to_owned(), Crossing::to_string);
        BreakEven { axis: self.axis, question, answer, crossing }
    }

    fn chart(&self) -> Chart {
        let (id, title, axis) = match self.axis {
            "rules" => ("by-rules", "By the number of rules", "rules"),
            _ => ("by-masks", "By the number of masks", "masks (tables, tuples)"),
        };
        let about = match self.axis {
            "rules" => {
                "Fewer: some of the rules at random. More: the rules again with other addresses, and packets for them."
            }
            _ => "Fewer: the rules of the masks that have most. More: the rules again, behind all, with shorter prefixes.",
        };
        Chart {
            id,
            title: title.into(),
            about: format!("{about} Simulated and measured nanoseconds are of different machines."),
            axis,
            places: self.places().into_iter().map(place_text).collect(),
            unit: "ns a packet",
            lines: true,
            series: self.curves().into_iter().map(|(name, values)| Series { name, values }).collect(),
        }
    }

    /// Energy by the number of rules.
    fn energies(&self) -> (Vec<BreakEven>, Chart) {
        let question = self.base.question;
        let of = |approach: Approach, like: Approach| -> Values {
            let outcomes = self.workloads.iter().zip(self.outcomes_of(like));
            let nj = outcomes.map(|((_, workload), outcome)| {
                let found =
                    energy(approach, outcome.queries, &question.machine, workload, question.extrapolate);
                Some(found.ok()??.query_nj)
            });
            nj.collect()
        };
        let accelerator = self.base.accelerator;
        let halo = of(accelerator, accelerator);
        let (tcam, sram) = (of(Approach::Tcam, Approach::Tcam), of(Approach::SramTcam, Approach::Tcam));
        let places = self.places();
        let mut answers = vec![self.fits()];
        for (name, theirs) in [("a TCAM", &tcam), ("an SRAM-TCAM", &sram)] {
            let question = format!("a packet's queries take less energy with {} than with {name}", label(accelerator));
            let crossed = crossing(&places, &halo, theirs);
            let answer = BreakEven { answer: "outside of Table 4".into(), ..self.answer(question, crossed) };
            answers.push(match &answer.crossing {
                Some(crossing) => BreakEven { answer: crossing.to_string(), ..answer },
                None => answer,
            });
        }
        let series = [(label(accelerator), halo), ("TCAM", tcam), ("SRAM-TCAM", sram)];
        let chart = Chart {
            id: "energy",
            title: "Energy of a packet's queries, by the number of rules".into(),
            about: format!(
                "Table 4, between its points by logarithms: a query of an accelerator takes {} nJ, one of a TCAM by its \
                 capacity. Without the power of doing nothing.",
                ACCELERATOR.query_nj
            ),
            axis: "rules",
            places: places.into_iter().map(place_text).collect(),
            unit: "nJ a packet",
            lines: true,
            series: series.map(|(name, values)| Series { name: name.to_owned(), values }).to_vec(),
        };
        (answers, chart)
    }

    /// How many rules of this kind the largest TCAM of Table 4 holds.
    fn fits(&self) -> BreakEven {
        let workload = &self.base.plan.base;
        let bytes_of_rule = workload.tcam_bytes() / workload.rules.len() as f64;
        let most = crate::machine::cost::TCAM[3].capacity_bytes / bytes_of_rule;
        let answer = format!(
            "up to {} rules such as these ({:.1} entries of {} bits each)",
            place_text(most.floor()),
            workload.tcam_entries() as f64 / workload.rules.len() as f64,
            workload.tcam_bits()
        );
        let question = "the largest TCAM of Table 4 (1 MB) holds the rules".to_owned();
        BreakEven { axis: self.axis, question, answer, crossing: None }
    }
}

/// Packets a second that so many cores look up: between the numbers of cores that were simulated in a line, beyond them
/// no more than with the most.
fn capacity(known: &[(f64, f64)], cores: f64) -> f64 {
    let after = known.iter().position(|(n, _)| *n >= cores);
    match after {
        Some(0) => known[0].1 * cores / known[0].0,
        Some(at) => {
            let ((from, low), (to, high)) = (known[at - 1], known[at]);
            low + (high - low) * (cores - from) / (to - from)
        }
        None => known.last().map_or(0.0, |(_, most)| *most),
    }
}

/// Cores that a rate takes; none where all that were looked at are not enough.
fn cores_for(known: &[(f64, f64)], rate: f64, most: u32) -> Option<f64> {
    (1..=most).map(f64::from).find(|cores| capacity(known, *cores) >= rate)
}

/// Cores that offered rates take.
fn rates(
    base: &Base<'_>,
    measured: &Measured,
    cores: &[u32],
    outcomes: &[Outcome],
) -> (Vec<BreakEven>, Vec<Chart>) {
    let approaches = scaling(base);
    let most = cores.iter().copied().max().unwrap_or(1);
    let known = |n: usize| -> Vec<(f64, f64)> {
        let one = (1.0, base.outcome(approaches[n]).millions_per_second);
        let several = outcomes.iter().skip(n).step_by(approaches.len());
        let more = cores.iter().zip(several).map(|(c, o)| (f64::from(*c), o.millions_per_second));
        std::iter::once(one).chain(more).collect()
    };
    let simulated = (0..approaches.len()).map(|n| (format!("{}, simulated", label(approaches[n])), known(n)));
    let mut all: Vec<(String, Vec<(f64, f64)>)> = simulated.collect();
    if let Some(best) = measured.best() {
        let one = best.millions_per_second();
        // Nothing of the measurement says otherwise: each core as the first.
        let name = format!("{}, measured here; more cores assumed to be like one", best.name);
        all.push((name, (1..=most).map(|c| (f64::from(c), one * f64::from(c))).collect()));
    }
    let mut answers: Vec<BreakEven> = all
        .iter()
        .map(|(name, known)| {
            let end = capacity(known, f64::from(most));
            let at = |rate: f64| match cores_for(known, rate, most) {
                Some(cores) => format!("{rate} M/s: {cores:.0}"),
                None => format!("{rate} M/s: more than {most}"),
            };
            let cores = [1.0, 14.88, 59.52, 148.8].map(at).join(", ");
            let question = format!("cores that {name} takes");
            let answer = format!("{cores} (one core: {:.2} M/s, {most}: {end:.1} M/s)", known[0].1);
            BreakEven { axis: "packets a second", question, answer, crossing: None }
        })
        .collect();
    let needed = |known: &[(f64, f64)]| -> Values { RATES.map(|rate| cores_for(known, rate, most)).to_vec() };
    let of = |approach| approaches.iter().position(|a| *a == approach).map(|n| needed(&all[n].1));
    let halo = of(base.accelerator).expect("both ways are among them");
    for rival in [0].into_iter().chain((all.len() > approaches.len()).then(|| all.len() - 1)) {
        let fewer = RATES.iter().zip(halo.iter().zip(needed(&all[rival].1)));
        let first = fewer.filter(|(_, (ours, theirs))| match (ours, theirs) {
            (Some(ours), Some(theirs)) => *ours < *theirs,
            (ours, theirs) => ours.is_some() && theirs.is_none(),
        });
        let answer = match first.map(|(rate, _)| *rate).next() {
            Some(rate) => format!("from {rate} M/s on, of the rates looked at"),
            None => format!("never within the range looked at ({} to {} M/s)", RATES[0], RATES[11]),
        };
        let question = format!("{} takes fewer cores than {}", label(base.accelerator), all[rival].0);
        answers.push(BreakEven { axis: "packets a second", question, answer, crossing: None });
    }
    answers.extend(idle_power(base));
    (answers, rate_charts(&all, cores, &needed))
}

fn rate_charts(
    all: &[(String, Vec<(f64, f64)>)],
    cores: &[u32],
    needed: &dyn Fn(&[(f64, f64)]) -> Values,
) -> Vec<Chart> {
    let short = |name: &str| name.split("; ").next().unwrap_or(name).to_owned();
    let places: Vec<f64> = std::iter::once(1.0).chain(cores.iter().map(|c| f64::from(*c))).collect();
    let by_cores = |(name, known): &(String, Vec<(f64, f64)>)| Series {
        name: short(name),
        values: places.iter().map(|c| Some(capacity(known, *c))).collect(),
    };
    let by_rate =
        |(name, known): &(String, Vec<(f64, f64)>)| Series { name: short(name), values: needed(known) };
    vec![
        Chart {
            id: "by-cores",
            title: "Packets a second, by cores".into(),
            about: "Cores that look up in the same tables and share slices, mesh, memory and accelerators.".into(),
            axis: "cores",
            places: places.iter().map(|c| place_text(*c)).collect(),
            unit: "million packets a second",
            lines: true,
            series: all.iter().map(by_cores).collect(),
        },
        Chart {
            id: "by-rate",
            title: "Cores that an offered rate takes".into(),
            about: "14.88 million packets a second are 10 Gbit/s of the smallest frames. No point: more cores than were \
                    looked at."
                .into(),
            axis: "million packets a second",
            places: RATES.map(place_text).to_vec(),
            unit: "cores",
            lines: true,
            series: all.iter().map(by_rate).collect(),
        },
    ]
}

/// From which rate on a TCAM takes more energy than accelerators, with the power of doing nothing.
fn idle_power(base: &Base<'_>) -> Option<BreakEven> {
    let (question, workload) = (base.question, &base.plan.base);
    let of = |approach| {
        let queries = base.outcome(approach).queries;
        energy(approach, queries, &question.machine, workload, question.extrapolate)
    };
    let text = format!("{} takes less energy than a TCAM, power of doing nothing included", label(base.accelerator));
    let (Ok(Some(halo)), Ok(Some(tcam))) = (of(base.accelerator), of(Approach::Tcam)) else {
        let answer = "the rules are outside of Table 4".to_owned();
        return Some(BreakEven { axis: "packets a second", question: text, answer, crossing: None });
    };
    let whole = |e: super::Energy| RATES.map(|rate| Some(e.whole_nj(rate * 1e6))).to_vec();
    let crossed = crossing(&RATES, &whole(halo), &whole(tcam))?;
    let answer = format!("{crossed} M/s");
    Some(BreakEven { axis: "packets a second", question: text, answer, crossing: Some(crossed) })
}

/// What changes of the tables do to those who look up.
fn changes(base: &Base<'_>, measured: &Measured, outcomes: &[Outcome]) -> (Vec<BreakEven>, Vec<Chart>) {
    let axis = "changes a second";
    let approaches = changing(base);
    if outcomes.is_empty() {
        let question = "what changes do".to_owned();
        let answer = "the machine has one core, and none for changes".to_owned();
        return (vec![BreakEven { axis, question, answer, crossing: None }], Vec::new());
    }
    let of = |n: usize| outcomes.iter().skip(n).step_by(approaches.len());
    // Changes a second differ a little by who looks up; those beside the accelerator are the places.
    let at = approaches.iter().rposition(|a| *a == base.accelerator).expect("both ways are among them");
    let places: Vec<f64> = of(at).map(|o| o.updates_per_second).collect();
    let slower = |n: usize| {
        let (before, after) = (base.outcome(approaches[n]).cycles, of(n).last().map_or(0.0, |o| o.cycles));
        let again = of(n).last().map_or(0, |o| o.counters.snoop_misses);
        BreakEven {
            axis,
            question: format!("{} loses by {} changes a second", label(approaches[n]), millions(places.last())),
            answer: format!("{:+.1} % cycles a packet; {again} writes met a lock", 100.0 * (after / before - 1.0)),
            crossing: None,
        }
    };
    let mut answers: Vec<BreakEven> = (0..approaches.len()).map(slower).collect();
    answers.dedup();
    let mut series: Vec<Series> = (0..approaches.len())
        .map(|n| Series {
            name: format!("{}, simulated, changed by another core", label(approaches[n])),
            values: of(n).map(|o| Some(o.millions_per_second)).collect(),
        })
        .collect();
    series.dedup_by(|a, b| a.name == b.name);
    let ours: Values = of(at).map(|o| Some(own_changes(o.ns(), measured.exact_update_us, o.updates_per_second))).collect();
    let theirs: Values = places
        .iter()
        .map(|rate| {
            let of = |m: &Measurement| own_changes(m.ns[1], m.update_us, *rate);
            let all = measured.base.iter().filter(|m| m.update_us.is_some()).map(of);
            all.min_by(f64::total_cmp)
        })
        .collect();
    let crossed = crossing(&places, &ours, &theirs);
    answers.push(BreakEven {
        axis,
        question: format!(
            "{} is faster than the fastest software measured here, where the core that looks up makes the changes, too",
            label(base.accelerator)
        ),
        answer: crossed.as_ref().map_or_else(|| "not measured".to_owned(), Crossing::to_string),
        crossing: crossed,
    });
    answers.extend(measured.base.iter().filter_map(|m| cost_of_changes(m, axis)));
    if theirs.iter().any(Option::is_some) {
        let rate = |ns: &Option<f64>| ns.filter(|ns| *ns < NO_TIME_NS).map(|ns| 1000.0 / ns);
        let name = "fastest measured here that can change, changed by the same core".to_owned();
        series.push(Series { name, values: theirs.iter().map(rate).collect() });
    }
    let chart = Chart {
        id: "by-changes",
        title: "Packets a second, by changes a second".into(),
        about: "Another core writes buckets of the tables at random, and meets the locks of queries under way.".into(),
        axis: "changes a second",
        places: places.iter().map(|p| place_text(*p)).collect(),
        unit: "million packets a second",
        lines: true,
        series,
    };
    (answers, vec![chart])
}

fn millions(rate: Option<&f64>) -> String {
    rate.map_or_else(String::new, |rate| place_text(*rate))
}

/// More nanoseconds than anything takes: of a core that has no time left.
const NO_TIME_NS: f64 = 1e12;

/// Nanoseconds a packet of a core that makes so many changes a second beside, each of which takes so many microseconds.
fn own_changes(ns: f64, update_us: Option<f64>, per_second: f64) -> f64 {
    let left = 1.0 - per_second * update_us.unwrap_or(0.0) / 1e6;
    if left > 0.0 { (ns / left).min(NO_TIME_NS) } else { NO_TIME_NS }
}

fn cost_of_changes(m: &Measurement, axis: &'static str) -> Option<BreakEven> {
    let us = m.update_us?;
    let question = format!("changes that one core makes with {}", m.name);
    let answer = format!("{} a second ({us:.2} µs each), and it looks up nothing then", place_text(1e6 / us));
    Some(BreakEven { axis, question, answer, crossing: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_linear_between_what_is_known_and_ends_with_it() {
        let known = [(1.0, 10.0), (2.0, 18.0), (4.0, 20.0)];
        let at = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 9.0].map(|cores| capacity(&known, cores));
        assert_eq!(at, [5.0, 10.0, 14.0, 18.0, 19.0, 20.0, 20.0]);
        let cores = |rate| cores_for(&known, rate, 4);
        assert_eq!([cores(9.0), cores(18.0), cores(18.5), cores(21.0)], [Some(1.0), Some(2.0), Some(3.0), None]);
    }

    #[test]
    fn changes_take_the_time_that_they_take() {
        assert_eq!(own_changes(100.0, Some(1.0), 500_000.0), 200.0);
        assert_eq!(own_changes(100.0, Some(1.0), 1e6), NO_TIME_NS);
        assert_eq!(own_changes(100.0, None, 1e6), 100.0);
    }
}
