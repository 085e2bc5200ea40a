//! The classic filter: its size, its bits, its operations.

use super::batch::Batch;
use super::bits::{Bits, HASHES_MAX};
#[cfg(target_arch = "x86_64")]
use super::contains;
use super::error::BloomError;
use super::kernel::{self, BloomKernel, BloomKernelError, Chosen};
use super::scalar;
use crate::dispatch::AdaptiveDispatch;
use crate::hash::murmur3;
use crate::memory::Memory;

/// A classic Bloom filter: a power of two of bits, `hashes` of which belong to a key.
///
/// Keys are 32-bit words, 64-bit words or byte strings. One filter may hold all three, but a word and the
/// string of its bytes are different keys.
///
/// ```
/// use flowlane::bloom::BloomFilter;
///
/// let mut filter = BloomFilter::for_items(1000, 0.01)?;
/// (0..1000).for_each(|key| filter.insert(key));
/// // Of these, the first 10 are in; others pass one time in a hundred.
/// let keys: Vec<u32> = (990..1050).collect();
/// let mut hits = [0];
/// filter.contains_batch(&keys, &mut hits);
/// assert_eq!(hits[0] & 0x3ff, 0x3ff);
/// assert!(hits[0].count_ones() < 20);
/// # Ok::<(), flowlane::bloom::BloomError>(())
/// ```
#[derive(Debug)]
pub struct BloomFilter {
    words: Memory<u32>,
    hashes: usize,
    seeds: [u32; HASHES_MAX],
    chosen: AdaptiveDispatch<Chosen>,
}

/// Seeds of a filter that was given none.
const SEED: u32 = 0x1d8a_f066;

impl BloomFilter {
    /// An empty filter of `bits` bits, rounded up to a power of two and to 32, with `hashes` (1 to 16) a key.
    ///
    /// # Errors
    /// Where it would have more than 2^32 bits, or not 1 to 16 hashes.
    pub fn with_bits(bits: u64, hashes: usize) -> Result<Self, BloomError> {
        if bits > 1 << 32 {
            return Err(BloomError::TooManyBits { bits });
        }
        if !(1..=HASHES_MAX).contains(&hashes) {
            return Err(BloomError::Hashes { hashes });
        }
        let words = (bits.next_power_of_two().max(32) / 32) as usize;
        let chosen = kernel::choose(4 * words);
        let filter = Self { words: Memory::zeroed(words), hashes, seeds: [0; HASHES_MAX], chosen };
        Ok(filter.with_seed(SEED))
    }

    /// An empty filter that, holding `items` keys, takes one that it does not hold for one that it does
    /// with at most the probability `rate`.
    ///
    /// It has the least power of two of bits that can do this, and of the numbers of hashes that do it
    /// then the least.
    ///
    /// # Errors
    /// Where `rate` is no probability between 0 and 1, or no filter is large enough.
    pub fn for_items(items: u64, rate: f64) -> Result<Self, BloomError> {
        if !(rate > 0.0 && rate < 1.0) {
            return Err(BloomError::Rate { rate });
        }
        for log in 5..=32 {
            let bits = 1u64 << log;
            let enough = |h: &usize| false_positive_rate(bits, *h, items) <= rate;
            if let Some(hashes) = (1..=HASHES_MAX).find(enough) {
                return Self::with_bits(bits, hashes);
            }
        }
        Err(BloomError::OutOfReach { items, rate })
    }

    /// Returns an empty filter of this size, with hashes seeded from `seed`: a secret one keeps outsiders from choosing keys
    /// that all are false positives.
    pub fn with_seed(mut self, seed: u32) -> Self {
        self.clear();
        for (i, s) in self.seeds.iter_mut().enumerate().take(self.hashes) {
            *s = murmur3::finish(seed, i as u32 + 1);
        }
        self
    }

    /// Selects this kernel instead of the default one.
    ///
    /// # Errors
    /// Where there is no such kernel here.
    pub fn with_kernel(mut self, kernel: BloomKernel) -> Result<Self, BloomKernelError> {
        self.set_kernel(kernel)?;
        Ok(self)
    }

