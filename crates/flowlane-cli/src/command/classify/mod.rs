//! `flowlane classify`: finds the winning rule of each packet.

#[cfg(feature = "query")]
mod parquet_output;
mod pass;
mod sink;
mod verdicts;

use std::path::{Path, PathBuf};
use std::time::Instant;

use flowlane::classify::HitCounts;
use flowlane::classify::acl::CATEGORIES_MAX;
use flowlane::rule::{Format, Rule, RuleId};
use serde::Serialize;

use self::pass::Pass;
use self::sink::{VerdictSink, is_columnar};
use self::verdicts::Verdicts;
use super::engine::{self, BATCH, Engine, SAMPLE};
use crate::arguments::{ClassifyOptions, RulesInput};
use crate::failure::Failure;
use crate::input;
use crate::output::{self, Output, reject_input_as_output};
use crate::stderr::{self, Severity};
use crate::trace::{Chunk, ChunkParser, Trace};

#[derive(Serialize)]
struct Summary {
    packets: u64,
    hits: u64,
    misses: u64,
    malformed: u64,
    /// Packets whose headers the capture truncates.
    cut: u64,
    /// Reason why the trace could not be read to its end.
    damage: Option<String>,
    rules: usize,
    engine: &'static str,
    variant: &'static str,
    /// CUDA device, for engines that use one.
    device: Option<String>,
    threads: usize,
    /// Time from reading the first packet to writing the last verdict.
    wall_seconds: f64,
    packets_per_second: f64,
    /// Time in lookups, summed over threads.
    seconds: f64,
    lookups_per_second: f64,
    cycles_per_lookup: f64,
    table_bytes: usize,
    build_seconds: f64,
    /// Verdicts that differ from linear search; `None` without `--check`.
    differences: Option<u64>,
}

/// The rules of one file.
pub(crate) struct List {
    pub(crate) path: PathBuf,
    pub(crate) rules: Vec<Rule>,
    /// Action column of the CSV, by position.
    actions: Vec<String>,
    /// ID of the first rule: the rules of all lists are numbered consecutively.
    pub(crate) first: u32,
}

/// Reads the lists that the options name.
fn lists(options: &ClassifyOptions) -> Result<Vec<List>, Failure> {
    if options.also.len() >= CATEGORIES_MAX {
        let message = format!("--also was given {} times", options.also.len());
        return Err(Failure::input_help(
            message,
            format!("one pass classifies by at most {CATEGORIES_MAX} lists"),
        ));
    }
    let mut lists: Vec<List> = Vec::new();
    let mut dumped = input::DumpedPorts::default();
    for path in std::iter::once(&options.rules.rules).chain(&options.also) {
        let file = RulesInput { rules: path.clone(), syntax: options.rules.syntax };
        let (rules, format) = input::read_rules_beside(&file, &mut dumped)?;
        let actions = actions(&rules, format);
        let first = lists.last().map_or(0, |last| last.first + last.rules.len() as u32);
        lists.push(List { path: path.clone(), rules, actions, first });
    }
    Ok(lists)
}

/// Runs the command.
pub(crate) fn run(options: &ClassifyOptions) -> Result<(), Failure> {
    if options.json && is_columnar(options.output.as_deref()) {
        return Err(Failure::input_help(
            "--json does not apply to columnar output",
            "omit --json, or name the output .json",
        ));
    }
    reject_inputs_as_outputs(options)?;
    let lists = lists(options)?;
    let trace = Trace::open(&options.trace)?;
    let sample = trace.sample(SAMPLE);
    let begun = Instant::now();
    let engine = match &lists[..] {
        [one] => Engine::build(&one.rules, options, &options.engine, &sample)?,
        several => Engine::of_lists(several, options)?,
    };
    let build_seconds = begun.elapsed().as_secs_f64();
    if let Some(packet) = options.explain {
        return explain(trace, &engine, packet, &lists[0].rules, options);
    }
    let verdicts = Verdicts::new(&lists, options.json, is_columnar(options.output.as_deref()));
    let sink = VerdictSink::create(options.output.as_deref(), &verdicts, &lists)?;
    let threads = engine.threads(options);
    let begun = Instant::now();
    let pass = Pass::new(trace, &engine, &lists, options, &verdicts, sink)?;
    let (totals, trace, sink) = pass.run(threads)?;
    let wall_seconds = begun.elapsed().as_secs_f64();
    let taken = quanta::Clock::new().delta(0, totals.cycles).as_secs_f64();
    let each = |of: f64, by: f64| if by == 0.0 { 0.0 } else { of / by };
    let packets = totals.packets as f64;
    let summary = Summary {
        packets: totals.packets,
        hits: totals.hits,
        misses: totals.packets - totals.hits,
        malformed: totals.faults.malformed,
        cut: totals.faults.cut,
        damage: trace.damage(),
        rules: engine.table().len(),
        engine: engine.name(),
        variant: engine.variant(),
        device: engine.device(),
        threads,
        wall_seconds,
        packets_per_second: each(packets, wall_seconds),
        seconds: taken,
        lookups_per_second: each(packets, taken),
        cycles_per_lookup: each(totals.cycles as f64, packets),
        table_bytes: engine.table().table_bytes(),
        build_seconds,
        differences: options.check.then_some(totals.differences),
    };
    sink.finish(&verdicts.tail(&summary))?;
    if !options.json {
        stderr::write(Severity::Info, &summary.text());
    }
    if let Some(path) = &options.hits {
        write_hits(path, &lists, &totals.counts)?;
    }
    match (totals.differences, trace.failure()) {
        (0, None) => Ok(()),
        (0, Some(damage)) => Err(damage),
        (n, _) => {
            Err(Failure::Check(format!("{n} of {} verdicts differ from linear search", totals.packets)))
        }
    }
}

