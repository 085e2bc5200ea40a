//! Entries: the memory of one connection, which is used again for others.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::alg::Alg;
use super::protocol::State;
use super::sweep::Listed;
use super::tuple::{Tuple, WORDS};

/// The ends that are translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Translated {
    pub source: bool,
    pub destination: bool,
}

impl Translated {
    /// Returns whether none is.
    pub fn is_none(self) -> bool {
        !self.source && !self.destination
    }

    /// Returns the ends of packets that go back.
    pub fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source }
    }
}

/// The part of a connection that its packets change.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) state: State,
    pub(super) mark: u32,
    /// The low and the high half.
    label: [u64; 2],
    pub(super) translated: Translated,
    pub(super) begun_ms: u64,
    /// Its part in an application's protocol; most connections have none.
    pub(super) alg: Option<Box<Alg>>,
}

impl Live {
    pub(super) fn new(state: State, begun_ms: u64) -> Self {
        Self { state, mark: 0, label: [0; 2], translated: Translated::default(), begun_ms, alg: None }
    }

    pub(super) fn label(&self) -> u128 {
        u128::from(self.label[1]) << 64 | u128::from(self.label[0])
    }

    pub(super) fn set_label(&mut self, label: u128) {
        self.label = [label as u64, (label >> 64) as u64];
    }
}

/// The memory of one connection.
///
/// Tuples are read without a lock by those who search a chain; they change only while no chain has the entry, and the
/// generation says whether they have.
/// A search reads its first line, and its second for a reply.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Entry {
    /// The next links of the chains of the original and the reply tuple.
    pub(super) next: [AtomicU32; 2],
    /// Of the list of free entries.
    pub(super) next_free: AtomicU32,
    /// Even while the entry has a connection; it goes up when it gets one and when it loses it.
    generation: AtomicU32,
    expires_ms: AtomicU64,
    tuples: [[AtomicU64; WORDS]; 2],
    live: Mutex<Option<Live>>,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            next: Default::default(),
            next_free: AtomicU32::new(0),
            generation: AtomicU32::new(1),
            expires_ms: AtomicU64::new(0),
            tuples: Default::default(),
            live: Mutex::new(None),
        }
    }
}

impl Entry {
    /// Returns whether a tuple is this one. The entry may be another connection's a moment later.
    #[inline]
    pub(super) fn has(&self, direction: usize, words: &[u64; WORDS]) -> bool {
        self.tuples[direction].iter().zip(words).all(|(own, word)| own.load(Ordering::Relaxed) == *word)
    }

    /// Returns a tuple. The caller knows that the entry is not used for another connection meanwhile, or does not mind.
    pub(super) fn tuple(&self, direction: usize) -> Tuple {
        Tuple::of_words(std::array::from_fn(|w| self.tuples[direction][w].load(Ordering::Relaxed)))
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn is_live(&self) -> bool {
        self.generation().is_multiple_of(2)
    }

    #[inline]
    pub(super) fn expires_ms(&self) -> u64 {
        self.expires_ms.load(Ordering::Relaxed)
    }

    pub(super) fn set_expiry(&self, ms: u64) {
        self.expires_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the connection for reports; `live` is its own.
    pub(super) fn listed(&self, live: &Live, now_ms: u64) -> Listed {
        Listed::of([self.tuple(0), self.tuple(1)], live, (now_ms, self.expires_ms()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Live>> {
        // The holder of the lock only sets fields, and does not panic.
        self.live.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Works on the connection of a generation, if it is still there.
    #[inline]
    pub(super) fn with<T>(&self, generation: u32, work: impl FnOnce(&mut Live) -> T) -> Option<T> {
        let mut live = self.lock();
        match &mut *live {
            Some(live) if self.generation() == generation => Some(work(live)),
            _ => None,
        }
    }

    /// Works on the connection, unless another thread uses it at this moment.
    pub(super) fn peek<T>(&self, work: impl FnOnce(&Live) -> T) -> Option<T> {
        let live = self.live.try_lock().ok()?;
        live.as_ref().map(work)
    }

    /// Gives a free entry, which no chain has, to a connection.
    pub(super) fn fill(&self, tuples: [Tuple; 2], live: Live, expires_ms: u64) {
        let mut place = self.lock();
        for (own, tuple) in self.tuples.iter().zip(tuples) {
            own.iter().zip(tuple.words()).for_each(|(own, word)| own.store(word, Ordering::Relaxed));
        }
        self.set_expiry(expires_ms);
        *place = Some(live);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Ends the connection of a generation. Returns it to the one who has ended it.
    pub(super) fn end(&self, generation: u32) -> Option<Live> {
        let mut live = self.lock();
        if self.generation() != generation {
            return None;
        }
        self.generation.fetch_add(1, Ordering::Release);
        live.take()
    }
}
