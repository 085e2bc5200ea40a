//! The report as text for a terminal.

use std::fmt::Write;

use flowlane_sim::report::{Sheet, number};
use flowlane_sim::what_if::{Report, label};

use crate::output;

/// Parameters shown in a terminal; the page has all.
const BARS: usize = 12;

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
        (
            "this machine",
            format!(
                "{}, a cycle of its core {} ns",
                m.cpu,
                m.cycle_ns.map_or_else(|| "–".to_owned(), number)
            ),
        ),
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

/// Returns the bottleneck of each approach.
pub(super) fn bottlenecks(report: &Report) -> Vec<(String, String)> {
    report.bottlenecks.iter().map(|b| (label(b.approach).to_owned(), b.sentence.clone())).collect()
}

/// Formats a table with numbers on the right, or with texts on the left.
fn table(title: &str, sheet: &Sheet, numbers: bool) -> String {
    let head: Vec<&str> = sheet.head.iter().map(String::as_str).collect();
    let table = if numbers { output::table } else { output::text_table };
    table(title, &head, &sheet.rows)
}

pub(super) fn text(report: &Report) -> String {
    let mut out = report.doubt_sentence().map_or_else(String::new, |sentence| sentence + "\n");
    let facts: Vec<Vec<String>> =
        facts(report).into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    out.push_str(&output::text_table("", &["what if", ""], &facts));
    out.push_str(&table("side by side, one core", &report.side_by_side(), true));
    for line in report.lines.iter() {
        if let Some(why) = &line.refused {
            let _ = writeln!(out, "{}: no energy, {why}", label(line.outcome.approach));
        }
    }
    let trusted = report.trusted();
    out.push_str(&table("\nthe same software, measured and simulated", &trusted, true));
    let _ = writeln!(out, "{}\n\nwhat each waits for", trusted.about);
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
    let shown: usize = t.bars.iter().take(BARS).map(|bar| bar.settings.len()).sum();
    let mut parameters = report.parameters();
    parameters.rows.truncate(1 + shown);
    out.push_str(&table(&format!("\nwhat {} hangs on{beside}", label(t.accelerator)), &parameters, true));
    out.push_str(&table("from when on", &report.answers(), false));
    out
}
