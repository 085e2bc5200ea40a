//! Rows of the report: a statement of the paper, what comes out here, and what that is worth.

use serde::Serialize;
use strum::IntoStaticStr;

/// What kind of statement a value is.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Stated {
    /// The value.
    Exact { value: f64 },
    /// The value is less than this, however much less.
    Below { value: f64 },
    /// The largest of several is this.
    UpTo { value: f64 },
    /// All are between these: what is beyond either end is off.
    Range {
        /// The least.
        low: f64,
        /// The largest.
        high: f64,
    },
    /// No number: nothing is scored against it.
    Words { text: &'static str },
}

impl Stated {
    /// How far a simulated value, or the least and largest of several, is from it: a share of what is stated, 0 where the
    /// statement holds. Of a range it is the end that is missed by more; where that end is 0, a share of the range's length.
    /// None where no number is stated.
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

    /// As the paper has it.
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

/// What a comparison is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr, Serialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase")]
pub enum Status {
    /// A number of the machine was chosen so that it comes out, or so that what it follows from does.
    Calibrated,
    /// It hangs on something that is ours: what the text leaves open and we chose, with this value in sight or with nothing to
    /// choose by. That it comes out says little.
    Assumption,
    /// Nothing that it follows from was chosen to meet it.
    Predicted,
    /// It is a definition, or was put in.
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

/// A value that the paper states, and ours.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The figure or table, or the section.
    pub place: &'static str,
    /// What it is.
    pub what: String,
    /// The machine that it was simulated on; empty where there is none.
    pub machine: String,
    /// What is stated.
    pub stated: Stated,
    /// Least and largest here; the same where it is one value. None where it is not attempted.
    pub simulated: Option<[f64; 2]>,
    /// By how much it is off, as a share of what is stated; none where no number is.
    pub error: Option<f64>,
    /// What that is worth.
    pub status: Status,
    /// What was chosen, where it is calibrated or an assumption; empty elsewhere.
    pub why: String,
    /// Least and largest over the choices that the paper leaves open.
    pub envelope: Option<[f64; 2]>,
    /// What one should know.
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

    /// Not predicted: for what was chosen.
    pub(crate) fn calibrated(self, why: impl Into<String>) -> Self {
        Self { status: Status::Calibrated, why: why.into(), ..self }
    }

    /// Not predicted: for what is ours.
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
        // 6.1: slower by less than 5.3 %. Faster by 10.6 % is as far off as slower by 15.9 %.
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
