//! Figure 11: tuple space search, by the number of tuples; and the choices that agree with all that the text says
//! about its bars.
//!
//! The runs are experiments in TOML, in the format of `flowlane sim run`.

use super::distinct::cycles;
use super::envelope::Envelope;
use super::{Row, Stated, extent, relative};
use crate::config::{AcceleratorConfig, Approach, Dispatch, MachineConfig, RunConfig, Sweep};
use crate::machine::SimError;
use crate::report::{Chart, Effort, Series, Sheet};
use crate::run::SweptRun;

/// The figure: two kinds of software's search, by the number of tuples.
pub(super) const FIGURE: &str = include_str!("../../experiments/figure11.toml");
/// The choices on which its shape depends.
pub(super) const CHOICES: &str = include_str!("../../experiments/figure11-choices.toml");

/// Numbers of tuples (5.2).
pub(super) const TUPLES: [u32; 4] = [5, 10, 15, 20];
/// Slots of each tuple's table (5.2).
pub(super) const ENTRIES: u64 = 1024;

/// The largest value of the text, and the share by which a simulated one may miss it.
const LARGEST: f64 = 23.4;
const TOLERANCE: f64 = 0.15;

/// The statements of the text about the bars, and 6.1's about one table, which holds for the same machine.
const STATEMENTS: [&str; 5] = [
    "6.2: non-blocking is up to 23.4 times faster (simulated: within 15 %)",
    "6.2: non-blocking \"scales the flow classification as we increase the number of tuples\" (faster with each step)",
    "6.2: blocking's improvement \"is limited, as we increase the number of tuples\" (at most 1.2 times from 5 to 20)",
    "6.2: TCAM and SRAM-TCAM \"perform the best\" (faster than non-blocking everywhere)",
    "6.1: with one table, non-blocking is \"slightly worse (less than 5.3%)\" than blocking (within 15 points of 0 to 5.3)",
];

/// Lookups of a quick evaluation, and those before.
const QUICK: (u64, u64) = (50, 20);

/// Returns the runs with the choices on a machine, as far as its scoreboard has room.
fn choices(machine: &MachineConfig, effort: Effort) -> Vec<RunConfig> {
    let runs = Sweep::parse(CHOICES).expect("the experiments are tested").runs.into_iter();
    runs.map(|(_, mut config)| {
        let swept = config.machine.accelerator;
        config.machine = machine.clone();
        let a = &mut config.machine.accelerator;
        (a.dispatch, a.dispatch_seed) = (swept.dispatch, swept.dispatch_seed);
        a.in_flight_queries = swept.in_flight_queries.min(a.scoreboard_queries);
        (a.packets_ahead, a.packets_at_once) = (swept.packets_ahead, swept.packets_at_once);
        config.run.seed = effort.seed;
        if effort.quick {
            (config.run.lookups, config.run.warm_up_lookups) = QUICK;
        }
        config
    })
    .collect()
}

pub(super) fn figure(
    machine: &MachineConfig,
    effort: Effort,
    envelope: &Envelope,
) -> Result<(Vec<Row>, Vec<Chart>, Sheet), SimError> {
    let runs = effort.experiment(FIGURE, machine, u64::MAX, QUICK, &|_| {})?;
    let (last, uniform) = runs.split_at(TUPLES.len());
    let [blocking, non_blocking] = [Approach::HaloBlocking, Approach::HaloNonBlocking]
        .map(|approach| move |run: &SweptRun| run.times(approach));
    let hypotheses = hypotheses(machine, effort)?;
    let words = |what: &str, text| Row::predicted("6.2", what, Stated::Words { text });
    let best = last.iter().map(|run| {
        let slower = run.cycles(Approach::Tcam).max(run.cycles(Approach::SramTcam));
        run.cycles(Approach::HaloNonBlocking) / slower
    });
    let rows = vec![
        Row::predicted("Figure 11", "non-blocking, times faster", Stated::UpTo { value: LARGEST })
            .between(non_blocking(&last[0]), non_blocking(&last[3]))
            .over(envelope.tuples)
            .note(format!(
                "software asks all tuples; where it ends with the first hit, at random: {:.1} at 20 tuples. {}",
                non_blocking(&uniform[3]),
                summary(&hypotheses),
            )),
        words(
            "blocking: times faster at 20 tuples, over those at 5",
            "the performance improvement of Halo is limited",
        )
        .is(blocking(&last[3]) / blocking(&last[0])),
        words(
            "non-blocking: times faster at 20 tuples, over those at 5",
            "scales the flow classification as we increase the number of tuples",
        )
        .is(non_blocking(&last[3]) / non_blocking(&last[0])),
        words("TCAM or SRAM-TCAM, times as fast as non-blocking, least", "they perform the best")
            .is(best.fold(f64::MAX, f64::min)),
    ];
    let about = "Packets a second; every packet has a key in one tuple of 1024 slots, 75 % full.";
    let chart = |id, title: &str, series| {
        Chart::new(id, title, about).over("tuples", TUPLES).curves("times the throughput of software", series)
    };
    let charts = vec![
        chart("figure-11", "Figure 11: tuple space search, all tuples asked", relative(last)),
        chart(
            "figure-11-uniform",
            "Figure 11, where software ends with the first hit, at random",
            relative(uniform),
        ),
        chart(
            "figure-11-shapes",
            "Figure 11, non-blocking: choices that agree with the text",
            shape_series(&hypotheses),
        ),
    ];
    Ok((rows, charts, sheet(&hypotheses)))
}

