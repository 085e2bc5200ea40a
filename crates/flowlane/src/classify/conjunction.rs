//! Conjunctive matches: rules whose matches are to be met together (ovs-fields(7), `conj_id`).
//!
//! "Source in a set of *m* addresses and destination in a set of *n*" is *m × n* rules, or *m + n* rules of two *clauses*: each
//! address of the first set is a rule of clause 0, each of the second a rule of clause 1, and one more rule matches the number of
//! the conjunction and says what happens to packets that meet both:
//!
//! ```text
//! ip,nw_src=10.0.0.1 → conjunction(5,1/2)      ip,nw_dst=10.9.0.1 → conjunction(5,2/2)
//! ip,nw_src=10.0.0.2 → conjunction(5,1/2)      ip,nw_dst=10.9.0.2 → conjunction(5,2/2)
//! conj_id=5,ip → output:3
//! ```
//!
//! The rules of clauses are not expanded, and are not among those that packets match: they are in a [`TupleSearch`] of their own,
//! of which a lookup takes all that match instead of the best.
//!
//! Cost of a lookup: a probe for each mask of these rules, then one step for each clause that a rule which matched is for.

use std::cmp::Reverse;

use super::{Hit, InsertError, RuleEngine, TupleSearch};
use crate::packet::Field;
use crate::packet::key::{FlowKey, FlowMask};
use crate::rule::{Action, Match, Priority, RuleId};

/// A clause that a rule is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Clause {
    /// The number of the conjunction.
    pub id: u32,
    /// Its number of clauses, 2 to 64. Clauses of another number are of another conjunction.
    pub clauses: u8,
    /// Which of them this is, from 0.
    pub clause: u8,
}

impl Clause {
    /// Returns a number for it, in order: clauses of one conjunction follow one another, and agree but for their last byte.
    fn code(self) -> u64 {
        u64::from(self.id) << 16 | u64::from(self.clauses) << 8 | u64::from(self.clause)
    }

    /// Returns the clauses that a rule with these actions is for: none where it is an ordinary one.
    pub fn of(actions: &[Action]) -> Vec<Clause> {
        let clause = |action: &Action| match *action {
            Action::Conjunction { id, clause, clauses } => Some(Clause { id, clauses, clause }),
            _ => None,
        };
        actions.iter().filter_map(clause).collect()
    }
}

/// Returns the numbers of the conjunctions all of whose clauses are among these [codes](Clause::code), in order and each once.
fn whole(codes: &[u64]) -> impl Iterator<Item = u32> {
    let of_one = codes.chunk_by(|one, other| one >> 8 == other >> 8);
    let whole = of_one.filter(|same| same.len() as u64 == same[0] >> 8 & 0xff);
    whole.map(|same| (same[0] >> 16) as u32)
}

/// A rule's clauses.
#[derive(Clone, Debug, Default)]
struct Part {
    /// Their [codes](Clause::code), in order.
    codes: Box<[u64]>,
    /// It is for all clauses of some conjunction.
    is_whole: bool,
}

/// The rules of a table that are parts of conjunctions.
///
/// ```
/// use flowlane::classify::conjunction::{Clause, Conjunctions};
/// use flowlane::classify::{LinearSearch, RuleEngine};
/// use flowlane::packet::{Field, FlowKey};
/// use flowlane::rule::{Match, Priority, RuleId};
///
/// let (mut rules, mut parts) = (LinearSearch::new(100), Conjunctions::new(100, 1));
/// let clause = |clause| [Clause { id: 5, clauses: 2, clause }];
/// parts.insert(RuleId(0), Priority(7), Match::any().set(Field::TpSrc, 1), &clause(0))?;
/// parts.insert(RuleId(1), Priority(7), Match::any().set(Field::TpDst, 2), &clause(1))?;
/// rules.insert(RuleId(2), Priority(7), Match::any().set(Field::ConjId, 5))?;
///
/// let mut key = FlowKey::zero();
/// let winner = |key: &FlowKey| parts.winner(key, rules.lookup(key), None, |key, _| rules.lookup(key));
/// key.set(Field::TpSrc, 1);
/// assert_eq!(winner(&key), None);
/// key.set(Field::TpDst, 2);
/// assert_eq!(winner(&key).expect("both clauses are met").rule, RuleId(2));
/// # Ok::<(), flowlane::classify::InsertError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Conjunctions {
    rules: TupleSearch,
    /// By rule.
    parts: Vec<Part>,
}

