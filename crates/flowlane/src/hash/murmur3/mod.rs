//! MurmurHash3, x86, 32 bits (Austin Appleby, public domain: SMHasher's `MurmurHash3.cpp`).
//!
//! The hash that the tables use and that the paper's Bloom filters use (*Leveraging SIMD parallelism*,
//! §3.1): its steps are 32-bit multiplications, rotations and exclusive ors, which every SIMD width has, so
//! that 4, 8 or 16 keys are hashed in the time of one. It is no cryptographic hash; a secret seed keeps
//! outsiders from making keys collide *by accident of a known seed*, not against an attacker that sees
//! which keys collide.
//!
//! The lanes' kernel (`lanes.rs`) is plain loops over arrays; compiled for each instruction set it becomes
//! what one would write by hand (`vpmulld`, `vprold`, …), so there are no intrinsics here.

mod lanes;
mod scalar;

pub use scalar::{finish, hash_bytes, hash_words, mix};

use crate::dispatch::{self, KernelSlot};
use crate::isa::{Backend, Variant};

/// MurmurHash3 of many keys at a time, by one of its variants.
#[derive(Clone, Copy, Debug)]
pub struct Murmur3 {
    backend: Backend,
}

impl Murmur3 {
    /// Returns the variant of this name, where it may be used here.
    pub fn with_variant(variant: Variant) -> Option<Self> {
        Backend::of(variant).map(|backend| Self { backend })
    }

    /// Returns the variant chosen for this machine ([`dispatch`]).
    pub fn new() -> Self {
        dispatch::choose(KernelSlot::Murmur3, |text| Self::with_variant(text.parse().ok()?))
    }

    /// Which variant this is.
    pub fn variant(&self) -> Variant {
        self.backend.variant()
    }

    /// Hashes `N` keys of `words.len()` words each: `out[lane]` becomes the hash of `words[0][lane]`,
    /// `words[1][lane]`, … under `seed`. Meant for `N` 8 and 16.
    #[inline]
    pub fn hash_lanes<const N: usize>(&self, words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
        match self.backend {
            Backend::Scalar => scalar::hash_lanes(words, seed, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has SSE4.2.
            Backend::Sse42(_) => unsafe { lanes::sse42(words, seed, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has AVX2.
            Backend::Avx2(_) => unsafe { lanes::avx2(words, seed, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
            Backend::Avx512(_) => unsafe { lanes::avx512(words, seed, out) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the witness proves that the CPU has NEON.
            Backend::Neon(_) => unsafe { lanes::neon(words, seed, out) },
        }
    }
}

impl Default for Murmur3 {
    fn default() -> Self {
        Self::new()
    }
}
