//! The report as text for a terminal.

use std::fmt::Write;

use flowlane_sim::what_if::{Line, Measurement, Report, label};

use crate::output;

/// Parameters shown in a terminal; the page has all.
const BARS: usize = 12;

fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The head of [`side_by_side`].
pub(super) const SIDE_BY_SIDE: [&str; 10] =
    ["approach", "kind", "cycles", "ns", "M/s", "table", "built in ms", "query nJ", "idle mW", "tiles"];

fn none() -> String {
    "–".to_owned()
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(none, number)
}

fn measured(m: &Measurement, report: &Report) -> Vec<String> {
    let spread = report
        .measured
        .cycles(m)
        .map(|[low, median, high]| format!("{} ({} to {})", number(median), number(low), number(high)));
    let spread = spread.unwrap_or_else(none);
    vec![
        m.name.clone(),
        "measured".to_owned(),
        spread,
        number(m.ns[1]),
        number(m.millions_per_second()),
        output::bytes(m.bytes as u64),
        number(m.build_ms),
        none(),
        none(),
        none(),
    ]
}

fn simulated(line: &Line, report: &Report) -> Vec<String> {
    let o = &line.outcome;
    let bytes = match line.outcome.approach {
        flowlane_sim::config::Approach::Tcam | flowlane_sim::config::Approach::SramTcam => {
            report.facts.tcam_bytes as u64
        }
        _ => report.facts.table_bytes as u64,
    };
    let energy = |f: fn(&flowlane_sim::what_if::Energy) -> f64| {
        line.energy.as_ref().map_or_else(none, |e| number(f(e)))
    };
    vec![
        label(o.approach).to_owned(),
        if o.cache_flows > 0 { "simulated, flow cache" } else { "simulated" }.to_owned(),
        number(o.cycles),
        number(o.ns()),
        number(o.millions_per_second),
        output::bytes(bytes),
        none(),
        energy(|e| e.query_nj),
        energy(|e| e.static_mw),
        energy(|e| e.area_tiles),
    ]
}

/// Returns the rows of measured software, followed by simulated approaches.
pub(super) fn side_by_side(report: &Report) -> Vec<Vec<String>> {
    let simulated = report.lines.iter().map(|line| simulated(line, report));
    report.measured.base.iter().map(|m| measured(m, report)).chain(simulated).collect()
}

/// Returns facts about rules, packets and machines.
pub(super) fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let (f, m) = (&report.facts, &report.measured);
    let mut facts = vec![
        ("rules", format!("{} under {} masks; {} under one at most", f.rules, f.masks, f.largest)),
        ("packets", format!("{} of {} flows, {} without a rule", f.packets, f.flows, f.misses)),
        ("every answer is that of", f.judge.to_owned()),
        ("tables asked for a packet, in order", number(f.asked)),
        ("TCAM", format!("{} entries of {} bits", f.tcam_entries, f.tcam_bits)),
        ("simulated machine", format!("{} ({})", report.preset, report.machine_hash)),
        ("this machine", format!("{}, a cycle of its core {} ns", m.cpu, optional(m.cycle_ns))),
    ];
    if report.cache_flows > 0 {
        let beside = "for the simulated approaches except the library's tuple search and TCAMs; measured software has none and is \
                      therefore compared only with the same software simulated without it";
        facts.push(("flow cache in front", format!("{} flows, {beside}", report.cache_flows)));
        let known = report.lines.iter().find(|line| line.outcome.cache_flows > 0);
        let known = known.map_or(0.0, |line| 100.0 * line.outcome.known);
        let all = match f.flows <= report.cache_flows {
            true => {
                ": it holds all flows of the trace, which is looked up round after round; more traffic has more flows"
            }
            false => "",
        };
        facts.push(("packets that it knows", format!("{known:.0} %{all}")));
    }
    if cfg!(debug_assertions) {
        facts.push(("this build", "not optimised: software as measured is slower than it is".to_owned()));
    }
    if report.effort.quick {
        facts.push(("quick", "yes: the numbers say little".to_owned()));
    }
    facts
}

/// The head of [`trust`].
pub(super) const TRUST: [&str; 6] =
    ["measured", "simulated as", "cycles here", "simulated", "ratio", "ratio in time"];

