//! What all engines of access lists can do.

use crate::isa::Variant;
use crate::rule::RuleId;

/// The answer for one key and one category: a rule, or none. Four bytes, for batches.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct MatchId(pub(super) u32);

impl MatchId {
    /// No rule matches.
    pub const NONE: Self = Self(u32::MAX);

    /// This rule won. The handle `RuleId(u32::MAX)` stands for none, and no entry may have it.
    #[inline(always)]
    pub fn of(rule: RuleId) -> Self {
        Self(rule.0)
    }

    /// Returns the number of the rule that won, or [`u32::MAX`].
    #[inline(always)]
    pub(super) const fn number(self) -> u32 {
        self.0
    }

    /// The rule that won.
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

/// How an engine came to its answer for one key, in category 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation<const W: usize> {
    /// The best rule that matches.
    pub winner: Option<RuleId>,
    /// The next best rule that matches, where the engine met it; only [`best`](super::best)-like searches see all.
    pub runner_up: Option<RuleId>,
    /// Nodes, hash buckets or filters that were read.
    pub nodes: u32,
    /// Rules that the key was compared with.
    pub rules: u32,
    /// Bits of the key that the winner depends on: every key that agrees in them has the same winner.
    pub looked_at: [u32; W],
}

/// Why a table was not built or changed. It is as it was before.
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
        /// How many rules there are.
        rules: usize,
        /// What they need, at least.
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
    /// A handle that is in use.
    #[error("rule {} is in the table already; replace it, or remove it first", .0.0)]
    Duplicate(RuleId),
}

/// Handles of entries that are dead: one bit for each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tombstones<'a>(pub(super) &'a [u32]);

impl Tombstones<'_> {
    /// Whether an entry is. There must be a bit for it.
    #[inline(always)]
    pub(super) fn has(self, rule: RuleId) -> bool {
        self.0[rule.0 as usize / 32] >> (rule.0 % 32) & 1 == 1
    }
}

/// An engine whose entries stay, and which can answer without those that went.
pub(super) trait ImmutableEngine<const W: usize>: Engine<W> {
    /// As [`Engine::lookup_categories`] among the entries that are not dead.
    ///
    /// # Panics
    /// As there, and where `dead` has not a bit for each handle.
    fn lookup_live(
        &self,
        keys: &[[u32; W]],
        categories: usize,
        verdicts: &mut [MatchId],
        dead: Tombstones<'_>,
    );

    /// How that comes about in category 0.
    fn explain_live(&self, key: &[u32; W], dead: Tombstones<'_>) -> Explanation<W>;
}

/// A table of entries that answers in batches. Keys are words in the order of the layout.
pub trait Engine<const W: usize>: Send + Sync {
    /// The engine's name, as on the command line.
    fn name(&self) -> &'static str;

    /// The variant of its bodies.
    fn variant(&self) -> Variant;

    /// Number of entries.
    fn len(&self) -> usize;

    /// Whether there are no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that lookups may touch and that the table keeps besides.
    fn table_bytes(&self) -> usize;

    /// For each key the best entry of category 0.
    ///
    /// # Panics
    /// Where the slices differ in length.
    fn lookup_batch(&self, keys: &[[u32; W]], verdicts: &mut [MatchId]);

    /// For each key the best entry of each category, in one pass: `verdicts[key * categories + category]`.
    ///
    /// # Panics
    /// Where `categories` is 0 or above [`CATEGORIES_MAX`](super::CATEGORIES_MAX), or `verdicts` is not
    /// `keys.len() * categories` long.
    fn lookup_categories(&self, keys: &[[u32; W]], categories: usize, verdicts: &mut [MatchId]);

    /// How the answer for a key comes about.
    fn explain(&self, key: &[u32; W]) -> Explanation<W>;
}
