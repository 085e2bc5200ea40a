//! Values that are too large for a table's entries: they lie beside it, and the table holds their places.
//!
//! One writer sets values, and readers on other threads read them meanwhile. A place is used again when its key is gone, so that a reader
//! which has found a place in the table may read another key's value there. Each place counts how often it was set: a reader
//! reads the count, asks the table a second time whether the key still has the place, reads the value, and the count again. It has
//! the key's value where all agree, and starts again otherwise:
//!
//! ```text
//! writer                               reader
//! removes the key from the table       place ← table
//! count + 1      (release)             count (acquire)
//! value          (behind a fence)      place again: the table's reads acquire
//! inserts another key with the place   value, then the count again (behind a fence)
//! ```
//!
//! Were the count that of another key, the reader would have seen the removal, which came before it; were the value another key's,
//! it would see that key's count. `loom.rs` checks this for every order.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::sync::{AtomicU64, fence};

/// Places of the first segment; each further one has as many as all before it and as the first together.
const FIRST: usize = 64;

/// Segments, of which the last places are beyond 2³⁰: the most keys of a table, and one that is replaced.
const SEGMENTS: usize = 26;

/// Values by places, from 0 on. Segments are made as they are needed and never move.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    segments: [OnceLock<Box<[Place]>>; SEGMENTS],
}

#[derive(Debug, Default)]
struct Place {
    /// How often the value was set.
    count: AtomicU64,
    value: AtomicU64,
}

impl Beside {
    /// Returns a place that has been set.
    #[inline]
    fn place(&self, place: u32) -> &Place {
        let (segment, at) = segment_of(place);
        &self.segments[segment].get().expect("the writer made it before a key had the place")[at]
    }

    /// Sets the value of a place that no key of the table has. Only the writer does.
    pub(crate) fn set(&self, place: u32, value: u64) {
        let segment = segment_of(place).0;
        self.segments[segment].get_or_init(|| (0..FIRST << segment).map(|_| Place::default()).collect());
        let place = self.place(place);
        place.count.store(place.count.load(Relaxed) + 1, Release);
        fence(Release);
        place.value.store(value, Relaxed);
    }

    /// Returns the value of a place that has a key, where no writer is at work.
    #[inline]
    pub(crate) fn get(&self, place: u32) -> u64 {
        self.place(place).value.load(Relaxed)
    }

    /// Returns how often the value of a place was set: see [`read`](Self::read).
    #[inline]
    pub(crate) fn count(&self, place: u32) -> u64 {
        self.place(place).count.load(Acquire)
    }

    /// Returns the value of a place, if its count is still this one. It is the value of the key that the table gave the place to after the
    /// count was read.
    #[inline]
    pub(crate) fn read(&self, place: u32, count: u64) -> Option<u64> {
        let place = self.place(place);
        let value = place.value.load(Relaxed);
        fence(Acquire);
        (place.count.load(Relaxed) == count).then_some(value)
    }

    /// Returns the bytes of the segments that there are.
    pub(crate) fn size_bytes(&self) -> usize {
        self.segments.iter().filter_map(OnceLock::get).map(|segment| size_of_val(&**segment)).sum()
    }
}

/// The segment of a place, and where it is in the segment.
#[inline]
fn segment_of(place: u32) -> (usize, usize) {
    let from_first = place as usize + FIRST;
    let segment = (from_first / FIRST).ilog2() as usize;
    (segment, from_first - (FIRST << segment))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn places_follow_each_other_through_the_segments() {
        let mut next = (0, 0);
        for place in 0..1 << 16 {
            assert_eq!(segment_of(place), next, "{place}");
            next = if next.1 + 1 == FIRST << next.0 { (next.0 + 1, 0) } else { (next.0, next.1 + 1) };
        }
        assert!(segment_of(1 << 30).0 < SEGMENTS, "there are segments for the most keys");
    }

    #[test]
    fn a_value_set_again_is_not_read_by_the_old_count() {
        let beside = Beside::default();
        beside.set(200, 7);
        let count = beside.count(200);
        assert_eq!((beside.get(200), beside.read(200, count)), (7, Some(7)));
        beside.set(200, 8);
        assert_eq!((beside.get(200), beside.read(200, count)), (8, None));
        assert_eq!(beside.read(200, beside.count(200)), Some(8));
        assert_eq!(beside.size_bytes(), 16 * 4 * FIRST, "the segment of the place alone");
    }
}
