//! Two blocks in a 512-bit register, 64 keys for a word of hits.

use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::atomic::AtomicU64;

use super::{BLOCK_BYTES, Blocks, SALTS};
use crate::bloom::avx512::spill;
use crate::bloom::batch::Out;
use crate::bloom::contains::Kind;
use crate::isa::Avx512;
use crate::memory;

const LANES: usize = 16;
/// Keys for one word of hits.
const GROUP: usize = 64;

/// 64 keys, hashed.
#[repr(align(64))]
struct Group {
    /// The low halves of their digests.
    low: [u32; GROUP],
    /// Where their blocks begin, in bytes. Each is that of a block.
    offsets: [u32; GROUP],
    /// Which of the 64 there are.
    among: u64,
}

/// Bit `i` of `hits` says whether key `i` may be in. `hits` has a word for each 64 keys.
#[inline]
pub(super) fn contains<K: Kind>(
    _: Avx512,
    ahead: bool,
    blocks: Blocks<'_>,
    seed: u64,
    keys: &[K],
    hits: &mut [u64],
) {
    // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
    unsafe {
        if ahead {
            groups::<K, true>(blocks, seed, keys, hits);
        } else {
            groups::<K, false>(blocks, seed, keys, hits);
        }
    }
}

/// Hashes each group before the one before it is tested: then the offsets that are stored as vectors have
/// reached the cache when they are loaded one by one (a store is not forwarded to a part of it), and blocks
/// that were prefetched have arrived.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn groups<K: Kind, const PREFETCH: bool>(blocks: Blocks<'_>, seed: u64, keys: &[K], hits: &mut [u64]) {
    let mut groups = [const { Group { low: [0; GROUP], offsets: [0; GROUP], among: 0 } }; 2];
    let mut chunks = keys.chunks(GROUP);
    if let Some(keys) = chunks.next() {
        hash::<K, PREFETCH>(blocks, seed, keys, &mut groups[0]);
    }
    for (i, hits) in hits.iter_mut().enumerate() {
        if let Some(keys) = chunks.next() {
            hash::<K, PREFETCH>(blocks, seed, keys, &mut groups[(i + 1) % 2]);
        }
        *hits = test(blocks, &groups[i % 2]);
    }
}

/// Hashes at most 64 keys.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn hash<K: Kind, const PREFETCH: bool>(blocks: Blocks<'_>, seed: u64, keys: &[K], group: &mut Group) {
    group.among = !0u64 >> (GROUP - keys.len().clamp(1, GROUP));
    let count = _mm512_set1_epi64(blocks.count.into());
    for v in 0..GROUP / LANES {
        let among = (group.among >> (LANES * v)) as __mmask16;
        // SAFETY: this function runs with AVX-512; the lanes of `among` are keys.
        let [low, high] = unsafe { K::digest16(keys.as_ptr().wrapping_add(LANES * v), among, seed) };
        // high · count >> 32 is the block: even lanes, then odd ones.
        let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(high, count));
        let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(high), count);
        let number = _mm512_mask_blend_epi32(0xaaaa, even, odd);
        let offset = _mm512_slli_epi32::<{ BLOCK_BYTES.trailing_zeros() }>(number);
        let part = LANES * v..LANES * (v + 1);
        spill(low, &mut group.low[part.clone()]);
        spill(offset, &mut group.offsets[part.clone()]);
        if PREFETCH {
            for offset in &group.offsets[part] {
                memory::prefetch(blocks.words, *offset as usize / 8);
            }
        }
    }
}

/// Which keys of a group may be in.
///
/// A register holds the blocks of two keys, 8 apart; 32 such pairs are tested one after the other. Each lane of
/// `missing` collects for each pair whether its word lacks the key's bit, in the pair's bit: all bits of a key
/// are there where no lane of its half says so.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn test(blocks: Blocks<'_>, group: &Group) -> u64 {
    // SAFETY: there are 8 salts.
    let salts = _mm512_broadcast_i64x4(unsafe { _mm256_loadu_si256(SALTS.as_ptr().cast()) });
    let mut missing = _mm512_setzero_si512();
    for v in 0..GROUP / LANES {
        let offsets = &group.offsets[LANES * v..LANES * (v + 1)];
        // SAFETY: 16 words lie there.
        let low = unsafe { _mm512_loadu_si512(group.low[LANES * v..LANES * (v + 1)].as_ptr().cast()) };
        // Eight times lane 0, eight times lane 8.
        let mut lanes = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8);
        for i in 0..LANES / 2 {
            let pair = (LANES / 2 * v + i) as i32;
            let word = _mm512_mullo_epi32(_mm512_permutexvar_epi32(lanes, low), salts);
            // The place of the bit, less that of the pair: by so much the word is turned.
            let turn = _mm512_sub_epi32(_mm512_srli_epi32::<27>(word), _mm512_set1_epi32(pair));
            let turned = _mm512_rorv_epi32(load(blocks, offsets[i], offsets[i + LANES / 2]), turn);
            // missing | (!turned & bit)
            missing = _mm512_ternarylogic_epi32::<0xf4>(missing, _mm512_set1_epi32(1 << pair), turned);
            lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32(1));
        }
    }
    let first = or_lanes(_mm512_castsi512_si256(missing));
    let second = or_lanes(_mm512_extracti64x4_epi64::<1>(missing));
    // Byte v of the one is for the first 8 keys of vector v, of the other for the second.
    !(_mm_cvtsi128_si64(_mm_unpacklo_epi8(first, second)) as u64) & group.among
}

/// Lane 0: all lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn or_lanes(lanes: __m256i) -> __m128i {
    let four = _mm_or_si128(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
    let two = _mm_or_si128(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    _mm_or_si128(two, _mm_shuffle_epi32::<0b10_11_00_01>(two))
}

/// Two blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn load(blocks: Blocks<'_>, first: u32, second: u32) -> __m512i {
    let base: *const AtomicU64 = blocks.words.as_ptr();
    let (low, both): (__m256i, __m512i);
    // SAFETY: the offsets are those of two blocks of 32 readable bytes, aligned to 32, since `Memory` begins
    // on a line. Others may set bits there: this is equivalent to a relaxed atomic load of each of their words,
    // which an aligned load is.
    unsafe {
        asm!("vmovdqa64 {low}, ymmword ptr [{base} + {first}]", low = out(ymm_reg) low, base = in(reg) base,
             first = in(reg) u64::from(first), options(readonly, nostack, preserves_flags));
        asm!("vinserti64x4 {both}, {low}, ymmword ptr [{base} + {second}], 1", both = lateout(zmm_reg) both,
             low = in(zmm_reg) _mm512_castsi256_si512(low), base = in(reg) base,
             second = in(reg) u64::from(second), options(readonly, nostack, preserves_flags));
    }
    both
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
