//! No refilling: one pass per hash over what survived the pass before.

use std::arch::x86_64::*;

use super::avx512::{murmur3, prefetch, test};
use super::batch::{Batch, Bits, Survive};
use crate::isa::Avx512;

const LANES: usize = 16;

/// Keys that go through all passes before the next ones do: what survives a pass stays in the L1 cache.
const CHUNK: usize = 4096;

/// One pass per hash.
pub(super) struct Staged(pub(super) Avx512);

impl Survive for Staged {
    fn survive<const U: usize, const PREFETCH: bool>(self, bits: Bits<'_>, batch: &mut Batch<'_>) {
        // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
        unsafe { survive::<U, PREFETCH>(bits, batch) }
    }
}

/// Keys and their payloads, in two arrays.
#[derive(Clone, Copy)]
struct Source {
    keys: *const u32,
    payloads: *const u32,
    len: usize,
}

#[derive(Clone, Copy)]
struct Target {
    keys: *mut u32,
    payloads: *mut u32,
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn survive<const U: usize, const PREFETCH: bool>(bits: Bits<'_>, batch: &mut Batch<'_>) {
    let Batch { keys, payloads, out } = batch;
    for (keys, payloads) in keys.chunks(CHUNK).zip(payloads.chunks(CHUNK)) {
        let (to_keys, to_payloads) = (&mut out.keys[out.len..], &mut out.payloads[out.len..]);
        assert!(to_keys.len() >= keys.len() && to_payloads.len() >= keys.len());
        let to = Target { keys: to_keys.as_mut_ptr(), payloads: to_payloads.as_mut_ptr() };
        let mut from = Source { keys: keys.as_ptr(), payloads: payloads.as_ptr(), len: keys.len() };
        for &seed in &bits.seeds[..bits.hashes] {
            // SAFETY: `to` has room for the chunk, asserted above; after the first pass, `from` is what that
            // pass wrote.
            from.len = unsafe { pass::<U, PREFETCH>(bits, seed, from, to) };
            (from.keys, from.payloads) = (to.keys, to.payloads);
        }
        out.len += from.len;
    }
}

/// Keeps, in their order, the keys whose bit under this seed is set, and says how many they are.
///
/// # Safety
/// `from` is readable, and `to` writable, for `from.len` words; `to` begins where `from` does, or they do not
/// overlap.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pass<const U: usize, const PREFETCH: bool>(
    bits: Bits<'_>,
    seed: u32,
    from: Source,
    to: Target,
) -> usize {
    let seeds = _mm512_set1_epi32(seed as i32);
    let (mut at, mut kept) = (0, 0);
    // SAFETY: `at + U · 16 ≤ len` wherever a group is read. `kept ≤ at`: a full store behind what is kept ends
    // where the vector just read does, at the latest, and so overwrites nothing unread.
    unsafe {
        let mut ahead = [_mm512_setzero_si512(); U];
        if PREFETCH && U * LANES <= from.len {
            ahead = hash_group::<U, true>(bits, seeds, from.keys);
        }
        while at + U * LANES <= from.len {
            let mut hash = ahead;
            if !PREFETCH {
                hash = hash_group::<U, false>(bits, seeds, from.keys.add(at));
            } else if at + 2 * U * LANES <= from.len {
                ahead = hash_group::<U, true>(bits, seeds, from.keys.add(at + U * LANES));
            }
            let mut hit = [0; U];
            for u in 0..U {
                hit[u] = test(bits, hash[u], !0);
            }
            for hit in hit {
                let keys = _mm512_loadu_si512(from.keys.add(at).cast());
                let payloads = _mm512_loadu_si512(from.payloads.add(at).cast());
                // Merging, not zeroing: the latter waits for the old value of its target on Zen 4 and 5.
                let keys = _mm512_mask_compress_epi32(keys, hit, keys);
                let payloads = _mm512_mask_compress_epi32(payloads, hit, payloads);
                _mm512_storeu_si512(to.keys.add(kept).cast(), keys);
                _mm512_storeu_si512(to.payloads.add(kept).cast(), payloads);
                kept += hit.count_ones() as usize;
                at += LANES;
            }
        }
    }
    while at < from.len {
        let count = (from.len - at).min(LANES);
        let among = (!0u32 >> (32 - count)) as __mmask16;
        // SAFETY: only the lanes of `among` are read, which lie in `from`; of those, and behind at most as
        // many, some are written.
        unsafe {
            let keys = _mm512_maskz_loadu_epi32(among, from.keys.add(at).cast());
            let payloads = _mm512_maskz_loadu_epi32(among, from.payloads.add(at).cast());
            let hit = test(bits, murmur3(keys, seeds), among);
            _mm512_mask_compressstoreu_epi32(to.keys.add(kept).cast(), hit, keys);
            _mm512_mask_compressstoreu_epi32(to.payloads.add(kept).cast(), hit, payloads);
            kept += hit.count_ones() as usize;
        }
        at += count;
    }
    kept
}

/// The hashes of `U` vectors of keys.
///
/// # Safety
/// `keys` is readable for `U` · 16 words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn hash_group<const U: usize, const PREFETCH: bool>(
    bits: Bits<'_>,
    seeds: __m512i,
    keys: *const u32,
) -> [__m512i; U] {
    let mut hash = [_mm512_setzero_si512(); U];
    for (u, hash) in hash.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *hash = murmur3(unsafe { _mm512_loadu_si512(keys.add(u * LANES).cast()) }, seeds);
        if PREFETCH {
            prefetch(bits, *hash);
        }
    }
    hash
}
