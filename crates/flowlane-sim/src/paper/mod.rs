//! The paper's evaluation, beside what the simulator gives.
//!
//! A [`Row`] is a value that the paper's text states: what kind of statement it is, what comes out here, how far apart the
//! two are, and what that is worth: whether the simulator was calibrated on it, predicts it, or repeats it because it is
//! a definition. A [`Series`] is a curve of a figure, of which the text states single values only.

mod calibrate;
mod costs;
mod envelope;
mod figure10;
mod figure11;
mod figure12;
mod figure13;
mod figure3;
mod figure4;
mod figure8;
mod figure9;
mod sensitivity;
mod text;

pub use calibrate::{Calibration, calibrate};
pub use figure10::{Bars, bars};

use serde::Serialize;
use strum::IntoStaticStr;

use crate::config::{Approach, MachineConfig, Preset, RunConfig};
use crate::machine::SimError;
use crate::report::{Chart, Effort, Series};
use crate::run::RunResult;

/// Bytes of a table's bucket and entries, a slot.
const SLOT_BYTES: u64 = 28;

/// What kind of statement a value is.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Stated {
    /// The value.
    Exact { value: f64 },
    /// The value is less than this.
    Below { value: f64 },
    /// The largest of several is this.
    UpTo { value: f64 },
    /// All are between these.
    Range {
        /// The least.
        low: f64,
        /// The largest.
        high: f64,
    },
}

impl Stated {
    /// How far a simulated value, or the least and largest of several, is from it: a share of what is stated, 0 where the
    /// statement holds.
    pub fn error(&self, least: f64, most: f64) -> f64 {
        match *self {
            Self::Exact { value } | Self::UpTo { value } => most / value - 1.0,
            Self::Below { value } => (most / value - 1.0).max(0.0),
            Self::Range { low, high } => {
                let (under, over) = ((least / low - 1.0).min(0.0), (most / high - 1.0).max(0.0));
                if -under > over { under } else { over }
            }
        }
    }

    /// As the paper has it.
    pub fn text(&self) -> String {
        match *self {
            Self::Exact { value } => format!("{value}"),
            Self::Below { value } => format!("< {value}"),
            Self::UpTo { value } => format!("up to {value}"),
            Self::Range { low, high } => format!("{low} to {high}"),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Exact { .. } => "exact",
            Self::Below { .. } => "bound",
            Self::UpTo { .. } => "up to",
            Self::Range { .. } => "range",
        }
    }
}

/// What a comparison is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr, Serialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase")]
pub enum Status {
    /// A number of the machine was chosen so that it comes out.
    Calibrated,
    /// Nothing was chosen for it.
    Predicted,
    /// It is a definition, or was put in.
    Identity,
    /// It is not simulated.
    #[strum(to_string = "not attempted")]
    NotAttempted,
}

impl Status {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A value that the paper states, and ours.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The figure or table, or the section.
    pub place: &'static str,
    /// What it is.
    pub what: String,
    /// What is stated.
    pub stated: Stated,
    /// Least and largest here; the same where it is one value. None where it is not attempted.
    pub simulated: Option<[f64; 2]>,
    /// By how much it is off, as a share of what is stated.
    pub error: Option<f64>,
    /// What that is worth.
    pub status: Status,
    /// Least and largest over the choices that the paper leaves open.
    pub envelope: Option<[f64; 2]>,
    /// What one should know.
    pub note: String,
}

impl Row {
    pub(crate) fn new(place: &'static str, what: impl Into<String>, stated: Stated, status: Status) -> Self {
        let (simulated, error, envelope) = (None, None, None);
        Self { place, what: what.into(), stated, simulated, error, status, envelope, note: String::new() }
    }

    pub(crate) fn is(self, value: f64) -> Self {
        self.between(value, value)
    }

    pub(crate) fn between(self, least: f64, most: f64) -> Self {
        Self { error: Some(self.stated.error(least, most)), simulated: Some([least, most]), ..self }
    }

    pub(crate) fn over(self, envelope: Option<[f64; 2]>) -> Self {
        Self { envelope, ..self }
    }

    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

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

/// The evaluation.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of the simulator.
    pub version: &'static str,
    /// The hash of the machine, its calibrated numbers among them.
    pub machine_hash: String,
    /// All numbers of the machine.
    pub machine: MachineConfig,
    /// How much was simulated.
    pub effort: Effort,
    /// Stated and simulated values.
    pub rows: Vec<Row>,
    /// Curves.
    pub charts: Vec<Chart>,
}

impl Report {
    /// Simulates the evaluation; `watch` is told what is being done, and which share of all is done.
    ///
    /// # Errors
    /// Where an answer differs from the library's, or a run gets stuck.
    pub fn simulate(
        machine: &MachineConfig,
        effort: Effort,
        watch: &(dyn Fn(&str, f64) + Sync),
    ) -> Result<Self, SimError> {
        let (mut rows, mut charts) = (Vec::new(), Vec::new());
        let mut add = |(more, chart): (Vec<Row>, Vec<Chart>)| {
            rows.extend(more);
            charts.extend(chart);
        };
        watch("tables 1, 2, 4, figure 8b", 0.0);
        add(costs::table_1(machine, effort)?);
        add(costs::table_2(machine));
        add(figure8::figure(effort));
        watch("figures 3 and 4", 0.02);
        add(figure3::figure(machine, effort)?);
        add(figure4::figure(machine, effort)?);
        watch("open choices", 0.05);
        let envelope = envelope::envelope(machine, effort)?;
        watch("figure 9", 0.25);
        let nine =
            figure9::figure(machine, effort, &envelope, &|share| watch("figure 9", 0.25 + 0.5 * share))?;
        add(nine);
        watch("figure 10", 0.75);
        add(figure10::figure(machine, effort)?);
        watch("figure 11", 0.8);
        add(figure11::figure(machine, effort, &envelope)?);
        watch("figure 12", 0.88);
        add(figure12::figure(machine, effort)?);
        watch("figure 13", 0.92);
        add(figure13::figure(machine, effort)?);
        watch("what misses hang on", 0.94);
        add((Vec::new(), sensitivity::charts(machine, effort)?));
        add(costs::table_4());
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            machine_hash: format!("{:016x}", machine.hash()),
            machine: machine.clone(),
            effort,
            rows,
            charts,
        })
    }
}

/// Names of approaches as charts have them.
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

/// Curves of how many times faster than the first each is, at each place.
fn relative(results: &[Vec<RunResult>]) -> Vec<Series> {
    let count = results.first().map_or(0, Vec::len);
    let of = |n: usize| {
        let value = |place: &Vec<RunResult>| place[0].cycles_per_lookup / place[n].cycles_per_lookup;
        let name = label(results[0][n].approach).to_owned();
        Series { name, values: results.iter().map(|place| Some(value(place))).collect() }
    };
    (0..count).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_by_the_kind_of_statement() {
        let exact = Stated::Exact { value: 2.0 };
        assert_eq!((exact.error(3.0, 3.0), exact.error(1.0, 1.0)), (0.5, -0.5));
        assert_eq!(Stated::Below { value: 5.0 }.error(0.0, 4.0), 0.0);
        assert_eq!(Stated::Below { value: 5.0 }.error(0.0, 10.0), 1.0);
        assert_eq!(Stated::UpTo { value: 4.0 }.error(1.0, 3.0), -0.25);
        let range = Stated::Range { low: 2.0, high: 4.0 };
        assert_eq!([range.error(2.5, 3.5), range.error(1.0, 3.0), range.error(3.0, 5.0)], [0.0, -0.5, 0.25]);
    }
}
