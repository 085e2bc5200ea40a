//! A user's rules and packets: one exact-match table for each distinct mask, as in tuple search.
//!
//! ```text
//! rules, best first ── mask ──▶ table of that mask: masked key ──▶ rule, or chain of rules whose port ranges differ
//! packet ── table by table, best first, until no better rule can follow ──▶ rule
//! ```
//!
//! Ranges stay ranges, as in the library's tuple search: rules with the same masked key form a chain, best first,
//! along which the core compares ranges. Accelerators mask and hash keys and compare them whole (4.3 of the paper
//! names hash units, mask units and comparators), so chains are always walked by the core.
//!
//! Every packet's rule is computed beforehand by linear search, or by the library's tuple search if linear search
//! would take long; every answer of the tables is compared with it.

mod exact;
mod scale;
mod tables;

use std::collections::BTreeSet;
use std::sync::Arc;

use flowlane::classify::{LinearSearch, RuleEngine, TupleSearch};
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::rule::{Match, Priority, Rule, RuleId};

pub use super::tables::Own;
use crate::machine::space::Space;

pub use exact::{Exact, MaskWord, WORDS_MAX, exact};
pub use scale::{copied, narrowed, sampled, with_masks};
pub use tables::{Found, RuleTables, Search};

/// The most comparisons for which linear search is the reference.
const LINEAR_MAX: usize = 300_000_000;

/// An error in a workload.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// There are no rules.
    #[error("there are no rules")]
    NoRules,
    /// There are no packets.
    #[error("there are no packets")]
    NoPackets,
    /// A mask has more words than an exact-match table's key.
    #[error("rule {rule} looks at {words} words of the key; a table's key has at most {WORDS_MAX}")]
    Wide {
        /// The position of the rule, from 0.
        rule: usize,
        words: usize,
    },
    /// There are too many masks.
    #[error("the rules have {masks} distinct masks; at most {MASKS_MAX} can be simulated")]
    Masks {
        /// The number of distinct masks.
        masks: usize,
    },
}

/// The most distinct masks.
pub const MASKS_MAX: usize = 4096;

/// Rules and packets, with the expected rule of each packet.
pub struct Workload {
    /// The name.
    pub name: String,
    /// The rules, best first.
    pub rules: Vec<Match>,
    /// The packets in order.
    pub packets: Vec<FlowKey>,
    /// The position in `rules` of each packet's rule.
    pub expected: Vec<Option<u32>>,
    /// The rules as tables.
    pub tables: RuleTables,
}

impl std::fmt::Debug for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rules, packets) = (self.rules.len(), self.packets.len());
        f.debug_struct("Workload").field("rules", &rules).field("packets", &packets).finish_non_exhaustive()
    }
}

/// Returns the matches of rules, best first; among rules of equal priority the earlier one first.
pub fn in_order(rules: &[Rule]) -> Vec<Match> {
    let mut order: Vec<&Rule> = rules.iter().collect();
    order.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
    order.into_iter().map(|rule| rule.matches.clone()).collect()
}

impl Workload {
    /// Creates a workload of rules, best first. `seed` keys the tables' hashes.
    ///
    /// # Errors
    /// Returns an error if there are no rules or packets, or if there are more masks than can be simulated.
    pub fn new(
        name: impl Into<String>,
        rules: Vec<Match>,
        packets: Vec<FlowKey>,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        Self::in_space(name, rules, packets, seed, &mut Space::default())
    }

