//! Four keys of a pass in a register of NEON.

use std::arch::aarch64::*;

use super::bits::Bits;
use super::staged::{PassOps, Source, Target};
use crate::isa::Neon;

const LANES: usize = 4;

/// For each set of lanes the bytes of the permutation that puts them first, in their order, and zeros behind.
static PERMUTATIONS: [[u8; 4 * LANES]; 1 << LANES] = {
    let mut table = [[u8::MAX; 4 * LANES]; 1 << LANES];
    let mut set = 0;
    while set < table.len() {
        let (mut to, mut byte) = (0, 0);
        while byte < 4 * LANES {
            if set >> (byte / 4) & 1 == 1 {
                table[set][to] = byte as u8;
                to += 1;
            }
            byte += 1;
        }
        set += 1;
    }
    table
};

/// The hashes of four one-word keys.
#[inline]
#[target_feature(enable = "neon")]
fn murmur3(keys: uint32x4_t, seed: u32) -> uint32x4_t {
    let key = vmulq_n_u32(keys, 0xcc9e_2d51);
    let key = vsriq_n_u32::<17>(vshlq_n_u32::<15>(key), key);
    let hash = veorq_u32(vdupq_n_u32(seed), vmulq_n_u32(key, 0x1b87_3593));
    let hash = vsriq_n_u32::<19>(vshlq_n_u32::<13>(hash), hash);
    let hash = vmlaq_n_u32(vdupq_n_u32(0xe654_6b64), hash, 5);
    let hash = veorq_u32(hash, vdupq_n_u32(4));
    let hash = vmulq_n_u32(veorq_u32(hash, vshrq_n_u32::<16>(hash)), 0x85eb_ca6b);
    let hash = vmulq_n_u32(veorq_u32(hash, vshrq_n_u32::<13>(hash)), 0xc2b2_ae35);
    veorq_u32(hash, vshrq_n_u32::<16>(hash))
}

/// The places of the words of four bits.
#[inline]
#[target_feature(enable = "neon")]
fn places(bits: Bits<'_>, hash: uint32x4_t) -> [u32; LANES] {
    let mut places = [0; LANES];
    let place = vshlq_u32(hash, vdupq_n_s32(-(bits.shift as i32)));
    // SAFETY: the array has four words.
    unsafe { vst1q_u32(places.as_mut_ptr(), place) };
    places
}

/// Returns one bit for each lane whose bit is set.
#[inline]
#[target_feature(enable = "neon")]
fn test(bits: Bits<'_>, hash: uint32x4_t) -> u32 {
    // SAFETY: `hash >> shift` is less than the number of words: `Bits::new`.
    let words = places(bits, hash).map(|place| unsafe { *bits.words.get_unchecked(place as usize) });
    let bit = vreinterpretq_s32_u32(vandq_u32(hash, vdupq_n_u32(31)));
    // SAFETY: four words each.
    let (words, weights) = unsafe { (vld1q_u32(words.as_ptr()), vld1q_u32([1, 2, 4, 8].as_ptr())) };
    let is_set = vtstq_u32(words, vshlq_u32(vdupq_n_u32(1), bit));
    // Each lane has a bit of its own, so that the sum is their union.
    vaddvq_u32(vandq_u32(is_set, weights))
}

impl PassOps for Neon {
    const LANES: usize = LANES;
    type Vector = uint32x4_t;

    #[inline(always)]
    unsafe fn hash(keys: *const u32, seed: u32) -> uint32x4_t {
        // SAFETY: the trait's contract.
        unsafe { murmur3(vld1q_u32(keys), seed) }
    }

    #[inline(always)]
    unsafe fn prefetch(bits: Bits<'_>, hash: uint32x4_t) {
        // SAFETY: the trait's contract.
        let places = unsafe { places(bits, hash) };
        places.iter().for_each(|place| crate::memory::prefetch(bits.words, *place as usize));
    }

    #[inline(always)]
    unsafe fn test(bits: Bits<'_>, hash: uint32x4_t) -> u32 {
        // SAFETY: the trait's contract.
        unsafe { test(bits, hash) }
    }

    #[inline(always)]
    unsafe fn pack(from: Source, to: Target, hit: u32) {
        let order = &PERMUTATIONS[hit as usize % PERMUTATIONS.len()];
        // SAFETY: the trait's contract; sixteen bytes.
        unsafe {
            let order = vld1q_u8(order.as_ptr());
            let keys = vqtbl1q_u8(vld1q_u8(from.keys.cast()), order);
            let payloads = vqtbl1q_u8(vld1q_u8(from.payloads.cast()), order);
            vst1q_u8(to.keys.cast(), keys);
            vst1q_u8(to.payloads.cast(), payloads);
        }
    }
}
