//! The paper's megaflow lookup as it stands: *Leveraging SIMD Parallelism for Accelerating Network Applications*, §3.2.
//!
//! The batch's n-th column holds every packet's n-th present word, as its miniflow does; so the columns mean
//! the same fields only for packets whose bitmap is that of the majority. The others, marked beforehand, are
//! hashed one by one, as are all where few are left. There is no prefilter: every lane's hash is looked for
//! in the table. Its unit here is the 32-bit word, half of the paper's; its hash is MurmurHash3.
//!
//! This is the lookup alone: megaflows come and stay, and masks are tried in the order in which they came. The
//! library's [`MegaflowCache`](flowlane::cache::MegaflowCache) is what packets go through. What is not compared is the same:
//! buckets are the library's, and megaflows lie in one piece, on huge pages where they are many.

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

/// Under a mask for which fewer packets are left they are hashed one by one: what the paper measured (§4.2).
const THRESHOLD: usize = 9;

/// Megaflows by mask.
#[derive(Debug)]
pub struct MajorityCache {
    /// In the order in which they are tried.
    subtables: Vec<Subtable>,
    slab: Slab,
    miniflows: Miniflows,
    seed: u32,
    body: Backend,
    threshold: usize,
}

impl MajorityCache {
    /// An empty one for at most `flows_max` megaflows, whose hashes have this seed, by the variant of this name; none where
    /// that may not be used here. The scalar one hashes packets one by one, however many they are: what the paper compares
    /// with.
    pub fn with_variant(flows_max: usize, seed: u32, variant: Variant) -> Option<Self> {
        let body = Backend::of(variant)?;
        let threshold = if variant == Variant::Scalar { usize::MAX } else { THRESHOLD };
        let (slab, miniflows) = (Slab::new(flows_max), Miniflows::default());
        Some(Self { subtables: Vec::new(), slab, miniflows, seed, body, threshold })
    }

    /// Adds the megaflow of the packets that agree with `key` in the bits of `mask`. Where there is one already it gets
    /// the new value.
    ///
    /// # Panics
    /// Where it would be one more than `flows_max`.
    pub fn insert(&mut self, key: &FlowKey, mask: &FlowMask, value: u32) {
        let place = self.subtables.iter().position(|subtable| subtable.mask == *mask);
        let place = place.unwrap_or_else(|| {
            self.subtables.push(Subtable::new(mask, self.seed));
            self.subtables.len() - 1
        });
        self.subtables[place].insert(&mut self.slab, key, value);
    }

    /// Looks up the keys of the `live` lanes; writes the values of the megaflows that are found to their places in `found`,
    /// and returns the lanes for which none was.
    ///
    /// # Panics
    /// Where a lane has no place in `keys` or `found`.
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
