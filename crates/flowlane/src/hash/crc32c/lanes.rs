//! Chains of the `crc32` instruction side by side: its result comes after three cycles, but one can be
//! begun every cycle.
#![cfg(target_arch = "x86_64")]

use std::arch::x86_64::_mm_crc32_u32;

#[target_feature(enable = "sse4.2")]
pub(super) fn sse42<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    let mut crc = [seed; N];
    for word in words {
        for (crc, word) in crc.iter_mut().zip(word) {
            *crc = _mm_crc32_u32(*crc, *word);
        }
    }
    *out = crc;
}
