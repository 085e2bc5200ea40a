//! Exact match, with keys of a length that is known at run time.

use std::fmt;
use std::sync::Arc;

use super::classifier::random_seed;
use super::{CuckooMapReader, Error};
use crate::cuckoo::beside::Beside;
use crate::cuckoo::{CuckooConfig, CuckooTable, CuckooWriter};

/// Keys of a batch.
pub(super) const CHUNK: usize = 256;

/// Most bytes of a key.
const KEY_BYTES_MAX: usize = 64;

/// Most keys of a map.
const ENTRIES_MAX: usize = 1 << 30;

/// The bit that marks, in the table, the place of a larger value beside it.
pub(super) const BESIDE: u32 = 1 << 31;

/// Lookups in a table of keys of some number of words.
pub(super) trait View: Send + Sync {
    fn get(&self, key: &[u8]) -> Option<u32>;
    /// Values of up to [`CHUNK`] keys, and a bit for each that is there.
    fn lookup_rows(&self, rows: &[u8], key_bytes: usize, values: &mut [u32], hits: &mut [u64; CHUNK / 64]);
    fn len(&self) -> usize;
}

/// A table that can be changed.
trait Table: Send + Sync {
    fn view(&self) -> &dyn View;
    /// The table for readers on other threads.
    fn shared(&self) -> Arc<dyn View>;
    /// Sets the value of a key and returns the old one. Fails where there is no room.
    fn insert(&mut self, key: &[u8], value: u32) -> Result<Option<u32>, ()>;
    /// Sets the values of keys as far as there is room, and returns their number.
    fn insert_rows(&mut self, rows: &[u8], key_bytes: usize, values: &[u32]) -> usize;
    fn remove(&mut self, key: &[u8]) -> Option<u32>;
    fn entries(&self) -> Box<dyn Iterator<Item = (Vec<u8>, u32)> + '_>;
    fn clear(&mut self);
    fn bytes(&self) -> usize;
}

/// Returns a key as words, padded with zeros.
fn words<const W: usize>(key: &[u8]) -> [u32; W] {
    let mut words = [0; W];
    let (whole, rest) = key.as_chunks::<4>();
    words.iter_mut().zip(whole).for_each(|(word, bytes)| *word = u32::from_le_bytes(*bytes));
    if !rest.is_empty() {
        words[whole.len()] = rest.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    words
}

fn keys<const W: usize>(rows: &[u8], key_bytes: usize, out: &mut [[u32; W]]) {
    for (key, row) in out.iter_mut().zip(rows.chunks_exact(key_bytes)) {
        *key = words(row);
    }
}

impl<const W: usize> View for CuckooTable<W> {
    fn get(&self, key: &[u8]) -> Option<u32> {
        self.lookup(&words(key))
    }

    fn lookup_rows(&self, rows: &[u8], key_bytes: usize, values: &mut [u32], hits: &mut [u64; CHUNK / 64]) {
        let mut own = [[0; W]; CHUNK];
        keys(rows, key_bytes, &mut own);
        self.lookup_many(&own[..values.len()], values, hits);
    }

    fn len(&self) -> usize {
        Self::len(self)
    }
}

impl<const W: usize> Table for CuckooWriter<W> {
    fn view(&self) -> &dyn View {
        &**self
    }

    fn shared(&self) -> Arc<dyn View> {
        self.shared_table()
    }

    fn insert(&mut self, key: &[u8], value: u32) -> Result<Option<u32>, ()> {
        Self::insert(self, &words(key), value).map_err(drop)
    }

    fn insert_rows(&mut self, rows: &[u8], key_bytes: usize, values: &[u32]) -> usize {
        let (mut own, mut done) = ([[0; W]; CHUNK], 0);
        for (rows, values) in rows.chunks(CHUNK * key_bytes).zip(values.chunks(CHUNK)) {
            keys(rows, key_bytes, &mut own);
            let inserted = self.insert_batch(&own[..values.len()], values);
            done += inserted;
            if inserted < values.len() {
                break;
            }
        }
        done
    }

    fn remove(&mut self, key: &[u8]) -> Option<u32> {
        Self::remove(self, &words(key))
    }

    fn entries(&self) -> Box<dyn Iterator<Item = (Vec<u8>, u32)> + '_> {
        Box::new(
            self.iter().map(|(key, value)| (key.into_iter().flat_map(u32::to_le_bytes).collect(), value)),
        )
    }

    fn clear(&mut self) {
        Self::clear(self);
    }

    fn bytes(&self) -> usize {
        self.table_bytes() + self.writer_bytes()
    }
}

