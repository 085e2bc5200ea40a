//! Conditions on keys, and the order of entries.

use super::layout::WordKind;
use crate::classify::Hit;
use crate::rule::{Priority, RuleId};

/// Most categories that one table resolves, as many as in DPDK's `rte_acl`. The switch uses one.
pub const CATEGORIES_MAX: usize = 16;

/// A condition on a key of `W` words, in canonical form. The [`WordKind`] of a word decides how it is compared:
///
/// | kind | `low` | `high` | matches |
/// |---|---|---|---|
/// | `Ternary` | value, no bit outside the mask | mask | `key & high == low` |
/// | `Range32` | first | last | `low <= key <= high` |
/// | `Range16` | two firsts, one in each half | two lasts | for each half by itself |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Condition<const W: usize> {
    /// Values and low ends.
    pub low: [u32; W],
    /// Masks and high ends.
    pub high: [u32; W],
}

impl<const W: usize> Condition<W> {
    /// Creates the condition that every key fulfils.
    pub fn any(kinds: &[WordKind; W]) -> Self {
        let high = |kind: &WordKind| if *kind == WordKind::Ternary { 0 } else { u32::MAX };
        Self { low: [0; W], high: kinds.each_ref().map(high) }
    }

    /// Returns whether word `w` matches.
    #[inline(always)]
    pub fn word_matches(&self, kind: WordKind, w: usize, key: u32) -> bool {
        let (low, high) = (self.low[w], self.high[w]);
        let within = |shift: u32| {
            let half = |of: u32| (of >> shift) as u16;
            half(low) <= half(key) && half(key) <= half(high)
        };
        match kind {
            WordKind::Ternary => key & high == low,
            WordKind::Range32 => low <= key && key <= high,
            WordKind::Range16 => within(0) && within(16),
        }
    }

    /// Draws a key that fulfils the condition; `state` decides its free bits.
    pub(super) fn drawn(&self, kinds: &[WordKind; W], state: &mut u64) -> [u32; W] {
        let mut bits = || {
            // SplitMix64 (Steele, Lea, Flood 2014).
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ mixed >> 31) as u32
        };
        std::array::from_fn(|w| {
            let (low, high, bits) = (self.low[w], self.high[w], bits());
            let between = |low: u32, high: u32, bits: u32| {
                let size = u64::from(high.saturating_sub(low)) + 1;
                low.wrapping_add((u64::from(bits) % size) as u32)
            };
            match kinds[w] {
                WordKind::Ternary => low | bits & !high,
                WordKind::Range32 => between(low, high, bits),
                WordKind::Range16 => {
                    between(low >> 16, high >> 16, bits >> 16) << 16
                        | between(low & 0xffff, high & 0xffff, bits & 0xffff)
                }
            }
        })
    }

    /// Returns whether `key` fulfils the condition.
    #[inline]
    pub fn matches(&self, kinds: &[WordKind; W], key: &[u32; W]) -> bool {
        (0..W).all(|w| self.word_matches(kinds[w], w, key[w]))
    }
}

/// The rank of an entry: higher priority first, then earlier insertion. The greatest rank that matches wins;
/// no two entries of a table have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RankKey(pub u64);

impl RankKey {
    /// Creates the rank of a rule that was inserted as number `sequence` (from 0).
    #[inline]
    pub fn new(priority: Priority, sequence: u32) -> Self {
        Self(u64::from(priority.0) << 32 | u64::from(!sequence))
    }

    /// Returns the rank with the same sequence number and another priority.
    #[inline]
    pub fn with_priority(self, priority: Priority) -> Self {
        Self(u64::from(priority.0) << 32 | self.0 & u64::from(u32::MAX))
    }

    /// Returns the sequence number.
    #[inline]
    pub(super) fn sequence(self) -> u32 {
        !(self.0 as u32)
    }

    /// Returns the priority.
    #[inline]
    pub fn priority(self) -> Priority {
        Priority((self.0 >> 32) as u32)
    }
}

/// A rule in the form that engines build from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<const W: usize> {
    /// The keys that it matches.
    pub condition: Condition<W>,
    /// Its rank.
    pub rank: RankKey,
    /// The rule number in results; not `u32::MAX`.
    pub rule: RuleId,
    /// The categories in which it counts, one bit each; bit 0 is the category of plain lookups.
    pub categories: u16,
}

impl<const W: usize> Entry<W> {
    /// Returns the rule and its priority.
    pub fn hit(&self) -> Hit {
        Hit { rule: self.rule, priority: self.rank.priority() }
    }
}

/// Finds the best of `entries` that matches `key` and counts in `category`: the definition of a lookup.
pub fn best<'a, const W: usize>(
    entries: impl IntoIterator<Item = &'a Entry<W>>,
    kinds: &[WordKind; W],
    key: &[u32; W],
    category: usize,
) -> Option<&'a Entry<W>> {
    let counts = |e: &&Entry<W>| e.categories >> category & 1 == 1 && e.condition.matches(kinds, key);
    entries.into_iter().filter(counts).max_by_key(|e| e.rank)
}
