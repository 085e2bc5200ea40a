//! Exact-match cache: from a packet's whole key to its megaflow, in one probe of two places.
//!
//! Each entry is two cache lines: a packed key of up to [`KEY_WORDS_MAX`] words (IPv4 without tunnel has
//! 11, IPv6 17) and a reference to a megaflow. A reference outlives its megaflow harmlessly: it carries
//! the serial number under which the megaflow was made ([`MegaflowCache::is_live`]).
//!
//! The places come from a hash of the packet's flow, not of its whole key: packets that differ elsewhere
//! contend for two places, and the comparison of the whole key keeps them apart. A working set larger than
//! the cache makes it thrash, so not every packet is inserted: one in `insert_inverse` is (Open vSwitch's
//! `emc-insert-inv-prob`, 100 by default).

use super::FlowRef;
use super::flow_hash::{FlowHash, Sampler};
use super::megaflow::MegaflowCache;
use crate::memory::prefetch;
use crate::packet::Miniflow;
use crate::packet::batch::{LANES_MAX, LaneMask};
use crate::packet::key::FlowKey;

/// Keys with more words are not cached.
pub const KEY_WORDS_MAX: usize = 27;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Entry {
    key: Miniflow<KEY_WORDS_MAX>,
    flow: FlowRef,
}

const _: () = assert!(size_of::<Entry>() == 128);

/// The cache.
///
/// ```
/// use flowlane::cache::{ExactMatchCache, FlowRef, MegaflowCache, MegaflowConfig};
/// use flowlane::packet::{Field, FlowKey, FlowMask, LaneMask};
///
/// let mut megaflows = MegaflowCache::new(MegaflowConfig { flows_max: 1000, ..MegaflowConfig::default() });
/// let (mut keys, mut looked_at) = ([FlowKey::zero(), FlowKey::zero()], FlowMask::zero());
/// keys[1].set(Field::Ipv4Dst, 0xc000_0207); // 192.0.2.7
/// looked_at.add_field(Field::Ipv4Dst);
/// let flow = megaflows.insert(&keys[1], &looked_at, 7, 1, 0)?;
/// let mut cache = ExactMatchCache::new(64, 1, 0x5eed);
/// cache.insert(&keys[1], flow);
/// let mut found = [FlowRef::NONE; 2];
/// let left = cache.lookup_batch(&megaflows, &keys, LaneMask::first(2), &mut found);
/// assert_eq!((left, found), (LaneMask(0b01), [FlowRef::NONE, flow]));
/// # Ok::<(), flowlane::cache::megaflow::MegaflowError>(())
/// ```
#[derive(Debug)]
pub struct ExactMatchCache {
    entries: Vec<Entry>,
    hash: FlowHash,
    sampler: Sampler,
}

impl ExactMatchCache {
    /// A cache of `entries` (rounded up to a power of two, at least 2), of which one in `insert_inverse`
    /// offered is inserted. `seed` keys the hash.
    pub fn new(entries: usize, insert_inverse: u32, seed: u64) -> Self {
        let entries = entries.max(2).next_power_of_two();
        let empty = Entry { key: Miniflow::EMPTY, flow: FlowRef::NONE };
        Self {
            entries: vec![empty; entries],
            hash: FlowHash::new(seed),
            sampler: Sampler::new(insert_inverse, seed),
        }
    }

    /// The two places of a hash: its low bits, and its high bits.
    #[inline(always)]
    fn places(&self, hash: u32) -> [usize; 2] {
        let wrap = self.entries.len() - 1;
        [hash as usize & wrap, (hash.rotate_left(16) ^ 1) as usize & wrap]
    }

    /// Looks up the keys of the `live` lanes; writes the megaflows that are still there to their places in
    /// `found`, and returns the lanes for which there was none.
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
            for place in self.places(hashes[lane]) {
                prefetch(&self.entries, place);
            }
        }
        let mut left = live;
        for lane in live.lanes() {
            let entries = self.places(hashes[lane]).map(|place| &self.entries[place]);
            let entry = entries.into_iter().find(|e| !e.flow.is_none() && e.key.is(&keys[lane]));
            if let Some(entry) = entry
                && megaflows.is_live(entry.flow)
            {
                found[lane] = entry.flow;
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

    /// Inserts a packet's key with its megaflow, in place of what one of its two places holds. Says whether it
    /// did: longer keys than [`KEY_WORDS_MAX`] are not cached.
    pub fn insert(&mut self, key: &FlowKey, flow: FlowRef) -> bool {
        let Some(packed) = Miniflow::pack(key) else { return false };
        let [first, second] = self.places(self.hash.of_lookup(key));
        let same = |at: usize| self.entries[at].flow.is_none() || self.entries[at].key.is(key);
        let at = match (same(first), same(second)) {
            (true, _) => first,
            (_, true) => second,
            _ if self.sampler.roll() & 0x100 == 0 => first,
            _ => second,
        };
        self.entries[at] = Entry { key: packed, flow };
        true
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.iter_mut().for_each(|e| e.flow = FlowRef::NONE);
    }

    /// Bytes allocated.
    pub fn table_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }
}
