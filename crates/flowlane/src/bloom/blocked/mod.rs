#![doc = include_str!("README.md")]

mod kernel;
mod scalar;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(test)]
mod tests;

pub use kernel::{BlockedKernel, BlockedKernelError};

use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_arch = "x86_64")]
use super::contains::Digest;
use super::error::BloomError;
use crate::dispatch::AdaptiveDispatch;
use crate::isa::{Backend, Variant};
use crate::memory::Memory;

/// Bytes of a block.
const BLOCK_BYTES: usize = 32;
/// Atomic words of a block.
const BLOCK_WORDS: usize = BLOCK_BYTES / 8;
/// Most blocks: 4 GiB, so that 32 bits tell their bytes apart.
const BLOCKS_MAX: u64 = 1 << 27;

/// One odd multiplier for each 32-bit word of a block: Apache Parquet's.
const SALTS: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// A Bloom filter that touches one block of 32 bytes a key: a split block Bloom filter.
///
/// Keys may be put in through a shared reference while others look up. Who learns of an insertion by way of
/// some synchronisation finds the key; others may or may not.
///
/// ```
/// use flowlane::bloom::BlockedBloomFilter;
///
/// let filter = BlockedBloomFilter::for_items(1000, 0.01)?;
/// filter.insert_bytes(b"198.51.100.7");
/// assert!(filter.contains_bytes(b"198.51.100.7"));
/// assert!(!filter.contains_bytes(b"198.51.100.8"));
/// # Ok::<(), flowlane::bloom::BloomError>(())
/// ```
#[derive(Debug)]
pub struct BlockedBloomFilter {
    words: Memory<AtomicU64>,
    seed: u64,
    /// The backend of the kernel, and whether it prefetches.
    chosen: AdaptiveDispatch<(Backend, bool)>,
}

/// The blocks, as the kernels see them.
#[derive(Clone, Copy)]
struct Blocks<'a> {
    words: &'a [AtomicU64],
    /// 1 to [`BLOCKS_MAX`]; `words` has [`BLOCK_WORDS`] for each.
    count: u32,
}

impl<'a> Blocks<'a> {
    /// The block of a key: the place of its digest's high half in the range of all.
    #[inline(always)]
    fn number(self, high: u32) -> usize {
        ((u64::from(high) * u64::from(self.count)) >> 32) as usize
    }

    #[inline(always)]
    fn block(self, high: u32) -> &'a [AtomicU64; BLOCK_WORDS] {
        &self.words.as_chunks().0[self.number(high)]
    }
}

impl BlockedBloomFilter {
    /// An empty filter of `bits` bits, rounded up to blocks of 256.
    ///
    /// # Errors
    /// Where it would have more than 2^35 bits (4 GiB).
    pub fn with_bits(bits: u64) -> Result<Self, BloomError> {
        let blocks = bits.div_ceil(8 * BLOCK_BYTES as u64).max(1);
        if blocks > BLOCKS_MAX {
            return Err(BloomError::TooManyBits { bits });
        }
        let words = Memory::zeroed(blocks as usize * BLOCK_WORDS);
        let chosen = kernel::choose(blocks as usize * BLOCK_BYTES);
        Ok(Self { words, seed: 0, chosen }.with_seed(0x1d8a_f066))
    }

    /// The smallest empty filter that, holding `items` keys, takes one that it does not hold for one that
    /// it does with at most the probability `rate`.
    ///
    /// # Errors
    /// Where `rate` is no probability between 0 and 1, or no filter is large enough.
    pub fn for_items(items: u64, rate: f64) -> Result<Self, BloomError> {
        if !(rate > 0.0 && rate < 1.0) {
            return Err(BloomError::Rate { rate });
        }
        if false_positive_rate(BLOCKS_MAX, items) > rate {
            return Err(BloomError::OutOfReach { items, rate });
        }
        let (mut too_few, mut enough) = (0, BLOCKS_MAX);
        while enough - too_few > 1 {
            let middle = (too_few + enough) / 2;
            let suffices = false_positive_rate(middle, items) <= rate;
            if suffices { enough = middle } else { too_few = middle }
        }
        Self::with_bits(enough * 8 * BLOCK_BYTES as u64)
    }

    /// Returns an empty filter of this size, with hashes seeded from `seed`.
    pub fn with_seed(mut self, seed: u32) -> Self {
        self.clear();
        self.seed = super::scalar::digest(seed.into(), 1);
        self
    }

    /// Selects the variant (scalar, AVX2, AVX-512 or NEON), where it may be used here.
    pub fn with_variant(self, variant: Variant) -> Option<Self> {
        let (_, prefetch) = self.chosen.get();
        Some(Self { chosen: AdaptiveDispatch::named((kernel::backend(variant)?, prefetch)), ..self })
    }

