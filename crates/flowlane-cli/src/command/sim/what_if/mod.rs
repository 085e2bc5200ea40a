//! `flowlane sim what-if`: a user's rules and traffic, measured and simulated.

mod field;
mod measure;
mod page;
mod recorded;
mod text;

use flowlane::named_enum::UnknownName;
use flowlane::packet::key::FlowKey;
use flowlane::rule::Match;
use flowlane_sim::config::{MachineConfig, NicConfig, Preset};
use flowlane_sim::host_calibration::{self, Extent};
use flowlane_sim::what_if::{Arrival, Plan, Question, Report};
use flowlane_sim::workload::rules::{Workload, WorkloadError, in_order};

use super::{effort, machine_of, put_out};
use crate::arguments::SimWhatIfOptions;
use crate::failure::Failure;
use crate::input;
use crate::output::{self, SHARES};
use crate::stderr::note;
use crate::trace::Trace;
use field::Headers;

pub(super) fn run(options: &SimWhatIfOptions) -> Result<(), Failure> {
    let named =
        |option, text: &Option<String>| text.as_deref().map(|text| machine_of(option, text)).transpose();
    let (asked, host) = (named("--preset", &options.preset)?, named("--host", &options.host)?);
    let unknown = |e: UnknownName| Failure::input(format!("--arrival: {e}"));
    let arrival: Arrival = options.arrival.parse().map_err(unknown)?;
    let trace = Trace::open(&options.trace)?;
    let (rules, packets) = inputs(options, &trace)?;
    let headers = (arrival == Arrival::Nic).then(|| {
        let machine = asked.as_ref().or(host.as_ref()).map(|(_, machine)| machine.nic.clone());
        headers(&machine.unwrap_or_else(|| Preset::nearest().machine().nic))
    });
    if let Some([method, count]) = options.recorded.as_deref() {
        let workload = Workload::shared("recorded", rules, packets, options.report.seed);
        let workload = workload.map_err(|e| refused(options, &e))?;
        return recorded::look_up(method, count, &workload, headers.as_ref());
    }
    let bar = output::progress(0, "preparing");
    let plan = Plan::new(rules, packets, effort(&options.report));
    bar.finish_and_clear();
    let plan = plan.map_err(|e| refused(options, &e))?;
    if options.cache > 0 && plan.base.tables.words().len() > flowlane::cuckoo::KEY_WORDS_MAX {
        let words = plan.base.tables.words().len();
        let message = format!("--cache: the rules look at {words} words of a packet together");
        return Err(Failure::input_help(
            message,
            "an exact-match cache has keys of at most 16; leave it out",
        ));
    }
    if let Some(folder) = &options.corpus {
        std::fs::create_dir_all(folder).map_err(|e| Failure::written(folder, &e))?;
    }
    put_out(
        &options.report,
        |watch| {
            let host = host.map_or_else(|| this_machine(options.report.quick), |(_, machine)| Ok(machine))?;
            let (preset, machine) = asked.unwrap_or_else(|| ("this machine".to_owned(), host.clone()));
            let question = Question {
                preset,
                machine,
                rate: options.rate,
                arrival,
                cache_flows: options.cache as usize,
                extrapolate: options.extrapolate,
                effort: effort(&options.report),
            };
            let measured = measure::measure(&plan, host, headers.as_ref(), options.report.quick)?;
            if let Some(folder) = &options.corpus {
                recorded::write(folder, &measured)?;
            }
            Ok(Report::simulate(&question, &plan, measured, watch)?)
        },
        page::html,
        Report::csv,
        text::text,
    )?;
    trace.failure().map_or(Ok(()), Err)
}

/// Allocates headers that are as far from the core as the interface writes them: beyond the second-level cache, or the last.
fn headers(nic: &NicConfig) -> Headers {
    let caches = host_calibration::caches();
    let kib = |n: usize, default: u64| caches.get(n).map_or(default, |cache| cache.kib);
    Headers::beyond(if nic.ddio_ways > 0 { 2 * kib(1, 1024) } else { kib(2, 32 << 10) } << 10)
}

/// Fits a simulated machine to this one.
fn this_machine(quick: bool) -> Result<MachineConfig, Failure> {
    let bar = output::progress_share();
    bar.set_message("measuring this machine");
    let watch = |share: f64| bar.set_position((share * SHARES as f64) as u64);
    let (measured, cases) = host_calibration::measure(Extent::Machine, quick, &watch);
    bar.finish_and_clear();
    Ok(host_calibration::fit(&measured, &cases)?.machine)
}

/// Reads rules and packets.
fn inputs(options: &SimWhatIfOptions, trace: &Trace<'_>) -> Result<(Vec<Match>, Vec<FlowKey>), Failure> {
    let (mut rules, _) = input::read_rules(&options.rules)?;
    let (packets, faults) = trace.read_all()?;
    let malformed = faults.malformed + faults.cut;
    if malformed > 0 && options.recorded.is_none() {
        let (path, all) = (options.trace.trace.display(), packets.len());
        note!(
            "{path}: {malformed} of {all} packets are malformed or cut; they are looked up as far as they could be read"
        );
    }
    let all = rules.len();
    rules.retain(|rule| rule.table == options.table);
    if rules.is_empty() && all > 0 {
        let path = options.rules.rules.display();
        let message = format!("{path} has no rules for table {}", options.table);
        return Err(Failure::input_help(message, "name another with --table"));
    }
    Ok((in_order(&rules), packets))
}

fn refused(options: &SimWhatIfOptions, error: &WorkloadError) -> Failure {
    let rules = options.rules.rules.display();
    let file = if *error == WorkloadError::NoPackets { options.trace.trace.display() } else { rules };
    Failure::input(format!("{file}: {error}"))
}
