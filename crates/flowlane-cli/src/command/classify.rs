//! `flowlane classify`: which rule wins for each packet.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use flowlane::classify::acl::CATEGORIES_MAX;
use flowlane::classify::{Hit, HitCounts};
use flowlane::packet::FlowKey;
use flowlane::rule::{Format, Rule, RuleId};
use serde::Serialize;

use super::engine::{self, Engine};
use crate::arguments::ClassifyOptions;
use crate::failure::Failure;
use crate::input;
use crate::output::{self, Output};

#[derive(Serialize)]
struct Summary {
    packets: u64,
    hits: u64,
    misses: u64,
    malformed: u64,
    rules: usize,
    engine: &'static str,
    variant: &'static str,
    /// The CUDA device, for engines that use one.
    device: Option<String>,
    seconds: f64,
    lookups_per_second: f64,
    cycles_per_lookup: f64,
    table_bytes: usize,
    build_seconds: f64,
    /// Verdicts that differ from linear search; none where that was not asked for.
    differences: Option<u64>,
}

#[derive(Serialize)]
struct Verdict<'a> {
    packet: u64,
    #[serde(flatten)]
    winner: Winner<'a>,
    /// By the other lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also: Vec<Winner<'a>>,
}

#[derive(Serialize)]
struct Winner<'a> {
    rule: Option<u32>,
    priority: Option<u32>,
    action: Option<&'a str>,
}

impl Winner<'_> {
    /// As three more columns.
    fn write(&self, line: &mut String) -> std::fmt::Result {
        let (Some(rule), Some(priority)) = (self.rule, self.priority) else { return line.write_str(",,,") };
        let action = self.action.unwrap_or_default();
        // No action has a quote in it; several are separated by commas.
        let quote = if action.contains(',') { "\"" } else { "" };
        write!(line, ",{rule},{priority},{quote}{action}{quote}")
    }
}

/// The rules of a file.
pub(crate) struct List {
    pub(crate) path: PathBuf,
    pub(crate) rules: Vec<Rule>,
    /// What the CSV shows as action, by position.
    actions: Vec<String>,
    /// The handle of its first rule: rules of several lists are counted through.
    pub(crate) first: u32,
}

impl List {
    fn winner(&self, hit: Option<Hit>) -> Winner<'_> {
        let action = |hit: Hit| self.actions[(hit.rule.0 - self.first) as usize].as_str();
        Winner {
            rule: hit.map(|hit| hit.rule.0 - self.first),
            priority: hit.map(|hit| hit.priority.0),
            action: hit.map(action).filter(|action| !action.is_empty()),
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    summary: Summary,
    verdicts: Vec<Verdict<'a>>,
}

/// The lists that the options name, the first one first.
fn lists(options: &ClassifyOptions) -> Result<Vec<List>, Failure> {
    if options.also.len() >= CATEGORIES_MAX {
        let message = format!("--also was given {} times", options.also.len());
        return Err(Failure::input_help(message, format!("one pass asks {CATEGORIES_MAX} lists at most")));
    }
    let mut lists: Vec<List> = Vec::new();
    let first = std::iter::once((&options.rules.rules, input::read_rules(&options.rules)));
    let more = options.also.iter().map(|path| (path, input::read_more_rules(path, &options.rules)));
    for (path, read) in first.chain(more) {
        let (rules, format) = read?;
        let actions = actions(&rules, format);
        let first = lists.last().map_or(0, |last| last.first + last.rules.len() as u32);
        lists.push(List { path: path.clone(), rules, actions, first });
    }
    Ok(lists)
}

/// Runs the command.
pub(crate) fn run(options: &ClassifyOptions) -> Result<(), Failure> {
    let lists = lists(options)?;
    let (keys, malformed) = input::read_trace(&options.trace)?;
    let begun = Instant::now();
    let engine = match &lists[..] {
        [one] => Engine::build(&one.rules, options, &options.engine, &keys)?,
        several => Engine::of_lists(several, options)?,
    };
    let build_seconds = begun.elapsed().as_secs_f64();
    if let Some(packet) = options.explain {
        let message = || format!("there is no packet {packet}; the trace has {}, counted from 0", keys.len());
        let key = keys.get(packet).ok_or_else(|| Failure::input(message()))?;
        return engine::explain(&engine, packet, key, &lists[0].rules, options);
    }
    let mut sink = Sink::new(options, lists.len())?;
    let pass = Pass::over(&keys, &engine, &lists, options, &mut sink)?;
    let packets = keys.len() as u64;
    let taken = quanta::Clock::new().delta(0, pass.cycles);
    let summary = Summary {
        packets,
        hits: pass.hits,
        misses: packets - pass.hits,
        malformed,
        rules: engine.table().len(),
        engine: engine.name(),
        variant: engine.variant(),
        device: engine.device(),
        seconds: taken.as_secs_f64(),
        lookups_per_second: if taken.is_zero() { 0.0 } else { packets as f64 / taken.as_secs_f64() },
        cycles_per_lookup: if packets == 0 { 0.0 } else { pass.cycles as f64 / packets as f64 },
        table_bytes: engine.table().table_bytes(),
        build_seconds,
        differences: options.check.then_some(pass.differences),
    };
    sink.finish(summary)?;
    if let Some(path) = &options.hits {
        write_hits(path, &lists, &pass.counts)?;
    }
    match pass.differences {
        0 => Ok(()),
        n => Err(Failure::Check(format!("{n} of {packets} verdicts differ from linear search"))),
    }
}

/// What has come of classifying all packets.
struct Pass {
    /// Packets that any list has a rule for.
    hits: u64,
    /// By rule, where that was asked for.
    counts: HitCounts,
    differences: u64,
    /// Ticks of the lookups.
    cycles: u64,
}

impl Pass {
    fn over<'a>(
        keys: &[FlowKey],
        engine: &Engine,
        lists: &'a [List],
        options: &ClassifyOptions,
        sink: &mut Sink<'a>,
    ) -> Result<Self, Failure> {
        let checked = lists.iter().filter(|_| options.check);
        let oracles = checked.map(|list| Engine::build(&list.rules, options, "linear", &[]));
        let oracles = oracles.collect::<Result<Vec<_>, _>>()?;
        let bar = output::progress(keys.len() as u64, "classifying");
        let clock = quanta::Clock::new();
        let counts = HitCounts::new(lists.iter().map(|list| list.rules.len()).sum());
        let mut pass = Self { hits: 0, counts, differences: 0, cycles: 0 };
        let size = engine.batch(options);
        let mut found: Vec<Option<Hit>> = vec![None; size * lists.len()];
        let mut near = Vec::with_capacity(size);
        for (number, batch) in keys.chunks(size).enumerate() {
            let found = &mut found[..batch.len() * lists.len()];
            // Where a parser leaves them, rather than where the trace lies: what is timed is the table.
            near.clear();
            near.extend_from_slice(batch);
            let tick = clock.raw();
            engine.lookup(&near, lists.len(), found);
            if options.hits.is_some() {
                pass.counts.count(found);
            }
            pass.cycles += clock.raw() - tick;
            for (packet, (key, found)) in batch.iter().zip(found.chunks(lists.len())).enumerate() {
                pass.hits += u64::from(found.iter().any(Option::is_some));
                for ((oracle, list), hit) in oracles.iter().zip(lists).zip(found) {
                    let expected = oracle.table().lookup(key);
                    let expected = expected.map(|hit| Hit { rule: RuleId(list.first + hit.rule.0), ..hit });
                    pass.differences += u64::from(expected != *hit);
                }
                sink.verdict((number * size + packet) as u64, found, lists)?;
            }
            bar.inc(batch.len() as u64);
        }
        bar.finish_and_clear();
        Ok(pass)
    }
}

