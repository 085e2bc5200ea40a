//! The table of connections: chains of entries, which packets search without waiting.
//!
//! ```text
//! heads (by hash of a tuple)          entries
//! ┌──┐
//! │ ─┼──► entry 7, original ──► entry 3, reply ──► end of chain 0
//! ├──┤
//! │ ─┼──► end of chain 1
//! └──┘
//! ```
//!
//! An entry is in two chains, by the tuples of both directions. Its memory is used again and never freed. So a search that follows a
//! link always reads an entry, if perhaps one that has moved to another chain meanwhile. Each chain ends with its own number: a
//! search that ends at another one begins again (as the *nulls* lists of Linux do).
//!
//! A chain changes under the lock of its stripe; a connection is added and removed under those of both of its chains.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use flowlane::hash::multilinear::Multilinear;
use flowlane::memory::{Memory, Slab, prefetch};

use super::entry::{Entry, Live};
use super::tuple::{Tuple, WORDS};

/// Locks of chains.
const STRIPES: usize = 4096;

/// Links above are ends of chains.
const END: u32 = 1 << 31;

/// Searches that begin again because of others' changes, before one takes a lock.
const RETRIES_MAX: usize = 16;

/// A connection in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Place {
    pub(super) entry: u32,
    /// That of the connection: a later one in the same entry has another.
    pub(super) generation: u32,
}

/// A tuple that is ready to be searched.
#[derive(Clone, Copy, Debug)]
pub struct Hashed {
    words: [u64; WORDS],
    chain: u32,
}

/// The reason for which a connection was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotAdded {
    /// There is one with this original tuple.
    Original,
    /// There is one with this reply tuple.
    Reply,
    /// There is no room.
    Full,
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    hash: Multilinear,
    /// The first link of each chain, combined with its end by exclusive or: an empty chain is 0.
    heads: Memory<AtomicU32>,
    stripes: Box<[Mutex<()>]>,
    entries: Slab<Entry>,
    limit: u32,
    room: Room,
}

/// The parts that change with each new connection: searches, which read all else, need not wait for its cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Room {
    /// Entries that have ever been used.
    used: AtomicU32,
    /// The number of connections.
    len: AtomicU32,
    /// The first free entry plus one, and a number that changes with it: 32 bits each.
    free: AtomicU64,
}

impl Table {
    /// A table of up to `limit` connections.
    pub(super) fn new(limit: usize, seed: u64) -> Self {
        let limit = limit.clamp(1, (END / 4) as usize);
        let heads = limit.next_power_of_two().max(64);
        Self {
            hash: Multilinear::new(seed),
            heads: Memory::zeroed(heads),
            stripes: (0..STRIPES.min(heads)).map(|_| Mutex::default()).collect(),
            entries: Slab::new(limit),
            limit: limit as u32,
            room: Room::default(),
        }
    }

    /// Commits the memory that the first connections need, and more before it is needed.
    pub(super) fn commit_ahead(&self) {
        // One on each page.
        self.heads.iter().step_by(1024).for_each(|head| _ = head.fetch_or(0, Ordering::Relaxed));
        self.entries.commit_ahead();
    }

    /// Returns the first link of a chain.
    #[inline]
    fn head(&self, chain: u32, order: Ordering) -> u32 {
        self.heads[chain as usize].load(order) ^ (END | chain)
    }

