//! The report as CSV. The command line renders tables and pages.

use super::{Report, Row};
use crate::report::{Csv, number};

/// Formats a number, or the least and the largest.
fn extent([least, most]: [f64; 2]) -> String {
    match least == most {
        true => number(least),
        false => format!("{} to {}", number(least), number(most)),
    }
}

impl Row {
    /// The column names of [`cells`](Self::cells).
    pub const HEAD: [&str; 11] = [
        "where",
        "what",
        "machine",
        "paper",
        "kind",
        "simulated",
        "error %",
        "status",
        "envelope",
        "chosen",
        "note",
    ];

    /// Returns the row as text.
    pub fn cells(&self) -> [String; 11] {
        [
            self.place.to_owned(),
            self.what.clone(),
            if self.machine.is_empty() { "–".to_owned() } else { self.machine.clone() },
            self.stated.text(),
            self.stated.name().to_owned(),
            self.simulated.map_or("–".to_owned(), extent),
            self.error.map_or("–".to_owned(), |e| format!("{:+.1}", 100.0 * e)),
            self.status.name().to_owned(),
            self.envelope.map_or("–".to_owned(), extent),
            self.why.clone(),
            self.note.clone(),
        ]
    }
}

impl Report {
    /// Returns the report as CSV: the hashes of the machines, the rows, then the curves as figure, series, position,
    /// value, and the tables.
    pub fn csv(&self) -> String {
        let mut csv =
            Csv::of_machines(self.machines.all().iter().map(|m| (m.name.as_str(), m.hash.as_str())));
        csv.head(&Row::HEAD);
        self.rows.iter().for_each(|row| csv.line(row.cells()));
        csv.charts(&self.charts);
        for sheet in &self.sheets {
            csv.line([sheet.id.to_owned()].into_iter().chain(sheet.head.iter().cloned()));
            for row in &sheet.rows {
                csv.line([sheet.id.to_owned()].into_iter().chain(row.iter().cloned()));
            }
        }
        csv.finish()
    }
}
