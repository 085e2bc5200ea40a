//! The model of the fragmented datagrams of address translation: a map, and fragments of three places.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::stage::nat::Refusal;

/// Source, destination, protocol, identification.
type Datagram = (u32, u32, u8, u16);

/// The translation of a first fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub(super) verdict: u32,
    pub(super) src: u32,
    pub(super) dst: u32,
}

/// A datagram of which fragments are missing.
#[derive(Clone, Debug)]
struct Incomplete {
    first: First,
    since: u64,
    /// How often the middle fragment and the last have come.
    came: [u32; 2],
}

pub(super) struct Fragments {
    datagrams_max: usize,
    incomplete: HashMap<Datagram, Incomplete>,
}

impl Fragments {
    pub(super) fn new(datagrams_max: usize) -> Self {
        Self { datagrams_max, incomplete: HashMap::new() }
    }

    pub(super) fn expire(&mut self, now: u64) {
        // 15 s are 112 ticks, rounded up.
        self.incomplete.retain(|_, datagram| now - datagram.since <= 112);
    }

    /// Returns the first fragment of a later one.
    pub(super) fn later(&mut self, datagram: &Datagram, is_last: bool) -> Option<First> {
        let known = self.incomplete.get_mut(datagram)?;
        known.came[usize::from(is_last)] += 1;
        let (first, is_complete) = (known.first, known.came == [1; 2]);
        if is_complete {
            self.incomplete.remove(datagram);
        }
        Some(first)
    }

    fn of_source(&self, source: u32) -> usize {
        self.incomplete.keys().filter(|other| other.0 == source).count()
    }

    pub(super) fn may_remember(&self, datagram: &Datagram) -> Result<(), Refusal> {
        let free = self.datagrams_max - self.incomplete.len();
        let may = self.incomplete.contains_key(datagram) || self.of_source(datagram.0) < free.max(1);
        if may { Ok(()) } else { Err(Refusal::SourceIncomplete) }
    }

    /// Returns how many other datagrams are forgotten for this one.
    pub(super) fn remember(&mut self, datagram: Datagram, first: First, now: u64) -> u64 {
        let forgets = !self.incomplete.contains_key(&datagram) && self.incomplete.len() == self.datagrams_max;
        if forgets {
            // Of the source with most, the one longest there.
            let oldest = self.incomplete.iter().min_by_key(|&(&(src, dst, proto, id), known)| {
                (Reverse(self.of_source(src)), known.since, src, dst, proto, id)
            });
            let (&forgotten, _) = oldest.unwrap();
            self.incomplete.remove(&forgotten);
        }
        self.incomplete.insert(datagram, Incomplete { first, since: now, came: [0; 2] });
        forgets.into()
    }
}
