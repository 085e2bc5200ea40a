//! Values that are made as they are needed and never move, in one piece of address space.

use std::fmt;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{Builder, Thread};

use memmap2::{MmapMut, MmapOptions};

use super::{HUGE_BYTES, prefetch_at};

/// Values that are made at a time: no thread waits for more.
const STEP: usize = 512;

enum Bytes<T> {
    Allocated(Vec<MaybeUninit<T>>),
    Mapped(Arc<MmapMut>),
}

/// Up to a number of values, which threads share. Each is made with its first use, and stays where it is; together they are on huge
/// pages where they are large. Memory is committed when values are made.
///
/// ```
/// use flowlane::memory::Slab;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// let slab: Slab<AtomicU32> = Slab::new(1_000_000);
/// assert!(slab.get(7).is_none());
/// slab.make(7).store(3, Ordering::Relaxed);
/// assert_eq!(slab.get(7).map(|value| value.load(Ordering::Relaxed)), Some(3));
/// ```
pub struct Slab<T> {
    /// The memory that `start` leads into.
    bytes: Bytes<T>,
    start: *mut T,
    limit: usize,
    /// The values before this one have been made.
    made: AtomicUsize,
    /// Held while values are made.
    making: Mutex<()>,
    ahead: OnceLock<Ahead>,
}

// SAFETY: it owns its values, as a Vec<T> does.
unsafe impl<T: Send> Send for Slab<T> {}
// SAFETY: `&Slab<T>` gives `&T`, and makes values that the slab's owner drops, perhaps on another thread.
unsafe impl<T: Send + Sync> Sync for Slab<T> {}

impl<T> Slab<T> {
    /// The value at a place, if it has been made.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&T> {
        // SAFETY: values before `made` have been written, before it was stored, and are not written again; they do not move.
        (place < self.made.load(Ordering::Acquire)).then(|| unsafe { &*self.start.add(place) })
    }

    /// Asks for the cache lines of a value, to be used soon.
    #[inline]
    pub fn prefetch(&self, place: usize) {
        let first: *const u8 = self.start.wrapping_add(place).cast();
        (0..size_of::<T>()).step_by(super::LINE_BYTES).for_each(|at| prefetch_at(first.wrapping_add(at)));
    }
}

impl<T: Default> Slab<T> {
    /// Room for `limit` values.
    ///
    /// # Panics
    /// Where the system has no address space, as all of Rust's collections do.
    pub fn new(limit: usize) -> Self {
        const { assert!(align_of::<T>() <= 4096) };
        let size = limit.checked_mul(size_of::<T>()).expect("the size of a table overflows");
        // Not all of it may ever be used, so that the system need not have it all.
        let map = || MmapOptions::new().len(size).no_reserve_swap().map_anon().ok();
        let mut start = std::ptr::null_mut();
        let mut bytes = match (size >= HUGE_BYTES && !cfg!(miri)).then(map).flatten() {
            Some(mut map) => {
                start = map.as_mut_ptr().cast();
                // Only a wish, as for other tables.
                #[cfg(target_os = "linux")]
                let _ = map.advise(memmap2::Advice::HugePage);
                Bytes::Mapped(Arc::new(map))
            }
            None => Bytes::Allocated(Vec::with_capacity(limit)),
        };
        if let Bytes::Allocated(values) = &mut bytes {
            start = values.as_mut_ptr().cast();
        }
        let (made, making, ahead) = (AtomicUsize::new(0), Mutex::new(()), OnceLock::new());
        Self { bytes, start, limit, made, making, ahead }
    }

    /// The value at a place, which is made if it has not been: with all before it.
    ///
    /// # Panics
    /// Where there is no such place.
    pub fn make(&self, place: usize) -> &T {
        assert!(place < self.limit, "a slab of {} has no place {place}", self.limit);
        if place >= self.made.load(Ordering::Acquire) {
            let _making = self.making.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let mut made = self.made.load(Ordering::Relaxed);
            while made <= place {
                let until = (made + STEP).min(self.limit);
                for at in made..until {
                    // SAFETY: there is room for `limit` values; no thread reads this one before `made` says that it is there,
                    // nor does another one write it, by the lock. Where `default` panics, it is written again by the next one.
                    unsafe { self.start.add(at).write(T::default()) };
                }
                self.made.store(until, Ordering::Release);
                made = until;
            }
            if let Some(ahead) = self.ahead.get() {
                ahead.follow(made * size_of::<T>());
            }
        }
        self.get(place).expect("it has been made")
    }
}

impl<T> Slab<T> {
    /// Commits memory before it is needed, from now on: the first of it at once, more on a thread that runs where the caller may. So no
    /// thread that makes values waits for the system to clear pages, some milliseconds for a huge one. Small slabs need none of it.
    pub fn commit_ahead(&self) {
        if let Bytes::Mapped(map) = &self.bytes {
            self.ahead.get_or_init(|| Ahead::start(map.clone()));
        }
    }
}

