//! A cache line of slots: what subtables and the signature-match cache are made of.

use crate::memory::Zeroed;

/// Slots of a bucket.
pub(super) const SLOTS: usize = 8;

/// Eight tags and, for each, the number of a megaflow. A slot is free where its flow is 0.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    /// The hash of each slot's key, its lowest bit set; 0 in free ones.
    pub(super) tags: [u32; SLOTS],
    /// Each slot's megaflow, plus one.
    pub(super) flows: [u32; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

// SAFETY: two arrays of integers: zero bytes are a bucket of free slots.
unsafe impl Zeroed for Bucket {}

impl Bucket {
    /// Whether its last slot is free. (Slots are filled in order.)
    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        self.flows[SLOTS - 1] == 0
    }

    /// The slots with this tag, as a bitmap.
    #[inline(always)]
    pub(super) fn matching(&self, tag: u32) -> u32 {
        self.tags.iter().enumerate().fold(0, |found, (i, &t)| found | u32::from(t == tag) << i)
    }
}
