//! `flowlane sim`: the simulator of near-cache flow classification.

mod calibrate;
mod record;
mod replay;
mod run;
mod what_if;

use std::fmt::Write;
use std::path::Path;
use std::rc::Rc;

use flowlane_bench::figure::Figure;
use flowlane_bench::render::Page;
use flowlane_sim::config::{Approach, ConfigError, MachineConfig, Preset, RunConfig, Sweep};
use flowlane_sim::machine::{SimError, Span};
use flowlane_sim::paper::{CALIBRATED, EXPERIMENTS, Machines, Report, Row, calibrate, calibrated};
use flowlane_sim::report::{Chart, Effort};
use flowlane_sim::run::{tables_of, traced};
use serde::Serialize;

use crate::arguments::{SimPaperOptions, SimReportOptions, SimVerb};
use crate::failure::Failure;
use crate::input;
use crate::output::{self, Output, SHARES};

pub(crate) fn run(verb: &SimVerb) -> Result<(), Failure> {
    match verb {
        SimVerb::Run(options) => run::run(options),
        SimVerb::Paper(options) => paper(options),
        SimVerb::WhatIf(options) => what_if::run(options),
        SimVerb::Config { preset, recalibrate } => config(preset, *recalibrate),
        SimVerb::Calibrate { output, corpus, quick, json } => {
            calibrate::run(output.as_deref(), corpus.as_deref(), *quick, *json)
        }
        SimVerb::Record(options) => record::run(options),
        SimVerb::Replay { traces, preset, json } => replay::run(traces, preset.as_deref(), *json),
        SimVerb::Trace { config, approach, lookup, count, output } => {
            trace(config, approach, *lookup..lookup.saturating_add(*count), output.as_deref())
        }
    }
}

fn threads_of(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

fn read(path: &Path) -> Result<Sweep, Failure> {
    let text = input::read_text(path)?;
    Sweep::parse(&text).map_err(|e| failure_at(path, e))
}

/// Adds the file to an error of a configuration.
fn failure_at(path: &Path, error: ConfigError) -> Failure {
    let message = format!("{}: {}", path.display(), error.message);
    ConfigError { message, ..error }.into()
}

/// Creates the file, if requested.
fn open(path: Option<&Path>) -> Result<Option<Output<'_>>, Failure> {
    path.map(|path| Output::create(Some(path))).transpose()
}

fn effort(options: &SimReportOptions) -> Effort {
    Effort { quick: options.quick, threads: threads_of(options.threads), seed: options.seed }
}

/// Returns the name and the machine of an option's preset or file.
fn machine_of(option: &str, text: &str) -> Result<(String, MachineConfig), Failure> {
    let error = match text.parse::<Preset>() {
        Ok(preset) => return Ok((preset.name().to_owned(), preset.machine())),
        Err(error) => error,
    };
    let path = Path::new(text);
    if !path.exists() {
        return Err(Failure::input(format!("{option} {text}: no such file, and {error}")));
    }
    let content = input::read_text(path)?;
    let config = RunConfig::parse(&content).map_err(|e| failure_at(path, e))?;
    Ok((text.to_owned(), config.machine))
}

/// Simulates with a progress bar and writes the report to all requested outputs: a page, CSV, and JSON or text.
fn put_out<R: Serialize>(
    options: &SimReportOptions,
    simulate: impl FnOnce(&(dyn Fn(&str, f64) + Sync)) -> Result<R, Failure>,
    as_page: impl Fn(&R) -> String,
    as_csv: impl Fn(&R) -> String,
    as_text: impl Fn(&R) -> String,
) -> Result<(), Failure> {
    // Opened first, so that an unwritable path fails before the work.
    let (page_file, csv_file) = (open(options.report.as_deref())?, open(options.csv.as_deref())?);
    let bar = output::progress_share();
    let watch = |what: &str, share: f64| {
        bar.set_message(what.to_owned());
        bar.set_position((share * SHARES as f64) as u64);
    };
    let report = simulate(&watch)?;
    bar.finish_and_clear();
    if let Some(mut out) = page_file {
        out.text(&as_page(&report))?;
        out.finish()?;
    }
    if let Some(mut out) = csv_file {
        out.text(&as_csv(&report))?;
        out.finish()?;
    }
    if options.json {
        return output::json(&report);
    }
    let mut out = Output::create(None)?;
    out.text(&as_text(&report))?;
    out.finish()
}

fn paper(options: &SimPaperOptions) -> Result<(), Failure> {
    let (name, machine) = machine_of("--preset", &options.preset)?;
    // The paper's measurements are simulated on the machine of its measurements, not on that of its simulations.
    let machines = match machine == Preset::Paper.machine() {
        true => Machines::paper(),
        false => Machines::only(&name, &machine),
    };
    let effort = effort(&options.report);
    let figures: Vec<&str> = options.figure.iter().map(String::as_str).collect();
    put_out(
        &options.report,
        |watch| Ok(Report::simulate(&machines, &figures, effort, watch)?),
        html,
        Report::csv,
        paper_text,
    )
}

/// The columns of a row in a terminal; the others are printed below the table.
const COLUMNS: usize = 9;

fn paper_text(report: &Report) -> String {
    let rows: Vec<Vec<String>> = report.rows.iter().map(|row| row.cells()[..COLUMNS].to_vec()).collect();
    let machines = report.machines.all();
    let machines: Vec<String> = machines.iter().map(|m| format!("{} ({})", m.name, m.hash)).collect();
    let title = format!("machines: {}", machines.join(", "));
    let mut out = output::text_table(&title, &Row::HEAD[..COLUMNS], &rows);
    for row in &report.rows {
        let chosen = (!row.why.is_empty()).then(|| format!("{}: {}", row.status.name(), row.why));
        let note = (!row.note.is_empty()).then(|| row.note.clone());
        let remarks: Vec<String> = chosen.into_iter().chain(note).collect();
        if !remarks.is_empty() {
            let _ = writeln!(out, "{}, {}: {}", row.place, row.what, remarks.join(". "));
        }
    }
    out
}