/// What the CSV shows as action, by position. ClassBench filters have none.
fn actions(rules: &[Rule], format: Format) -> Vec<String> {
    let text = |rule: &Rule| match format {
        Format::Classbench => String::new(),
        Format::Flows => flowlane::rule::flow_syntax::print_actions(&rule.actions),
    };
    rules.iter().map(text).collect()
}

/// How often each rule won.
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

/// Where verdicts go.
enum Sink<'a> {
    Csv(Output<'a>, String),
    Json(Vec<Verdict<'a>>, Option<&'a Path>),
}

impl<'a> Sink<'a> {
    fn new(options: &'a ClassifyOptions, lists: usize) -> Result<Self, Failure> {
        if options.json {
            return Ok(Self::Json(Vec::new(), options.output.as_deref()));
        }
        let mut output = Output::create(options.output.as_deref())?;
        output.text("packet,rule,priority,action")?;
        for number in 2..=lists {
            output.text(&format!(",rule{number},priority{number},action{number}"))?;
        }
        output.text("\n")?;
        Ok(Self::Csv(output, String::new()))
    }

    fn verdict(&mut self, packet: u64, hits: &[Option<Hit>], lists: &'a [List]) -> Result<(), Failure> {
        let mut winners = lists.iter().zip(hits).map(|(list, hit)| list.winner(*hit));
        match self {
            Self::Json(verdicts, _) => {
                let winner = winners.next().expect("one list at least");
                verdicts.push(Verdict { packet, winner, also: winners.collect() });
            }
            Self::Csv(output, line) => {
                line.clear();
                let mut written = write!(line, "{packet}");
                for winner in winners {
                    written = written.and_then(|()| winner.write(line));
                }
                written.and_then(|()| writeln!(line)).expect("writing to a string");
                output.text(line)?;
            }
        }
        Ok(())
    }

    fn finish(self, summary: Summary) -> Result<(), Failure> {
        match self {
            Self::Csv(output, _) => {
                output.finish()?;
                eprint!("{}", summary.text());
                Ok(())
            }
            Self::Json(verdicts, path) => {
                let document = Document { summary, verdicts };
                let mut output = Output::create(path)?;
                output.text(&serde_json::to_string(&document).expect("plain data"))?;
                output.text("\n")?;
                output.finish()
            }
        }
    }
}

impl Summary {
    fn text(&self) -> String {
        let rows = [
            ("packets", output::count(self.packets)),
            ("hits", output::count(self.hits)),
            ("misses", output::count(self.misses)),
            ("malformed", output::count(self.malformed)),
            ("rules", output::count(self.rules as u64)),
            ("engine", self.engine.to_owned()),
            ("variant", self.variant.to_owned()),
            ("lookups/s", output::count(self.lookups_per_second as u64)),
            ("cycles per lookup", format!("{:.1}", self.cycles_per_lookup)),
            ("table", output::bytes(self.table_bytes as u64)),
            ("built in", format!("{:.3} s", self.build_seconds)),
        ];
        let mut rows: Vec<Vec<String>> = rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec();
        rows.extend(self.device.as_ref().map(|device| vec!["device".to_owned(), device.clone()]));
        if let Some(n) = self.differences {
            rows.push(vec!["differences from linear".to_owned(), output::count(n)]);
        }
        output::table("", &["classify", ""], &rows)
    }
}
