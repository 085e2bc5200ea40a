//! The report as an HTML page.

use flowlane_bench::render::{Page, Tornado, TornadoBar};
use flowlane_sim::what_if::{Report, label};

use super::super::{MACHINE_TITLE, figure};
use super::text;

const ABOUT: &str = "Rules and traffic of one's own: software as measured on this machine, with accelerators and associative \
                     memories as simulated beside it. Every answer, measured or simulated, was compared with \
                     that of linear search, or, where that would take long, of the library's tuple search: as it says here.";

/// Renders the page.
pub(super) fn html(report: &Report) -> String {
    let mut facts = text::facts(report);
    facts.push(("simulator", format!("flowlane-sim {}", report.version)));
    facts.push(("seed", report.effort.seed.to_string()));
    let about = report.doubt_sentence().map_or_else(String::new, |sentence| sentence + " ") + ABOUT;
    let mut page = Page::new("What if", &about, &facts);
    for sheet in report.sheets() {
        page.section(sheet.id, &sheet.title, &sheet.about);
        match sheet.id {
            "bottlenecks" => page.list(&text::bottlenecks(report)),
            "parameters" => page.tornado(&tornado(report)),
            _ => {}
        }
        page.table(&sheet.head, &sheet.rows);
        if sheet.id == "side-by-side" {
            page.list(&text::without_cost(report));
        }
    }
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
        about: t.advantage.zip(t.software.as_ref()).map_or_else(String::new, |(times, software)| {
            format!(
                "As it is, {times:.2} times as fast as {software}, the fastest software that was recorded. "
            )
        }) + "Widest first.",
        unit: "cycles a packet".to_owned(),
        base: t.cycles,
        bars: t.bars.iter().map(bar).collect(),
    }
}
