//! Break-evens by the rate of table changes.

use super::{BreakEven, Values};
use crate::config::Approach;
use crate::report::{Chart, Series};
use crate::what_if::crossing::{Crossing, crossing, place_text};
use crate::what_if::measured::{Measured, Measurement};
use crate::what_if::text::label;
use crate::what_if::{Base, Outcome};
use flowlane::deterministic_math::{exp, ln};

/// Instructions between two changes by another core.
pub(super) const PAUSES: [u32; 6] = [100_000, 20_000, 5000, 1000, 300, 100];

/// The approaches for which changes are simulated.
pub(super) const CHANGING: [Approach; 2] = [Approach::HaloBlocking, Approach::HaloNonBlocking];

/// Returns the effect of table changes on lookups.
pub(super) fn changes(
    base: &Base<'_>,
    measured: &Measured,
    outcomes: &[Outcome],
) -> (Vec<BreakEven>, Vec<Chart>) {
    let axis = "changes a second";
    let approaches = CHANGING;
    if outcomes.is_empty() {
        let question = "what changes do".to_owned();
        let answer = "the machine has one core, and none for changes".to_owned();
        return (vec![BreakEven { axis, question, answer, crossing: None }], Vec::new());
    }
    let of = |n: usize| outcomes.iter().skip(n).step_by(approaches.len());
    // The achieved rates differ slightly by approach; those next to the accelerator are the positions.
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
    let mut series: Vec<Series> = (0..approaches.len())
        .map(|n| Series {
            name: format!("{}, simulated, changed by another core", label(approaches[n])),
            values: of(n).map(|o| Some(o.millions_per_second)).collect(),
        })
        .collect();
    let theirs = measured_rates(base, measured, &places);
    answers.push(beside_measured(base, measured));
    answers.extend(cost_of_changes(measured, axis));
    if theirs.iter().any(Option::is_some) {
        let name = "fastest measured here that can change, changed by the same core".to_owned();
        series.push(Series { name, values: theirs });
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

fn millions(rate: Option<&f64>) -> String {
    rate.map_or_else(String::new, |rate| place_text(*rate))
}

/// A core that looks up packets and also makes the changes.
#[derive(Clone, Copy)]
struct Changing {
    /// The nanoseconds of a packet without changes.
    ns: f64,
    /// The microseconds of a change.
    update_us: f64,
}

impl Changing {
    /// Returns the nanoseconds of a packet at a rate of changes; `None` if the changes take all the time.
    fn ns(self, per_second: f64) -> Option<f64> {
        let left = 1.0 - per_second * self.update_us / 1e6;
        (left > 0.0).then(|| self.ns / left)
    }

    /// Returns the rate of changes that takes all the time.
    fn most(self) -> f64 {
        1e6 / self.update_us
    }
}

/// Returns the fastest of several at a rate of changes.
fn fastest(of: &[Changing], per_second: f64) -> Option<f64> {
    of.iter().filter_map(|c| c.ns(per_second)).min_by(f64::total_cmp)
}

/// Returns all measured software that supports changes, on the machine of the question.
fn software(base: &Base<'_>, measured: &Measured) -> Vec<Changing> {
    let of = |m: &Measurement| {
        let times = base.times(&m.name)?;
        Some(Changing { ns: m.ns[1] * times, update_us: m.update_us? * times })
    };
    measured.base.iter().filter_map(of).collect()
}

/// Returns the millions of packets a second of the fastest at each position; none if not comparable with simulated
/// values.
fn measured_rates(base: &Base<'_>, measured: &Measured, places: &[f64]) -> Values {
    let refused = base.incomparable().or(base.no_ratio());
    let software = if refused.is_some() { Vec::new() } else { software(base, measured) };
    places.iter().map(|rate| fastest(&software, *rate).map(|ns| 1000.0 / ns)).collect()
}

/// The number of positions from the first one to just before the last, evenly spaced in logarithms: close enough that
/// a curve between two of them is a power, even near its end.
const STEPS: usize = 400;
const FIRST: f64 = 1000.0;

/// Returns the rates at which the accelerator is faster than measured software, if both make the changes on the core
/// that looks up.
fn beside_measured(base: &Base<'_>, measured: &Measured) -> BreakEven {
    let question = format!(
        "{} is faster than the fastest software measured here, where the core that looks up makes the changes, too",
        label(base.accelerator)
    );
    let axis = "changes a second";
    let even = |answer: String, crossing| BreakEven { axis, question, answer, crossing };
    if let Some(why) = base.incomparable().or(base.no_ratio()) {
        return even(why.to_owned(), None);
    }
    let software = software(base, measured);
    // Without the changes of another core: this core makes them itself.
    let ns = base.outcome(base.accelerator).ns();
    let ours = measured.exact_update_us.map(|update_us| Changing { ns, update_us });
    match ours.and_then(|ours| passing(ours, &software)) {
        Some((crossing, ends)) => even(format!("{crossing}; {ends}"), Some(crossing)),
        None => even("not measured".to_owned(), None),
    }
}

/// Returns the rates at which one is faster than all others while both have time left, and a description of the rates
/// at which each runs out of time.
fn passing(ours: Changing, theirs: &[Changing]) -> Option<(Crossing, String)> {
    let most = theirs.iter().map(|c| c.most()).max_by(f64::total_cmp)?;
    let end = most.min(ours.most()) * 0.999;
    let place =
        |n: usize| FIRST.min(end / 2.0) * exp(ln(end / FIRST.min(end / 2.0)) * n as f64 / STEPS as f64);
    let places: Vec<f64> = (0..=STEPS).map(place).collect();
    let of_all = |f: &dyn Fn(f64) -> Option<f64>| -> Values { places.iter().map(|at| f(*at)).collect() };
    let crossed = crossing(&places, &of_all(&|at| ours.ns(at)), &of_all(&|at| fastest(theirs, at)))?;
    let [own, other] = [ours.most(), most].map(place_text);
    Some((
        crossed,
        format!("it has no time left for packets from {own} on, all of the software from {other} on"),
    ))
}

/// Returns the cost of a change: for the software that is fastest otherwise, for the software that changes fastest,
/// and for a table that accelerators read.
fn cost_of_changes(measured: &Measured, axis: &'static str) -> Vec<BreakEven> {
    let changing = || measured.base.iter().filter_map(|m| Some((m, m.update_us?)));
    let fast = changing().min_by(|a, b| a.0.ns[1].total_cmp(&b.0.ns[1]));
    let cheap = changing().min_by(|a, b| a.1.total_cmp(&b.1));
    let named = fast.into_iter().chain(cheap).map(|(m, us)| (m.name.clone(), us));
    let exact =
        measured.exact_update_us.map(|us| ("exact-match tables, which accelerators read".to_owned(), us));
    let mut all: Vec<(String, f64)> = exact.into_iter().chain(named).collect();
    // Each cost is listed once, although several approaches share the tables.
    let mut listed = Vec::new();
    all.retain(|(_, us)| {
        !listed.contains(us) && {
            listed.push(*us);
            true
        }
    });
    let break_even = |(name, us): (String, f64)| {
        let question = format!("changes that one core makes with {name}, measured here");
        let answer =
            format!("{} a second ({us:.2} µs each), and it looks up nothing then", place_text(1e6 / us));
        BreakEven { axis, question, answer, crossing: None }
    };
    all.into_iter().map(break_even).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_take_the_time_that_they_take() {
        let of = |update_us| Changing { ns: 100.0, update_us };
        assert_eq!(of(1.0).ns(500_000.0), Some(200.0));
        assert_eq!((of(1.0).ns(1e6), of(1.0).most()), (None, 1e6));
        assert_eq!(
            fastest(&[of(1.0), Changing { ns: 150.0, update_us: 0.1 }], 800_000.0),
            Some(150.0 / 0.92)
        );
    }

    #[test]
    fn crossings_are_found_on_steep_curves() {
        // 200 ns and 0.5 µs against 100 ns and 1 µs: 200 / (1 - r/2) = 100 / (1 - r) at r = 2/3 of a million.
        let (slow, fast) = (Changing { ns: 200.0, update_us: 0.5 }, Changing { ns: 100.0, update_us: 1.0 });
        let (crossed, ends) = passing(slow, &[fast]).unwrap();
        assert!(!crossed.at_first && crossed.at.len() == 1);
        assert!((crossed.at[0] / (2e6 / 3.0) - 1.0).abs() < 1e-3, "{crossed}");
        assert!(ends.contains("from 2.000 million on, all of the software from 1.000 million on"), "{ends}");
        let (crossed, _) = passing(fast, &[slow]).unwrap();
        assert!(crossed.at_first && (crossed.at[0] / (2e6 / 3.0) - 1.0).abs() < 1e-3, "{crossed}");
        // With equal changes, the slower one stays slower.
        let (never, _) = passing(Changing { ns: 101.0, ..fast }, &[fast]).unwrap();
        assert!(!never.at_first && never.at.is_empty());
        // The same holds if a change takes more than a thousandth of a second.
        assert!(passing(Changing { ns: 1.0, update_us: 1e4 }, &[fast]).unwrap().0.at_first);
        assert_eq!(passing(fast, &[]), None);
    }
}
