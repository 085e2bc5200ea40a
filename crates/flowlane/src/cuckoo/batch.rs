//! The batch, stage by stage: every stage runs over all keys before the next begins, so that the cache
//! misses of up to 64 keys are under way at the same time.
//!
//! One body; `lanes.rs` compiles it for each instruction set.

use std::hint::select_unpredictable;

use super::bucket::Bucket;
use super::entry::EntriesView;
use super::geometry::{Geometry, alternate_hash, signature};
use super::{BATCH_MAX, CuckooTable};
use crate::memory::{prefetch, prefetch_at};

/// How a body compares the signatures of a bucket.
pub(super) trait Compare: Copy {
    /// The slots with this signature, a bit each.
    fn matches(self, bucket: &Bucket, signature: u16) -> u32;
}

/// [`super::scalar::matches`].
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Compare for Portable {
    #[inline(always)]
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        super::scalar::matches(bucket.signatures(), signature)
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
    /// Keys of which a signature was found in the primary bucket.
    candidates: u64,
    /// Keys that may be in their alternate bucket.
    alternates: u64,
    /// Keys whose buckets changed meanwhile, or hold the signature of another key: to be looked up alone.
    again: u64,
}

/// What to do with a batch beside looking it up.
#[derive(Clone, Copy)]
pub(super) struct Request {
    /// What to note as the time of use of the keys found.
    pub(super) used: Option<u64>,
    /// Whether the primary buckets were asked for already.
    pub(super) prefetched: bool,
}

/// Looks up to [`BATCH_MAX`] keys up.
#[inline(always)]
pub(super) fn lookup<const W: usize, C: Compare>(
    compare: C,
    table: &CuckooTable<W>,
    keys: &[[u32; W]],
    hashes: &[u32],
    request: Request,
    values: &mut [u64],
) -> u64 {
    let len = keys.len();
    let (hashes, values) = (&hashes[..len], &mut values[..len]);
    let geometry = table.geometry();
    let view = View { buckets: &table.buckets, entries: table.entries.view() };
    if !request.prefetched {
        for hash in hashes {
            prefetch(view.buckets, geometry.bucket(*hash) as usize);
        }
    }
    let mut stages = Stages {
        buckets: [0; BATCH_MAX],
        versions: [0; BATCH_MAX],
        entries: [0; BATCH_MAX],
        candidates: 0,
        alternates: 0,
        again: 0,
    };
    if geometry.is_even() {
        primaries::<W, C, true>(compare, view, geometry, hashes, &mut stages);
    } else {
        primaries::<W, C, false>(compare, view, geometry, hashes, &mut stages);
    }
    let later = alternates(compare, view, geometry, hashes, &mut stages);
    let mut hits = entries(view, keys, request.used, values, stages.candidates, &mut stages);
    // Last, since their entries were asked for last.
    hits |= entries(view, keys, request.used, values, later, &mut stages);
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
            if let Some(now) = request.used {
                view.entries.set_used(found.entry, now);
            }
        }
    }
    hits
}

/// Compares the signatures in the primary buckets, and asks for what each key needs next: its candidate's
/// entry, or its alternate bucket. Without branches: hits and misses come in no order.
#[inline(always)]
fn primaries<const W: usize, C: Compare, const EVEN: bool>(
    compare: C,
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
        let slots = compare.matches(bucket, signatures[i]);
        let found = slots != 0;
        let entry = bucket.entry(slots.trailing_zeros() as usize);
        let moved = bucket.moved() >> (signatures[i] >> 10) & 1;
        changed |= !bucket.is_unchanged(version);
        let alternate = view.buckets.as_ptr().wrapping_add(others[i] as usize);
        // Of a miss this asks for the bucket that is there already.
        let other = select_unpredictable(moved != 0, alternate, bucket).cast();
        prefetch_at(select_unpredictable(found, view.entries.address(entry), other));
        view.entries.prefetch_rest(select_unpredictable(found, entry, 0));
        stages.versions[i] = version;
        stages.entries[i] = entry;
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
fn alternates<const W: usize, C: Compare>(
    compare: C,
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
        let slots = compare.matches(bucket, signature(hashes[i]));
        let found = slots != 0;
        let entry = bucket.entry(slots.trailing_zeros() as usize);
        // A miss here is one only where the primary bucket is still what it was, too.
        let primary = &view.buckets[stages.buckets[i] as usize];
        let changed = !bucket.is_unchanged(version) | !primary.is_unchanged(stages.versions[i]);
        let entry = if found { entry } else { 0 };
        view.entries.prefetch(entry);
        stages.buckets[i] = at;
        stages.versions[i] = version;
        stages.entries[i] = entry;
        candidates |= u64::from(found) << i;
        stages.again |= u64::from(changed & !found) << i;
    }
    candidates
}

/// Compares the candidates' keys and reads their values. Returns the hits.
#[inline(always)]
fn entries<const W: usize>(
    view: View<'_, W>,
    keys: &[[u32; W]],
    used: Option<u64>,
    values: &mut [u64],
    candidates: u64,
    stages: &mut Stages,
) -> u64 {
    let mut hits = 0;
    let mut left = candidates;
    while left != 0 {
        let i = left.trailing_zeros() as usize % BATCH_MAX;
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
