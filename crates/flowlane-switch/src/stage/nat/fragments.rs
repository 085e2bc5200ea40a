//! Fragmented datagrams, by their first fragments.
//!
//! **When the table is full**, a first fragment takes the room of another one: of the next [`COMPARED`] entries, that of the source
//! with most of them, the one recorded longest ago. So first fragments that are never completed take the room of their own source's
//! if all come from one; if they come from many, a datagram whose fragments follow each other closely is complete before its
//! turn.

use std::cmp::Reverse;

use super::FRAGMENT_IDLE_S;
use crate::stage::ageing::{FULL_BUDGET, idle_ticks};
use crate::stage::table::AgedTable;

/// A datagram: its source and destination before translation, its protocol and identification.
pub(super) type Datagram = [u32; 3];

/// Entries that are compared for the one to be forgotten.
const COMPARED: u32 = 16;

/// Fragmented datagrams, each with a value from its first fragment.
#[derive(Debug)]
pub(super) struct Fragments<T> {
    table: AgedTable<3, T>,
    /// The first of the next entries to be compared.
    hand: u32,
}

impl<T: Copy> Fragments<T> {
    /// A table of up to `datagrams_max` datagrams.
    pub(super) fn new(datagrams_max: usize, seed: u32) -> Self {
        Self { table: AgedTable::new(datagrams_max, seed), hand: 0 }
    }

    /// Returns the entry of a datagram.
    pub(super) fn find(&self, datagram: &Datagram, now: u32) -> Option<u32> {
        self.table.find(datagram, now).live()
    }

    /// Returns the value of a datagram.
    pub(super) fn get(&self, at: u32) -> T {
        self.table.entries.get(at).value
    }

    /// Forgets a datagram after this many ticks, unless another first fragment comes.
    pub(super) fn shorten(&mut self, at: u32, idle: u32) {
        self.table.entries.change_idle(at, idle);
    }

    /// Forgets datagrams whose time is over, looking at up to `budget` entries.
    #[inline]
    pub(super) fn age(&mut self, now: u32, budget: usize) {
        self.table.age(now, budget);
    }

    /// Returns the bytes allocated.
    pub(super) fn table_bytes(&self) -> usize {
        self.table.table_bytes()
    }

    /// Records a first fragment. Returns the number of datagrams that are forgotten for it; it may be its own, if the cuckoo table
    /// refuses the key.
    pub(super) fn record(&mut self, datagram: &Datagram, value: T, now: u32) -> u64 {
        let idle = idle_ticks(FRAGMENT_IDLE_S);
        if let Some(at) = self.table.commit(self.table.find(datagram, now)) {
            self.table.entries.get_mut(at).value = value;
            self.table.entries.touch(at, now);
            self.table.entries.change_idle(at, idle);
            return 0;
        }
        if self.table.entries.is_full() {
            self.table.age(now, FULL_BUDGET);
        }
        let is_full = self.table.entries.is_full();
        if is_full {
            self.forget_one();
        }
        u64::from(is_full) + u64::from(self.table.insert(datagram, value, idle, now).is_none())
    }

    /// Makes room in a full table, in which every number is an entry's.
    #[cold]
    fn forget_one(&mut self) {
        let entries = &self.table.entries;
        let len = entries.len() as u32;
        let compared: Vec<u32> = (0..COMPARED.min(len)).map(|i| (self.hand + i) % len).collect();
        let source = |at: u32| entries.get(at).key[0];
        let of_source = |at: u32| compared.iter().filter(|&&other| source(other) == source(at)).count();
        let first = compared
            .iter()
            .copied()
            .min_by_key(|&at| (Reverse(of_source(at)), entries.used(at), entries.get(at).key))
            .expect("a full table has entries");
        self.hand = (self.hand + COMPARED) % len;
        self.table.remove(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_fragments_of_one_source_or_of_many_take_no_room_from_datagrams_that_are_completed() {
        for is_forged in [false, true] {
            let mut fragments = Fragments::new(1024, 7);
            let (mut identification, mut kept) = (0, 0);
            // Ten first fragments of the flood for each of the other host, whose later fragments come a little after.
            for tick in 0..3000u32 {
                let own = [1, 9, tick];
                fragments.record(&own, tick, tick / 100);
                for _ in 0..10 {
                    identification += 1;
                    let source = if is_forged { 2 + identification } else { 2 };
                    fragments.record(&[source, 9, identification], 0, tick / 100);
                }
                kept +=
                    u32::from(fragments.find(&own, tick / 100).is_some_and(|at| fragments.get(at) == tick));
            }
            assert!(kept >= 2990, "{kept} of 3000, forged: {is_forged}");
        }
    }

    #[test]
    fn a_source_that_floods_gets_no_more_room_than_others_need() {
        let mut fragments = Fragments::new(100, 3);
        for id in 0..1000 {
            fragments.record(&[2, 9, id], 0, 0);
        }
        // All of them fit beside the flood, and stay.
        for id in 0..20 {
            fragments.record(&[1, 9, id], 0, 0);
            fragments.record(&[2, 9, 1000 + id], 0, 0);
        }
        (2000..3000).for_each(|id| _ = fragments.record(&[2, 9, id], 0, 0));
        let kept = (0..20).filter(|&id| fragments.find(&[1, 9, id], 0).is_some()).count();
        assert!(kept >= 19, "{kept} of 20");
    }
}
