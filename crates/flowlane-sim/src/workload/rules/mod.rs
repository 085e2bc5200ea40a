//! Somebody's own rules and packets: one exact-match table for each distinct mask, as a search through tuples has them.
//!
//! ```text
//! rules, best first ── mask ──▶ table of that mask: masked key ──▶ rule, or chain of rules whose port ranges differ
//! packet ── table by table, best first, until nothing better can follow ──▶ rule
//! ```
//!
//! Ranges stay ranges, as the library's tuple search has them: rules that share a masked key form a chain, best first,
//! along which the core compares ranges. Accelerators mask and hash keys and compare them whole (4.3 of the paper names
//! hash units, mask units and comparators), so that chains are the core's work whoever found their beginning.
//!
//! Every packet's rule is known beforehand, by linear search, or by the library's tuple search where that would take
//! long; whatever comes out of the tables is compared with it.

mod exact;
mod scale;
mod tables;

use std::collections::BTreeSet;
use std::sync::Arc;

use flowlane::classify::{Classifier, LinearSearch, TupleSearch};
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::rule::{Match, Priority, Rule, RuleId};

pub use exact::{Exact, MaskWord, WORDS_MAX, exact};
pub use scale::{copied, narrowed, sampled, with_masks};
pub use tables::{Found, Own, RuleTables, Search};

/// Comparisons up to which linear search says what is right.
const LINEAR_MAX: usize = 300_000_000;

/// What is wrong with a workload.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// Nothing to look up in.
    #[error("there are no rules")]
    NoRules,
    /// Nothing to look up.
    #[error("there are no packets")]
    NoPackets,
    /// A mask with more words than an exact-match table's key.
    #[error("rule {rule} looks at {words} words of the key; a table's key has at most {WORDS_MAX}")]
    Wide {
        /// The rule's place among all, counted from 0.
        rule: usize,
        words: usize,
    },
    /// More masks than there may be.
    #[error("the rules have {masks} distinct masks; at most {MASKS_MAX} can be simulated")]
    Masks {
        /// Distinct masks.
        masks: usize,
    },
}

/// Most distinct masks.
pub const MASKS_MAX: usize = 4096;

/// Rules, packets, and which rule each packet's is.
pub struct Workload {
    /// What it is called.
    pub name: String,
    /// Rules, best first.
    pub rules: Vec<Match>,
    /// Packets in their order.
    pub packets: Vec<FlowKey>,
    /// Which rule each packet's is: its place in `rules`.
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

/// The matches of rules, best first; of equal priority the earlier comes first.
pub fn in_order(rules: &[Rule]) -> Vec<Match> {
    let mut order: Vec<&Rule> = rules.iter().collect();
    order.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
    order.into_iter().map(|rule| rule.matches.clone()).collect()
}

impl Workload {
    /// A workload of rules, best first. `seed` keys the tables' hashes.
    ///
    /// # Errors
    /// Where there are no rules or packets, or the rules' masks are more than can be simulated.
    pub fn new(
        name: impl Into<String>,
        rules: Vec<Match>,
        packets: Vec<FlowKey>,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        if rules.is_empty() {
            return Err(WorkloadError::NoRules);
        }
        if packets.is_empty() {
            return Err(WorkloadError::NoPackets);
        }
        let tables = RuleTables::new(&rules, seed)?;
        let expected = definition(&rules, &packets);
        Ok(Self { name: name.into(), rules, packets, expected, tables })
    }

    /// The same, to be shared among runs.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn shared(
        name: impl Into<String>,
        rules: Vec<Match>,
        packets: Vec<FlowKey>,
        seed: u64,
    ) -> Result<Arc<Self>, WorkloadError> {
        Self::new(name, rules, packets, seed).map(Arc::new)
    }

    /// What said which rule is each packet's: linear search, or the library's tuple search, where that would take long.
    pub fn judge(&self) -> &'static str {
        if is_short(&self.rules, &self.packets) { "linear search" } else { "the library's tuple search" }
    }

    /// Rules with handles and priorities, as engines take them.
    pub fn numbered(&self) -> impl Iterator<Item = (RuleId, Priority, &Match)> + Clone {
        numbered(&self.rules)
    }

    /// Distinct packets among all: the flows that an exact-match cache would see.
    pub fn flows(&self) -> usize {
        let words = self.tables.words();
        let of = |key: &FlowKey| words.iter().map(|w| key.word(usize::from(*w))).collect::<Vec<u32>>();
        self.packets.iter().map(of).collect::<BTreeSet<_>>().len()
    }

    /// Packets whose rule is none.
    pub fn misses(&self) -> usize {
        self.expected.iter().filter(|rule| rule.is_none()).count()
    }

    /// Entries of a TCAM: ranges as the prefixes that cover them.
    pub fn tcam_entries(&self) -> u64 {
        let prefixes =
            |range: Option<flowlane::rule::PortRange>| range.map_or(1, |r| r.prefixes().len()) as u64;
        self.rules.iter().map(|m| prefixes(m.tp_src_range()) * prefixes(m.tp_dst_range())).sum()
    }

    /// Bits of a TCAM's entry: all that any rule looks at.
    pub fn tcam_bits(&self) -> u32 {
        let mut bits = [0u32; flowlane::packet::key::WORDS];
        for rule in &self.rules {
            rule.words().iter().for_each(|w| bits[usize::from(w.word)] |= w.mask);
            bits[word::PORTS] |= rule.tp_src_range().map_or(0, |_| 0xffff_0000);
            bits[word::PORTS] |= rule.tp_dst_range().map_or(0, |_| 0xffff);
        }
        bits.iter().map(|word| word.count_ones()).sum()
    }

    /// Bytes of a TCAM that holds the rules.
    pub fn tcam_bytes(&self) -> f64 {
        self.tcam_entries() as f64 * f64::from(self.tcam_bits().div_ceil(8).max(1))
    }
}

fn numbered(rules: &[Match]) -> impl Iterator<Item = (RuleId, Priority, &Match)> + Clone {
    let last = rules.len() as u32;
    rules.iter().enumerate().map(move |(n, rule)| (RuleId(n as u32), Priority(last - n as u32), rule))
}

/// Whether linear search does not take long.
fn is_short(rules: &[Match], packets: &[FlowKey]) -> bool {
    rules.len().saturating_mul(packets.len()) <= LINEAR_MAX
}

/// Which rule each packet's is.
fn definition(rules: &[Match], packets: &[FlowKey]) -> Vec<Option<u32>> {
    let ask =
        |table: &dyn Classifier| packets.iter().map(|key| table.lookup(key).map(|hit| hit.rule.0)).collect();
    let fill = |table: &mut dyn Classifier| {
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
