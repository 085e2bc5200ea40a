//! The lookup keys of a burst, gathered into one batch.

use flowlane::cuckoo::{BATCH_MAX, CuckooWriter};
use flowlane::packet::batch::LANES_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const _: () = assert!(BATCH_MAX >= LANES_MAX);

/// How a stateful stage looks keys up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lookups {
    /// All keys of a burst together.
    #[default]
    Batch,
    /// One key at a time, when its packet's turn comes, as a scalar implementation does. For comparison.
    Scalar,
}

/// A dense batch of keys, each with its owner: mostly a lane.
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
    /// Removes all keys.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the number of keys.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a key and returns its index.
    ///
    /// # Panics
    /// With 64 keys in the batch.
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

    /// Returns the owner of a key, and the key.
    #[inline]
    pub fn get(&self, index: usize) -> (usize, &[u32; W]) {
        (self.owners[index].into(), &self.keys[index])
    }

    /// Returns the value found for a key.
    #[inline]
    pub fn found(&self, index: usize) -> Option<u32> {
        (self.hits >> index & 1 == 1).then_some(self.values[index])
    }

    /// Returns all values found.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len).filter_map(|index| self.found(index))
    }
}
