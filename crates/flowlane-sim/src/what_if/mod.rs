//! What-if analysis: a user's rules and traffic, with software measured on the host next to accelerators and TCAMs as
//! simulated.
//!
//! ```text
//! rules, packets ── Plan ──▶ workloads ──▶ measured and recorded (by the caller, who has a clock) ─┐
//!                               └────────▶ simulated: side by side                                  ├─▶ Report
//!                                          bottlenecks, tornado, break-evens ───────────────────────┘
//! ```
//!
//! Software is measured. Its recorded instructions are replayed on the machine that was fitted to the host: the
//! difference is the error of the simulation, and the [`Band`] of everything that is only simulated. On another machine,
//! measured times are carried over by the ratio of two replays.
//!
//! The simulated part is equal byte for byte with any number of threads.

mod break_even;
mod costs;
mod crossing;
mod latency;
mod measured;
mod perturbed;
mod plan;
mod run;
mod software;
mod text;

use std::sync::Arc;

use serde::Serialize;

pub use break_even::BreakEven;
pub use costs::{core_nj, energy};
pub use crossing::{Crossing, crossing};
pub use latency::Latency;
pub use measured::{Call, Measured, Measurement};
pub use perturbed::{Bar, Bottleneck, Relief, Setting, Tornado, parts_of};
pub use plan::Plan;
pub use run::{Arrival, Method, Outcome, Recording, Run};
pub use software::{APART_MOST, Band, Software, Trust};
pub use text::label;

use crate::config::{Approach, MachineConfig};
use crate::machine::SimError;
use crate::machine::cost::Cost;
use crate::report::{Chart, Effort, Series};
use crate::workload::rules::Workload;
use latency::{SHARES, Service};
use perturbed::Perturbations;
use run::simulate;
use software::{NO_RATIO, Replays, doubt, fastest};

/// The simulated approaches, in the order of the report.
pub const APPROACHES: [Approach; 5] =
    [Approach::HaloBlocking, Approach::HaloNonBlocking, Approach::NearL2, Approach::Tcam, Approach::SramTcam];

/// The input of an analysis.
#[derive(Clone, Debug)]
pub struct Question {
    /// The name of the machine.
    pub preset: String,
    pub machine: MachineConfig,
    /// The offered rate for latencies, in millions of packets a second, in addition to shares of each one's own.
    pub rate: Option<f64>,
    /// Where packets come from.
    pub arrival: Arrival,
    /// Flows of a cache in front of the simulated tables; 0 for none.
    pub cache_flows: usize,
    /// Whether capacities outside Table 4 may be extrapolated.
    pub extrapolate: bool,
    /// The extent of the simulation.
    pub effort: Effort,
}

/// Facts about the rules and packets.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Facts {
    pub rules: usize,
    /// Distinct masks, each of which is a table.
    pub masks: usize,
    /// The number of rules of the largest table.
    pub largest: usize,
    pub packets: usize,
    /// Distinct packets in the bits on which rules match.
    pub flows: usize,
    /// Packets without a rule.
    pub misses: usize,
    /// The reference to which every answer was compared.
    pub judge: &'static str,
    /// The size of the tables.
    pub table_bytes: usize,
    /// The mean number of tables that an ordered search visits for a packet.
    pub asked: f64,
    /// Entries of a TCAM, with ranges as prefixes.
    pub tcam_entries: u64,
    /// Bits of an entry.
    pub tcam_bits: u32,
    pub tcam_bytes: f64,
}

impl Facts {
    fn of(workload: &Workload, asked: f64) -> Self {
        let sizes = workload.tables.sizes();
        Self {
            rules: workload.rules.len(),
            masks: sizes.len(),
            largest: sizes.into_iter().max().unwrap_or(0),
            packets: workload.packets.len(),
            flows: workload.flows(),
            misses: workload.misses(),
            judge: workload.judge(),
            table_bytes: workload.tables.bytes(),
            asked,
            tcam_entries: workload.tcam_entries(),
            tcam_bits: workload.tcam_bits(),
            tcam_bytes: workload.tcam_bytes(),
        }
    }
}

/// A simulated approach with its costs.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The outcome of the simulation.
    pub outcome: Outcome,
    /// The energy of the core for a packet.
    pub core_nj: f64,
    /// Energy, power and area, if in Table 4.
    pub energy: Option<Cost>,
    /// The reason for a missing cost, if one could exist.
    pub refused: Option<String>,
}

