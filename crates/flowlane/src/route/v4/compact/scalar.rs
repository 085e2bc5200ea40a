//! The definition.

use std::sync::atomic::Ordering::Acquire;

use super::node::{self, CHILDREN, CODES, LONG_HEAD, NODE};
use super::table::{DIRECT_SHIFT, Table};

#[inline(always)]
pub(super) fn lookup(table: &Table, address: u32) -> u64 {
    let entry = table.direct()[(address >> DIRECT_SHIFT) as usize].load(Acquire);
    let hop = if entry & NODE == 0 { entry } else { in_chunk(table, entry, address) };
    table.next_hops[hop as usize].load(Acquire)
}

/// The index of the next hop of `address`, whose entry in the direct table leads to a chunk.
#[inline(always)]
pub(super) fn in_chunk(table: &Table, entry: u32, address: u32) -> u32 {
    at_code(table, entry, place_of_code(table, entry, address), address)
}

/// Where the code of `address` is in the pool, counted in codes.
#[inline(always)]
pub(super) fn place_of_code(table: &Table, entry: u32, address: u32) -> u32 {
    let at = entry & !NODE;
    let bits = table.pool()[at as usize].load(Acquire);
    let slot = address >> 8 & 63;
    let rank = (bits << (63 - slot)).count_ones() - 1;
    (at + 1) * CODES as u32 + rank
}

/// What the code at this place, in the chunk that `entry` leads to, stands for.
#[inline(always)]
pub(super) fn at_code(table: &Table, entry: u32, place: u32, address: u32) -> u32 {
    let code = node::code(table.pool(), 0, place);
    if code < CHILDREN {
        u32::from(code)
    } else {
        in_long_chunk(table, (entry & !NODE) as usize, code, address)
    }
}

/// The index of the next hop of `address`, whose code in the chunk at `at` leads to a long chunk.
#[inline(never)]
pub(super) fn in_long_chunk(table: &Table, at: usize, code: u16, address: u32) -> u32 {
    let pool = table.pool();
    let codes = pool[at].load(Acquire).count_ones() as usize;
    let child = at + 1 + codes.div_ceil(CODES) + usize::from(code - CHILDREN);
    let at = (pool[child].load(Acquire) as u32 & !NODE) as usize;
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
