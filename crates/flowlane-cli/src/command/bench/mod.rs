//! `flowlane bench`: measurements of the library on this machine.

mod guard;

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use flowlane_bench::measure::{Effort, Measured};
use flowlane_bench::{BenchError, Options, Report, RouteTable, RuleSet, Topic};

use crate::arguments::{BenchOptions, BenchVerb, RoutesInput, RulesInput};
use crate::failure::Failure;
use crate::input;
use crate::output::{self, Output, SHARES};
use crate::stderr::note;

/// Runs the command.
pub(crate) fn run(options: &BenchOptions) -> Result<(), Failure> {
    if let Some(BenchVerb::Guard(options)) = &options.verb {
        return guard::run(options);
    }
    let topics: Vec<Topic> = Topic::ALL.into_iter().filter(|t| is_selected(options, *t)).collect();
    let selection = read(options)?;
    // Opened first, so that an unwritable path fails before minutes of measurements.
    let page = options.report.as_deref().map(|path| Output::create(Some(path))).transpose()?;
    let bar = output::progress_share();
    let mut watch = |what: &str, share: f64| {
        bar.set_message(what.to_owned());
        bar.set_position((share * SHARES as f64) as u64);
    };
    // In a log, where no progress bar is drawn: a run of minutes that is interrupted leaves what it has measured.
    let is_log = !std::io::stderr().is_terminal();
    let mut finished = |what: &str, measured: &[Measured]| {
        let ns = |one: &Measured| format!("{} {:.3} ns", one.name, one.ns.median);
        if is_log {
            note!("{what}: {}", measured.iter().map(ns).collect::<Vec<_>>().join(", "));
        }
    };
    let report = Report::measure(&topics, &selection, command(), &mut watch, &mut finished)?;
    bar.finish_and_clear();
    if let Some(mut page) = page {
        page.text(&report.html())?;
        page.finish()?;
    }
    if options.json {
        return output::json(&report);
    }
    let mut out = Output::create(None)?;
    out.text(&report.text())?;
    if let Some(path) = &options.report {
        out.text(&format!("plots: {}\n", path.display()))?;
    }
    out.finish()
}

fn is_selected(options: &BenchOptions, topic: Topic) -> bool {
    options.name.as_deref().is_some_and(|name| name == "all" || name == topic.name())
}

fn read(options: &BenchOptions) -> Result<Options, Failure> {
    if let Some(seconds) = options.seconds
        && !(seconds > 0.0 && seconds.is_finite())
    {
        return Err(Failure::input_help(
            format!("--seconds {seconds}: no time to measure in"),
            "give a positive number of seconds: --seconds 30",
        ));
    }
    if options.rounds == Some(0) {
        let help = "give at least 1, better 11 or more: --rounds 11";
        return Err(Failure::input_help("--rounds 0: nothing would be measured", help));
    }
    let variants = options.variants.iter().map(|name| name.parse()).collect::<Result<_, _>>();
    Ok(Options {
        effort: Effort { quick: options.quick, rounds: options.rounds, seconds: options.seconds },
        variants: variants.map_err(|e| Failure::input(format!("--variant: {e}")))?,
        kernels: options.kernels.clone(),
        routes: options.routes.as_deref().map(routes).transpose()?,
        rules: options.rules.iter().map(|path| rules(path)).collect::<Result<_, _>>()?,
    })
}

/// Reads the routes of a file, named by its file name.
fn routes(path: &Path) -> Result<Arc<RouteTable>, Failure> {
    let (routes, _) = input::read_routes(&RoutesInput::of(path))?;
    Ok(Arc::new(RouteTable { name: file_name(path), routes }))
}

/// Reads the rules of a file, named by its file name.
fn rules(path: &Path) -> Result<Arc<RuleSet>, Failure> {
    let (rules, _) = input::read_rules(&RulesInput::of(path))?;
    Ok(Arc::new(RuleSet { name: file_name(path), rules }))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Returns the command line for reports, without the path of the binary.
fn command() -> String {
    let arguments = std::env::args().skip(1).map(|a| match a.contains([' ', '"', '\'', '$', '*']) {
        true => format!("'{a}'"),
        false => a,
    });
    ["flowlane".to_owned()].into_iter().chain(arguments).collect::<Vec<_>>().join(" ")
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        let message = error.to_string();
        match error {
            error if error.environment() => Self::Environment(message),
            BenchError::Kernel(part) => Self::input_help(
                format!("--kernel {part}: no Bloom kernel that can be used here has this in its name"),
                "names are such as avx512-staged/u8/prefetch: scalar, avx2-table, avx2-staged, avx512-table, \
                 avx512-expandload, avx512-register or avx512-staged, then /u1, /u2, /u4 or /u8, then perhaps /prefetch",
            ),
            BenchError::NotFiveTuple { .. } => Self::input_help(
                format!("--rules: {message}"),
                "leave rules with other fields out; `flowlane classify` takes them with every engine",
            ),
            _ => Self::input(message),
        }
    }
}
