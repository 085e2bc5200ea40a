//! Signature-match cache: from a hash of a packet's flow to its megaflow, eight bytes a packet.
//!
//! ```text
//! bucket   8 tags (hashes of flows)      8 megaflow numbers       one cache line
//! ```
//!
//! Unlike the exact-match cache it keeps no key: what it finds is a *candidate*, and believed only when the
//! packet agrees with that megaflow's masked key, in its one line. So an entry may be stale, or another flow's of the
//! same hash: the comparison tells. A megaflow that compares equal is right, by whichever entry it was found. (Open
//! vSwitch's `smc-enable`, with tags of 32 bits instead of 16 and one comparison instead of a lookup in the
//! subtable.)
//!
//! It pays where many masks are in use: one probe instead of many. Entries are replaced at random within a
//! bucket, and one in `insert_inverse` packets is inserted, so that a working set larger than the cache
//! costs little more than it brings.

use super::bucket::{Bucket, SLOTS};
use super::flow_hash::{FlowHash, Sampler};
use super::megaflow::{FlowRef, MegaflowCache};
use crate::memory::{Memory, prefetch};
use crate::packet::batch::{LANES_MAX, LaneMask};
use crate::packet::key::FlowKey;

/// The cache.
///
/// ```
/// use flowlane::cache::{FlowRef, MegaflowCache, MegaflowConfig, SignatureCache};
/// use flowlane::packet::{Field, FlowKey, FlowMask, LaneMask};
///
/// let mut megaflows = MegaflowCache::new(MegaflowConfig { flows_max: 1000, ..MegaflowConfig::default() });
/// let (mut keys, mut looked_at) = ([FlowKey::zero(), FlowKey::zero()], FlowMask::zero());
/// keys[1].set(Field::Ipv4Dst, 0xc000_0207); // 192.0.2.7
/// looked_at.add_field(Field::Ipv4Dst);
/// let flow = megaflows.insert(&keys[1], &looked_at, 7, 1, 0)?;
/// let mut cache = SignatureCache::new(64, 1, 0x5eed);
/// cache.insert(&keys[1], flow);
/// let mut found = [FlowRef::NONE; 2];
/// let left = cache.lookup_batch(&megaflows, &keys, LaneMask::first(2), &mut found);
/// assert_eq!((left, found), (LaneMask(0b01), [FlowRef::NONE, flow]));
/// # Ok::<(), flowlane::cache::megaflow::MegaflowError>(())
/// ```
#[derive(Debug)]
pub struct SignatureCache {
    buckets: Memory<Bucket>,
    hash: FlowHash,
    sampler: Sampler,
}

impl SignatureCache {
    /// A cache of `entries` (rounded up to a power of two, at least eight), of which one in `insert_inverse`
    /// offered is inserted. `seed` keys the hash.
    pub fn new(entries: usize, insert_inverse: u32, seed: u64) -> Self {
        let buckets = entries.div_ceil(SLOTS).max(1).next_power_of_two();
        Self {
            buckets: Memory::zeroed(buckets),
            hash: FlowHash::new(seed),
            sampler: Sampler::new(insert_inverse, seed),
        }
    }

    /// Looks up the keys of the `live` lanes; writes the megaflows that match to their places in `found`, and
    /// returns the lanes for which there was none.
    ///
    /// # Panics
    /// Where a lane has no place in `keys` or `found`.
    #[inline]
    pub fn lookup_batch(
        &self,
        megaflows: &MegaflowCache,
        keys: &[FlowKey],
        live: LaneMask,
        found: &mut [FlowRef],
    ) -> LaneMask {
        let mut hashes = [0; LANES_MAX];
        for lane in live.lanes() {
            hashes[lane] = self.hash.of_lookup(&keys[lane]);
            prefetch(&self.buckets, self.place(hashes[lane]));
        }
        let mut candidates = [0; LANES_MAX];
        let mut asked = LaneMask(0);
        for lane in live.lanes() {
            let bucket = &self.buckets[self.place(hashes[lane])];
            let matching = bucket.matching(hashes[lane] | 1);
            if matching != 0 {
                candidates[lane] = bucket.flows[matching.trailing_zeros() as usize % SLOTS] - 1;
                megaflows.prefetch(candidates[lane]);
                asked.0 |= 1 << lane;
            }
        }
        let mut left = live;
        for lane in asked.lanes() {
            if let Some(flow) = megaflows.matching_at(candidates[lane], &keys[lane]) {
                found[lane] = flow;
                left.remove(lane);
            }
        }
        left
    }

    /// Offers the packets of the `hit` lanes with their megaflows: one in `insert_inverse` is inserted.
    #[inline]
    pub fn offer_batch(&mut self, keys: &[FlowKey], hit: LaneMask, found: &[FlowRef]) {
        for lane in self.sampler.pick_lanes(hit).lanes() {
            self.insert(&keys[lane], found[lane]);
        }
    }

    /// Inserts a packet's flow with its megaflow, in place of a random other where its bucket is full.
    pub fn insert(&mut self, key: &FlowKey, flow: FlowRef) {
        let hash = self.hash.of_lookup(key);
        let place = self.place(hash);
        let random = self.sampler.roll() as usize % SLOTS;
        let bucket = &mut self.buckets[place];
        let same = bucket.tags.iter().position(|&t| t == hash | 1);
        let slot = same.or_else(|| bucket.flows.iter().position(|&f| f == 0)).unwrap_or(random);
        bucket.tags[slot] = hash | 1;
        bucket.flows[slot] = flow.index() + 1;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.buckets.fill(Bucket { tags: [0; SLOTS], flows: [0; SLOTS] });
    }

    /// Bytes allocated.
    pub fn table_bytes(&self) -> usize {
        self.buckets.size_bytes()
    }

    /// The lowest bit is not in the tags: it does not choose the bucket.
    #[inline(always)]
    fn place(&self, hash: u32) -> usize {
        (hash >> 1) as usize & (self.buckets.len() - 1)
    }
}
