//! A block is one 256-bit register.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{BLOCK_WORDS, Blocks, SALTS};
use crate::isa::Avx2;
use crate::memory;

/// Keys hashed together.
const GROUP: usize = 64;

/// One bit a key.
#[inline]
pub(super) fn contains<K>(
    _: Avx2,
    ahead: bool,
    blocks: Blocks<'_>,
    keys: &[K],
    hits: &mut [u64],
    digest: impl Fn(&K) -> u64,
) {
    for (keys, hits) in keys.chunks(GROUP).zip(hits) {
        // SAFETY: the witness proves that the CPU has AVX2.
        *hits = unsafe { group(ahead, blocks, keys, &digest) };
    }
}

#[target_feature(enable = "avx2")]
fn group<K>(ahead: bool, blocks: Blocks<'_>, keys: &[K], digest: &impl Fn(&K) -> u64) -> u64 {
    let (mut lows, mut numbers) = ([0u32; GROUP], [0u32; GROUP]);
    for ((low, number), key) in lows.iter_mut().zip(&mut numbers).zip(keys) {
        let digest = digest(key);
        *low = digest as u32;
        *number = blocks.number((digest >> 32) as u32) as u32;
    }
    if ahead {
        numbers.iter().for_each(|n| memory::prefetch(blocks.words, *n as usize * BLOCK_WORDS));
    }
    // SAFETY: there are 8 salts.
    let salts = unsafe { _mm256_loadu_si256(SALTS.as_ptr().cast()) };
    let mut hits = 0;
    for (i, (low, number)) in lows.iter().zip(numbers).enumerate().take(keys.len()) {
        let bit = _mm256_srli_epi32::<27>(_mm256_mullo_epi32(_mm256_set1_epi32(*low as i32), salts));
        let mask = _mm256_sllv_epi32(_mm256_set1_epi32(1), bit);
        let hit = _mm256_testc_si256(load(blocks, number), mask);
        hits |= (hit as u64) << i;
    }
    hits
}

/// A block's four words.
#[inline]
#[target_feature(enable = "avx2")]
fn load(blocks: Blocks<'_>, number: u32) -> __m256i {
    let block: *const _ = &blocks.words.as_chunks::<BLOCK_WORDS>().0[number as usize];
    let value;
    // SAFETY: `block` is 32 readable bytes, aligned to 32, since `Memory` begins on a line. Others may set
    // bits there: this is equivalent to a relaxed atomic load of each of its words, which an aligned load is.
    unsafe {
        asm!("vmovdqa {}, ymmword ptr [{}]", out(ymm_reg) value, in(reg) block,
             options(readonly, nostack, preserves_flags));
    }
    value
}
