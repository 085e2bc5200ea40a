//! When may memory that readers could still see be used again?
//!
//! The writer unlinks pieces, stamps them with the epoch, and begins the next one when it looks which are free.
//! A reader notes the epoch when it begins a batch, and that it has none when it ends it. A piece is free when no
//! reader is inside a batch that began in the epoch of its stamp or before: such a reader is the only one that can
//! hold a way to it.
//!
//! A reader writes to a cache line of its own only, and pays one fence a batch. One that sleeps outside of a
//! batch holds nothing up. What all readers read at the beginning of each batch, the epoch and the table's places in
//! memory, is written as seldom as the writer looks for free pieces: written with each change, it took readers a
//! quarter of their time.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU64, fence};

/// A reader outside of batches.
const OUTSIDE: u64 = u64::MAX;

/// One reader's place, alone on its cache lines (two, since neighbours are fetched in pairs).
#[derive(Debug)]
#[repr(align(128))]
struct Place(AtomicU64);

/// The epochs of one table, shared by its writer and its readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epochs(Arc<Shared>);

// Alone on its lines: what the allocator puts beside it may be the writer's, and is written with each change.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shared {
    now: AtomicU64,
    /// Locked by threads that create readers, and by the writer.
    places: Mutex<Vec<Weak<Place>>>,
}

/// A reader's part. It belongs to one thread at a time.
#[derive(Debug)]
pub(crate) struct Participant {
    epochs: Epochs,
    place: Arc<Place>,
    one_thread: PhantomData<Cell<()>>,
}

/// Inside a batch as long as it lives.
#[must_use]
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Participant);

impl Epochs {
    /// Returns another reader.
    pub(crate) fn join(&self) -> Participant {
        let place = Arc::new(Place(AtomicU64::new(OUTSIDE)));
        let mut places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|place| place.strong_count() != 0);
        places.push(Arc::downgrade(&place));
        Participant { epochs: self.clone(), place, one_thread: PhantomData }
    }

    /// Returns the stamp of what has been unlinked.
    pub(crate) fn stamp(&self) -> u64 {
        self.0.now.load(Relaxed)
    }

    /// Ends the epoch. Returns the oldest one in which a reader may still be: what has an earlier stamp is free.
    pub(crate) fn oldest(&self) -> u64 {
        self.0.now.fetch_add(1, Release);
        // Either this sees a reader's note, or the reader sees the earlier unlinking: see `enter`.
        fence(SeqCst);
        let places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = places.iter().filter_map(Weak::upgrade).map(|place| place.0.load(Acquire));
        noted.min().unwrap_or(OUTSIDE).min(self.0.now.load(Relaxed))
    }
}

impl Participant {
    /// Begins a batch.
    #[inline]
    pub(crate) fn enter(&self) -> Inside<'_> {
        let now = self.epochs.0.now.load(Acquire);
        self.place.0.store(now, Relaxed);
        fence(SeqCst);
        Inside(self)
    }
}

impl Clone for Participant {
    fn clone(&self) -> Self {
        self.epochs.join()
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.place.0.store(OUTSIDE, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn memory_that_a_reader_may_see_is_not_free() {
        let epochs = Epochs::default();
        let (reader, other) = (epochs.join(), epochs.join());
        let stamp = epochs.stamp();
        assert!(epochs.oldest() > stamp, "there are no readers");
        let inside = reader.enter();
        let stamp = epochs.stamp();
        assert!(epochs.oldest() <= stamp, "the first reader came before");
        let late = other.enter();
        drop(inside);
        assert!(epochs.oldest() > stamp, "the second came after");
        let stamp = epochs.stamp();
        assert!(epochs.oldest() <= stamp, "and before this stamp");
        drop(late);
        drop(other);
        assert!(epochs.oldest() > stamp, "readers that are gone hold nothing up");
    }

    #[test]
    fn places_of_readers_that_are_gone_are_given_back() {
        let epochs = Epochs::default();
        for _ in 0..100 {
            drop(epochs.join());
        }
        assert!(epochs.0.places.lock().expect("no thread panicked").len() <= 1);
    }
}

/// Every order in which a reader and the writer can take turns, and every value that a relaxed load may return:
/// `RUSTFLAGS="--cfg loom" cargo test -p flowlane --release epoch::model`.
#[cfg(all(loom, test))]
mod model {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    use super::*;

    /// Two pieces of memory, of which `shown` is the one that readers are led to.
    struct Table {
        shown: AtomicUsize,
        pieces: [AtomicU64; 2],
    }

    const USED_AGAIN: u64 = 99;

    /// Shows the other piece, and uses the first one again as soon as that is allowed; returns whether it was.
    fn replace(table: &Table, epochs: &Epochs) -> bool {
        table.pieces[1].store(20, Relaxed);
        table.shown.store(1, Release);
        let stamp = epochs.stamp();
        let is_free = stamp < epochs.oldest();
        if is_free {
            table.pieces[0].store(USED_AGAIN, Relaxed);
        }
        is_free
    }

    fn read(table: &Table, reader: &Participant) {
        let _inside = reader.enter();
        let piece = table.shown.load(Acquire);
        let found = table.pieces[piece].load(Relaxed);
        assert_eq!(found, [10, 20][piece], "piece {piece}");
    }

    fn check(readers: usize, batches: usize) {
        loom::model(move || {
            let pieces = [AtomicU64::new(10), AtomicU64::new(0)];
            let table = Arc::new(Table { shown: AtomicUsize::new(0), pieces });
            let epochs = Epochs::default();
            let reading: Vec<_> = (0..readers)
                .map(|_| {
                    let (table, reader) = (Arc::clone(&table), epochs.join());
                    thread::spawn(move || (0..batches).for_each(|_| read(&table, &reader)))
                })
                .collect();
            let _ = replace(&table, &epochs);
            reading.into_iter().for_each(|thread| thread.join().expect("does not panic"));
            assert!(epochs.stamp() < epochs.oldest(), "there are no readers any more");
        });
    }

    #[test]
    fn memory_that_a_reader_may_see_is_not_reused() {
        check(1, 2);
    }

    #[test]
    fn nor_what_one_of_two_readers_may_see() {
        check(2, 1);
    }
}
