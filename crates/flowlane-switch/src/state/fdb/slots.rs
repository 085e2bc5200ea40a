//! The slots of the FDB, which workers read while others change them.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use flowlane::hash::murmur3;
use flowlane::rule::action::PortNo;

use super::{Listed, NEIGHBOURHOOD};

/// An address with its port and time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Address and VLAN: `mac << 16 | vid`. 0, which no station has, marks a free slot.
    pub(super) key: u64,
    pub(super) port: u32,
    pub(super) seen_s: u32,
}

impl Entry {
    fn new(key: u64, value: u64) -> Self {
        Self { key, port: (value >> 32) as u32, seen_s: value as u32 }
    }

    /// Returns port and time.
    fn value(&self) -> u64 {
        u64::from(self.port) << 32 | u64::from(self.seen_s)
    }
}

/// A slot that other threads may change while it is read.
///
/// A writer that changes more than the time holds the lock, and frees the slot in between. So a reader that finds the same
/// key before and after has read that key's value.
#[derive(Debug, Default)]
pub(super) struct Slot {
    key: AtomicU64,
    value: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == 16);

impl Slot {
    /// Returns the key; 0 if the slot is free.
    #[inline]
    pub(super) fn key(&self) -> u64 {
        self.key.load(Ordering::Acquire)
    }

    /// Returns the entry. The caller holds the lock.
    pub(super) fn get(&self) -> Entry {
        Entry::new(self.key(), self.value.load(Ordering::Relaxed))
    }

    /// Returns the entry of this key, unless it has just been removed.
    #[inline]
    pub(super) fn read(&self, key: u64) -> Option<Entry> {
        let value = self.value.load(Ordering::Acquire);
        (self.key.load(Ordering::Relaxed) == key).then(|| Entry::new(key, value))
    }

    /// Replaces the entry by another or by none. The caller holds the lock.
    pub(super) fn set(&self, entry: Option<Entry>) {
        self.key.store(0, Ordering::Relaxed);
        if let Some(entry) = entry {
            // A reader of this value finds the key removed, or a later one.
            self.value.store(entry.value(), Ordering::Release);
            self.key.store(entry.key, Ordering::Release);
        }
    }

    /// Changes the port and time of the entry. The caller holds the lock.
    pub(super) fn change(&self, entry: Entry) {
        self.value.store(entry.value(), Ordering::Release);
    }

    /// Records that the address of an entry was seen again, unless the entry has changed.
    #[inline]
    pub(super) fn touch(&self, entry: Entry, now_s: u32) {
        let seen = Entry { seen_s: now_s, ..entry };
        _ = self.value.compare_exchange(entry.value(), seen.value(), Ordering::Release, Ordering::Relaxed);
    }
}

/// A power of two of slots.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) slots: Box<[Slot]>,
    seed: u32,
}

impl Slots {
    pub(super) fn new(len: usize, seed: u32) -> Self {
        Self { slots: (0..len).map(|_| Slot::default()).collect(), seed }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(super) fn home(&self, key: u64) -> usize {
        let hash = murmur3::mix(murmur3::mix(self.seed, key as u32), (key >> 32) as u32);
        murmur3::finish(hash, 8) as usize & (self.len() - 1)
    }

    /// Returns the slot of `key`, or the free one for it.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Result<usize, usize> {
        let wrap = self.len() - 1;
        let mut at = self.home(key);
        loop {
            match self.slots[at].key() {
                found if found == key => return Ok(at),
                0 => return Err(at),
                _ => at = (at + 1) & wrap,
            }
        }
    }

    /// Returns the entry of an address and its slot. An entry that is being moved may not be found.
    #[inline]
    pub(super) fn entry(&self, key: u64) -> Option<(Entry, &Slot)> {
        let slot = &self.slots[self.find(key).ok()?];
        // Address zero in no VLAN is found in any free slot.
        let entry = slot.read(key).filter(|entry| entry.key != 0)?;
        Some((entry, slot))
    }

    /// Returns the entries next to an address's own slot, with their slots.
    pub(super) fn near(&self, key: u64) -> impl Iterator<Item = (usize, Entry)> {
        let (from, wrap) = (self.home(key), self.len() - 1);
        let near = (from..from + NEIGHBOURHOOD.min(self.len())).map(move |at| at & wrap);
        near.map(|at| (at, self.slots[at].get())).filter(|(_, entry)| entry.key != 0)
    }

    /// Frees a slot and moves back the entries that could no longer be found beyond it.
    pub(super) fn remove(&self, mut hole: usize) {
        let wrap = self.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & wrap;
            let entry = self.slots[at].get();
            if entry.key == 0 {
                break;
            }
            let home = self.home(entry.key);
            if at.wrapping_sub(home) & wrap >= at.wrapping_sub(hole) & wrap {
                self.slots[hole].set(Some(entry));
                hole = at;
            }
        }
        self.slots[hole].set(None);
    }

    /// Returns twice as many slots with the same entries.
    pub(super) fn doubled(&self) -> Self {
        let double = Self::new(self.len() * 2, self.seed);
        for entry in self.slots.iter().map(Slot::get).filter(|e| e.key != 0) {
            let at = double.find(entry.key).expect_err("every address once");
            double.slots[at].set(Some(entry));
        }
        double
    }

    /// Returns the addresses in these slots.
    pub(super) fn entries(&self, places: Range<usize>) -> Vec<Listed> {
        let used = self.slots[places].iter().map(Slot::get).filter(|e| e.key != 0);
        used.map(|e| (e.key >> 16, e.key as u16, PortNo(e.port), e.seen_s)).collect()
    }
}
