//! Eight addresses at a time; four where next hops have eight bytes.

use std::arch::x86_64::*;

use super::Levels;
use super::entry::GROUP;
use super::scalar;
use crate::isa::Avx2;
use crate::route::cell::Cell;
use crate::route::gather::{avx2_32, avx2_64_far};

/// Looks any number of addresses up.
pub(super) fn lookup<E: Cell>(_: Avx2, levels: &Levels<E>, addresses: &[u128], next_hops: &mut [u64]) {
    // SAFETY: the witness proves that the CPU has AVX2 and the instructions on bits.
    unsafe {
        if size_of::<E>() == 8 {
            fours(levels, addresses, next_hops);
        } else {
            eights(levels, addresses, next_hops);
        }
    }
}

/// Entries at `places`, in the lanes of which `among` has the highest bit; zero in others.
///
/// # Safety
/// There must be such entries, and bytes behind them up to a vector lane's.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn gather8<E: Cell>(base: *const E, places: __m256i, among: __m256i) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        match size_of::<E>() {
            2 => {
                let found = avx2_32::<2>(base.cast(), places, among);
                _mm256_and_si256(found, _mm256_set1_epi32(0xffff))
            }
            _ => avx2_32::<4>(base.cast(), places, among),
        }
    }
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn eights<E: Cell>(levels: &Levels<E>, addresses: &[u128], next_hops: &mut [u64]) {
    let (chunks, rest) = addresses.as_chunks::<8>();
    let (own, own_rest) = next_hops.as_chunks_mut::<8>();
    for (addresses, next_hops) in chunks.iter().zip(own) {
        // Four registers with 32 bits of each address.
        let words: [__m256i; 4] = std::array::from_fn(|i| {
            let words: [u32; 8] = addresses.map(|address| (address >> (96 - 32 * i)) as u32);
            // SAFETY: eight words.
            unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
        });
        // SAFETY: an entry for each value of 24 bits.
        let mut entries = unsafe {
            gather8(levels.first.as_ptr(), _mm256_srli_epi32::<8>(words[0]), _mm256_set1_epi32(-1))
        };
        // The lowest bit, moved up, is the mask of those that go on.
        for level in 3..16 {
            let among = _mm256_slli_epi32::<31>(entries);
            if _mm256_movemask_ps(_mm256_castsi256_ps(among)) == 0 {
                break;
            }
            let shift = _mm_cvtsi32_si128(24 - 8 * (level % 4));
            let byte = _mm256_srl_epi32(words[level as usize / 4], shift);
            let byte = _mm256_and_si256(byte, _mm256_set1_epi32(0xff));
            let group =
                _mm256_slli_epi32::<{ GROUP.trailing_zeros() as i32 }>(_mm256_srli_epi32::<1>(entries));
            // SAFETY: entries with the lowest bit lead to groups of the table; there are fewer than 2²².
            let next =
                unsafe { gather8(levels.groups.as_ptr().cast::<E>(), _mm256_or_si256(group, byte), among) };
            entries = _mm256_blendv_epi8(entries, next, _mm256_srai_epi32::<31>(among));
        }
        let entries = _mm256_srli_epi32::<1>(entries);
        // SAFETY: eight next hops.
        unsafe {
            let low = _mm256_cvtepu32_epi64(_mm256_castsi256_si128(entries));
            let high = _mm256_cvtepu32_epi64(_mm256_extracti128_si256::<1>(entries));
            _mm256_storeu_si256(next_hops.as_mut_ptr().cast(), low);
            _mm256_storeu_si256(next_hops.as_mut_ptr().add(4).cast(), high);
        }
    }
    scalar::lookup_batch(levels, rest, own_rest);
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn fours<E: Cell>(levels: &Levels<E>, addresses: &[u128], next_hops: &mut [u64]) {
    let (chunks, rest) = addresses.as_chunks::<4>();
    let (own, own_rest) = next_hops.as_chunks_mut::<4>();
    for (addresses, next_hops) in chunks.iter().zip(own) {
        // Two registers with 64 bits of each address.
        let words: [__m256i; 2] = std::array::from_fn(|i| {
            let words: [u64; 4] = addresses.map(|address| (address >> (64 - 64 * i)) as u64);
            // SAFETY: four words.
            unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
        });
        // SAFETY: an entry for each value of 24 bits.
        let mut entries = unsafe {
            avx2_64_far(
                levels.first.as_ptr().cast(),
                _mm256_srli_epi64::<40>(words[0]),
                _mm256_set1_epi64x(-1),
            )
        };
        for level in 3..16 {
            let among = _mm256_slli_epi64::<63>(entries);
            if _mm256_movemask_pd(_mm256_castsi256_pd(among)) == 0 {
                break;
            }
            let shift = _mm_cvtsi32_si128(56 - 8 * (level % 8));
            let byte = _mm256_srl_epi64(words[level as usize / 8], shift);
            let byte = _mm256_and_si256(byte, _mm256_set1_epi64x(0xff));
            let group =
                _mm256_slli_epi64::<{ GROUP.trailing_zeros() as i32 }>(_mm256_srli_epi64::<1>(entries));
            // SAFETY: entries with the lowest bit lead to groups of the table.
            let next =
                unsafe { avx2_64_far(levels.groups.as_ptr().cast(), _mm256_or_si256(group, byte), among) };
            entries = _mm256_castpd_si256(_mm256_blendv_pd(
                _mm256_castsi256_pd(entries),
                _mm256_castsi256_pd(next),
                _mm256_castsi256_pd(among),
            ));
        }
        // SAFETY: four next hops.
        unsafe { _mm256_storeu_si256(next_hops.as_mut_ptr().cast(), _mm256_srli_epi64::<1>(entries)) };
    }
    scalar::lookup_batch(levels, rest, own_rest);
}
