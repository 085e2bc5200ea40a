//! Workloads: tables with keys from a seed, the packets looked up in them, and the recorded lookups.

mod packets;
mod recorder;
pub mod rules;
mod tables;

pub use packets::Packets;
pub use recorder::{Lookup, Recorder, TablePlace};
pub use tables::{KEY_WORDS, Tables, TablesConfig, tables_for};

/// Lookups in one batch.
pub(crate) const BATCH: usize = 32;
