//! `flowlane sim calibrate`: fits a simulated machine to this host and reports its errors.

use std::fmt::Write;
use std::path::Path;
use std::rc::Rc;

use flowlane::isa::cpu::Cpu;
use flowlane_sim::host_calibration::{self, Compared, Fit, Lookup, Measured, SimulatedBy};
use serde::Serialize;

use super::{open, record, replay};
use crate::failure::Failure;
use crate::output::{self, Output, SHARES};

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
    let (measured, cases) =
        host_calibration::measure(quick, &|share| bar.set_position((share * 0.8 * SHARES as f64) as u64));
    bar.set_message("fitting");
    let fit = host_calibration::fit(&measured, &cases)?;
    let all = measured.lookups.len() as f64;
    let (mut done, mut refused) = (0.0, None);
    let mut written = String::from("trace,measured_cycles\n");
    let mut record = |lookup: &Lookup| {
        bar.set_message(format!("recording and replaying {}", lookup.name()));
        bar.set_position(((0.8 + 0.2 * done / all) * SHARES as f64) as u64);
        done += 1.0;
        if refused.is_some() {
            return None;
        }
        let recorded = if quick { lookup.recorded() / 8 } else { lookup.recorded() };
        let kept = record::of(lookup, recorded, quick).and_then(|trace| {
            let name = format!("{}.trace", lookup.name());
            if let Some(folder) = corpus {
                record::write(&trace, &folder.join(&name))?;
                let _ = writeln!(written, "{name},{:.2}", lookup.ns / measured.latencies.cycle_ns);
            }
            Ok(Rc::new(trace))
        });
        kept.map_err(|e| refused = Some(e)).ok()
    };
    let lookups = cases.compare(&measured, &fit.machine, &mut record)?;
    bar.finish_and_clear();
    match (refused, corpus) {
        // Without the files that were asked for.
        (Some(failure), Some(_)) => return Err(failure),
        (None, Some(folder)) => complete(folder, &written, &fit)?,
        _ => {}
    }
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
    if let Some(sentence) = measured.disturbed.sentence() {
        out.text(&format!("Unreliable: {sentence}. Leave it idle and measure again.\n"))?;
    }
    out.finish()
}

/// Writes the files of a corpus apart from its traces.
fn complete(folder: &Path, measured: &str, fit: &Fit) -> Result<(), Failure> {
    for (name, text) in [(replay::MEASURED, measured), (replay::MACHINE, &fit.text("This machine"))] {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|e| Failure::written(&path, &e))?;
    }
    Ok(())
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
