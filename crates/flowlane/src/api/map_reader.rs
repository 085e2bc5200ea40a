//! Lookups in a cuckoo map while another thread changes it.

use std::fmt;
use std::sync::Arc;

use super::map::{BESIDE, CHUNK, View};
use crate::cuckoo::beside::Beside;

/// The reading side of a [`CuckooMap`](super::CuckooMap), for one thread. It stays usable while the map is changed, and after it is dropped.
/// Clone it for other threads.
///
/// A lookup sees each key's value as it was at some time during the call; keys of one call may be seen at different times. It
/// does not wait for the writer: a key whose bucket is being written is read again. Values from 2³¹ on, which lie beside the table, cost a
/// second lookup.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// use flowlane::CuckooMap;
///
/// let mut sessions = CuckooMap::new(4, 1000)?;
/// sessions.insert(&[192, 0, 2, 1], 7)?;
/// let (reader, stop) = (sessions.reader(), AtomicBool::new(false));
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         while !stop.load(Ordering::Relaxed) {
///             assert_eq!(reader.get(&[192, 0, 2, 1]), Some(7));
///         }
///     });
///     for host in 2..100 {
///         sessions.insert(&[192, 0, 2, host], u64::MAX - u64::from(host))?;
///     }
///     stop.store(true, Ordering::Relaxed);
///     Ok::<(), flowlane::Error>(())
/// })?;
/// drop(sessions);
/// let (mut values, mut found) = ([0; 2], [false; 2]);
/// assert_eq!(reader.lookup_rows(&[192, 0, 2, 99, 192, 0, 2, 100], &mut values, &mut found), 1);
/// assert_eq!((values, found), ([u64::MAX - 99, 0], [true, false]));
/// # Ok::<(), flowlane::Error>(())
/// ```
#[derive(Clone)]
pub struct CuckooMapReader {
    table: Arc<dyn View>,
    beside: Arc<Beside>,
    key_bytes: usize,
}

impl fmt::Debug for CuckooMapReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CuckooMapReader({} keys of {} bytes)", self.len(), self.key_bytes)
    }
}

impl CuckooMapReader {
    pub(super) fn new(table: Arc<dyn View>, beside: Arc<Beside>, key_bytes: usize) -> Self {
        Self { table, beside, key_bytes }
    }

    /// Returns the value of a key. For many, [`lookup_rows`](Self::lookup_rows) is several times as fast.
    ///
    /// # Panics
    /// Where the key has not the map's length.
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        assert_eq!(key.len(), self.key_bytes, "bytes of a key");
        let mut own = self.table.get(key)?;
        while own >= BESIDE {
            let count = self.beside.count(own & !BESIDE);
            let still = self.table.get(key)?;
            match self.beside.read(own & !BESIDE, count) {
                Some(value) if still == own => return Some(value),
                _ => own = still,
            }
        }
        Some(own.into())
    }

    /// Writes the value of each key that the map holds, and whether it does; other values stay as they are. Returns the number of keys
    /// found. Takes any number of keys; allocates nothing.
    ///
    /// # Panics
    /// Where there are not as many keys, `values` and `found`, or bytes are left over.
    pub fn lookup_rows(&self, keys: &[u8], values: &mut [u64], found: &mut [bool]) -> usize {
        let rows = values.len();
        assert_eq!(keys.len(), rows * self.key_bytes, "{rows} keys of {} bytes", self.key_bytes);
        assert_eq!(values.len(), found.len(), "a result for each key");
        let chunks =
            keys.chunks(CHUNK * self.key_bytes).zip(values.chunks_mut(CHUNK)).zip(found.chunks_mut(CHUNK));
        chunks.map(|((keys, values), found)| self.lookup_chunk(keys, values, found)).sum()
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of a key.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    fn lookup_chunk(&self, keys: &[u8], values: &mut [u64], found: &mut [bool]) -> usize {
        let (mut own, mut hits) = ([0; CHUNK], [0; CHUNK / 64]);
        self.table.lookup_rows(keys, self.key_bytes, &mut own[..values.len()], &mut hits);
        let is_hit = |hits: &[u64], row: usize| hits[row / 64] >> (row % 64) & 1 == 1;
        let (mut any_beside, mut count) = (false, 0);
        for (row, (value, found)) in values.iter_mut().zip(found.iter_mut()).enumerate() {
            *found = is_hit(&hits, row);
            count += usize::from(*found);
            if *found && own[row] < BESIDE {
                *value = own[row].into();
            }
            any_beside |= *found && own[row] >= BESIDE;
        }
        if any_beside {
            self.read_beside(keys, &own, values, found);
            count = found.iter().filter(|found| **found).count();
        }
        count
    }

    /// Reads the values beside the table, for the keys that were found with places there.
    fn read_beside(&self, keys: &[u8], own: &[u32; CHUNK], values: &mut [u64], found: &mut [bool]) {
        let mut counts = [0; CHUNK];
        let beside = |row: usize, found: &[bool]| found[row] && own[row] >= BESIDE;
        for row in (0..values.len()).filter(|row| beside(*row, found)) {
            counts[row] = self.beside.count(own[row] & !BESIDE);
        }
        let (mut again, mut hits) = ([0; CHUNK], [0; CHUNK / 64]);
        self.table.lookup_rows(keys, self.key_bytes, &mut again[..values.len()], &mut hits);
        for (row, key) in keys.chunks_exact(self.key_bytes).enumerate() {
            if !beside(row, found) {
                continue;
            }
            let is_still = hits[row / 64] >> (row % 64) & 1 == 1 && again[row] == own[row];
            let read = || self.beside.read(own[row] & !BESIDE, counts[row]);
            match is_still.then(read).flatten().or_else(|| self.get(key)) {
                Some(value) => values[row] = value,
                None => found[row] = false,
            }
        }
    }
}