    /// Makes lookups prefetch blocks, or not, whatever the size of the filter.
    pub fn with_prefetch(self, prefetch: bool) -> Self {
        let (backend, _) = self.chosen.get();
        Self { chosen: AdaptiveDispatch::named((backend, prefetch)), ..self }
    }

    /// The variant that looks batches up.
    pub fn variant(&self) -> Variant {
        self.chosen.get().0.variant()
    }

    /// How batches are looked up.
    pub fn kernel(&self) -> BlockedKernel {
        let (backend, prefetch) = self.chosen.get();
        BlockedKernel { variant: backend.variant(), prefetch }
    }

    /// Fills half of the bits at random, as a filter of the recommended size has them: for measurements, which
    /// cannot wait for all insertions.
    pub(crate) fn fill_half(&self, mut random: impl FnMut() -> u64) {
        self.words.iter().for_each(|word| word.store(random(), Ordering::Relaxed));
    }

    /// Number of bits.
    pub fn bits(&self) -> u64 {
        64 * self.words.len() as u64
    }

    /// Bytes allocated.
    pub fn table_bytes(&self) -> usize {
        self.words.size_bytes()
    }

    /// The share of keys never inserted that pass, when `items` keys are in.
    pub fn false_positive_rate(&self, items: u64) -> f64 {
        false_positive_rate(self.bits() / (8 * BLOCK_BYTES as u64), items)
    }

    /// Takes all keys out.
    pub fn clear(&mut self) {
        self.words.iter_mut().for_each(|word| *word.get_mut() = 0);
    }

    /// Puts a key in.
    pub fn insert(&self, key: u32) {
        self.insert_u64(key.into());
    }

    /// Puts a 64-bit key in.
    pub fn insert_u64(&self, key: u64) {
        self.insert_digest(self.digest(key));
    }

    /// Puts a byte string in.
    pub fn insert_bytes(&self, key: &[u8]) {
        self.insert_digest(self.digest_bytes(key));
    }

