//! Rules: what to match, how important it is, what to do.
//!
//! A [`Rule`] is *(table, priority, match, actions, cookie)*. Among the rules of a table that match a
//! packet the one of the highest [`Priority`] wins; among equals, the one that was inserted first.
//!
//! [`read()`] reads rule files in either format: [`classbench`] filters, or [`flow_syntax`] as of `ovs-ofctl`.
//! [`read_changes`] reads changes to the rules of a running switch.

pub mod action;
pub mod classbench;
pub(crate) mod error;
pub mod flow_syntax;
pub mod matching;
mod read;

pub use action::Action;
pub use error::{ERRORS_KEPT, ReadError, ReadErrors, line_column};
pub use flow_syntax::{Command, FlowFlags, FlowMod, read_changes};
pub use matching::{Match, PortRange};
pub use read::{Flags, Format, ReadOptions, detect_format, read};

use std::fmt;

/// How important a rule is. Larger wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Priority(pub u32);

impl Priority {
    /// The priority of a rule that names none (as in OpenFlow).
    pub const DEFAULT: Priority = Priority(32768);
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The caller's handle for a rule in a table: for rules read from a file, the 0-based position in the list of
/// them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RuleId(pub u32);

/// A rule: which packets it is for, how important it is, and what happens to them. Tables look at match and priority; the rest is its
/// owner's.
///
/// ```
/// use flowlane::{Action, Field, Match, PortNo, Priority, Rule, read_rules};
///
/// let mut web = Match::any();
/// web.set(Field::EthType, 0x0800).set(Field::NwProto, 6).set_range(Field::TpDst, 80, 90);
/// assert_eq!(web.tp_dst_range().map(|range| (range.low(), range.high())), Some((80, 90)));
/// let rule = Rule { priority: Priority(7), ..Rule::new(web, vec![Action::Output(PortNo(1))]) };
/// assert_eq!(rule.to_string(), "table=0,priority=7,tcp,tp_dst=80-90 actions=output:1");
/// assert_eq!(read_rules(&rule.to_string(), "rule")?, [rule]);
/// # Ok::<(), flowlane::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The pipeline table of the rule; table 0 is the first.
    pub table: u8,
    /// Larger wins; ties go to the rule inserted first.
    pub priority: Priority,
    /// The owner's mark; nothing is derived from it.
    pub cookie: u64,
    /// Which packets the rule is for.
    pub matches: Match,
    /// The actions, in order. Empty: drop.
    pub actions: Vec<Action>,
}

impl Rule {
    /// A rule for table 0 with the default priority and cookie 0.
    pub fn new(matches: Match, actions: Vec<Action>) -> Self {
        Self { table: 0, priority: Priority::DEFAULT, cookie: 0, matches, actions }
    }
}
