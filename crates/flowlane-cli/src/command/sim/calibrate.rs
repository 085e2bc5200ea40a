//! `flowlane sim calibrate`: fits a simulated machine to this host and reports its errors.

use std::path::Path;

use flowlane::isa::cpu::Cpu;
use flowlane_sim::host_calibration::lookups::LookupMethod;
use flowlane_sim::host_calibration::{self, Compared, Fit, Measured, MemoryLevel};
use serde::Serialize;

use super::open;
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

pub(super) fn run(output: Option<&Path>, quick: bool, json: bool) -> Result<(), Failure> {
    // Opened first, so that an unwritable path fails before the work.
    let file = open(output)?;
    let bar = output::progress_share();
    bar.set_message("measuring");
    let (measured, cases) =
        host_calibration::measure(quick, &|share| bar.set_position((share * 0.8 * SHARES as f64) as u64));
    bar.set_message("fitting");
    let fit = host_calibration::fit(&measured, &cases)?;
    bar.set_message("simulating");
    let lookups = cases.compare(&measured, &fit.machine)?;
    bar.finish_and_clear();
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
                method.name().to_owned(),
                format!("{}, {}", level.name(), output::bytes(c.measured.bytes)),
                format!("{:.1}", c.measured_cycles),
                format!("{:.1}", c.simulated_cycles),
                format!("{:+.0} %", 100.0 * c.error()),
                if level == MemoryLevel::L1 && method != LookupMethod::Tuples {
                    "calibrated"
                } else {
                    "predicted"
                }
                .to_owned(),
            ]
        })
        .collect();
    let head = ["lookups", "tables in", "measured", "simulated", "off by", "worth"];
    output::table("software lookups, in cycles", &head, &rows)
}
