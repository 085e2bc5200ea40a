//! A page of plots and a table, of numbers that were not measured here: for simulations.

mod tornado;

use std::fmt::Write;

use crate::figure::{Figure, Point, Quantity, Series, Shape};
use crate::html::{escaped, style, table};
use crate::measure::Spread;
use crate::plot;

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// As many as the plot has places.
    pub values: Vec<Option<f64>>,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its name, without spaces.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What is shown.
    pub about: String,
    /// What the axis is.
    pub axis: String,
    /// Its places.
    pub places: Vec<String>,
    /// What the numbers are.
    pub unit: String,
    /// Lines, or else bars.
    pub lines: bool,
    /// The curves.
    pub curves: Vec<Curve>,
}

impl Plot {
    fn figure(&self) -> Figure {
        let mut figure =
            Figure::new(&self.id, &self.title, &self.about).over(&self.axis, self.places.iter().cloned());
        (figure.quantity, figure.unit) = (Quantity::Plain, self.unit.clone());
        if !self.lines {
            figure.shape = Shape::Bars;
        }
        let exact = |v: f64| Spread { least: v, lower_quartile: v, median: v, upper_quartile: v };
        let point = |v: f64| Point { cycles: exact(v), ns: exact(v), millions_per_second: v, rounds: 1 };
        figure.series = self
            .curves
            .iter()
            .enumerate()
            .map(|(colour, curve)| Series {
                name: curve.name.clone(),
                points: curve.values.iter().map(|value| value.map(point)).collect(),
                colour,
                dashed: false,
            })
            .collect();
        figure
    }
}

/// A bar of a [`Tornado`].
#[derive(Clone, Debug)]
pub struct TornadoBar {
    /// What is varied.
    pub name: String,
    /// Settings, and what comes out with them.
    pub settings: Vec<(String, f64)>,
}

/// Bars around what comes out where nothing is varied.
#[derive(Clone, Debug)]
pub struct Tornado {
    /// Its name, without spaces.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What is shown.
    pub about: String,
    /// What the numbers are.
    pub unit: String,
    /// What comes out where nothing is varied.
    pub base: f64,
    /// The bars, from the top.
    pub bars: Vec<TornadoBar>,
}

/// A self-contained page, made from its beginning to its end.
#[derive(Clone, Debug)]
pub struct Page {
    out: String,
}

impl Page {
    /// A page of a title, what it is about, and facts.
    pub fn new(title: &str, about: &str, facts: &[(&str, String)]) -> Self {
        let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        out.push_str("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n");
        let title = escaped(title);
        let _ = writeln!(out, "<title>Flowlane: {title}</title>\n<style>\n{}</style>\n</head>", style());
        let _ = writeln!(out, "<body>\n<main>\n<h1>{title}</h1>\n<p>{}</p>\n<dl>", escaped(about));
        for (name, value) in facts {
            let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(value));
        }
        out.push_str("</dl>\n");
        Self { out }
    }

    /// A heading, and what is to be said of what follows.
    pub fn section(&mut self, title: &str, about: &str) {
        let (title, about) = (escaped(title), escaped(about));
        let _ = writeln!(self.out, "<h2>{title}</h2>\n<p class=\"soft\">{about}</p>");
    }

    /// A table.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
        table(&head, rows, &mut self.out);
    }

    /// Sentences, each named.
    pub fn list(&mut self, items: &[(String, String)]) {
        self.out.push_str("<dl>\n");
        for (name, text) in items {
            let _ = writeln!(self.out, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(text));
        }
        self.out.push_str("</dl>\n");
    }

    fn figure(&mut self, id: &str, title: &str, about: &str, svg: &str) {
        let (id, title, about) = (escaped(id), escaped(title), escaped(about));
        let _ = writeln!(self.out, "<h3 id=\"{id}\">{title}</h3>\n<p class=\"soft\">{about}</p>");
        let _ = writeln!(self.out, "<figure aria-label=\"{title}\">\n{svg}</figure>");
    }

    /// A plot, and its numbers.
    pub fn plot(&mut self, plot: &Plot) {
        let figure = plot.figure();
        self.figure(&plot.id, &plot.title, &plot.about, &plot::svg(&figure));
        let mut rows = crate::text::rows(&figure);
        // Nothing was measured several times: there is no spread.
        rows.iter_mut().for_each(|row| row.truncate(row.len() - 1));
        let mut head = crate::text::head(&figure);
        head.pop();
        table(&head, &rows, &mut self.out);
    }

    /// Bars around a base.
    pub fn tornado(&mut self, tornado: &Tornado) {
        self.figure(&tornado.id, &tornado.title, &tornado.about, &tornado::svg(tornado));
    }

    /// The page, with a text at its end.
    pub fn finish(mut self, title: &str, text: &str) -> String {
        let (title, text) = (escaped(title), escaped(text));
        let _ = writeln!(self.out, "<h3>{title}</h3>\n<pre>{text}</pre>\n</main>\n</body>\n</html>");
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_plots_its_table_and_its_text() {
        let curve = |name: &str, values: &[Option<f64>]| Curve { name: name.into(), values: values.to_vec() };
        let plot = Plot {
            id: "one".into(),
            title: "One & two".into(),
            about: "What".into(),
            axis: "size".into(),
            places: vec!["a".into(), "b".into()],
            unit: "times".into(),
            lines: true,
            curves: vec![curve("x", &[Some(1.0), None]), curve("y", &[Some(2.0), Some(3.5)])],
        };
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
        page.section("S", "of it");
        page.table(&["h", "i"], &rows);
        page.list(&[("who".into(), "what <b>".into())]);
        page.plot(&plot);
        page.tornado(&tornado);
        let page = page.finish("end", "k = 1");
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
    }
}