    /// Batches are looked up by this kernel from now on.
    ///
    /// # Errors
    /// Where there is no such kernel here; nothing is changed then.
    pub fn set_kernel(&mut self, kernel: BloomKernel) -> Result<(), BloomKernelError> {
        self.chosen = AdaptiveDispatch::named(Chosen::new(kernel)?);
        Ok(())
    }

    /// The kernel that looks batches up.
    pub fn kernel(&self) -> BloomKernel {
        self.chosen.get().kernel()
    }

    /// Fills a quarter of the bits at random, as a filter of 10 bits a key and 3 hashes has them: for
    /// measurements, which cannot wait for all insertions.
    pub(crate) fn fill_quarter(&mut self, mut random: impl FnMut() -> u64) {
        for pair in self.words.chunks_mut(2) {
            let word = random() & random();
            pair.iter_mut().zip([word as u32, (word >> 32) as u32]).for_each(|(to, from)| *to = from);
        }
    }

    /// Number of bits.
    pub fn bits(&self) -> u64 {
        32 * self.words.len() as u64
    }

    /// Bits of a key.
    pub fn hashes(&self) -> usize {
        self.hashes
    }

    /// Bytes allocated.
    pub fn table_bytes(&self) -> usize {
        self.words.size_bytes()
    }

    /// The share of keys never inserted that pass, when `items` keys are in.
    pub fn false_positive_rate(&self, items: u64) -> f64 {
        false_positive_rate(self.bits(), self.hashes, items)
    }

    /// Takes all keys out.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Puts a key in.
    pub fn insert(&mut self, key: u32) {
        for i in 0..self.hashes {
            self.set(scalar::hash(key, self.seeds[i]));
        }
    }

    /// Puts a 64-bit key in.
    pub fn insert_u64(&mut self, key: u64) {
        self.insert_digest(self.digest_u64(key));
    }

    /// Puts a byte string in.
    pub fn insert_bytes(&mut self, key: &[u8]) {
        self.insert_digest(self.digest_bytes(key));
    }

    /// Puts in a key that is known by its digest: 64 well-mixed bits.
    pub fn insert_digest(&mut self, digest: u64) {
        for i in 0..self.hashes {
            self.set(scalar::digest_hash(digest, i));
        }
    }

    /// Returns whether a key may be in: never `false` for one that is.
    #[inline]
    pub fn contains(&self, key: u32) -> bool {
        self.view().contains(key)
    }

    /// Returns whether a 64-bit key may be in.
    #[inline]
    pub fn contains_u64(&self, key: u64) -> bool {
        scalar::contains_digest(self.view(), self.digest_u64(key))
    }

    /// Returns whether a byte string may be in.
    #[inline]
    pub fn contains_bytes(&self, key: &[u8]) -> bool {
        scalar::contains_digest(self.view(), self.digest_bytes(key))
    }

    /// Returns whether the key of a digest may be in.
    #[inline]
    pub fn contains_digest(&self, digest: u64) -> bool {
        scalar::contains_digest(self.view(), digest)
    }

    /// Bit `i % 64` of `hits[i / 64]` becomes whether `keys[i]` may be in; bits beyond the keys become 0.
    ///
    /// # Panics
    /// Where `hits` has not a word for each 64 keys, begun ones included.
    pub fn contains_batch(&self, keys: &[u32], hits: &mut [u64]) {
        let hits = &mut hits[..keys.len().div_ceil(64)];
        self.chosen.run_batch(
            || keys.len(),
            |chosen| {
                #[cfg(target_arch = "x86_64")]
                if let Some(witness) = chosen.avx512() {
                    let seed = self.digest_seed();
                    return contains::contains(
                        witness,
                        chosen.kernel().prefetch,
                        self.view(),
                        seed,
                        keys,
                        hits,
                    );
                }
                collect(keys, hits, |key| self.contains(*key));
            },
        );
    }

