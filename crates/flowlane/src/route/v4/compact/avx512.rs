//! Sixteen addresses at a time, in three stages over a batch.
//!
//! The direct table is gathered from, and those addresses that lead to a chunk are packed, so that the stage for
//! chunks works on full vectors however few they are. Its results are put back where their addresses were.

use std::arch::x86_64::*;

use super::node::{CHILDREN, NODE};
use super::scalar;
use super::table::{DIRECT_SHIFT, Table};
use crate::memory::prefetch;
use crate::route::gather::{avx512_32, avx512_64};

/// Addresses in flight: what the stages hand on, and a line of the pool each, stay in the first-level cache.
const BATCH: usize = 256;

const LANES: usize = 16;

/// What the stages hand on.
struct Stages {
    /// An entry for each address.
    entries: [u32; BATCH],
    /// Which of 16 neighbours lead to a chunk.
    masks: [u16; BATCH / LANES],
    /// Addresses and entries of those, packed; then in place of the entries indices of next hops.
    waiting: [u32; BATCH + LANES],
    found: [u32; BATCH + LANES],
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn lookup_batch(table: &Table, addresses: &[u32], next_hops: &mut [u64]) {
    let mut stages = Stages {
        entries: [0; BATCH],
        masks: [0; BATCH / LANES],
        waiting: [0; BATCH + LANES],
        found: [0; BATCH + LANES],
    };
    let whole = addresses.len() / LANES * LANES;
    for (addresses, next_hops) in addresses[..whole].chunks(BATCH).zip(next_hops.chunks_mut(BATCH)) {
        let (addresses, _) = addresses.as_chunks::<LANES>();
        let (next_hops, _) = next_hops.as_chunks_mut::<LANES>();
        let waiting = direct(table, addresses, &mut stages);
        chunks(table, waiting, &mut stages);
        answers(table, &mut next_hops[..addresses.len()], &stages);
    }
    scalar::lookup_batch(table, &addresses[whole..], &mut next_hops[whole..]);
}

/// Gets each address's entry; packs those that lead to a chunk, and returns how many they are.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn direct(table: &Table, addresses: &[[u32; LANES]], stages: &mut Stages) -> usize {
    let base = table.direct().as_ptr().cast::<u8>();
    let mut len = 0;
    let (entries, _) = stages.entries.as_chunks_mut::<LANES>();
    for ((addresses, entries), mask) in addresses.iter().zip(entries).zip(&mut stages.masks) {
        let addresses = load(addresses);
        let index = _mm512_srli_epi32::<DIRECT_SHIFT>(addresses);
        // SAFETY: an index has DIRECT_BITS bits, for each of which the direct table has an entry.
        let found = unsafe { avx512_32::<4>(base, index, !0, _mm512_setzero_si512()) };
        *entries = store(found);
        *mask = _mm512_movepi32_mask(found);
        let packed = _mm512_mask_compress_epi32(found, *mask, found);
        stages.found[len..][..LANES].copy_from_slice(&store(packed));
        let packed = _mm512_mask_compress_epi32(addresses, *mask, addresses);
        stages.waiting[len..][..LANES].copy_from_slice(&store(packed));
        len += mask.count_ones() as usize;
    }
    len
}

