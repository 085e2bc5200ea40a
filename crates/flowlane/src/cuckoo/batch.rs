//! The batch, stage by stage: every stage runs over all keys before the next begins, so that the cache
//! misses of up to 64 keys are under way at the same time.
//!
//! Generic over [`BucketOps`], which `lanes.rs`, `avx512.rs` and `neon.rs` implement for instruction sets.

use super::bucket::Bucket;
use super::entry::{EntriesView, EntryAt, id};
use super::geometry::{Geometry, alternate_hash, signature};
use super::{BATCH_MAX, CuckooTable};
use crate::hash::multilinear::{KEYS, KeyHash};
use crate::isa::simd::Kernel;
use crate::memory::{prefetch, prefetch_each};

/// Operations that have kernels of their own; the provided ones are the scalar kernel.
pub(super) trait BucketOps: Copy {
    /// The hashes of some keys.
    #[inline(always)]
    fn hash_keys<const W: usize>(self, hash: &KeyHash<W>, keys: &[[u32; W]; KEYS], hashes: &mut [u32; KEYS]) {
        hash.hash_keys(keys, hashes);
    }

    /// Returns the slots with this signature, a bit each: [`Bucket::matches`].
    fn matches(self, bucket: &Bucket, signature: u16) -> u32;

    /// Returns a bit for each that is not 0.
    #[inline(always)]
    fn nonzero(self, slots: &[u8; BATCH_MAX]) -> u64 {
        slots.iter().rev().fold(0, |bits, slots| bits << 1 | u64::from(*slots != 0))
    }

    /// Returns a bit for each of the filters in which the signature's bit is set: [`Bucket::filter_bit`].
    #[inline(always)]
    fn moved(self, filters: &[u64; BATCH_MAX], signatures: &[u16; BATCH_MAX]) -> u64 {
        let both = filters.iter().zip(signatures).rev();
        both.fold(0, |bits, (filter, signature)| bits << 1 | filter >> (signature >> 10) & 1)
    }

    /// Returns whether an entry has this key.
    #[inline(always)]
    fn key_is<const W: usize>(self, entries: EntriesView<'_, W>, entry: EntryAt, key: &[u32; W]) -> bool {
        entries.key_is(entry, key)
    }

    #[inline(always)]
    fn primaries<const W: usize>(self, view: View<'_, W>, stages: &mut Stages, len: usize) {
        primaries(self, view, stages, len);
    }

    /// [`entries`] of the candidates in primary buckets and of those in alternate ones.
    #[inline(always)]
    fn entries<const W: usize>(
        self,
        view: View<'_, W>,
        keys: &[[u32; W]],
        used: Option<u64>,
        values: &mut [u32],
        stages: &mut Stages,
        later: u64,
    ) -> u64 {
        let hits = entries(self, view, keys, used, values, stages, stages.candidates);
        // Last, since their entries were prefetched last.
        hits | entries(self, view, keys, used, values, stages, later)
    }
}

/// The definition.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl BucketOps for Portable {
    #[inline(always)]
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        bucket.matches(signature)
    }
}

/// Where the table's memory is: held in registers, where the table itself would have to be read again after
/// every fence.
#[derive(Clone, Copy)]
pub(super) struct View<'a, const W: usize> {
    pub(super) buckets: &'a [Bucket],
    pub(super) entries: EntriesView<'a, W>,
}

/// State of the keys of a batch between stages. Lanes beyond the batch refer to bucket 0 and to the first entry.
#[repr(align(64))]
pub(super) struct Stages {
    /// Where the candidate is.
    pub(super) entries: [EntryAt; BATCH_MAX],
    /// The bucket in which a candidate was found, and its version then.
    pub(super) buckets: [u32; BATCH_MAX],
    pub(super) versions: [u32; BATCH_MAX],
    pub(super) signatures: [u16; BATCH_MAX],
    /// The slots there with the key's signature, a bit each: the first is the candidate.
    pub(super) slots: [u8; BATCH_MAX],
    /// Keys of which a signature was found in the primary bucket.
    pub(super) candidates: u64,
    /// Keys that may be in their alternate bucket.
    pub(super) alternates: u64,
    /// Keys whose buckets changed meanwhile, or hold the signature of another key: to be looked up alone.
    pub(super) again: u64,
}

