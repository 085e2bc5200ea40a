//! The event heap.
//!
//! Events are ordered by time in picoseconds, then by component, then by the order of scheduling. All three are
//! integers, so that every run on every host sees the same order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Picoseconds since the beginning of a run.
pub type Ps = u64;

/// A time that is not known yet.
pub const UNKNOWN: Ps = Ps::MAX;

/// The component that an event concerns: the second key of the order.
pub type Component = u32;

/// A scheduled event. Sequence numbers are unique, so that events themselves are never compared.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Scheduled<E> {
    at: Ps,
    component: Component,
    sequence: u64,
    event: E,
}

/// The pending events.
#[derive(Debug)]
pub struct EventHeap<E> {
    heap: BinaryHeap<Reverse<Scheduled<E>>>,
    sequence: u64,
    now: Ps,
}

impl<E: Ord> Default for EventHeap<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0, now: 0 }
    }
}

impl<E: Ord> EventHeap<E> {
    /// Returns the time of the last event taken.
    pub fn now(&self) -> Ps {
        self.now
    }

    /// Schedules an event; a time in the past counts as now.
    pub fn at(&mut self, at: Ps, component: Component, event: E) {
        let at = at.max(self.now);
        self.heap.push(Reverse(Scheduled { at, component, sequence: self.sequence, event }));
        self.sequence += 1;
    }

    /// Takes the next event and advances the time.
    #[expect(clippy::should_implement_trait, reason = "an iterator's next does not move a clock")]
    pub fn next(&mut self) -> Option<E> {
        let Reverse(next) = self.heap.pop()?;
        self.now = next.at;
        Some(next.event)
    }

    /// Returns the number of events scheduled so far.
    pub fn scheduled(&self) -> u64 {
        self.sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_component_then_order() {
        let mut heap = EventHeap::default();
        for (at, component, name) in [(5, 1, 'd'), (5, 0, 'b'), (3, 9, 'a'), (5, 0, 'c')] {
            heap.at(at, component, name);
        }
        let order: String = std::iter::from_fn(|| heap.next()).collect();
        assert_eq!((order.as_str(), heap.now()), ("abcd", 5));
    }

    #[test]
    fn an_event_in_the_past_happens_now() {
        let mut heap = EventHeap::default();
        heap.at(10, 0, 1);
        heap.next();
        heap.at(4, 0, 2);
        heap.next();
        assert_eq!(heap.now(), 10);
    }
}
