//! A report as one HTML page that needs nothing but itself: the plots as SVG, the tables beneath.

use std::fmt::Write;

use crate::figure::Figure;
use crate::machine::bytes;
use crate::plot::{self, GRID, GUIDE, INK, SERIES};
use crate::report::Report;
use crate::text::{RATIO_HEAD, head, ratio_row, rows};

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--soft:#57606a;--line:#d9dee4;--shade:#f6f8fa;--link:#0969da}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:62rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .25rem}
h2{font-size:1.45rem;margin:3.5rem 0 0;padding-top:1rem;border-top:1px solid var(--line)}
h3{font-size:1.1rem;margin:2.25rem 0 .25rem}
p{margin:.25rem 0 .75rem;max-width:48rem}
.soft,figcaption{color:var(--soft)}
a{color:var(--link)}
nav a{margin-right:1rem}
code{font:.9em ui-monospace,monospace;overflow-wrap:anywhere}
figure{margin:0}
figure svg{display:block;width:100%;height:auto}
svg text{font-family:system-ui,sans-serif}
.wide{overflow-x:auto;margin:.5rem 0 1rem}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{background:var(--shade);font-weight:600}
th:first-child,td:first-child{text-align:left}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:1rem 0;font-size:.92rem}
dt{color:var(--soft)}
dd{margin:0;min-width:0}
@media print{h3,figure{break-after:avoid}}
";

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The style sheet: the page's, and for dark screens the exchange of the plots' colours.
pub(crate) fn style() -> String {
    let mut out = STYLE.to_owned();
    out.push_str("@media (prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#e6edf3;--soft:#9198a1;");
    out.push_str("--line:#30363d;--shade:#161b22;--link:#58a6ff}\n");
    for [light, dark] in [INK, GRID, GUIDE].iter().chain(&SERIES) {
        let _ =
            writeln!(out, "svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}");
    }
    out.push_str("}\n");
    out
}

pub(crate) fn table(head: &[String], rows: &[Vec<String>], out: &mut String) {
    let line = |cells: &[String], tag: &str| -> String {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect()
    };
    let _ = write!(out, "<div class=\"wide\"><table><thead><tr>{}</tr></thead><tbody>", line(head, "th"));
    for row in rows {
        let _ = write!(out, "<tr>{}</tr>", line(row, "td"));
    }
    out.push_str("</tbody></table></div>\n");
}

fn figure(figure: &Figure, out: &mut String) {
    let (id, title, about) = (escaped(&figure.id), escaped(&figure.title), escaped(&figure.about));
    let _ = writeln!(out, "<h3 id=\"{id}\">{title}</h3>\n<p class=\"soft\">{about}</p>");
    let _ = writeln!(out, "<figure aria-label=\"{title}\">\n{}</figure>", plot::svg(figure));
    if !figure.ratios.is_empty() {
        let rows: Vec<Vec<String>> = figure.ratios.iter().map(ratio_row).collect();
        table(&RATIO_HEAD.map(str::to_owned), &rows, out);
    }
    let _ = writeln!(out, "<p class=\"soft\">Medians, {}:</p>", escaped(&figure.y_label()));
    table(&head(figure), &rows(figure), out);
}

impl Report {
    /// The report as a self-contained page.
    pub fn html(&self) -> String {
        let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        out.push_str("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n");
        let titles: Vec<&str> = self.topics.iter().map(|t| t.title).collect();
        let titles = escaped(&titles.join(", "));
        let _ = writeln!(out, "<title>Flowlane: {titles}</title>\n<style>\n{}</style>\n</head>", style());
        let _ = writeln!(
            out,
            "<body>\n<main>\n<h1>{titles}</h1>\n<p class=\"soft\">Measured by Flowlane {}</p>",
            self.version
        );
        self.facts(&mut out);
        out.push_str(
            "<p>Implementations take turns within one run, and figures are medians; strokes in the plots span the \
             middle half of the readings. Ratios within a figure are worth more than its single figures. Where a \
             column says <em>paper</em>, it is what the text of <cite>Leveraging SIMD Parallelism for Accelerating \
             Network Applications</cite> (APNet 2020) states, at most, on its machine.</p>\n",
        );
        if self.topics.len() > 1 {
            let link = |t: &crate::TopicReport| format!("<a href=\"#{}\">{}</a>", t.name, escaped(t.title));
            let links: String = self.topics.iter().map(link).collect();
            let _ = writeln!(out, "<nav>{links}</nav>");
        }
        for topic in &self.topics {
            let _ = writeln!(out, "<section>\n<h2 id=\"{}\">{}</h2>", topic.name, escaped(topic.title));
            topic.figures.iter().for_each(|f| figure(f, &mut out));
            out.push_str("</section>\n");
        }
        out.push_str("</main>\n</body>\n</html>\n");
        out
    }

    fn facts(&self, out: &mut String) {
        let machine = &self.machine;
        let data = machine.caches.iter().filter(|c| c.kind != "instructions");
        let caches: Vec<String> = data.map(|c| format!("L{} {}", c.level, bytes(c.bytes as u64))).collect();
        let facts = [
            ("machine", format!("{}, {} cores, {}", machine.cpu, machine.cores, machine.system)),
            ("caches", caches.join(", ")),
            ("variants", machine.variants.join(", ")),
            ("date", format!("{}, {:.0} s", self.date, self.seconds)),
            ("cycle", format!("{:.3} ns (time-stamp counter)", self.ns_per_cycle)),
        ];
        out.push_str("<dl>\n");
        for (name, value) in facts {
            let _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escaped(&value));
        }
        let _ = writeln!(out, "<dt>command</dt><dd><code>{}</code></dd>\n</dl>", escaped(&self.command));
    }
}