impl Conjunctions {
    /// Makes an empty one for at most `rules_max` rules. `seed` keys the hashes: keep it secret where the traffic may be hostile.
    pub fn new(rules_max: usize, seed: u32) -> Self {
        Self { rules: TupleSearch::new(rules_max, seed), parts: Vec::new() }
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// Where `id` is in use or the table is full; nothing has changed.
    pub fn insert(
        &mut self,
        id: RuleId,
        priority: Priority,
        matches: &Match,
        clauses: &[Clause],
    ) -> Result<(), InsertError> {
        self.rules.insert(id, priority, matches)?;
        self.set(id, clauses);
        Ok(())
    }

    /// Replaces the clauses that a rule is for.
    pub fn set(&mut self, id: RuleId, clauses: &[Clause]) {
        let at = id.0 as usize;
        if self.parts.len() <= at {
            self.parts.resize_with(at + 1, Part::default);
        }
        let mut codes: Vec<u64> = clauses.iter().map(|clause| clause.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        let is_whole = whole(&codes).next().is_some();
        self.parts[at] = Part { codes: codes.into(), is_whole };
    }

    /// Removes a rule. Returns whether it was there.
    pub fn remove(&mut self, id: RuleId) -> bool {
        let removed = self.rules.remove(id);
        if removed {
            self.parts[id.0 as usize] = Part::default();
        }
        removed
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the size in bytes.
    pub fn table_bytes(&self) -> usize {
        let codes = self.parts.iter().map(|part| size_of_val(&*part.codes));
        self.rules.table_bytes() + self.parts.capacity() * size_of::<Part>() + codes.sum::<usize>()
    }

    /// Returns the winning rule for `key` of the table whose ordinary rules are found by `lookup`; `hard` is what that has found.
    ///
    /// The conjunctions above `hard`'s priority are tried from the highest priority on: where all clauses of one are met by rules
    /// of the same priority, and the packet, looked up again with the conjunction's number as `conj_id`, matches a rule, then
    /// that rule wins, whatever its priority. Of several of a priority the smallest number comes first.
    ///
    /// With `looked_at`, the bits that the answer depends on are added to it, but for `conj_id`, which is of no packet.
    pub fn winner(
        &self,
        key: &FlowKey,
        hard: Option<Hit>,
        mut looked_at: Option<&mut FlowMask>,
        mut lookup: impl FnMut(&FlowKey, Option<&mut FlowMask>) -> Option<Hit>,
    ) -> Option<Hit> {
        let mut found: Vec<Hit> = Vec::new();
        let above = hard.map(|hit| hit.priority);
        self.rules.matching(key, above, looked_at.as_deref_mut(), &mut |hit| found.push(hit));
        found.sort_unstable_by_key(|hit| Reverse(hit.priority));
        let (mut winner, mut codes) = (hard, Vec::new());
        'all: for rules in found.chunk_by(|one, other| one.priority == other.priority) {
            for id in self.met(rules, &mut codes) {
                let mut again = key.clone();
                again.set(Field::ConjId, id.into());
                if let Some(hit) = lookup(&again, looked_at.as_deref_mut()) {
                    winner = Some(hit);
                    break 'all;
                }
            }
        }
        if let Some(looked_at) = looked_at {
            looked_at.set(Field::ConjId, 0);
        }
        winner
    }

    /// Returns the numbers of the conjunctions all of whose clauses some rules are for. `codes` is room that is used again.
    fn met<'a>(&self, rules: &[Hit], codes: &'a mut Vec<u64>) -> impl Iterator<Item = u32> + use<'a> {
        codes.clear();
        let part = |hit: &Hit| &self.parts[hit.rule.0 as usize];
        // Nearly always a rule alone is for no whole conjunction.
        if rules.len() > 1 || part(&rules[0]).is_whole {
            rules.iter().for_each(|hit| codes.extend_from_slice(&part(hit).codes));
            // The standard sort merges runs: the codes of each rule are in order.
            codes.sort();
            codes.dedup();
        }
        whole(codes)
    }
}

#[cfg(test)]
mod tests;