/// The result of an analysis.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of the simulator.
    pub version: &'static str,
    /// The name of the machine.
    pub preset: String,
    /// The hash of the machine's numbers.
    pub machine_hash: String,
    /// The machine.
    pub machine: MachineConfig,
    /// The reason for which no speedups over software are given, if any. Shown first.
    pub doubt: Option<String>,
    /// The extent of the simulation.
    pub effort: Effort,
    /// Where packets come from.
    pub arrival: Arrival,
    /// Flows of the cache in front of simulated tables; TCAMs have none.
    pub cache_flows: usize,
    /// Facts about rules and packets.
    pub facts: Facts,
    /// Measurements on the host.
    pub measured: Measured,
    /// The measured software on the machine.
    pub software: Vec<Software>,
    /// The simulated approaches.
    pub lines: Vec<Line>,
    /// Software both measured and simulated.
    pub trust: Vec<Trust>,
    /// The range of its errors.
    pub band: Option<Band>,
    /// Latencies under load.
    pub latencies: Vec<Latency>,
    /// The bottlenecks.
    pub bottlenecks: Vec<Bottleneck>,
    /// The sensitivity of the accelerator.
    pub tornado: Tornado,
    /// The break-evens.
    pub break_evens: Vec<BreakEven>,
    /// The curves.
    pub charts: Vec<Chart>,
}

/// Outcomes that other parts use.
pub(crate) struct Base<'a> {
    pub(crate) question: &'a Question,
    pub(crate) plan: &'a Plan,
    pub(crate) measured: &'a Measured,
    pub(crate) machine: Arc<MachineConfig>,
    pub(crate) outcomes: Vec<Outcome>,
    /// The measured software on the machine.
    pub(crate) software: Vec<Software>,
    /// The faster of HALO's two approaches.
    pub(crate) accelerator: Approach,
    pub(crate) band: Option<Band>,
    /// The reason for which no speedups over software are given, if any.
    pub(crate) doubt: Option<String>,
}

impl Base<'_> {
    /// Returns a run of rules and packets on a machine, with the flow cache if requested.
    fn run(&self, machine: &Arc<MachineConfig>, workload: &Arc<Workload>, method: Method) -> Run {
        let (cache_flows, arrival) = (self.question.cache_flows, self.question.arrival);
        Run { cache_flows, arrival, ..Run::new(machine, workload, method) }
    }

    /// Returns why simulated values are not shown next to measured ones; `None` if they are.
    pub(crate) fn incomparable(&self) -> Option<&'static str> {
        (self.question.cache_flows > 0).then_some(
            "not compared: simulated approaches have a flow cache in front, measured software has none",
        )
    }

    /// Returns why no speedup over software is given; `None` if it is.
    pub(crate) fn no_ratio(&self) -> Option<&'static str> {
        self.doubt.is_some().then_some(NO_RATIO)
    }

    pub(crate) fn outcome(&self, approach: Approach) -> &Outcome {
        self.outcomes.iter().find(|o| o.approach == approach).expect("all are simulated")
    }

    /// Returns the fastest recorded software: its run, its nanoseconds and its replay, all on the machine.
    pub(crate) fn recorded(&self) -> Option<(Method, f64, &Outcome)> {
        let recorded = self.software.iter().filter(|s| s.recording.is_some());
        let (software, ns) = fastest(recorded)?;
        let recording = software.recording.clone()?;
        Some((Method::Recorded(recording), ns, software.replayed.as_ref()?))
    }

    /// Returns the time of a measured method on the machine relative to the host.
    pub(crate) fn times(&self, name: &str) -> Option<f64> {
        self.software.iter().find(|s| s.name == name)?.times
    }

    /// Returns the measured rates of several threads, if the machine is the host.
    pub(crate) fn threads(&self, name: &str) -> &[(u32, f64)] {
        let here = self.measured.host.as_ref() == Some(&*self.machine);
        let of = self.measured.base.iter().find(|m| m.name == name && here);
        of.map_or(&[], |m| &m.threads)
    }
}

fn faster(outcomes: &[Outcome], of: &[Approach]) -> Approach {
    let of = outcomes.iter().filter(|o| of.contains(&o.approach));
    of.min_by(|a, b| a.cycles.total_cmp(&b.cycles)).expect("all are simulated").approach
}

