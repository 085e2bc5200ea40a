//! Two blocks in a 512-bit register, 64 keys for a word of hits.

use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::atomic::AtomicU64;

use super::{BLOCK_BYTES, Blocks, SALTS};
use crate::bloom::batch::Out;
use crate::bloom::contains::Kind;
use crate::isa::Avx512;
use crate::memory;

const LANES: usize = 16;
/// Vectors for one word of hits.
const VECTORS: usize = 4;

/// 64 keys, hashed.
struct Group {
    /// The low halves of their digests.
    low: [__m512i; VECTORS],
    /// Where their blocks begin, in bytes. Each is that of a block.
    offsets: [u32; VECTORS * LANES],
    /// Which of the 64 there are.
    among: u64,
}

/// Bit `i` of `hits` says whether key `i` may be in. `hits` has a word for each 64 keys.
#[inline]
pub(super) fn contains<K: Kind>(
    _: Avx512,
    ahead: bool,
    blocks: Blocks<'_>,
    seeds: [u32; 2],
    keys: &[K],
    hits: &mut [u64],
) {
    // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
    unsafe {
        if ahead {
            contains_ahead(blocks, seeds, keys, hits);
        } else {
            contains_now(blocks, seeds, keys, hits);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn contains_now<K: Kind>(blocks: Blocks<'_>, seeds: [u32; 2], keys: &[K], hits: &mut [u64]) {
    for (keys, hits) in keys.chunks(64).zip(hits) {
        *hits = test(blocks, &hash(blocks, seeds, keys));
    }
}

/// While the blocks of one group come, the group before is tested.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn contains_ahead<K: Kind>(blocks: Blocks<'_>, seeds: [u32; 2], keys: &[K], hits: &mut [u64]) {
    let mut groups = keys.chunks(64);
    let Some(first) = groups.next() else { return };
    let mut now = hash(blocks, seeds, first);
    prefetch(blocks, &now);
    for hits in hits {
        let Some(keys) = groups.next() else {
            *hits = test(blocks, &now);
            break;
        };
        let next = hash(blocks, seeds, keys);
        prefetch(blocks, &next);
        *hits = test(blocks, &now);
        now = next;
    }
}

/// Hashes at most 64 keys.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn hash<K: Kind>(blocks: Blocks<'_>, seeds: [u32; 2], keys: &[K]) -> Group {
    let mut group = Group {
        low: [_mm512_setzero_si512(); VECTORS],
        offsets: [0; VECTORS * LANES],
        among: !0u64 >> (64 - keys.len().clamp(1, 64)),
    };
    let count = _mm512_set1_epi64(blocks.count.into());
    for (v, offsets) in group.offsets.chunks_exact_mut(LANES).enumerate() {
        let among = (group.among >> (LANES * v)) as __mmask16;
        // SAFETY: this function runs with AVX-512; the lanes of `among` are keys.
        let [low, high] = unsafe { K::digest16(keys.as_ptr().wrapping_add(LANES * v), among, seeds) };
        group.low[v] = low;
        // high · count >> 32 is the block: even lanes, then odd ones.
        let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(high, count));
        let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(high), count);
        let number = _mm512_mask_blend_epi32(0xaaaa, even, odd);
        let offset = _mm512_slli_epi32::<{ BLOCK_BYTES.trailing_zeros() }>(number);
        // SAFETY: 16 words.
        unsafe { _mm512_storeu_si512(offsets.as_mut_ptr().cast(), offset) };
    }
    group
}

#[inline(always)]
fn prefetch(blocks: Blocks<'_>, group: &Group) {
    for offset in group.offsets {
        memory::prefetch(blocks.words, offset as usize / 8);
    }
}

