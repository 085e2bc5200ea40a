//! Linear search: rule after rule, best first, until one matches.
//!
//! This is the definition that every other engine is tested against, and the fastest for a handful of rules.
//! Ranges stay ranges. Cost: one to a few words compared per rule before the winner.
//!
//! **Wildcards.** The winner's own bits, and for each better rule one reason why it does
//! not match: if bits already looked at are reason enough, none is added. For addresses and ports the
//! reason is the prefix up to the first bit that differs, so that the number of different masks stays
//! small; for a range, the shortest prefix of the port that lies wholly inside or outside of it.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::rank::{Rank, Ranked};
use super::{Hit, InsertError, ReplicatedEngine, RuleEngine};
use crate::packet::fields::word;
use crate::packet::key::{FlowKey, FlowMask};
use crate::rule::matching::MaskedWord;
use crate::rule::{Match, Priority, RuleId};

/// Rules in order of rank.
#[derive(Clone, Debug)]
pub struct LinearSearch {
    /// Best first.
    rules: Vec<(Ranked, Match)>,
    ranks: HashMap<RuleId, Rank>,
    sequence: u64,
    rules_max: usize,
}

impl LinearSearch {
    /// Creates an empty table for at most `rules_max` rules.
    pub fn new(rules_max: usize) -> Self {
        Self { rules: Vec::new(), ranks: HashMap::new(), sequence: 0, rules_max }
    }

    /// Returns the rules, best first.
    pub fn rules(&self) -> impl Iterator<Item = (RuleId, Priority, &Match)> {
        self.rules.iter().map(|(ranked, matches)| (ranked.rule, ranked.rank.priority, matches))
    }

    fn place(&mut self, id: RuleId, rank: Rank, matches: &Match) {
        let at = self.rules.partition_point(|(r, _)| r.rank > rank);
        self.rules.insert(at, (Ranked { rank, rule: id }, matches.clone()));
        self.ranks.insert(id, rank);
    }

    fn displace(&mut self, id: RuleId) -> Option<Rank> {
        let rank = self.ranks.remove(&id)?;
        let at = self.rules.partition_point(|(r, _)| r.rank > rank);
        self.rules.remove(at);
        Some(rank)
    }
}

impl ReplicatedEngine for LinearSearch {
    fn clone_box(&self) -> Box<dyn ReplicatedEngine> {
        Box::new(self.clone())
    }
}

impl RuleEngine for LinearSearch {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn insert(&mut self, id: RuleId, priority: Priority, matches: &Match) -> Result<(), InsertError> {
        if self.ranks.contains_key(&id) {
            return Err(InsertError::Duplicate(id));
        }
        if self.rules.len() >= self.rules_max {
            return Err(InsertError::Full { rules_max: self.rules_max });
        }
        let rank = Rank { priority, sequence: Reverse(self.sequence) };
        self.sequence += 1;
        self.place(id, rank, matches);
        Ok(())
    }

    fn remove(&mut self, id: RuleId) -> bool {
        self.displace(id).is_some()
    }

    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> bool {
        let Some(rank) = self.displace(id) else { return false };
        self.place(id, Rank { priority, ..rank }, matches);
        true
    }

    fn lookup(&self, key: &FlowKey) -> Option<Hit> {
        self.rules.iter().find(|(_, m)| m.matches(key)).map(|(r, _)| r.hit())
    }

    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<Hit> {
        for (rule, matches) in &self.rules {
            if matches.matches(key) {
                add_match(matches, key, looked_at);
                return Some(rule.hit());
            }
            add_mismatch(matches, key, looked_at);
        }
        None
    }

    fn rules_max(&self) -> Option<usize> {
        Some(self.rules_max)
    }

    fn len(&self) -> usize {
        self.rules.len()
    }

    fn table_bytes(&self) -> usize {
        self.rules.capacity() * size_of::<(Ranked, Match)>()
            + self.rules.iter().map(|(_, m)| size_of_val(m.words())).sum::<usize>()
            + self.ranks.capacity() * (size_of::<(RuleId, Rank)>() + 1)
    }
}

/// Adds the bits because of which `key` matches.
fn add_match(matches: &Match, key: &FlowKey, looked_at: &mut FlowMask) {
    for w in matches.words() {
        looked_at.or_word(w.word.into(), w.mask);
    }
    matches.add_range_bits(key, looked_at);
}

/// Adds bits because of which `key` does not match, unless some are there already.
fn add_mismatch(matches: &Match, key: &FlowKey, looked_at: &mut FlowMask) {
    let differing = |w: &MaskedWord| (key.word(w.word.into()) ^ w.value) & w.mask;
    if matches.words().iter().any(|w| differing(w) & looked_at.word(w.word.into()) != 0) {
        return;
    }
    if let Some(w) = matches.words().iter().find(|w| differing(w) != 0) {
        looked_at.or_word(w.word.into(), w.mask & reason_bits(w.word.into(), differing(w)));
        return;
    }
    matches.add_range_bits(key, looked_at);
}

/// Returns the bits of a word that show a difference in the bits `differing`: down to the first of these in
/// words that hold addresses or ports, all in others.
fn reason_bits(w: usize, differing: u32) -> u32 {
    let down_to = |bit: u32| u32::MAX << bit;
    match w {
        word::IPV6_SRC..word::PORTS | word::IPV4_SRC | word::IPV4_DST => down_to(differing.ilog2()),
        word::PORTS if differing >> 16 != 0 => down_to(differing.ilog2()),
        word::PORTS => down_to(differing.ilog2()) & 0xffff,
        _ => u32::MAX,
    }
}
