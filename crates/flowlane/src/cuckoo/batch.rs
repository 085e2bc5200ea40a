//! The batch, stage by stage: every stage runs over all keys before the next begins, so that the cache
//! misses of up to 64 keys are under way at the same time.
//!
//! One body; `lanes.rs` compiles it for each instruction set.

use std::hint::select_unpredictable;

use super::bucket::Bucket;
use super::entry::{EntriesView, EntryAt, id};
use super::geometry::{Geometry, alternate_hash, signature};
use super::{BATCH_MAX, CuckooTable};
use crate::hash::multilinear::{KEYS, KeyHash};
use crate::memory::{prefetch, prefetch_at};

/// What a body does with vectors, or without.
pub(super) trait Lanes: Copy {
    /// The hashes of some keys.
    #[inline(always)]
    fn hash_keys<const W: usize>(
        self,
        hash: &KeyHash<W>,
        keys: &[[u32; W]; KEYS],
        hashes: &mut [u32; KEYS],
    ) {
        hash.hash_keys(keys, hashes);
    }

    /// The slots with this signature, a bit each: [`Bucket::matches`].
    fn matches(self, bucket: &Bucket, signature: u16) -> u32;

    /// Whether an entry has this key: [`EntriesView::key_is`].
    #[inline(always)]
    fn key_is<const W: usize>(self, entries: EntriesView<'_, W>, entry: EntryAt, key: &[u32; W]) -> bool {
        entries.key_is(entry, key)
    }
}

/// The definition.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Lanes for Portable {
    #[inline(always)]
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        bucket.matches(signature)
    }
}

/// Where the table's memory is: held in registers, where the table itself would have to be read again after
/// every fence.
#[derive(Clone, Copy)]
struct View<'a, const W: usize> {
    buckets: &'a [Bucket],
    entries: EntriesView<'a, W>,
}

/// What the stages know of the keys.
struct Stages {
    /// The bucket in which a candidate was found, and its version then.
    buckets: [u32; BATCH_MAX],
    versions: [u32; BATCH_MAX],
    slots: [u32; BATCH_MAX],
    /// Keys of which a signature was found in the primary bucket.
    candidates: u64,
    /// Keys that may be in their alternate bucket.
    alternates: u64,
    /// Keys whose buckets changed meanwhile, or hold the signature of another key: to be looked up alone.
    again: u64,
}

/// What is known before a batch, and what to do beside looking it up.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    /// The hashes of the keys; computed where there are none.
    pub(super) hashes: Option<&'a [u32]>,
    /// What to note as the time of use of the keys found.
    pub(super) used: Option<u64>,
}

/// Looks up to [`BATCH_MAX`] keys up.
#[inline(always)]
pub(super) fn lookup<const W: usize, L: Lanes>(
    lanes: L,
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    request: Request<'_>,
    values: &mut [u32],
) -> u64 {
    let len = keys.len();
    let values = &mut values[..len];
    let geometry = table.geometry();
    let view = View { buckets: &table.buckets, entries: table.entries.view() };
    let mut own = [0; BATCH_MAX];
    let hashes = match request.hashes {
        Some(hashes) => {
            hashes[..len].iter().for_each(|hash| prefetch(view.buckets, geometry.bucket(*hash) as usize));
            &hashes[..len]
        }
        None => {
            hash_and_ask(lanes, table, geometry, keys, &mut own);
            &own[..len]
        }
    };
    let (mut hits, mut again) = stages(lanes, view, geometry, keys, hashes, request.used, values);
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
            if let Some(now) = request.used {
                view.entries.set_used(found.id, now);
            }
        }
    }
    hits
}

/// Hashes the keys and asks for their primary buckets: the first are on their way while the other keys are
/// hashed.
#[inline(always)]
fn hash_and_ask<const W: usize, L: Lanes>(
    lanes: L,
    table: &CuckooTable<W>,
    geometry: Geometry,
    keys: &[[u32; W]],
    hashes: &mut [u32; BATCH_MAX],
) {
    let buckets = &*table.buckets;
    let (groups, rest) = keys.as_chunks::<KEYS>();
    let (own, _) = hashes.as_chunks_mut::<KEYS>();
    for (keys, hashes) in groups.iter().zip(own) {
        lanes.hash_keys(&table.hash, keys, hashes);
        if geometry.is_even() {
            hashes.iter().for_each(|hash| prefetch(buckets, geometry.bucket_if::<true>(*hash) as usize));
        } else {
            hashes.iter().for_each(|hash| prefetch(buckets, geometry.bucket(*hash) as usize));
        }
    }
    for (hash, key) in hashes[groups.len() * KEYS..].iter_mut().zip(rest) {
        *hash = table.hash.hash(key);
        prefetch(buckets, geometry.bucket(*hash) as usize);
    }
}

/// The stages. Returns the hits, and the keys to be looked up alone.
#[inline(always)]
fn stages<const W: usize, L: Lanes>(
    lanes: L,
    view: View<'_, W>,
    geometry: Geometry,
    keys: &[[u32; W]],
    hashes: &[u32],
    used: Option<u64>,
    values: &mut [u32],
) -> (u64, u64) {
    let mut stages = Stages {
        buckets: [0; BATCH_MAX],
        versions: [0; BATCH_MAX],
        slots: [0; BATCH_MAX],
        candidates: 0,
        alternates: 0,
        again: 0,
    };
    if geometry.is_even() {
        primaries::<W, L, true>(lanes, view, geometry, hashes, &mut stages);
    } else {
        primaries::<W, L, false>(lanes, view, geometry, hashes, &mut stages);
    }
    let later = alternates(lanes, view, geometry, hashes, &mut stages);
    let mut hits = entries(lanes, view, keys, used, values, stages.candidates, &mut stages);
    // Last, since their entries were asked for last.
    hits |= entries(lanes, view, keys, used, values, later, &mut stages);
    (hits, stages.again)
}

