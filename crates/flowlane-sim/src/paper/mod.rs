//! The paper's evaluation, next to the simulated one.
//!
//! A [`Row`] is a value that the paper's text states: the kind of statement, the simulated value, the error, and its
//! worth (calibrated, dependent on an assumption of ours, predicted, or a definition). A [`Series`] is a curve of a
//! figure, of which the text states single values only.
//!
//! The paper has two machines: measurements on a Xeon (section 3, figure 12) are simulated on one, simulations with
//! gem5 on the other ([`Machines`]).

mod calibrate;
mod costs;
mod distinct;
mod envelope;
mod figure10;
mod figure11;
mod figure12;
mod figure13;
mod figure3;
mod figure4;
mod figure8;
mod figure9;
mod row;
mod sensitivity;
mod text;

pub use calibrate::{CALIBRATED, calibrate, calibrated};
pub use figure10::{Bars, bars};
pub use row::{Row, Stated, Status};

use serde::Serialize;

use crate::config::{Approach, MachineConfig, Preset, RunConfig, Sweep};
use crate::machine::SimError;
use crate::report::{Chart, Effort, Series, Sheet};
use crate::run::{SweptRun, run_sweep};

/// Bytes of a table's bucket and entries for each slot.
const SLOT_BYTES: u64 = 28;

/// The lookups of a run, and those before: 5.2, "10K hash-table lookups to warm up"; and those of a quick evaluation.
const LOOKUPS: (u64, u64) = (2000, 10_000);
const QUICK_LOOKUPS: (u64, u64) = (400, 400);

impl Effort {
    fn run(self, machine: &MachineConfig) -> RunConfig {
        let mut config = RunConfig::on(Preset::Paper);
        config.machine = machine.clone();
        (config.run.lookups, config.run.warm_up_lookups) = if self.quick { QUICK_LOOKUPS } else { LOOKUPS };
        config.run.seed = self.seed;
        config
    }

    /// Runs an experiment on a machine; in a quick evaluation with tables of up to `quick_slots` slots, and with the
    /// numbers `quick_lookups` of lookups and of those before.
    fn experiment(
        self,
        text: &str,
        machine: &MachineConfig,
        quick_slots: u64,
        quick_lookups: (u64, u64),
        watch: &(dyn Fn(f64) + Sync),
    ) -> Result<Vec<SweptRun>, SimError> {
        let mut sweep = Sweep::on(Some(machine), text).expect("experiments run on every machine");
        sweep.runs.retain(|(_, config)| !self.quick || config.workload.entries <= quick_slots);
        for (_, config) in &mut sweep.runs {
            config.run.seed = self.seed;
            if self.quick {
                (config.run.lookups, config.run.warm_up_lookups) = quick_lookups;
            }
        }
        run_sweep(sweep, self.threads, watch)
    }
}

/// The experiments of figures as texts for `flowlane sim run`, by name.
pub const EXPERIMENTS: [(&str, &str); 4] = [
    ("figure9", figure9::EXPERIMENT),
    ("figure11", figure11::FIGURE),
    ("figure11-choices", figure11::CHOICES),
    ("figure13", figure13::EXPERIMENT),
];

/// The parts of the evaluation: figures, tables 1, 2 and 4, and the charts that explain misses.
pub const PARTS: [&str; 10] = ["tables", "8b", "3", "4", "9", "10", "11", "12", "13", "sensitivity"];

/// The share of the time at which each of them begins.
const BEGINS: [f64; 10] = [0.0, 0.01, 0.02, 0.03, 0.05, 0.75, 0.8, 0.88, 0.92, 0.94];

/// A machine with its name and the hash of its numbers, including calibrated ones.
#[derive(Clone, Debug, Serialize)]
pub struct Named {
    pub name: String,
    pub hash: String,
    pub machine: MachineConfig,
}

impl Named {
    fn new(name: impl Into<String>, machine: MachineConfig) -> Self {
        Self { name: name.into(), hash: format!("{:016x}", machine.hash()), machine }
    }

    fn preset(preset: Preset) -> Self {
        Self::new(preset.name(), preset.machine())
    }
}

/// The machines of the evaluation.
#[derive(Clone, Debug, Serialize)]
pub struct Machines {
    /// The machine of the paper's simulations: tables 2 and 4, figures 8b to 11 and 13 (4.7: gem5).
    pub simulated: Named,
    /// The machine of the paper's measurements: table 1, figures 3, 4 and 12 (3.1: a Xeon Platinum 8160).
    pub measured: Named,
}

impl Machines {
    /// Returns the paper's machines.
    pub fn paper() -> Self {
        Self { simulated: Named::preset(Preset::Paper), measured: Named::preset(Preset::SkylakeSp) }
    }

