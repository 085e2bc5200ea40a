//! The keys of a burst's packets, gathered to be looked up together.

use flowlane::cuckoo::{BATCH_MAX, CuckooWriter};
use flowlane::packet::batch::LANES_MAX;
use schemars::JsonSchema;
use serde::Deserialize;

const _: () = assert!(BATCH_MAX >= LANES_MAX);

/// How a stateful stage looks keys up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lookups {
    /// All keys of a burst at once.
    #[default]
    Batch,
    /// One key after the other, each when its packet's turn comes: what a function without vectors does. For comparison.
    Scalar,
}

/// Keys of a burst one behind the other, each with a number of the owner's: a lane, mostly.
#[derive(Debug)]
pub struct Gathered<const W: usize> {
    keys: [[u32; W]; BATCH_MAX],
    values: [u32; BATCH_MAX],
    owners: [u8; BATCH_MAX],
    len: usize,
    hits: u64,
}

impl<const W: usize> Default for Gathered<W> {
    fn default() -> Self {
        Self { keys: [[0; W]; BATCH_MAX], values: [0; BATCH_MAX], owners: [0; BATCH_MAX], len: 0, hits: 0 }
    }
}

impl<const W: usize> Gathered<W> {
    /// Forgets the keys.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Number of keys.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a key; returns its place.
    ///
    /// # Panics
    /// Where there are 64 already.
    #[inline]
    pub fn push(&mut self, owner: usize, key: [u32; W]) -> usize {
        (self.keys[self.len], self.owners[self.len]) = (key, owner as u8);
        self.len += 1;
        self.len - 1
    }

    /// Looks all keys up.
    #[inline]
    pub fn look_up(&mut self, table: &CuckooWriter<W>) {
        self.hits = table.lookup_batch(&self.keys[..self.len], &mut self.values[..self.len]);
    }

    /// Whose key stands at a place, and the key.
    #[inline]
    pub fn get(&self, place: usize) -> (usize, &[u32; W]) {
        (self.owners[place].into(), &self.keys[place])
    }

    /// What was found for the key at a place.
    #[inline]
    pub fn found(&self, place: usize) -> Option<u32> {
        (self.hits >> place & 1 == 1).then_some(self.values[place])
    }

    /// All that was found.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len).filter_map(|place| self.found(place))
    }
}
