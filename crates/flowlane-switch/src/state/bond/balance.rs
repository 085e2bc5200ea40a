//! Buckets, and their distribution by load.

use std::sync::Arc;

use flowlane::rule::action::PortNo;

use super::{BUCKETS, Loads};

/// Members whose loads differ by less keep their buckets, in bytes.
const DIFFERENCE_MIN: u64 = 100_000;

/// Members whose loads differ by less than this part of the larger keep their buckets.
const DIFFERENCE_PART: u64 = 16;

/// The buckets of a bond.
#[derive(Debug)]
pub(super) struct Buckets {
    members: [Option<PortNo>; BUCKETS],
    /// Bytes, of which those before each distribution count half.
    bytes: [u64; BUCKETS],
    loads: Arc<Loads>,
    /// The part of `loads` that `bytes` has.
    counted: [u64; BUCKETS],
    /// The members that are enabled.
    enabled: Vec<PortNo>,
    /// The member that gets the next bucket without one, by its place among those enabled.
    next: usize,
}

impl Default for Buckets {
    fn default() -> Self {
        let zero = [0; BUCKETS];
        let (members, enabled, loads) = ([None; BUCKETS], Vec::new(), Arc::default());
        Self { members, bytes: zero, loads, counted: zero, enabled, next: 0 }
    }
}

impl Buckets {
    /// Returns the members of the buckets, and where workers count bytes.
    pub(super) fn shared(&self) -> ([Option<PortNo>; BUCKETS], Arc<Loads>) {
        (self.members, self.loads.clone())
    }

    /// Gives buckets whose member is not enabled to others in turn, and idle buckets to members that have few. Returns whether a bucket
    /// with a load has moved, and whether any has.
    pub(super) fn assign(&mut self, enabled: &[PortNo]) -> (bool, bool) {
        if self.enabled == enabled {
            return (false, false);
        }
        self.enabled = enabled.to_vec();
        self.measure();
        let before = self.members;
        for member in &mut self.members {
            if !member.is_some_and(|port| enabled.contains(&port)) {
                *member = enabled.get(self.next % enabled.len().max(1)).copied();
                self.next = (self.next + 1) % enabled.len().max(1);
            }
        }
        while self.even_out_one() {}
        let has_moved = |at: &usize| self.members[*at] != before[*at];
        let is_loaded = (0..BUCKETS).filter(has_moved).any(|at| self.bytes[at] > 0);
        (is_loaded, self.members != before)
    }

    /// Moves an idle bucket from the member with the most buckets to the one with the fewest, unless they have about as many.
    fn even_out_one(&mut self) -> bool {
        let count = |port: PortNo| self.members.iter().filter(|member| **member == Some(port)).count();
        let counts = || self.enabled.iter().map(|port| (count(*port), *port));
        let (Some((most, from)), Some((fewest, to))) = (counts().max(), counts().min()) else { return false };
        let is_idle = |at: &usize| self.members[*at] == Some(from) && self.bytes[*at] == 0;
        match (0..BUCKETS).find(is_idle).filter(|_| most > fewest + 1) {
            Some(at) => self.members[at] = Some(to),
            None => return false,
        }
        true
    }

    /// Gives a bucket to a member.
    pub(super) fn migrate(&mut self, bucket: u8, member: PortNo) {
        self.members[usize::from(bucket)] = Some(member);
    }

    /// Takes the bytes that workers have counted.
    pub(super) fn measure(&mut self) {
        for bucket in 0..=u8::MAX {
            let at = usize::from(bucket);
            let now = self.loads.bytes(bucket);
            self.bytes[at] += now - self.counted[at];
            self.counted[at] = now;
        }
    }

    /// Returns the buckets of a member that have a load, with their bytes.
    pub(super) fn of(&self, member: PortNo) -> impl Iterator<Item = (usize, u64)> {
        let is_of = move |(at, _): &(usize, u64)| self.members[*at] == Some(member);
        self.bytes.iter().copied().enumerate().filter(is_of).filter(|(_, bytes)| *bytes > 0)
    }

    fn load(&self, member: PortNo) -> u64 {
        self.of(member).map(|(_, bytes)| bytes).sum()
    }

    /// Moves buckets from members with more load to those with less, as long as that evens them out. Returns whether any has moved.
    pub(super) fn rebalance(&mut self, enabled: &[PortNo]) -> bool {
        self.measure();
        // Each round moves one bucket; none moves to and fro, since the difference only shrinks.
        let has_moved = (0..BUCKETS).take_while(|_| self.move_one(enabled)).count() > 0;
        self.bytes.iter_mut().for_each(|bytes| *bytes /= 2);
        has_moved
    }

    fn move_one(&mut self, enabled: &[PortNo]) -> bool {
        let loads = || enabled.iter().map(|port| (self.load(*port), *port));
        let (Some((most, from)), Some((least, to))) = (loads().max(), loads().min()) else { return false };
        let difference = most - least;
        if difference < DIFFERENCE_MIN.max(most / DIFFERENCE_PART) {
            return false;
        }
        // The difference afterwards; a move must take a tenth of it away.
        let after = |bytes: u64| difference.abs_diff(2 * bytes);
        let best = self.of(from).min_by_key(|(_, bytes)| after(*bytes));
        let Some((at, _)) = best.filter(|(_, bytes)| after(*bytes) <= difference - difference / 10) else {
            return false;
        };
        self.members[at] = Some(to);
        true
    }
}
