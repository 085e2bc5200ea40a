//! Self-contained HTML pages: headings, charts as SVG, and tables.

use std::fmt::Write;

use super::svg::{GRID, GUIDE, INK, SERIES, escaped};
use super::table::{RATIO_HEAD, head, ratio_row, rows};
use super::tornado::Tornado;
use super::{chart, tornado};
use crate::figure::{Figure, Quantity};

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
dd{margin:0;min-width:0;overflow-wrap:anywhere}
@media print{h3,figure{break-after:avoid}}
";

/// Returns the style sheet, which replaces the colours of charts on dark screens.
fn style() -> String {
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

/// A self-contained page, written from top to bottom.
#[derive(Clone, Debug)]
pub struct Page {
    out: String,
}

impl Page {
    /// Begins a page with a title, a description and facts.
    pub fn new(title: &str, about: &str, facts: &[(&str, String)]) -> Self {
        let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        out.push_str("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n");
        let title = escaped(title);
        let _ = writeln!(out, "<title>Flowlane: {title}</title>\n<style>\n{}</style>\n</head>", style());
        let _ = writeln!(out, "<body>\n<main>\n<h1>{title}</h1>\n<p>{}</p>", escaped(about));
        let mut page = Self { out };
        page.list(facts);
        page
    }

    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.out, "<p>{}</p>", escaped(text));
    }

    /// Adds links to sections, by id and title.
    pub(crate) fn links<'a>(&mut self, sections: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let link = |(id, title): (&str, &str)| format!("<a href=\"#{}\">{}</a>", escaped(id), escaped(title));
        let links: String = sections.into_iter().map(link).collect();
        let _ = writeln!(self.out, "<nav>{links}</nav>");
    }

    /// Adds a heading with an id, and a description unless it is empty.
    pub fn section(&mut self, id: &str, title: &str, about: &str) {
        let _ = writeln!(self.out, "<h2 id=\"{}\">{}</h2>", escaped(id), escaped(title));
        self.soft(about);
    }

    fn soft(&mut self, text: &str) {
        if !text.is_empty() {
            let _ = writeln!(self.out, "<p class=\"soft\">{}</p>", escaped(text));
        }
    }

    pub fn table(&mut self, head: &[impl AsRef<str>], rows: &[Vec<String>]) {
        let cell = |text: &str, tag: &str| format!("<{tag}>{}</{tag}>", escaped(text));
        let head: String = head.iter().map(|name| cell(name.as_ref(), "th")).collect();
        let _ = write!(self.out, "<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>");
        for row in rows {
            let row: String = row.iter().map(|text| cell(text, "td")).collect();
            let _ = write!(self.out, "<tr>{row}</tr>");
        }
        self.out.push_str("</tbody></table></div>\n");
    }

    /// Adds a list of terms and descriptions.
    pub fn list(&mut self, items: &[(impl AsRef<str>, String)]) {
        self.out.push_str("<dl>\n");
        for (name, text) in items {
            let _ = writeln!(self.out, "<dt>{}</dt><dd>{}</dd>", escaped(name.as_ref()), escaped(text));
        }
        self.out.push_str("</dl>\n");
    }

    fn drawing(&mut self, id: &str, title: &str, about: &str, svg: &str) {
        let (id, title) = (escaped(id), escaped(title));
        let _ = writeln!(self.out, "<h3 id=\"{id}\">{title}</h3>");
        self.soft(about);
        let _ = writeln!(self.out, "<figure aria-label=\"{title}\">\n{svg}</figure>");
    }

    /// Adds a figure: its chart, its ratios, and its numbers.
    pub fn figure(&mut self, figure: &Figure) {
        self.drawing(&figure.id, &figure.title, &figure.about, &chart::svg(figure));
        if !figure.ratios.is_empty() {
            self.table(&RATIO_HEAD, &figure.ratios.iter().map(ratio_row).collect::<Vec<_>>());
        }
        if figure.quantity != Quantity::Plain {
            self.soft(&format!("Medians, {}:", figure.y_label()));
        }
        self.table(&head(figure), &rows(figure));
    }

    /// Adds a tornado chart.
    pub fn tornado(&mut self, tornado: &Tornado) {
        self.drawing(&tornado.id, &tornado.title, &tornado.about, &tornado::svg(tornado));
    }

    /// Adds preformatted text under a heading.
    pub fn text(&mut self, title: &str, text: &str) {
        let _ = writeln!(self.out, "<h3>{}</h3>\n<pre>{}</pre>", escaped(title), escaped(text));
    }

    /// Ends the page and returns its HTML.
    pub fn finish(mut self) -> String {
        self.out.push_str("</main>\n</body>\n</html>\n");
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::TornadoBar;

    #[test]
    fn a_page_has_its_plots_its_table_and_its_text() {
        let figure = Figure::new("one", "One & two", "What")
            .over("size", ["a".to_owned(), "b".to_owned()])
            .plain("times")
            .curve("x", &[Some(1.0), None])
            .curve("y", &[Some(2.0), Some(3.5)]);
        let rows = vec![vec!["cell <1>".to_owned(), "7".to_owned()]];
        let bar = |name: &str, settings: &[(&str, f64)]| TornadoBar {
            name: name.into(),
            settings: settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        };
        let tornado = Tornado {
            id: "two".into(),
            title: "Around".into(),
            about: String::new(),
            unit: "cycles".into(),
            base: 100.0,
            bars: vec![bar("a < b", &[("half", 80.0), ("double", 140.0)]), bar("c", &[("mesh", 100.0)])],
        };
        let mut page = Page::new("T", "A", &[("f", "v".into())]);
        page.section("s", "S", "of it");
        page.table(&["h", "i"], &rows);
        page.list(&[("term", "what <b>".into())]);
        page.figure(&figure);
        page.tornado(&tornado);
        page.text("end", "k = 1");
        let page = page.finish();
        for part in [
            "<svg ",
            "One &amp; two",
            "cell &lt;1&gt;",
            "what &lt;b&gt;",
            "a &lt; b",
            "<pre>k = 1</pre>",
            "3.50",
            "</html>",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(page.matches("<table>").count(), 2);
        assert_eq!(page.matches("<svg ").count(), 2);
        // Numbers that were not measured have neither spread nor medians.
        assert!(!page.contains("spread") && !page.contains("Medians"));
    }
}
