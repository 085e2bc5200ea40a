//! CRC32C: the Castagnoli polynomial 0x1EDC6F41, reflected (RFC 3720 §12.1, appendix B.4).
//!
//! Two things are computed with it:
//! - [`checksum`], as SCTP and iSCSI send it: begun with all ones and inverted at the end;
//! - hashes ([`hash_words`], [`Crc32c::hash_lanes`]): begun with the seed and not inverted, which is what a
//!   chain of `crc32` instructions gives, and what DPDK's `rte_hash_crc` does. Being linear, it is no
//!   defence against chosen keys: two keys that collide under one seed do so
//!   under all. Tables that hostile traffic reaches use MurmurHash3.
//!
//! SSE4.2 has an instruction for a step; lanes are chains of it side by side, one step a cycle. AVX2 and AVX-512 have no
//! such instruction, and so no variant.

mod lanes;
mod scalar;

pub use scalar::{checksum, hash_words, update};

use crate::dispatch::{self, KernelSlot};
use crate::isa::{Backend, Variant};

/// CRC32C of one or many keys, by one of its variants.
#[derive(Clone, Copy, Debug)]
pub struct Crc32c {
    backend: Backend,
}

impl Crc32c {
    /// Returns the variant of this name, where it may be used here.
    pub fn with_variant(variant: Variant) -> Option<Self> {
        let exists = matches!(variant, Variant::Scalar | Variant::Sse42);
        Backend::of(variant).filter(|_| exists).map(|backend| Self { backend })
    }

    /// Returns the variant chosen for this machine ([`dispatch`]).
    pub fn new() -> Self {
        dispatch::choose(KernelSlot::Crc32c, |text| Self::with_variant(text.parse().ok()?))
    }

    /// Which variant this is.
    pub fn variant(&self) -> Variant {
        self.backend.variant()
    }

    /// Hashes `N` keys of `words.len()` words each: `out[lane]` becomes the hash of `words[0][lane]`,
    /// `words[1][lane]`, … under `seed`. Meant for `N` 1, 8 and 16.
    #[inline]
    pub fn hash_lanes<const N: usize>(&self, words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
        match self.backend {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has SSE4.2.
            Backend::Sse42(_) => unsafe { lanes::sse42(words, seed, out) },
            _ => scalar::hash_lanes(words, seed, out),
        }
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}
