//! Groups whose entries are gathered by eight.

use std::arch::x86_64::*;

use super::lanes::{GROUP, LAST, Places};
use super::table::{DIRECT_SHIFT, Table};
use crate::route::gather::avx2_32;

const LANES: usize = 8;

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn lookup_batch(table: &Table, addresses: &[u32], next_hops: &mut [u64]) {
    let (groups, rest) = addresses.as_chunks::<GROUP>();
    let (answers, rest_answers) = next_hops.as_chunks_mut::<GROUP>();
    for (group, next_hops) in groups.iter().zip(answers) {
        places(table, group).resolve(table, group, next_hops);
    }
    for (rest, next_hops) in rest.chunks(LAST).zip(rest_answers.chunks_mut(LAST)) {
        let mut group = [0; LAST];
        group[..rest.len()].copy_from_slice(rest);
        places(table, &group).resolve(table, rest, next_hops);
    }
}

/// Where the addresses read further.
#[target_feature(enable = "avx2")]
#[inline]
fn places<const N: usize>(table: &Table, addresses: &[u32; N]) -> Places<N> {
    let base = table.direct().as_ptr().cast::<u8>();
    let mut places = Places::NONE;
    for (n, addresses) in addresses.as_chunks::<LANES>().0.iter().enumerate() {
        // SAFETY: eight addresses.
        let vector = unsafe { _mm256_loadu_si256(addresses.as_ptr().cast()) };
        let index = _mm256_srli_epi32::<{ DIRECT_SHIFT as i32 }>(vector);
        // SAFETY: an index has DIRECT_BITS bits, for each of which the direct table has an entry.
        let found = unsafe { avx2_32::<4>(base, index, _mm256_set1_epi32(-1)) };
        let mut entries = [0; LANES];
        // SAFETY: room for eight.
        unsafe { _mm256_storeu_si256(entries.as_mut_ptr().cast(), found) };
        places.set(n * LANES, entries, addresses);
    }
    places
}
