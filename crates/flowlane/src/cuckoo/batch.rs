//! The batch, stage by stage: every stage runs over all keys before the next begins, so that the cache
//! misses of up to 64 keys are under way at the same time.
//!
//! One body; `lanes.rs` compiles it for each instruction set.

use super::bucket::{Bucket, moved_bit};
use super::entry::EntriesView;
use super::geometry::{Geometry, alternate_hash, signature};
use super::{BATCH_MAX, CuckooTable};
use crate::memory::prefetch;

/// How a body compares the signatures of a bucket.
pub(super) trait Compare: Copy {
    /// The slots with this signature, a bit each.
    fn matches(self, signatures: [u64; 2], signature: u16) -> u32;
}

/// [`super::scalar::matches`].
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Compare for Portable {
    #[inline(always)]
    fn matches(self, signatures: [u64; 2], signature: u16) -> u32 {
        super::scalar::matches(signatures, signature)
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
    entries: [u32; BATCH_MAX],
    /// Keys of which a signature was found.
    candidates: u64,
    /// Keys that may be in their alternate bucket.
    alternates: u64,
    /// Keys whose buckets changed meanwhile, or hold the signature of another key: to be looked up alone.
    again: u64,
}

/// Looks up to [`BATCH_MAX`] keys up; `used`: what to note as the time of use.
#[inline(always)]
pub(super) fn lookup<const W: usize, C: Compare>(
    compare: C,
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    hashes: &[u32],
    used: Option<u64>,
    values: &mut [u64],
) -> u64 {
    let len = keys.len();
    let (hashes, values) = (&hashes[..len], &mut values[..len]);
    let geometry = table.geometry();
    let view = View { buckets: &table.buckets, entries: table.entries.view() };
    let mut stages = Stages {
        buckets: [0; BATCH_MAX],
        versions: [0; BATCH_MAX],
        entries: [0; BATCH_MAX],
        candidates: 0,
        alternates: 0,
        again: 0,
    };
    for (hash, bucket) in hashes.iter().zip(&mut stages.buckets) {
        *bucket = geometry.bucket(*hash);
        prefetch(view.buckets, *bucket as usize);
    }
    primaries(compare, view, hashes, &mut stages);
    if stages.alternates != 0 {
        alternates(compare, view, geometry, hashes, &mut stages);
    }
    let mut hits = entries(view, keys, used, values, &mut stages);
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
                view.entries.set_used(found.entry, now);
            }
        }
    }
    hits
}

/// Compares the signatures in the primary buckets and asks for the candidates' entries. Without branches:
/// hits and misses come in no order.
#[inline(always)]
fn primaries<const W: usize, C: Compare>(compare: C, view: View<'_, W>, hashes: &[u32], stages: &mut Stages) {
    for (i, hash) in hashes.iter().enumerate() {
        let signature = signature(*hash);
        let bucket = &view.buckets[stages.buckets[i] as usize];
        let version = bucket.version();
        let slots = compare.matches(bucket.signatures(), signature);
        let found = slots != 0;
        let entry = bucket.entry(slots.trailing_zeros() as usize);
        let moved = bucket.moved() & moved_bit(signature) != 0;
        // Of a miss nothing else is read: it is decided here.
        let changed = !found & !bucket.is_unchanged(version);
        stages.versions[i] = version;
        stages.entries[i] = if found { entry } else { 0 };
        // Of a key without candidate this asks for entry 0, which costs nothing after the first time.
        view.entries.prefetch(stages.entries[i]);
        stages.candidates |= u64::from(found) << i;
        stages.alternates |= u64::from(moved & !found) << i;
        stages.again |= u64::from(changed) << i;
    }
    stages.alternates &= !stages.again;
}

/// The same in the alternate buckets, for keys that may be there.
#[inline(always)]
fn alternates<const W: usize, C: Compare>(
    compare: C,
    view: View<'_, W>,
    geometry: Geometry,
    hashes: &[u32],
    stages: &mut Stages,
) {
    let mut left = stages.alternates;
    while left != 0 {
        let i = left.trailing_zeros() as usize;
        left &= left - 1;
        prefetch(view.buckets, geometry.bucket(alternate_hash(hashes[i])) as usize);
    }
    let mut left = stages.alternates;
    while left != 0 {
        let i = left.trailing_zeros() as usize % BATCH_MAX;
        left &= left - 1;
        let at = geometry.bucket(alternate_hash(hashes[i]));
        let bucket = &view.buckets[at as usize];
        let version = bucket.version();
        let slots = compare.matches(bucket.signatures(), signature(hashes[i]));
        let found = slots != 0;
        let entry = bucket.entry(slots.trailing_zeros() as usize);
        // A miss here is one only where the primary bucket is still what it was, too.
        let primary = &view.buckets[stages.buckets[i] as usize];
        let changed = !bucket.is_unchanged(version) | !primary.is_unchanged(stages.versions[i]);
        if found {
            stages.buckets[i] = at;
            stages.versions[i] = version;
            stages.entries[i] = entry;
            view.entries.prefetch(entry);
        }
        stages.candidates |= u64::from(found) << i;
        stages.again |= u64::from(changed & !found) << i;
    }
}

/// Compares the candidates' keys and reads their values. Returns the hits.
#[inline(always)]
fn entries<const W: usize>(
    view: View<'_, W>,
    keys: &[[u32; W]],
    used: Option<u64>,
    values: &mut [u64],
    stages: &mut Stages,
) -> u64 {
    let mut hits = 0;
    let mut left = stages.candidates;
    while left != 0 {
        let i = left.trailing_zeros() as usize;
        left &= left - 1;
        let entry = stages.entries[i];
        let same = view.entries.key_is(entry, &keys[i]);
        let value = view.entries.value(entry);
        let bucket = &view.buckets[stages.buckets[i] as usize];
        if same & bucket.is_unchanged(stages.versions[i]) {
            values[i] = value;
            hits |= 1 << i;
            if let Some(now) = used {
                view.entries.set_used(entry, now);
            }
        } else {
            stages.again |= 1 << i;
        }
    }
    hits
}
