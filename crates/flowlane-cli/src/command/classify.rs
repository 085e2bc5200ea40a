//! `flowlane classify`: which rule wins for each packet.

use std::time::Instant;

use flowlane::classify::Hit;
use flowlane::rule::{Format, Rule};
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
struct Verdict {
    packet: u64,
    rule: Option<u32>,
    priority: Option<u32>,
    action: Option<String>,
}

#[derive(Serialize)]
struct Document {
    summary: Summary,
    verdicts: Vec<Verdict>,
}

/// Runs the command.
pub(crate) fn run(options: &ClassifyOptions) -> Result<(), Failure> {
    let (rules, format) = input::read_rules(&options.rules)?;
    let (keys, malformed) = input::read_trace(&options.trace)?;
    let begun = Instant::now();
    let engine = Engine::build(&rules, options, &options.engine, &keys)?;
    let build_seconds = begun.elapsed().as_secs_f64();
    let actions = actions(&rules, format);
    if let Some(packet) = options.explain {
        let key = keys.get(packet).ok_or_else(|| {
            Failure::input(format!(
                "there is no packet {packet}; the trace has {}, counted from 0",
                keys.len()
            ))
        })?;
        return engine::explain(&engine, packet, key, &rules, options);
    }
    let oracle = if options.check { Some(Engine::build(&rules, options, "linear", &[])?) } else { None };
    let mut sink = Sink::new(options)?;
    let bar = output::progress(keys.len() as u64, "classifying");
    let clock = quanta::Clock::new();
    let mut cycles = 0;
    let (mut hits, mut differences) = (0u64, 0u64);
    let size = engine.batch(options);
    let mut found: Vec<Option<Hit>> = vec![None; size];
    let mut packet = 0;
    let mut near = Vec::with_capacity(size);
    for batch in keys.chunks(size) {
        let found = &mut found[..batch.len()];
        // Where a parser leaves them, rather than where the trace lies: what is timed is the table.
        near.clear();
        near.extend_from_slice(batch);
        let tick = clock.raw();
        engine.table().lookup_batch(&near, found);
        cycles += clock.raw() - tick;
        hits += found.iter().flatten().count() as u64;
        for (key, hit) in batch.iter().zip(found.iter()) {
            if let Some(oracle) = &oracle {
                differences += u64::from(oracle.table().lookup(key) != *hit);
            }
            sink.verdict(packet, *hit, &actions)?;
            packet += 1;
        }
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    let per_packet = |total: f64| if packet == 0 { 0.0 } else { total / packet as f64 };
    let taken = clock.delta(0, cycles);
    let summary = Summary {
        packets: packet,
        hits,
        misses: packet - hits,
        malformed,
        rules: engine.table().len(),
        engine: engine.name(),
        variant: engine.variant(),
        device: engine.device(),
        seconds: taken.as_secs_f64(),
        lookups_per_second: if taken.is_zero() { 0.0 } else { packet as f64 / taken.as_secs_f64() },
        cycles_per_lookup: per_packet(cycles as f64),
        table_bytes: engine.table().table_bytes(),
        build_seconds,
        differences: oracle.is_some().then_some(differences),
    };
    sink.finish(summary)?;
    match differences {
        0 => Ok(()),
        n => Err(Failure::Check(format!("{n} of {packet} verdicts differ from linear search"))),
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

/// Where verdicts go.
enum Sink<'a> {
    Csv(Output<'a>, String),
    Json(Vec<Verdict>, Option<&'a std::path::Path>),
}

impl<'a> Sink<'a> {
    fn new(options: &'a ClassifyOptions) -> Result<Self, Failure> {
        if options.json {
            return Ok(Self::Json(Vec::new(), options.output.as_deref()));
        }
        let mut output = Output::create(options.output.as_deref())?;
        output.text("packet,rule,priority,action\n")?;
        Ok(Self::Csv(output, String::new()))
    }

    fn verdict(&mut self, packet: u64, hit: Option<Hit>, actions: &[String]) -> Result<(), Failure> {
        use std::fmt::Write;
        let action = |hit: Hit| &actions[hit.rule.0 as usize];
        match self {
            Self::Json(verdicts, _) => verdicts.push(Verdict {
                packet,
                rule: hit.map(|h| h.rule.0),
                priority: hit.map(|h| h.priority.0),
                action: hit.map(|h| action(h).clone()).filter(|a| !a.is_empty()),
            }),
            Self::Csv(output, line) => {
                line.clear();
                let written = match hit {
                    None => writeln!(line, "{packet},,,"),
                    // No action has a quote in it; several are separated by commas.
                    Some(hit) if action(hit).contains(',') => {
                        writeln!(line, "{packet},{},{},\"{}\"", hit.rule.0, hit.priority, action(hit))
                    }
                    Some(hit) => writeln!(line, "{packet},{},{},{}", hit.rule.0, hit.priority, action(hit)),
                };
                written.expect("writing to a string");
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
