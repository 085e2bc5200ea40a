//! Sixteen addresses, transposed into four registers with 32 bits of each; eight in two where next hops have
//! eight bytes.

use std::arch::x86_64::*;

use super::Levels;
use super::entry::GROUP;
use super::scalar;
use crate::isa::Avx512;
use crate::route::cell::Cell;
use crate::route::gather::{avx512_32, avx512_64_far};

/// Looks any number of addresses up.
pub(super) fn lookup<E: Cell>(_: Avx512, levels: &Levels<E>, addresses: &[u128], next_hops: &mut [u64]) {
    // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL, and the instructions on bits.
    unsafe {
        if size_of::<E>() == 8 {
            eights(levels, addresses, next_hops);
        } else {
            sixteens(levels, addresses, next_hops);
        }
    }
}

/// `entries`, and for the lanes of `among` those at `places`.
///
/// # Safety
/// There must be such entries, and bytes behind them up to a vector lane's.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn gather16<E: Cell>(base: *const E, places: __m512i, among: __mmask16, entries: __m512i) -> __m512i {
    // SAFETY: the caller's.
    unsafe {
        match size_of::<E>() {
            2 => {
                let found = avx512_32::<2>(base.cast(), places, among, entries);
                _mm512_and_si512(found, _mm512_set1_epi32(0xffff))
            }
            _ => avx512_32::<4>(base.cast(), places, among, entries),
        }
    }
}

/// The first and the last 64 bits of eight addresses.
#[inline]
#[target_feature(enable = "avx512f")]
fn halves(addresses: &[u128; 8]) -> [__m512i; 2] {
    // SAFETY: eight addresses are two vectors.
    let [low, high] = unsafe {
        let at = addresses.as_ptr().cast::<__m512i>();
        [_mm512_loadu_si512(at), _mm512_loadu_si512(at.add(1))]
    };
    [
        _mm512_permutex2var_epi64(low, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15), high),
        _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), high),
    ]
}

/// The low and the high halves of sixteen numbers: the high ones first.
#[inline]
#[target_feature(enable = "avx512f")]
fn split(low: __m512i, high: __m512i) -> [__m512i; 2] {
    let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    let even = _mm512_sub_epi32(odd, _mm512_set1_epi32(1));
    [_mm512_permutex2var_epi32(low, odd, high), _mm512_permutex2var_epi32(low, even, high)]
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn sixteens<E: Cell>(levels: &Levels<E>, addresses: &[u128], next_hops: &mut [u64]) {
    let (chunks, rest) = addresses.as_chunks::<16>();
    let (own, own_rest) = next_hops.as_chunks_mut::<16>();
    for (addresses, next_hops) in chunks.iter().zip(own) {
        let (eights, _) = addresses.as_chunks::<8>();
        let [[first, second], [third, fourth]] = [halves(&eights[0]), halves(&eights[1])];
        let [[a, b], [c, d]] = [split(first, third), split(second, fourth)];
        let words = [a, b, c, d];
        let zero = _mm512_setzero_si512();
        // SAFETY: an entry for each value of 24 bits.
        let mut entries = unsafe { gather16(levels.first.as_ptr(), _mm512_srli_epi32::<8>(a), !0, zero) };
        for level in 3..16 {
            let among = _mm512_test_epi32_mask(entries, _mm512_set1_epi32(1));
            if among == 0 {
                break;
            }
            let shift = _mm_cvtsi32_si128(24 - 8 * (level % 4));
            let byte = _mm512_srl_epi32(words[level as usize / 4], shift);
            let byte = _mm512_and_si512(byte, _mm512_set1_epi32(0xff));
            let group = _mm512_slli_epi32::<{ GROUP.trailing_zeros() }>(_mm512_srli_epi32::<1>(entries));
            let places = _mm512_or_si512(group, byte);
            // SAFETY: entries with the lowest bit lead to groups of the table; there are fewer than 2²².
            entries = unsafe { gather16(levels.groups.as_ptr().cast::<E>(), places, among, entries) };
        }
        let entries = _mm512_srli_epi32::<1>(entries);
        // SAFETY: sixteen next hops.
        unsafe {
            let low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(entries));
            let high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(entries));
            _mm512_storeu_si512(next_hops.as_mut_ptr().cast(), low);
            _mm512_storeu_si512(next_hops.as_mut_ptr().add(8).cast(), high);
        }
    }
    scalar::lookup_batch(levels, rest, own_rest);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn eights<E: Cell>(levels: &Levels<E>, addresses: &[u128], next_hops: &mut [u64]) {
    let (chunks, rest) = addresses.as_chunks::<8>();
    let (own, own_rest) = next_hops.as_chunks_mut::<8>();
    for (addresses, next_hops) in chunks.iter().zip(own) {
        let words = halves(addresses);
        let zero = _mm512_setzero_si512();
        // SAFETY: an entry for each value of 24 bits.
        let mut entries = unsafe {
            avx512_64_far(levels.first.as_ptr().cast(), _mm512_srli_epi64::<40>(words[0]), !0, zero)
        };
        for level in 3..16 {
            let among = _mm512_test_epi64_mask(entries, _mm512_set1_epi64(1));
            if among == 0 {
                break;
            }
            let shift = _mm_cvtsi32_si128(56 - 8 * (level % 8));
            let byte = _mm512_srl_epi64(words[level as usize / 8], shift);
            let byte = _mm512_and_si512(byte, _mm512_set1_epi64(0xff));
            let group = _mm512_slli_epi64::<{ GROUP.trailing_zeros() }>(_mm512_srli_epi64::<1>(entries));
            let places = _mm512_or_si512(group, byte);
            // SAFETY: entries with the lowest bit lead to groups of the table.
            entries = unsafe { avx512_64_far(levels.groups.as_ptr().cast(), places, among, entries) };
        }
        // SAFETY: eight next hops.
        unsafe { _mm512_storeu_si512(next_hops.as_mut_ptr().cast(), _mm512_srli_epi64::<1>(entries)) };
    }
    scalar::lookup_batch(levels, rest, own_rest);
}