/// Returns the rows of software both measured and simulated.
pub(super) fn trust(report: &Report) -> Vec<Vec<String>> {
    let row = |t: &flowlane_sim::what_if::Trust| {
        let mut row = vec![t.measured.clone(), label(t.simulated).to_owned()];
        row.extend([t.measured_cycles, Some(t.simulated_cycles), t.ratio, Some(t.time_ratio)].map(optional));
        row
    };
    report.trust.iter().map(row).collect()
}

/// Returns the sentence that explains why no speedups over software are given, which precedes the report.
pub(super) fn doubt_sentence(report: &Report) -> Option<String> {
    let doubt = report.doubt.as_ref()?;
    Some(format!("No speedups over software are given: {doubt}."))
}

/// Summarises the trust in a sentence.
pub(super) fn trust_sentence(report: &Report) -> String {
    if let Some(sentence) = doubt_sentence(report) {
        return sentence;
    }
    let ratios = report.trust.iter().filter_map(|t| t.ratio);
    let [least, most] = ratios.fold([f64::MAX, f64::MIN], |[l, m], r| [l.min(r), m.max(r)]);
    format!(
        "The simulator gives {least:.2} to {most:.2} times the cycles that the same software takes here, in cycles of both cores: \
         what it says of accelerators is worth no more than that."
    )
}

/// Returns the bottleneck of each approach.
pub(super) fn bottlenecks(report: &Report) -> Vec<(String, String)> {
    report.bottlenecks.iter().map(|b| (label(b.approach).to_owned(), b.sentence.clone())).collect()
}

/// The head of [`tornado`].
pub(super) const TORNADO: [&str; 5] =
    ["parameter", "setting", "cycles", "times the software", "TCAM, cycles"];

/// Returns the effect of each parameter, after the unchanged machine.
pub(super) fn tornado(report: &Report) -> Vec<Vec<String>> {
    let t = &report.tornado;
    let row = |parameter: &str, setting: &str, (cycles, times, tcam): (f64, Option<f64>, f64)| {
        vec![parameter.to_owned(), setting.to_owned(), number(cycles), optional(times), number(tcam)]
    };
    let mut rows = vec![row("as it is", "", (t.cycles, t.advantage, t.tcam_cycles))];
    for bar in &t.bars {
        rows.extend(
            bar.settings
                .iter()
                .map(|s| row(bar.parameter, &s.setting, (s.cycles, s.advantage, s.tcam_cycles))),
        );
    }
    rows
}

/// The head of [`break_evens`].
pub(super) const BREAK_EVENS: [&str; 3] = ["by", "what", "when"];

/// Returns the rows of break-evens.
pub(super) fn break_evens(report: &Report) -> Vec<Vec<String>> {
    let row =
        |e: &flowlane_sim::what_if::BreakEven| vec![e.axis.to_owned(), e.question.clone(), e.answer.clone()];
    report.break_evens.iter().map(row).collect()
}

pub(super) fn text(report: &Report) -> String {
    let mut out = doubt_sentence(report).map_or_else(String::new, |sentence| sentence + "\n");
    let facts: Vec<Vec<String>> =
        facts(report).into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    out.push_str(&output::text_table("", &["what if", ""], &facts));
    out.push_str(&output::table("side by side, one core", &SIDE_BY_SIDE, &side_by_side(report)));
    for line in report.lines.iter() {
        if let Some(why) = &line.refused {
            let _ = writeln!(out, "{}: no energy, {why}", label(line.outcome.approach));
        }
    }
    out.push_str(&output::table("\nthe same software, measured and simulated", &TRUST, &trust(report)));
    let _ = writeln!(out, "{}\n\nwhat each waits for", trust_sentence(report));
    for (name, sentence) in bottlenecks(report) {
        let _ = writeln!(out, "- {name}: {sentence}");
    }
    let t = &report.tornado;
    let beside = match t.advantage {
        Some(_) => {
            format!(", beside {} (the fastest software, simulated, in the same tables)", label(t.software))
        }
        None => String::new(),
    };
    let title = format!("\nwhat {} hangs on{beside}", label(t.accelerator));
    let shown: usize = t.bars.iter().take(BARS).map(|bar| bar.settings.len()).sum();
    let rows = tornado(report);
    out.push_str(&output::table(&title, &TORNADO, &rows[..rows.len().min(1 + shown)]));
    out.push_str(&output::text_table("from when on", &BREAK_EVENS, &break_evens(report)));
    out
}
