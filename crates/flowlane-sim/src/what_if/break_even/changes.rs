//! By changes of the tables a second.

use super::{BreakEven, Values};
use crate::config::Approach;
use crate::paper::{Chart, Series};
use crate::what_if::crossing::{Crossing, crossing, place_text};
use crate::what_if::measured::{Measured, Measurement};
use crate::what_if::text::label;
use crate::what_if::{Base, Outcome};

/// Instructions between two changes by another core.
pub(super) const PAUSES: [u32; 6] = [100_000, 20_000, 5000, 1000, 300, 100];

/// Whose changes are looked at.
pub(super) fn changing(base: &Base<'_>) -> [Approach; 4] {
    [Approach::Scalar, base.software, Approach::HaloBlocking, Approach::HaloNonBlocking]
}

/// What changes of the tables do to those who look up.
pub(super) fn changes(
    base: &Base<'_>,
    measured: &Measured,
    outcomes: &[Outcome],
) -> (Vec<BreakEven>, Vec<Chart>) {
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
        let (before, most) = (base.outcome(approaches[n]).cycles, of(n).next_back());
        let after = most.map_or(before, |o| o.cycles);
        let again = most.map_or(0, |o| o.counters.snoop_misses);
        BreakEven {
            axis,
            question: format!(
                "{} loses by {} changes a second",
                label(approaches[n]),
                millions(places.last())
            ),
            answer: format!(
                "{:+.1} % cycles a packet; {again} writes met a lock",
                100.0 * (after / before - 1.0)
            ),
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
    let ours: Values =
        of(at).map(|o| Some(own_changes(o.ns(), measured.exact_update_us, o.updates_per_second))).collect();
    let theirs = match base.incomparable() {
        Some(_) => vec![None; places.len()],
        None => fastest_changing(measured, &places),
    };
    let why = base.incomparable().unwrap_or("not measured");
    let crossed = crossing(&places, &ours, &theirs);
    answers.push(BreakEven {
        axis,
        question: format!(
            "{} is faster than the fastest software measured here, where the core that looks up makes the changes, too",
            label(base.accelerator)
        ),
        answer: crossed.as_ref().map_or_else(|| why.to_owned(), Crossing::to_string),
        crossing: crossed,
    });
    answers.extend(cost_of_changes(measured, axis));
    if theirs.iter().any(Option::is_some) {
        let rate = |ns: &Option<f64>| ns.filter(|ns| *ns < NO_TIME_NS).map(|ns| 1000.0 / ns);
        let name = "fastest measured here that can change, changed by the same core".to_owned();
        series.push(Series { name, values: theirs.iter().map(rate).collect() });
    }
    (answers, vec![chart(&places, series)])
}

fn chart(places: &[f64], series: Vec<Series>) -> Chart {
    Chart {
        id: "by-changes",
        title: "Packets a second, by changes a second".into(),
        about:
            "Another core writes buckets of the tables at random, and meets the locks of queries under way."
                .into(),
        axis: "changes a second",
        places: places.iter().map(|p| place_text(*p)).collect(),
        unit: "million packets a second",
        lines: true,
        series,
    }
}

/// Nanoseconds a packet of the fastest software that was measured, where it makes so many changes a second itself.
fn fastest_changing(measured: &Measured, places: &[f64]) -> Values {
    let at = |rate: &f64| {
        let of = |m: &Measurement| Some(own_changes(m.ns[1], Some(m.update_us?), *rate));
        measured.base.iter().filter_map(of).min_by(f64::total_cmp)
    };
    places.iter().map(at).collect()
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

/// What a change costs: of the software that is fastest otherwise, of that which changes fastest, and of a table that
/// accelerators read.
fn cost_of_changes(measured: &Measured, axis: &'static str) -> Vec<BreakEven> {
    let changing = || measured.base.iter().filter_map(|m| Some((m, m.update_us?)));
    let fast = changing().min_by(|a, b| a.0.ns[1].total_cmp(&b.0.ns[1]));
    let cheap = changing().min_by(|a, b| a.1.total_cmp(&b.1));
    let named = fast.into_iter().chain(cheap).map(|(m, us)| (m.name.clone(), us));
    let exact = measured.exact_update_us.map(|us| ("exact-match tables".to_owned(), us));
    let mut all: Vec<(String, f64)> = named.chain(exact).collect();
    all.dedup();
    let told = |(name, us): (String, f64)| {
        let question = format!("changes that one core makes with {name}, measured here");
        let answer =
            format!("{} a second ({us:.2} µs each), and it looks up nothing then", place_text(1e6 / us));
        BreakEven { axis, question, answer, crossing: None }
    };
    all.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_take_the_time_that_they_take() {
        assert_eq!(own_changes(100.0, Some(1.0), 500_000.0), 200.0);
        assert_eq!(own_changes(100.0, Some(1.0), 1e6), NO_TIME_NS);
        assert_eq!(own_changes(100.0, None, 1e6), 100.0);
    }
}
