//! The batch where keys are inside the buckets: one line a key, two where it is displaced.

use std::hint::select_unpredictable;

use super::BATCH_MAX;
use super::batch::{Lanes, View};
use super::bucket::{Bucket, Version};
use super::geometry::{Geometry, alternate_hash, signature};
use crate::memory::prefetch;

/// What is known of the keys after their primary buckets were read.
struct Primaries {
    versions: [Version; BATCH_MAX],
    hits: u64,
    /// Keys that may be in their alternate bucket.
    alternates: u64,
    /// Keys whose buckets changed meanwhile.
    again: u64,
}

/// Looks keys up, whose primary buckets were asked for. Returns the hits, and the keys to be looked up
/// alone.
#[inline(always)]
pub(super) fn lookup<const W: usize, L: Lanes>(
    lanes: L,
    view: View<'_, W>,
    geometry: Geometry,
    keys: &[[u32; W]],
    hashes: &[u32],
    used: Option<u64>,
    values: &mut [u32],
) -> (u64, u64) {
    let primaries = if geometry.is_even() {
        primaries::<W, L, true>(lanes, view, geometry, keys, hashes, used, values)
    } else {
        primaries::<W, L, false>(lanes, view, geometry, keys, hashes, used, values)
    };
    alternates(lanes, view, geometry, keys, hashes, used, values, &primaries)
}

/// Where a slot's time of use is.
#[inline(always)]
fn id<const W: usize>(bucket: u32, slot: usize) -> u32 {
    bucket * Bucket::<W>::SLOTS as u32 + slot as u32
}

/// Compares the keys with those in their primary buckets. Without branches: hits and misses come in no
/// order.
#[inline(always)]
fn primaries<const W: usize, L: Lanes, const EVEN: bool>(
    lanes: L,
    view: View<'_, W>,
    geometry: Geometry,
    keys: &[[u32; W]],
    hashes: &[u32],
    used: Option<u64>,
    values: &mut [u32],
) -> Primaries {
    let mut versions = [Version::default(); BATCH_MAX];
    let (mut hits, mut alternates, mut changed) = (0u64, 0u64, false);
    for (i, ((key, hash), value)) in keys.iter().zip(hashes).zip(values).enumerate().take(BATCH_MAX) {
        let at = geometry.bucket_if::<EVEN>(*hash);
        let bucket = &view.buckets[at as usize];
        let version = bucket.version();
        let slots = lanes.holders(bucket, key) & bucket.taken(version);
        let slot = slots.trailing_zeros() as usize;
        let stored = bucket.value(slot);
        let moved = bucket.moved_bit(signature(*hash));
        let unchanged = bucket.is_unchanged(version);
        let found = (slots != 0) & unchanged;
        changed |= !unchanged;
        *value = select_unpredictable(found, stored, *value);
        versions[i] = version;
        // The bits come in at the top and arrive at their places after the last key.
        hits = hits >> 1 | u64::from(found) << 63;
        alternates = alternates >> 1 | u64::from(moved) << 63;
        if let (Some(now), true) = (used, found) {
            view.entries.set_used(id::<W>(at, slot), now);
        }
    }
    let down = BATCH_MAX - keys.len();
    let hits = hits >> down;
    // That a bucket changes within these few instructions is so rare that nobody asks which.
    let again = if changed { u64::MAX >> down & !hits } else { 0 };
    Primaries { versions, hits, alternates: alternates >> down & !hits & !again, again }
}

/// The same in the alternate buckets, for keys that may be there.
#[expect(clippy::too_many_arguments, reason = "a stage, inlined into the one place that calls it")]
#[inline(always)]
fn alternates<const W: usize, L: Lanes>(
    lanes: L,
    view: View<'_, W>,
    geometry: Geometry,
    keys: &[[u32; W]],
    hashes: &[u32],
    used: Option<u64>,
    values: &mut [u32],
    primaries: &Primaries,
) -> (u64, u64) {
    let Primaries { mut hits, mut again, .. } = *primaries;
    let mut left = primaries.alternates;
    while left != 0 {
        let i = left.trailing_zeros() as usize % BATCH_MAX;
        left &= left - 1;
        prefetch(view.buckets, geometry.bucket(alternate_hash(hashes[i])) as usize);
    }
    let mut left = primaries.alternates;
    while left != 0 {
        let i = left.trailing_zeros() as usize % BATCH_MAX;
        left &= left - 1;
        let at = geometry.bucket(alternate_hash(hashes[i]));
        let bucket = &view.buckets[at as usize];
        let version = bucket.version();
        let slots = lanes.holders(bucket, &keys[i]) & bucket.taken(version);
        let slot = slots.trailing_zeros() as usize;
        let stored = bucket.value(slot);
        let unchanged = bucket.is_unchanged(version);
        // A miss here is one only where the primary bucket is still what it was, too.
        let primary = &view.buckets[geometry.bucket(hashes[i]) as usize];
        let both = unchanged & primary.is_unchanged(primaries.versions[i]);
        let found = (slots != 0) & unchanged;
        values[i] = select_unpredictable(found, stored, values[i]);
        hits |= u64::from(found) << i;
        again |= u64::from(!found & !both) << i;
        if let (Some(now), true) = (used, found) {
            view.entries.set_used(id::<W>(at, slot), now);
        }
    }
    (hits, again)
}