    /// Creates a workload with tables in an address space that others use, too.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn in_space(
        name: impl Into<String>,
        rules: Vec<Match>,
        packets: Vec<FlowKey>,
        seed: u64,
        space: &mut Space,
    ) -> Result<Self, WorkloadError> {
        if rules.is_empty() {
            return Err(WorkloadError::NoRules);
        }
        if packets.is_empty() {
            return Err(WorkloadError::NoPackets);
        }
        let tables = RuleTables::in_space(&rules, seed, space)?;
        let expected = definition(&rules, &packets);
        Ok(Self { name: name.into(), rules, packets, expected, tables })
    }

    /// Creates a workload that runs can share.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn shared(
        name: impl Into<String>,
        rules: Vec<Match>,
        packets: Vec<FlowKey>,
        seed: u64,
    ) -> Result<Arc<Self>, WorkloadError> {
        Self::new(name, rules, packets, seed).map(Arc::new)
    }

    /// Returns the reference for the expected rules: linear search, or the library's tuple search if linear search
    /// would take long.
    pub fn judge(&self) -> &'static str {
        if is_short(&self.rules, &self.packets) { "linear search" } else { "the library's tuple search" }
    }

    /// Returns rules with ids and priorities, as engines take them.
    pub fn numbered(&self) -> impl Iterator<Item = (RuleId, Priority, &Match)> + Clone {
        numbered(&self.rules)
    }

    /// Returns the number of distinct packets: the flows of an exact-match cache.
    pub fn flows(&self) -> usize {
        let words = self.tables.words();
        let of = |key: &FlowKey| words.iter().map(|w| key.word(usize::from(*w))).collect::<Vec<u32>>();
        self.packets.iter().map(of).collect::<BTreeSet<_>>().len()
    }

    /// Returns the number of packets without a rule.
    pub fn misses(&self) -> usize {
        self.expected.iter().filter(|rule| rule.is_none()).count()
    }

    /// Returns the entries of a TCAM, with ranges as prefixes.
    pub fn tcam_entries(&self) -> u64 {
        let prefixes =
            |range: Option<flowlane::rule::PortRange>| range.map_or(1, |r| r.prefixes().len()) as u64;
        self.rules.iter().map(|m| prefixes(m.tp_src_range()) * prefixes(m.tp_dst_range())).sum()
    }

    /// Returns the bits of a TCAM entry: all on which rules match.
    pub fn tcam_bits(&self) -> u32 {
        let mut bits = [0u32; flowlane::packet::key::WORDS];
        for rule in &self.rules {
            rule.words().iter().for_each(|w| bits[usize::from(w.word)] |= w.mask);
            bits[word::PORTS] |= rule.tp_src_range().map_or(0, |_| 0xffff_0000);
            bits[word::PORTS] |= rule.tp_dst_range().map_or(0, |_| 0xffff);
        }
        bits.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the size of a TCAM that holds the rules.
    pub fn tcam_bytes(&self) -> f64 {
        self.tcam_entries() as f64 * f64::from(self.tcam_bits().div_ceil(8).max(1))
    }
}

fn numbered(rules: &[Match]) -> impl Iterator<Item = (RuleId, Priority, &Match)> + Clone {
    let last = rules.len() as u32;
    rules.iter().enumerate().map(move |(n, rule)| (RuleId(n as u32), Priority(last - n as u32), rule))
}

/// Returns whether linear search is fast enough.
fn is_short(rules: &[Match], packets: &[FlowKey]) -> bool {
    rules.len().saturating_mul(packets.len()) <= LINEAR_MAX
}

/// Returns the expected rule of each packet.
fn definition(rules: &[Match], packets: &[FlowKey]) -> Vec<Option<u32>> {
    let ask =
        |table: &dyn RuleEngine| packets.iter().map(|key| table.lookup(key).map(|hit| hit.rule.0)).collect();
    let fill = |table: &mut dyn RuleEngine| {
        for (id, priority, rule) in numbered(rules) {
            table.insert(id, priority, rule).expect("its number is new, and there is room");
        }
    };
    if is_short(rules, packets) {
        let mut linear = LinearSearch::new(rules.len());
        fill(&mut linear);
        return ask(&linear);
    }
    let mut tuple = TupleSearch::new(rules.len(), 1);
    fill(&mut tuple);
    ask(&tuple)
}

#[cfg(test)]
mod tests;
