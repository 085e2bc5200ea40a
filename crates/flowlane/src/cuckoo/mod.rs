#![doc = include_str!("README.md")]

mod batch;
mod bucket;
mod displace;
mod entry;
mod geometry;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod ledger;
mod scalar;
mod sync;
mod transpose;
mod writer;

#[cfg(all(loom, test))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;

pub use writer::{CuckooWriter, InsertError};

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use batch::Request;
use bucket::{Bucket, SLOTS};
use entry::Entries;
use geometry::Geometry;
use sync::{AtomicU64, Memory};
use transpose::{GROUPS, Words, transpose};

use crate::hash::murmur3::{self, Murmur3};
use crate::isa::{Body, Variant};
use crate::memory::prefetch;

/// Most keys in a batch: one bit each in the mask of hits.
pub const BATCH_MAX: usize = 64;

/// Most words in a key.
pub const KEY_WORDS_MAX: usize = 16;

/// Share of a table's slots that it promises to fill, in percent. Displacement gets further (the tests
/// reach 97 % and more); the distance is for bad luck.
const LOAD_MAX_PERCENT: usize = 96;

/// The same of tables with up to [`SMALL_ENTRIES`] keys, where bad luck weighs more, and slots less.
const SMALL_LOAD_MAX_PERCENT: usize = 75;

const SMALL_ENTRIES: usize = 4096;

/// Lanes hashed together.
const LANES: usize = 16;

/// How a table is to be made.
#[derive(Clone, Copy, Debug)]
pub struct CuckooConfig {
    entries_max: usize,
    entries_at_first: usize,
    seed: u32,
    body: Body,
}

impl CuckooConfig {
    /// A table for `entries_max` keys (at least 1, at most 2³⁰), hashed under `seed`, which should be
    /// secret: who knows it can make keys that all belong to the same two buckets.
    pub fn new(entries_max: usize, seed: u32) -> Self {
        let entries_max = entries_max.clamp(1, 1 << 30);
        // The widest is fastest on a Zen 5 (`flowlane bench cuckoo`).
        let body = Body::first_of(&[Variant::Avx512, Variant::Avx2, Variant::Sse42]);
        Self { entries_max, entries_at_first: entries_max, seed, body }
    }

    /// Lets the table begin with the buckets for `entries` keys, and grow in place up to `entries_max`.
    /// Memory is reserved for the most, and committed as the table grows.
    #[must_use]
    pub fn growing_from(self, entries: usize) -> Self {
        Self { entries_at_first: entries.clamp(1, self.entries_max), ..self }
    }

    /// Makes batches be looked up by the variant of this name, where it may be used here.
    pub fn with_variant(self, variant: Variant) -> Option<Self> {
        Body::of(variant).map(|body| Self { body, ..self })
    }
}

/// The part of a table that the writer and its readers share, and all that can be asked of it.
///
/// `W`: words of a key, 1 to [`KEY_WORDS_MAX`].
#[derive(Debug)]
pub struct CuckooTable<const W: usize> {
    buckets: Memory<Bucket>,
    entries: Entries<W>,
    geometry: AtomicU64,
    len: AtomicU64,
    entries_max: usize,
    seed: u32,
    body: Body,
    murmur: Murmur3,
}

/// A handle by which a thread looks keys up while the writer is at work; clone it for every thread.
#[derive(Clone, Debug)]
pub struct CuckooReader<const W: usize> {
    table: Arc<CuckooTable<W>>,
}

impl<const W: usize> Deref for CuckooReader<W> {
    type Target = CuckooTable<W>;

    fn deref(&self) -> &CuckooTable<W> {
        &self.table
    }
}

/// Buckets that hold `entries` keys.
fn buckets_for(entries: usize) -> usize {
    let percent = if entries <= SMALL_ENTRIES { SMALL_LOAD_MAX_PERCENT } else { LOAD_MAX_PERCENT };
    (entries * 100).div_ceil(SLOTS * percent).next_power_of_two().max(2)
}

impl<const W: usize> CuckooTable<W> {
    fn new(config: &CuckooConfig) -> Self {
        const { assert!(W >= 1 && W <= KEY_WORDS_MAX, "a key has 1 to 16 words") };
        let at_first = Geometry::new(buckets_for(config.entries_at_first) as u32);
        Self {
            buckets: Memory::zeroed(buckets_for(config.entries_max)),
            entries: Entries::zeroed(config.entries_max),
            geometry: AtomicU64::new(at_first.to_word()),
            len: AtomicU64::new(0),
            entries_max: config.entries_max,
            seed: config.seed,
            body: config.body,
            murmur: Murmur3::with_variant(config.body.variant()).unwrap_or_default(),
        }
    }

