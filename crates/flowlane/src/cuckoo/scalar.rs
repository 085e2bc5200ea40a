//! The definition: one key at a time, portable code.

use super::CuckooTable;
use super::bucket::Bucket;
use super::bucket::moved_bit;
use super::geometry::{alternate_hash, signature};
use super::sync::pause;

/// What a reader found, and the entry where it found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) entry: u32,
    pub(super) value: u64,
}

/// The writer changed a bucket while it was read.
struct Changed;

/// The slots with this signature, a bit each.
#[inline(always)]
pub(super) fn matches(signatures: [u64; 2], signature: u16) -> u32 {
    let nibble = |word: u64| -> u32 {
        let difference = word ^ (u64::from(signature) * 0x0001_0001_0001_0001);
        // The top bit of every 16 that are all zero; no carry leaves its 16 bits, so it is exact.
        let low = (difference & 0x7fff_7fff_7fff_7fff) + 0x7fff_7fff_7fff_7fff;
        let zero = !(low | difference) & 0x8000_8000_8000_8000;
        // Gathers bits 15, 31, 47 and 63 into bits 60 to 63.
        ((zero >> 15).wrapping_mul(0x1000_2000_4000_8000) >> 60) as u32
    };
    nibble(signatures[0]) | nibble(signatures[1]) << 4
}

/// Looks a key up, as often as it takes to see an unchanged table.
pub(super) fn lookup<const W: usize>(table: &CuckooTable<W>, key: &[u32; W], hash: u32) -> Option<Found> {
    loop {
        match attempt(table, key, hash) {
            Ok(found) => return found,
            Err(Changed) => pause(),
        }
    }
}

fn attempt<const W: usize>(
    table: &CuckooTable<W>,
    key: &[u32; W],
    hash: u32,
) -> Result<Option<Found>, Changed> {
    let geometry = table.geometry();
    let signature = signature(hash);
    let at = geometry.bucket(hash);
    let primary = &table.buckets[at as usize];
    let version = primary.version();
    if let Some(found) = find(table, primary, version, key, signature)? {
        return Ok(Some(found));
    }
    // A miss is valid where there was a time at which the key was in neither bucket: where what was read
    // of the primary bucket, its filter included, still holds after the alternate one was read.
    if primary.moved() & moved_bit(signature) != 0 {
        let alternate_at = geometry.bucket(alternate_hash(hash));
        let alternate = &table.buckets[alternate_at as usize];
        let alternate_version = alternate.version();
        if let Some(found) = find(table, alternate, alternate_version, key, signature)? {
            return Ok(Some(found));
        }
        let moved = table.geometry().bucket(alternate_hash(hash)) != alternate_at;
        if moved || !alternate.is_unchanged(alternate_version) {
            return Err(Changed);
        }
    }
    let moved = table.geometry().bucket(hash) != at;
    if moved || !primary.is_unchanged(version) { Err(Changed) } else { Ok(None) }
}

/// The key in this bucket.
fn find<const W: usize>(
    table: &CuckooTable<W>,
    bucket: &Bucket,
    version: u32,
    key: &[u32; W],
    signature: u16,
) -> Result<Option<Found>, Changed> {
    let mut slots = matches(bucket.signatures(), signature);
    while slots != 0 {
        let entry = bucket.entry(slots.trailing_zeros() as usize);
        if table.entries.view().key_is(entry, key) {
            let value = table.entries.view().value(entry);
            let unchanged = bucket.is_unchanged(version);
            return if unchanged { Ok(Some(Found { entry, value })) } else { Err(Changed) };
        }
        slots &= slots - 1;
    }
    Ok(None)
}
