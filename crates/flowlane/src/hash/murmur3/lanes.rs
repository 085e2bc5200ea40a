//! All lanes side by side: one kernel, compiled for each instruction set.

use super::scalar::{finish, mix};

/// Every lane takes a step before any takes the next, so that the compiler keeps the lanes in registers.
#[inline(always)]
fn hash<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    let mut hash = [seed; N];
    for word in words {
        for (hash, word) in hash.iter_mut().zip(word) {
            *hash = mix(*hash, *word);
        }
    }
    for (out, hash) in out.iter_mut().zip(hash) {
        *out = finish(hash, 4 * words.len() as u32);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
pub(super) fn sse42<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    hash(words, seed, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
pub(super) fn avx2<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    hash(words, seed, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn avx512<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    hash(words, seed, out);
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
pub(super) fn neon<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    hash(words, seed, out);
}
