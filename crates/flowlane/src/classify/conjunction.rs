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
//! The rules of clauses are not expanded, and are not among those that packets match. Of these, a lookup takes all that match
//! instead of the best:
//!
//! ```text
//! key ─ TupleSearch of the distinct matches ─► marks of each that it meets: for clause 1  0010 1101  ┐
//!                                              (a bit for each place)       for clause 2  1000 1100  ┴ and ─► 0000 1100
//! ```
//!
//! A *place* is a conjunction of one priority. Rules with the same match, of whatever priority, are one entry: a packet meets an
//! address and a port, whatever number of policies these are in. Places are met 64 at a time.
//!
//! Cost of a lookup: a probe for each mask of these rules, then a step for each block of 64 places and clause that a rule which
//! matched is for.

mod parts;

use std::cell::RefCell;
use std::cmp::Reverse;

use self::parts::Parts;
use super::{Hit, InsertError};
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
    /// Returns the clauses that a rule with these actions is for: none where it is an ordinary one.
    pub fn of(actions: &[Action]) -> Vec<Clause> {
        let clause = |action: &Action| match *action {
            Action::Conjunction { id, clause, clauses } => Some(Clause { id, clauses, clause }),
            _ => None,
        };
        actions.iter().filter_map(clause).collect()
    }
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
    parts: Parts,
}

/// Room for a lookup, which is used again.
struct Room {
    /// By block of places: the clauses that are met. All 0 between lookups.
    met: Vec<u64>,
    /// The blocks of which some are.
    blocks: Vec<u32>,
    /// The places all of whose clauses are met.
    whole: Vec<u32>,
}

thread_local! {
    static ROOM: RefCell<Room> = const { RefCell::new(Room { met: Vec::new(), blocks: Vec::new(), whole: Vec::new() }) };
}

impl Conjunctions {
    /// Makes an empty one for at most `rules_max` rules. `seed` keys the hashes: keep it secret where the traffic may be hostile.
    pub fn new(rules_max: usize, seed: u32) -> Self {
        Self { parts: Parts::new(rules_max, seed) }
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
        self.parts.insert(id, priority, matches, clauses)
    }

    /// Replaces the clauses that a rule is for.
    pub fn set(&mut self, id: RuleId, clauses: &[Clause]) {
        self.parts.set(id, clauses);
    }

    /// Removes a rule. Returns whether it was there.
    pub fn remove(&mut self, id: RuleId) -> bool {
        self.parts.remove(id)
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.parts.len() == 0
    }

    /// Returns the size in bytes.
    pub fn table_bytes(&self) -> usize {
        self.parts.table_bytes()
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
        let above = hard.map(|hit| hit.priority);
        // `lookup` may be of a table that has conjunctions, too.
        let mut whole = ROOM.with_borrow_mut(|room| {
            self.mark(room, key, above, looked_at.as_deref_mut());
            std::mem::take(&mut room.whole)
        });
        let rank = |place: &u32| {
            let place = self.parts.place(*place);
            (Reverse(place.priority), place.id)
        };
        let mut winner = hard;
        while let Some(best) = (0..whole.len()).min_by_key(|at| rank(&whole[*at])) {
            let place = whole.swap_remove(best);
            let mut again = key.clone();
            again.set(Field::ConjId, self.parts.place(place).id.into());
            if let Some(hit) = lookup(&again, looked_at.as_deref_mut()) {
                winner = Some(hit);
                break;
            }
        }
        whole.clear();
        ROOM.with_borrow_mut(|room| room.whole = whole);
        if let Some(looked_at) = looked_at {
            looked_at.set(Field::ConjId, 0);
        }
        winner
    }

    /// Finds the places above a priority all of whose clauses `key` meets.
    fn mark(
        &self,
        Room { met, blocks, whole }: &mut Room,
        key: &FlowKey,
        above: Option<Priority>,
        looked_at: Option<&mut FlowMask>,
    ) {
        // Of each block, whether it has been touched, and the places that are met by clause.
        let stride = self.parts.clauses_max() + 1;
        if met.len() < self.parts.blocks() * stride {
            met.resize(self.parts.blocks() * stride, 0);
        }
        blocks.clear();
        self.parts.entries().matching(key, above, looked_at, &mut |hit| {
            for marks in self.parts.marks(hit.rule.0) {
                let of_block = &mut met[marks.block as usize * stride..][..stride];
                if of_block[0] == 0 {
                    of_block[0] = 1;
                    blocks.push(marks.block);
                }
                of_block[1 + usize::from(marks.clause)] |= marks.places;
            }
        });
        for &block in &*blocks {
            let (needed, of_block) =
                (self.parts.needed(block), &mut met[block as usize * stride..][..stride]);
            let is_met = |all, (needed, met): (&u64, &u64)| all & (met | !needed);
            let mut places = needed.iter().zip(&of_block[1..]).fold(needed[0], is_met);
            of_block.fill(0);
            while places != 0 {
                let place = block * 64 + places.trailing_zeros();
                places &= places - 1;
                if above.is_none_or(|above| self.parts.place(place).priority > above) {
                    whole.push(place);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
