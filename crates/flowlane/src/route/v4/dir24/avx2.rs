//! Eight addresses at a time, four where next hops have eight bytes.

use std::arch::x86_64::*;

use super::scalar;
use super::table::Table;
use crate::route::cell::Cell;
use crate::route::gather::{avx2_32, avx2_64};

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn lookup_batch<W: Cell>(table: &Table<W>, addresses: &[u32], next_hops: &mut [u64]) {
    let (groups, rest) = addresses.as_chunks::<8>();
    let (own, own_rest) = next_hops.as_chunks_mut::<8>();
    for (addresses, next_hops) in groups.iter().zip(own) {
        match W::BYTES {
            1 => lookup_8::<W, 1>(table, addresses, next_hops),
            2 => lookup_8::<W, 2>(table, addresses, next_hops),
            4 => lookup_8::<W, 4>(table, addresses, next_hops),
            _ => lookup_8_wide(table, addresses, next_hops),
        }
    }
    scalar::lookup_batch(table, rest, own_rest);
}

/// Entries of up to four bytes, read as four: the table has so many behind its last entry.
#[target_feature(enable = "avx2")]
#[inline]
fn lookup_8<W: Cell, const BYTES: usize>(table: &Table<W>, addresses: &[u32; 8], next_hops: &mut [u64; 8]) {
    let (tbl24, tbl8) = (table.tbl24.as_ptr().cast::<u8>(), table.tbl8.as_ptr().cast::<u8>());
    let keep = _mm256_set1_epi32((u32::MAX >> (32 - 8 * BYTES)).cast_signed());
    // SAFETY: eight addresses.
    let addresses = unsafe { _mm256_loadu_si256(addresses.as_ptr().cast()) };
    let index = _mm256_srli_epi32::<8>(addresses);
    // SAFETY: an index has 24 bits, and the table 2²⁴ entries and padding.
    let mut entries = unsafe { avx2_32::<BYTES>(tbl24, index, _mm256_set1_epi32(-1)) };
    entries = _mm256_and_si256(entries, keep);
    let long = _mm256_slli_epi32::<31>(entries);
    if _mm256_movemask_ps(_mm256_castsi256_ps(long)) != 0 {
        let within = _mm256_and_si256(addresses, _mm256_set1_epi32(0xff));
        let index = _mm256_or_si256(_mm256_slli_epi32::<8>(_mm256_srli_epi32::<1>(entries)), within);
        // SAFETY: in lanes with the lowest bit is the number of one of the table's groups.
        let found = unsafe { avx2_32::<BYTES>(tbl8, index, long) };
        let found = _mm256_and_si256(found, keep);
        entries = _mm256_castps_si256(_mm256_blendv_ps(
            _mm256_castsi256_ps(entries),
            _mm256_castsi256_ps(found),
            _mm256_castsi256_ps(long),
        ));
    }
    let found = _mm256_srli_epi32::<1>(entries);
    let [low, high] = [_mm256_castsi256_si128(found), _mm256_extracti128_si256::<1>(found)];
    let out = next_hops.as_mut_ptr().cast::<__m256i>();
    // SAFETY: room for eight next hops.
    unsafe {
        _mm256_storeu_si256(out, _mm256_cvtepu32_epi64(low));
        _mm256_storeu_si256(out.add(1), _mm256_cvtepu32_epi64(high));
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn lookup_8_wide<W: Cell>(table: &Table<W>, addresses: &[u32; 8], next_hops: &mut [u64; 8]) {
    let (tbl24, tbl8) = (table.tbl24.as_ptr().cast::<u8>(), table.tbl8.as_ptr().cast::<u8>());
    for half in 0..2 {
        // SAFETY: four addresses of eight.
        let addresses = unsafe { _mm_loadu_si128(addresses.as_ptr().add(4 * half).cast()) };
        let index = _mm_srli_epi32::<8>(addresses);
        // SAFETY: an index has 24 bits, and the table 2²⁴ entries.
        let mut entries = unsafe { avx2_64(tbl24, index, _mm256_set1_epi64x(-1)) };
        let long = _mm256_slli_epi64::<63>(entries);
        if _mm256_movemask_pd(_mm256_castsi256_pd(long)) != 0 {
            let group = _mm256_slli_epi64::<8>(_mm256_srli_epi64::<1>(entries));
            let narrow = _mm256_permutevar8x32_epi32(group, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
            let within = _mm_and_si128(addresses, _mm_set1_epi32(0xff));
            let index = _mm_or_si128(_mm256_castsi256_si128(narrow), within);
            // SAFETY: in lanes with the lowest bit is the number of one of the table's groups.
            let found = unsafe { avx2_64(tbl8, index, long) };
            entries = _mm256_castpd_si256(_mm256_blendv_pd(
                _mm256_castsi256_pd(entries),
                _mm256_castsi256_pd(found),
                _mm256_castsi256_pd(long),
            ));
        }
        // SAFETY: room for four next hops of eight.
        unsafe {
            let out = next_hops.as_mut_ptr().add(4 * half).cast();
            _mm256_storeu_si256(out, _mm256_srli_epi64::<1>(entries));
        }
    }
}