    /// Returns one machine for everything.
    pub fn only(name: &str, machine: &MachineConfig) -> Self {
        let named = Named::new(name, machine.clone());
        Self { simulated: named.clone(), measured: named }
    }

    /// Returns the distinct machines.
    pub fn all(&self) -> Vec<&Named> {
        let mut all = vec![&self.simulated, &self.measured];
        all.dedup_by(|a, b| a.machine == b.machine);
        all
    }
}

/// The evaluation.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of the simulator.
    pub version: &'static str,
    /// The machines.
    pub machines: Machines,
    /// The extent of the simulation.
    pub effort: Effort,
    /// Stated and simulated values.
    pub rows: Vec<Row>,
    /// The curves.
    pub charts: Vec<Chart>,
    /// The tables.
    pub sheets: Vec<Sheet>,
}

impl Report {
    /// Simulates the evaluation, or some of its [`PARTS`]; `watch` receives the current activity and the finished
    /// share.
    ///
    /// # Errors
    /// Returns an error if an answer differs from the library's, or if a run gets stuck.
    pub fn simulate(
        machines: &Machines,
        parts: &[&str],
        effort: Effort,
        watch: &(dyn Fn(&str, f64) + Sync),
    ) -> Result<Self, SimError> {
        let (mut rows, mut charts, mut sheets) = (Vec::new(), Vec::new(), Vec::new());
        let mut add = |on: &str, (more, chart): (Vec<Row>, Vec<Chart>)| {
            rows.extend(more.into_iter().map(|row| Row { machine: on.to_owned(), ..row }));
            charts.extend(chart);
        };
        let (gem5, xeon) = (&machines.simulated, &machines.measured);
        let machine = &gem5.machine;
        let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
        if wanted("tables") {
            add(&xeon.name, costs::table_1(&xeon.machine, effort)?);
            add(&gem5.name, costs::table_2(machine));
        }
        let mut envelope = envelope::Envelope::default();
        for (part, begins) in PARTS.into_iter().zip(BEGINS).filter(|(part, _)| wanted(part)) {
            let name = if part.len() > 2 { part.to_owned() } else { format!("figure {part}") };
            watch(&name, begins);
            if part == "9" || part == "11" && !wanted("9") {
                envelope = envelope::envelope(machine, effort)?;
                add("", (Vec::new(), envelope.charts.clone()));
            }
            let done = |share| watch(&name, 0.25 + 0.5 * share);
            match part {
                "8b" => add("", figure8::figure(effort)),
                "3" => add(&xeon.name, figure3::figure(&xeon.machine, effort)?),
                "4" => add(&xeon.name, figure4::figure(&xeon.machine, effort)?),
                "9" => add(&gem5.name, figure9::figure(machine, effort, &envelope, &done)?),
                "10" => add(&gem5.name, figure10::figure(machine, effort)?),
                "11" => {
                    let (rows, charts, sheet) = figure11::figure(machine, effort, &envelope)?;
                    add(&gem5.name, (rows, charts));
                    sheets.push(sheet);
                }
                "12" => add(&xeon.name, figure12::figure(&xeon.machine, effort)?),
                "13" => add(&gem5.name, figure13::figure(machine, effort)?),
                "sensitivity" => add("", (Vec::new(), sensitivity::charts(machines, effort)?)),
                _ => {}
            }
        }
        if wanted("tables") {
            add("", costs::table_4());
        }
        let (version, machines) = (env!("CARGO_PKG_VERSION"), machines.clone());
        Ok(Self { version, machines, effort, rows, charts, sheets })
    }
}

/// Returns the label of an approach in charts.
fn label(approach: Approach) -> &'static str {
    match approach {
        Approach::Software => "software (rte_hash)",
        Approach::Scalar => "software, flowlane scalar",
        Approach::Bulk => "software, bulk with prefetch",
        Approach::Avx512 => "software, bulk AVX-512",
        Approach::HaloBlocking => "HALO blocking",
        Approach::HaloNonBlocking => "HALO non-blocking",
        Approach::NearL2 => "engine near L2",
        Approach::Tcam => "TCAM",
        Approach::SramTcam => "SRAM-TCAM",
    }
}

/// Returns curves of speedups over the first approach.
fn relative<'a>(runs: impl IntoIterator<Item = &'a SweptRun>) -> Vec<Series> {
    let runs: Vec<&SweptRun> = runs.into_iter().collect();
    let approaches = runs.first().map_or(&[][..], |run| &run.config.run.approaches);
    let series = |a: &Approach| Series::new(label(*a), runs.iter().map(|run| run.times(*a)));
    approaches.iter().map(series).collect()
}

/// Returns the least and the largest.
fn extent(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    values.into_iter().fold([f64::MAX, f64::MIN], |[least, most], v| [least.min(v), most.max(v)])
}
