//! What is in a slot, wherever the table has it: in the bucket, or in an entry.

use super::CuckooTable;
use super::bucket::{Bucket, Version};

impl<const W: usize> CuckooTable<W> {
    /// The number of the entry of the key in a slot; where keys are inside, of the slot itself. It stands for
    /// the key in the writer's ledger and among the times of use.
    #[inline(always)]
    pub(super) fn id(&self, at: u32, slot: usize) -> u32 {
        if Bucket::<W>::KEYS_INSIDE {
            at * Bucket::<W>::SLOTS as u32 + slot as u32
        } else {
            self.buckets[at as usize].entry(slot)
        }
    }

    /// The slot of a bucket with this key. A reader's answer depends on the version's.
    #[inline(always)]
    pub(super) fn slot_of(&self, at: u32, version: Version, key: &[u32; W], signature: u16) -> Option<usize> {
        let bucket = &self.buckets[at as usize];
        if Bucket::<W>::KEYS_INSIDE {
            let slots = bucket.holders(key) & bucket.taken(version);
            return (slots != 0).then(|| slots.trailing_zeros() as usize);
        }
        let mut slots = bucket.matches(signature);
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize;
            if self.entries.view().key_is(bucket.entry(slot), key) {
                return Some(slot);
            }
            slots &= slots - 1;
        }
        None
    }

    pub(super) fn key(&self, at: u32, slot: usize) -> [u32; W] {
        let bucket = &self.buckets[at as usize];
        if Bucket::<W>::KEYS_INSIDE {
            bucket.key(slot)
        } else {
            self.entries.view().key(bucket.entry(slot))
        }
    }

    #[inline(always)]
    pub(super) fn value(&self, at: u32, slot: usize) -> u32 {
        let bucket = &self.buckets[at as usize];
        if Bucket::<W>::KEYS_INSIDE {
            bucket.value(slot)
        } else {
            self.entries.view().value(bucket.entry(slot))
        }
    }

    pub(super) fn set_value(&self, at: u32, slot: usize, value: u32) {
        let bucket = &self.buckets[at as usize];
        if Bucket::<W>::KEYS_INSIDE {
            bucket.set_value(slot, value);
        } else {
            self.entries.view().set_value(bucket.entry(slot), value);
        }
    }
}
