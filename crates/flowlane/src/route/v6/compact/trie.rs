//! Tables alone where nearly all routes are: more memory, and a lookup without comparisons.

use super::build::Form;
use super::{Compact, CompactReader};
use crate::isa::Variant;
use crate::route::{BuildError, Fib, FibConfig, Prefix, Rib};

/// The writer's handle of a [`Compact`] table that has tables in place of nodes in the first 48 bits of addresses.
///
/// It answers faster where the tables that packets need stay in the nearest caches, since few destinations have most of them.
#[derive(Debug)]
pub struct Trie(Compact);

impl Fib<u128> for Trie {
    type Reader = CompactReader;

    fn build(rib: &Rib<u128>, config: &FibConfig) -> Result<Self, BuildError> {
        Compact::build_as(Form::Trie, rib, config).map(Self)
    }

    fn update(&mut self, rib: &Rib<u128>, changed: Prefix<u128>) -> Result<(), BuildError> {
        self.0.update(rib, changed)
    }

    fn reader(&self) -> CompactReader {
        self.0.reader()
    }

    fn lookup(&self, address: u128) -> u64 {
        self.0.lookup(address)
    }

    fn lookup_batch(&self, addresses: &[u128], next_hops: &mut [u64]) {
        self.0.lookup_batch(addresses, next_hops);
    }

    fn table_bytes(&self) -> usize {
        self.0.table_bytes()
    }

    fn variant(&self) -> Variant {
        self.0.variant()
    }
}

#[cfg(test)]
impl Trie {
    pub(super) fn compact(&mut self) -> &mut Compact {
        &mut self.0
    }
}
