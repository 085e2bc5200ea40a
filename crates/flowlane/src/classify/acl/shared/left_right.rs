//! Two copies of a value: readers look at the one, the writer changes the other, and then they swap.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use crate::memory::CachePadded;

use super::sync::{AtomicUsize, UnsafeCell, fence, pause};

/// The epoch of a reader that is no more.
const GONE: usize = usize::MAX - 1;

/// Odd while its reader looks.
type Epoch = CachePadded<AtomicUsize>;

struct Pair<T> {
    copies: [UnsafeCell<T>; 2],
    /// Which copy readers that begin now look at.
    shown: CachePadded<AtomicUsize>,
    readers: CachePadded<Mutex<Vec<Arc<Epoch>>>>,
}

// SAFETY: readers share `&T`, the writer has `&mut T` of the copy at which no reader looks, from any thread.
unsafe impl<T: Send + Sync> Send for Pair<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Pair<T> {}

impl<T> Pair<T> {
    fn reader(self: &Arc<Self>) -> Reader<T> {
        let epoch = Arc::new(CachePadded(AtomicUsize::new(0)));
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(epoch.clone());
        Reader { pair: self.clone(), epoch }
    }
}

/// Looks at the copy that is shown.
pub(super) struct Reader<T> {
    pair: Arc<Pair<T>>,
    epoch: Arc<Epoch>,
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        self.pair.reader()
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        // Release: what it read was read before. The count of references says less: it is read without order.
        self.epoch.0.store(GONE, Release);
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

/// Ends a look, also where it panics.
struct Looking<'a>(&'a Epoch);

impl Drop for Looking<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: what was read was read before.
        self.0.0.store(self.0.0.load(Relaxed).wrapping_add(1), Release);
    }
}

impl<T> Reader<T> {
    /// Calls `look` with the value as it is: a whole state, which does not change meanwhile. Never waits.
    // Exclusive, so that a reader never looks twice at a time: its epoch would be even.
    #[inline]
    pub(super) fn look<R>(&mut self, look: impl FnOnce(&T) -> R) -> R {
        let epoch = &self.epoch.0;
        // Release: a writer that waits for the end of an earlier look may see the beginning of this one instead.
        epoch.store(epoch.load(Relaxed).wrapping_add(1), Release);
        // Either the writer sees that this reader looks, or this reader sees what the writer shows.
        fence(SeqCst);
        let _looking = Looking(&self.epoch);
        let shown = self.pair.shown.load(Acquire);
        // SAFETY: the writer does not change a copy that is shown, nor the other before every reader that may have
        // begun with it has ended.
        self.pair.copies[shown].with(|value| look(unsafe { &*value }))
    }
}

/// Changes the copy that is not shown, and shows it.
pub(super) struct Writer<T> {
    pair: Arc<Pair<T>>,
    /// Which copy is hidden.
    hidden: usize,
    /// The readers that looked when the copies were swapped last, and their epochs: some may still look at what is
    /// hidden now.
    looking: Vec<(Arc<Epoch>, usize)>,
}

impl<T> fmt::Debug for Writer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}

impl<T> Writer<T> {
    /// Two copies of the same.
    pub(super) fn new(value: T, same: T) -> Self {
        let pair = Pair {
            copies: [UnsafeCell::new(value), UnsafeCell::new(same)],
            shown: CachePadded(AtomicUsize::new(0)),
            readers: CachePadded(Mutex::new(Vec::new())),
        };
        Self { pair: Arc::new(pair), hidden: 1, looking: Vec::new() }
    }

    pub(super) fn reader(&self) -> Reader<T> {
        self.pair.reader()
    }

    /// The copy that is shown.
    pub(super) fn shown<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        // SAFETY: only the writer, which is borrowed, changes copies.
        self.pair.copies[1 - self.hidden].with(|value| look(unsafe { &*value }))
    }

    /// The copy that is hidden, to be changed, and the one that is shown. Waits for readers that began to look at the
    /// former before the copies were swapped.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut T, &T) -> R) -> R {
        for (reader, epoch) in self.looking.drain(..) {
            while reader.0.load(Acquire) == epoch {
                pause();
            }
        }
        let copies = &self.pair.copies;
        copies[1 - self.hidden].with(|shown| {
            copies[self.hidden].with_mut(|hidden| {
                // SAFETY: nobody looks at the hidden copy any more, and nobody begins to before it is shown; the shown
                // one is not changed.
                unsafe { change(&mut *hidden, &*shown) }
            })
        })
    }

    /// Swaps the copies. Does not wait.
    pub(super) fn swap(&mut self) {
        debug_assert!(self.looking.is_empty(), "a copy is changed before it is shown");
        // Release: what was changed is changed for who sees this.
        self.pair.shown.store(self.hidden, Release);
        self.hidden = 1 - self.hidden;
        let mut readers = self.pair.readers.lock().unwrap_or_else(PoisonError::into_inner);
        fence(SeqCst);
        // A reader that registers after this sees what is shown: it takes the lock after the writer.
        readers.retain(|reader| {
            let epoch = reader.0.load(Acquire);
            if epoch % 2 == 1 {
                self.looking.push((reader.clone(), epoch));
            }
            epoch != GONE
        });
    }
}