/// Options of a lookup: known hashes, and a time of use to note.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    /// The hashes of the keys; computed where there are none.
    pub(super) hashes: Option<&'a [u32]>,
    /// The time of use to note for the keys that are found.
    pub(super) used: Option<u64>,
}

impl Stages {
    const NOTHING: Self = Self {
        entries: [0; BATCH_MAX],
        buckets: [0; BATCH_MAX],
        versions: [0; BATCH_MAX],
        slots: [0; BATCH_MAX],
        signatures: [0; BATCH_MAX],
        candidates: 0,
        alternates: 0,
        again: 0,
    };
}

/// Looks up to [`BATCH_MAX`] keys up, and returns a bit for each that was found.
pub(super) struct LookupBatch<'a, const W: usize> {
    pub(super) table: &'a CuckooTable<W>,
    pub(super) keys: &'a [[u32; W]],
    pub(super) request: Request<'a>,
    pub(super) values: &'a mut [u32],
}

impl<I: BucketOps, const W: usize> Kernel<I> for LookupBatch<'_, W> {
    type Output = u64;

    #[inline(always)]
    fn run(self, isa: I) -> u64 {
        lookup(isa, self.table, self.keys, self.request, self.values)
    }
}

/// Looks any number of keys up.
pub(super) struct LookupMany<'a, const W: usize> {
    pub(super) table: &'a CuckooTable<W>,
    pub(super) keys: &'a [[u32; W]],
    pub(super) values: &'a mut [u32],
    /// A bit for each key.
    pub(super) hits: &'a mut [u64],
}

impl<I: BucketOps, const W: usize> Kernel<I> for LookupMany<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: I) {
        lookup_many(isa, self.table, self.keys, self.values, self.hits);
    }
}

#[inline(always)]
fn lookup<const W: usize, I: BucketOps>(
    isa: I,
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    request: Request<'_>,
    values: &mut [u32],
) -> u64 {
    let (mut own, mut stages) = ([0; BATCH_MAX], Stages::NOTHING);
    let hashes = match request.hashes {
        Some(hashes) => &hashes[..keys.len()],
        None => {
            hash(isa, table, keys, &mut own);
            &own[..keys.len()]
        }
    };
    let geometry = begin(table, hashes, &mut stages);
    let later = go_on(isa, table, geometry, hashes, &mut stages);
    finish(isa, table, geometry, keys, hashes, request.used, values, &mut stages, later)
}

/// A batch under way, of many.
struct Under<'a, const W: usize> {
    keys: &'a [[u32; W]],
    geometry: Geometry,
    hashes: [u32; BATCH_MAX],
    stages: Stages,
    later: u64,
}

/// Looks any number of keys up: a bit for each in `hits`.
///
/// Of three batches one prefetches its buckets, the one before it its entries, and the one before that is finished: so no
/// batch waits for memory while there is something else to do.
#[inline(always)]
fn lookup_many<const W: usize, I: BucketOps>(
    isa: I,
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    values: &mut [u32],
    hits: &mut [u64],
) {
    let mut under: [Under<'_, W>; 3] = std::array::from_fn(|_| Under {
        keys: &[],
        geometry: table.geometry(),
        hashes: [0; BATCH_MAX],
        stages: Stages::NOTHING,
        later: 0,
    });
    let [mut first, mut second, mut third] = under.each_mut();
    let mut coming = keys.chunks(BATCH_MAX);
    let mut answers = values.chunks_mut(BATCH_MAX).zip(hits);
    loop {
        let keys = coming.next().unwrap_or(&[]);
        first.keys = keys;
        if !keys.is_empty() {
            first.stages = Stages::NOTHING;
            hash(isa, table, keys, &mut first.hashes);
            first.geometry = begin(table, &first.hashes[..keys.len()], &mut first.stages);
        }
        if !second.keys.is_empty() {
            let hashes = &second.hashes[..second.keys.len()];
            second.later = go_on(isa, table, second.geometry, hashes, &mut second.stages);
        }
        if !third.keys.is_empty() {
            let Under { keys, geometry, hashes, stages, later } = &mut *third;
            let (values, hits) = answers.next().expect("there is one for each batch");
            let hashes = &hashes[..keys.len()];
            *hits = finish(isa, table, *geometry, keys, hashes, None, values, stages, *later);
        } else if first.keys.is_empty() && second.keys.is_empty() {
            break;
        }
        (first, second, third) = (third, first, second);
    }
}

