//! CRC32C: the Castagnoli polynomial 0x1EDC6F41, reflected (RFC 3720 §12.1, appendix B.4).
//!
//! Two things are computed with it:
//! - [`checksum`], as SCTP and iSCSI send it: begun with all ones and inverted at the end;
//! - hashes ([`hash_words`], [`Crc32c::hash_lanes`]): begun with the seed and not inverted, which is what a
//!   chain of `crc32` instructions gives, and what DPDK's `rte_hash_crc` does. Being linear, it is no
//!   defence against chosen keys: two keys that collide under one seed do so
//!   under all. Tables that hostile traffic reaches use MurmurHash3.
//!
//! SSE4.2 and AArch64 have an instruction for a step; lanes are chains of it side by side, one step a cycle. AVX2 and AVX-512
//! have no such instruction, and so no variant.

mod lanes;
mod scalar;

pub use scalar::{checksum, hash_words, update};

use crate::dispatch::{self, KernelSlot};
#[cfg(target_arch = "aarch64")]
use crate::isa::NeonCrc;
#[cfg(target_arch = "x86_64")]
use crate::isa::Sse42;
use crate::isa::Variant;

/// The instructions that hash, with the proof that they may be used.
#[derive(Clone, Copy, Debug)]
enum Backend {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Sse42(Sse42),
    #[cfg(target_arch = "aarch64")]
    Neon(NeonCrc),
}

/// CRC32C of one or many keys, by one of its variants.
#[derive(Clone, Copy, Debug)]
pub struct Crc32c {
    backend: Backend,
}

impl Crc32c {
    /// Returns the variant of this name, where it may be used here. NEON needs the instructions for CRC32C, too.
    pub fn with_variant(variant: Variant) -> Option<Self> {
        let backend = match variant {
            Variant::Scalar => Some(Backend::Scalar),
            #[cfg(target_arch = "x86_64")]
            Variant::Sse42 => Sse42::detect().map(Backend::Sse42),
            #[cfg(target_arch = "aarch64")]
            Variant::Neon => NeonCrc::detect().map(Backend::Neon),
            _ => None,
        };
        backend.map(|backend| Self { backend })
    }

    /// Returns the variant chosen for this machine ([`dispatch`]).
    pub fn new() -> Self {
        dispatch::choose(KernelSlot::Crc32c, |text| Self::with_variant(text.parse().ok()?))
    }

    /// Which variant this is.
    pub fn variant(&self) -> Variant {
        match self.backend {
            Backend::Scalar => Variant::Scalar,
            #[cfg(target_arch = "x86_64")]
            Backend::Sse42(_) => Variant::Sse42,
            #[cfg(target_arch = "aarch64")]
            Backend::Neon(_) => Variant::Neon,
        }
    }

    /// Hashes `N` keys of `words.len()` words each: `out[lane]` becomes the hash of `words[0][lane]`,
    /// `words[1][lane]`, … under `seed`. Meant for `N` 1, 8 and 16.
    #[inline]
    pub fn hash_lanes<const N: usize>(&self, words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
        match self.backend {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has SSE4.2.
            Backend::Sse42(_) => unsafe { lanes::chains(words, seed, out) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the witness proves that the CPU has the instructions for CRC32C.
            Backend::Neon(_) => unsafe { lanes::chains(words, seed, out) },
            Backend::Scalar => scalar::hash_lanes(words, seed, out),
        }
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}
