//! Groups whose places are gathered by eight.

use std::arch::x86_64::*;

use super::lanes::{self, GROUP, LAST};
use super::table::{Chunks, Code, SLOTS, Table};
use crate::route::gather::avx2_32;

const LANES: usize = 8;

#[target_feature(enable = "avx2")]
pub(super) fn lookup_batch<C: Code>(
    table: &Table,
    chunks: &Chunks<C>,
    addresses: &[u32],
    next_hops: &mut [u64],
) {
    let (groups, rest) = addresses.as_chunks::<GROUP>();
    let (answers, rest_answers) = next_hops.as_chunks_mut::<GROUP>();
    for (group, next_hops) in groups.iter().zip(answers) {
        // SAFETY: places that were found in the direct table.
        unsafe { lanes::resolve(table, chunks, &places(chunks, group), group, next_hops) };
    }
    for (rest, next_hops) in rest.chunks(LAST).zip(rest_answers.chunks_mut(LAST)) {
        let (mut group, mut found) = ([0; LAST], [0; LAST]);
        group[..rest.len()].copy_from_slice(rest);
        // SAFETY: as above.
        unsafe { lanes::resolve(table, chunks, &places(chunks, &group), &group, &mut found) };
        next_hops.copy_from_slice(&found[..next_hops.len()]);
    }
}

/// Where the codes of the addresses stand.
#[target_feature(enable = "avx2")]
#[inline]
fn places<C: Code, const N: usize>(chunks: &Chunks<C>, addresses: &[u32; N]) -> [u32; N] {
    let direct = chunks.direct.as_ptr().cast::<u8>();
    let mut places = [0; N];
    for (places, addresses) in
        places.as_chunks_mut::<LANES>().0.iter_mut().zip(addresses.as_chunks::<LANES>().0)
    {
        // SAFETY: eight addresses.
        let addresses = unsafe { _mm256_loadu_si256(addresses.as_ptr().cast()) };
        let blocks = _mm256_srli_epi32::<16>(addresses);
        // SAFETY: a block's number has 16 bits, for each of which the direct table has an entry.
        let first = unsafe { avx2_32::<4>(direct, blocks, _mm256_set1_epi32(-1)) };
        let slots = _mm256_and_si256(_mm256_srli_epi32::<8>(addresses), _mm256_set1_epi32(SLOTS as i32 - 1));
        // SAFETY: room for eight.
        unsafe { _mm256_storeu_si256(places.as_mut_ptr().cast(), _mm256_add_epi32(first, slots)) };
    }
    places
}