    #[inline(always)]
    fn geometry(&self) -> Geometry {
        Geometry::from_word(self.geometry.load(Acquire))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most keys that the table takes.
    pub fn entries_max(&self) -> usize {
        self.entries_max
    }

    /// Slots in use now: how many keys there could be before the table grows or refuses more.
    pub fn slots(&self) -> usize {
        self.geometry().buckets() as usize * SLOTS
    }

    /// Bytes that readers share, reserved for [`entries_max`](Self::entries_max); the writer has more
    /// ([`CuckooWriter::writer_bytes`]).
    pub fn table_bytes(&self) -> usize {
        self.buckets.size_bytes() + self.entries.size_bytes()
    }

    /// Which variant looks batches up.
    pub fn variant(&self) -> Variant {
        self.body.variant()
    }

    /// The hash of a key: MurmurHash3 under the table's seed.
    #[inline]
    pub fn hash(&self, key: &[u32; W]) -> u32 {
        murmur3::hash_words(key, self.seed)
    }

    /// The hashes of many keys, 16 at a time.
    ///
    /// # Panics
    /// Where `hashes` is shorter than `keys`.
    pub fn hash_batch(&self, keys: &[[u32; W]], hashes: &mut [u32]) {
        let hashes = &mut hashes[..keys.len()];
        for (keys, hashes) in keys.chunks(BATCH_MAX).zip(hashes.chunks_mut(BATCH_MAX)) {
            self.hash_groups(keys, hashes, |_| ());
        }
    }

    /// Hashes up to [`BATCH_MAX`] keys, and calls `then` with the hashes of each group as they are ready.
    #[inline(always)]
    fn hash_groups(&self, keys: &[[u32; W]], hashes: &mut [u32], then: impl Fn(&[u32])) {
        // All keys before the first hash: the words must have reached the cache before they are read as
        // wider vectors than they were written.
        let mut words: Words<W> = [[[0; LANES]; W]; GROUPS];
        transpose(keys, &mut words);
        for (group, hashes) in hashes.chunks_mut(LANES).enumerate() {
            match hashes.as_mut_array() {
                Some(hashes) => self.murmur.hash_lanes(&words[group], self.seed, hashes),
                None => {
                    let mut out = [0; LANES];
                    self.murmur.hash_lanes(&words[group], self.seed, &mut out);
                    hashes.copy_from_slice(&out[..hashes.len()]);
                }
            }
            then(hashes);
        }
    }

    /// The value of `key`.
    pub fn lookup(&self, key: &[u32; W]) -> Option<u64> {
        self.lookup_with_hash(key, self.hash(key))
    }

    /// The value of `key`, whose hash is `hash`: that of [`hash`](Self::hash), or another if the key was
    /// inserted with it.
    pub fn lookup_with_hash(&self, key: &[u32; W], hash: u32) -> Option<u64> {
        scalar::lookup(self, key, hash).map(|found| found.value)
    }

    /// Looks up to [`BATCH_MAX`] keys up. Returns a bit for each key that is there, and writes its value
    /// into `values`; the values of the others stay as they are.
    ///
    /// # Panics
    /// Where there are more than [`BATCH_MAX`] keys, or fewer values than keys.
    #[inline]
    pub fn lookup_batch(&self, keys: &[[u32; W]], values: &mut [u64]) -> u64 {
        assert!(keys.len() <= BATCH_MAX, "a batch of {} keys is longer than {BATCH_MAX}", keys.len());
        let mut hashes = [0; BATCH_MAX];
        let (geometry, buckets) = (self.geometry(), &*self.buckets);
        // The first buckets are on their way while the other keys are hashed.
        self.hash_groups(keys, &mut hashes[..keys.len()], |hashes| {
            if geometry.is_even() {
                hashes.iter().for_each(|hash| prefetch(buckets, geometry.bucket_if::<true>(*hash) as usize));
            } else {
                hashes.iter().for_each(|hash| prefetch(buckets, geometry.bucket(*hash) as usize));
            }
        });
        self.batch(keys, &hashes, Request { used: None, prefetched: true }, values)
    }

    /// [`lookup_batch`](Self::lookup_batch) of keys whose hashes are known.
    ///
    /// # Panics
    /// As there, and where there are fewer hashes than keys.
    #[inline]
    pub fn lookup_batch_with_hashes(&self, keys: &[[u32; W]], hashes: &[u32], values: &mut [u64]) -> u64 {
        self.batch(keys, hashes, Request { used: None, prefetched: false }, values)
    }

    /// [`lookup_batch_with_hashes`](Self::lookup_batch_with_hashes) that notes `now`, in the caller's
    /// unit, as the time of last use of the keys that are there: see [`CuckooWriter::sweep`].
    ///
    /// # Panics
    /// As there.
    #[inline]
    pub fn use_batch(&self, keys: &[[u32; W]], hashes: &[u32], now: u64, values: &mut [u64]) -> u64 {
        self.batch(keys, hashes, Request { used: Some(now), prefetched: false }, values)
    }

    fn batch(&self, keys: &[[u32; W]], hashes: &[u32], request: Request, values: &mut [u64]) -> u64 {
        assert!(keys.len() <= BATCH_MAX, "a batch of {} keys is longer than {BATCH_MAX}", keys.len());
        if keys.is_empty() {
            return 0;
        }
        match self.body {
            Body::Scalar => batch::lookup(batch::Portable, self, keys, hashes, request, values),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has SSE4.2.
            Body::Sse42(_) => unsafe { lanes::sse42(self, keys, hashes, request, values) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has AVX2.
            Body::Avx2(_) => unsafe { lanes::avx2(self, keys, hashes, request, values) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
            Body::Avx512(_) => unsafe { lanes::avx512(self, keys, hashes, request, values) },
        }
    }
}
