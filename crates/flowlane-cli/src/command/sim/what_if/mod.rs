//! `flowlane sim what-if`: a user's rules and traffic, measured and simulated.

mod measure;
mod page;
mod text;

use flowlane_sim::what_if::{Plan, Question, Report};
use flowlane_sim::workload::rules::{WorkloadError, in_order};

use super::{effort, machine_of, put_out};
use crate::arguments::SimWhatIfOptions;
use crate::failure::Failure;
use crate::input;
use crate::output;
use crate::stderr::note;
use crate::trace::Trace;

pub(super) fn run(options: &SimWhatIfOptions) -> Result<(), Failure> {
    let (preset, machine) = machine_of(&options.preset)?;
    let trace = Trace::open(&options.trace)?;
    let plan = plan(options, &trace)?;
    if options.cache > 0 && plan.base.tables.words().len() > flowlane::cuckoo::KEY_WORDS_MAX {
        let words = plan.base.tables.words().len();
        let message = format!("--cache: the rules look at {words} words of a packet together");
        return Err(Failure::input_help(
            message,
            "an exact-match cache has keys of at most 16; leave it out",
        ));
    }
    let question = Question {
        preset,
        machine,
        cache_flows: options.cache as usize,
        extrapolate: options.extrapolate,
        effort: effort(&options.report),
    };
    put_out(
        &options.report,
        |watch| {
            let measured = measure::measure(&plan, options.report.quick)?;
            Ok(Report::simulate(&question, &plan, measured, watch)?)
        },
        page::html,
        Report::csv,
        text::text,
    )?;
    trace.failure().map_or(Ok(()), Err)
}

/// Derives the workloads from the given rules and packets.
fn plan(options: &SimWhatIfOptions, trace: &Trace<'_>) -> Result<Plan, Failure> {
    let (mut rules, _) = input::read_rules(&options.rules)?;
    let (packets, faults) = trace.read_all()?;
    let malformed = faults.malformed + faults.cut;
    if malformed > 0 {
        let (path, all) = (options.trace.trace.display(), packets.len());
        note!(
            "{path}: {malformed} of {all} packets are malformed or cut; they are looked up as far as they could be read"
        );
    }
    let all = rules.len();
    rules.retain(|rule| rule.table == options.table);
    let path = options.rules.rules.display();
    if rules.is_empty() && all > 0 {
        let message = format!("{path} has no rules for table {}", options.table);
        return Err(Failure::input_help(message, "name another with --table"));
    }
    let bar = output::progress(0, "preparing");
    let plan = Plan::new(in_order(&rules), packets, effort(&options.report));
    bar.finish_and_clear();
    plan.map_err(|e| {
        let file = if e == WorkloadError::NoPackets { options.trace.trace.display() } else { path };
        Failure::input(format!("{file}: {e}"))
    })
}
