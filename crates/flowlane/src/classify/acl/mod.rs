//! Access lists: many rules over any fields, looked up in batches.
//!
//! A caller declares its fields ([`Layout`]) and gives each rule as an [`Entry`]: a [`Condition`] on a key of `W`
//! words, a [`RankKey`] that orders it, the categories that it counts in, and its handle. An [`Engine`] finds the
//! best entry for each key of a batch; every engine, in every variant, must agree with [`best`], the definition.
//!
//! What is long and generic over the width is `#[inline(never)]`: compiled here once, and shared by the crates above.

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
pub use search::{AclSearch, FlowExplanation, FlowShape};
pub use table::{Acl, AclConfig, AclEngine};
pub use tree::{Tree, TreeConfig};
