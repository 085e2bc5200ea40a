//! A cuckoo table of entries that age, one key each.

use flowlane::cuckoo::{CuckooConfig, CuckooWriter};

use super::ageing::{Aged, FULL_BUDGET};
use super::shares::Shares;

/// A key and its value.
#[derive(Clone, Copy, Debug)]
pub struct Entry<const W: usize, T> {
    pub key: [u32; W],
    pub value: T,
}

/// The state of the entry that a lookup returned, at the time of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// There is no entry.
    Absent,
    /// The entry has been idle for too long; [`AgedTable::commit`] removes it.
    Expired(u32),
    /// The entry counts.
    Live(u32),
}

impl Found {
    /// Classifies the entry that a lookup returned.
    #[inline]
    pub fn of<T: Copy>(entries: &Aged<T>, found: Option<u32>, now: u32) -> Self {
        match found {
            None => Self::Absent,
            Some(at) if entries.is_due(at, now) => Self::Expired(at),
            Some(at) => Self::Live(at),
        }
    }

    /// Returns the live entry.
    #[inline]
    pub fn live(self) -> Option<u32> {
        if let Self::Live(at) = self { Some(at) } else { None }
    }

    /// Returns the expired entry.
    #[inline]
    pub fn expired(self) -> Option<u32> {
        if let Self::Expired(at) = self { Some(at) } else { None }
    }
}

/// Entries by key.
#[derive(Debug)]
pub struct AgedTable<const W: usize, T> {
    keys: CuckooWriter<W>,
    pub entries: Aged<Entry<W, T>>,
    /// Of entries that packets have added.
    shares: Shares,
    /// The number of insertions and removals: earlier lookups may be stale after one.
    changes: u64,
    /// The number of entries removed for being idle.
    aged: u64,
}

/// The initial capacity of a table.
const ENTRIES_AT_FIRST: usize = 1024;

/// A cuckoo table of up to `entries_max` keys that begins small.
pub(super) fn keys<const W: usize>(entries_max: usize, seed: u32) -> CuckooWriter<W> {
    CuckooWriter::new(&CuckooConfig::new(entries_max, seed).growing_from(ENTRIES_AT_FIRST))
}

impl<const W: usize, T: Copy> AgedTable<W, T> {
    /// An empty table of up to `entries_max` entries.
    pub fn new(entries_max: usize, seed: u32) -> Self {
        Self::shared(entries_max, None, seed)
    }

    /// An empty table to which the packets of each port [add](Self::learn) at most `port_max` entries; without it, at most as many
    /// as are free.
    pub fn shared(entries_max: usize, port_max: Option<usize>, seed: u32) -> Self {
        let (keys, entries) = (keys(entries_max, seed), Aged::new(entries_max));
        Self { keys, entries, shares: Shares::new(port_max), changes: 0, aged: 0 }
    }

    /// Returns the table of keys, for batch lookups.
    #[inline]
    pub fn keys(&self) -> &CuckooWriter<W> {
        &self.keys
    }

    /// Returns a number that changes with every insertion and removal.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns `found`, looked up when [`changes`](Self::changes) was this number, or the result of another lookup if
    /// entries have been inserted or removed since.
    #[inline]
    pub fn since(&self, changes: u64, key: &[u32; W], found: Option<u32>) -> Option<u32> {
        if self.changes == changes { found } else { self.keys.lookup(key) }
    }

    /// Returns the number of entries removed for being idle.
    pub fn aged(&self) -> u64 {
        self.aged
    }

    /// Returns the bytes of keys and entries.
    pub fn table_bytes(&self) -> usize {
        self.keys.table_bytes()
            + self.keys.writer_bytes()
            + self.entries.table_bytes()
            + self.shares.table_bytes()
    }

    /// Classifies the entry that a lookup returned, without a change.
    #[inline]
    pub fn decide(&self, found: Option<u32>, now: u32) -> Found {
        Found::of(&self.entries, found, now)
    }

    /// Removes the entry if it has expired. Returns the live one.
    #[inline]
    pub fn commit(&mut self, found: Found) -> Option<u32> {
        if let Found::Expired(at) = found {
            self.remove_aged(at);
        }
        found.live()
    }

    /// Looks a key up without a change.
    #[inline]
    pub fn find(&self, key: &[u32; W], now: u32) -> Found {
        self.decide(self.keys.lookup(key), now)
    }

    /// Previews how many entries a packet that came in on `port` at this tick would add, for whose keys `found` was found: ageing
    /// that the packet brings about makes room. A cuckoo table may still refuse a key, which is not foreseen.
    pub fn room(&self, found: &[Found], now: u32, port: u32) -> usize {
        let expired: Vec<u32> = found.iter().filter_map(|found| found.expired()).collect();
        let gone = self.entries.preview_expiry(&expired, now);
        let free = self.entries.free() + gone.len();
        let held = self.held(port, &gone);
        let wanted = found.iter().filter(|found| found.live().is_none()).count().min(free);
        (0..wanted).take_while(|added| self.shares.may_add(held + added, free - added)).count()
    }

    /// Adds an entry for a packet that came in on `port`, whose key is new; none if the table is full and nothing in it is due, or
    /// if the port has its share.
    pub fn learn(&mut self, key: &[u32; W], value: T, idle: u32, now: u32, port: u32) -> Option<u32> {
        if self.entries.is_full() {
            self.age(now, FULL_BUDGET);
        }
        if !self.shares.may_add(self.shares.held(port), self.entries.free()) {
            return None;
        }
        self.insert_for(key, value, idle, now, port)
    }

    /// As [`insert`](Self::insert), for a holder whose share the caller watches.
    pub fn insert_for(&mut self, key: &[u32; W], value: T, idle: u32, now: u32, holder: u32) -> Option<u32> {
        let at = self.insert(key, value, idle, now)?;
        self.shares.add(at, holder);
        Some(at)
    }

    /// Returns the number of entries of a holder without those that are `gone`.
    pub fn held(&self, holder: u32, gone: &[u32]) -> usize {
        self.shares.held_without(holder, gone)
    }

    /// Adds an entry whose key is new; none if the table is full and nothing in it is due.
    pub fn insert(&mut self, key: &[u32; W], value: T, idle: u32, now: u32) -> Option<u32> {
        if self.entries.is_full() {
            self.age(now, FULL_BUDGET);
        }
        let at = self.entries.insert(Entry { key: *key, value }, idle, now)?;
        if self.keys.insert(key, at).is_err() {
            self.entries.remove(at);
            return None;
        }
        self.changes += 1;
        Some(at)
    }

    /// Removes entries that are due, looking at up to `budget` entries.
    #[inline]
    pub fn age(&mut self, now: u32, mut budget: usize) {
        while let Some(at) = self.entries.due(now, &mut budget) {
            self.remove_aged(at);
        }
    }

    /// Removes an entry.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn remove(&mut self, at: u32) {
        let entry = self.entries.remove(at);
        self.keys.remove(&entry.key);
        self.shares.remove(at);
        self.changes += 1;
    }

    fn remove_aged(&mut self, at: u32) {
        self.remove(at);
        self.aged += 1;
    }
}
