//! The paper's cache: eight endpoints whose hashes are compared at once (`vtep4_check_x8`, §5.2).
//!
//! The paper trusts the hash. This cache also compares the key, so that a packet with a forged source whose hash
//! collides with another tunnel's is not attributed to that tunnel.

use super::recent::{Recent, same};

const ENTRIES: usize = 8;

/// Eight keys with their hashes and endpoints, and the index of the next replacement.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct EightEndpoints<const W: usize> {
    hashes: [u64; ENTRIES],
    keys: [[u32; W]; ENTRIES],
    endpoints: [u32; ENTRIES],
    next: usize,
}

impl<const W: usize> EightEndpoints<W> {
    pub(super) fn new() -> Self {
        // A key's tag is never 0, so zeros match no key.
        Self { hashes: [0; ENTRIES], keys: [[0; W]; ENTRIES], endpoints: [0; ENTRIES], next: 0 }
    }
}

/// A comparison of one hash with eight.
pub(super) trait Compare: Copy {
    /// Returns a bit for each equal hash.
    fn equal(self, hashes: &[u64; ENTRIES], hash: u64) -> u32;
}

/// The definition.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Compare for Portable {
    #[inline(always)]
    fn equal(self, hashes: &[u64; ENTRIES], hash: u64) -> u32 {
        hashes.iter().rev().fold(0, |bits, own| bits << 1 | u32::from(*own == hash))
    }
}

/// A fast hash of low quality, which the comparison of keys makes safe.
#[inline(always)]
fn hash<const W: usize>(key: &[u32; W]) -> u64 {
    let (pairs, _) = key.as_chunks::<2>();
    pairs.iter().fold(0u64, |hash, [low, high]| {
        (hash.rotate_left(29) ^ (u64::from(*high) << 32 | u64::from(*low)))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// The cache with a comparison method.
pub(super) struct Comparing<'a, const W: usize, C> {
    pub(super) cache: &'a mut EightEndpoints<W>,
    pub(super) compare: C,
}

impl<const W: usize, C: Compare> Recent<W> for Comparing<'_, W, C> {
    #[inline(always)]
    fn find(&mut self, key: &[u32; W]) -> Option<u32> {
        // Several entries may have the same hash, so all of them are checked.
        let mut equal = self.compare.equal(&self.cache.hashes, hash(key));
        while equal != 0 {
            let place = equal.trailing_zeros() as usize % ENTRIES;
            if same(&self.cache.keys[place], key) {
                return Some(self.cache.endpoints[place]);
            }
            equal &= equal - 1;
        }
        None
    }

    #[inline(always)]
    fn keep(&mut self, key: &[u32; W], endpoint: u32) {
        let place = self.cache.next % ENTRIES;
        self.cache.hashes[place] = hash(key);
        self.cache.keys[place] = *key;
        self.cache.endpoints[place] = endpoint;
        self.cache.next = place + 1;
    }

    fn clear(&mut self) {
        *self.cache = EightEndpoints::new();
    }
}

/// One 512-bit comparison.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Wide512(pub(super) flowlane::isa::Avx512);

#[cfg(target_arch = "x86_64")]
impl Compare for Wide512 {
    #[inline(always)]
    fn equal(self, hashes: &[u64; ENTRIES], hash: u64) -> u32 {
        use std::arch::x86_64::*;
        // SAFETY: the witness proves AVX-512 F; eight hashes of 64 bits are read.
        unsafe {
            let own = _mm512_loadu_si512(hashes.as_ptr().cast());
            _mm512_cmpeq_epi64_mask(own, _mm512_set1_epi64(hash.cast_signed())).into()
        }
    }
}

/// Two 256-bit comparisons.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Wide256(pub(super) flowlane::isa::Avx2);

#[cfg(target_arch = "x86_64")]
impl Compare for Wide256 {
    #[inline(always)]
    fn equal(self, hashes: &[u64; ENTRIES], hash: u64) -> u32 {
        use std::arch::x86_64::*;
        // SAFETY: the witness proves AVX2; eight hashes of 64 bits are read, four at a time.
        unsafe {
            let wanted = _mm256_set1_epi64x(hash.cast_signed());
            let half = |place: usize| {
                let own = _mm256_loadu_si256(hashes.as_ptr().add(place).cast());
                _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(own, wanted))).cast_unsigned()
            };
            half(0) | half(4) << 4
        }
    }
}
