//! The definition: one key after the other, in the order of the input.

use super::batch::{Batch, Survive};
use super::bits::Bits;
use crate::hash::murmur3;

/// The hash of a one-word key.
#[inline(always)]
pub(super) fn hash(key: u32, seed: u32) -> u32 {
    murmur3::finish(murmur3::mix(seed, key), 4)
}

/// Returns whether the bit of this hash is set.
#[inline(always)]
pub(super) fn test(bits: Bits<'_>, hash: u32) -> bool {
    bits.words[bits.place(hash)] >> (hash & 31) & 1 == 1
}

/// The digest of a 64-bit key: MurmurHash3's mixer of 64 bits, after a seed. Different keys have different
/// digests.
#[inline(always)]
pub(super) fn digest(key: u64, seed: u64) -> u64 {
    let key = key ^ seed;
    let key = (key ^ (key >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let key = (key ^ (key >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    key ^ (key >> 33)
}

/// The digest of a byte string: two hashes of it, one for each half of the seed.
#[inline(always)]
pub(super) fn digest_bytes(key: &[u8], seed: u64) -> u64 {
    let low = murmur3::hash_bytes(key, seed as u32);
    u64::from(low) | u64::from(murmur3::hash_bytes(key, (seed >> 32) as u32)) << 32
}

/// The hash number `i` that a digest gives: Kirsch and Mitzenmacher's two hashes for many.
#[inline(always)]
pub(super) fn digest_hash(digest: u64, i: usize) -> u32 {
    let (low, high) = (digest as u32, (digest >> 32) as u32);
    low.wrapping_add((high | 1).wrapping_mul(i as u32))
}

/// Returns whether all bits of a digest are set.
#[inline(always)]
pub(super) fn contains_digest(bits: Bits<'_>, digest: u64) -> bool {
    (0..bits.hashes).all(|i| test(bits, digest_hash(digest, i)))
}

/// One key at a time; the word of the first bit is prefetched `8 * U` keys ahead.
pub(super) struct Scalar;

impl Survive for Scalar {
    #[inline]
    fn survive<const U: usize, const PREFETCH: bool>(self, bits: Bits<'_>, batch: &mut Batch<'_>) {
        let Batch { keys, payloads, out } = batch;
        for (i, (&key, &payload)) in keys.iter().zip(*payloads).enumerate() {
            if PREFETCH && let Some(&ahead) = keys.get(i + 8 * U) {
                bits.prefetch(hash(ahead, bits.seeds[0]));
            }
            if bits.contains(key) {
                out.push(key, payload);
            }
        }
    }
}
