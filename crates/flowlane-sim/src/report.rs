//! Parts of reports: the extent of simulations, curves, and numbers as text.

use std::fmt::Write;

use serde::Serialize;

/// The extent of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Effort {
    /// Small tables and few lookups, to check that everything works.
    pub quick: bool,
    /// The number of threads, which does not affect results.
    pub threads: usize,
    /// The seed of keys and packets.
    pub seed: u64,
}

/// A curve.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The label in the legend.
    pub name: String,
    /// The values, one for each position of the chart; `None` where it was not simulated.
    pub values: Vec<Option<f64>>,
}

/// A chart of simulated values.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// The identifier, without spaces.
    pub id: &'static str,
    /// The heading.
    pub title: String,
    /// The description.
    pub about: String,
    /// The label of the axis.
    pub axis: &'static str,
    /// The positions of the axis, as text.
    pub places: Vec<String>,
    /// The unit of the values.
    pub unit: &'static str,
    /// Whether positions are ordered.
    pub lines: bool,
    /// The curves.
    pub series: Vec<Series>,
}

/// A table of texts.
#[derive(Clone, Debug, Serialize)]
pub struct Sheet {
    /// The identifier, without spaces.
    pub id: &'static str,
    /// The heading.
    pub title: String,
    /// The description.
    pub about: String,
    /// The column names.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

/// CSV (RFC 4180).
pub(crate) struct Csv(String);

impl Csv {
    /// Begins with the names and hashes of the machines.
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

    /// Adds a line for each value of each curve.
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

/// Formats a number with four significant digits.
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
