//! A block is two registers of 128 bits.

use std::arch::aarch64::*;
use std::arch::asm;

use super::{BLOCK_BYTES, BLOCK_WORDS, Blocks, SALTS};
use crate::isa::Neon;
use crate::isa::simd::Quad;
use crate::memory;

/// Keys hashed together.
const GROUP: usize = 64;

/// Keys whose hits become one number together: as many as four registers have lanes.
const TOGETHER: usize = 16;

/// One bit a key.
#[inline]
pub(super) fn contains<K>(
    isa: Neon,
    ahead: bool,
    blocks: Blocks<'_>,
    keys: &[K],
    hits: &mut [u64],
    digest: impl Fn(&K) -> u64,
) {
    assert!(
        blocks.words.len() == blocks.count as usize * BLOCK_WORDS,
        "the number of blocks is that of the words"
    );
    for (keys, hits) in keys.chunks(GROUP).zip(hits) {
        // SAFETY: the witness proves that the CPU has NEON.
        *hits = unsafe {
            if ahead {
                group_ahead(isa, blocks, keys, &digest)
            } else {
                group(isa, keys, |key| Place::of(blocks, digest(key)))
            }
        };
    }
}

/// Where a key's bits are.
#[derive(Clone, Copy)]
struct Place {
    /// The digest, of which the low half counts.
    digest: u64,
    block: *const [u8; BLOCK_BYTES],
}

impl Place {
    const NONE: Self = Self { digest: 0, block: std::ptr::null() };

    /// Finds the block of a digest: [`Blocks::block`].
    #[inline(always)]
    fn of(blocks: Blocks<'_>, digest: u64) -> Self {
        // The upper half of 128 bits: one multiplication, without a shift before and after it.
        let high = u128::from(digest & 0xffff_ffff_0000_0000);
        let number = ((high * u128::from(blocks.count)) >> 64) as usize;
        Self { digest, block: blocks.words.as_ptr().cast::<[u8; BLOCK_BYTES]>().wrapping_add(number) }
    }

    /// Finds the block of a digest, and prefetches it.
    #[inline(always)]
    fn ahead(blocks: Blocks<'_>, digest: u64) -> Self {
        let place = Self::of(blocks, digest);
        memory::prefetch_at(place.block.cast());
        place
    }
}

/// Asks for all blocks before it reads the first.
#[target_feature(enable = "neon")]
fn group_ahead<K>(isa: Neon, blocks: Blocks<'_>, keys: &[K], digest: &impl Fn(&K) -> u64) -> u64 {
    let mut places = [Place::NONE; GROUP];
    let own = &mut places[..keys.len()];
    // Four in a step: prefetches keep the compiler from unrolling a loop.
    let ((fours, rest), (of_fours, of_rest)) = (keys.as_chunks::<4>(), own.as_chunks_mut::<4>());
    for (places, keys) in of_fours.iter_mut().zip(fours) {
        *places = keys.each_ref().map(|key| Place::ahead(blocks, digest(key)));
    }
    for (place, key) in of_rest.iter_mut().zip(rest) {
        *place = Place::ahead(blocks, digest(key));
    }
    group(isa, own, |place| *place)
}

/// Returns one bit for each key, whose block `place` returns.
#[inline]
#[target_feature(enable = "neon")]
fn group<K>(isa: Neon, keys: &[K], place: impl Fn(&K) -> Place) -> u64 {
    // SAFETY: places that `Place::of` returns.
    let missing = |key: &K| unsafe { missing(place(key)) };
    let (sixteens, rest) = keys.as_chunks::<TOGETHER>();
    let mut hits = 0;
    for (i, keys) in sixteens.iter().enumerate() {
        let is_hit = |four: usize| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|key| missing(&keys[4 * four + key]));
            // Largest neighbours, until a lane has those of a key.
            vceqzq_u32(vpmaxq_u32(vpmaxq_u32(a, b), vpmaxq_u32(c, d)))
        };
        let is_hit = [is_hit(0), is_hit(1), is_hit(2), is_hit(3)];
        hits |= u64::from(isa.bits_of_four(is_hit)) << (TOGETHER * i);
    }
    for (i, key) in rest.iter().enumerate() {
        hits |= u64::from(vmaxvq_u32(missing(key)) == 0) << (keys.len() - rest.len() + i);
    }
    hits
}

/// Returns the bits of a key that its block lacks, those of the upper half of the words with those of the lower one.
///
/// # Safety
/// The block is one of a filter's.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn missing(place: Place) -> uint32x4_t {
    let of = |salts: &[u32], block: uint32x4_t| {
        // SAFETY: four salts.
        let salts = unsafe { vld1q_u32(salts[..4].as_ptr()) };
        let bit = vreinterpretq_s32_u32(vshrq_n_u32::<27>(vmulq_n_u32(salts, place.digest as u32)));
        vbicq_u32(vshlq_u32(vdupq_n_u32(1), bit), block)
    };
    // SAFETY: the caller's.
    let [low, high] = unsafe { load(place.block) };
    vorrq_u32(of(&SALTS[..4], low), of(&SALTS[4..], high))
}

/// Loads a block.
///
/// # Safety
/// It is one of a filter's.
#[inline(always)]
unsafe fn load(block: *const [u8; BLOCK_BYTES]) -> [uint32x4_t; 2] {
    let (low, high): (uint32x4_t, uint32x4_t);
    // SAFETY: 32 readable bytes. Others may set bits there: this is equivalent to a relaxed atomic load of each of its
    // words, since `ldp` reads each aligned word of 64 bits at once (Arm Architecture Reference Manual, B2.2.1).
    unsafe {
        asm!("ldp {:q}, {:q}, [{}]", out(vreg) low, out(vreg) high, in(reg) block,
             options(readonly, nostack, preserves_flags));
    }
    [low, high]
}
