//! Displacement: the shortest chain of keys that can each move to their other bucket, so that the first
//! makes room (Li et al., *Algorithmic Improvements for Fast Concurrent Cuckoo Hashing*, EuroSys 2014,
//! §4.3: breadth-first, found before anything is moved).

use super::CuckooWriter;
use super::bucket::{SLOTS, Writing};
use super::entry::id;
use super::geometry::alternate_hash;
use crate::memory::prefetch;

/// Buckets looked at, at most, for one insertion: chains of up to four moves.
const STEPS_MAX: usize = 2000;

/// A bucket on the way, and whose key would come into it.
#[derive(Clone, Copy)]
struct Step {
    bucket: u32,
    /// The step whose bucket the key comes from, and its slot there; of no meaning for the first two.
    from: u16,
    slot: u8,
}

/// The steps of one search, kept to be used again.
#[derive(Default)]
pub(super) struct Path {
    steps: Vec<Step>,
}

impl<const W: usize> CuckooWriter<W> {
    /// Makes room in one of two full buckets. Returns whether that may have succeeded.
    #[inline(never)]
    pub(super) fn make_room(&mut self, primary: u32, alternate: u32) -> bool {
        let mut steps = std::mem::take(&mut self.path.steps);
        steps.clear();
        steps.extend([primary, alternate].map(|bucket| Step { bucket, from: 0, slot: 0 }));
        let made = self.search(&mut steps);
        self.path.steps = steps;
        made
    }

    fn search(&mut self, steps: &mut Vec<Step>) -> bool {
        let mut head = 0;
        self.ask_for_others(steps[0].bucket);
        while let Some(&Step { bucket, .. }) = steps.get(head) {
            // What the next step looks at comes while this one waits.
            if let Some(next) = steps.get(head + 1) {
                self.ask_for_others(next.bucket);
            }
            let others = self.other_buckets(bucket);
            // Which of them has room cannot be predicted: all are looked at, and there is one branch.
            let room = |at: &u32| u32::from(self.table.buckets[*at as usize].free() != 0);
            let free = others.iter().rev().fold(0, |free, other| free << 1 | room(other));
            if free != 0 {
                let slot = free.trailing_zeros() as usize;
                return self.shift(steps, head, slot, others[slot]);
            }
            let more = others.into_iter().take(STEPS_MAX - steps.len()).enumerate();
            steps.extend(more.map(|(slot, bucket)| Step { bucket, from: head as u16, slot: slot as u8 }));
            head += 1;
        }
        false
    }

    /// Asks for the other buckets of the keys in this one.
    #[inline(always)]
    pub(super) fn ask_for_others(&self, bucket: u32) {
        self.other_buckets(bucket).iter().for_each(|other| prefetch(&self.table.buckets, *other as usize));
    }

    /// Returns the other buckets of the keys in this one.
    #[inline(always)]
    fn other_buckets(&self, bucket: u32) -> [u32; SLOTS] {
        let geometry = self.geometry();
        if geometry.is_even() {
            let signatures = self.table.buckets[bucket as usize].each_signature();
            signatures.map(|signature| geometry.other_bucket(bucket, signature))
        } else {
            std::array::from_fn(|slot| self.other_bucket(bucket, slot))
        }
    }

    /// Moves the keys along the way that ends with `slot` of step `head` going to bucket `to`, last first.
    fn shift(&mut self, steps: &[Step], mut head: usize, mut slot: usize, mut to: u32) -> bool {
        loop {
            let step = steps[head];
            // A path that crosses itself may have changed its own buckets: the moves so far are right,
            // and the search restarts.
            if self.other_bucket(step.bucket, slot) != to
                || !self.move_slot(step.bucket, slot, to)
                || head < 2
            {
                return true;
            }
            to = step.bucket;
            slot = step.slot.into();
            head = step.from.into();
        }
    }

    /// Returns the other bucket of the key in a slot.
    pub(super) fn other_bucket(&self, bucket: u32, slot: usize) -> u32 {
        let geometry = self.geometry();
        if geometry.is_even() {
            return geometry.other_bucket(bucket, self.table.buckets[bucket as usize].signature(slot));
        }
        let hash = self.metadata.hash(id(bucket, slot));
        let primary = geometry.bucket(hash);
        if primary == bucket { geometry.bucket(alternate_hash(hash)) } else { primary }
    }

    /// Moves the key in a slot to its other bucket, under the versions of both, so that no reader misses it.
    pub(super) fn move_slot(&mut self, from_at: u32, slot: usize, to_at: u32) -> bool {
        let table = &*self.table;
        let (from, to) = (&table.buckets[from_at as usize], &table.buckets[to_at as usize]);
        let signature = from.signature(slot);
        let Some(free) = to.free_slot().filter(|_| signature != 0) else { return false };
        let (was, is) = (id(from_at, slot), id(to_at, free));
        let displaced = from.displaced() >> slot & 1 != 0;
        let keeps_hashes = self.keeps_hashes();
        let hash = if keeps_hashes { self.metadata.hash(was) } else { u32::from(signature) << 16 };
        let _writing = Writing::begin([from, to]);
        table.move_to((from_at, slot), (to_at, free));
        if self.now.is_some() {
            table.entries.copy_used(was, is);
        }
        from.clear_displaced(slot);
        to.add_displaced(free, !displaced);
        if displaced {
            self.metadata.uncount_moved(to, to_at, was);
            if keeps_hashes {
                self.metadata.set_hash(is, hash);
            }
        } else {
            self.metadata.count_moved(from, from_at, is, hash);
        }
        true
    }
}
