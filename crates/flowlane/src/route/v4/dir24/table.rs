//! Memory that the writer and its readers share.

#[cfg(target_arch = "x86_64")]
use super::lanes::LookupBatch;
use super::scalar;
use crate::isa::Backend;
#[cfg(target_arch = "x86_64")]
use crate::isa::simd::InstructionSet;
use crate::memory::Memory;
use crate::route::cell::Cell;

/// Addresses of a group: all that have their first 24 bits in common.
pub(super) const GROUP: usize = 256;

/// Entries of the first table.
pub(super) const TBL24: usize = 1 << 24;

/// Entries behind the last, so that a lane of a gather may read four bytes where an entry has one.
pub(super) const PADDING: usize = 4;

// Alone on its lines: what the allocator puts beside it may be the writer's, and is written with each change.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Table<W: Cell> {
    pub(super) tbl24: Memory<W>,
    pub(super) tbl8: Memory<W>,
    pub(super) backend: Backend,
}

impl<W: Cell> Table<W> {
    pub(super) fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [u64]) {
        let next_hops = &mut next_hops[..addresses.len()];
        match self.backend {
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(isa) => isa.run(LookupBatch { table: self, addresses, next_hops }),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(isa) => isa.run(LookupBatch { table: self, addresses, next_hops }),
            _ => scalar::lookup_batch_ahead(self, addresses, next_hops),
        }
    }
}
