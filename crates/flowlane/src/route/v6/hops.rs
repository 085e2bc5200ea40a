//! Next hops as 30 bits of a word: small ones as they are, others by their place in a list without duplicates.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::memory::Memory;
use crate::route::epoch::Epochs;
use crate::route::hop_hash::ByNextHop;

/// A next hop that is listed has this bit; the bits below are its place.
pub(super) const LISTED: u32 = 1 << 29;

/// Smaller next hops are stored in words as they are. With places they fit 16 bits, as long as there are few of them.
const INLINE_END: u64 = 1 << 15;

/// Returns the next hop of `word`.
#[inline(always)]
pub(super) fn resolve(list: &[AtomicU64], word: u32) -> u64 {
    if word & LISTED == 0 { word.into() } else { list[(word & !LISTED) as usize].load(Relaxed) }
}

/// The writer's side of the list.
#[derive(Debug, Default)]
pub(super) struct Hops {
    places: HashMap<u64, u32, ByNextHop>,
    /// How many words name each place.
    uses: Vec<u32>,
    free: Vec<u32>,
    /// Places without uses, with their stamps.
    waiting: VecDeque<(u64, u32)>,
    /// Places that lost their last use in the change that is being made.
    unused: Vec<u32>,
}

impl Hops {
    /// Returns the word of a next hop, with one use more; none where the list is full.
    pub(super) fn word(&mut self, list: &Memory<AtomicU64>, next_hop: u64) -> Option<u32> {
        if next_hop < INLINE_END {
            return Some(next_hop as u32);
        }
        if let Some(place) = self.places.get(&next_hop) {
            self.uses[*place as usize] += 1;
            return Some(LISTED | place);
        }
        let place = self.free.pop().or_else(|| {
            let fresh = (self.uses.len() < list.len()).then_some(self.uses.len() as u32);
            self.uses.extend(fresh.map(|_| 0));
            fresh
        })?;
        // A place is free when no reader can come to it.
        list[place as usize].store(next_hop, Relaxed);
        self.uses[place as usize] = 1;
        self.places.insert(next_hop, place);
        Some(LISTED | place)
    }

    /// `word` is stored `times` more.
    #[inline]
    pub(super) fn hold(&mut self, word: u32, times: u32) {
        if word & LISTED != 0 {
            self.uses[(word & !LISTED) as usize] += times;
        }
    }

    /// `word` is stored once less.
    #[inline]
    pub(super) fn release(&mut self, list: &Memory<AtomicU64>, word: u32) {
        if word & LISTED == 0 {
            return;
        }
        let place = word & !LISTED;
        self.uses[place as usize] -= 1;
        if self.uses[place as usize] == 0 {
            self.places.remove(&list[place as usize].load(Relaxed));
            self.unused.push(place);
        }
    }

    /// A change has ended: what it left unused gets this stamp.
    pub(super) fn stamp(&mut self, stamp: u64) {
        self.waiting.extend(self.unused.drain(..).map(|place| (stamp, place)));
    }

    /// Makes places free that no reader sees any more.
    pub(super) fn collect(&mut self, epochs: &Epochs) {
        if self.waiting.is_empty() {
            return;
        }
        let oldest = epochs.oldest();
        while let Some((_, place)) = self.waiting.pop_front_if(|(stamp, _)| *stamp < oldest) {
            self.free.push(place);
        }
    }

    /// Next hops listed.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}
