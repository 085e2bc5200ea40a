//! The paper's megaflow lookup: *Leveraging SIMD Parallelism for Accelerating Network Applications*, §3.2.
//!
//! Column n of the batch holds the n-th present word of every packet, in the order of its miniflow. A column
//! therefore holds one field only for packets with the bitmap of the majority. The other packets are hashed one by
//! one, and so are all packets when few are left. There is no prefilter: every lane's hash is looked up in the table.
//! The unit is the 32-bit word, half of the paper's, and the hash is MurmurHash3.
//!
//! This is the lookup alone: megaflows are only added, and masks are tried in insertion order. The switch uses the
//! library's [`MegaflowCache`](flowlane::cache::MegaflowCache). Everything outside the comparison is shared with it:
//! buckets are the library's, and megaflows are contiguous, on huge pages if there are many.

mod columns;
mod subtable;
#[cfg(test)]
mod tests;

pub use columns::MaskHasher;
use columns::{Miniflows, hash_columns, lanes};
use flowlane::isa::{Backend, Variant};
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::{FlowKey, FlowMask};
use subtable::{Slab, Subtable};

/// Packets left under a mask below which they are hashed one by one, as the paper measured (§4.2).
const THRESHOLD: usize = 9;

/// A megaflow cache with the paper's lookup.
#[derive(Debug)]
pub struct MajorityCache {
    /// The subtables, in the order of lookups.
    subtables: Vec<Subtable>,
    slab: Slab,
    miniflows: Miniflows,
    seed: u32,
    body: Backend,
    threshold: usize,
}

impl MajorityCache {
    /// Builds an empty cache of at most `flows_max` megaflows, or returns `None` if the CPU lacks the variant. The
    /// scalar variant always hashes packets one by one, which is the paper's baseline.
    pub fn with_variant(flows_max: usize, seed: u32, variant: Variant) -> Option<Self> {
        let body = Backend::of(variant)?;
        let threshold = if variant == Variant::Scalar { usize::MAX } else { THRESHOLD };
        let (slab, miniflows) = (Slab::new(flows_max), Miniflows::default());
        Some(Self { subtables: Vec::new(), slab, miniflows, seed, body, threshold })
    }

    /// Inserts the megaflow of packets that agree with `key` in the bits of `mask`, or replaces its value.
    ///
    /// # Panics
    /// Panics if the cache already holds `flows_max` megaflows.
    pub fn insert(&mut self, key: &FlowKey, mask: &FlowMask, value: u32) {
        let place = self.subtables.iter().position(|subtable| subtable.mask == *mask);
        let place = place.unwrap_or_else(|| {
            self.subtables.push(Subtable::new(mask, self.seed));
            self.subtables.len() - 1
        });
        self.subtables[place].insert(&mut self.slab, key, value);
    }

    /// Looks up the keys of the `live` lanes, writes the values of the megaflows to `found`, and returns the lanes
    /// without a megaflow.
    ///
    /// # Panics
    /// Panics if `keys` or `found` is shorter than the lanes.
    pub fn lookup_batch(&mut self, keys: &[FlowKey], live: LaneMask, found: &mut [u32]) -> LaneMask {
        let wide = live.len() >= self.threshold;
        let regular = if wide { self.miniflows.fill(keys, live) } else { LaneMask(0) };
        let lanes = lanes(live);
        let mut left = live;
        let mut hashes = [0; LANES_MAX];
        for subtable in &self.subtables {
            if left.is_empty() {
                break;
            }
            let mut serial = left;
            if left.len() >= self.threshold {
                let out = &mut hashes[..lanes];
                hash_columns(self.body, &subtable.terms, &self.miniflows, self.seed, out);
                serial.0 &= !regular.0;
            }
            for lane in serial.lanes() {
                hashes[lane] = subtable.hash(&keys[lane]);
            }
            for lane in left.lanes() {
                subtable.prefetch(hashes[lane]);
            }
            for lane in left.lanes() {
                if let Some(value) = subtable.find(&self.slab, &keys[lane], hashes[lane]) {
                    found[lane] = value;
                    left.remove(lane);
                }
            }
        }
        left
    }
}
