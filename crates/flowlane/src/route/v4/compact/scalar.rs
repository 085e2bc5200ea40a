//! The definition.

use std::sync::atomic::Ordering::Acquire;

use super::long;
use super::table::{Chunks, Code, SLOTS, Table};

#[inline(always)]
pub(super) fn lookup(table: &Table, address: u32) -> u64 {
    loop {
        let hop = if table.is_wide.load(Acquire) {
            index_in(table, &table.wide, address)
        } else {
            index_in(table, &table.narrow, address)
        };
        if let Some(hop) = hop {
            return table.next_hops[hop as usize].load(Acquire);
        }
    }
}

/// The index of an address's next hop. None: the slot had a long chunk, which the writer has taken out meanwhile; what
/// the slot has instead was there before that.
#[inline(always)]
fn index_in<C: Code>(table: &Table, chunks: &Chunks<C>, address: u32) -> Option<u32> {
    let code = chunks.codes[chunks.place(address)].code();
    if code != C::LONG {
        return Some(code);
    }
    let directory = table.directories[(address >> 16) as usize].load(Acquire);
    let chunk = long::chunk(&table.pool, directory, (address >> 8) % SLOTS as u32)?;
    Some(long::hop(&table.pool, chunk, address & 0xff))
}

pub(super) fn lookup_batch<C: Code>(
    table: &Table,
    chunks: &Chunks<C>,
    addresses: &[u32],
    next_hops: &mut [u64],
) {
    for (address, next_hop) in addresses.iter().zip(next_hops) {
        let code = chunks.codes[chunks.place(*address)].code();
        *next_hop = if code == C::LONG {
            in_long_chunk(table, *address)
        } else {
            table.next_hops[code as usize].load(Acquire)
        };
    }
}

/// Returns the next hop of an address whose slot had a long chunk when its code was read.
#[inline(never)]
pub(super) fn in_long_chunk(table: &Table, address: u32) -> u64 {
    lookup(table, address)
}