/// Which keys of a group may be in.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn test(blocks: Blocks<'_>, group: &Group) -> u64 {
    let mut hits = 0;
    for (v, offsets) in group.offsets.as_chunks::<LANES>().0.iter().enumerate() {
        hits |= u64::from(test16(blocks, group.low[v], offsets)) << (LANES * v);
    }
    hits & group.among
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn test16(blocks: Blocks<'_>, low: __m512i, offsets: &[u32; LANES]) -> __mmask16 {
    // SAFETY: there are 8 salts.
    let salts = _mm512_broadcast_i64x4(unsafe { _mm256_loadu_si256(SALTS.as_ptr().cast()) });
    // Lane 0 eight times, lane 1 eight times; then the next two.
    let mut pair = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    let mut missing = [0; LANES / 2];
    for (missing, &[first, second]) in missing.iter_mut().zip(offsets.as_chunks::<2>().0) {
        let pair_of_blocks = _mm512_castsi256_si512(load(blocks, first));
        let pair_of_blocks = _mm512_inserti64x4::<1>(pair_of_blocks, load(blocks, second));
        let low = _mm512_permutexvar_epi32(pair, low);
        let bit = _mm512_srli_epi32::<27>(_mm512_mullo_epi32(low, salts));
        let mask = _mm512_sllv_epi32(_mm512_set1_epi32(1), bit);
        *missing = _mm512_testn_epi32_mask(pair_of_blocks, mask);
        pair = _mm512_add_epi32(pair, _mm512_set1_epi32(2));
    }
    // One byte a key, 0 where no bit is missing.
    let [a, b, c, d, e, f, g, h] = missing;
    let low = _mm512_kunpackd(join(d, c).into(), join(b, a).into());
    let high = _mm512_kunpackd(join(h, g).into(), join(f, e).into());
    let bytes = _mm_set_epi64x(high as i64, low as i64);
    _mm_testn_epi8_mask(bytes, bytes)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn join(high: __mmask16, low: __mmask16) -> __mmask32 {
    _mm512_kunpackw(high.into(), low.into())
}

/// A block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn load(blocks: Blocks<'_>, offset: u32) -> __m256i {
    let base: *const AtomicU64 = blocks.words.as_ptr();
    let value: __m256i;
    // SAFETY: the offset is that of a block of 32 readable bytes, aligned to 32, since `Memory` begins on a
    // line. Others may set bits there: this stands for a relaxed atomic load of each of its words, which
    // an aligned load is.
    unsafe {
        asm!("vmovdqa64 {value}, ymmword ptr [{base} + {offset}]", value = out(ymm_reg) value,
             base = in(reg) base, offset = in(reg) u64::from(offset), options(readonly, nostack, preserves_flags));
    }
    value
}

/// Adds the keys with a bit in `hits` to the survivors.
#[inline]
pub(super) fn pack(_: Avx512, keys: &[u32], payloads: &[u32], hits: &[u64], out: &mut Out<'_>) {
    assert!(keys.len() == payloads.len() && keys.len().div_ceil(64) <= hits.len());
    assert!(out.len + keys.len() <= out.keys.len() && out.keys.len() == out.payloads.len());
    // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
    unsafe { pack_all(keys, payloads, hits, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn pack_all(keys: &[u32], payloads: &[u32], hits: &[u64], out: &mut Out<'_>) {
    let whole = keys.len() / LANES;
    for at in (0..whole).map(|v| v * LANES) {
        let hit = (hits[at / 64] >> (at % 64)) as __mmask16;
        // SAFETY: 16 keys and payloads are read from `at` on; there is room behind the survivors for all
        // keys that are not yet decided, these 16 among them: asserted above.
        unsafe {
            let key = _mm512_loadu_si512(keys.as_ptr().add(at).cast());
            let payload = _mm512_loadu_si512(payloads.as_ptr().add(at).cast());
            let to = out.keys.as_mut_ptr().add(out.len);
            _mm512_storeu_si512(to.cast(), _mm512_mask_compress_epi32(key, hit, key));
            let to = out.payloads.as_mut_ptr().add(out.len);
            _mm512_storeu_si512(to.cast(), _mm512_mask_compress_epi32(payload, hit, payload));
        }
        out.len += hit.count_ones() as usize;
    }
    for i in whole * LANES..keys.len() {
        if hits[i / 64] >> (i % 64) & 1 == 1 {
            out.push(keys[i], payloads[i]);
        }
    }
}
