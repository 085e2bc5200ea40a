//! What breaks the rules today. These lists only shrink: an entry that is no longer needed is an error.

/// A use that closes a circle between modules at the top of a crate.
pub(crate) struct Backwards {
    /// The crate's folder.
    pub(crate) of: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    #[expect(dead_code, reason = "for who reads the list")]
    pub(crate) why: &'static str,
}

/// A function that is too long, or a file (no function), and its lines.
pub(crate) struct Long {
    pub(crate) file: &'static str,
    pub(crate) function: &'static str,
    pub(crate) lines: usize,
}

/// Circles between modules.
pub(crate) const BACKWARDS: &[Backwards] = &[
    Backwards {
        of: "flowlane-sim",
        from: "config",
        to: "workload",
        why: "a run names which table has the key",
    },
    Backwards {
        of: "flowlane-sim",
        from: "program",
        to: "workload",
        why: "programs look up in the workload's tables",
    },
];

/// Long files and functions.
pub(crate) const LONG: &[Long] = &[Long {
    file: "crates/flowlane-cli/tests/cli/switch.rs",
    function: "mistakes_in_a_configuration_are_named_with_their_place_and_remedy",
    lines: 165,
}];