/// A combination of choices with one map from tables to accelerators.
struct Hypothesis {
    choices: AcceleratorConfig,
    /// Speedups over software by the number of tuples.
    non_blocking: Vec<f64>,
    blocking: Vec<f64>,
    /// Slowdown of non-blocking against blocking with one table, in percent.
    slower_percent: f64,
    /// Whether each statement holds.
    holds: [bool; STATEMENTS.len()],
}

impl Hypothesis {
    fn new(choices: AcceleratorConfig, cycles: &[Vec<f64>], single: &[f64]) -> Self {
        let times = |of: usize| -> Vec<f64> { cycles.iter().map(|c| c[0] / c[of]).collect() };
        let (blocking, non_blocking) = (times(1), times(2));
        let slower_percent = 100.0 * (single[2] / single[1] - 1.0);
        let most = non_blocking.iter().copied().fold(0.0, f64::max);
        let holds = [
            (most / LARGEST - 1.0).abs() <= TOLERANCE,
            non_blocking.is_sorted_by(|a, b| a < b),
            blocking[blocking.len() - 1] <= 1.2 * blocking[0],
            cycles.iter().all(|c| c[3] < c[2] && c[4] < c[2]),
            (-15.0..=20.3).contains(&slower_percent),
        ];
        Self { choices, non_blocking, blocking, slower_percent, holds }
    }

    fn agrees(&self) -> bool {
        self.holds.iter().all(|holds| *holds)
    }

    /// Returns the choices as text, except the seed.
    fn name(&self) -> String {
        let a = &self.choices;
        let dispatch = match a.dispatch {
            Dispatch::Table => "table",
            Dispatch::Balanced => "balanced",
            Dispatch::Bucket => "bucket",
        };
        let (ahead, at_once) = (a.packets_ahead, a.packets_at_once);
        format!("{dispatch}, {} in flight, {ahead} ahead, {at_once} at once", a.in_flight_queries)
    }
}

fn hypotheses(machine: &MachineConfig, effort: Effort) -> Result<Vec<Hypothesis>, SimError> {
    let mut runs = choices(machine, effort);
    runs.retain(|run| {
        let a = &run.machine.accelerator;
        let few = a.dispatch_seed == 0 && [1, 10].contains(&a.in_flight_queries);
        (a.dispatch_seed == 0 || a.dispatch == Dispatch::Table) && (few || !effort.quick)
    });
    let approaches = runs.first().map_or(Vec::new(), |run| run.run.approaches.clone());
    let tuples = cycles(machine, &runs, &approaches, effort)?;
    let single: Vec<RunConfig> = runs
        .chunks(TUPLES.len())
        .map(|runs| {
            let mut run = runs[0].clone();
            (run.workload.tables, run.workload.entries) = (1, 1 << 16);
            (run.run.lookups, run.run.warm_up_lookups) = (1000, 400);
            run
        })
        .collect();
    let one_table = cycles(machine, &single, &approaches[..3], effort)?;
    let all = single.iter().zip(tuples.chunks(TUPLES.len())).zip(&one_table);
    Ok(all
        .map(|((run, tuples), single)| Hypothesis::new(run.machine.accelerator.clone(), tuples, single))
        .collect())
}

/// Returns the hypotheses with the same choices, except the seed.
fn groups(hypotheses: &[Hypothesis]) -> Vec<(String, Vec<&Hypothesis>)> {
    let mut out: Vec<(String, Vec<&Hypothesis>)> = Vec::new();
    for hypothesis in hypotheses {
        let name = hypothesis.name();
        match out.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.push(hypothesis),
            None => out.push((name, vec![hypothesis])),
        }
    }
    out
}

fn summary(hypotheses: &[Hypothesis]) -> String {
    let agree: Vec<String> = groups(hypotheses)
        .iter()
        .filter(|(_, members)| members.iter().any(|h| h.agrees()))
        .map(|(name, members)| {
            format!("{name} ({} of {} maps)", members.iter().filter(|h| h.agrees()).count(), members.len())
        })
        .collect();
    match agree.is_empty() {
        true => "No combination of choices agrees with all statements about the bars".into(),
        false => format!("Agreeing with all statements about the bars: {}", agree.join("; ")),
    }
}

fn range(values: impl Iterator<Item = f64>) -> String {
    let [low, high] = extent(values);
    if high - low < 0.05 { format!("{low:.1}") } else { format!("{low:.1} to {high:.1}") }
}

