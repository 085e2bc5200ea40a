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

impl Series {
    /// Creates a curve with a value at each position.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        Self { name: name.into(), values: values.into_iter().map(Some).collect() }
    }
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

impl Chart {
    /// Creates a chart without an axis and curves.
    pub fn new(id: &'static str, title: impl Into<String>, about: impl Into<String>) -> Self {
        let (axis, unit, lines, places, series) = Default::default();
        Self { id, title: title.into(), about: about.into(), axis, places, unit, lines, series }
    }

    /// Sets the axis with its positions.
    pub fn over<P: ToString>(self, axis: &'static str, places: impl IntoIterator<Item = P>) -> Self {
        Self { axis, places: places.into_iter().map(|place| place.to_string()).collect(), ..self }
    }

    /// Sets the values at positions without an order.
    pub fn bars(self, unit: &'static str, series: Vec<Series>) -> Self {
        Self { unit, series, ..self }
    }

    /// Sets the values at ordered positions.
    pub fn curves(self, unit: &'static str, series: Vec<Series>) -> Self {
        Self { unit, series, lines: true, ..self }
    }

    /// Adds a curve with the same value at each position.
    pub fn constant(mut self, name: &str, value: f64) -> Self {
        self.series.push(Series::new(name, self.places.iter().map(|_| value)));
        self
    }
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

    pub(crate) fn sheet(&mut self, sheet: &Sheet) {
        self.line(sheet.head.iter().cloned());
        sheet.rows.iter().for_each(|row| self.line(row.iter().cloned()));
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
pub fn number(value: f64) -> String {
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
        let chart = Chart::new("one", "", "").over("size", [1, 2]).curves("cycles", series);
        let mut csv = Csv::of_machines([("here", "0f")]);
        csv.charts(&[chart]);
        let lines = ["machine,here,0f", "figure,series,place,value,unit"];
        let values = ["one,\"a, \"\"b\"\"\",1,1234,cycles", "one,\"a, \"\"b\"\"\",2,,cycles"];
        assert_eq!(csv.finish(), [lines, values].concat().join("\n") + "\n");
    }
}