    /// Tests a batch of 64-bit keys.
    ///
    /// # Panics
    /// As [`contains_batch`](Self::contains_batch) does.
    pub fn contains_batch_u64(&self, keys: &[u64], hits: &mut [u64]) {
        let hits = &mut hits[..keys.len().div_ceil(64)];
        self.chosen.run_batch(
            || keys.len(),
            |chosen| {
                #[cfg(target_arch = "x86_64")]
                if let Some(witness) = chosen.avx512() {
                    let seed = self.digest_seed();
                    return contains::contains(
                        witness,
                        chosen.kernel().prefetch,
                        self.view(),
                        seed,
                        keys,
                        hits,
                    );
                }
                collect(keys, hits, |key| self.contains_u64(*key));
            },
        );
    }

    /// Tests a batch of byte strings: their digests one after the other, their bits 16 keys at a time.
    ///
    /// # Panics
    /// As [`contains_batch`](Self::contains_batch) does.
    pub fn contains_batch_bytes(&self, keys: &[&[u8]], hits: &mut [u64]) {
        let hits = &mut hits[..keys.len().div_ceil(64)];
        self.chosen.run_batch(
            || keys.len(),
            |chosen| {
                #[cfg(target_arch = "x86_64")]
                if let Some(witness) = chosen.avx512() {
                    let (seed, prefetch) = (self.digest_seed(), chosen.kernel().prefetch);
                    for (keys, hits) in keys.chunks(64).zip(hits.chunks_mut(1)) {
                        let mut digests = [contains::Digest(0); 64];
                        for (digest, key) in digests.iter_mut().zip(keys) {
                            *digest = contains::Digest(self.digest_bytes(key));
                        }
                        contains::contains(
                            witness,
                            prefetch,
                            self.view(),
                            seed,
                            &digests[..keys.len()],
                            hits,
                        );
                    }
                    return;
                }
                collect(keys, hits, |key| self.contains_bytes(key));
            },
        );
    }

    /// Writes the keys that may be in, each with its payload, to the front of `out_keys` and
    /// `out_payloads`, in the order of the input, and returns how many they are. What lies behind the survivors is
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
        let mut batch = Batch::new(keys, payloads, out_keys, out_payloads);
        self.chosen.run_batch(|| keys.len(), |chosen| chosen.survive(self.view(), &mut batch));
        batch.out.len
    }

    /// The digest of a 64-bit key: MurmurHash3's mixer of 64 bits over it and a seed.
    #[inline(always)]
    pub fn digest_u64(&self, key: u64) -> u64 {
        scalar::digest(key, self.digest_seed())
    }

    /// The digest of a byte string: two hashes of it.
    #[inline]
    pub fn digest_bytes(&self, key: &[u8]) -> u64 {
        scalar::digest_bytes(key, self.digest_seed())
    }

    /// Not a seed of any 32-bit key.
    #[inline(always)]
    fn digest_seed(&self) -> u64 {
        u64::from(!self.seeds[0]) | u64::from(self.seeds[0] ^ 0x9e37_79b9) << 32
    }

    /// The bits and the hashes, for kernels.
    #[doc(hidden)]
    #[inline(always)]
    pub fn view(&self) -> Bits<'_> {
        Bits::new(&self.words, self.hashes, &self.seeds)
    }

    fn set(&mut self, hash: u32) {
        let place = self.view().place(hash);
        self.words[place] |= 1 << (hash & 31);
    }
}

/// One bit a key.
fn collect<K>(keys: &[K], hits: &mut [u64], mut contains: impl FnMut(&K) -> bool) {
    for (keys, hits) in keys.chunks(64).zip(hits) {
        *hits = keys.iter().rev().fold(0, |word, key| word << 1 | u64::from(contains(key)));
    }
}

/// (1 − e^(−k·n/m))^k
fn false_positive_rate(bits: u64, hashes: usize, items: u64) -> f64 {
    let set = 1.0 - (-(hashes as f64) * items as f64 / bits as f64).exp();
    set.powi(hashes as i32)
}
