//! `flowlane sim calibrate`: fits a simulated machine to this host and reports its errors.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use flowlane::isa::cpu::Cpu;
use flowlane_sim::host_calibration::{self, Compared, Extent, Fit, Lookup, Measured, SimulatedBy};
use flowlane_sim::trace::{RecordError, Trace};
use serde::Serialize;

use super::{open, record, replay};
use crate::failure::Failure;
use crate::output::{self, Output, SHARES};

/// The share of memory on huge pages below which some chains or tables are on small ones: a twentieth of the measured memory
/// is in pieces smaller than a huge page.
const HUGE: f64 = 0.93;

#[derive(Serialize)]
struct Report<'a> {
    cpu: &'a str,
    measured: &'a Measured,
    fit: &'a Fit,
    lookups: &'a [Compared],
}

pub(super) fn run(
    output: Option<&Path>,
    corpus: Option<&Path>,
    quick: bool,
    json: bool,
) -> Result<(), Failure> {
    // Opened first, so that an unwritable path fails before the work.
    let file = open(output)?;
    if let Some(folder) = corpus {
        std::fs::create_dir_all(folder).map_err(|e| Failure::written(folder, &e))?;
    }
    let bar = output::progress_share();
    bar.set_message("measuring");
    let (measured, cases) = host_calibration::measure(Extent::Lookups, quick, &|share| {
        bar.set_position((share * 0.8 * SHARES as f64) as u64)
    });
    bar.set_message("fitting");
    let fit = host_calibration::fit(&measured, &cases)?;
    let all = measured.lookups.len() as f64;
    let mut done = 0.0;
    let cycle_ns = measured.latencies.cycle_ns;
    let written = String::from(replay::MEASURED_HEAD);
    let mut recordings = Recordings { corpus, quick, cycle_ns, written, refused: None, failed: None };
    let mut record = |lookup: &Lookup| {
        bar.set_message(format!("recording and replaying {}", lookup.name()));
        bar.set_position(((0.8 + 0.2 * done / all) * SHARES as f64) as u64);
        done += 1.0;
        recordings.record(lookup)
    };
    let lookups = cases.compare(&measured, &fit.machine, &mut record)?;
    bar.finish_and_clear();
    let refused = recordings.end(&fit)?;
    let cpu = &Cpu::this().brand;
    if let Some(mut out) = file {
        out.text(&fit.text(if cpu.is_empty() { "This machine" } else { cpu }))?;
        out.finish()?;
    }
    if json {
        return output::json(&Report { cpu, measured: &measured, fit: &fit, lookups: &lookups });
    }
    let mut out = Output::create(None)?;
    out.text(&latencies(&measured, &fit))?;
    out.text(&predictions(&lookups))?;
    for kept in &fit.kept {
        out.text(&format!("not measured: {}\n", kept.why))?;
    }
    if let Some(refused) = refused {
        out.text(&format!(
            "Not recorded, so that tables are simulated by loads and rules not at all: {refused}.\n"
        ))?;
    }
    if let Some(huge) = measured.huge.filter(|huge| *huge < HUGE) {
        out.text(&format!(
            "Only {:.0} % of the memory is on huge pages: tables and chains are on different kinds of pages, and the results \
             for the last cache and for memory are unreliable. Free some memory (as root: echo 3 > /proc/sys/vm/drop_caches; echo 1 > \
             /proc/sys/vm/compact_memory), or allow them (/sys/kernel/mm/transparent_hugepage/enabled), and measure again.\n",
            100.0 * huge
        ))?;
    }
    if let Some(sentence) = measured.disturbed.sentence() {
        out.text(&format!("Unreliable: {sentence}. Leave it idle and measure again.\n"))?;
    }
    out.finish()
}

/// Recordings of lookups, and the corpus that keeps them.
struct Recordings<'a> {
    corpus: Option<&'a Path>,
    quick: bool,
    cycle_ns: f64,
    /// The measured cycles, as lines of the corpus.
    written: String,
    /// The reason why nothing more is recorded.
    refused: Option<RecordError>,
    /// A trace that could not be written.
    failed: Option<Failure>,
}

