//! Equal-cost paths: a next hop that is a group, of which the flow's hash picks a member.
//!
//! A table stores one number for a route. Some numbers, those from [`GroupConfig::first`] on, name *groups*: what
//! a lookup gives is then resolved once more, [`GroupReader::resolve_batch`], by a hash of the packet's flow, so
//! that the packets of a flow stay on one path and in order.
//!
//! ```text
//! number 1002 = group 2 of the groups from 1000 on     buckets of group 2 (8 here; members A weight 2, B, C 1)
//!                                                        0   1   2   3   4   5   6   7
//! hash ─ × odd constant ─ highest 3 bits: 5 ──────────►  A   B   C   A   A   B   C   A  ─► B
//! ```
//!
//! **Flows stay where they are.** A group has a fixed number of buckets. Where a member goes, only its buckets are
//! given to others; where one is added, or weights change, buckets move one by one, each from the member with the largest
//! surplus to the one with the largest deficit, until none is owed another. The rule (Webster's, for seats in a
//! parliament: weight ÷ (2 × buckets + 1)) gives a member that stays never less when another goes.
//! The alternative, hash modulo the number of members, moves nearly all flows at every change; consistent hashing
//! by a ring needs a search where this needs a load.
//!
//! **All bits of the hash count.** It is multiplied before its highest bits are used: what spread packets over
//! queues or over machines by the lowest bits of the same hash has left only a part of its values here.
//!
//! *Layout*: the buckets of all groups in one array of 8 bytes each, group after group. *Cost*: one multiplication,
//! one load. *Limits*: a share finer than a bucket is rounded, a very small one to nothing; more buckets mend it.
//! A change is seen by readers bucket by bucket, which is harmless: every bucket holds the old or the new member.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Groups: which numbers name them, how many, how finely divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    /// The next-hop number of the first group; those after it follow.
    pub first: u64,
    /// Groups at most.
    pub groups_max: usize,
    /// Buckets of each group: a power of two up to 65536. 128 hold shares to within a percent.
    pub buckets: usize,
    /// Memory for all buckets at most, in bytes.
    pub memory_max: usize,
}

impl Default for GroupConfig {
    /// 1024 groups of 128 buckets, 1 MiB, numbered from 2³¹ on: they fit next hops of four bytes.
    fn default() -> Self {
        Self { first: 1 << 31, groups_max: 1024, buckets: 128, memory_max: 64 << 20 }
    }
}

/// One path of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its next hop; not a group.
    pub next_hop: u64,
    /// Its share, in proportion to those of the others; 1 or more.
    pub weight: u32,
}

/// Why groups are not made or changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The number of buckets is none that can be used.
    #[error("a group cannot have {0} buckets; take a power of two from 1 to 65536")]
    Buckets(usize),
    /// The numbers of groups end beyond the largest number.
    #[error(
        "{groups_max} groups numbered from {first} on go beyond the largest number; number them from less"
    )]
    Numbers {
        /// The first.
        first: u64,
        /// How many.
        groups_max: usize,
    },
    /// The buckets take more than they may.
    #[error("the groups need {needed} bytes and may take {max}; allow more, or fewer groups or buckets")]
    NeedsMemory {
        /// Bytes needed.
        needed: u128,
        /// Bytes allowed.
        max: usize,
    },
    /// All groups are in use.
    #[error("all {0} groups are in use; remove one, or allow more")]
    Full(usize),
    /// A number that names no group in use.
    #[error("{0} names no group that is in use")]
    Unknown(u64),
    /// A group without members.
    #[error("a group needs a member; remove the group where it has none left")]
    NoMembers,
    /// More members than buckets.
    #[error("{members} members cannot share {buckets} buckets; give groups more buckets")]
    TooManyMembers {
        /// Members.
        members: usize,
        /// Buckets.
        buckets: usize,
    },
    /// A weight of none.
    #[error("the member {0} has weight 0; give it 1 or more, or leave it out")]
    NoWeight(u64),
    /// A next hop that is a member twice.
    #[error("the member {0} is there twice; add up its weights")]
    Twice(u64),
    /// A member that is a group itself.
    #[error("the member {0} is itself the number of a group; name its members instead")]
    Nested(u64),
}

