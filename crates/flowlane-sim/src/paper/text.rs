//! The report as lines of text: CSV. Tables and pages are the command line's.

use std::fmt::Write;

use super::{Report, Row};

pub(crate) fn quoted(text: &str) -> String {
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

/// One number, or the least and the largest.
fn extent([least, most]: [f64; 2]) -> String {
    match least == most {
        true => number(least),
        false => format!("{} to {}", number(least), number(most)),
    }
}

impl Row {
    /// The head of [`cells`](Self::cells).
    pub const HEAD: [&str; 9] =
        ["where", "what", "paper", "kind", "simulated", "error %", "status", "envelope", "note"];

    /// The row, as text.
    pub fn cells(&self) -> [String; 9] {
        [
            self.place.to_owned(),
            self.what.clone(),
            self.stated.text(),
            self.stated.name().to_owned(),
            self.simulated.map_or("–".to_owned(), extent),
            self.error.map_or("–".to_owned(), |e| format!("{:+.1}", 100.0 * e)),
            self.status.name().to_owned(),
            self.envelope.map_or("–".to_owned(), extent),
            self.note.clone(),
        ]
    }
}

impl Report {
    /// Rows, then the curves as figure, series, place, value; the hash of the machine first.
    pub fn csv(&self) -> String {
        let mut out = format!("machine,{}\n{}\n", self.machine_hash, Row::HEAD.join(","));
        for row in &self.rows {
            let _ = writeln!(out, "{}", row.cells().map(|cell| quoted(&cell)).join(","));
        }
        out.push_str("figure,series,place,value,unit\n");
        for chart in &self.charts {
            for series in &chart.series {
                for (place, value) in chart.places.iter().zip(&series.values) {
                    let value = value.map_or(String::new(), number);
                    let cells = [chart.id, &series.name, place, &value, chart.unit].map(quoted);
                    let _ = writeln!(out, "{}", cells.join(","));
                }
            }
        }
        out
    }
}
