//! Rule tables: given a flow key, which rule wins.
//!
//! Every engine implements [`RuleEngine`] and must agree with linear search, which is the definition.

pub mod acl;
mod async_engine;
pub mod auto;
mod counts;
pub mod linear;
mod rank;
pub mod tuple;

#[cfg(test)]
mod tests;

pub use acl::AclSearch;
pub use async_engine::AsyncEngine;
pub use counts::HitCounts;
pub use linear::LinearSearch;
pub use tuple::TupleSearch;

use crate::packet::batch::LaneMask;
use crate::packet::key::{FlowKey, FlowMask};
use crate::rule::{Match, Priority, RuleId};

/// The rule that won.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// The handle under which the rule was inserted.
    pub rule: RuleId,
    /// Its priority.
    pub priority: Priority,
}

/// Why a rule was not accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// The handle is in use; `replace` changes a rule in place.
    #[error("rule {} is in the table already; replace it, or remove it first", .0.0)]
    Duplicate(RuleId),
    /// The table holds as many rules as it may.
    #[error("the table holds its limit of {rules_max} rules; raise the limit or remove rules")]
    Full {
        /// The limit.
        rules_max: usize,
    },
    /// An access list's limit.
    #[error(transparent)]
    Acl(#[from] acl::BuildError),
}

/// A table of rules.
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
/// let hit = table.lookup_wildcards(&key, &mut looked_at).expect("rule 0 is for every packet");
/// assert_eq!(hit.rule, RuleId(0));
/// // The port counted: a packet to port 22 would have got another answer.
/// assert_ne!(looked_at.get(Field::TpDst), 0);
/// # Ok::<(), flowlane::classify::InsertError>(())
/// ```
pub trait RuleEngine: Send {
    /// The engine's name, as on the command line.
    fn name(&self) -> &'static str;

    /// Adds a rule behind all others of its priority.
    ///
    /// # Errors
    /// Where `id` is in use or the table is full; the table is as before.
    fn insert(&mut self, id: RuleId, priority: Priority, matches: &Match) -> Result<(), InsertError>;

    /// Removes a rule. Says whether it was there.
    fn remove(&mut self, id: RuleId) -> bool;

    /// Gives a rule another match and priority. Among rules of equal priority it keeps the place that its
    /// first insertion gave it. Says whether it was there.
    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> bool;

    /// The winning rule for `key`.
    fn lookup(&self, key: &FlowKey) -> Option<Hit>;

    /// The winning rule for `key`, and in `looked_at` (added to what is there) every bit of the key that
    /// the answer depends on: any key that agrees with this one in those bits gets the same answer.
    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<Hit>;

    /// The winning rules for a batch, one after the other in `hits`. Engines that gain from batches
    /// override this.
    ///
    /// # Panics
    /// Where the slices differ in length.
    fn lookup_batch(&self, keys: &[FlowKey], hits: &mut [Option<Hit>]) {
        assert_eq!(keys.len(), hits.len());
        for (key, hit) in keys.iter().zip(hits) {
            *hit = self.lookup(key);
        }
    }

    /// The winning rules for some lanes of a burst, each at its lane in `hits`; the others stay as they are. Engines
    /// that gain from batches override this.
    ///
    /// # Panics
    /// Where a lane lies outside of the slices.
    fn lookup_lanes(&self, keys: &[FlowKey], lanes: LaneMask, hits: &mut [Option<Hit>]) {
        lanes.lanes().for_each(|lane| hits[lane] = self.lookup(&keys[lane]));
    }

    /// Number of rules.
    fn len(&self) -> usize;

    /// Whether there are no rules.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the table occupies, its allocations included.
    fn table_bytes(&self) -> usize;
}

/// A table that many threads may read while nobody changes it, and of which there may be several copies: of two copies, one is
/// read while the other is changed.
pub trait ReplicatedEngine: RuleEngine + Sync {
    /// A copy that answers alike, and goes on to do so after equal changes. What takes long to build is shared.
    fn clone_box(&self) -> Box<dyn ReplicatedEngine>;

    /// The engine that has the rules, where the table has a choice: a table built with it again is as this one.
    fn engine_name(&self) -> &'static str {
        self.name()
    }

    /// From now on no change takes long, as far as that can be: whoever owns the table has another one built on another thread
    /// when there have been [many](Self::pending_updates).
    fn defer_rebuilds(&mut self) {}

    /// Changes that lookups make good for: none where the table is as fast as if it had been built just now.
    fn pending_updates(&self) -> usize {
        0
    }
}