impl<T> Drop for Slab<T> {
    fn drop(&mut self) {
        let values = std::ptr::slice_from_raw_parts_mut(self.start, *self.made.get_mut());
        // SAFETY: these have been made, and no reference to them is left.
        unsafe { values.drop_in_place() };
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slab({} of {})", self.made.load(Ordering::Relaxed), self.limit)
    }
}

/// The most memory that is committed before it is needed: 80 ms of a million values of 200 bytes a second.
const AHEAD_MAX: usize = 16 << 20;

/// Commits memory on a thread.
struct Ahead {
    state: Arc<State>,
    thread: Option<Thread>,
}

struct State {
    map: Arc<MmapMut>,
    /// The bytes that are to be committed; all ones: the thread ends.
    wanted: AtomicUsize,
}

const ENDED: usize = usize::MAX;

impl Ahead {
    fn start(map: Arc<MmapMut>) -> Self {
        let state = Arc::new(State { map, wanted: AtomicUsize::new(0) });
        let is_there = state.commit(0, HUGE_BYTES);
        state.wanted.store(HUGE_BYTES, Ordering::Relaxed);
        let own = state.clone();
        let run = move || own.run(HUGE_BYTES);
        // Without the thread, and where the system cannot do it, memory is committed with its first use.
        let started = is_there.then(|| Builder::new().name("memory".to_owned()).spawn(run).ok());
        Self { state, thread: started.flatten().map(|started| started.thread().clone()) }
    }

    /// Takes note that this many bytes are in use.
    fn follow(&self, used: usize) {
        let wanted = (used + (used / 4).clamp(HUGE_BYTES, AHEAD_MAX)).next_multiple_of(HUGE_BYTES);
        if wanted > self.state.wanted.load(Ordering::Relaxed)
            && let Some(thread) = &self.thread
        {
            self.state.wanted.store(wanted, Ordering::Release);
            thread.unpark();
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.state.wanted.store(ENDED, Ordering::Release);
        self.thread.iter().for_each(Thread::unpark);
    }
}

impl State {
    /// Commits some bytes. Returns whether it could.
    fn commit(&self, from: usize, len: usize) -> bool {
        let len = len.min(self.map.len().saturating_sub(from));
        #[cfg(target_os = "linux")]
        return self.map.advise_range(memmap2::Advice::PopulateWrite, from, len).is_ok();
        #[cfg(not(target_os = "linux"))]
        return len == 0;
    }

    fn run(&self, mut committed: usize) {
        loop {
            match self.wanted.load(Ordering::Acquire) {
                ENDED => return,
                wanted if committed < wanted.min(self.map.len()) => {
                    if !self.commit(committed, HUGE_BYTES) {
                        return;
                    }
                    committed += HUGE_BYTES;
                }
                _ => std::thread::park(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_made_once_stay_where_they_are_and_are_dropped() {
        // Small, and mapped.
        for limit in [1000, HUGE_BYTES] {
            let (slab, value) = (Slab::<Mutex<Option<Arc<()>>>>::new(limit), Arc::new(()));
            assert!(slab.get(0).is_none() && slab.get(limit).is_none());
            let seventh: *const _ = slab.make(7);
            *slab.make(7).lock().unwrap() = Some(value.clone());
            *slab.make(limit - 1).lock().unwrap() = Some(value.clone());
            assert!(std::ptr::eq(slab.make(7), seventh) && slab.get(8).is_some());
            assert!(slab.make(7).lock().unwrap().is_some() && slab.get(limit).is_none());
            assert_eq!(Arc::strong_count(&value), 3);
            drop(slab);
            assert_eq!(Arc::strong_count(&value), 1);
        }
    }

    #[test]
    fn threads_that_make_values_at_once_get_the_same() {
        let slab = Slab::<AtomicUsize>::new(100_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..100_000).rev().step_by(97).for_each(|place| {
                        slab.make(place).fetch_add(1, Ordering::Relaxed);
                    });
                });
            }
        });
        let sum: usize =
            (0..100_000).filter_map(|place| slab.get(place)).map(|v| v.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 4 * 100_000usize.div_ceil(97));
    }

    #[test]
    fn memory_is_committed_ahead_of_its_use() {
        let slab = Slab::<[u64; 8]>::new(1 << 20);
        slab.commit_ahead();
        slab.commit_ahead();
        let mut sum = 0;
        for place in 0..200_000 {
            sum += slab.make(place)[0];
        }
        assert_eq!(sum, 0);
        let ahead = slab.ahead.get().map(|ahead| ahead.state.wanted.load(Ordering::Relaxed));
        // Of 12.8 MB a quarter more.
        assert!(ahead.is_none_or(|ahead| (12_800_000..20_000_000).contains(&ahead)), "{ahead:?}");
        // A small one has no thread.
        let small = Slab::<u8>::new(5);
        small.commit_ahead();
        assert!(small.ahead.get().is_none() && *small.make(0) == 0);
    }

    #[test]
    #[should_panic(expected = "a slab of 5 has no place 5")]
    fn a_place_beyond_the_limit_is_refused() {
        Slab::<u8>::new(5).make(5);
    }
}
