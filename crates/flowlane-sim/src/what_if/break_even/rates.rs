//! Break-evens by the rate of packets: cores and static power.

use super::{BreakEven, Values};
use crate::config::Approach;
use crate::machine::cost::Cost;
use crate::report::{Chart, Series};
use crate::what_if::crossing::{crossing, place_text};
use crate::what_if::text::label;
use crate::what_if::{Base, Method, Outcome, energy};

/// Offered rates in millions of packets a second, including 10, 25, 40, 100 and 200 Gbit/s of the smallest frames.
const RATES: [f64; 12] = [0.1, 0.3, 1.0, 3.0, 7.44, 14.88, 29.76, 37.2, 59.52, 148.8, 297.6, 595.2];

/// Approaches that are simulated with several cores, before the software.
const SEVERAL: [Approach; 3] = [Approach::HaloBlocking, Approach::HaloNonBlocking, Approach::NearL2];

/// Returns the ways to look up with several cores: the approaches, and the fastest software if it was recorded.
pub(super) fn scaling(base: &Base<'_>) -> impl Iterator<Item = Method> {
    SEVERAL.map(Method::from).into_iter().chain(base.recorded().map(|(method, ..)| method))
}

/// Returns the millions of packets a second of the fastest software by cores: as measured where the machine is the host
/// and has as many, else the rate of one core times that by which replays become faster.
fn of_software(base: &Base<'_>, cores: &[u32], outcomes: &[&Outcome]) -> Option<(String, Vec<(f64, f64)>)> {
    let (method, ns, plain) = base.recorded()?;
    let mut known = vec![(1.0, 1000.0 / ns)];
    let threads = base.threads(method.name());
    for (count, outcome) in cores.iter().zip(outcomes) {
        let measured = threads.iter().find(|(threads, _)| threads == count);
        let simulated = outcome.millions_per_second / plain.millions_per_second * 1000.0 / ns;
        known.push((f64::from(*count), measured.map_or(simulated, |(_, rate)| *rate)));
    }
    let most = threads.iter().map(|(count, _)| *count).max().unwrap_or(1);
    let name = format!("{}, measured with up to {most} cores, replayed with more", method.name());
    Some((name, known))
}

/// Returns the rate that a number of cores achieves: linear between the simulated numbers, constant beyond them.
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

/// Returns the cores for a rate; `None` if the most cores are not enough.
fn cores_for(known: &[(f64, f64)], rate: f64, most: u32) -> Option<f64> {
    (1..=most).map(f64::from).find(|cores| capacity(known, *cores) >= rate)
}

/// Returns the cores for each of the rates.
fn needed(known: &[(f64, f64)], most: u32) -> Values {
    RATES.map(|rate| cores_for(known, rate, most)).to_vec()
}

/// Returns the cores for offered rates.
pub(super) fn rates(base: &Base<'_>, cores: &[u32], outcomes: &[Outcome]) -> (Vec<BreakEven>, Vec<Chart>) {
    let most = cores.iter().copied().max().unwrap_or(1);
    let each = scaling(base).count();
    let of = |n: usize| -> Vec<&Outcome> { outcomes.iter().skip(n).step_by(each).collect() };
    let known = |n: usize| -> Vec<(f64, f64)> {
        let one = (1.0, base.outcome(SEVERAL[n]).millions_per_second);
        let more = cores.iter().zip(of(n)).map(|(c, o)| (f64::from(*c), o.millions_per_second));
        std::iter::once(one).chain(more).collect()
    };
    let simulated = (0..SEVERAL.len()).map(|n| (format!("{}, simulated", label(SEVERAL[n])), known(n)));
    let mut all: Vec<(String, Vec<(f64, f64)>)> = simulated.collect();
    let refused = base.incomparable().or(base.no_ratio());
    if refused.is_none() {
        all.extend(of_software(base, cores, &of(SEVERAL.len())));
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
            let question = format!("cores taken by {name}");
            let answer = format!("{cores} (one core: {:.2} M/s, {most}: {end:.1} M/s)", known[0].1);
            BreakEven { axis: "packets a second", question, answer, crossing: None }
        })
        .collect();
    let halo = SEVERAL.iter().position(|a| *a == base.accelerator).expect("both ways are among them");
    if let Some((name, software)) = all.get(SEVERAL.len()) {
        let answer = fewer(&needed(&all[halo].1, most), &needed(software, most), most);
        let question = format!("{} takes fewer cores than {name}", label(base.accelerator));
        answers.push(BreakEven { axis: "packets a second", question, answer, crossing: None });
    }
    answers.extend(refused.map(|why| BreakEven {
        axis: "packets a second",
        question: format!("{} takes fewer cores than the fastest software", label(base.accelerator)),
        answer: why.to_owned(),
        crossing: None,
    }));
    answers.extend(idle_power(base));
    (answers, rate_charts(&all, cores, most))
}

