//! The definition.

use std::sync::atomic::Ordering::Acquire;

use super::node::{self, CHILDREN, FLAT, LONG_HEAD, NODE};
use super::table::{DIRECT_SHIFT, Table};

#[inline(always)]
pub(super) fn lookup(table: &Table, address: u32) -> u64 {
    let entry = table.direct()[(address >> DIRECT_SHIFT) as usize].load(Acquire);
    let hop = if entry & NODE == 0 { entry } else { in_chunk(table, entry, address) };
    table.next_hops[hop as usize].load(Acquire)
}

/// The index of the next hop of `address`, whose entry in the direct table leads to a chunk.
#[inline(always)]
fn in_chunk(table: &Table, entry: u32, address: u32) -> u32 {
    let (pool, at) = (table.pool(), node::place(entry));
    let slot = address >> 8 & 63;
    let code = match entry & FLAT {
        0 => node::code(pool, at + 1, (pool[at].load(Acquire) << (63 - slot)).count_ones() - 1),
        _ => node::code(pool, at, slot),
    };
    if code < CHILDREN { u32::from(code) } else { in_long_chunk(table, entry, code, address) }
}

/// The index of the next hop of `address`, whose code in the chunk that `entry` leads to names a long chunk.
#[inline(never)]
pub(super) fn in_long_chunk(table: &Table, entry: u32, code: u16, address: u32) -> u32 {
    let pool = table.pool();
    let at = node::place(node::entry_of(pool, entry, code));
    let (word, bit) = (address >> 6 & 3, address & 63);
    let before = (pool[at + 4].load(Acquire) >> (16 * word)) as u16;
    let bits = pool[at + word as usize].load(Acquire);
    let rank = u32::from(before) + (bits << (63 - bit)).count_ones() - 1;
    node::code(pool, at + LONG_HEAD, rank).into()
}

pub(super) fn lookup_batch(table: &Table, addresses: &[u32], next_hops: &mut [u64]) {
    for (address, next_hop) in addresses.iter().zip(next_hops) {
        *next_hop = lookup(table, *address);
    }
}
