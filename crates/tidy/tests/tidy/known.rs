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
pub(crate) const WORDING: &[Wording] = &[
    Wording { of: ".ci/public-api", place: Place::Private, count: 6 },
    Wording { of: "bindings/c", place: Place::Public, count: 23 },
    Wording { of: "bindings/c", place: Place::Private, count: 12 },
    Wording { of: "bindings/c", place: Place::Text, count: 9 },
    Wording { of: "bindings/python", place: Place::Public, count: 8 },
    Wording { of: "bindings/python", place: Place::Private, count: 16 },
    Wording { of: "bindings/python", place: Place::Text, count: 2 },
    Wording { of: "crates/flowlane", place: Place::Page, count: 60 },
    Wording { of: "crates/flowlane", place: Place::Public, count: 415 },
    Wording { of: "crates/flowlane", place: Place::Private, count: 536 },
    Wording { of: "crates/flowlane", place: Place::Text, count: 22 },
    Wording { of: "crates/flowlane-arrow", place: Place::Public, count: 13 },
    Wording { of: "crates/flowlane-arrow", place: Place::Private, count: 15 },
    Wording { of: "crates/flowlane-capture", place: Place::Public, count: 18 },
    Wording { of: "crates/flowlane-capture", place: Place::Private, count: 37 },
    Wording { of: "crates/flowlane-cli", place: Place::Public, count: 35 },
    Wording { of: "crates/flowlane-cli", place: Place::Private, count: 150 },
    Wording { of: "crates/flowlane-cli", place: Place::Text, count: 16 },
    Wording { of: "crates/flowlane-query", place: Place::Public, count: 13 },
    Wording { of: "crates/flowlane-query", place: Place::Private, count: 39 },
    Wording { of: "crates/flowlane-query", place: Place::Text, count: 1 },
    Wording { of: "crates/flowlane-switch", place: Place::Public, count: 409 },
    Wording { of: "crates/flowlane-switch", place: Place::Private, count: 602 },
    Wording { of: "crates/flowlane-switch", place: Place::Text, count: 15 },
];