/// State that readers and the owner share.
#[derive(Debug)]
struct Buckets {
    first: u64,
    groups: u64,
    /// 2 to this power are a group's.
    bits: u32,
    /// Group after group; a bucket of a group that is not in use holds the group's own number.
    next_hops: Box<[AtomicU64]>,
}

/// The groups' owner: it alone changes them.
#[derive(Debug)]
pub struct Groups {
    shared: Arc<Buckets>,
    members: Vec<Vec<Member>>,
}

impl Groups {
    /// No groups yet, and room for as many as the configuration says.
    ///
    /// # Errors
    /// Where the configuration cannot be.
    pub fn new(config: GroupConfig) -> Result<Self, GroupError> {
        let GroupConfig { first, groups_max, buckets, memory_max } = config;
        if !buckets.is_power_of_two() || buckets > 1 << 16 {
            return Err(GroupError::Buckets(buckets));
        }
        if first.checked_add(groups_max as u64).is_none() {
            return Err(GroupError::Numbers { first, groups_max });
        }
        let needed = (groups_max as u128) * (buckets as u128) * 8;
        if needed > memory_max as u128 {
            return Err(GroupError::NeedsMemory { needed, max: memory_max });
        }
        let own = |group: usize| (0..buckets).map(move |_| AtomicU64::new(first + group as u64));
        let shared = Buckets {
            first,
            groups: groups_max as u64,
            bits: buckets.trailing_zeros(),
            next_hops: (0..groups_max).flat_map(own).collect(),
        };
        Ok(Self { shared: Arc::new(shared), members: vec![Vec::new(); groups_max] })
    }

    /// Returns a handle by which lookups resolve numbers; there may be any number, on any thread.
    pub fn reader(&self) -> GroupReader {
        GroupReader { shared: Arc::clone(&self.shared) }
    }

    /// Makes a group; returns the next-hop number that names it.
    ///
    /// # Errors
    /// Where there is no room, or these cannot be members.
    pub fn add(&mut self, members: &[Member]) -> Result<u64, GroupError> {
        self.check(members)?;
        let free = self.members.iter().position(Vec::is_empty).ok_or(GroupError::Full(self.members.len()))?;
        self.assign(free, members);
        Ok(self.shared.first + free as u64)
    }

    /// Gives a group other members or weights; returns how many buckets, of [`GroupConfig::buckets`], changed
    /// hands.
    ///
    /// # Errors
    /// Where there is no such group, or these cannot be members; nothing has changed then.
    pub fn set(&mut self, group: u64, members: &[Member]) -> Result<usize, GroupError> {
        self.check(members)?;
        let index = self.index(group)?;
        Ok(self.assign(index, members))
    }

    /// Removes a group. Its number then means itself, until a later group gets it: routes must name it no
    /// longer.
    ///
    /// # Errors
    /// Where there is no such group.
    pub fn remove(&mut self, group: u64) -> Result<Vec<Member>, GroupError> {
        let index = self.index(group)?;
        self.shared.of(index).iter().for_each(|bucket| bucket.store(group, Ordering::Relaxed));
        Ok(std::mem::take(&mut self.members[index]))
    }

    /// Returns a group's members; none where the number names no group in use.
    pub fn members(&self, group: u64) -> Option<&[Member]> {
        self.index(group).ok().map(|index| self.members[index].as_slice())
    }

    /// How many buckets each member of a group has, in the order of [`Groups::members`].
    pub fn shares(&self, group: u64) -> Option<Vec<usize>> {
        let index = self.index(group).ok()?;
        let buckets = self.shared.of(index);
        let held = |m: &Member| buckets.iter().filter(|b| b.load(Ordering::Relaxed) == m.next_hop).count();
        Some(self.members[index].iter().map(held).collect())
    }

