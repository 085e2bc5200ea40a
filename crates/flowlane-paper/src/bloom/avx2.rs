//! The paper's baseline: 8 lanes, with a table of 2^8 permutations.
//!
//! Orestis Polychroniou and Kenneth A. Ross, *Vectorized Bloom Filters for Advanced SIMD Processors*,
//! DaMoN 2014.

use std::arch::x86_64::*;
use std::mem::transmute;

use flowlane::bloom::Bits;
use flowlane::bloom::avx2::{lane_mask, misses, murmur3, permutation, permute, prefetch};
use flowlane::isa::Avx2;

use super::batch::{Batch, Out, Survive, in_flight, rest};

const LANES: usize = 8;

/// 256-bit registers and a table of permutations.
pub(super) struct Table(pub(super) Avx2);

impl Survive for Table {
    fn survive<const U: usize, const PREFETCH: bool>(self, bits: Bits<'_>, batch: &mut Batch<'_>) {
        // SAFETY: the witness proves that the CPU has AVX2.
        unsafe { survive::<U, PREFETCH>(bits, batch.keys, batch.payloads, &mut batch.out) }
    }
}

/// The keys under test, one in each lane.
#[derive(Clone, Copy)]
struct Lanes {
    keys: __m256i,
    payloads: __m256i,
    /// The index of the hash function to test next.
    index: __m256i,
    /// A bit for each lane whose key is decided.
    done: u8,
}

/// Tests the batch in `U` parts, each with 8 lanes of its own.
#[target_feature(enable = "avx2,popcnt")]
fn survive<const U: usize, const PREFETCH: bool>(
    bits: Bits<'_>,
    keys: &[u32],
    payloads: &[u32],
    out: &mut Out<'_>,
) {
    let part = keys.len() / U;
    let mut at = [0; U];
    let mut end = [0; U];
    for u in 0..U {
        at[u] = u * part;
        end[u] = if u + 1 == U { keys.len() } else { (u + 1) * part };
    }
    let zero = _mm256_setzero_si256();
    let mut lanes = [Lanes { keys: zero, payloads: zero, index: zero, done: !0 }; U];
    let hashes = _mm256_set1_epi32(bits.hashes() as i32);

    // Every part can refill all of its lanes.
    while (0..U).all(|u| at[u] + LANES <= end[u]) {
        let mut hash = [zero; U];
        for u in 0..U {
            // SAFETY: 8 keys and payloads lie from `at[u]` on: the loop's condition. Lanes that stay were filled with
            // keys of this part before `at[u]`.
            unsafe { refill(&mut lanes[u], keys, payloads, &mut at[u]) };
            hash[u] = murmur3(lanes[u].keys, seeds(bits, lanes[u].index));
            if PREFETCH {
                prefetch(bits, hash[u]);
            }
        }
        for u in 0..U {
            let missed = misses(bits, hash[u]);
            let index = _mm256_add_epi32(lanes[u].index, _mm256_set1_epi32(1));
            let last = _mm256_cmpeq_epi32(index, hashes);
            let done = _mm256_or_si256(missed, last);
            lanes[u].done = lane_mask(done);
            lanes[u].index = _mm256_andnot_si256(done, index);
            // SAFETY: the 8 keys of these lanes are not among the survivors yet, and there is room for every key of
            // the batch, so there is room for 8 more.
            unsafe { pack(&lanes[u], lane_mask(_mm256_andnot_si256(missed, last)), out) };
        }
    }
    for Lanes { keys, payloads, done, .. } in lanes {
        // SAFETY: a register is 8 words.
        let [keys, payloads]: [[u32; LANES]; 2] = unsafe { transmute([keys, payloads]) };
        in_flight(bits, keys, payloads, done.into(), out);
    }
    for u in 0..U {
        let (keys, payloads) = (&keys[at[u]..end[u]], &payloads[at[u]..end[u]]);
        if U > 1 && keys.len() >= LANES {
            survive::<1, PREFETCH>(bits, keys, payloads, out);
        } else {
            rest(bits, keys, payloads, out);
        }
    }
}

/// Refills each decided lane with the next key from `at` on.
///
/// # Safety
/// At least 8 keys and payloads follow `at`, and at least as many precede it as there are undecided lanes.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
unsafe fn refill(lanes: &mut Lanes, keys: &[u32], payloads: &[u32], at: &mut usize) {
    let stay = lanes.done.count_zeros() as usize;
    // Undecided lanes move to the front. New keys are loaded from an address before `at`, so that they land in the
    // lanes behind without another permutation.
    let order = permutation(!lanes.done);
    let numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let front = _mm256_cmpgt_epi32(_mm256_set1_epi32(stay as i32), numbers);
    // SAFETY: the caller's promise.
    let (fresh, fresh_payloads) = unsafe {
        let from = *at - stay;
        (
            _mm256_loadu_si256(keys.as_ptr().add(from).cast()),
            _mm256_loadu_si256(payloads.as_ptr().add(from).cast()),
        )
    };
    lanes.keys = _mm256_blendv_epi8(fresh, permute(order, lanes.keys), front);
    lanes.payloads = _mm256_blendv_epi8(fresh_payloads, permute(order, lanes.payloads), front);
    // 0 in decided lanes.
    lanes.index = permute(order, lanes.index);
    *at += LANES - stay;
}

/// Appends the lanes of `passed` to the survivors.
///
/// # Safety
/// There is room for 8 more survivors.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
unsafe fn pack(lanes: &Lanes, passed: u8, out: &mut Out<'_>) {
    let order = permutation(passed);
    // SAFETY: the caller's promise.
    unsafe {
        _mm256_storeu_si256(out.keys.as_mut_ptr().add(out.len).cast(), permute(order, lanes.keys));
        _mm256_storeu_si256(out.payloads.as_mut_ptr().add(out.len).cast(), permute(order, lanes.payloads));
    }
    out.len += passed.count_ones() as usize;
}

/// Gathers the seeds for 8 hash indices.
#[inline]
#[target_feature(enable = "avx2")]
fn seeds(bits: Bits<'_>, index: __m256i) -> __m256i {
    // SAFETY: `seeds` has 16 words: two registers.
    let (low, high) = unsafe {
        let seeds = bits.seeds().as_ptr().cast::<__m256i>();
        (_mm256_loadu_si256(seeds), _mm256_loadu_si256(seeds.add(1)))
    };
    let low = permute(index, low);
    if bits.hashes() <= LANES {
        return low;
    }
    let beyond = _mm256_cmpgt_epi32(index, _mm256_set1_epi32(LANES as i32 - 1));
    _mm256_blendv_epi8(low, permute(index, high), beyond)
}