/// Prefetches the primary buckets of keys with these hashes.
#[inline(always)]
fn begin<const W: usize>(table: &CuckooTable<W>, hashes: &[u32], stages: &mut Stages) -> Geometry {
    let geometry = table.geometry();
    let view = View { buckets: &table.buckets, entries: table.entries.view() };
    if geometry.is_even() {
        ask::<W, true>(view, geometry, hashes, stages);
    } else {
        ask::<W, false>(view, geometry, hashes, stages);
    }
    geometry
}

/// Reads the buckets, and prefetches the candidates' entries. Returns the candidates in alternate buckets.
#[inline(always)]
fn go_on<const W: usize, I: BucketOps>(
    isa: I,
    table: &CuckooTable<W>,
    geometry: Geometry,
    hashes: &[u32],
    stages: &mut Stages,
) -> u64 {
    let view = View { buckets: &table.buckets, entries: table.entries.view() };
    isa.primaries(view, stages, hashes.len());
    alternates(isa, view, geometry, hashes, stages)
}

/// Compares the candidates' keys, and looks up alone what changed meanwhile. Returns the hits.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the state of a batch, in registers")]
fn finish<const W: usize, I: BucketOps>(
    isa: I,
    table: &CuckooTable<W>,
    geometry: Geometry,
    keys: &[[u32; W]],
    hashes: &[u32],
    used: Option<u64>,
    values: &mut [u32],
    stages: &mut Stages,
    later: u64,
) -> u64 {
    let len = keys.len();
    let values = &mut values[..len];
    let view = View { buckets: &table.buckets, entries: table.entries.view() };
    let mut hits = isa.entries(view, keys, used, values, stages, later);
    let mut again = stages.again;
    if table.geometry() != geometry {
        // The table grew meanwhile: a key that was missed may have gone to a new bucket.
        again |= (u64::MAX >> (BATCH_MAX - len)) & !hits;
    }
    while again != 0 {
        let i = again.trailing_zeros() as usize;
        again &= again - 1;
        if let Some(found) = super::scalar::lookup(table, &keys[i], hashes[i]) {
            hits |= 1 << i;
            values[i] = found.value;
            if let Some(now) = used {
                view.entries.set_used(found.id, now);
            }
        }
    }
    hits
}

/// Hashes the keys.
#[inline(always)]
fn hash<const W: usize, I: BucketOps>(
    isa: I,
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    hashes: &mut [u32; BATCH_MAX],
) {
    let (groups, rest) = keys.as_chunks::<KEYS>();
    let (own, _) = hashes.as_chunks_mut::<KEYS>();
    for (keys, hashes) in groups.iter().zip(own) {
        isa.hash_keys(&table.hash, keys, hashes);
    }
    for (hash, key) in hashes[groups.len() * KEYS..].iter_mut().zip(rest) {
        *hash = table.hash.hash(key);
    }
}

/// Prefetches the primary buckets.
#[inline(always)]
fn ask<const W: usize, const EVEN: bool>(
    view: View<'_, W>,
    geometry: Geometry,
    hashes: &[u32],
    stages: &mut Stages,
) {
    // A loop that the compiler makes lanes of.
    let places = stages.buckets.iter_mut().zip(&mut stages.signatures);
    for ((bucket, own), hash) in places.zip(hashes) {
        *bucket = geometry.bucket_if::<EVEN>(*hash);
        *own = signature(*hash);
    }
    prefetch_each(view.buckets, &stages.buckets[..hashes.len()]);
}

