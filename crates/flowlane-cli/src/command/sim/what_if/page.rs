//! The report as an HTML page.

use flowlane_bench::render::{Page, Tornado, TornadoBar};
use flowlane_sim::what_if::{Report, label};

use super::super::{MACHINE_TITLE, figure};
use super::text;

const ABOUT: &str = "Rules and traffic of one's own: software as measured on this machine, with software, accelerators and \
                     associative memories as simulated beside it. Every answer, measured or simulated, was compared with \
                     that of linear search, or, where that would take long, of the library's tuple search: as it says here.";

const SIDE_BY_SIDE: &str = "One core, in cycles of that core. Measured: medians and middle halves of rounds in which all took turns. Energy, power \
                            and area are Table 4's: of accelerators those of all slices.";

const BOTTLENECKS: &str = "Each part of the simulated machine was made ideal, one after the other; the one that gives most \
                           is named, with observations of it in parentheses.";

const TORNADO: &str = "Numbers of the simulated machine halved and doubled, choices switched: those in the table. The software is \
                       always the one that is fastest on the unchanged machine.";

const BREAK_EVENS: &str = "Between two places that were looked at, ratios are taken as powers.";

/// Renders the page.
pub(super) fn html(report: &Report) -> String {
    let mut facts = text::facts(report);
    facts.push(("simulator", format!("flowlane-sim {}", report.version)));
    facts.push(("seed", report.effort.seed.to_string()));
    let about = text::doubt_sentence(report).map_or_else(String::new, |sentence| sentence + " ") + ABOUT;
    let mut page = Page::new("What if", &about, &facts);
    page.section("side-by-side", "Side by side", SIDE_BY_SIDE);
    page.table(&text::SIDE_BY_SIDE, &text::side_by_side(report));
    let refused = report.lines.iter().filter_map(|line| {
        Some((label(line.outcome.approach).to_owned(), format!("no energy: {}", line.refused.as_ref()?)))
    });
    page.list(&refused.collect::<Vec<_>>());
    page.section("trust", "How far to trust it", &text::trust_sentence(report));
    page.table(&text::TRUST, &text::trust(report));
    page.section("bottlenecks", "What each waits for", BOTTLENECKS);
    page.list(&text::bottlenecks(report));
    let reliefs = report.bottlenecks.iter().flat_map(|bottleneck| {
        bottleneck.reliefs.iter().map(|relief| {
            let name = label(bottleneck.approach).to_owned();
            let numbers = [format!("{:.1}", relief.cycles), format!("{:.2}", relief.times)];
            let [cycles, times] = numbers;
            vec![name, relief.part.to_owned(), cycles, times, relief.evidence.clone()]
        })
    });
    page.table(&["approach", "ideal", "cycles", "times faster", "seen"], &reliefs.collect::<Vec<_>>());
    page.section("parameters", "What it hangs on", TORNADO);
    page.tornado(&tornado(report));
    page.table(&text::TORNADO, &text::tornado(report));
    page.section("break-evens", "From when on", BREAK_EVENS);
    page.table(&text::BREAK_EVENS, &text::break_evens(report));
    report.charts.iter().for_each(|chart| page.figure(&figure(chart)));
    page.text(MACHINE_TITLE, &report.machine.text());
    page.finish()
}

fn tornado(report: &Report) -> Tornado {
    let t = &report.tornado;
    let bar = |bar: &flowlane_sim::what_if::Bar| TornadoBar {
        name: bar.parameter.to_owned(),
        settings: bar.settings.iter().map(|s| (s.setting.clone(), s.cycles)).collect(),
    };
    Tornado {
        id: "tornado".to_owned(),
        title: format!("Cycles a packet of {}", label(t.accelerator)),
        about: t.advantage.map_or_else(String::new, |times| {
            let software = label(t.software);
            format!("As it is, {times:.2} times as fast as {software} (simulated; the fastest software in the same tables). ")
        }) + "Widest first.",
        unit: "cycles a packet".to_owned(),
        base: t.cycles,
        bars: t.bars.iter().map(bar).collect(),
    }
}
