//! The writer: the one handle that changes a table.

use std::fmt;
use std::hint::select_unpredictable;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::bucket::{SLOTS, Writing};
use super::displace::Path;
use super::entry::{EntriesView, id};
use super::geometry::{alternate_hash, signature};
use super::slot_metadata::SlotMetadata;
use super::{BATCH_MAX, CuckooConfig, CuckooReader, CuckooTable};
use crate::dispatch::AdaptiveDispatch;
use crate::isa::{Backend, Variant};
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
    pub(super) metadata: SlotMetadata,
    /// The time, if times of use are kept.
    pub(super) now: Option<u64>,
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
}

/// A key to be put somewhere.
struct Item<'a, const W: usize> {
    key: &'a [u32; W],
    value: u32,
    hash: u32,
}

/// Returns the first of these slots, of which there must be one, that comes from `start` on, or else from the first on.
#[inline(always)]
fn first_from(slots: u32, start: usize) -> usize {
    (((slots | slots << SLOTS) >> start).trailing_zeros() as usize + start) % SLOTS
}

impl<const W: usize> CuckooWriter<W> {
    /// Creates an empty table.
    ///
    /// # Panics
    /// Where the system has no memory for it.
    #[inline(never)]
    pub fn new(config: &CuckooConfig) -> Self {
        let table = CuckooTable::new(config);
        Self {
            metadata: SlotMetadata::new(table.buckets.len(), table.buckets.len() * SLOTS),
            table: Arc::new(table),
            now: None,
            sweep_at: 0,
            path: Path::default(),
        }
    }

    /// Looks batches up by this variant from now on, where it may be used here and there are no readers.
    /// Says whether that is so.
    pub(crate) fn set_variant(&mut self, variant: Variant) -> bool {
        let (table, backend) = (Arc::get_mut(&mut self.table), Backend::of(variant));
        let (Some(table), Some(backend)) = (table, backend) else { return false };
        table.backend = AdaptiveDispatch::named(backend);
        true
    }

    /// Returns another reader.
    pub fn reader(&self) -> CuckooReader<W> {
        CuckooReader { table: Arc::clone(&self.table) }
    }

    /// Returns the table that readers look up in.
    pub(crate) fn shared_table(&self) -> Arc<CuckooTable<W>> {
        Arc::clone(&self.table)
    }

    /// Returns the bytes that the writer keeps for itself, reserved for [`entries_max`](CuckooTable::entries_max).
    pub fn writer_bytes(&self) -> usize {
        self.metadata.size_bytes()
    }

    /// Sets the time that is noted as the last use of keys written from now on, in the caller's unit. Times
    /// are kept from the first call on: keys written before it have any.
    pub fn set_now(&mut self, now: u64) {
        self.now = Some(now);
    }

    /// Gives `key` this value; returns the value that it had.
    ///
    /// # Errors
    /// [`InsertError::Full`] where the key is new and finds no place; nothing has changed then.
    pub fn insert(&mut self, key: &[u32; W], value: u32) -> Result<Option<u32>, InsertError> {
        self.insert_with_hash(key, self.hash(key), value)
    }

    /// [`insert`](Self::insert) of a key whose hash is known.
    ///
    /// # Errors
    /// As there.
    #[inline(never)]
    pub fn insert_with_hash(
        &mut self,
        key: &[u32; W],
        hash: u32,
        value: u32,
    ) -> Result<Option<u32>, InsertError> {
        let item = Item { key, value, hash };
        if self.keeps_hashes() {
            self.ask_for(hash);
            self.put::<false>(&item)
        } else {
            self.put::<true>(&item)
        }
    }