/// Compares the signatures in the primary buckets, and prefetches the candidates' entries. The work for
/// every key is short and without branches: hits and misses are in no order.
#[inline(always)]
fn primaries<const W: usize, I: BucketOps>(isa: I, view: View<'_, W>, stages: &mut Stages, len: usize) {
    let mut filters = [0; BATCH_MAX];
    let mut changed = 0;
    for (i, filter) in filters.iter_mut().enumerate().take(len) {
        let bucket = &view.buckets[stages.buckets[i] as usize];
        let version = bucket.version();
        stages.slots[i] = isa.matches(bucket, stages.signatures[i]) as u8;
        *filter = bucket.filter();
        stages.versions[i] = version;
        changed |= bucket.change_since(version);
    }
    stages.candidates = isa.nonzero(&stages.slots);
    // Of a miss nothing else is read than the primary bucket: it is decided here. That one changes within
    // these few instructions is so rare that it is not tracked by key.
    let all = u64::MAX >> (BATCH_MAX - len);
    stages.again = if changed != 0 { all & !stages.candidates } else { 0 };
    let moved = isa.moved(&filters, &stages.signatures);
    stages.alternates = moved & !stages.candidates & !stages.again;
    for i in ones(stages.candidates) {
        let slot = stages.slots[i].trailing_zeros() as usize;
        stages.entries[i] = view.entries.at(stages.buckets[i], slot);
        view.entries.prefetch(stages.entries[i]);
    }
}

/// Returns the places of the ones.
#[inline(always)]
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize % BATCH_MAX;
        let more = bits != 0;
        bits &= bits.wrapping_sub(1);
        more.then_some(place)
    })
}

/// Compares the signatures in the alternate buckets, for keys that may be there. Returns the candidates.
#[inline(always)]
fn alternates<const W: usize, I: BucketOps>(
    isa: I,
    view: View<'_, W>,
    geometry: Geometry,
    hashes: &[u32],
    stages: &mut Stages,
) -> u64 {
    for i in ones(stages.alternates) {
        prefetch(view.buckets, geometry.bucket(alternate_hash(hashes[i])) as usize);
    }
    let mut candidates = 0;
    for i in ones(stages.alternates) {
        let at = geometry.bucket(alternate_hash(hashes[i]));
        let bucket = &view.buckets[at as usize];
        let version = bucket.version();
        let slots = isa.matches(bucket, stages.signatures[i]);
        let found = slots != 0;
        // A miss here is one only where the primary bucket is still what it was, too.
        let primary = &view.buckets[stages.buckets[i] as usize];
        let changed = !bucket.is_unchanged(version) | !primary.is_unchanged(stages.versions[i]);
        stages.entries[i] = view.entries.at(at, slots.trailing_zeros() as usize);
        view.entries.prefetch(stages.entries[i]);
        stages.buckets[i] = at;
        stages.versions[i] = version;
        stages.slots[i] = slots as u8;
        candidates |= u64::from(found) << i;
        stages.again |= u64::from(changed & !found) << i;
    }
    candidates
}

/// Compares the candidates' keys and reads their values. Returns the hits.
#[inline(always)]
fn entries<const W: usize, I: BucketOps>(
    isa: I,
    view: View<'_, W>,
    keys: &[[u32; W]],
    used: Option<u64>,
    values: &mut [u32],
    stages: &mut Stages,
    candidates: u64,
) -> u64 {
    let mut hits = 0;
    for i in ones(candidates) {
        let entry = stages.entries[i];
        let same = isa.key_is(view.entries, entry, &keys[i]);
        let value = view.entries.value(entry);
        if same & view.buckets[stages.buckets[i] as usize].is_unchanged(stages.versions[i]) {
            hits |= 1 << i;
            values[i] = value;
        } else {
            stages.again |= 1 << i;
        }
    }
    note_use(view, used, hits, stages);
    hits
}

/// Notes a use of the keys found.
#[inline(always)]
pub(super) fn note_use<const W: usize>(view: View<'_, W>, used: Option<u64>, hits: u64, stages: &Stages) {
    let Some(now) = used else { return };
    for i in ones(hits) {
        let slot = stages.slots[i].trailing_zeros() as usize;
        view.entries.set_used(id(stages.buckets[i], slot), now);
    }
}