    /// Puts in a key that is known by its digest: 64 well-mixed bits.
    #[inline]
    pub fn insert_digest(&self, digest: u64) {
        let mask = scalar::mask(digest as u32);
        for (word, mask) in self.blocks().block((digest >> 32) as u32).iter().zip(mask) {
            // A bit guards no other memory: relaxed suffices.
            word.fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// Returns whether a key may be in: never `false` for one that is.
    #[inline]
    pub fn contains(&self, key: u32) -> bool {
        self.contains_u64(key.into())
    }

    /// Returns whether a 64-bit key may be in.
    #[inline]
    pub fn contains_u64(&self, key: u64) -> bool {
        self.contains_digest(self.digest(key))
    }

    /// Returns whether a byte string may be in.
    #[inline]
    pub fn contains_bytes(&self, key: &[u8]) -> bool {
        self.contains_digest(self.digest_bytes(key))
    }

    /// Returns whether the key of a digest may be in.
    #[inline]
    pub fn contains_digest(&self, digest: u64) -> bool {
        scalar::contains(self.blocks(), digest)
    }

    /// Bit `i % 64` of `hits[i / 64]` becomes whether `keys[i]` may be in; bits beyond the keys become 0.
    ///
    /// # Panics
    /// Where `hits` has not a word for each 64 keys, begun ones included.
    pub fn contains_batch(&self, keys: &[u32], hits: &mut [u64]) {
        let hits = &mut hits[..keys.len().div_ceil(64)];
        self.chosen.run_batch(
            || keys.len(),
            |(backend, prefetch)| match backend {
                #[cfg(target_arch = "x86_64")]
                Backend::Avx512(w) => avx512::contains(w, prefetch, self.blocks(), self.seed, keys, hits),
                #[cfg(target_arch = "x86_64")]
                Backend::Avx2(w) => {
                    avx2::contains(w, prefetch, self.blocks(), keys, hits, |k| self.digest((*k).into()))
                }
                #[cfg(target_arch = "aarch64")]
                Backend::Neon(w) => {
                    neon::contains(w, prefetch, self.blocks(), keys, hits, |k| self.digest((*k).into()))
                }
                _ => scalar::contains_batch(self.blocks(), keys, hits, |k| self.digest((*k).into())),
            },
        );
    }

    /// Tests a batch of 64-bit keys, as [`contains_batch`](Self::contains_batch) does.
    ///
    /// # Panics
    /// As [`contains_batch`](Self::contains_batch) does.
    pub fn contains_batch_u64(&self, keys: &[u64], hits: &mut [u64]) {
        let hits = &mut hits[..keys.len().div_ceil(64)];
        self.chosen.run_batch(
            || keys.len(),
            |(backend, prefetch)| match backend {
                #[cfg(target_arch = "x86_64")]
                Backend::Avx512(w) => avx512::contains(w, prefetch, self.blocks(), self.seed, keys, hits),
                #[cfg(target_arch = "x86_64")]
                Backend::Avx2(w) => {
                    avx2::contains(w, prefetch, self.blocks(), keys, hits, |k| self.digest(*k));
                }
                #[cfg(target_arch = "aarch64")]
                Backend::Neon(w) => {
                    neon::contains(w, prefetch, self.blocks(), keys, hits, |k| self.digest(*k));
                }
                _ => scalar::contains_batch(self.blocks(), keys, hits, |k| self.digest(*k)),
            },
        );
    }

    /// Tests a batch of byte strings.
    ///
    /// # Panics
    /// As [`contains_batch`](Self::contains_batch) does.
    pub fn contains_batch_bytes(&self, keys: &[&[u8]], hits: &mut [u64]) {
        let hits = &mut hits[..keys.len().div_ceil(64)];
        self.chosen.run_batch(
            || keys.len(),
            |(backend, prefetch)| match backend {
                #[cfg(target_arch = "x86_64")]
                Backend::Avx512(w) => {
                    for (keys, hits) in keys.chunks(64).zip(hits.chunks_mut(1)) {
                        let mut digests = [Digest(0); 64];
                        for (digest, key) in digests.iter_mut().zip(keys) {
                            *digest = Digest(self.digest_bytes(key));
                        }
                        let digests = &digests[..keys.len()];
                        avx512::contains(w, prefetch, self.blocks(), self.seed, digests, hits);
                    }
                }
                #[cfg(target_arch = "x86_64")]
                Backend::Avx2(w) => {
                    avx2::contains(w, prefetch, self.blocks(), keys, hits, |k| self.digest_bytes(k));
                }
                #[cfg(target_arch = "aarch64")]
                Backend::Neon(w) => {
                    neon::contains(w, prefetch, self.blocks(), keys, hits, |k| self.digest_bytes(k));
                }
                _ => scalar::contains_batch(self.blocks(), keys, hits, |k| self.digest_bytes(k)),
            },
        );
    }

    /// Writes the keys that may be in, each with its payload, to the front of `out_keys` and
    /// `out_payloads`, in the order of the input, and returns how many they are. What lies behind them is
    /// undefined.
    ///
    /// # Panics
    /// Where there are not as many payloads as keys, or less room than keys.
    pub fn survivors(
        &self,
        keys: &[u32],
        payloads: &[u32],
        out_keys: &mut [u32],
        out_payloads: &mut [u32],
    ) -> usize {
        const BATCH: usize = 1024;
        let mut batch = super::batch::Batch::new(keys, payloads, out_keys, out_payloads);
        let mut hits = [0; BATCH / 64];
        for (keys, payloads) in keys.chunks(BATCH).zip(payloads.chunks(BATCH)) {
            self.contains_batch(keys, &mut hits);
            match self.chosen.get().0 {
                #[cfg(target_arch = "x86_64")]
                Backend::Avx512(w) => avx512::pack(w, keys, payloads, &hits, &mut batch.out),
                _ => scalar::pack(keys, payloads, &hits, &mut batch.out),
            }
        }
        batch.out.len
    }

    /// The digest of a 64-bit key: MurmurHash3's mixer of 64 bits over it and a seed. A 32-bit key is the
    /// 64-bit key of the same value.
    #[inline(always)]
    pub fn digest(&self, key: u64) -> u64 {
        super::scalar::digest(key, self.seed)
    }

    /// The digest of a byte string: two hashes of it.
    #[inline]
    pub fn digest_bytes(&self, key: &[u8]) -> u64 {
        super::scalar::digest_bytes(key, self.seed)
    }

    #[inline(always)]
    fn blocks(&self) -> Blocks<'_> {
        Blocks { words: &self.words, count: (self.words.len() / BLOCK_WORDS) as u32 }
    }
}

/// Of a block with j keys, each of 8 words has a given bit set with 1 − (31/32)^j; j is Poisson distributed.
fn false_positive_rate(blocks: u64, items: u64) -> f64 {
    let mean = items as f64 / blocks as f64;
    // Beyond 12 standard deviations there is nothing; below e^-700 nothing can be computed, and a block that
    // full takes everything.
    if mean > 600.0 {
        return 1.0;
    }
    let (mut probability, mut rate) = ((-mean).exp(), 0.0);
    for keys in 0..(mean + 12.0 * mean.sqrt() + 20.0) as i32 {
        rate += probability * (1.0 - (31.0f64 / 32.0).powi(keys)).powi(8);
        probability *= mean / f64::from(keys + 1);
    }
    rate
}
