//! The paper's baseline: 8 lanes, with a table of 2^8 permutations.
//!
//! Orestis Polychroniou and Kenneth A. Ross, *Vectorized Bloom Filters for Advanced SIMD Processors*,
//! DaMoN 2014.

use std::arch::x86_64::*;

use super::batch::{Batch, Bits, Out, Survive};
use super::scalar;
use crate::isa::Avx2;

const LANES: usize = 8;

/// 256-bit registers and a table of permutations.
pub(super) struct Table(pub(super) Avx2);

impl Survive for Table {
    fn survive<const U: usize, const PREFETCH: bool>(self, bits: Bits<'_>, batch: &mut Batch<'_>) {
        // SAFETY: the witness proves that the CPU has AVX2.
        unsafe { survive::<U, PREFETCH>(bits, batch.keys, batch.payloads, &mut batch.out) }
    }
}

/// For each set of lanes the permutation that puts them first, in their order, and the others behind.
static PERMUTATIONS: [[u8; LANES]; 1 << LANES] = {
    let mut table = [[0; LANES]; 1 << LANES];
    let mut set = 0;
    while set < table.len() {
        let (mut to, mut lane) = (0, 0);
        while lane < 2 * LANES {
            let member = set >> (lane % LANES) & 1 == 1;
            if member == (lane < LANES) {
                table[set][to] = (lane % LANES) as u8;
                to += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    table
};

/// The keys that are being tested, one a lane.
#[derive(Clone, Copy)]
struct Lanes {
    keys: __m256i,
    payloads: __m256i,
    /// The number of the hash that is tested next.
    index: __m256i,
    /// Lanes whose key is decided, one bit each.
    done: u8,
}

/// `U` parts of the batch, each with its own 8 lanes.
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
    let hashes = _mm256_set1_epi32(bits.hashes as i32);

    // Every part can refill all of its lanes.
    while (0..U).all(|u| at[u] + LANES <= end[u]) {
        let mut hash = [zero; U];
        for u in 0..U {
            refill(&mut lanes[u], keys, payloads, &mut at[u]);
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
            pack(&lanes[u], lane_mask(_mm256_andnot_si256(missed, last)), out);
        }
    }
    for lanes in &lanes {
        in_flight(bits, lanes, out);
    }
    for u in 0..U {
        let (keys, payloads) = (&keys[at[u]..end[u]], &payloads[at[u]..end[u]]);
        if U > 1 && keys.len() >= LANES {
            survive::<1, PREFETCH>(bits, keys, payloads, out);
        } else {
            scalar::rest(bits, keys, payloads, out);
        }
    }
}

/// Gives each decided lane the next key from `at` on. The caller has checked that there are 8 from there.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn refill(lanes: &mut Lanes, keys: &[u32], payloads: &[u32], at: &mut usize) {
    let stay = lanes.done.count_zeros() as usize;
    debug_assert!(*at + LANES <= keys.len());
    // Those that stay move to the front; new ones come behind, loaded from so far before `at` that they need
    // not be moved.
    let order = permutation(!lanes.done);
    let numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let front = _mm256_cmpgt_epi32(_mm256_set1_epi32(stay as i32), numbers);
    // SAFETY: 8 keys and payloads lie from `at` on: the loop's condition. At first none stays, and from
    // then on 8 keys of this part lie before `at`.
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

/// Adds the lanes of `passed` to the survivors.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn pack(lanes: &Lanes, passed: u8, out: &mut Out<'_>) {
    let order = permutation(passed);
    debug_assert!(out.len + LANES <= out.keys.len());
    // SAFETY: the 8 keys of these lanes are not among the `len` survivors, and there is room for every key
    // of the batch: so there is room for 8 behind `len`.
    unsafe {
        _mm256_storeu_si256(out.keys.as_mut_ptr().add(out.len).cast(), permute(order, lanes.keys));
        _mm256_storeu_si256(out.payloads.as_mut_ptr().add(out.len).cast(), permute(order, lanes.payloads));
    }
    out.len += passed.count_ones() as usize;
}

/// Decides the keys that are still in their lanes.
#[target_feature(enable = "avx2")]
fn in_flight(bits: Bits<'_>, lanes: &Lanes, out: &mut Out<'_>) {
    let (mut keys, mut payloads) = ([0; LANES], [0; LANES]);
    // SAFETY: the arrays have 8 words.
    unsafe {
        _mm256_storeu_si256(keys.as_mut_ptr().cast(), lanes.keys);
        _mm256_storeu_si256(payloads.as_mut_ptr().cast(), lanes.payloads);
    }
    for lane in (0..LANES).filter(|lane| lanes.done >> lane & 1 == 0) {
        scalar::rest(bits, &keys[lane..=lane], &payloads[lane..=lane], out);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn permutation(first: u8) -> __m256i {
    let entry = u64::from_le_bytes(PERMUTATIONS[usize::from(first)]);
    _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(entry as i64))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn permute(order: __m256i, lanes: __m256i) -> __m256i {
    _mm256_permutevar8x32_epi32(lanes, order)
}

/// One bit for each lane of ones.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn lane_mask(lanes: __m256i) -> u8 {
    _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as u8
}

/// The seeds of 8 hash numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn seeds(bits: Bits<'_>, index: __m256i) -> __m256i {
    // SAFETY: `seeds` has 16 words: two registers.
    let (low, high) = unsafe {
        let seeds = bits.seeds.as_ptr().cast::<__m256i>();
        (_mm256_loadu_si256(seeds), _mm256_loadu_si256(seeds.add(1)))
    };
    let low = permute(index, low);
    if bits.hashes <= LANES {
        return low;
    }
    let beyond = _mm256_cmpgt_epi32(index, _mm256_set1_epi32(LANES as i32 - 1));
    _mm256_blendv_epi8(low, permute(index, high), beyond)
}

/// The hashes of 8 one-word keys, each under its seed.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn murmur3(keys: __m256i, seeds: __m256i) -> __m256i {
    let mul = |a, b: u32| _mm256_mullo_epi32(a, _mm256_set1_epi32(b as i32));
    let key = mul(keys, 0xcc9e_2d51);
    let key = _mm256_or_si256(_mm256_slli_epi32::<15>(key), _mm256_srli_epi32::<17>(key));
    let hash = _mm256_xor_si256(seeds, mul(key, 0x1b87_3593));
    let hash = _mm256_or_si256(_mm256_slli_epi32::<13>(hash), _mm256_srli_epi32::<19>(hash));
    let hash = _mm256_add_epi32(mul(hash, 5), _mm256_set1_epi32(0xe654_6b64_u32 as i32));
    let hash = _mm256_xor_si256(hash, _mm256_set1_epi32(4));
    let hash = _mm256_xor_si256(hash, _mm256_srli_epi32::<16>(hash));
    let hash = mul(hash, 0x85eb_ca6b);
    let hash = _mm256_xor_si256(hash, _mm256_srli_epi32::<13>(hash));
    let hash = mul(hash, 0xc2b2_ae35);
    _mm256_xor_si256(hash, _mm256_srli_epi32::<16>(hash))
}

/// Ones in each lane whose bit is not set.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn misses(bits: Bits<'_>, hash: __m256i) -> __m256i {
    let place = _mm256_srl_epi32(hash, _mm_cvtsi32_si128(bits.shift as i32));
    // SAFETY: `hash >> shift` is less than the number of words, which is at most 2^27: `Bits::new`.
    let words = unsafe { _mm256_i32gather_epi32::<4>(bits.words.as_ptr().cast(), place) };
    let bit = _mm256_and_si256(hash, _mm256_set1_epi32(31));
    let bit = _mm256_sllv_epi32(_mm256_set1_epi32(1), bit);
    _mm256_cmpeq_epi32(_mm256_and_si256(words, bit), _mm256_setzero_si256())
}

/// Asks for the words of 8 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn prefetch(bits: Bits<'_>, hash: __m256i) {
    let mut hashes = [0u32; LANES];
    // SAFETY: the array has 8 words.
    unsafe { _mm256_storeu_si256(hashes.as_mut_ptr().cast(), hash) };
    for hash in hashes {
        bits.prefetch(hash);
    }
}
