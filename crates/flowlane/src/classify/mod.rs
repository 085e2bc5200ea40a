//! Rule tables: engines that find the winning rule of a flow key.
//!
//! Every engine implements [`RuleEngine`] and must agree with linear search, which is the definition.

pub mod acl;
mod async_engine;
pub mod auto;
pub mod conjunction;
mod counts;
pub mod linear;
mod rank;
pub mod tuple;

#[cfg(test)]
mod tests;

pub use acl::AclSearch;
pub use async_engine::AsyncEngine;
pub use conjunction::Conjunctions;
pub use counts::HitCounts;
pub use linear::LinearSearch;
pub use tuple::TupleSearch;

use crate::packet::batch::LaneMask;
use crate::packet::key::{FlowKey, FlowMask};
use crate::rule::{Match, Priority, RuleId};

/// The winning rule of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// The rule number under which the rule was inserted.
    pub rule: RuleId,
    /// Its priority.
    pub priority: Priority,
}

/// The reasons to refuse a rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// The rule number is in use; `replace` changes a rule in place.
    #[error("rule {} is in the table already; replace it, or remove it first", .0.0)]
    Duplicate(RuleId),
    /// The table holds its limit of rules.
    #[error("the table holds its limit of {rules_max} rules; raise the limit or remove rules")]
    Full {
        /// The limit.
        rules_max: usize,
    },
    /// The access list refuses the rule.
    #[error(transparent)]
    Acl(#[from] acl::BuildError),
}

/// A table of rules, of any engine.
///
/// ```
/// use flowlane::classify::{RuleEngine, LinearSearch};
/// use flowlane::packet::{Field, FlowKey, FlowMask};
/// use flowlane::rule::{Match, Priority, RuleId};
///
/// let mut table = LinearSearch::new(100);
/// table.insert(RuleId(0), Priority(1), &Match::any())?;
/// table.insert(RuleId(1), Priority(2), Match::any().set(Field::TpDst, 22))?;
/// let (mut key, mut looked_at) = (FlowKey::zero(), FlowMask::zero());
/// key.set(Field::TpDst, 80);
/// let hit = table.lookup_wildcards(&key, &mut looked_at).expect("rule 0 matches every packet");
/// assert_eq!(hit.rule, RuleId(0));
/// // The answer depends on the port: another rule wins for port 22.
/// assert_ne!(looked_at.get(Field::TpDst), 0);
/// # Ok::<(), flowlane::classify::InsertError>(())
/// ```
pub trait RuleEngine: Send {
    /// Returns the engine's name, as on the command line.
    fn name(&self) -> &'static str;

    /// Adds a rule behind all others of its priority.
    ///
    /// # Errors
    /// Where `id` is in use or the table is full; the table is as before.
    fn insert(&mut self, id: RuleId, priority: Priority, matches: &Match) -> Result<(), InsertError>;

    /// Removes a rule. Returns whether it was there.
    fn remove(&mut self, id: RuleId) -> bool;

    /// Gives a rule another match and priority. Among rules of equal priority it keeps the place of its
    /// first insertion. Returns whether it was there.
    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> bool;

    /// Finds the winning rule for `key`.
    fn lookup(&self, key: &FlowKey) -> Option<Hit>;

    /// Finds the winning rule for `key`, and adds to `looked_at` every bit of the key that the answer
    /// depends on: keys that agree with this one in those bits get the same answer. Bits that are in it already count,
    /// too: an engine prefers them where several ways show that a rule does not match.
    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<Hit>;

    /// Finds the winning rule of each key of a batch. Engines that gain from batches override this.
    ///
    /// # Panics
    /// Where the slices differ in length.
    fn lookup_batch(&self, keys: &[FlowKey], hits: &mut [Option<Hit>]) {
        assert_eq!(keys.len(), hits.len());
        for (key, hit) in keys.iter().zip(hits) {
            *hit = self.lookup(key);
        }
    }

    /// Finds the winning rules of some lanes of a burst, each at its lane in `hits`; other lanes stay as they are. Engines
    /// that gain from batches override this.
    ///
    /// # Panics
    /// Where a lane lies outside of the slices.
    fn lookup_lanes(&self, keys: &[FlowKey], lanes: LaneMask, hits: &mut [Option<Hit>]) {
        lanes.lanes().for_each(|lane| hits[lane] = self.lookup(&keys[lane]));
    }

    /// Returns the number of rules.
    fn len(&self) -> usize;

    /// Returns whether there are no rules.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the table, its allocations included.
    fn table_bytes(&self) -> usize;

    /// The most rules that it holds; `None` where only memory limits them.
    fn rules_max(&self) -> Option<usize> {
        None
    }
}

/// A table with several copies: threads read one while another is changed.
pub trait ReplicatedEngine: RuleEngine + Sync {
    /// Returns a copy, which gives the same answers after the same changes. Copies share engines that take long to build.
    fn clone_box(&self) -> Box<dyn ReplicatedEngine>;

    /// Returns the name of the engine that holds the rules: a table built with it is as fast as this one.
    fn engine_name(&self) -> &'static str {
        self.name()
    }

    /// Bounds the time of changes from now on: the owner rebuilds the table on another thread after
    /// [many](Self::pending_updates) of them.
    fn defer_rebuilds(&mut self) {}

    /// Prepares the engine for changes in place, on the thread that has built it: makes room for them, and copies what it shares with
    /// its copies.
    fn prepare_changes(&mut self) {}

    /// Returns whether changes are made in place, so that lookups stay as fast after many of them.
    fn takes_changes(&self) -> bool {
        false
    }

    /// Returns the number of changes since the last build that slow lookups down; all rules, where another build suits them better.
    fn pending_updates(&self) -> usize {
        0
    }
}
