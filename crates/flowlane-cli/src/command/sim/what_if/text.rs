//! The report as text for a terminal.

use std::fmt::Write;

use flowlane_sim::report::number;
use flowlane_sim::what_if::{Arrival, Line, Report};

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
    if report.arrival == Arrival::Nic {
        let share = 100.0 * report.machine.arrives_in_cache();
        let place =
            format!("as the network interface has written them, {share:.0} % of them to the shared cache");
        facts.push(("headers of packets", place));
    }
    if report.cache_flows > 0 {
        let beside = "for the simulated approaches except TCAMs; measured software has none and is therefore not compared";
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

/// Returns what each waits for.
pub(super) fn bottlenecks(report: &Report) -> Vec<(String, String)> {
    report.bottlenecks.iter().map(|b| (b.name.clone(), b.sentence.clone())).collect()
}

/// Returns the reasons for missing costs.
pub(super) fn without_cost(report: &Report) -> Vec<(String, String)> {
    let of =
        |line: &Line| Some((line.outcome.name.clone(), format!("no energy: {}", line.refused.as_ref()?)));
    report.lines.iter().filter_map(of).collect()
}

pub(super) fn text(report: &Report) -> String {
    let mut out = report.doubt_sentence().map_or_else(String::new, |sentence| sentence + "\n");
    let facts: Vec<Vec<String>> =
        facts(report).into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    out.push_str(&output::text_table("", &["what if", ""], &facts));
    for mut sheet in report.sheets() {
        let list = match sheet.id {
            "side-by-side" => without_cost(report),
            "bottlenecks" => bottlenecks(report),
            _ => Vec::new(),
        };
        if sheet.id == "parameters" {
            let bars = report.tornado.bars.iter().take(BARS);
            sheet.rows.truncate(1 + bars.map(|bar| bar.settings.len()).sum::<usize>());
        }
        let head: Vec<&str> = sheet.head.iter().map(String::as_str).collect();
        let words = matches!(sheet.id, "bases" | "break-evens");
        let table = if words { output::text_table } else { output::table };
        let title = format!("\n{}", sheet.title);
        match sheet.id {
            // The page has all parts; their sentences are enough here.
            "bottlenecks" => out.push_str(&format!("{title}\n")),
            _ => out.push_str(&table(&title, &head, &sheet.rows)),
        }
        for (name, sentence) in list {
            let _ = writeln!(out, "- {name}: {sentence}");
        }
        if sheet.id == "trust" {
            let _ = writeln!(out, "{}", sheet.about);
        }
    }
    out
}
