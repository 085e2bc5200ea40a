//! What-if analysis: a user's rules and traffic, with software measured on the host next to simulated software,
//! accelerators and TCAMs.
//!
//! ```text
//! rules, packets ── Plan ──▶ workloads ──▶ measured (by the caller, who has a clock) ─┐
//!                               └────────▶ simulated: side by side                     ├─▶ Report
//!                                          bottlenecks, tornado, break-evens ──────────┘
//! ```
//!
//! The simulated part is equal byte for byte with any number of threads. [`Trust`] compares the same software
//! measured and simulated, and tells how far to trust the rest. If the two are far apart, the report gives no
//! speedups over software.

mod break_even;
mod costs;
mod crossing;
mod flow_cache;
mod library;
mod measured;
mod perturbed;
mod plan;
mod program;
mod run;
mod text;
mod trust;

use std::sync::Arc;

use serde::Serialize;

pub use break_even::BreakEven;
pub use costs::energy;
pub use crossing::{Crossing, crossing};
pub use measured::{Measured, Measurement, fastest};
pub use perturbed::{Bar, Bottleneck, Relief, Setting, Tornado, parts_of};
pub use plan::Plan;
pub use run::{Outcome, Run};
pub use text::label;
pub use trust::{APART_MOST, Trust};

use crate::config::{Approach, MachineConfig};
use crate::machine::SimError;
use crate::machine::cost::Cost;
use crate::report::{Chart, Effort};
use crate::workload::rules::Workload;
use perturbed::Perturbations;
use run::simulate;

/// All simulated approaches, in the order of the report.
pub const APPROACHES: [Approach; 10] = [
    Approach::Software,
    Approach::Scalar,
    Approach::TupleSearch,
    Approach::Bulk,
    Approach::Avx512,
    Approach::HaloBlocking,
    Approach::HaloNonBlocking,
    Approach::NearL2,
    Approach::Tcam,
    Approach::SramTcam,
];

/// The input of an analysis.
#[derive(Clone, Debug)]
pub struct Question {
    /// The name of the machine.
    pub preset: String,
    pub machine: MachineConfig,
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
    /// Flows of the cache in front of simulated tables; the library's tuple search and TCAMs have none.
    pub cache_flows: usize,
    /// Facts about rules and packets.
    pub facts: Facts,
    /// Measurements on the host.
    pub measured: Measured,
    /// The simulated approaches.
    pub lines: Vec<Line>,
    /// Software both measured and simulated.
    pub trust: Vec<Trust>,
    /// The bottleneck of each approach.
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
    pub(crate) machine: Arc<MachineConfig>,
    pub(crate) outcomes: Vec<Outcome>,
    /// The faster of HALO's two approaches, and the fastest simulated software on the same tables: single lookups and
    /// batches, without the library's tuple search.
    pub(crate) accelerator: Approach,
    pub(crate) software: Approach,
    /// The reason for which no speedups over software are given, if any.
    pub(crate) doubt: Option<String>,
}

impl Base<'_> {
    /// Returns a run of rules and packets on a machine, with the flow cache if requested.
    fn run(&self, machine: &Arc<MachineConfig>, workload: &Arc<Workload>, approach: Approach) -> Run {
        Run { cache_flows: self.question.cache_flows, ..Run::new(machine, workload, approach) }
    }

    /// Returns why simulated values are not shown next to measured ones; `None` if they are.
    pub(crate) fn incomparable(&self) -> Option<&'static str> {
        (self.question.cache_flows > 0).then_some(
            "not compared: simulated approaches have a flow cache in front, measured software has none",
        )
    }

    /// Returns why no speedup over software, measured or simulated, is given; `None` if it is.
    pub(crate) fn no_ratio(&self) -> Option<&'static str> {
        self.doubt.is_some().then_some(trust::NO_RATIO)
    }

    pub(crate) fn outcome(&self, approach: Approach) -> &Outcome {
        self.outcomes.iter().find(|o| o.approach == approach).expect("all are simulated")
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
        let run = |a: &Approach| Run { cache_flows: flows, ..Run::new(&machine, &plan.base, *a) };
        let runs: Vec<Run> = APPROACHES.iter().map(run).collect();
        let outcomes = simulate(&runs, effort, &|_| {})?;
        let accelerator = faster(&outcomes, &[Approach::HaloBlocking, Approach::HaloNonBlocking]);
        let software = faster(&outcomes, &[Approach::Scalar, Approach::Bulk, Approach::Avx512]);
        let base = Base { question, plan, machine, outcomes, accelerator, software, doubt: None };
        // All other runs at once, so that no thread idles at the end of each kind.
        let perturbations = Perturbations::of(&base);
        let curves = break_even::Curves::of(&base);
        let plain = plain_runs(&base, &measured);
        let all = [perturbations.runs(), &plain, curves.runs()].concat();
        let done = |n: usize| {
            watch("bottlenecks, sensitivity, break-evens", 0.05 + 0.95 * n as f64 / all.len() as f64)
        };
        let results = simulate(&all, effort, &done)?;
        let (perturbed, rest) = results.split_at(perturbations.runs().len());
        let (uncached, for_curves) = rest.split_at(plain.len());
        let trust = trust::trust(if flows > 0 { uncached } else { &base.outcomes }, &measured);
        let base = Base { doubt: trust::doubt(&trust, &measured), ..base };
        let (bottlenecks, tornado) = perturbations.finish(&base, perturbed);
        let (break_evens, charts) = curves.finish(&base, &measured, for_curves);
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            preset: question.preset.clone(),
            machine_hash: format!("{:016x}", question.machine.hash()),
            machine: question.machine.clone(),
            doubt: base.doubt.clone(),
            effort,
            cache_flows: flows,
            facts: Facts::of(&plan.base, break_even::asked(&plan.base)),
            lines: base.outcomes.iter().map(|outcome| line(&base, outcome)).collect(),
            trust,
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
    Line { outcome: outcome.clone(), energy, refused }
}

/// Returns runs of the measured software without the flow cache, which measured software does not have; none without
/// a cache.
fn plain_runs(base: &Base<'_>, measured: &Measured) -> Vec<Run> {
    let cached = base.question.cache_flows > 0;
    let both = |a: &&Approach| cached && measured.base.iter().any(|m| m.simulated_as == Some(**a));
    let plain = |a: &Approach| Run::new(&base.machine, &base.plan.base, *a);
    APPROACHES.iter().filter(both).map(plain).collect()
}
