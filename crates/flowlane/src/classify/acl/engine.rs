//! The traits of access-list engines, and their results.

use super::Tree;
use crate::isa::Variant;
use crate::rule::RuleId;

/// The result of a lookup for one key and one category: a rule, or none. Four bytes, for batches.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct MatchId(pub(super) u32);

impl MatchId {
    /// No rule matches.
    pub const NONE: Self = Self(u32::MAX);

    /// Wraps the rule that won. The number `u32::MAX` means none, and no entry may have it.
    #[inline(always)]
    pub fn of(rule: RuleId) -> Self {
        Self(rule.0)
    }

    /// Returns the number of the rule that won, or [`u32::MAX`].
    #[inline(always)]
    pub(super) const fn number(self) -> u32 {
        self.0
    }

    /// Returns the rule that won.
    #[inline(always)]
    pub fn rule(self) -> Option<RuleId> {
        (self.0 != u32::MAX).then_some(RuleId(self.0))
    }
}

impl std::fmt::Debug for MatchId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.rule().fmt(f)
    }
}

/// Why an entry won for one key in category 0, and the cost of the lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation<const W: usize> {
    /// The best rule that matches.
    pub winner: Option<RuleId>,
    /// The next best rule that matches, where the engine compared it: engines stop at the winner.
    pub runner_up: Option<RuleId>,
    /// Nodes, hash buckets or filters that the lookup read.
    pub nodes: u32,
    /// Rules that the lookup compared the key with.
    pub rules: u32,
    /// Bits of the key that the winner depends on: every key that agrees in them has the same winner.
    pub looked_at: [u32; W],
}

/// The reasons to refuse a build or a change. The table is as before.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The budget is too small for these rules.
    #[error(
        "{rules} rules need about {needed_bytes} bytes in the engine `{engine}`, and it may use {memory_max}; raise the memory limit, or take the engine `linear` or `dynamic`"
    )]
    Memory {
        /// The engine.
        engine: &'static str,
        /// The number of rules.
        rules: usize,
        /// The bytes that they need, at least.
        needed_bytes: usize,
        /// The budget.
        memory_max: usize,
    },
    /// More rules than the table may hold.
    #[error("the table holds its limit of {rules_max} rules; raise the limit or remove rules")]
    Rules {
        /// The limit.
        rules_max: usize,
    },
    /// The rule number is in use.
    #[error("rule {} is in the table already; replace it, or remove it first", .0.0)]
    Duplicate(RuleId),
}

/// Entries removed since the engine was built: one bit for each rule number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tombstones<'a>(pub(super) &'a [u32]);

impl Tombstones<'_> {
    /// Returns whether an entry is removed. There must be a bit for it.
    #[inline(always)]
    pub(super) fn has(self, rule: RuleId) -> bool {
        self.0[rule.0 as usize / 32] >> (rule.0 % 32) & 1 == 1
    }
}

/// An engine that is built at once, which can leave removed entries out of its answers.
pub(super) trait BulkEngine<const W: usize>: Engine<W> {
    /// Returns the tree, if it is one: trees take changes.
    fn as_tree(&self) -> Option<&Tree<W>> {
        None
    }

    /// Returns the tree, if it is one.
    fn as_tree_mut(&mut self) -> Option<&mut Tree<W>> {
        None
    }

    /// Finds the best live entry of each category, as [`Engine::lookup_categories`] does among all entries.
    ///
    /// # Panics
    /// As there, and where `dead` lacks a bit for some rule number.
    fn lookup_live(
        &self,
        keys: &[[u32; W]],
        categories: usize,
        verdicts: &mut [MatchId],
        dead: Tombstones<'_>,
    );

    /// Explains the answer among live entries in category 0.
    fn explain_live(&self, key: &[u32; W], dead: Tombstones<'_>) -> Explanation<W>;
}

/// A table of entries that looks up batches of keys. Keys are words in the order of the layout.
pub trait Engine<const W: usize>: Send + Sync {
    /// Returns the engine's name, as on the command line.
    fn name(&self) -> &'static str;

    /// Returns the variant of its kernels.
    fn variant(&self) -> Variant;

    /// Returns the number of entries.
    fn len(&self) -> usize;

    /// Returns whether there are no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the table: those that lookups may touch, and those that only changes use.
    fn table_bytes(&self) -> usize;

    /// Finds the best entry of category 0 for each key.
    ///
    /// # Panics
    /// Where the slices differ in length.
    fn lookup_batch(&self, keys: &[[u32; W]], verdicts: &mut [MatchId]);

    /// Finds the best entry of each category for each key, in one pass: `verdicts[key * categories + category]`.
    ///
    /// # Panics
    /// Where `categories` is 0 or above [`CATEGORIES_MAX`](super::CATEGORIES_MAX), or `verdicts` is not
    /// `keys.len() * categories` long.
    fn lookup_categories(&self, keys: &[[u32; W]], categories: usize, verdicts: &mut [MatchId]);

    /// Explains the answer for a key.
    fn explain(&self, key: &[u32; W]) -> Explanation<W>;
}
