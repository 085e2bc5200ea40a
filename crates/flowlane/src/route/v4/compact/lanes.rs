//! A batch in stages, each over many addresses: what one stage asks for has arrived when the next one reads it.

use std::sync::atomic::Ordering::Acquire;

use super::node::{CODES, NODE};
use super::scalar;
use super::table::{DIRECT_SHIFT, Table};
use crate::memory::prefetch;

/// Addresses in flight: their entries, and a line of the pool each, stay in the first-level cache.
pub(super) const BATCH: usize = 256;

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn avx2(table: &Table, addresses: &[u32], next_hops: &mut [u64]) {
    staged(table, addresses, next_hops);
}

#[inline(always)]
fn staged(table: &Table, addresses: &[u32], next_hops: &mut [u64]) {
    let mut entries = [0; BATCH];
    // The addresses that have a chunk, by number.
    let mut waiting = [0u16; BATCH];
    // Of those, where their codes are.
    let mut codes = [0u32; BATCH];
    for (addresses, next_hops) in addresses.chunks(BATCH).zip(next_hops.chunks_mut(BATCH)) {
        let mut len = 0;
        for (i, (address, entry)) in addresses.iter().zip(&mut entries).enumerate() {
            *entry = table.direct()[(address >> DIRECT_SHIFT) as usize].load(Acquire);
            prefetch(table.pool(), (*entry & !NODE) as usize);
            waiting[len % BATCH] = i as u16;
            len += (*entry >> 31) as usize;
        }
        for (&i, code) in waiting[..len].iter().zip(&mut codes) {
            *code = scalar::place_of_code(table, entries[usize::from(i) % BATCH], addresses[usize::from(i)]);
            // In a chunk of many runs that is another line than the bits'.
            prefetch(table.pool(), *code as usize / CODES);
        }
        for (&i, &code) in waiting[..len].iter().zip(&codes) {
            let entry = &mut entries[usize::from(i) % BATCH];
            *entry = scalar::at_code(table, *entry, code, addresses[usize::from(i)]);
        }
        for (entry, next_hop) in entries.iter().zip(next_hops) {
            *next_hop = table.next_hops[*entry as usize].load(Acquire);
        }
    }
}
