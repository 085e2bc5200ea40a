//! Groups of addresses: a register of places is gathered at a time, and codes and next hops are read one by one.
//!
//! Where the definition acquires with each load, a group does so once for all loads of a step: they are relaxed, and a fence separates them
//! from those of the next step. On x86-64 both are plain loads; on AArch64 a relaxed load takes an index, an acquiring one only an
//! address, and each of the latter waits for those before it.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, fence};

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

/// Finds the places of the codes of addresses, and prefetches those.
#[inline(always)]
fn one_by_one<C: Code, const N: usize>(chunks: &Chunks<C>, addresses: &[u32; N], places: &mut [u32; N]) {
    let direct: &[AtomicU32] = &chunks.direct;
    // Four in a step: prefetches keep the compiler from unrolling a loop.
    for (places, addresses) in places.as_chunks_mut::<4>().0.iter_mut().zip(addresses.as_chunks::<4>().0) {
        *places = addresses.map(|address| {
            // SAFETY: a block's number has 16 bits, for each of which the direct table has an entry.
            let first = unsafe { direct.get_unchecked((address >> 16) as usize) }.load(Relaxed);
            // A chunk begins at a multiple of its size.
            let place = first & !(SLOTS as u32 - 1) | (address >> 8) & (SLOTS as u32 - 1);
            prefetch(&chunks.codes, place as usize);
            place
        });
    }
    fence(Acquire);
}

/// Returns the places of the codes of addresses, which have been prefetched.
#[inline(always)]
fn places<C: Code, V: Vector, const N: usize>(isa: V, chunks: &Chunks<C>, addresses: &[u32; N]) -> [u32; N] {
    const { assert!(N.is_multiple_of(V::LANES)) };
    let mut places = [0; N];
    if !V::GATHERS {
        one_by_one(chunks, addresses, &mut places);
        return places;
    }
    let direct = chunks.direct.as_ptr().cast::<u8>();
    for (places, addresses) in places.chunks_exact_mut(V::LANES).zip(addresses.chunks_exact(V::LANES)) {
        let addresses = isa.load(addresses);
        // SAFETY: a block's number has 16 bits, for each of which the direct table has an entry.
        let first = unsafe { isa.gather::<4>(direct, isa.shr(addresses, 16)) };
        let slots = isa.and(isa.shr(addresses, 8), isa.splat(SLOTS as u32 - 1));
        isa.store(isa.add(first, slots), places);
    }
    for &place in &places {
        prefetch(&chunks.codes, place as usize);
    }
    // The codes of a chunk were stored before the entry of the direct table that leads to it.
    fence(Acquire);
    places
}

/// Finds the next hops of addresses whose codes are at `places`.
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
    let parts = places.as_chunks::<TOGETHER>().0.iter().zip(next_hops.as_chunks_mut::<TOGETHER>().0);
    for (places_of_part, next_hops_of_part) in parts {
        // SAFETY: the caller's; entries of the direct table lead to chunks, and a chunk has a code for each slot.
        let codes = places_of_part.map(|place| unsafe { codes.get_unchecked(place as usize) }.code_relaxed());
        // Next hops were stored before their codes.
        fence(Acquire);
        // AArch64 chains comparisons, with one branch at the end; x86-64 fuses each with a branch.
        let has_long = if cfg!(target_arch = "aarch64") {
            codes.map(|code| code == C::LONG).into_iter().fold(false, |any, is_long| any | is_long)
        } else {
            codes.contains(&C::LONG)
        };
        if has_long {
            return with_long_chunks(table, chunks, places, addresses, next_hops);
        }
        for (code, next_hop) in codes.into_iter().zip(next_hops_of_part) {
            // SAFETY: other codes are indices of next hops, for which the table has room.
            *next_hop = unsafe { known.get_unchecked(code as usize) }.load(Relaxed);
        }
    }
    // What next hops stand for was stored before them.
    fence(Acquire);
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
