#![doc = include_str!("README.md")]

pub mod brute;
pub mod dynamic;
mod engine;
mod entry;
mod layout;
mod order;
mod search;
pub mod table;
pub mod tree;
mod wildcards;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use brute::{Brute, BruteKernel};
pub use dynamic::{Dynamic, DynamicConfig};
pub use engine::{BuildError, Engine, Explanation, MatchId};
pub use entry::{CATEGORIES_MAX, Condition, Entry, RankKey, best};
pub use layout::{FieldKind, FieldSpec, Layout, LayoutError, Value, ValueError, WordKind};
pub(crate) use search::looks_at;
pub use search::{AclSearch, FlowExplanation, FlowShape, HasMatch};
pub use table::{Acl, AclConfig, AclEngine};
pub use tree::{Tree, TreeConfig};

/// Keys that the layers above the engines pass on at a time: as many as the widest tree kernel has under way at once.
const BATCH: usize = 128;

/// Results of a call for which the room of a batch would take longer to clear than they take to find.
const FEW: usize = 8;

/// Returns the number of keys whose results fill a batch.
#[inline(always)]
const fn keys_per_batch(categories: usize) -> usize {
    // A burst of 32 would notice the division.
    if categories == 1 { BATCH } else { BATCH / categories }
}
