//! Flowlane's rule tables on CUDA devices.
//!
//! The crate builds and runs without a device: the driver is loaded on first use, and [`GpuError`] tells which part is
//! missing. A [`Device`] holds the kernels; a [`GpuTable`] is a rule set on it, found by one [`Method`]; a [`Session`]
//! sends batches through it, several at once.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use flowlane::classify::acl::{Condition, Entry, Layout, RankKey};
//! use flowlane::rule::{Priority, RuleId};
//! use flowlane_gpu::{Device, GpuTable, Method, Session, SessionConfig};
//!
//! let device = Device::open(0)?;
//! let kinds = *Layout::ipv4_five_tuple().kinds();
//! let condition = Condition::any(&kinds);
//! let entry = Entry { condition, rank: RankKey::new(Priority(1), 0), rule: RuleId(7), categories: 1 };
//! let table = Arc::new(GpuTable::build(&device, Method::Bloom, &kinds, &[entry], 0x5eed, 1)?);
//! let mut session = Session::new(&device, SessionConfig::default())?;
//! let mut hits = [None];
//! session.lookup_batch(&table, &[[0, 6, 1, 2]], &mut hits)?;
//! assert_eq!(hits[0].map(|hit| hit.rule), Some(RuleId(7)));
//! # Ok::<(), flowlane_gpu::GpuError>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`device`] | devices, and the kernels on them |
//! | [`search`] | search methods: a file for each kernel |
//! | [`table`] | a rule set on a device |
//! | [`session`] | batches in flight; full ones by graphs |
//! | [`resident`] | keys that stay on a device, to measure kernels by themselves |
//! | [`ceilings`] | upper bounds of a device |
//! | [`classifier`] | rules for flow keys, with the CPU as a fallback |
//! | [`ternary`] | rules without ranges |
//!
//! Kernels are in `kernels/`. Tests run them on the CPU, unmodified, behind a driver of their own (`host/`).

#![deny(missing_docs)]

pub mod ceilings;
pub mod classifier;
pub mod device;
mod error;
mod graph;
pub mod resident;
pub mod search;
pub mod session;
pub mod table;
pub mod ternary;

/// Tables on the host in the layout of the kernels. The OpenCL kernels of `flowlane-paper` use the same layout.
#[doc(hidden)]
pub mod kernel_tables {
    pub use crate::search::bloom::Filters;
    pub use crate::search::classes::{ClassTables, PRIME, SLOTS, SUBTABLES, words_of_class};
    pub use crate::search::linear::{rule_words, words_of_rule};
    pub use crate::table::{ENTRIES_MAX, WORDS_MAX};
}

pub use classifier::{Changes, GpuConfig, GpuSearch, Rebuild};
pub use device::{Device, DeviceProperties};
pub use error::GpuError;
pub use resident::ResidentKeys;
pub use search::Method;
pub use session::{Answered, Session, SessionConfig};
pub use table::GpuTable;
