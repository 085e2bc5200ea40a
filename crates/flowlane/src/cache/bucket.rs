//! A cache line of slots: what subtables and the signature-match cache are made of.

use crate::memory::Zeroed;

/// Slots of a bucket.
pub const SLOTS: usize = 8;

/// Eight tags and, for each, the number of a megaflow. A slot is free where its flow is 0.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Bucket {
    /// The hash of each slot's key, its lowest bit set; 0 in free ones.
    pub tags: [u32; SLOTS],
    /// Each slot's megaflow, plus one.
    pub flows: [u32; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

// SAFETY: two arrays of integers: zero bytes are a bucket of free slots.
unsafe impl Zeroed for Bucket {}

impl Bucket {
    /// Returns whether the last slot is free. (Slots are filled in order.)
    #[inline(always)]
    pub fn has_room(&self) -> bool {
        self.flows[SLOTS - 1] == 0
    }

    /// The slots with this tag, as a bitmap.
    #[inline(always)]
    pub fn matching(&self, tag: u32) -> u32 {
        self.tags.iter().enumerate().fold(0, |found, (i, &t)| found | u32::from(t == tag) << i)
    }
}

/// Every slot in use: its tag, and its megaflow plus one.
pub fn entries(buckets: &[Bucket]) -> impl Iterator<Item = (u32, u32)> {
    let slots = buckets.iter().flat_map(|b| b.tags.iter().copied().zip(b.flows));
    slots.filter(|&(_, flow)| flow != 0)
}

/// Puts a slot into the first free place from its home on. Buckets are a power of two, and not all full.
pub fn place(buckets: &mut [Bucket], tag: u32, flow: u32) {
    let wrap = buckets.len() - 1;
    let mut at = (tag >> 1) as usize & wrap;
    loop {
        let bucket = &mut buckets[at];
        if let Some(free) = bucket.flows.iter().position(|&f| f == 0) {
            (bucket.tags[free], bucket.flows[free]) = (tag, flow);
            return;
        }
        at = (at + 1) & wrap;
    }
}