impl Recordings<'_> {
    fn record(&mut self, lookup: &Lookup) -> Option<Arc<Trace>> {
        if self.refused.is_some() || self.failed.is_some() {
            return None;
        }
        let lookups = if self.quick { lookup.recorded() / 8 } else { lookup.recorded() };
        let trace = record::of(lookup, lookups, self.quick).map_err(|e| self.refused = Some(e)).ok()?;
        if let Some(folder) = self.corpus {
            let name = format!("{}.trace", lookup.name());
            self.failed = record::write(&trace, &folder.join(&name)).err();
            let _ = writeln!(self.written, "{name},{:.2}", lookup.ns / self.cycle_ns);
        }
        Some(Arc::new(trace))
    }

    /// Writes the files of the corpus apart from its traces, and returns the reason if nothing was recorded.
    fn end(self, fit: &Fit) -> Result<Option<RecordError>, Failure> {
        if let Some(failure) = self.failed {
            return Err(failure);
        }
        match (self.refused, self.corpus) {
            // Without the files that were asked for.
            (Some(refused), Some(_)) => Err(Failure::Environment(refused.to_string())),
            (refused, None) => Ok(refused),
            (None, Some(folder)) => {
                replay::write_list(folder, &self.written, &fit.text("This machine"))?;
                Ok(None)
            }
        }
    }
}

fn latencies(measured: &Measured, fit: &Fit) -> String {
    let (of, machine) = (&measured.latencies, &fit.machine);
    let cycles = |ns: f64| format!("{:.1}", ns / of.cycle_ns);
    let mut rows = vec![
        vec!["clock".into(), format!("{} MHz", machine.core.clock_mhz), String::new()],
        vec![
            "mispredicted branch".into(),
            cycles(of.mispredict_ns),
            machine.core.mispredict_cycles.to_string(),
        ],
        vec![
            "instructions in the window, at least".into(),
            of.window.to_string(),
            machine.core.rob_entries.to_string(),
        ],
        vec!["misses at once".into(), machine.core.miss_registers.to_string(), String::new()],
    ];
    for (kib, measured, simulated) in &fit.chains {
        let what = format!("load of a chain, {}", output::bytes(kib << 10));
        rows.push(vec![what, format!("{measured:.1}"), format!("{simulated:.1}")]);
    }
    for (kib, measured, simulated) in &fit.small_chains {
        let what = format!("load of a chain on small pages, {}", output::bytes(kib << 10));
        rows.push(vec![what, format!("{measured:.1}"), format!("{simulated:.1}")]);
    }
    if let Some((measured, simulated)) = fit.dirty_line {
        let what = "line that another core wrote".into();
        rows.push(vec![what, format!("{measured:.1}"), format!("{simulated:.1}")]);
    }
    output::table("latencies, in cycles", &["what", "measured", "simulated"], &rows)
}

fn predictions(lookups: &[Compared]) -> String {
    let rows: Vec<Vec<String>> = lookups
        .iter()
        .map(|c| {
            let (method, level) = (c.measured.method, c.measured.level);
            vec![
                if c.measured.small_pages {
                    format!("{}, small pages", method.name())
                } else {
                    method.name().to_owned()
                },
                format!("{}, {}", level.name(), output::bytes(c.measured.bytes)),
                format!("{:.1}", c.measured_cycles),
                format!("{:.1}", c.simulated_cycles),
                format!("{:+.0} %", 100.0 * c.error()),
                match c.by {
                    SimulatedBy::Instructions => "instructions",
                    SimulatedBy::Loads => "loads",
                }
                .to_owned(),
            ]
        })
        .collect();
    let head = ["lookups", "tables in", "measured", "simulated", "off by", "simulated by"];
    output::table("software lookups, in cycles", &head, &rows)
}
