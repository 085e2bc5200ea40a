//! What reports are made of: how much is simulated, curves, and numbers as text.

use std::fmt::Write;

use serde::Serialize;

/// How much is simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Effort {
    /// Small tables and few lookups: to see that all works.
    pub quick: bool,
    /// Threads; results do not depend on how many.
    pub threads: usize,
    /// Names keys and packets.
    pub seed: u64,
}

/// A curve.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// What it is of, for the legend.
    pub name: String,
    /// As many as the chart has places; none where nothing was simulated.
    pub values: Vec<Option<f64>>,
}

/// A figure of ours.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// Its name, without spaces.
    pub id: &'static str,
    /// The heading above it.
    pub title: String,
    /// What was simulated.
    pub about: String,
    /// What the axis is.
    pub axis: &'static str,
    /// The axis's values, as text.
    pub places: Vec<String>,
    /// What the numbers are.
    pub unit: &'static str,
    /// Whether places follow each other.
    pub lines: bool,
    /// The curves.
    pub series: Vec<Series>,
}

/// Lines of cells, separated by commas (RFC 4180).
pub(crate) struct Csv(String);

impl Csv {
    /// With names and hashes of the machines as its first lines.
    pub(crate) fn of_machines<'a>(machines: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut csv = Self(String::new());
        for (name, hash) in machines {
            csv.line(["machine", name, hash].map(str::to_owned));
        }
        csv
    }

    pub(crate) fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| quoted(&cell)).collect();
        let _ = writeln!(self.0, "{}", cells.join(","));
    }

    pub(crate) fn head(&mut self, names: &[&str]) {
        self.line(names.iter().map(|name| (*name).to_owned()));
    }

    /// A line for each value of each curve.
    pub(crate) fn charts(&mut self, charts: &[Chart]) {
        self.head(&["figure", "series", "place", "value", "unit"]);
        for chart in charts {
            for series in &chart.series {
                for (place, value) in chart.places.iter().zip(&series.values) {
                    let value = value.map_or(String::new(), number);
                    let unit = chart.unit.to_owned();
                    self.line([chart.id.to_owned(), series.name.clone(), place.clone(), value, unit]);
                }
            }
        }
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// A number with four digits that say something.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        let series = vec![Series { name: "a, \"b\"".into(), values: vec![Some(1234.5), None] }];
        let chart = Chart {
            id: "one",
            title: String::new(),
            about: String::new(),
            axis: "size",
            places: vec!["1".into(), "2".into()],
            unit: "cycles",
            lines: true,
            series,
        };
        let mut csv = Csv::of_machines([("here", "0f")]);
        csv.charts(&[chart]);
        let lines = ["machine,here,0f", "figure,series,place,value,unit"];
        let values = ["one,\"a, \"\"b\"\"\",1,1234,cycles", "one,\"a, \"\"b\"\"\",2,,cycles"];
        assert_eq!(csv.finish(), [lines, values].concat().join("\n") + "\n");
    }
}