    /// Returns the bytes of all buckets.
    pub fn table_bytes(&self) -> usize {
        size_of_val(&*self.shared.next_hops)
    }

    fn index(&self, group: u64) -> Result<usize, GroupError> {
        let index = group.checked_sub(self.shared.first).and_then(|i| usize::try_from(i).ok());
        index
            .filter(|&i| self.members.get(i).is_some_and(|m| !m.is_empty()))
            .ok_or(GroupError::Unknown(group))
    }

    fn check(&self, members: &[Member]) -> Result<(), GroupError> {
        let buckets = 1 << self.shared.bits;
        if members.is_empty() {
            return Err(GroupError::NoMembers);
        }
        if members.len() > buckets {
            return Err(GroupError::TooManyMembers { members: members.len(), buckets });
        }
        let mut seen = std::collections::HashSet::new();
        for Member { next_hop, weight } in members {
            if *weight == 0 {
                return Err(GroupError::NoWeight(*next_hop));
            }
            if self.shared.names_group(*next_hop) {
                return Err(GroupError::Nested(*next_hop));
            }
            if !seen.insert(next_hop) {
                return Err(GroupError::Twice(*next_hop));
            }
        }
        Ok(())
    }

    /// Moves as few buckets as the members' weights demand; returns how many.
    fn assign(&mut self, index: usize, members: &[Member]) -> usize {
        let buckets = self.shared.of(index);
        let owner = |bucket: &AtomicU64| {
            let next_hop = bucket.load(Ordering::Relaxed);
            members.iter().position(|m| m.next_hop == next_hop)
        };
        let mut owners: Vec<Option<usize>> = buckets.iter().map(owner).collect();
        let mut shares = Shares::new(members, &owners);
        let mut moved = 0;
        let mut give = |bucket: usize, member: usize, owners: &mut Vec<Option<usize>>| {
            buckets[bucket].store(members[member].next_hop, Ordering::Relaxed);
            owners[bucket] = Some(member);
            moved += 1;
        };
        for bucket in 0..owners.len() {
            if owners[bucket].is_none() {
                give(bucket, shares.take(), &mut owners);
            }
        }
        while let Some((from, to)) = shares.exchange() {
            let bucket = owners.iter().position(|o| *o == Some(from)).expect("who is to give has buckets");
            give(bucket, to, &mut owners);
        }
        self.members[index] = members.to_vec();
        moved
    }
}

/// Buckets of each member, and its claim to the next one.
struct Shares<'a> {
    members: &'a [Member],
    held: Vec<u64>,
}

impl<'a> Shares<'a> {
    fn new(members: &'a [Member], owners: &[Option<usize>]) -> Self {
        let mut held = vec![0; members.len()];
        owners.iter().flatten().for_each(|&member| held[member] += 1);
        Self { members, held }
    }

    /// Returns whether member `a` is owed bucket number `nth_a` of its own more than `b` is its number `nth_b`.
    fn more(&self, (a, nth_a): (usize, u64), (b, nth_b): (usize, u64)) -> bool {
        // weight ÷ (2 n - 1), multiplied out: weights have 32 bits, buckets are 2¹⁶ at most.
        let weight = |m: usize| u64::from(self.members[m].weight);
        weight(a) * (2 * nth_b - 1) > weight(b) * (2 * nth_a - 1)
    }

    /// Returns the member with the largest claim to the next bucket; the first of equals.
    fn owed(&self) -> usize {
        let next = |m: usize| (m, self.held[m] + 1);
        (1..self.held.len()).fold(0, |best, m| if self.more(next(m), next(best)) { m } else { best })
    }

    /// Gives the next bucket to the member that is owed it.
    fn take(&mut self) -> usize {
        let member = self.owed();
        self.held[member] += 1;
        member
    }

