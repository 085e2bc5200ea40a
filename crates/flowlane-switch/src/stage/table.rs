//! A table of one key an entry: a cuckoo table from keys to entries that age.

use flowlane::cuckoo::{CuckooConfig, CuckooWriter};

use super::ageing::{Aged, FULL_BUDGET};

/// What an entry holds beside its key.
#[derive(Clone, Copy, Debug)]
pub struct Entry<const W: usize, T> {
    pub key: [u32; W],
    /// The rest.
    pub value: T,
}

/// What a table would answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peeked {
    /// There is no entry.
    Absent,
    /// There is one that has been idle for too long: it would go.
    Due(u32),
    /// The entry.
    Live(u32),
}

impl Peeked {
    /// The answer where this entry was found.
    pub fn of<T: Copy>(entries: &Aged<T>, found: Option<u32>, now: u32) -> Self {
        match found {
            None => Self::Absent,
            Some(at) if entries.is_due(at, now) => Self::Due(at),
            Some(at) => Self::Live(at),
        }
    }

    /// The entry, where it is not due.
    pub fn live(self) -> Option<u32> {
        if let Self::Live(at) = self { Some(at) } else { None }
    }

    /// The entry that is due.
    pub fn due(self) -> Option<u32> {
        if let Self::Due(at) = self { Some(at) } else { None }
    }
}

/// Entries by key.
#[derive(Debug)]
pub struct AgedTable<const W: usize, T> {
    keys: CuckooWriter<W>,
    pub entries: Aged<Entry<W, T>>,
    /// Entries that came or went: what was found before a change may not be so any more.
    changes: u64,
    /// Entries that went because they were idle.
    aged: u64,
}

/// How many entries a table begins with room for.
const ENTRIES_AT_FIRST: usize = 1024;

/// A cuckoo table for up to so many keys that begins small.
pub(super) fn keys<const W: usize>(entries_max: usize, seed: u32) -> CuckooWriter<W> {
    CuckooWriter::new(&CuckooConfig::new(entries_max, seed).growing_from(ENTRIES_AT_FIRST))
}

impl<const W: usize, T: Copy> AgedTable<W, T> {
    /// An empty table for up to so many entries.
    pub fn new(entries_max: usize, seed: u32) -> Self {
        Self { keys: keys(entries_max, seed), entries: Aged::new(entries_max), changes: 0, aged: 0 }
    }

    #[inline]
    pub fn keys(&self) -> &CuckooWriter<W> {
        &self.keys
    }

    /// Changes whenever an entry comes or goes.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What was found for a key, at a time when [`changes`](Self::changes) was this; looked up again where entries have
    /// come or gone since.
    #[inline]
    pub fn since(&self, changes: u64, key: &[u32; W], found: Option<u32>) -> Option<u32> {
        if self.changes == changes { found } else { self.keys.lookup(key) }
    }

    /// Entries that went because they were idle.
    pub fn aged(&self) -> u64 {
        self.aged
    }

    /// Bytes of keys and entries.
    pub fn table_bytes(&self) -> usize {
        self.keys.table_bytes() + self.keys.writer_bytes() + self.entries.table_bytes()
    }

    /// The entry of a key, unless it has been idle for too long: then it goes.
    #[inline]
    pub fn find(&mut self, key: &[u32; W], now: u32) -> Option<u32> {
        let at = self.keys.lookup(key)?;
        self.unless_due(at, now)
    }

    /// An entry that was found, unless it has been idle for too long: then it goes.
    #[inline]
    pub fn unless_due(&mut self, at: u32, now: u32) -> Option<u32> {
        if self.entries.is_due(at, now) {
            self.remove_aged(at);
            return None;
        }
        Some(at)
    }

    /// What [`find`](Self::find) would find.
    pub fn peek(&self, key: &[u32; W], now: u32) -> Peeked {
        Peeked::of(&self.entries, self.keys.lookup(key), now)
    }

    /// How many new entries a packet of this tick would find room for, for whose keys this was found.
    ///
    /// Where there is room, cuckoo tables may still refuse a key; that is not foreseen.
    pub fn places(&self, peeked: &[Peeked], now: u32) -> usize {
        let due: Vec<u32> = peeked.iter().filter_map(|peeked| peeked.due()).collect();
        self.entries.free() + self.entries.would_go_for_new(&due, now).len()
    }

    /// Adds an entry whose key is new; none where the table is full and nothing in it is due.
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

    /// Removes what is due, looking at no more than `budget` entries.
    #[inline]
    pub fn age(&mut self, now: u32, mut budget: usize) {
        while let Some(at) = self.entries.due(now, &mut budget) {
            self.remove_aged(at);
        }
    }

    /// Removes an entry.
    ///
    /// # Panics
    /// Where there is no such entry.
    pub fn remove(&mut self, at: u32) {
        let entry = self.entries.remove(at);
        self.keys.remove(&entry.key);
        self.changes += 1;
    }

    fn remove_aged(&mut self, at: u32) {
        self.remove(at);
        self.aged += 1;
    }
}
