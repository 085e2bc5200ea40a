#![doc = include_str!("README.md")]

mod hops;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lanes;
mod long;
mod pool;
mod scalar;
mod table;
mod writer;

use std::sync::Arc;

use crate::isa::Variant;
use crate::route::epoch::Participant;
use crate::route::{BuildError, Fib, FibConfig, FibReader, Prefix, Rib};
use table::Table;
use writer::Writer;

pub use hops::NEXT_HOPS_MAX;

/// The writer's handle of a table. See the [module](self).
#[derive(Debug)]
pub struct Compact(Writer);

/// A reader's handle.
#[derive(Clone, Debug)]
pub struct CompactReader {
    table: Arc<Table>,
    participant: Participant,
}

impl Compact {
    /// How many different next hops there are.
    pub fn next_hops(&self) -> usize {
        self.0.next_hops()
    }

    /// Returns the bytes that the writer keeps for itself.
    pub fn writer_bytes(&self) -> usize {
        self.0.writer_bytes()
    }
}

impl Fib<u32> for Compact {
    type Reader = CompactReader;

    fn build(rib: &Rib<u32>, config: &FibConfig) -> Result<Self, BuildError> {
        Writer::build(rib, config).map(Self)
    }

    fn update(&mut self, rib: &Rib<u32>, changed: Prefix<u32>) -> Result<(), BuildError> {
        self.0.update(rib, changed)
    }

    fn reader(&self) -> CompactReader {
        CompactReader { table: Arc::clone(&self.0.table), participant: self.0.epochs.join() }
    }

    fn lookup(&self, address: u32) -> u64 {
        scalar::lookup(&self.0.table, address)
    }

    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [u64]) {
        self.0.table.lookup_batch(addresses, next_hops);
    }

    fn table_bytes(&self) -> usize {
        self.0.table_bytes()
    }

    fn variant(&self) -> Variant {
        self.0.table.backend.get().variant()
    }
}

impl FibReader<u32> for CompactReader {
    fn lookup(&self, address: u32) -> u64 {
        let _inside = self.participant.enter();
        scalar::lookup(&self.table, address)
    }

    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [u64]) {
        let _inside = self.participant.enter();
        self.table.lookup_batch(addresses, next_hops);
    }
}
