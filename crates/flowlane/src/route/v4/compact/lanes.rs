//! Groups of addresses: a register of places is gathered at a time, and codes and next hops are read one by one.

use std::sync::atomic::Ordering::Acquire;

use super::table::{Chunks, Code, SLOTS, Table};
use super::{long, scalar};
use crate::isa::simd::{Kernel, Vector};
use crate::memory::prefetch;

/// Addresses of a group: the places of all are found before the code of any is read.
const GROUP: usize = 64;

/// Addresses of the groups at the end of a batch, the last one filled up.
const LAST: usize = 16;

/// Addresses whose codes are read before any of their next hops: one branch for all, if none of them has a long chunk.
const TOGETHER: usize = 8;

/// Looks up a batch of addresses.
pub(super) struct LookupBatch<'a, C: Code> {
    pub(super) table: &'a Table,
    pub(super) chunks: &'a Chunks<C>,
    pub(super) addresses: &'a [u32],
    pub(super) next_hops: &'a mut [u64],
}

impl<C: Code, V: Vector> Kernel<V> for LookupBatch<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: V) {
        let Self { table, chunks, addresses, next_hops } = self;
        let (groups, rest) = addresses.as_chunks::<GROUP>();
        let (answers, rest_answers) = next_hops.as_chunks_mut::<GROUP>();
        for (group, next_hops) in groups.iter().zip(answers) {
            // SAFETY: places that were found in the direct table.
            unsafe { resolve(table, chunks, &places(isa, chunks, group), group, next_hops) };
        }
        for (rest, next_hops) in rest.chunks(LAST).zip(rest_answers.chunks_mut(LAST)) {
            let (mut group, mut found) = ([0; LAST], [0; LAST]);
            group[..rest.len()].copy_from_slice(rest);
            // SAFETY: as above.
            unsafe { resolve(table, chunks, &places(isa, chunks, &group), &group, &mut found) };
            next_hops.copy_from_slice(&found[..next_hops.len()]);
        }
    }
}

/// Returns the places of the codes of addresses.
#[inline(always)]
fn places<C: Code, V: Vector, const N: usize>(isa: V, chunks: &Chunks<C>, addresses: &[u32; N]) -> [u32; N] {
    const { assert!(N.is_multiple_of(V::LANES)) };
    let direct = chunks.direct.as_ptr().cast::<u8>();
    let mut places = [0; N];
    for (places, addresses) in places.chunks_exact_mut(V::LANES).zip(addresses.chunks_exact(V::LANES)) {
        let addresses = isa.load(addresses);
        // SAFETY: a block's number has 16 bits, for each of which the direct table has an entry.
        let first = unsafe { isa.gather::<4>(direct, isa.shr(addresses, 16)) };
        let slots = isa.and(isa.shr(addresses, 8), isa.splat(SLOTS as u32 - 1));
        isa.store(isa.add(first, slots), places);
    }
    places
}

/// Finds the next hops of addresses whose codes are at `places`, after prefetching all codes.
///
/// # Safety
/// The places are some that [`Chunks::place`] returns.
#[inline(always)]
unsafe fn resolve<C: Code, const N: usize>(
    table: &Table,
    chunks: &Chunks<C>,
    places: &[u32; N],
    addresses: &[u32; N],
    next_hops: &mut [u64; N],
) {
    const { assert!(N.is_multiple_of(TOGETHER)) };
    let (codes, known) = (&*chunks.codes, &*table.next_hops);
    for &place in places {
        prefetch(codes, place as usize);
    }
    let parts = places.as_chunks::<TOGETHER>().0.iter().zip(next_hops.as_chunks_mut::<TOGETHER>().0);
    for (places_of_part, next_hops_of_part) in parts {
        // SAFETY: the caller's; entries of the direct table lead to chunks, and a chunk has a code for each slot.
        let codes = places_of_part.map(|place| unsafe { codes.get_unchecked(place as usize) }.code());
        if codes.contains(&C::LONG) {
            return with_long_chunks(table, chunks, places, addresses, next_hops);
        }
        for (code, next_hop) in codes.into_iter().zip(next_hops_of_part) {
            // SAFETY: other codes are indices of next hops, for which the table has room.
            *next_hop = unsafe { known.get_unchecked(code as usize) }.load(Acquire);
        }
    }
}

/// Finds the next hops of a group of which some have long chunks: those advance together, a step after the other, so that none waits
/// for the memory that another reads. Rare in routes of the Internet, and most of the work in those of a data centre.
#[inline(never)]
fn with_long_chunks<C: Code, const N: usize>(
    table: &Table,
    chunks: &Chunks<C>,
    places: &[u32; N],
    addresses: &[u32; N],
    next_hops: &mut [u64; N],
) {
    let (mut lanes, mut count) = ([0; N], 0);
    for (lane, &place) in places.iter().enumerate() {
        let code = chunks.codes[place as usize].code();
        let is_long = code == C::LONG;
        next_hops[lane] = table.next_hops[if is_long { 0 } else { code as usize }].load(Acquire);
        lanes[count] = lane;
        count += usize::from(is_long);
    }
    let (lanes, mut at) = (&lanes[..count], [0; N]);
    for (&lane, at) in lanes.iter().zip(&mut at) {
        *at = table.directories[(addresses[lane] >> 16) as usize].load(Acquire);
        prefetch(&table.pool, *at as usize);
    }
    for (&lane, at) in lanes.iter().zip(&mut at) {
        // 0, where the directory does not have the slot any more.
        *at = long::chunk(&table.pool, *at, (addresses[lane] >> 8) % SLOTS as u32).unwrap_or(0);
        prefetch(&table.pool, *at as usize);
    }
    for (&lane, &at) in lanes.iter().zip(&at) {
        next_hops[lane] = if at == 0 {
            scalar::lookup(table, addresses[lane])
        } else {
            table.next_hops[long::hop(&table.pool, at, addresses[lane] & 0xff) as usize].load(Acquire)
        };
    }
}