/// Explains the lookup of one packet. The rest of the trace is read as well: damage is reported wherever it is.
fn explain(
    trace: Trace<'_>,
    engine: &Engine,
    packet: u64,
    rules: &[Rule],
    options: &ClassifyOptions,
) -> Result<(), Failure> {
    let (mut chunk, mut packets) = (Chunk::default(), 0);
    while trace.next(&mut chunk) {
        if chunk.numbers.contains(&packet) {
            let (at, mut keys) = ((packet - chunk.numbers.start) as usize, Vec::new());
            ChunkParser::new(&options.trace).keys(&chunk, at..at + 1, &mut keys);
            engine::explain(engine, packet, &keys[0], rules, options)?;
        }
        packets = chunk.numbers.end;
    }
    let missing = format!("packet {packet} does not exist; the trace has {packets} packets, numbered from 0");
    match (packet < packets, trace.failure()) {
        (true, None) => Ok(()),
        (true, Some(damage)) => Err(damage),
        (false, None) => Err(Failure::input(missing)),
        (false, Some(damage)) => Err(Failure::input_help(missing, damage.message())),
    }
}

/// Returns the action column of the CSV, by position. ClassBench filters have no actions.
fn actions(rules: &[Rule], format: Format) -> Vec<String> {
    let text = |rule: &Rule| match format {
        Format::Classbench => String::new(),
        Format::Flows => flowlane::rule::flow_syntax::print_actions(&rule.actions),
    };
    rules.iter().map(text).collect()
}

fn reject_inputs_as_outputs(options: &ClassifyOptions) -> Result<(), Failure> {
    let also = options.also.iter().map(PathBuf::as_path);
    let inputs: Vec<&Path> = [&*options.rules.rules, &*options.trace.trace].into_iter().chain(also).collect();
    reject_input_as_output(options.output.as_deref(), &inputs)?;
    reject_input_as_output(options.hits.as_deref(), &inputs)
}

/// Writes the hit count of each rule.
fn write_hits(path: &Path, lists: &[List], counts: &HitCounts) -> Result<(), Failure> {
    let mut output = Output::create(Some(path))?;
    output.text(if lists.len() > 1 { "list,rule,priority,hits\n" } else { "rule,priority,hits\n" })?;
    for (number, list) in lists.iter().enumerate() {
        for (rule, handle) in list.rules.iter().zip(list.first..) {
            let (position, hits) = (handle - list.first, counts.of(RuleId(handle)));
            let line = format!("{position},{},{hits}\n", rule.priority);
            output.text(&if lists.len() > 1 { format!("{},{line}", number + 1) } else { line })?;
        }
    }
    output.finish()
}

impl Summary {
    fn text(&self) -> String {
        let rows = [
            ("packets", output::count(self.packets)),
            ("hits", output::count(self.hits)),
            ("misses", output::count(self.misses)),
            ("malformed", output::count(self.malformed)),
            ("truncated headers", output::count(self.cut)),
            ("rules", output::count(self.rules as u64)),
            ("engine", self.engine.to_owned()),
            ("variant", self.variant.to_owned()),
            ("threads", self.threads.to_string()),
            ("packets/s", output::count(self.packets_per_second as u64)),
            ("lookups/s per thread", output::count(self.lookups_per_second as u64)),
            ("cycles per lookup", format!("{:.1}", self.cycles_per_lookup)),
            ("table", output::bytes(self.table_bytes as u64)),
            ("build time", format!("{:.3} s", self.build_seconds)),
        ];
        let mut rows: Vec<Vec<String>> = rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec();
        rows.extend(self.device.as_ref().map(|device| vec!["device".to_owned(), device.clone()]));
        if let Some(n) = self.differences {
            rows.push(vec!["differences from linear search".to_owned(), output::count(n)]);
        }
        output::table("", &["classify", ""], &rows)
    }
}
