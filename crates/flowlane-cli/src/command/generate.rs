//! `flowlane generate`: rules, traces and captures.

use std::io::BufWriter;
use std::path::Path;

use flowlane::generate::{RuleConfig, SeedConfig, SeedFile, Trace, TraceConfig, build_frame, generate_rules};
use flowlane::packet::Field;
use flowlane::packet::parse::ether_type;
use flowlane::rule::classbench;
use flowlane_capture::{CaptureWriter, FileFormat};

use crate::arguments::{GenerateVerb, RulesInput, TraceShape};
use crate::failure::Failure;
use crate::input;
use crate::output::{self, Output};

pub(crate) fn run(verb: &GenerateVerb) -> Result<(), Failure> {
    match verb {
        GenerateVerb::Rules { format, output, .. } => {
            let rules = rules(verb)?;
            let text = super::rules::print(&rules, *format)?;
            let mut out = Output::create(output.as_deref())?;
            out.text(&text)?;
            out.finish()
        }
        GenerateVerb::Trace { rules, trace, output } => {
            let trace = self::trace(rules, trace, true)?;
            let ip = [ether_type::IPV4, ether_type::IPV6].map(u128::from);
            if trace.keys().any(|key| !ip.contains(&key.get(Field::EthType))) {
                let message =
                    "a header trace holds 5-tuples of IPv4 and IPv6 only; these rules match other packets";
                return Err(Failure::input_help(message, "write a capture: flowlane generate pcap"));
            }
            let mut out = Output::create(output.as_deref())?;
            let mut line = String::new();
            for flow in trace.packets() {
                line.clear();
                classbench::print_header(&flow.key, flow.rule.map_or(-1, |r| r.0.into()), &mut line);
                out.text(&line)?;
            }
            out.finish()
        }
        GenerateVerb::Pcap { rules, trace, size, output } => {
            write_capture(&self::trace(rules, trace, false)?, *size, output)
        }
    }
}

fn rules(verb: &GenerateVerb) -> Result<Vec<flowlane::rule::Rule>, Failure> {
    let GenerateVerb::Rules {
        profile,
        seed_file,
        count,
        masks,
        overlap,
        duplicates,
        smoothness,
        address_scope,
        port_scope,
        seed,
        ..
    } = verb
    else {
        return Ok(Vec::new());
    };
    let generated = match seed_file {
        Some(path) => {
            let text = input::read_text(path)?;
            let file = SeedFile::parse(&path.display().to_string(), &text)
                .map_err(|e| Failure::input(e.to_string()))?;
            file.generate(&SeedConfig {
                rules: *count,
                smoothness: *smoothness,
                address_scope: *address_scope,
                port_scope: *port_scope,
                seed: *seed,
            })
        }
        None => {
            let config = RuleConfig {
                profile: *profile,
                rules: *count,
                masks: *masks,
                overlap: *overlap,
                duplicates: *duplicates,
                seed: *seed,
            };
            generate_rules(&config)
        }
    };
    generated.map_err(|e| Failure::input(e.to_string()))
}

fn trace(rules: &RulesInput, shape: &TraceShape, miss_ipv4: bool) -> Result<Trace, Failure> {
    let (rules, _) = input::read_rules(rules)?;
    let config = TraceConfig {
        packets: shape.count,
        flows: shape.flows,
        miss: shape.miss,
        miss_ipv4,
        locality: shape.locality,
        seed: shape.seed,
    };
    Trace::generate(&rules, &config).map_err(|e| Failure::input(e.to_string()))
}

/// Time between two packets of a generated capture, in nanoseconds: one million packets per second.
const INTERVAL_NS: u64 = 1000;

fn write_capture(trace: &Trace, size: usize, path: &Path) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::written(path, &e);
    output::reject_compressed_name(path)?;
    let file = std::fs::File::create(path).map_err(failed)?;
    let output = BufWriter::with_capacity(1 << 18, file);
    let mut writer = CaptureWriter::new(output, FileFormat::of_path(path)).map_err(failed)?;
    let bar = output::progress(trace.len() as u64, "writing");
    let mut frame = Vec::new();
    for (i, flow) in trace.packets().enumerate() {
        build_frame(&flow.key, size, &mut frame);
        writer.write(i as u64 * INTERVAL_NS, &frame).map_err(failed)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    writer.finish().map(|_| ()).map_err(failed)
}
