//! The contents of slots: the signature in the bucket, key and value in its entry.

use super::CuckooTable;
use super::bucket::Bucket;
use super::entry::EntryAt;
use super::scalar::branch;
use crate::probe::{Dependency, Part, Probe};

impl<const W: usize> CuckooTable<W> {
    /// Returns the slot of a bucket with this key, for the writer.
    #[inline(always)]
    pub(super) fn slot_of(&self, at: u32, key: &[u32; W], signature: u16) -> Option<usize> {
        let mut slots = self.buckets[at as usize].find(signature);
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize;
            if self.entries.view().key_is(self.entry(at, slot), key) {
                return Some(slot);
            }
            slots &= slots - 1;
        }
        None
    }

    /// Returns the slot of a bucket with this key, with every step reported to a probe. A reader's answer depends on the bucket's version.
    #[inline(always)]
    pub(super) fn slot_of_probed(
        &self,
        at: u32,
        key: &[u32; W],
        signature: u16,
        probe: &mut impl Probe,
    ) -> Option<usize> {
        let mut slots = self.buckets[at as usize].matches(signature);
        probe.load(Part::Buckets, Bucket::signatures_at(at), 16, Dependency::Chained);
        probe.alu(14);
        probe.branch(branch::SIGNATURE, slots != 0);
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize;
            let same = self.entries.view().key_is(self.entry(at, slot), key);
            probe.alu(4);
            probe.load(Part::Entries, 4 * self.entry(at, slot), 4 * W, Dependency::Chained);
            probe.alu(W as u32);
            probe.branch(branch::KEY, same);
            if same {
                return Some(slot);
            }
            slots &= slots - 1;
            probe.alu(1);
            probe.branch(branch::SIGNATURE, slots != 0);
        }
        None
    }

    #[inline(always)]
    pub(super) fn entry(&self, at: u32, slot: usize) -> EntryAt {
        self.entries.view().at(at, slot)
    }

    #[inline(always)]
    pub(super) fn key(&self, at: u32, slot: usize) -> [u32; W] {
        self.entries.view().key(self.entry(at, slot))
    }

    #[inline(always)]
    pub(super) fn value(&self, at: u32, slot: usize) -> u32 {
        self.entries.view().value(self.entry(at, slot))
    }

    pub(super) fn set_value(&self, at: u32, slot: usize, value: u32) {
        self.entries.view().set_value(self.entry(at, slot), value);
    }

    /// Fills a free slot of a bucket that is being written.
    #[inline(always)]
    pub(super) fn fill(&self, at: u32, slot: usize, signature: u16, key: &[u32; W], value: u32) {
        self.entries.view().write(self.entry(at, slot), key, value);
        self.buckets[at as usize].set_signature(slot, signature);
    }

    /// Moves a key to a free slot of another bucket; both are being written.
    #[inline(always)]
    pub(super) fn move_to(&self, (from, slot): (u32, usize), (to, free): (u32, usize)) {
        let signature = self.buckets[from as usize].signature(slot);
        self.fill(to, free, signature, &self.key(from, slot), self.value(from, slot));
        self.buckets[from as usize].set_signature(slot, 0);
    }
}
