//! The writer: the one handle that changes a table.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::bucket::{SLOTS, Writing, moved_bit};
use super::displace::Path;
use super::geometry::{alternate_hash, signature};
use super::ledger::Ledger;
use super::scalar::matches;
use super::{CuckooConfig, CuckooReader, CuckooTable};
use crate::memory::prefetch;

/// A growing table begins to split buckets when this share of its slots is taken, in percent: early
/// enough for the buckets that are split last.
const GROW_AT_PERCENT: usize = 85;

/// Buckets split with every insertion while the table grows: 8 slots come with each, so one would do.
const SPLITS_PER_INSERT: usize = 2;

/// How often an insertion looks for a path of displacements before it gives up: a path found is nearly
/// always free to be walked.
const PATHS_MAX: usize = 4;

/// A key that found no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// All entries are taken, or no displacement makes room in the key's two buckets.
    #[error("the table is full with {entries} keys")]
    Full {
        /// Keys in the table.
        entries: usize,
    },
}

/// The handle that changes a table. It is the table (and dereferences to it) for an owner without other
/// threads; others get [`reader`](Self::reader)s.
pub struct CuckooWriter<const W: usize> {
    pub(super) table: Arc<CuckooTable<W>>,
    pub(super) ledger: Ledger,
    now: u64,
    /// The bucket at which the next sweep begins.
    sweep_at: u32,
    pub(super) path: Path,
}

impl<const W: usize> Deref for CuckooWriter<W> {
    type Target = CuckooTable<W>;

    fn deref(&self) -> &CuckooTable<W> {
        &self.table
    }
}

impl<const W: usize> fmt::Debug for CuckooWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CuckooWriter<{W}>({} of {} keys)", self.len(), self.entries_max())
    }
}

/// Where a key is.
#[derive(Clone, Copy)]
struct Place {
    bucket: u32,
    slot: usize,
    entry: u32,
}

impl<const W: usize> CuckooWriter<W> {
    /// An empty table.
    ///
    /// # Panics
    /// Where the system has no memory for it.
    pub fn new(config: &CuckooConfig) -> Self {
        let table = CuckooTable::new(config);
        Self {
            ledger: Ledger::new(table.buckets.len(), config.entries_max),
            table: Arc::new(table),
            now: 0,
            sweep_at: 0,
            path: Path::default(),
        }
    }

    /// Another reader.
    pub fn reader(&self) -> CuckooReader<W> {
        CuckooReader { table: Arc::clone(&self.table) }
    }

    /// Bytes that the writer keeps for itself, reserved for [`entries_max`](CuckooTable::entries_max).
    pub fn writer_bytes(&self) -> usize {
        self.ledger.size_bytes()
    }

    /// Sets the time that is noted as the last use of keys written from now on, in the caller's unit.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// Gives `key` this value; returns the value that it had.
    ///
    /// # Errors
    /// [`InsertError::Full`] where the key is new and finds no place; nothing has changed then.
    pub fn insert(&mut self, key: &[u32; W], value: u64) -> Result<Option<u64>, InsertError> {
        self.insert_with_hash(key, self.hash(key), value)
    }

    /// [`insert`](Self::insert) of a key whose hash is known.
    ///
    /// # Errors
    /// As there.
    pub fn insert_with_hash(
        &mut self,
        key: &[u32; W],
        hash: u32,
        value: u64,
    ) -> Result<Option<u64>, InsertError> {
        let alternate = self.geometry().bucket(alternate_hash(hash));
        prefetch(&self.table.buckets, alternate as usize);
        if let Some(place) = self.locate(key, hash) {
            let before = self.table.entries.view().value(place.entry);
            self.table.entries.view().set_value(place.entry, value);
            self.table.entries.view().set_used(place.entry, self.now);
            return Ok(Some(before));
        }
        self.grow_on_insert();
        let full = InsertError::Full { entries: self.len() };
        let entry = self.ledger.take_entry(hash).ok_or(full)?;
        self.table.entries.view().write(entry, key, value, self.now);
        if !self.place(hash, entry) {
            self.ledger.free_entry(entry);
            return Err(full);
        }
        self.set_len(self.len() + 1);
        Ok(None)
    }

    /// Removes `key`; returns the value that it had.
    pub fn remove(&mut self, key: &[u32; W]) -> Option<u64> {
        self.remove_with_hash(key, self.hash(key))
    }

    /// [`remove`](Self::remove) of a key whose hash is known.
    pub fn remove_with_hash(&mut self, key: &[u32; W], hash: u32) -> Option<u64> {
        let place = self.locate(key, hash)?;
        let value = self.table.entries.view().value(place.entry);
        self.remove_at(place);
        Some(value)
    }

