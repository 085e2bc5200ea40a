#![doc = include_str!("README.md")]

#[cfg(target_arch = "x86_64")]
mod avx512;
mod batch;
pub(crate) mod beside;
mod bucket;
mod displace;
mod entry;
mod geometry;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod slot_metadata;
mod slots;
mod sync;
mod writer;

#[cfg(all(loom, test))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;

pub use writer::{CuckooWriter, InsertError};

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use batch::{LookupBatch, LookupMany, Portable, Request};
use bucket::{Bucket, SLOTS};
use entry::Entries;
use geometry::Geometry;
use sync::{AtomicU64, Memory};

use crate::dispatch::{AdaptiveDispatch, KernelSlot, SizeClass};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::hash::multilinear;
use crate::hash::multilinear::{KEYS, KeyHash};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::isa::simd::InstructionSet;
use crate::isa::simd::Kernel;
use crate::isa::{Backend, Variant};
use crate::probe::{Dependency, Part, Probe};

/// Most keys in a batch: one bit each in the mask of hits.
pub const BATCH_MAX: usize = 64;

/// Most words in a key.
pub const KEY_WORDS_MAX: usize = 16;

/// Share of a table's slots that it promises to fill, in percent. Displacement gets further (the tests
/// reach 97 % and more); the distance is for bad luck.
const LOAD_MAX_PERCENT: usize = 96;

/// Share of the slots of tables with up to [`SMALL_ENTRIES`] keys, in percent: bad luck weighs more there, and slots less.
const SMALL_LOAD_MAX_PERCENT: usize = 75;

const SMALL_ENTRIES: usize = 4096;

/// How a table is to be made.
#[derive(Clone, Copy, Debug)]
pub struct CuckooConfig {
    entries_max: usize,
    entries_at_first: usize,
    seed: u32,
    variant: Option<Backend>,
}

impl CuckooConfig {
    /// Creates a table for `entries_max` keys (at least 1, at most 2³⁰), hashed under `seed`, which should be
    /// secret: with it an attacker can make keys that all belong to the same two buckets.
    pub fn new(entries_max: usize, seed: u32) -> Self {
        let entries_max = entries_max.clamp(1, 1 << 30);
        Self { entries_max, entries_at_first: entries_max, seed, variant: None }
    }

    /// Lets the table begin with the buckets for `entries` keys, and grow in place up to `entries_max`.
    /// Memory is reserved for the most, and committed as the table grows.
    #[must_use]
    pub fn growing_from(self, entries: usize) -> Self {
        Self { entries_at_first: entries.clamp(1, self.entries_max), ..self }
    }