    /// Moves a bucket from the member with the weakest claim to its last one to the member with the strongest claim to another; none where that is settled.
    fn exchange(&mut self) -> Option<(usize, usize)> {
        let to = self.owed();
        let last = |m: usize| (m, self.held[m]);
        let from = (0..self.held.len())
            .filter(|&m| self.held[m] > 0)
            .reduce(|worst, m| if self.more(last(worst), last(m)) { m } else { worst })?;
        if !self.more((to, self.held[to] + 1), last(from)) {
            return None;
        }
        self.held[from] -= 1;
        self.held[to] += 1;
        Some((from, to))
    }
}

impl Buckets {
    fn of(&self, group: usize) -> &[AtomicU64] {
        &self.next_hops[group << self.bits..(group + 1) << self.bits]
    }

    #[inline]
    fn names_group(&self, next_hop: u64) -> bool {
        next_hop.wrapping_sub(self.first) < self.groups
    }
}

/// Resolves groups for lookups.
#[derive(Clone, Debug)]
pub struct GroupReader {
    shared: Arc<Buckets>,
}

impl GroupReader {
    /// Returns the member that a flow takes; the next hop itself where it names no group in use.
    #[inline]
    pub fn resolve(&self, next_hop: u64, flow_hash: u32) -> u64 {
        let buckets = &*self.shared;
        if !buckets.names_group(next_hop) {
            return next_hop;
        }
        // 2³² ÷ the golden ratio, odd (Knuth, The Art of Computer Programming 3, 6.4).
        let mixed = u64::from(flow_hash.wrapping_mul(0x9e37_79b1));
        let bucket = (mixed << buckets.bits) >> 32;
        let group = next_hop - buckets.first;
        buckets.next_hops[((group << buckets.bits) | bucket) as usize].load(Ordering::Relaxed)
    }

