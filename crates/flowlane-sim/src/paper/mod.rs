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

pub use calibrate::{Calibration, calibrate};
pub use figure10::{Bars, bars};
pub use row::{Row, Stated, Status};

use serde::Serialize;

use crate::config::{Approach, MachineConfig, Preset, RunConfig};
use crate::machine::SimError;
use crate::report::{Chart, Effort, Series, Sheet};
use crate::run::RunResult;

/// Bytes of a table's bucket and entries for each slot.
const SLOT_BYTES: u64 = 28;

impl Effort {
    fn lookups(self) -> u64 {
        if self.quick { 400 } else { 2000 }
    }

    fn warm_up(self) -> u64 {
        // 5.2: "10K hash-table lookups to warm up".
        if self.quick { 400 } else { 10_000 }
    }

    fn run(self, machine: &MachineConfig) -> RunConfig {
        let mut config = RunConfig::on(Preset::Paper);
        config.machine = machine.clone();
        config.run.lookups = self.lookups();
        config.run.warm_up_lookups = self.warm_up();
        config.run.seed = self.seed;
        config
    }
}

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
    /// Simulates the evaluation; `watch` receives the current activity and the finished share.
    ///
    /// # Errors
    /// Returns an error if an answer differs from the library's, or if a run gets stuck.
    pub fn simulate(
        machines: &Machines,
        effort: Effort,
        watch: &(dyn Fn(&str, f64) + Sync),
    ) -> Result<Self, SimError> {
        let (mut rows, mut charts) = (Vec::new(), Vec::new());
        let mut add = |on: &str, (more, chart): (Vec<Row>, Vec<Chart>)| {
            rows.extend(more.into_iter().map(|row| Row { machine: on.to_owned(), ..row }));
            charts.extend(chart);
        };
        let (gem5, xeon) = (&machines.simulated, &machines.measured);
        watch("tables 1, 2, 4, figure 8b", 0.0);
        add(&xeon.name, costs::table_1(&xeon.machine, effort)?);
        add(&gem5.name, costs::table_2(&gem5.machine));
        add("", figure8::figure(effort));
        watch("figures 3 and 4", 0.02);
        add(&xeon.name, figure3::figure(&xeon.machine, effort)?);
        add(&xeon.name, figure4::figure(&xeon.machine, effort)?);
        let machine = &gem5.machine;
        watch("open choices", 0.05);
        let envelope = envelope::envelope(machine, effort)?;
        add("", (Vec::new(), envelope.charts.clone()));
        watch("figure 9", 0.25);
        let done = |share| watch("figure 9", 0.25 + 0.5 * share);
        add(&gem5.name, figure9::figure(machine, effort, &envelope, &done)?);
        watch("figure 10", 0.75);
        add(&gem5.name, figure10::figure(machine, effort)?);
        watch("figure 11", 0.8);
        let (more, curves, sheet) = figure11::figure(machine, effort, &envelope)?;
        add(&gem5.name, (more, curves));
        watch("figure 12", 0.88);
        add(&xeon.name, figure12::figure(&xeon.machine, effort)?);
        watch("figure 13", 0.92);
        add(&gem5.name, figure13::figure(machine, effort)?);
        watch("what misses hang on", 0.94);
        add("", (Vec::new(), sensitivity::charts(machines, effort)?));
        add("", costs::table_4());
        let (version, machines) = (env!("CARGO_PKG_VERSION"), machines.clone());
        Ok(Self { version, machines, effort, rows, charts, sheets: vec![sheet] })
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
        Approach::TupleSearch => "software, flowlane tuple search",
    }
}

/// Returns curves of speedups over the first approach.
fn relative(results: &[Vec<RunResult>]) -> Vec<Series> {
    let count = results.first().map_or(0, Vec::len);
    let of = |n: usize| {
        let value = |place: &Vec<RunResult>| place[0].cycles_per_lookup / place[n].cycles_per_lookup;
        let name = label(results[0][n].approach).to_owned();
        Series { name, values: results.iter().map(|place| Some(value(place))).collect() }
    };
    (0..count).map(of).collect()
}