/// Numbers of 64 bits by keys of 1 to 64 bytes, all of one length: flows, hosts, sessions. A key is compared as a whole.
///
/// Many keys are one slice of bytes, one key behind the other. Values below 2³¹ lie in the table itself, larger ones beside it, at
/// the cost of one more read each. The map grows up to its capacity; lookups allocate nothing.
///
/// **Threads.** Changes take `&mut`; any number of threads may look up through `&`. [`CuckooMapReader`]s look up on other threads during
/// changes; they never wait for the writer, and see each change as it is made.
///
/// ```
/// use flowlane::CuckooMap;
///
/// let mut hosts = CuckooMap::new(4, 1000)?;
/// hosts.insert(&[192, 0, 2, 1], 7)?;
/// hosts.insert_rows(&[192, 0, 2, 2, 192, 0, 2, 3], &[8, u64::MAX])?;
/// let (mut values, mut found) = ([0; 3], [false; 3]);
/// hosts.lookup_rows(&[192, 0, 2, 3, 192, 0, 2, 4, 192, 0, 2, 1], &mut values, &mut found);
/// assert_eq!((values, found), ([u64::MAX, 0, 7], [true, false, true]));
/// assert_eq!(hosts.remove(&[192, 0, 2, 2]), Some(8));
/// assert_eq!(hosts.len(), 2);
/// # Ok::<(), flowlane::Error>(())
/// ```
pub struct CuckooMap {
    table: Box<dyn Table>,
    key_bytes: usize,
    entries_max: usize,
    /// Values of [`BESIDE`] and above.
    beside: Arc<Beside>,
    /// Places in `beside` that have been used.
    places: u32,
    /// Those of them that are free.
    free: Vec<u32>,
}

impl fmt::Debug for CuckooMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CuckooMap({} of {} keys of {} bytes)", self.len(), self.entries_max, self.key_bytes)
    }
}

impl CuckooMap {
    /// Creates an empty map for up to `entries_max` keys of `key_bytes` each, hashed under a random seed. Address space is reserved
    /// for all; memory is used as the map grows.
    ///
    /// # Errors
    /// [`Input`](super::ErrorKind::Input): not 1 to 64 bytes, or not 1 to 2³⁰ keys.
    ///
    /// # Panics
    /// Where the system has no memory for it.
    pub fn new(key_bytes: usize, entries_max: usize) -> Result<Self, Error> {
        Self::with_seed(key_bytes, entries_max, random_seed() as u32)
    }

    /// Creates an empty map as [`new`](Self::new) does, hashed under this seed, for reproducible runs. A sender who knows the seed can
    /// craft keys that find no room.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// As there.
    pub fn with_seed(key_bytes: usize, entries_max: usize, seed: u32) -> Result<Self, Error> {
        if !(1..=ENTRIES_MAX).contains(&entries_max) {
            return Err(Error::input(format!("a capacity of {entries_max}; 1 to 2^30 are possible")));
        }
        let config = CuckooConfig::new(entries_max, seed).growing_from(entries_max.min(1 << 12));
        // Each width is compiled for every kernel, so there are only some.
        let table: Box<dyn Table> = match key_bytes {
            1..=4 => Box::new(CuckooWriter::<1>::new(&config)),
            5..=8 => Box::new(CuckooWriter::<2>::new(&config)),
            9..=16 => Box::new(CuckooWriter::<4>::new(&config)),
            17..=40 => Box::new(CuckooWriter::<10>::new(&config)),
            41..=KEY_BYTES_MAX => Box::new(CuckooWriter::<16>::new(&config)),
            other => {
                return Err(Error::input(format!(
                    "keys of {other} bytes; 1 to {KEY_BYTES_MAX} are possible"
                )));
            }
        };
        Ok(Self { table, key_bytes, entries_max, beside: Arc::default(), places: 0, free: Vec::new() })
    }

    /// Sets the value of a key and returns the old one.
    ///
    /// # Errors
    /// [`Limit`](super::ErrorKind::Limit): the map is full.
    ///
    /// # Panics
    /// Where the key has not the map's length.
    pub fn insert(&mut self, key: &[u8], value: u64) -> Result<Option<u64>, Error> {
        assert_eq!(key.len(), self.key_bytes, "bytes of a key");
        let own = self.keep(value);
        match self.table.insert(key, own) {
            Ok(before) => Ok(before.map(|own| self.forget(own))),
            Err(()) => {
                self.forget(own);
                let (len, most) = (self.len(), self.entries_max);
                Err(Error::limit(format!("the map is full with {len} keys; it was made for {most}")))
            }
        }
    }

    /// Sets the values of many keys, in their order.
    ///
    /// # Errors
    /// [`Limit`](super::ErrorKind::Limit): the map is full. The keys of the rows before the error's [row](Error::row) are inserted, that
    /// one and those behind it are not.
    ///
    /// # Panics
    /// Where there are not as many keys as values, or bytes are left over.
    pub fn insert_rows(&mut self, keys: &[u8], values: &[u64]) -> Result<(), Error> {
        self.assert_rows(keys, values.len());
        let is_small = |value: &u64| *value < u64::from(BESIDE);
        let mut small = [0; CHUNK];
        let mut done = 0;
        for (keys, values) in keys.chunks(CHUNK * self.key_bytes).zip(values.chunks(CHUNK)) {
            let inserted = if self.places as usize == self.free.len() && values.iter().all(is_small) {
                small.iter_mut().zip(values).for_each(|(small, value)| *small = *value as u32);
                self.table.insert_rows(keys, self.key_bytes, &small[..values.len()])
            } else {
                let mut rows = keys.chunks_exact(self.key_bytes).zip(values);
                rows.position(|(key, value)| self.insert(key, *value).is_err()).unwrap_or(values.len())
            };
            done += inserted;
            if inserted < values.len() {
                break;
            }
        }
        if done == values.len() {
            return Ok(());
        }
        Err(Error::limit(format!(
            "the map is full: {done} of {} keys were inserted, those from row {done} on were not; it was made for {}",
            values.len(),
            self.entries_max
        ))
        .at(done))
    }

