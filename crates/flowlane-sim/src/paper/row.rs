//! Rows of the report: a statement of the paper, the simulated value, and the worth of the comparison.

use serde::Serialize;
use strum::IntoStaticStr;

/// The kind of a statement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Stated {
    /// An exact value.
    Exact { value: f64 },
    /// An upper bound.
    Below { value: f64 },
    /// The largest of several values.
    UpTo { value: f64 },
    /// A range that contains all values.
    Range {
        /// The lower end.
        low: f64,
        /// The upper end.
        high: f64,
    },
    /// No number; not scored.
    Words { text: &'static str },
}

impl Stated {
    /// Returns the error of a simulated value, or of the least and largest of several, relative to the stated value;
    /// 0 if the statement holds. For a range, it is the error at the end that is missed by more; if that end is 0,
    /// relative to the length of the range. `None` for statements without a number.
    pub fn error(&self, least: f64, most: f64) -> Option<f64> {
        Some(match *self {
            Self::Exact { value } | Self::UpTo { value } => most / value - 1.0,
            Self::Below { value } => (most / value - 1.0).max(0.0),
            Self::Range { low, high } => {
                let share = |beyond: f64, end: f64| beyond / if end == 0.0 { high - low } else { end.abs() };
                let (under, over) = (share((least - low).min(0.0), low), share((most - high).max(0.0), high));
                if -under > over { under } else { over }
            }
            Self::Words { .. } => return None,
        })
    }

    /// Formats the statement as in the paper.
    pub fn text(&self) -> String {
        match *self {
            Self::Exact { value } => format!("{value}"),
            Self::Below { value } => format!("< {value}"),
            Self::UpTo { value } => format!("up to {value}"),
            Self::Range { low, high } => format!("{low} to {high}"),
            Self::Words { text } => format!("\"{text}\""),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Exact { .. } => "exact",
            Self::Below { .. } => "bound",
            Self::UpTo { .. } => "up to",
            Self::Range { .. } => "range",
            Self::Words { .. } => "words",
        }
    }
}

/// The worth of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr, Serialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase")]
pub enum Status {
    /// A number of the machine was chosen to produce it, or to produce the values from which it follows.
    Calibrated,
    /// It depends on a choice of ours that the text leaves open, made with this value in sight or without evidence.
    /// Agreement means little.
    Assumption,
    /// It does not follow from any number chosen to meet it.
    Predicted,
    /// It is a definition or an input.
    Identity,
    /// It is not simulated.
    #[strum(to_string = "not attempted")]
    NotAttempted,
}

impl Status {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A stated value, and the simulated one.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The figure, table or section.
    pub place: &'static str,
    /// The description of the value.
    pub what: String,
    /// The simulated machine; empty if none.
    pub machine: String,
    /// The statement.
    pub stated: Stated,
    /// The least and largest simulated value, equal for a single one; `None` if not attempted.
    pub simulated: Option<[f64; 2]>,
    /// The relative error; `None` for statements without a number.
    pub error: Option<f64>,
    /// The worth.
    pub status: Status,
    /// The choice behind a calibrated or assumed value; empty otherwise.
    pub why: String,
    /// The least and largest over the choices that the paper leaves open.
    pub envelope: Option<[f64; 2]>,
    /// A remark.
    pub note: String,
}

impl Row {
    fn new(place: &'static str, what: impl Into<String>, stated: Stated, status: Status) -> Self {
        let text = String::new;
        let (simulated, error, envelope) = (None, None, None);
        let (machine, why, note) = (text(), text(), text());
        Self { place, what: what.into(), machine, stated, simulated, error, status, why, envelope, note }
    }

    pub(crate) fn predicted(place: &'static str, what: impl Into<String>, stated: Stated) -> Self {
        Self::new(place, what, stated, Status::Predicted)
    }

    pub(crate) fn identity(place: &'static str, what: impl Into<String>, stated: Stated) -> Self {
        Self::new(place, what, stated, Status::Identity)
    }

    pub(crate) fn not_attempted(place: &'static str, what: impl Into<String>, stated: Stated) -> Self {
        Self::new(place, what, stated, Status::NotAttempted)
    }

    /// Marks the value as calibrated, with the choice.
    pub(crate) fn calibrated(self, why: impl Into<String>) -> Self {
        Self { status: Status::Calibrated, why: why.into(), ..self }
    }

    /// Marks the value as dependent on an assumption.
    pub(crate) fn assumption(self, why: impl Into<String>) -> Self {
        Self { status: Status::Assumption, why: why.into(), ..self }
    }

    pub(crate) fn is(self, value: f64) -> Self {
        self.between(value, value)
    }

    pub(crate) fn between(self, least: f64, most: f64) -> Self {
        Self { error: self.stated.error(least, most), simulated: Some([least, most]), ..self }
    }

    pub(crate) fn over(self, envelope: Option<[f64; 2]>) -> Self {
        Self { envelope, ..self }
    }

    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_by_the_kind_of_statement() {
        let exact = Stated::Exact { value: 2.0 };
        assert_eq!((exact.error(3.0, 3.0), exact.error(1.0, 1.0)), (Some(0.5), Some(-0.5)));
        assert_eq!(Stated::Below { value: 5.0 }.error(0.0, 4.0), Some(0.0));
        assert_eq!(Stated::Below { value: 5.0 }.error(0.0, 10.0), Some(1.0));
        assert_eq!(Stated::UpTo { value: 4.0 }.error(1.0, 3.0), Some(-0.25));
        let range = Stated::Range { low: 2.0, high: 4.0 };
        let errors = [range.error(2.5, 3.5), range.error(1.0, 3.0), range.error(3.0, 5.0)];
        assert_eq!(errors, [0.0, -0.5, 0.25].map(Some));
    }

    #[test]
    fn a_range_has_two_ends_also_where_one_is_nothing() {
        // 6.1: slower by less than 5.3 %. Faster by 10.6 % has the same error as slower by 15.9 %.
        let slower = Stated::Range { low: 0.0, high: 5.3 };
        assert_eq!(slower.error(0.0, 5.3), Some(0.0));
        assert!((slower.error(-10.6, 1.0).unwrap() + 2.0).abs() < 1e-9);
        assert!((slower.error(1.0, 15.9).unwrap() - 2.0).abs() < 1e-9);
        assert!((slower.error(-5.3, 15.9).unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn words_are_not_scored() {
        let row = Row::predicted("", "", Stated::Words { text: "limited" }).between(0.5, 9.0);
        assert_eq!((row.simulated, row.error), (Some([0.5, 9.0]), None));
        assert_eq!((row.stated.text().as_str(), row.stated.name()), ("\"limited\"", "words"));
    }
}
