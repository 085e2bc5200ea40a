//! Bloom filters: approximate membership.

use super::Error;
use super::classifier::random_seed;
use crate::bloom::{BlockedBloomFilter, BloomError};

/// Keys of a batch.
const CHUNK: usize = 256;

/// A set that stores no keys: it confirms every inserted key, and other keys at a false-positive rate. It reads one block of 32
/// bytes a key.
///
/// Keys are numbers of 64 bits, or bytes; many byte strings of one length are one slice, one behind the other. A number and its
/// bytes are different keys.
///
/// **Threads.** Any number of threads may insert and look up at a time. A thread that synchronises with an insertion finds the key;
/// others may or may not.
///
/// ```
/// use flowlane::BloomFilter;
///
/// let seen = BloomFilter::new(1000, 0.001)?;
/// seen.insert_u64(&[1, 2, 3]);
/// seen.insert_rows(b"192.0.2.1192.0.2.2", 9);
/// let mut found = [false; 3];
/// seen.contains_u64(&[3, 2, 1], &mut found);
/// assert_eq!(found, [true; 3]);
/// assert!(seen.contains(b"192.0.2.2"));
/// # Ok::<(), flowlane::Error>(())
/// ```
#[derive(Debug)]
pub struct BloomFilter(BlockedBloomFilter);

impl BloomFilter {
    /// Creates an empty filter that, holding `items` keys, confirms other keys with the probability `rate` at most, hashed under a
    /// random seed.
    ///
    /// # Errors
    /// [`Input`](super::ErrorKind::Input): `rate` is not between 0 and 1. [`Limit`](super::ErrorKind::Limit): it would be larger than
    /// 4 GiB.
    pub fn new(items: u64, rate: f64) -> Result<Self, Error> {
        Self::with_seed(items, rate, random_seed() as u32)
    }

    /// Creates an empty filter as [`new`](Self::new) does, hashed under this seed, for reproducible runs. A sender who knows the seed
    /// can craft keys that the filter confirms.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_seed(items: u64, rate: f64, seed: u32) -> Result<Self, Error> {
        let filter = BlockedBloomFilter::for_items(items, rate).map_err(|refused| match refused {
            BloomError::Rate { .. } => Error::input(refused),
            _ => Error::limit(refused),
        })?;
        Ok(Self(filter.with_seed(seed)))
    }

    /// Inserts a key.
    pub fn insert(&self, key: &[u8]) {
        self.0.insert_bytes(key);
    }

    /// Inserts keys of `key_bytes` each.
    ///
    /// # Panics
    /// Where `key_bytes` is 0, or bytes are left over.
    pub fn insert_rows(&self, keys: &[u8], key_bytes: usize) {
        assert_rows(keys, key_bytes);
        keys.chunks_exact(key_bytes).for_each(|key| self.0.insert_bytes(key));
    }

    /// Inserts numbers.
    pub fn insert_u64(&self, keys: &[u64]) {
        keys.iter().for_each(|key| self.0.insert_u64(*key));
    }

    /// Returns whether a key may be in the set.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.0.contains_bytes(key)
    }

    /// Writes to `found` whether each key of `key_bytes` may be in the set. Takes any number of keys; allocates nothing.
    ///
    /// # Panics
    /// Where `key_bytes` is 0, bytes are left over, or there are not as many keys as `found`.
    pub fn contains_rows(&self, keys: &[u8], key_bytes: usize, found: &mut [bool]) {
        assert_rows(keys, key_bytes);
        assert_eq!(keys.len(), found.len() * key_bytes, "a result for each key");
        let (mut rows, mut hits) = ([&[][..]; CHUNK], [0; CHUNK / 64]);
        for (keys, found) in keys.chunks(CHUNK * key_bytes).zip(found.chunks_mut(CHUNK)) {
            rows.iter_mut().zip(keys.chunks_exact(key_bytes)).for_each(|(row, key)| *row = key);
            self.0.contains_batch_bytes(&rows[..found.len()], &mut hits);
            write_bits(&hits, found);
        }
    }

    /// Writes to `found` whether each number may be in the set. Takes any number of keys; allocates nothing.
    ///
    /// # Panics
    /// Where there are not as many `keys` as `found`.
    pub fn contains_u64(&self, keys: &[u64], found: &mut [bool]) {
        assert_eq!(keys.len(), found.len(), "a result for each key");
        let mut hits = [0; CHUNK / 64];
        for (keys, found) in keys.chunks(CHUNK).zip(found.chunks_mut(CHUNK)) {
            self.0.contains_batch_u64(keys, &mut hits);
            write_bits(&hits, found);
        }
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the share of other keys that the filter confirms when it holds `items` keys.
    pub fn false_positive_rate(&self, items: u64) -> f64 {
        self.0.false_positive_rate(items)
    }

    /// Returns the bytes of the filter.
    pub fn table_bytes(&self) -> usize {
        self.0.table_bytes()
    }
}

#[track_caller]
fn assert_rows(keys: &[u8], key_bytes: usize) {
    assert!(
        key_bytes > 0 && keys.len().is_multiple_of(key_bytes),
        "{} bytes of {key_bytes} a key",
        keys.len()
    );
}

fn write_bits(hits: &[u64; CHUNK / 64], found: &mut [bool]) {
    found.iter_mut().enumerate().for_each(|(row, found)| *found = hits[row / 64] >> (row % 64) & 1 == 1);
}
