//! Chains of the `crc32` instruction side by side: its result comes after three cycles, but one can be
//! begun every cycle.
#![cfg(target_arch = "x86_64")]

use std::arch::x86_64::_mm_crc32_u32;

#[inline]
#[target_feature(enable = "sse4.2")]
fn hash<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    let mut crc = [seed; N];
    for word in words {
        for (crc, word) in crc.iter_mut().zip(word) {
            *crc = _mm_crc32_u32(*crc, *word);
        }
    }
    *out = crc;
}

#[target_feature(enable = "sse4.2")]
pub(super) fn sse42<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    hash(words, seed, out);
}

#[target_feature(enable = "avx2,sse4.2")]
pub(super) fn avx2<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    hash(words, seed, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,sse4.2")]
pub(super) fn avx512<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    hash(words, seed, out);
}
