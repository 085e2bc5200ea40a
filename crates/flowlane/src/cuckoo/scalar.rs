//! The definition: one key at a time, portable code.

use super::CuckooTable;
use super::bucket::Bucket;
use super::entry::id;
use super::geometry::{alternate_hash, signature};
use super::sync::pause;
use crate::probe::{Dependency, NoProbe, Part, Probe};

/// The value that a reader found, and the number of its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) id: u32,
    pub(super) value: u32,
}

/// The writer changed a bucket while it was read.
struct Changed;

/// Returns the slots with this signature, a bit each.
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
    lookup_probed(table, key, hash, &mut NoProbe)
}

/// [`lookup`], reported to a probe.
#[inline(always)]
pub(super) fn lookup_probed<const W: usize>(
    table: &CuckooTable<W>,
    key: &[u32; W],
    hash: u32,
    probe: &mut impl Probe,
) -> Option<Found> {
    loop {
        match attempt(table, key, hash, probe) {
            Ok(found) => return found,
            Err(Changed) => pause(),
        }
    }
}

fn attempt<const W: usize>(
    table: &CuckooTable<W>,
    key: &[u32; W],
    hash: u32,
    probe: &mut impl Probe,
) -> Result<Option<Found>, Changed> {
    let geometry = table.geometry();
    // Where buckets and entries are (two pointers), and the geometry.
    probe.load(Part::Header, 0, 24, Dependency::Free);
    let signature = signature(hash);
    let at = geometry.bucket(hash);
    probe.alu(6);
    let primary = &table.buckets[at as usize];
    let version = primary.version();
    probe.load(Part::Buckets, Bucket::version_at(at), 4, Dependency::Chained);
    if let Some(found) = find(table, at, version, key, signature, probe)? {
        return Ok(Some(found));
    }
    // A miss is valid where there was a time at which the key was in neither bucket: where the data read
    // of the primary bucket, its filter included, still holds after the alternate one was read.
    let may_have_moved = primary.may_have_moved(signature);
    probe.load(Part::Buckets, Bucket::filter_at(at), 8, Dependency::Free);
    probe.alu(4);
    probe.branch(branch::MOVED, may_have_moved);
    if may_have_moved {
        let alternate_at = geometry.bucket(alternate_hash(hash));
        let alternate = &table.buckets[alternate_at as usize];
        let alternate_version = alternate.version();
        probe.alu(6);
        probe.load(Part::Buckets, Bucket::version_at(alternate_at), 4, Dependency::Chained);
        if let Some(found) = find(table, alternate_at, alternate_version, key, signature, probe)? {
            return Ok(Some(found));
        }
        let moved = table.geometry().bucket(alternate_hash(hash)) != alternate_at;
        probe.load(Part::Header, 16, 8, Dependency::Free);
        probe.load(Part::Buckets, Bucket::version_at(alternate_at), 4, Dependency::Free);
        probe.alu(6);
        if moved || !alternate.is_unchanged(alternate_version) {
            return Err(Changed);
        }
    }
    let moved = table.geometry().bucket(hash) != at;
    probe.load(Part::Header, 16, 8, Dependency::Free);
    probe.load(Part::Buckets, Bucket::version_at(at), 4, Dependency::Free);
    probe.alu(6);
    if moved || !primary.is_unchanged(version) { Err(Changed) } else { Ok(None) }
}

/// Returns the key in this bucket.
fn find<const W: usize>(
    table: &CuckooTable<W>,
    at: u32,
    version: u32,
    key: &[u32; W],
    signature: u16,
    probe: &mut impl Probe,
) -> Result<Option<Found>, Changed> {
    let Some(slot) = table.slot_of_probed(at, key, signature, probe) else { return Ok(None) };
    let found = Found { id: id(at, slot), value: table.value(at, slot) };
    // The value is beside the key; the version, once more, ends the reader's section.
    probe.load(Part::Entries, 4 * (table.entry(at, slot) + W), 4, Dependency::Free);
    probe.load(Part::Buckets, Bucket::version_at(at), 4, Dependency::Free);
    probe.alu(3);
    if table.buckets[at as usize].is_unchanged(version) { Ok(Some(found)) } else { Err(Changed) }
}

/// Branches, as they are reported to probes.
pub(super) mod branch {
    /// Is there another slot with the signature?
    pub(in crate::cuckoo) const SIGNATURE: u32 = 0;
    /// Is it the key's?
    pub(in crate::cuckoo) const KEY: u32 = 1;
    /// May the key be in its alternate bucket?
    pub(in crate::cuckoo) const MOVED: u32 = 2;
}