impl Report {
    /// Simulates the analysis; `watch` receives the current activity and the finished share.
    ///
    /// # Errors
    /// Returns an error if an answer contradicts the rules, or if a run gets stuck.
    pub fn simulate(
        question: &Question,
        plan: &Plan,
        measured: Measured,
        watch: &(dyn Fn(&str, f64) + Sync),
    ) -> Result<Self, SimError> {
        let machine = Arc::new(question.machine.clone());
        let (effort, flows) = (question.effort, question.cache_flows);
        watch("side by side", 0.0);
        let arrival = question.arrival;
        let run = |a: Approach| Run { cache_flows: flows, arrival, ..Run::new(&machine, &plan.base, a) };
        let replays = Replays::of(&measured, &machine, &plan.base);
        let runs = [APPROACHES.map(run).to_vec(), replays.runs.clone()].concat();
        let mut outcomes = simulate(&runs, effort, &|_| {})?;
        let replayed = outcomes.split_off(APPROACHES.len());
        let accelerator = faster(&outcomes, &[Approach::HaloBlocking, Approach::HaloNonBlocking]);
        let (software, trust) = replays.finish(&measured, &replayed);
        let (band, doubt) = (Band::of(&trust), doubt(&measured, &trust));
        let measured_here = &measured;
        let base = Base {
            question,
            plan,
            measured: measured_here,
            machine,
            outcomes,
            software,
            accelerator,
            band,
            doubt,
        };
        // All other runs at once, so that no thread idles at the end of each kind.
        let perturbations = Perturbations::of(&base);
        let curves = break_even::Curves::of(&base);
        let all = [perturbations.runs(), curves.runs()].concat();
        let done = |n: usize| {
            watch("bottlenecks, sensitivity, break-evens", 0.1 + 0.9 * n as f64 / all.len() as f64)
        };
        let results = simulate(&all, effort, &done)?;
        let (perturbed, for_curves) = results.split_at(perturbations.runs().len());
        let (bottlenecks, tornado) = perturbations.finish(&base, perturbed);
        let (break_evens, mut charts) = curves.finish(&base, &measured, for_curves);
        let (latencies, chart) = latencies(&base);
        charts.push(chart);
        let lines = base.outcomes.iter().map(|outcome| line(&base, outcome)).collect();
        let Base { software, doubt, .. } = base;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            preset: question.preset.clone(),
            machine_hash: format!("{:016x}", question.machine.hash()),
            machine: question.machine.clone(),
            doubt,
            effort,
            arrival,
            cache_flows: flows,
            facts: Facts::of(&plan.base, break_even::asked(&plan.base)),
            software,
            lines,
            trust,
            band,
            latencies,
            measured,
            bottlenecks,
            tornado,
            break_evens,
            charts,
        })
    }
}

fn line(base: &Base<'_>, outcome: &Outcome) -> Line {
    let question = base.question;
    let (machine, workload) = (&question.machine, &base.plan.base);
    let found = energy(outcome.approach, outcome.queries, machine, workload, question.extrapolate);
    let (energy, refused) = match found {
        Ok(energy) => (energy, None),
        Err(outside) => (None, Some(format!("{outside}; --extrapolate guesses"))),
    };
    Line { outcome: outcome.clone(), core_nj: core_nj(machine, outcome.ns()), energy, refused }
}

/// Rates of the chart of latencies, as shares of the largest.
const RATES: usize = 12;

/// Returns latencies at shares of each one's own rate and at the offered one, and a chart of the 99th percentiles.
fn latencies(base: &Base<'_>) -> (Vec<Latency>, Chart) {
    let software = base
        .software
        .iter()
        .zip(&base.measured.base)
        .filter_map(|(s, m)| Some((s.name.clone(), Service::measured(&m.calls, s.times?)?)));
    let models = base.outcomes.iter().map(|o| (o.name.clone(), Service::simulated(o)));
    let all: Vec<(String, Service)> = software.chain(models).collect();
    let seed = base.question.effort.seed;
    let of = |(name, service): &(String, Service)| {
        let own = SHARES.map(|share| share * service.most());
        let rates = own.into_iter().chain(base.question.rate);
        rates.map(|rate| service.under(name, rate, seed)).collect::<Vec<_>>()
    };
    let rows = all.iter().flat_map(of).collect();
    let most = all.iter().map(|(_, service)| service.most()).fold(0.0, f64::max);
    let rates: Vec<f64> = (0..RATES).map(|n| most * 0.5f64.powf((RATES - 1 - n) as f64 / 2.0)).collect();
    let curve = |(name, service): &(String, Service)| {
        let own = service.most();
        let at = |rate: &f64| (*rate < own).then(|| service.under(name, *rate, seed).ns[1]);
        Series { name: name.clone(), values: rates.iter().map(at).collect() }
    };
    let chart = Chart {
        id: "latency",
        title: "Latency by offered rate, 99th percentile".into(),
        about: "From a packet's arrival in a ring to the end of the call that looks it up. No point: more than one core looks up."
            .into(),
        axis: "million packets a second",
        places: rates.iter().map(|rate| format!("{rate:.2}")).collect(),
        unit: "ns",
        lines: true,
        series: all.iter().map(curve).collect(),
    };
    (rows, chart)
}