fn html(report: &Report) -> String {
    let machines = report.machines.all();
    let hashes: Vec<String> =
        machines.iter().map(|m| format!("{}, configuration {}", m.name, m.hash)).collect();
    let facts = [
        ("simulator", format!("flowlane-sim {}", report.version)),
        ("machines", hashes.join("; ")),
        ("seed", report.effort.seed.to_string()),
        ("quick", if report.effort.quick { "yes: the numbers say little" } else { "no" }.to_owned()),
    ];
    let about = "What the text of the paper states, and what the simulator gives. Calibrated: Figure 10's bars with the table \
                 in the shared cache, and what follows from them. Assumption: it hangs on something that the text leaves open \
                 and that was chosen here. Predicted: nothing that it follows from was chosen to meet it. The envelope is over \
                 the choices that the paper leaves open.";
    let rows: Vec<Vec<String>> = report.rows.iter().map(|row| row.cells().to_vec()).collect();
    let mut page = Page::new("HALO, simulated", about, &facts);
    page.table(&Row::HEAD, &rows);
    report.charts.iter().for_each(|chart| page.figure(&figure(chart)));
    for sheet in &report.sheets {
        page.section(sheet.id, &sheet.title, &sheet.about);
        page.table(&sheet.head, &sheet.rows);
    }
    for named in machines {
        page.text(&format!("{MACHINE_TITLE} {}", named.name), &named.machine.text());
    }
    page.finish()
}

/// The heading of the machine's numbers at the end of a page.
const MACHINE_TITLE: &str = "All numbers of the machine";

/// Converts a chart of the simulator to a figure.
fn figure(chart: &Chart) -> Figure {
    let empty =
        Figure::new(chart.id, &chart.title, &chart.about).over(chart.axis, chart.places.iter().cloned());
    let plain = empty.plain(chart.unit);
    let figure = chart.series.iter().fold(plain, |figure, series| figure.curve(&series.name, &series.values));
    if chart.lines { figure } else { figure.bars() }
}

fn config(preset: &str, recalibrate: bool) -> Result<(), Failure> {
    let mut out = Output::create(None)?;
    if let Some((_, text)) = EXPERIMENTS.iter().find(|(name, _)| *name == preset) {
        out.text(text)?;
        return out.finish();
    }
    let preset: Preset = preset.parse().map_err(ConfigError::from)?;
    if !recalibrate {
        out.text(preset.text())?;
        return out.finish();
    }
    let machine = preset.machine();
    let found = calibrate(&machine, Effort { quick: false, threads: 1, seed: 1 })?;
    let rows = CALIBRATED.iter().zip(calibrated(&machine).into_iter().zip(found));
    let rows: Vec<Vec<String>> =
        rows.map(|(key, (old, new))| vec![(*key).to_owned(), old.to_string(), new.to_string()]).collect();
    out.text(&output::table("", &["calibrated on Figure 10's LLC bars", "preset", "now"], &rows))?;
    out.finish()
}

/// An event of Chrome's trace format; times in microseconds.
#[derive(Serialize)]
struct TraceEvent<'a> {
    name: &'a str,
    ph: &'static str,
    ts: f64,
    dur: f64,
    pid: u32,
    tid: &'a str,
    args: TraceArguments,
}

#[derive(Serialize)]
struct TraceArguments {
    number: u64,
    cycles: f64,
}

fn trace(
    path: &Path,
    approach: &str,
    lookups: std::ops::Range<u64>,
    output: Option<&Path>,
) -> Result<(), Failure> {
    let approach: Approach = approach.parse().map_err(|e| Failure::input(format!("--approach: {e}")))?;
    let config = read(path)?.runs.swap_remove(0).1;
    if lookups.end > config.run.lookups {
        let message = format!(
            "--lookup {} --count {}: the run has {} lookups",
            lookups.start,
            lookups.end - lookups.start,
            config.run.lookups
        );
        return Err(Failure::input_help(message, "ask for earlier ones, or raise `run.lookups`"));
    }
    let (result, spans) = traced(&config, approach, &Rc::new(tables_of(&config)), lookups)?;
    let events: Vec<TraceEvent<'_>> = spans.iter().map(|span| event(span, result.cycle_ps)).collect();
    let mut text = serde_json::to_string(&serde_json::json!({
        "displayTimeUnit": "ns",
        "otherData": { "configuration": result.config_hash, "approach": approach.name() },
        "traceEvents": events,
    }))
    .expect("numbers and texts");
    text.push('\n');
    let mut out = Output::create(output)?;
    out.text(&text)?;
    out.finish()
}

fn event(span: &Span, cycle_ps: u64) -> TraceEvent<'_> {
    let length = span.to_ps - span.from_ps;
    TraceEvent {
        name: &span.name,
        ph: "X",
        ts: span.from_ps as f64 / 1e6,
        dur: length as f64 / 1e6,
        pid: 1,
        tid: &span.track,
        args: TraceArguments { number: span.number, cycles: length as f64 / cycle_ps as f64 },
    }
}

impl From<SimError> for Failure {
    fn from(error: SimError) -> Self {
        Self::Check(error.to_string())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error.help {
            Some(help) => Self::input_help(error.message, help),
            None => Self::input(error.message),
        }
    }
}