    /// Returns the value of a key. For many, [`lookup_rows`](Self::lookup_rows) is several times as fast.
    ///
    /// # Panics
    /// Where the key has not the map's length.
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        assert_eq!(key.len(), self.key_bytes, "bytes of a key");
        self.table.view().get(key).map(|own| self.value(own))
    }

    /// Writes the value of each key that the map holds, and whether it does; other values stay as they are. Returns the number of keys
    /// found. Takes any number of keys; allocates nothing.
    ///
    /// # Panics
    /// Where there are not as many keys, `values` and `found`, or bytes are left over.
    pub fn lookup_rows(&self, keys: &[u8], values: &mut [u64], found: &mut [bool]) -> usize {
        self.assert_rows(keys, values.len());
        assert_eq!(values.len(), found.len(), "a result for each key");
        let (mut own, mut hits, mut count) = ([0; CHUNK], [0; CHUNK / 64], 0);
        let chunks =
            keys.chunks(CHUNK * self.key_bytes).zip(values.chunks_mut(CHUNK)).zip(found.chunks_mut(CHUNK));
        for ((keys, values), found) in chunks {
            self.table.view().lookup_rows(keys, self.key_bytes, &mut own[..values.len()], &mut hits);
            for (row, ((value, found), own)) in values.iter_mut().zip(found).zip(own).enumerate() {
                *found = hits[row / 64] >> (row % 64) & 1 == 1;
                if *found {
                    *value = self.value(own);
                    count += 1;
                }
            }
        }
        count
    }

    /// Removes a key and returns its value.
    ///
    /// # Panics
    /// Where the key has not the map's length.
    pub fn remove(&mut self, key: &[u8]) -> Option<u64> {
        assert_eq!(key.len(), self.key_bytes, "bytes of a key");
        self.table.remove(key).map(|own| self.forget(own))
    }

    /// Removes many keys, writes to `found` whether the map held each, and returns how many it held.
    ///
    /// # Panics
    /// Where there are not as many keys as `found`, or bytes are left over.
    pub fn remove_rows(&mut self, keys: &[u8], found: &mut [bool]) -> usize {
        self.assert_rows(keys, found.len());
        let mut count = 0;
        for (key, found) in keys.chunks_exact(self.key_bytes).zip(found) {
            *found = self.remove(key).is_some();
            count += usize::from(*found);
        }
        count
    }

    /// Removes every key.
    pub fn clear(&mut self) {
        self.table.clear();
        // Readers may be at them: the places stay.
        self.free = (0..self.places).rev().collect();
    }

    /// Returns every key and its value, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Vec<u8>, u64)> {
        self.table.entries().map(|(mut key, own)| {
            key.truncate(self.key_bytes);
            (key, self.value(own))
        })
    }

    /// Returns a reader for another thread.
    pub fn reader(&self) -> CuckooMapReader {
        CuckooMapReader::new(self.table.shared(), Arc::clone(&self.beside), self.key_bytes)
    }

    /// Returns the bytes of a key.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Returns the capacity in keys.
    pub fn entries_max(&self) -> usize {
        self.entries_max
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.table.view().len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the table, as reserved, and of the writer's own structures.
    pub fn table_bytes(&self) -> usize {
        self.table.bytes() + self.beside.size_bytes() + 4 * self.free.capacity()
    }

    #[track_caller]
    fn assert_rows(&self, keys: &[u8], rows: usize) {
        assert_eq!(keys.len(), rows * self.key_bytes, "{rows} keys of {} bytes", self.key_bytes);
    }

    /// Stores a value and returns what the table holds of it.
    fn keep(&mut self, value: u64) -> u32 {
        if value < u64::from(BESIDE) {
            return value as u32;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places += 1;
            self.places - 1
        });
        self.beside.set(place, value);
        BESIDE | place
    }

    /// Returns the value of which the table holds `own`.
    #[inline(always)]
    fn value(&self, own: u32) -> u64 {
        if own < BESIDE { own.into() } else { self.beside.get(own & !BESIDE) }
    }

    /// Frees the value of which the table held `own`, and returns it.
    fn forget(&mut self, own: u32) -> u64 {
        let value = self.value(own);
        if own >= BESIDE {
            self.free.push(own & !BESIDE);
        }
        value
    }
}