    fn set_head(&self, chain: u32, link: u32) {
        self.heads[chain as usize].store(link ^ (END | chain), Ordering::Release);
    }

    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.room.len.load(Ordering::Relaxed) as usize
    }

    /// Returns the number of entries that may have a connection.
    pub(super) fn used(&self) -> u32 {
        self.room.used.load(Ordering::Acquire).min(self.limit)
    }

    /// Returns an entry that has been used.
    #[inline]
    pub(super) fn entry(&self, entry: u32) -> &Entry {
        self.entries.get(entry as usize).expect("a used entry has memory")
    }

    /// Returns an entry, if it has ever been used.
    pub(super) fn try_entry(&self, entry: u32) -> Option<&Entry> {
        self.entries.get(entry as usize)
    }

    #[inline]
    pub(super) fn hashed(&self, tuple: &Tuple) -> Hashed {
        let words = tuple.words();
        let halves: [u32; 2 * WORDS] =
            std::array::from_fn(|at| (words[at / 2] >> (32 * (at as u32 % 2))) as u32);
        let chain = self.hash.hash_words(&halves) & (self.heads.len() as u32 - 1);
        Hashed { words, chain }
    }

    /// Asks for the first link of a tuple's chain.
    pub(super) fn prefetch(&self, tuple: &Hashed) {
        prefetch(&self.heads, tuple.chain as usize);
    }

    /// Asks for the first entry of a tuple's chain, whose link has been asked for before.
    pub(super) fn prefetch_entry(&self, tuple: &Hashed) {
        let link = self.head(tuple.chain, Ordering::Relaxed);
        if link < END {
            self.entries.prefetch((link >> 1) as usize);
        }
    }

    /// Finds the connection of a tuple, and the direction that the tuple is of.
    #[inline]
    pub(super) fn find(&self, tuple: &Hashed) -> Option<(Place, usize)> {
        for _ in 0..RETRIES_MAX {
            if let Ok(found) = self.search(tuple) {
                return found;
            }
        }
        let _lock = self.lock(tuple.chain);
        self.search(tuple).expect("a locked chain does not change")
    }

    /// Searches a chain; fails if others have changed it meanwhile.
    #[inline]
    fn search(&self, tuple: &Hashed) -> Result<Option<(Place, usize)>, ()> {
        let mut link = self.head(tuple.chain, Ordering::Acquire);
        while link < END {
            let (entry, direction) = (self.entry(link >> 1), (link & 1) as usize);
            let generation = entry.generation();
            if entry.has(direction, &tuple.words) && generation.is_multiple_of(2) {
                // Who uses the connection asks for this generation.
                return Ok(Some((Place { entry: link >> 1, generation }, direction)));
            }
            link = entry.next[direction].load(Ordering::Acquire);
        }
        if link == END | tuple.chain { Ok(None) } else { Err(()) }
    }

    fn lock(&self, chain: u32) -> MutexGuard<'_, ()> {
        let stripe = &self.stripes[chain as usize % self.stripes.len()];
        stripe.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Locks two chains, in the order that all use.
    fn lock_both(&self, [a, b]: [u32; 2]) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let stripe = |chain: u32| chain as usize % self.stripes.len();
        match stripe(a).cmp(&stripe(b)) {
            std::cmp::Ordering::Less => (self.lock(a), Some(self.lock(b))),
            std::cmp::Ordering::Equal => (self.lock(a), None),
            std::cmp::Ordering::Greater => {
                let second = self.lock(b);
                (second, Some(self.lock(a)))
            }
        }
    }

    /// Returns whether a chain, which is locked, has a connection with this tuple.
    fn chain_has(&self, tuple: &Hashed) -> bool {
        let mut link = self.head(tuple.chain, Ordering::Relaxed);
        while link < END {
            let (entry, direction) = (self.entry(link >> 1), (link & 1) as usize);
            if entry.is_live() && entry.has(direction, &tuple.words) {
                return true;
            }
            link = entry.next[direction].load(Ordering::Relaxed);
        }
        false
    }

    /// Adds a connection with its tuples.
    ///
    /// # Errors
    /// If one of the tuples is another connection's, or there is no room.
    pub(super) fn add(&self, tuples: [Tuple; 2], live: Live, expires_ms: u64) -> Result<Place, NotAdded> {
        let number = self.allocate().ok_or(NotAdded::Full)?;
        let entry = self.entry(number);
        let hashed = tuples.map(|tuple| self.hashed(&tuple));
        let _locks = self.lock_both(hashed.map(|tuple| tuple.chain));
        // A packet from an end to itself has one tuple both ways.
        let is_one = tuples[0] == tuples[1];
        let refused = if self.chain_has(&hashed[0]) {
            Some(NotAdded::Original)
        } else if !is_one && self.chain_has(&hashed[1]) {
            Some(NotAdded::Reply)
        } else {
            None
        };
        if let Some(refused) = refused {
            self.release(number);
            return Err(refused);
        }
        entry.fill(tuples, live, expires_ms);
        let place = Place { entry: number, generation: entry.generation() };
        for (direction, tuple) in hashed.iter().enumerate().take(if is_one { 1 } else { 2 }) {
            entry.next[direction].store(self.head(tuple.chain, Ordering::Relaxed), Ordering::Release);
            self.set_head(tuple.chain, number << 1 | direction as u32);
        }
        self.room.len.fetch_add(1, Ordering::Relaxed);
        Ok(place)
    }

    /// Removes a connection. Returns it, with its tuples, to the one who has removed it.
    pub(super) fn remove(&self, place: Place) -> Option<([Tuple; 2], Live)> {
        let entry = self.entry(place.entry);
        let live = entry.end(place.generation)?;
        // No other one uses the entry before it is released.
        let tuples = [entry.tuple(0), entry.tuple(1)];
        let hashed = tuples.map(|tuple| self.hashed(&tuple));
        {
            let _locks = self.lock_both(hashed.map(|tuple| tuple.chain));
            for (direction, tuple) in hashed.iter().enumerate() {
                self.unlink(tuple.chain, place.entry << 1 | direction as u32);
            }
        }
        self.room.len.fetch_sub(1, Ordering::Relaxed);
        self.release(place.entry);
        Some((tuples, live))
    }

    /// Takes a link out of a chain, which is locked.
    fn unlink(&self, chain: u32, link: u32) {
        let mut before: Option<&AtomicU32> = None;
        loop {
            let here = before
                .map_or_else(|| self.head(chain, Ordering::Relaxed), |before| before.load(Ordering::Relaxed));
            if here >= END {
                return;
            }
            let next = &self.entry(here >> 1).next[(here & 1) as usize];
            if here == link {
                let behind = next.load(Ordering::Relaxed);
                return match before {
                    Some(before) => before.store(behind, Ordering::Release),
                    None => self.set_head(chain, behind),
                };
            }
            before = Some(next);
        }
    }

    /// Takes a free entry.
    fn allocate(&self) -> Option<u32> {
        let mut free = self.room.free.load(Ordering::Acquire);
        while let Some(number) = (free as u32).checked_sub(1) {
            let next = u64::from(self.entry(number).next_free.load(Ordering::Relaxed));
            let changed = ((free >> 32) + 1) << 32 | next;
            match self.room.free.compare_exchange_weak(free, changed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(number),
                Err(now) => free = now,
            }
        }
        let is_room = |used: u32| (used < self.limit).then_some(used + 1);
        let number = self.room.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_room).ok()?;
        self.entries.make(number as usize);
        Some(number)
    }

    /// Gives an entry back that no chain has.
    fn release(&self, number: u32) {
        let mut free = self.room.free.load(Ordering::Acquire);
        loop {
            self.entry(number).next_free.store(free as u32, Ordering::Relaxed);
            let changed = ((free >> 32) + 1) << 32 | u64::from(number + 1);
            match self.room.free.compare_exchange_weak(free, changed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }
}