/// Finds the next hops of the first `len` of those that lead to a chunk.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn chunks(table: &Table, len: usize, stages: &mut Stages) {
    for entry in &stages.found[..len] {
        prefetch(table.pool(), (entry & !NODE) as usize);
    }
    let base = table.pool().as_ptr().cast::<u8>();
    let (waiting, _) = stages.waiting.as_chunks::<LANES>();
    let (found, _) = stages.found.as_chunks_mut::<LANES>();
    for (group, (addresses, found)) in waiting.iter().zip(found).enumerate().take(len.div_ceil(LANES)) {
        let live = _bzhi_u32(!0, (len - group * LANES).min(LANES) as u32) as __mmask16;
        let at = _mm512_and_si512(load(found), _mm512_set1_epi32((!NODE).cast_signed()));
        let slots = _mm512_and_si512(_mm512_srli_epi32::<8>(load(addresses)), _mm512_set1_epi32(63));
        let from_top = _mm512_sub_epi32(_mm512_set1_epi32(63), slots);
        let half = |at: __m256i, from_top: __m256i, live: __mmask8| {
            // SAFETY: live entries lead to a block, whose first word is that of the bits.
            let bits = unsafe { avx512_64(base, at, live, _mm512_set1_epi64(1)) };
            _mm512_cvtepi64_epi32(ones(_mm512_sllv_epi64(bits, _mm512_cvtepu32_epi64(from_top))))
        };
        let low = half(_mm512_castsi512_si256(at), _mm512_castsi512_si256(from_top), live as __mmask8);
        let high = half(
            _mm512_extracti64x4_epi64::<1>(at),
            _mm512_extracti64x4_epi64::<1>(from_top),
            (live >> 8) as __mmask8,
        );
        let ones = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
        // The code number `ones - 1` behind the word of the bits, in units of 16 bits.
        let place =
            _mm512_add_epi32(_mm512_slli_epi32::<2>(at), _mm512_add_epi32(ones, _mm512_set1_epi32(3)));
        // SAFETY: a chunk has a code for each of its bits. Two bytes more are read, and the pool has them.
        let codes = unsafe { avx512_32::<2>(base, place, live, _mm512_setzero_si512()) };
        let codes = _mm512_and_si512(codes, _mm512_set1_epi32(0xffff));
        let at = store(at);
        *found = store(codes);
        let mut long = _mm512_cmpge_epu32_mask(codes, _mm512_set1_epi32(CHILDREN.into()));
        while long != 0 {
            let lane = long.trailing_zeros() as usize;
            long &= long - 1;
            found[lane] =
                scalar::in_long_chunk(table, at[lane] as usize, found[lane] as u16, addresses[lane]);
        }
    }
}

/// Puts the results of chunks back where their addresses were, and gets the next hops.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn answers(table: &Table, next_hops: &mut [[u64; LANES]], stages: &Stages) {
    let base = table.next_hops.as_ptr().cast::<u8>();
    let mut from = 0;
    let (entries, _) = stages.entries.as_chunks::<LANES>();
    for ((next_hops, entries), mask) in next_hops.iter_mut().zip(entries).zip(&stages.masks) {
        let found = load(stages.found[from..].first_chunk().expect("so many behind the last"));
        let index = _mm512_mask_expand_epi32(load(entries), *mask, found);
        from += mask.count_ones() as usize;
        for (half, next_hops) in next_hops.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let index =
                if half == 0 { _mm512_castsi512_si256(index) } else { _mm512_extracti64x4_epi64::<1>(index) };
            // SAFETY: entries that lead to no chunk, and codes, are indices of next hops that the table has.
            let found = unsafe { avx512_64(base, index, !0, _mm512_setzero_si512()) };
            // SAFETY: room for eight.
            unsafe { _mm512_storeu_si512(next_hops.as_mut_ptr().cast(), found) };
        }
    }
}

/// How many bits are set in each lane. (Not every CPU with AVX-512 has an instruction for it.)
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn ones(lanes: __m512i) -> __m512i {
    let of_nibble = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    let nibble = _mm512_set1_epi8(15);
    let low = _mm512_shuffle_epi8(of_nibble, _mm512_and_si512(lanes, nibble));
    let high = _mm512_shuffle_epi8(of_nibble, _mm512_and_si512(_mm512_srli_epi16::<4>(lanes), nibble));
    _mm512_sad_epu8(_mm512_add_epi8(low, high), _mm512_setzero_si512())
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(lanes: &[u32; LANES]) -> __m512i {
    // SAFETY: sixteen lanes.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(vector: __m512i) -> [u32; LANES] {
    let mut lanes = [0; LANES];
    // SAFETY: sixteen lanes.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), vector) };
    lanes
}
