//! The definition.

use super::table::{GROUP, Table};
use crate::route::cell::Cell;

/// Addresses between the one that is looked up and the one whose entry is prefetched.
const AHEAD: usize = 24;

#[inline(always)]
pub(super) fn lookup<W: Cell>(table: &Table<W>, address: u32) -> u64 {
    let entry = table.entry((address >> 8) as usize);
    if entry & 1 == 0 {
        return entry >> 1;
    }
    table.tbl8[(entry >> 1) as usize * GROUP + (address & 0xff) as usize].get() >> 1
}

/// Looks up addresses one by one: what vector kernels leave at the end of a batch.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) fn lookup_batch<W: Cell>(table: &Table<W>, addresses: &[u32], next_hops: &mut [u64]) {
    for (address, next_hop) in addresses.iter().zip(next_hops) {
        *next_hop = lookup(table, *address);
    }
}

/// Looks up addresses one by one, and prefetches the entries of later ones.
pub(super) fn lookup_batch_ahead<W: Cell>(table: &Table<W>, addresses: &[u32], next_hops: &mut [u64]) {
    for address in addresses.iter().take(AHEAD) {
        table.prefetch_entry((address >> 8) as usize);
    }
    let later = addresses.iter().skip(AHEAD).map(Some).chain(std::iter::repeat(None));
    for ((address, next_hop), later) in addresses.iter().zip(next_hops).zip(later) {
        if let Some(later) = later {
            table.prefetch_entry((later >> 8) as usize);
        }
        *next_hop = lookup(table, *address);
    }
}