    /// Resolves what a batch of lookups gave: for each, the member that the flow with this hash takes.
    ///
    /// # Panics
    /// Where the three differ in length.
    pub fn resolve_batch(&self, next_hops: &[u64], flow_hashes: &[u32], members: &mut [u64]) {
        assert!(next_hops.len() == flow_hashes.len() && next_hops.len() == members.len());
        for ((member, &next_hop), &hash) in members.iter_mut().zip(next_hops).zip(flow_hashes) {
            *member = self.resolve(next_hop, hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Random;

    fn small(buckets: usize) -> Groups {
        Groups::new(GroupConfig { first: 1000, groups_max: 4, buckets, memory_max: 1 << 20 }).unwrap()
    }

    fn of(members: &[(u64, u32)]) -> Vec<Member> {
        members.iter().map(|&(next_hop, weight)| Member { next_hop, weight }).collect()
    }

    fn flows(reader: &GroupReader, group: u64) -> Vec<u64> {
        let mut random = Random::new(1);
        (0..10_000).map(|_| reader.resolve(group, random.bits() as u32)).collect()
    }

    #[test]
    fn shares_are_in_proportion_to_weights() {
        let mut groups = small(128);
        let group = groups.add(&of(&[(1, 1), (2, 2), (3, 5)])).unwrap();
        assert_eq!(groups.shares(group), Some(vec![16, 32, 80]));
        let taken = flows(&groups.reader(), group);
        for (next_hop, want) in [(1, 1250i32), (2, 2500), (3, 6250)] {
            let got = taken.iter().filter(|&&t| t == next_hop).count() as i32;
            assert!((got - want).abs() < want / 8, "{next_hop}: {got} of {want}");
        }
    }

    #[test]
    fn flows_of_members_that_stay_do_not_move_when_another_goes() {
        let mut random = Random::new(7);
        for _ in 0..200 {
            let mut groups = small(1 << random.below(9));
            let buckets = 1 << groups.shared.bits;
            let count = 1 + random.index(buckets.min(9));
            let mut members: Vec<Member> = (0..count as u64)
                .map(|i| Member { next_hop: i, weight: 1 + random.below(9) as u32 })
                .collect();
            let group = groups.add(&members).unwrap();
            while members.len() > 1 {
                let before = flows(&groups.reader(), group);
                let gone = members.remove(random.index(members.len()));
                groups.set(group, &members).unwrap();
                let after = flows(&groups.reader(), group);
                assert!(after.iter().all(|&m| m != gone.next_hop));
                assert!(before.iter().zip(&after).all(|(b, a)| b == a || *b == gone.next_hop));
            }
        }
    }

    #[test]
    fn a_member_that_comes_takes_its_share_and_no_more() {
        let mut groups = small(128);
        let group = groups.add(&of(&[(1, 1), (2, 1), (3, 1)])).unwrap();
        assert_eq!(groups.set(group, &of(&[(1, 1), (2, 1), (3, 1), (4, 1)])), Ok(32));
        assert_eq!(groups.shares(group), Some(vec![32; 4]));
        // The same again: nothing moves. Half the weight: half the buckets go.
        assert_eq!(groups.set(group, &of(&[(4, 1), (3, 1), (2, 1), (1, 1)])), Ok(0));
        let moved = groups.set(group, &of(&[(1, 2), (2, 2), (3, 2), (4, 1)])).unwrap();
        assert!((13..=15).contains(&moved), "{moved}");
    }

    #[test]
    fn numbers_that_name_no_group_stand_for_themselves() {
        let mut groups = small(8);
        let reader = groups.reader();
        let group = groups.add(&of(&[(7, 1)])).unwrap();
        let next_hops = [0, 999, group, 1001, 1003, 1004, u64::MAX];
        let mut members = [0; 7];
        reader.resolve_batch(&next_hops, &[5; 7], &mut members);
        assert_eq!(members, [0, 999, 7, 1001, 1003, 1004, u64::MAX]);
        assert_eq!(groups.remove(group), Ok(of(&[(7, 1)])));
        assert_eq!(reader.resolve(group, 5), group);
        assert_eq!(groups.remove(group), Err(GroupError::Unknown(group)));
    }

    #[test]
    fn a_hash_whose_low_bits_are_fixed_reaches_all_members() {
        let mut groups = small(64);
        let group = groups.add(&of(&[(1, 1), (2, 1), (3, 1), (4, 1)])).unwrap();
        let reader = groups.reader();
        // What a receive queue leaves: the six lowest bits are the queue's number.
        let mut counts = [0; 4];
        (0..4096u32).for_each(|n| counts[reader.resolve(group, n << 6 | 21) as usize - 1] += 1);
        assert!(counts.iter().all(|c| (900..1150).contains(c)), "{counts:?}");
    }

    #[test]
    fn invalid_groups_are_refused_without_effect() {
        let new = |config| Groups::new(config).map(|_| ()).unwrap_err();
        let config = GroupConfig { first: 1, groups_max: 2, buckets: 4, memory_max: 64 };
        assert_eq!(new(GroupConfig { buckets: 12, ..config }), GroupError::Buckets(12));
        assert_eq!(
            new(GroupConfig { buckets: 8, ..config }),
            GroupError::NeedsMemory { needed: 128, max: 64 }
        );
        assert!(matches!(new(GroupConfig { first: u64::MAX, ..config }), GroupError::Numbers { .. }));
        let mut groups = Groups::new(config).unwrap();
        assert_eq!(groups.table_bytes(), 64);
        let group = groups.add(&of(&[(7, 1), (8, 3)])).unwrap();
        let refused = [
            (of(&[]), GroupError::NoMembers),
            (of(&[(5, 0)]), GroupError::NoWeight(5)),
            (of(&[(5, 1), (5, 1)]), GroupError::Twice(5)),
            (of(&[(2, 1)]), GroupError::Nested(2)),
            (
                of(&[(5, 1), (6, 1), (7, 1), (8, 1), (9, 1)]),
                GroupError::TooManyMembers { members: 5, buckets: 4 },
            ),
        ];
        for (members, error) in refused {
            assert_eq!(groups.set(group, &members), Err(error.clone()));
            assert_eq!(groups.add(&members), Err(error));
        }
        assert_eq!(groups.shares(group), Some(vec![1, 3]));
        groups.add(&of(&[(9, 1)])).unwrap();
        assert_eq!(groups.add(&of(&[(9, 1)])), Err(GroupError::Full(2)));
    }
}