/// Compares the signatures in the primary buckets, and asks for what each key needs next: its candidate's
/// entry, or its alternate bucket. Without branches: hits and misses come in no order.
#[inline(always)]
fn primaries<const W: usize, L: Lanes, const EVEN: bool>(
    lanes: L,
    view: View<'_, W>,
    geometry: Geometry,
    hashes: &[u32],
    stages: &mut Stages,
) {
    let mut signatures = [0; BATCH_MAX];
    let mut others = [0; BATCH_MAX];
    // A loop that the compiler makes lanes of.
    for (i, hash) in hashes.iter().enumerate().take(BATCH_MAX) {
        signatures[i] = signature(*hash);
        stages.buckets[i] = geometry.bucket_if::<EVEN>(*hash);
        others[i] = geometry.bucket_if::<EVEN>(alternate_hash(*hash));
    }
    let (mut candidates, mut alternates, mut changed) = (0u64, 0u64, false);
    for i in 0..hashes.len().min(BATCH_MAX) {
        let bucket = &view.buckets[stages.buckets[i] as usize];
        let version = bucket.version();
        let slots = lanes.matches(bucket, signatures[i]);
        let found = slots != 0;
        let slot = slots.trailing_zeros() as usize;
        let entry = view.entries.at(stages.buckets[i], slot);
        let moved = u64::from(bucket.moved_bit(signatures[i]));
        changed |= !bucket.is_unchanged(version);
        let alternate = view.buckets.as_ptr().wrapping_add(others[i] as usize);
        // Of a miss this asks for the bucket that is there already.
        let other = select_unpredictable(moved != 0, alternate, bucket).cast();
        prefetch_at(select_unpredictable(found, view.entries.address(entry), other));
        view.entries.prefetch_rest(select_unpredictable(found, entry, 0));
        stages.versions[i] = version;
        stages.slots[i] = slot as u32;
        // The bits come in at the top and arrive at their places after the last key.
        candidates = candidates >> 1 | u64::from(found) << 63;
        alternates = alternates >> 1 | moved << 63;
    }
    let down = BATCH_MAX - hashes.len();
    stages.candidates = candidates >> down;
    // Of a miss nothing else is read than the primary bucket: it is decided here. That one changes within
    // these few instructions is so rare that nobody asks which.
    stages.again = if changed { u64::MAX >> down & !stages.candidates } else { 0 };
    stages.alternates = alternates >> down & !stages.candidates & !stages.again;
}

/// The same in the alternate buckets, for keys that may be there. Returns the candidates.
#[inline(always)]
fn alternates<const W: usize, L: Lanes>(
    lanes: L,
    view: View<'_, W>,
    geometry: Geometry,
    hashes: &[u32],
    stages: &mut Stages,
) -> u64 {
    let mut candidates = 0;
    let mut left = stages.alternates;
    while left != 0 {
        let i = left.trailing_zeros() as usize % BATCH_MAX;
        left &= left - 1;
        let at = geometry.bucket(alternate_hash(hashes[i]));
        let bucket = &view.buckets[at as usize];
        let version = bucket.version();
        let slots = lanes.matches(bucket, signature(hashes[i]));
        let found = slots != 0;
        let slot = slots.trailing_zeros() as usize;
        // A miss here is one only where the primary bucket is still what it was, too.
        let primary = &view.buckets[stages.buckets[i] as usize];
        let changed = !bucket.is_unchanged(version) | !primary.is_unchanged(stages.versions[i]);
        view.entries.prefetch(view.entries.at(at, slot));
        stages.buckets[i] = at;
        stages.versions[i] = version;
        stages.slots[i] = slot as u32;
        candidates |= u64::from(found) << i;
        stages.again |= u64::from(changed & !found) << i;
    }
    candidates
}

/// Compares the candidates' keys and reads their values. Returns the hits.
#[inline(always)]
fn entries<const W: usize, L: Lanes>(
    lanes: L,
    view: View<'_, W>,
    keys: &[[u32; W]],
    used: Option<u64>,
    values: &mut [u32],
    candidates: u64,
    stages: &mut Stages,
) -> u64 {
    let mut hits = 0;
    let mut left = candidates;
    while left != 0 {
        let i = left.trailing_zeros() as usize % BATCH_MAX;
        left &= left - 1;
        let (at, slot) = (stages.buckets[i], stages.slots[i] as usize);
        let entry = view.entries.at(at, slot);
        let same = lanes.key_is(view.entries, entry, &keys[i]);
        let value = view.entries.value(entry);
        if same & view.buckets[at as usize].is_unchanged(stages.versions[i]) {
            hits |= 1 << i;
            values[i] = value;
            if let Some(now) = used {
                view.entries.set_used(id(at, slot), now);
            }
        } else {
            stages.again |= 1 << i;
        }
    }
    hits
}
