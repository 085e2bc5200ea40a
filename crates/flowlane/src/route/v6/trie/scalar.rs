//! The definition, and the same for many addresses at once.

use super::entry::{self, GROUP};
use super::{FIRST_BITS, Levels};
use crate::memory::prefetch;
use crate::route::cell::Cell;

/// The next hop of `address`.
pub(super) fn lookup<E: Cell>(levels: &Levels<E>, address: u128) -> u64 {
    let mut entry = levels.first[(address >> (128 - FIRST_BITS)) as usize].get();
    let mut rest = address << FIRST_BITS;
    while let Some(group) = entry::group(entry) {
        entry = levels.groups[group][(rest >> 120) as usize].get();
        rest <<= 8;
    }
    entry >> 1
}

/// Addresses that are on their way at once.
const LANES: usize = 32;

/// Any number of addresses: all take a step, and ask for the entries of their next one.
pub(super) fn lookup_batch<E: Cell>(levels: &Levels<E>, addresses: &[u128], next_hops: &mut [u64]) {
    for (addresses, next_hops) in addresses.chunks(LANES).zip(next_hops.chunks_mut(LANES)) {
        for address in addresses {
            prefetch(&levels.first, (address >> (128 - FIRST_BITS)) as usize);
        }
        let (mut lanes, mut places) = ([0u8; LANES], [0usize; LANES]);
        let mut len = 0;
        for (lane, (address, next_hop)) in addresses.iter().zip(&mut *next_hops).enumerate() {
            let entry = levels.first[(address >> (128 - FIRST_BITS)) as usize].get();
            *next_hop = entry >> 1;
            len = step(levels, entry, address << FIRST_BITS, lane, (&mut lanes, &mut places), len);
        }
        let mut depth = FIRST_BITS + 8;
        while len != 0 {
            let entries = levels.groups.as_flattened();
            for i in 0..std::mem::take(&mut len) {
                let lane = usize::from(lanes[i]);
                let entry = entries[places[i]].get();
                next_hops[lane] = entry >> 1;
                let rest = addresses[lane].unbounded_shl(depth.into());
                len = step(levels, entry, rest, lane, (&mut lanes, &mut places), len);
            }
            depth += 8;
        }
    }
}

/// Notes a lane that goes on from `entry`; returns how many there are.
#[inline(always)]
fn step<E: Cell>(
    levels: &Levels<E>,
    entry: u64,
    rest: u128,
    lane: usize,
    (lanes, places): (&mut [u8; LANES], &mut [usize; LANES]),
    len: usize,
) -> usize {
    // Of a next hop it is no place at all, and not used.
    let place = ((entry >> 1) as usize).wrapping_mul(GROUP).wrapping_add((rest >> 120) as usize);
    (lanes[len % LANES], places[len % LANES]) = (lane as u8, place);
    let goes_on = entry & 1 == 1;
    if goes_on {
        prefetch(levels.groups.as_flattened(), place);
    }
    len + usize::from(goes_on)
}
