//! Chains of the instruction for CRC32C side by side: its result comes after two or three cycles, but one can be
//! begun every cycle.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::__crc32cw as step;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::_mm_crc32_u32 as step;

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "sse4.2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "crc"))]
pub(super) fn chains<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    let mut crc = [seed; N];
    for word in words {
        for (crc, word) in crc.iter_mut().zip(word) {
            *crc = step(*crc, *word);
        }
    }
    *out = crc;
}