fn sheet(hypotheses: &[Hypothesis]) -> Sheet {
    let mut head: Vec<String> = vec!["choices".into()];
    head.extend(TUPLES.map(|tuples| format!("non-blocking at {tuples}")));
    head.extend(["blocking 20 over 5".into(), "one table, % slower".into()]);
    head.extend((1..=STATEMENTS.len()).map(|n| format!("({n})")));
    head.push("agree".into());
    let row = |(name, members): (String, Vec<&Hypothesis>)| {
        let of = |f: &dyn Fn(&Hypothesis) -> f64| range(members.iter().map(|h| f(h)));
        let maps = |f: &dyn Fn(&Hypothesis) -> bool| {
            format!("{} of {}", members.iter().filter(|h| f(h)).count(), members.len())
        };
        let mut row = vec![name];
        row.extend((0..TUPLES.len()).map(|n| of(&|h| h.non_blocking[n])));
        row.push(of(&|h| h.blocking[TUPLES.len() - 1] / h.blocking[0]));
        row.push(of(&|h| h.slower_percent));
        row.extend((0..STATEMENTS.len()).map(|n| maps(&|h| h.holds[n])));
        row.push(maps(&Hypothesis::agrees));
        row
    };
    let numbered = STATEMENTS.iter().zip(1..).map(|(text, n)| format!("({n}) {text}"));
    Sheet {
        id: "figure-11-choices",
        title: "Figure 11: choices by the shape over tuples".into(),
        about: format!(
            "Speedups over software, least to most over the maps from tables to accelerators; the number of maps for which a \
             statement of the text holds. {}.",
            numbered.collect::<Vec<_>>().join(". ")
        ),
        head,
        rows: groups(hypotheses).into_iter().map(row).collect(),
    }
}

/// Returns the speedups of choices that agree, and the largest of the text.
fn shape_series(hypotheses: &[Hypothesis]) -> Vec<Series> {
    let agree = hypotheses.iter().filter(|h| h.agrees());
    let mut series: Vec<Series> = agree
        .map(|h| Series {
            name: match h.choices.dispatch {
                Dispatch::Table => format!("{}, seed {}", h.name(), h.choices.dispatch_seed),
                _ => h.name(),
            },
            values: h.non_blocking.iter().copied().map(Some).collect(),
        })
        .collect();
    let most = Some(LARGEST);
    series.push(Series { name: "the paper, most".into(), values: vec![None, None, None, most] });
    series
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MatchingTable, Preset};

    #[test]
    fn the_experiments_are_the_papers_sizes() {
        let effort = Effort { quick: false, threads: 1, seed: 1 };
        let machine = Preset::Paper.machine();
        let figure = Sweep::parse(FIGURE).unwrap().runs.into_iter().map(|(_, run)| run).collect::<Vec<_>>();
        let order: Vec<(MatchingTable, u32)> =
            figure.iter().map(|run| (run.workload.matching, run.workload.tables)).collect();
        let both = [MatchingTable::Last, MatchingTable::Uniform];
        assert_eq!(order, both.map(|matching| TUPLES.map(|tuples| (matching, tuples))).concat());
        let choices = choices(&machine, effort);
        assert_eq!(choices.len(), 3 * 4 * 5 * 2 * 2 * 4);
        for run in choices.chunks(4) {
            assert!(run.iter().zip(TUPLES).all(|(run, tuples)| run.workload.tables == tuples));
            assert!(run.iter().all(|r| r.machine.accelerator == run[0].machine.accelerator));
        }
        assert!(figure.iter().chain(&choices).all(|run| run.workload.entries == ENTRIES));
    }

    #[test]
    fn statements_judge_the_shape_and_not_only_the_largest_bar() {
        let choices = Preset::Paper.machine().accelerator;
        let judge = |non_blocking: [f64; 4], blocking: [f64; 4], tcam: f64, slower: f64| {
            let rows =
                non_blocking.iter().zip(blocking).map(|(n, b)| vec![1.0, 1.0 / b, 1.0 / n, tcam, tcam]);
            Hypothesis::new(choices.clone(), &rows.collect::<Vec<_>>(), &[1.0, 1.0, 1.0 + slower]).holds
        };
        let flat = [2.9, 2.8, 2.8, 2.8];
        assert_eq!(judge([6.0, 12.0, 18.0, 23.0], flat, 0.01, 0.05), [true; 5]);
        assert_eq!(judge([6.0, 23.0, 18.0, 19.0], flat, 0.01, 0.05), [true, false, true, true, true]);
        assert_eq!(judge([6.0, 8.0, 10.0, 12.0], flat, 0.01, 0.05), [false, true, true, true, true]);
        assert_eq!(
            judge([6.0, 12.0, 18.0, 23.0], [3.0, 3.5, 4.0, 5.0], 0.05, -0.5),
            [true, true, false, false, false]
        );
    }
}