    /// Inserts many keys, in their order. Returns how many of them, from the first on, are in the table now: all, or
    /// those before the first that found no place.
    ///
    /// The memory for all keys of a part is prefetched before the first is inserted, so that one's wait for memory does not begin
    /// when the other's has ended: large tables are filled several times as fast as key by key.
    ///
    /// # Panics
    /// Where there are fewer values than keys.
    #[inline(never)]
    pub fn insert_batch(&mut self, keys: &[[u32; W]], values: &[u32]) -> usize {
        let values = &values[..keys.len()];
        let mut hashes = [0; BATCH_MAX];
        let mut inserted = 0;
        for (keys, values) in keys.chunks(BATCH_MAX).zip(values.chunks(BATCH_MAX)) {
            self.hash_batch(keys, &mut hashes);
            let hashes = &hashes[..keys.len()];
            hashes.iter().for_each(|hash| self.ask_for(*hash));
            hashes.iter().for_each(|hash| self.ask_for_entry(*hash));
            let put = if self.keeps_hashes() { Self::put_part::<false> } else { Self::put_part::<true> };
            let part = put(self, keys, values, hashes);
            inserted += part;
            if part < keys.len() {
                break;
            }
        }
        inserted
    }

    /// Inserts keys whose memory was asked for, and returns how many found a place.
    #[inline(never)]
    fn put_part<const FULL: bool>(&mut self, keys: &[[u32; W]], values: &[u32], hashes: &[u32]) -> usize {
        let items = keys.iter().zip(values).zip(hashes);
        let mut items = items.map(|((key, value), hash)| Item { key, value: *value, hash: *hash });
        items.position(|item| self.put::<FULL>(&item).is_err()).unwrap_or(keys.len())
    }

    /// Asks for the buckets of a key that will be inserted, and for its note.
    #[inline(always)]
    fn ask_for(&self, hash: u32) {
        let geometry = self.geometry();
        let primary = geometry.bucket(hash);
        prefetch(&self.table.buckets, primary as usize);
        prefetch(&self.table.buckets, geometry.bucket(alternate_hash(hash)) as usize);
        if self.keeps_hashes() {
            self.metadata.prefetch(id(primary, 0));
        }
    }

    /// Returns whether the table may still grow: splitting a bucket takes all bits of its keys' hashes, where else signature and
    /// bucket suffice.
    #[inline(always)]
    pub(super) fn keeps_hashes(&self) -> bool {
        (self.geometry().buckets() as usize) < self.table.buckets.len()
    }

    /// Asks for the entry that the key has, or will have if it is new; its buckets are there.
    #[inline(always)]
    fn ask_for_entry(&self, hash: u32) {
        let (table, geometry) = (&*self.table, self.geometry());
        let ask = |at: u32| {
            let bucket = &table.buckets[at as usize];
            let signature = signature(hash);
            // The one with its signature, if there is one, else the free one that it will get.
            let (same, free) = (bucket.find(signature), bucket.free());
            let slots = if same != 0 { same } else { free };
            let slot = (slots != 0).then(|| first_from(slots, EntriesView::<W>::first_slot(signature)));
            slot.inspect(|slot| table.entries.view().prefetch(table.entry(at, *slot)))
        };
        if ask(geometry.bucket(hash)).is_none() {
            let alternate = geometry.bucket(alternate_hash(hash));
            match ask(alternate) {
                Some(slot) => self.metadata.prefetch(id(alternate, slot)),
                None => self.ask_for_others(geometry.bucket(hash)),
            }
        }
    }

    /// Inserts a key into a table that grows no more, if `FULL`, or one that may.
    ///
    /// A core overlaps the waits for memory of as many insertions as its window of some hundred instructions holds: there are few on the way
    /// of a new key, and few branches of which the outcome depends on that memory.
    #[inline(always)]
    fn put<const FULL: bool>(&mut self, item: &Item<'_, W>) -> Result<Option<u32>, InsertError> {
        let signature = signature(item.hash);
        let at = self.geometry().bucket_if::<FULL>(item.hash);
        let (len, slots) = (self.len(), self.table.buckets.len() * SLOTS);
        // A primary bucket without room is rare up to here.
        let is_sparse = FULL && len < slots / 2;
        if FULL && len < slots / 4 * 3 {
            // Most entries are where they would like to be: the key's is asked for before that is known.
            let slot = EntriesView::<W>::first_slot(signature);
            self.table.entries.view().prefetch(self.table.entry(at, slot));
        }
        let primary = &self.table.buckets[at as usize];
        if (primary.find(signature) != 0) | primary.may_have_moved(signature)
            && let Some(before) = self.replace(item)
        {
            return Ok(Some(before));
        }
        if !FULL {
            self.grow_on_insert();
        }
        if len >= self.entries_max {
            return Err(InsertError::Full { entries: len });
        }
        let primary = &self.table.buckets[at as usize];
        let free = if is_sparse { primary.free() } else { 0 };
        let place = if free == 0 {
            self.place::<FULL>(item).ok_or(InsertError::Full { entries: len })?
        } else {
            let slot = first_from(free, EntriesView::<W>::first_slot(signature));
            let _writing = Writing::begin([primary]);
            self.table.fill(at, slot, signature, item.key, item.value);
            Place { bucket: at, slot }
        };
        self.note_use(place);
        self.set_len(len + 1);
        Ok(None)
    }

