//! Memory that the writer and its readers share.

use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::lanes::LookupBatch;
use super::scalar;
use crate::isa::Backend;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::isa::simd::InstructionSet;
use crate::memory::{Memory, prefetch};
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
    /// Entries of the first table, each less [`base`](Self::base): zero, and so not even in memory, where only the default route is.
    tbl24: Memory<W>,
    /// Groups, whose entries are as they are.
    pub(super) tbl8: Memory<W>,
    /// The entry of the default route, as it was when the table was built.
    base: u64,
    /// Whether vectors read groups without asking first whether any address needs them.
    always_reads_groups: AtomicBool,
    pub(super) backend: Backend,
}

impl<W: Cell> Table<W> {
    /// A table in which all addresses have the next hop `base`, with room for `groups`.
    pub(super) fn new(base: u64, groups: usize, backend: Backend) -> Self {
        let (tbl24, tbl8) = (Memory::zeroed(TBL24 + PADDING), Memory::zeroed(groups * GROUP + PADDING));
        Self { tbl24, tbl8, base: base << 1, always_reads_groups: AtomicBool::new(false), backend }
    }

    /// A table without entries, in which nothing is looked up.
    pub(super) fn empty(backend: Backend) -> Self {
        let always_reads_groups = AtomicBool::new(false);
        Self { tbl24: Memory::zeroed(0), tbl8: Memory::zeroed(0), base: 0, always_reads_groups, backend }
    }

    /// Returns the place of the first table, and the number that kernels add to each of its entries.
    #[inline(always)]
    pub(super) fn first(&self) -> (*const u8, u64) {
        (self.tbl24.as_ptr().cast(), self.base)
    }

    /// Returns entry `at` of the first table.
    #[inline(always)]
    pub(super) fn entry(&self, at: usize) -> u64 {
        self.tbl24[at].get().wrapping_add(self.base) & (u64::MAX >> (64 - 8 * W::BYTES))
    }

    /// Changes entry `at` of the first table.
    pub(super) fn set_entry(&self, at: usize, entry: u64) {
        self.tbl24[at].set(entry.wrapping_sub(self.base));
    }

    /// Returns whether vectors read groups without asking first.
    #[inline(always)]
    pub(super) fn always_reads_groups(&self) -> bool {
        self.always_reads_groups.load(Ordering::Relaxed)
    }

    /// Says whether vectors read groups without asking first.
    pub(super) fn set_always_reads_groups(&self, always: bool) {
        self.always_reads_groups.store(always, Ordering::Relaxed);
    }

    /// Asks for entry `at` of the first table, to be read soon.
    #[inline(always)]
    pub(super) fn prefetch_entry(&self, at: usize) {
        prefetch(&self.tbl24, at);
    }

    pub(super) fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [u64]) {
        let next_hops = &mut next_hops[..addresses.len()];
        match self.backend {
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(isa) => isa.run(LookupBatch { table: self, addresses, next_hops }),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(isa) => isa.run(LookupBatch { table: self, addresses, next_hops }),
            #[cfg(target_arch = "aarch64")]
            Backend::Neon(isa) => isa.run(LookupBatch { table: self, addresses, next_hops }),
            _ => scalar::lookup_batch_ahead(self, addresses, next_hops),
        }
    }
}
