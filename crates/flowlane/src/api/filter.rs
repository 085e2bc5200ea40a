//! Membership, at a rate of errors.

use super::Error;
use super::classifier::random_seed;
use crate::bloom::{BlockedBloomFilter, BloomError};

/// Keys that are looked up at a time.
const CHUNK: usize = 256;

/// A set that forgets what it holds: no key that was inserted is denied, others are confirmed at a rate. It reads one block of 32
/// bytes a key.
///
/// Keys are numbers of 64 bits, or bytes; many byte strings of one length are one slice, one behind the other. The same key as a number
/// and as bytes is two.
///
/// **Threads.** Any number of threads may insert and ask at a time. Who learns of an insertion by way of some synchronisation finds the
/// key; others may or may not.
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
    /// An empty filter that, holding `items` keys, confirms a key that it does not hold with the probability `rate` at most; hashed under a
    /// random seed.
    ///
    /// # Errors
    /// [`Input`](super::ErrorKind::Input): `rate` is not between 0 and 1. [`Limit`](super::ErrorKind::Limit): it would be larger than
    /// 4 GiB.
    pub fn new(items: u64, rate: f64) -> Result<Self, Error> {
        Self::with_seed(items, rate, random_seed() as u32)
    }

    /// The same, hashed under this seed: for runs that are to be repeated. Who knows it can make keys that are confirmed.
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

    /// Whether a key may be in.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.0.contains_bytes(key)
    }

    /// For each key of `key_bytes` whether it may be in. Any number of keys; nothing is allocated.
    ///
    /// # Panics
    /// Where `key_bytes` is 0, bytes are left over, or there are not as many keys as `found`.
    pub fn contains_rows(&self, keys: &[u8], key_bytes: usize, found: &mut [bool]) {
        assert_rows(keys, key_bytes);
        assert_eq!(keys.len(), found.len() * key_bytes, "whether it may be in of each key");
        let (mut rows, mut hits) = ([&[][..]; CHUNK], [0; CHUNK / 64]);
        for (keys, found) in keys.chunks(CHUNK * key_bytes).zip(found.chunks_mut(CHUNK)) {
            rows.iter_mut().zip(keys.chunks_exact(key_bytes)).for_each(|(row, key)| *row = key);
            self.0.contains_batch_bytes(&rows[..found.len()], &mut hits);
            write_bits(&hits, found);
        }
    }

    /// For each number whether it may be in. Any number of them; nothing is allocated.
    ///
    /// # Panics
    /// Where there are not as many `keys` as `found`.
    pub fn contains_u64(&self, keys: &[u64], found: &mut [bool]) {
        assert_eq!(keys.len(), found.len(), "whether it may be in of each key");
        let mut hits = [0; CHUNK / 64];
        for (keys, found) in keys.chunks(CHUNK).zip(found.chunks_mut(CHUNK)) {
            self.0.contains_batch_u64(keys, &mut hits);
            write_bits(&hits, found);
        }
    }

    /// Takes all keys out.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The share of keys never inserted that are confirmed, when `items` keys are in.
    pub fn false_positive_rate(&self, items: u64) -> f64 {
        self.0.false_positive_rate(items)
    }

    /// Bytes of the filter.
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
