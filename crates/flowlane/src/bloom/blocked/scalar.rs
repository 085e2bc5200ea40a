//! The definition.

use std::sync::atomic::Ordering;

use super::{BLOCK_WORDS, Blocks, SALTS};
use crate::bloom::batch::Out;

/// The bits of a key in its block: one in each 32-bit word.
#[inline(always)]
pub(super) fn mask(low: u32) -> [u64; BLOCK_WORDS] {
    let bit = |salt: u32| 1u64 << (low.wrapping_mul(salt) >> 27);
    std::array::from_fn(|i| bit(SALTS[2 * i]) | bit(SALTS[2 * i + 1]) << 32)
}

/// Returns whether all bits of a digest are set.
#[inline(always)]
pub(super) fn contains(blocks: Blocks<'_>, digest: u64) -> bool {
    let block = blocks.block((digest >> 32) as u32);
    let mask = mask(digest as u32);
    let missing = block.iter().zip(mask).map(|(word, mask)| mask & !word.load(Ordering::Relaxed));
    missing.fold(0, |all, missing| all | missing) == 0
}

/// One bit a key.
pub(super) fn contains_batch<K>(
    blocks: Blocks<'_>,
    keys: &[K],
    hits: &mut [u64],
    digest: impl Fn(&K) -> u64,
) {
    for (keys, hits) in keys.chunks(64).zip(hits) {
        *hits = keys.iter().rev().fold(0, |word, key| word << 1 | u64::from(contains(blocks, digest(key))));
    }
}

/// Adds the keys with a bit in `hits` to the survivors.
pub(super) fn pack(keys: &[u32], payloads: &[u32], hits: &[u64], out: &mut Out<'_>) {
    for ((keys, payloads), hits) in keys.chunks(64).zip(payloads.chunks(64)).zip(hits) {
        let mut hits = *hits;
        while hits != 0 {
            let i = hits.trailing_zeros() as usize;
            out.push(keys[i], payloads[i]);
            hits &= hits - 1;
        }
    }
}
