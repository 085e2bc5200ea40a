//! `flowlane sim what-if`: rules and traffic of one's own, measured here and simulated.

mod measure;
mod page;
mod text;

use std::path::Path;

use flowlane_sim::config::{MachineConfig, Preset, RunConfig};
use flowlane_sim::paper::Effort;
use flowlane_sim::what_if::{Plan, Question, Report};
use flowlane_sim::workload::rules::{WorkloadError, in_order};

use super::{failure_at, threads_of, write};
use crate::arguments::SimWhatIfOptions;
use crate::failure::Failure;
use crate::input;
use crate::output::{self, Output, SHARES};

/// Runs it.
pub(super) fn run(options: &SimWhatIfOptions) -> Result<(), Failure> {
    let (preset, machine) = machine_of(&options.preset)?;
    let plan = plan(options)?;
    if options.cache > 0 && plan.base.tables.words().len() > flowlane::cuckoo::KEY_WORDS_MAX {
        let words = plan.base.tables.words().len();
        let message = format!("--cache: the rules look at {words} words of a packet together");
        return Err(Failure::input_help(
            message,
            "an exact-match cache has keys of at most 16; leave it out",
        ));
    }
    let page_file = options.report.as_deref().map(|path| Output::create(Some(path))).transpose()?;
    let measured = measure::measure(&plan, options.quick)?;
    let question = Question {
        preset,
        machine,
        cache_flows: options.cache as usize,
        extrapolate: options.extrapolate,
        effort: effort(options),
    };
    let bar = output::progress_share();
    let watch = |what: &str, share: f64| {
        bar.set_message(what.to_owned());
        bar.set_position((share * SHARES as f64) as u64);
    };
    let report = Report::simulate(&question, &plan, measured, &watch)?;
    bar.finish_and_clear();
    if let Some(mut out) = page_file {
        out.text(&page::html(&report))?;
        out.finish()?;
    }
    if let Some(path) = &options.csv {
        write(path, &report.csv())?;
    }
    if options.json {
        return output::json(&report);
    }
    let mut out = Output::create(None)?;
    out.text(&text::text(&report))?;
    out.finish()
}

fn effort(options: &SimWhatIfOptions) -> Effort {
    Effort { quick: options.quick, threads: threads_of(options.threads), seed: options.seed }
}

/// The workloads of the rules and packets that the options name.
fn plan(options: &SimWhatIfOptions) -> Result<Plan, Failure> {
    let (mut rules, _) = input::read_rules(&options.rules)?;
    let (packets, _) = input::read_trace(&options.trace)?;
    let all = rules.len();
    rules.retain(|rule| rule.table == options.table);
    let path = options.rules.rules.display();
    if rules.is_empty() && all > 0 {
        let message = format!("{path} has no rules for table {}", options.table);
        return Err(Failure::input_help(message, "name another with --table"));
    }
    let bar = output::progress(0, "preparing");
    let plan = Plan::new(in_order(&rules), packets, effort(options));
    bar.finish_and_clear();
    plan.map_err(|e| {
        let file = if e == WorkloadError::NoPackets { options.trace.trace.display() } else { path };
        Failure::input(format!("{file}: {e}"))
    })
}

/// The machine of a preset, or of a file; and what it is called.
fn machine_of(text: &str) -> Result<(String, MachineConfig), Failure> {
    let error = match Preset::named(text) {
        Ok(preset) => return Ok((preset.name().to_owned(), preset.machine())),
        Err(error) => error,
    };
    let path = Path::new(text);
    if !path.exists() {
        let message = format!("--preset {text}: {}, and no such file", error.message);
        return Err(Failure::input_help(message, "presets are paper and skylake-sp"));
    }
    let content = input::read_text(path)?;
    let config = RunConfig::parse(&content).map_err(|e| failure_at(path, e))?;
    Ok((text.to_owned(), config.machine))
}