/// Describes the rates at which one takes fewer cores than another; neither may have enough.
fn fewer(ours: &Values, theirs: &Values, most: u32) -> String {
    let fewer = |n: usize| ours[n].is_some_and(|ours| theirs[n].is_none_or(|theirs| ours < theirs));
    let at: Vec<usize> = (0..RATES.len()).filter(|n| fewer(*n)).collect();
    let range = format!("of those looked at ({} to {} M/s)", RATES[0], RATES[RATES.len() - 1]);
    let rates =
        match at.chunk_by(|a, b| a + 1 == *b).map(|run| (run[0], run[run.len() - 1])).collect::<Vec<_>>() {
            runs if runs.is_empty() => return format!("at no rate {range}"),
            runs => runs.into_iter().map(|(first, last)| match last - first {
                _ if last + 1 == RATES.len() => format!("from {} M/s on", RATES[first]),
                0 => format!("at {} M/s", RATES[first]),
                _ => format!("from {} to {} M/s", RATES[first], RATES[last]),
            }),
        };
    let rates = rates.collect::<Vec<_>>().join(" and ");
    match ours.iter().position(Option::is_none) {
        Some(n) => format!("{rates}, {range}; from {} M/s on, {most} cores are not enough for it", RATES[n]),
        None => format!("{rates}, {range}"),
    }
}

fn rate_charts(all: &[(String, Vec<(f64, f64)>)], cores: &[u32], most: u32) -> Vec<Chart> {
    let places: Vec<f64> = std::iter::once(1.0).chain(cores.iter().map(|c| f64::from(*c))).collect();
    let by_cores = |(name, known): &(String, Vec<(f64, f64)>)| {
        Series::new(name, places.iter().map(|c| capacity(known, *c)))
    };
    let by_rate = |(name, known): &(String, Vec<(f64, f64)>)| Series {
        name: name.clone(),
        values: needed(known, most),
    };
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

/// Returns the rate from which on a TCAM takes more energy than accelerators, including static power.
fn idle_power(base: &Base<'_>) -> Option<BreakEven> {
    let (question, workload) = (base.question, &base.plan.base);
    let of = |approach| {
        let queries = base.outcome(approach).queries;
        energy(approach, queries, &question.machine, workload, question.extrapolate)
    };
    let text =
        format!("{} takes less energy than a TCAM, power of doing nothing included", label(base.accelerator));
    let (Ok(Some(halo)), Ok(Some(tcam))) = (of(base.accelerator), of(Approach::Tcam)) else {
        let answer = "the rules are outside of Table 4".to_owned();
        return Some(BreakEven { axis: "packets a second", question: text, answer, crossing: None });
    };
    let whole = |cost: Cost| RATES.map(|rate| Some(cost.whole_query_nj(rate * 1e6))).to_vec();
    let crossed = crossing(&RATES, &whole(halo), &whole(tcam))?;
    let answer = format!("{crossed} M/s");
    Some(BreakEven { axis: "packets a second", question: text, answer, crossing: Some(crossed) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_counts_and_not_the_first_alone() {
        // Fewer at the second rate, equal at the third, more at the fourth, fewer at the fifth and sixth; then not
        // enough.
        let of = |cores: &[u32]| -> Values {
            (0..RATES.len()).map(|n| cores.get(n).map(|c| f64::from(*c))).collect()
        };
        let (ours, theirs) = (of(&[1, 1, 2, 3, 3, 4]), of(&[1, 2, 2, 2, 4]));
        let text = "at 0.3 M/s and from 7.44 to 14.88 M/s, of those looked at (0.1 to 595.2 M/s); from 29.76 M/s on, 4 cores \
                    are not enough for it";
        assert_eq!(fewer(&ours, &theirs, 4), text);
        let (one, two) = (of(&[1; 12]), of(&[2; 12]));
        assert_eq!(fewer(&one, &two, 4), "from 0.1 M/s on, of those looked at (0.1 to 595.2 M/s)");
        assert_eq!(fewer(&one, &one, 4), "at no rate of those looked at (0.1 to 595.2 M/s)");
    }

    #[test]
    fn capacity_is_linear_between_what_is_known_and_ends_with_it() {
        let known = [(1.0, 10.0), (2.0, 18.0), (4.0, 20.0)];
        let at = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 9.0].map(|cores| capacity(&known, cores));
        assert_eq!(at, [5.0, 10.0, 14.0, 18.0, 19.0, 20.0, 20.0]);
        let cores = |rate| cores_for(&known, rate, 4);
        assert_eq!(
            [cores(9.0), cores(18.0), cores(18.5), cores(21.0)],
            [Some(1.0), Some(2.0), Some(3.0), None]
        );
    }
}
