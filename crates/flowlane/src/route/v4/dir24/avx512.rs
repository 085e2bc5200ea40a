//! Sixteen addresses at a time, eight where next hops have eight bytes.

use std::arch::x86_64::*;

use super::scalar;
use super::table::Table;
use crate::route::cell::Cell;
use crate::route::gather::{avx512_32, avx512_64};

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn lookup_batch<W: Cell>(table: &Table<W>, addresses: &[u32], next_hops: &mut [u64]) {
    let (groups, rest) = addresses.as_chunks::<16>();
    let (own, own_rest) = next_hops.as_chunks_mut::<16>();
    for (addresses, next_hops) in groups.iter().zip(own) {
        match W::BYTES {
            1 => lookup_16::<W, 1>(table, addresses, next_hops),
            2 => lookup_16::<W, 2>(table, addresses, next_hops),
            4 => lookup_16::<W, 4>(table, addresses, next_hops),
            _ => lookup_16_wide(table, addresses, next_hops),
        }
    }
    scalar::lookup_batch(table, rest, own_rest);
}

/// Entries of up to four bytes, read as four: the table has so many behind its last entry.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn lookup_16<W: Cell, const BYTES: usize>(
    table: &Table<W>,
    addresses: &[u32; 16],
    next_hops: &mut [u64; 16],
) {
    let (tbl24, tbl8) = (table.tbl24.as_ptr().cast::<u8>(), table.tbl8.as_ptr().cast::<u8>());
    let keep = _mm512_set1_epi32((u32::MAX >> (32 - 8 * BYTES)).cast_signed());
    // SAFETY: sixteen addresses.
    let addresses = unsafe { _mm512_loadu_si512(addresses.as_ptr().cast()) };
    let index = _mm512_srli_epi32::<8>(addresses);
    // SAFETY: an index has 24 bits, and the table 2²⁴ entries and padding.
    let mut entries = unsafe { avx512_32::<BYTES>(tbl24, index, !0, _mm512_setzero_si512()) };
    entries = _mm512_and_si512(entries, keep);
    let long = _mm512_test_epi32_mask(entries, _mm512_set1_epi32(1));
    if long != 0 {
        let within = _mm512_and_si512(addresses, _mm512_set1_epi32(0xff));
        let index = _mm512_or_si512(_mm512_slli_epi32::<8>(_mm512_srli_epi32::<1>(entries)), within);
        // SAFETY: in lanes with the lowest bit is the number of one of the table's groups.
        entries = unsafe { avx512_32::<BYTES>(tbl8, index, long, entries) };
        entries = _mm512_and_si512(entries, keep);
    }
    let found = _mm512_srli_epi32::<1>(entries);
    let [low, high] = [_mm512_castsi512_si256(found), _mm512_extracti64x4_epi64::<1>(found)];
    let out = next_hops.as_mut_ptr();
    // SAFETY: room for sixteen next hops.
    unsafe {
        _mm512_storeu_si512(out.cast(), _mm512_cvtepu32_epi64(low));
        _mm512_storeu_si512(out.add(8).cast(), _mm512_cvtepu32_epi64(high));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn lookup_16_wide<W: Cell>(table: &Table<W>, addresses: &[u32; 16], next_hops: &mut [u64; 16]) {
    let (tbl24, tbl8) = (table.tbl24.as_ptr().cast::<u8>(), table.tbl8.as_ptr().cast::<u8>());
    for half in 0..2 {
        // SAFETY: eight addresses of sixteen.
        let addresses = unsafe { _mm256_loadu_si256(addresses.as_ptr().add(8 * half).cast()) };
        let index = _mm256_srli_epi32::<8>(addresses);
        // SAFETY: an index has 24 bits, and the table 2²⁴ entries.
        let mut entries = unsafe { avx512_64(tbl24, index, !0, _mm512_setzero_si512()) };
        let long = _mm512_test_epi64_mask(entries, _mm512_set1_epi64(1));
        if long != 0 {
            let group = _mm512_cvtepi64_epi32(_mm512_slli_epi64::<8>(_mm512_srli_epi64::<1>(entries)));
            let index = _mm256_or_si256(group, _mm256_and_si256(addresses, _mm256_set1_epi32(0xff)));
            // SAFETY: in lanes with the lowest bit is the number of one of the table's groups.
            entries = unsafe { avx512_64(tbl8, index, long, entries) };
        }
        // SAFETY: room for eight next hops of sixteen.
        unsafe {
            _mm512_storeu_si512(next_hops.as_mut_ptr().add(8 * half).cast(), _mm512_srli_epi64::<1>(entries))
        };
    }
}
