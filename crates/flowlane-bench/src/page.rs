//! A page of plots and a table, of numbers that were not measured here: for simulations.

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

/// A self-contained page: facts, a table, plots, and a text at the end.
pub fn page(
    title: &str,
    about: &str,
    facts: &[(&str, String)],
    (head, rows): (&[&str], &[Vec<String>]),
    plots: &[Plot],
    (text_title, text): (&str, &str),
) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n");
    let title = escaped(title);
    let _ = writeln!(out, "<title>Flowlane: {title}</title>\n<style>\n{}</style>\n</head>", style());
    let _ = writeln!(out, "<body>\n<main>\n<h1>{title}</h1>\n<p>{}</p>\n<dl>", escaped(about));
    for (name, value) in facts {
        let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(value));
    }
    out.push_str("</dl>\n");
    let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
    table(&head, rows, &mut out);
    for plot in plots {
        let (id, title, about) = (escaped(&plot.id), escaped(&plot.title), escaped(&plot.about));
        let figure = plot.figure();
        let _ = writeln!(out, "<h3 id=\"{id}\">{title}</h3>\n<p class=\"soft\">{about}</p>");
        let _ = writeln!(out, "<figure aria-label=\"{title}\">\n{}</figure>", plot::svg(&figure));
        let mut rows = crate::text::rows(&figure);
        // Nothing was measured several times: there is no spread.
        rows.iter_mut().for_each(|row| row.truncate(row.len() - 1));
        let mut head = crate::text::head(&figure);
        head.pop();
        table(&head, &rows, &mut out);
    }
    let _ = writeln!(
        out,
        "<h3>{}</h3>\n<pre>{}</pre>\n</main>\n</body>\n</html>",
        escaped(text_title),
        escaped(text)
    );
    out
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
        let page = page("T", "A", &[("f", "v".into())], (&["h", "i"], &rows), &[plot], ("end", "k = 1"));
        for part in
            ["<svg ", "One &amp; two", "cell &lt;1&gt;", "<pre>k = 1</pre>", "3.50", "times", "</html>"]
        {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(page.matches("<table>").count(), 2);
    }
}