    /// Makes batches be looked up by the variant of this name, where it may be used here, instead of the one
    /// chosen for tables of this size, or found in the first batches ([`dispatch`](crate::dispatch)).
    pub fn with_variant(self, variant: Variant) -> Option<Self> {
        Backend::of(variant).map(|backend| Self { variant: Some(backend), ..self })
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
    backend: AdaptiveDispatch<Backend>,
    hash: KeyHash<W>,
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

/// Tables from this number of bytes on are seldom in the caches that a core has for itself. Overlapping batches cost a seventh where
/// tables are (3.5 MiB), and gain a fifth in 28 MiB and a half in 112 (Zen 5, keys of 16 bytes).
const OVERLAP_FROM_BYTES: usize = if cfg!(any(test, miri)) { 64 << 10 } else { 8 << 20 };

impl<const W: usize> CuckooTable<W> {
    fn new(config: &CuckooConfig) -> Self {
        const { assert!(W >= 1 && W <= KEY_WORDS_MAX, "a key has 1 to 16 words") };
        let at_first = Geometry::new(buckets_for(config.entries_at_first) as u32);
        let buckets = Memory::zeroed(buckets_for(config.entries_max));
        let entries = Entries::zeroed(buckets_for(config.entries_max));
        let table_bytes = buckets.size_bytes() + entries.size_bytes();
        let chosen = || {
            let slot = KernelSlot::Cuckoo(SizeClass::of(table_bytes));
            AdaptiveDispatch::of(slot, |text| Backend::of(text.parse().ok()?))
        };
        let backend = config.variant.map_or_else(chosen, AdaptiveDispatch::named);
        Self {
            buckets,
            entries,
            geometry: AtomicU64::new(at_first.to_word()),
            len: AtomicU64::new(0),
            entries_max: config.entries_max,
            backend,
            hash: KeyHash::new(config.seed.into()),
        }
    }

    #[inline(always)]
    fn geometry(&self) -> Geometry {
        Geometry::from_word(self.geometry.load(Acquire))
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }

    /// Returns whether there are no keys.
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

    /// Returns the bytes that readers share, reserved for [`entries_max`](Self::entries_max); the writer has more
    /// ([`CuckooWriter::writer_bytes`]).
    pub fn table_bytes(&self) -> usize {
        self.buckets.size_bytes() + self.entries.size_bytes()
    }

    /// Which variant looks batches up.
    pub fn variant(&self) -> Variant {
        self.backend.get().variant()
    }

    /// Returns the hash of a key: [`Multilinear`](crate::hash::multilinear::Multilinear) under the table's seed.
    #[inline]
    pub fn hash(&self, key: &[u32; W]) -> u32 {
        self.hash.hash(key)
    }

    /// Returns the offsets of the two buckets of a hash in bytes from the first bucket, as probes see them.
    pub fn bucket_offsets(&self, hash: u32) -> [usize; 2] {
        let geometry = self.geometry();
        [hash, geometry::alternate_hash(hash)].map(|hash| Bucket::signatures_at(geometry.bucket(hash)))
    }

    /// The hashes of many keys, 16 at a time.
    ///
    /// # Panics
    /// Where `hashes` is shorter than `keys`.
    #[inline(never)]
    pub fn hash_batch(&self, keys: &[[u32; W]], hashes: &mut [u32]) {
        let hashes = &mut hashes[..keys.len()];
        let (groups, rest) = keys.as_chunks::<KEYS>();
        let (own, own_rest) = hashes.as_chunks_mut::<KEYS>();
        for (keys, hashes) in groups.iter().zip(own) {
            match self.backend.get() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
                Backend::Avx512(_) => unsafe { multilinear::avx512::hash_keys(&self.hash, keys, hashes) },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: the witness proves that the CPU has NEON.
                Backend::Neon(_) => unsafe { multilinear::neon::hash_keys(&self.hash, keys, hashes) },
                _ => self.hash.hash_keys(keys, hashes),
            }
        }
        for (key, hash) in rest.iter().zip(own_rest) {
            *hash = self.hash(key);
        }
    }

    /// Returns the value of `key`.
    pub fn lookup(&self, key: &[u32; W]) -> Option<u32> {
        self.lookup_with_hash(key, self.hash(key))
    }

    /// Returns the value of `key`, whose hash is `hash`: that of [`hash`](Self::hash), or another if the key was
    /// inserted with it.
    pub fn lookup_with_hash(&self, key: &[u32; W], hash: u32) -> Option<u32> {
        scalar::lookup(self, key, hash).map(|found| found.value)
    }

    /// Returns the value of `key`, found as [`lookup`](Self::lookup) finds it, with every step reported to `probe`.
    pub fn lookup_probed(&self, key: &[u32; W], probe: &mut impl Probe) -> Option<u32> {
        probe.load(Part::Key, 0, 4 * W, Dependency::Free);
        // The sum of products, folded: a load, a multiplication and an addition a word, five instructions at the end.
        probe.alu(3 * W as u32 + 5);
        scalar::lookup_probed(self, key, self.hash(key), probe).map(|found| found.value)
    }

    /// Looks up to [`BATCH_MAX`] keys up. Returns a bit for each key that is there, and writes its value
    /// into `values`; the values of the others stay as they are.
    ///
    /// # Panics
    /// Where there are more than [`BATCH_MAX`] keys, or fewer values than keys.
    #[inline]
    pub fn lookup_batch(&self, keys: &[[u32; W]], values: &mut [u32]) -> u64 {
        self.batch(keys, Request { hashes: None, used: None }, values)
    }

    /// [`lookup_batch`](Self::lookup_batch) of keys whose hashes are known.
    ///
    /// # Panics
    /// As there, and where there are fewer hashes than keys.
    #[inline]
    pub fn lookup_batch_with_hashes(&self, keys: &[[u32; W]], hashes: &[u32], values: &mut [u32]) -> u64 {
        self.batch(keys, Request { hashes: Some(hashes), used: None }, values)
    }

    /// [`lookup_batch_with_hashes`](Self::lookup_batch_with_hashes) that notes `now`, in the caller's
    /// unit, as the time of last use of the keys that are there: see [`CuckooWriter::sweep`].
    ///
    /// # Panics
    /// As there.
    #[inline]
    pub fn use_batch(&self, keys: &[[u32; W]], hashes: &[u32], now: u64, values: &mut [u32]) -> u64 {
        self.batch(keys, Request { hashes: Some(hashes), used: Some(now) }, values)
    }

    /// Looks any number of keys up. Of key `i` bit `i % 64` of `hits[i / 64]` says whether it is there, and `values[i]` is
    /// its value then; other values stay as they are.
    ///
    /// In tables that exceed the caches hits are found faster than batch by batch where there are more than [`BATCH_MAX`] keys:
    /// while one batch waits for memory others are prefetched and finished. Misses, which read little, may take a tenth
    /// longer. In smaller tables it is the same.
    ///
    /// # Panics
    /// Where there are fewer values or bits than keys.
    #[inline(never)]
    pub fn lookup_many(&self, keys: &[[u32; W]], values: &mut [u32], hits: &mut [u64]) {
        let (values, hits) = (&mut values[..keys.len()], &mut hits[..keys.len().div_ceil(BATCH_MAX)]);
        if self.table_bytes() < OVERLAP_FROM_BYTES {
            let batches = keys.chunks(BATCH_MAX).zip(values.chunks_mut(BATCH_MAX));
            batches.zip(hits).for_each(|((keys, values), hits)| *hits = self.lookup_batch(keys, values));
            return;
        }
        let timed = || if self.is_empty() { 0 } else { keys.len() };
        self.backend.run_batch(timed, |backend| match backend {
            Backend::Scalar => LookupMany { table: self, keys, values, hits }.run(Portable),
            #[cfg(target_arch = "x86_64")]
            Backend::Sse42(isa) => isa.run(LookupMany { table: self, keys, values, hits }),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(isa) => isa.run(LookupMany { table: self, keys, values, hits }),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(isa) => isa.run(LookupMany { table: self, keys, values, hits }),
            #[cfg(target_arch = "aarch64")]
            Backend::Neon(isa) => isa.run(LookupMany { table: self, keys, values, hits }),
        });
    }

    #[inline(never)]
    fn batch(&self, keys: &[[u32; W]], request: Request<'_>, values: &mut [u32]) -> u64 {
        assert!(keys.len() <= BATCH_MAX, "a batch of {} keys is longer than {BATCH_MAX}", keys.len());
        if keys.is_empty() {
            return 0;
        }
        let timed = || if self.is_empty() { 0 } else { keys.len() };
        self.backend.run_batch(timed, |backend| match backend {
            Backend::Scalar => LookupBatch { table: self, keys, request, values }.run(Portable),
            #[cfg(target_arch = "x86_64")]
            Backend::Sse42(isa) => isa.run(LookupBatch { table: self, keys, request, values }),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(isa) => isa.run(LookupBatch { table: self, keys, request, values }),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(isa) => isa.run(LookupBatch { table: self, keys, request, values }),
            #[cfg(target_arch = "aarch64")]
            Backend::Neon(isa) => isa.run(LookupBatch { table: self, keys, request, values }),
        })
    }
}
