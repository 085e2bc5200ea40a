//! The order of rules.

use std::cmp::Reverse;

use super::Hit;
use crate::rule::{Priority, RuleId};

/// A rule's place in the order of its table: higher priority first, then earlier insertion. The greatest
/// rank that matches wins; no two rules of a table have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Rank {
    pub(super) priority: Priority,
    pub(super) sequence: Reverse<u64>,
}

/// A rule without its match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ranked {
    pub(super) rank: Rank,
    pub(super) rule: RuleId,
}

impl Ranked {
    pub(super) fn hit(self) -> Hit {
        Hit { rule: self.rule, priority: self.rank.priority }
    }
}
