//! The one error of all that users of the library see.

use std::fmt;

/// Of which kind an [`Error`] is: what a binding makes a code of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is wrong: a text, a column, a prefix, a number. The same call fails again.
    Input,
    /// A limit does not allow it: of rules, routes, keys, memory. With a higher one, or fewer things, the call would pass.
    Limit,
}

/// An error of a call: its [kind](Self::kind), and in words the problem, its place, and the remedy. Whatever was to be
/// changed is as it was, unless the call says otherwise.
///
/// ```
/// use flowlane::{ErrorKind, read_rules};
///
/// let error = read_rules("tcp,tp_dts=80,actions=drop", "flows.txt").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Input);
/// assert!(error.to_string().starts_with("flows.txt:1:5: `tp_dts`"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    kind: ErrorKind,
    text: String,
    row: Option<usize>,
}

impl Error {
    /// Of which kind it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Where in a batch or column it is, from 0; none where it is of no row.
    pub fn row(&self) -> Option<usize> {
        self.row
    }

    pub(crate) fn input(text: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Input, text: text.to_string(), row: None }
    }

    pub(crate) fn limit(text: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Limit, ..Self::input(text) }
    }

    pub(crate) fn at(self, row: usize) -> Self {
        Self { row: Some(row), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
