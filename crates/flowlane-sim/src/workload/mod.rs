//! Workloads: real tables with keys from a seed, and the packets that are looked up in them.

mod packets;
pub mod rules;
mod tables;
mod tuples;

pub use packets::{Match, Packets};
pub use tables::{KEY_WORDS, Tables, TablesConfig, tables_for};
pub use tuples::TupleSearchProgram;