    /// Every key and its value, in no order.
    pub fn iter(&self) -> impl Iterator<Item = ([u32; W], u64)> + '_ {
        (0..self.geometry().buckets()).flat_map(move |bucket| {
            let taken = self.taken(bucket);
            (0..SLOTS).filter(move |slot| taken >> slot & 1 != 0).map(move |slot| {
                let entry = self.table.buckets[bucket as usize].entry(slot);
                (self.table.entries.view().key(entry), self.table.entries.view().value(entry))
            })
        })
    }

    /// Shows `keep` the keys of the next `buckets` buckets, each with its value and its time of last use
    /// ([`CuckooTable::use_batch`], [`set_now`](Self::set_now)), and removes those for which it returns
    /// false. Each call goes on where the last one stopped. Returns how many were removed.
    ///
    /// A key that is displaced, or moved by growth, may be shown twice in a round, or only in the next.
    pub fn sweep(&mut self, buckets: usize, mut keep: impl FnMut(&[u32; W], u64, u64) -> bool) -> usize {
        let mut removed = 0;
        for _ in 0..buckets.min(self.geometry().buckets() as usize) {
            let bucket = self.sweep_at;
            self.sweep_at = (bucket + 1) % self.geometry().buckets();
            let mut taken = self.taken(bucket);
            while taken != 0 {
                let slot = taken.trailing_zeros() as usize;
                taken &= taken - 1;
                let entry = self.table.buckets[bucket as usize].entry(slot);
                let entries = self.table.entries.view();
                if !keep(&entries.key(entry), entries.value(entry), entries.used(entry)) {
                    self.remove_at(Place { bucket, slot, entry });
                    removed += 1;
                }
            }
        }
        removed
    }

    /// Removes every key.
    pub fn clear(&mut self) {
        self.sweep_at = 0;
        self.sweep(usize::MAX, |_, _, _| false);
        self.ledger.free_all();
    }

    /// The taken slots of a bucket, a bit each.
    fn taken(&self, bucket: u32) -> u32 {
        !matches(self.table.buckets[bucket as usize].signatures(), 0) & ((1 << SLOTS) - 1)
    }

    fn locate(&self, key: &[u32; W], hash: u32) -> Option<Place> {
        let geometry = self.geometry();
        let signature = signature(hash);
        let primary = geometry.bucket(hash);
        let found = self.locate_in(primary, signature, key);
        let moved = self.table.buckets[primary as usize].moved() & moved_bit(signature) != 0;
        if found.is_some() || !moved {
            return found;
        }
        self.locate_in(geometry.bucket(alternate_hash(hash)), signature, key)
    }

    fn locate_in(&self, at: u32, signature: u16, key: &[u32; W]) -> Option<Place> {
        let bucket = &self.table.buckets[at as usize];
        let mut slots = matches(bucket.signatures(), signature);
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize;
            let entry = bucket.entry(slot);
            if self.table.entries.view().key_is(entry, key) {
                return Some(Place { bucket: at, slot, entry });
            }
            slots &= slots - 1;
        }
        None
    }

    /// Puts an entry into one of its buckets, displacing others if need be.
    fn place(&mut self, hash: u32, entry: u32) -> bool {
        let signature = signature(hash);
        let mut paths = 0;
        loop {
            let geometry = self.geometry();
            let at = geometry.bucket(hash);
            let other_at = geometry.bucket(alternate_hash(hash));
            let table = &*self.table;
            let (primary, alternate) = (&table.buckets[at as usize], &table.buckets[other_at as usize]);
            if let Some(slot) = primary.free_slot() {
                let _writing = Writing::begin([primary]);
                primary.set_slot(slot, signature, entry);
                return true;
            }
            if let Some(slot) = alternate.free_slot() {
                let _writing = Writing::begin([primary, alternate]);
                alternate.set_slot(slot, signature, entry);
                self.ledger.count_moved(primary, at, entry);
                return true;
            }
            paths += 1;
            if paths > PATHS_MAX || !(self.make_room(at, other_at) || self.split_next()) {
                return false;
            }
        }
    }

    fn remove_at(&mut self, place: Place) {
        let hash = self.ledger.hash(place.entry);
        let primary = self.geometry().bucket(hash);
        let table = &*self.table;
        let bucket = &table.buckets[place.bucket as usize];
        if place.bucket == primary {
            let _writing = Writing::begin([bucket]);
            bucket.clear_slot(place.slot);
        } else {
            let home = &table.buckets[primary as usize];
            let _writing = Writing::begin([bucket, home]);
            bucket.clear_slot(place.slot);
            self.ledger.uncount_moved(home, primary, place.entry);
        }
        // Readers that still look at the entry find its bucket's version changed; what is written into
        // the entry from now on comes after that change.
        self.ledger.free_entry(place.entry);
        self.set_len(self.len() - 1);
    }

    fn set_len(&self, len: usize) {
        self.table.len.store(len as u64, Relaxed);
    }

    /// Goes on with a doubling, or begins one where the table has become full enough.
    fn grow_on_insert(&mut self) {
        let geometry = self.geometry();
        let buckets = geometry.buckets() as usize;
        if buckets == self.table.buckets.len() {
            return;
        }
        if !geometry.is_even() || (self.len() + 1) * 100 > buckets * SLOTS * GROW_AT_PERCENT {
            for _ in 0..SPLITS_PER_INSERT {
                self.split_next();
            }
        }
    }

    /// Splits the next bucket; false where the table has its full size.
    pub(super) fn split_next(&mut self) -> bool {
        let geometry = self.geometry();
        if geometry.buckets() as usize >= self.table.buckets.len() {
            return false;
        }
        let (from_at, to_at) = geometry.next_split();
        let after = geometry.after_split();
        let table = &*self.table;
        let (from, to) = (&table.buckets[from_at as usize], &table.buckets[to_at as usize]);
        let writing = Writing::begin([from, to]);
        for slot in 0..SLOTS {
            let signature = from.signature(slot);
            let entry = from.entry(slot);
            if signature == 0 {
                continue;
            }
            let hash = self.ledger.hash(entry);
            let in_primary = geometry.bucket(hash) == from_at;
            let bucket = after.bucket(if in_primary { hash } else { alternate_hash(hash) });
            if bucket == to_at {
                to.set_slot(slot, signature, entry);
                from.clear_slot(slot);
            }
        }
        from.set_moved(0);
        self.ledger.split(from_at, |hash| {
            let at = after.bucket(hash);
            (if at == to_at { to } else { from }, at)
        });
        // Before the versions become even: who sees the new versions sees the new geometry.
        table.geometry.store(after.to_word(), Release);
        drop(writing);
        true
    }
}
