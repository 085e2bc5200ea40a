//! A block is two registers of 128 bits.

use std::arch::aarch64::*;
use std::arch::asm;

use super::{BLOCK_WORDS, Blocks, SALTS};
use crate::isa::Neon;
use crate::memory;

/// Keys hashed together.
const GROUP: usize = 64;

/// One bit a key.
#[inline]
pub(super) fn contains<K>(
    _: Neon,
    ahead: bool,
    blocks: Blocks<'_>,
    keys: &[K],
    hits: &mut [u64],
    digest: impl Fn(&K) -> u64,
) {
    for (keys, hits) in keys.chunks(GROUP).zip(hits) {
        // SAFETY: the witness proves that the CPU has NEON.
        *hits = unsafe {
            if ahead {
                group_ahead(blocks, keys, &digest)
            } else {
                group(blocks, keys, digest_of(blocks, &digest))
            }
        };
    }
}

/// The low half of a key's digest, and the number of its block.
#[inline(always)]
fn digest_of<K>(blocks: Blocks<'_>, digest: &impl Fn(&K) -> u64) -> impl Fn(&K) -> (u32, usize) {
    move |key| {
        let digest = digest(key);
        (digest as u32, blocks.number((digest >> 32) as u32))
    }
}

/// Asks for all blocks before it reads the first.
#[target_feature(enable = "neon")]
fn group_ahead<K>(blocks: Blocks<'_>, keys: &[K], digest: &impl Fn(&K) -> u64) -> u64 {
    let mut places = [(0, 0); GROUP];
    for (place, key) in places.iter_mut().zip(keys) {
        *place = digest_of(blocks, digest)(key);
        memory::prefetch(blocks.words, place.1 * BLOCK_WORDS);
    }
    group(blocks, &places[..keys.len()], |place| *place)
}

/// Returns one bit for each key, whose digest and block `place` returns.
#[inline]
#[target_feature(enable = "neon")]
fn group<K>(blocks: Blocks<'_>, keys: &[K], place: impl Fn(&K) -> (u32, usize)) -> u64 {
    let missing = |key: &K| {
        let (low, number) = place(key);
        missing(load(blocks, number), low)
    };
    let (fours, rest) = keys.as_chunks::<4>();
    // SAFETY: four weights.
    let weights = unsafe { vld1q_u32([1, 2, 4, 8].as_ptr()) };
    let mut hits = 0;
    for (i, [a, b, c, d]) in fours.iter().enumerate() {
        // Largest neighbours, until a lane has those of a key.
        let (first, second) = (vpmaxq_u32(missing(a), missing(b)), vpmaxq_u32(missing(c), missing(d)));
        let is_hit = vceqzq_u32(vpmaxq_u32(first, second));
        // Each lane has a bit of its own, so that the sum is their union.
        hits |= u64::from(vaddvq_u32(vandq_u32(is_hit, weights))) << (4 * i);
    }
    for (i, key) in rest.iter().enumerate() {
        hits |= u64::from(vmaxvq_u32(missing(key)) == 0) << (4 * fours.len() + i);
    }
    hits
}

/// Returns the bits of a key that a block lacks, those of the upper half of the words with those of the lower one.
#[inline]
#[target_feature(enable = "neon")]
fn missing(block: [uint32x4_t; 2], low: u32) -> uint32x4_t {
    let of = |salts: &[u32], block: uint32x4_t| {
        // SAFETY: four salts.
        let salts = unsafe { vld1q_u32(salts[..4].as_ptr()) };
        let bit = vreinterpretq_s32_u32(vshrq_n_u32::<27>(vmulq_n_u32(salts, low)));
        vbicq_u32(vshlq_u32(vdupq_n_u32(1), bit), block)
    };
    vorrq_u32(of(&SALTS[..4], block[0]), of(&SALTS[4..], block[1]))
}

/// A block's four words.
#[inline]
#[target_feature(enable = "neon")]
fn load(blocks: Blocks<'_>, number: usize) -> [uint32x4_t; 2] {
    let block: *const _ = &blocks.words.as_chunks::<BLOCK_WORDS>().0[number];
    let (low, high): (uint32x4_t, uint32x4_t);
    // SAFETY: `block` is 32 readable bytes. Others may set bits there: this is equivalent to a relaxed atomic load of each of its
    // words, since `ld1` reads each aligned element at once.
    unsafe {
        asm!("ld1 {{v0.2d, v1.2d}}, [{}]", in(reg) block, out("v0") low, out("v1") high,
             options(readonly, nostack, preserves_flags));
    }
    [low, high]
}