    /// Replaces the value of a key, if it is there; returns the value before.
    #[inline(never)]
    fn replace(&self, item: &Item<'_, W>) -> Option<u32> {
        let place = self.locate(item.key, item.hash)?;
        let before = self.table.value(place.bucket, place.slot);
        self.table.set_value(place.bucket, place.slot, item.value);
        self.note_use(place);
        Some(before)
    }

    #[inline(always)]
    fn note_use(&self, place: Place) {
        if let Some(now) = self.now {
            self.table.entries.view().set_used(id(place.bucket, place.slot), now);
        }
    }

    /// Removes `key`; returns the value that it had.
    pub fn remove(&mut self, key: &[u32; W]) -> Option<u32> {
        self.remove_with_hash(key, self.hash(key))
    }

    /// [`remove`](Self::remove) of a key whose hash is known.
    #[inline(never)]
    pub fn remove_with_hash(&mut self, key: &[u32; W], hash: u32) -> Option<u32> {
        let place = self.locate(key, hash)?;
        let value = self.table.value(place.bucket, place.slot);
        self.remove_at(place);
        Some(value)
    }

    /// Returns every key and its value, in no order.
    pub fn iter(&self) -> impl Iterator<Item = ([u32; W], u32)> + '_ {
        (0..self.geometry().buckets()).flat_map(move |bucket| {
            let taken = self.taken(bucket);
            (0..SLOTS)
                .filter(move |slot| taken >> slot & 1 != 0)
                .map(move |slot| (self.table.key(bucket, slot), self.table.value(bucket, slot)))
        })
    }

    /// Shows `keep` the keys of the next `buckets` buckets, each with its value and its time of last use
    /// ([`CuckooTable::use_batch`], [`set_now`](Self::set_now)), and removes those for which it returns
    /// false. Each call goes on where the last one stopped. Returns how many were removed.
    ///
    /// A key that is displaced, or moved by growth, may be shown twice in a round, or only in the next.
    pub fn sweep(&mut self, buckets: usize, mut keep: impl FnMut(&[u32; W], u32, u64) -> bool) -> usize {
        let mut removed = 0;
        for _ in 0..buckets.min(self.geometry().buckets() as usize) {
            let bucket = self.sweep_at;
            self.sweep_at = (bucket + 1) % self.geometry().buckets();
            let mut taken = self.taken(bucket);
            while taken != 0 {
                let slot = taken.trailing_zeros() as usize;
                taken &= taken - 1;
                let place = Place { bucket, slot };
                let used = self.table.entries.used(bucket, slot);
                if !keep(&self.table.key(bucket, slot), self.table.value(bucket, slot), used) {
                    self.remove_at(place);
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
    }

    /// Returns the taken slots of a bucket, a bit each.
    fn taken(&self, bucket: u32) -> u32 {
        self.table.buckets[bucket as usize].taken()
    }

    fn locate(&self, key: &[u32; W], hash: u32) -> Option<Place> {
        let geometry = self.geometry();
        let signature = signature(hash);
        let primary = geometry.bucket(hash);
        let found = self.locate_in(primary, signature, key);
        if found.is_some() || !self.table.buckets[primary as usize].may_have_moved(signature) {
            return found;
        }
        self.locate_in(geometry.bucket(alternate_hash(hash)), signature, key)
    }

    fn locate_in(&self, at: u32, signature: u16, key: &[u32; W]) -> Option<Place> {
        self.table.slot_of(at, key, signature).map(|slot| Place { bucket: at, slot })
    }

    /// Puts a key into one of its buckets, displacing others if need be. Returns where.
    #[inline(always)]
    fn place<const FULL: bool>(&mut self, item: &Item<'_, W>) -> Option<Place> {
        let mut paths = 0;
        loop {
            let geometry = self.geometry();
            let at = geometry.bucket_if::<FULL>(item.hash);
            let other_at = geometry.bucket_if::<FULL>(alternate_hash(item.hash));
            let place = self.place_free::<FULL>(item, at, other_at);
            if place.is_some() {
                return place;
            }
            paths += 1;
            if paths > PATHS_MAX || !(self.make_room(at, other_at) || self.split_next()) {
                return None;
            }
        }
    }

    /// Puts a key into a free slot of one of its buckets, if there is one.
    #[inline(always)]
    fn place_free<const FULL: bool>(&mut self, item: &Item<'_, W>, at: u32, other_at: u32) -> Option<Place> {
        let table = &*self.table;
        let (primary, alternate) = (&table.buckets[at as usize], &table.buckets[other_at as usize]);
        let free = primary.free() | alternate.free() << SLOTS;
        if free == 0 {
            return None;
        }
        // Which bucket it is cannot be predicted in a full table, and they have only just been asked for: there is no branch.
        let displaced = free & ((1 << SLOTS) - 1) == 0;
        let to_at = select_unpredictable(displaced, other_at, at);
        let free = select_unpredictable(displaced, free >> SLOTS, free & ((1 << SLOTS) - 1));
        let slot = first_from(free, EntriesView::<W>::first_slot(signature(item.hash)));
        let to = &table.buckets[to_at as usize];
        if !FULL {
            self.metadata.set_hash(id(to_at, slot), item.hash);
        }
        let _writing = Writing::begin_placing(primary, to, displaced);
        table.fill(to_at, slot, signature(item.hash), item.key, item.value);
        to.add_displaced(slot, displaced);
        self.metadata.count_if_moved(displaced, primary, at, id(to_at, slot), item.hash);
        Some(Place { bucket: to_at, slot })
    }

    fn remove_at(&mut self, place: Place) {
        let bucket = &self.table.buckets[place.bucket as usize];
        if bucket.displaced() >> place.slot & 1 == 0 {
            let _writing = Writing::begin([bucket]);
            bucket.set_signature(place.slot, 0);
        } else {
            let primary = self.other_bucket(place.bucket, place.slot);
            let home = &self.table.buckets[primary as usize];
            let _writing = Writing::begin([bucket, home]);
            bucket.set_signature(place.slot, 0);
            bucket.clear_displaced(place.slot);
            self.metadata.uncount_moved(home, primary, id(place.bucket, place.slot));
        }
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
        let taken = self.taken(from_at);
        let writing = Writing::begin([from, to]);
        for slot in (0..SLOTS).filter(|slot| taken >> slot & 1 != 0) {
            let (was, is) = (id(from_at, slot), id(to_at, slot));
            let hash = self.metadata.hash(was);
            let primary = geometry.bucket(hash);
            let bucket = after.bucket(if primary == from_at { hash } else { alternate_hash(hash) });
            if bucket != to_at {
                continue;
            }
            self.metadata.set_hash(is, hash);
            table.move_to((from_at, slot), (to_at, slot));
            to.add_displaced(slot, primary != from_at);
            from.clear_displaced(slot);
            if self.now.is_some() {
                table.entries.copy_used(was, is);
            }
            if primary != from_at {
                self.metadata.rename_moved(primary, was, is);
            }
        }
        from.set_filter(0);
        self.metadata.split(from_at, |hash| {
            let at = after.bucket(hash);
            (if at == to_at { to } else { from }, at)
        });
        // Before the versions become even: a reader that sees the new versions sees the new geometry.
        table.geometry.store(after.to_word(), Release);
        drop(writing);
        true
    }
}
