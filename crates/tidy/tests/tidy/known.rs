//! Recorded exceptions to the rules. The lists only shrink: an entry that is no longer needed is an error.

use crate::words::Place;

/// A use that closes a cycle between modules at the top of a crate.
pub(crate) struct Backwards {
    /// The crate's folder.
    pub(crate) of: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    #[expect(dead_code, reason = "for readers of the list")]
    pub(crate) why: &'static str,
}

/// A function that is too long, or a file (with an empty function name), and its lines.
pub(crate) struct Long {
    pub(crate) file: &'static str,
    pub(crate) function: &'static str,
    pub(crate) lines: usize,
}

/// Banned words and openings of a document or, by place, of a crate.
pub(crate) struct Wording {
    /// The document, or the crate's folder.
    pub(crate) of: &'static str,
    pub(crate) place: Place,
    pub(crate) count: usize,
}

/// Cycles between modules.
pub(crate) const BACKWARDS: &[Backwards] = &[];

/// Long files and functions.
pub(crate) const LONG: &[Long] = &[];

/// Banned words and openings.
pub(crate) const WORDING: &[Wording] = &[];
