//! The groups of a ruleset, with the steps of their buckets.

use std::collections::BTreeSet;
use std::sync::Arc;

use flowlane::hash::murmur3::hash_words;
use flowlane::packet::key::FlowKey;
use flowlane::rule::action::PortNo;
use flowlane::rule::group::{Bucket, Group, GroupKind, Selection};
use flowlane::rule::{Action, Match, Rule};

use super::SharedMap;
use super::{Ruleset, Steps, action_set};

/// The most groups.
const GROUPS_MAX: usize = 1 << 16;
/// The most buckets of a group.
const BUCKETS_MAX: usize = 4096;

/// Why groups cannot be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    #[error("there is a group {0} already")]
    Exists(u32),
    #[error("there is no group {0}")]
    Unknown(u32),
    #[error("group {0} would lead to itself")]
    Loop(u32),
    #[error("group {0} has a number that OpenFlow reserves, or an indirect group has not one bucket")]
    Invalid(u32),
    #[error("bucket {0} of the group does not exist")]
    UnknownBucket(u32),
    #[error("the group has two buckets {0}")]
    BucketExists(u32),
    #[error("a bucket's action is not one of an action set, or the switch does not execute it")]
    BadBucket,
    #[error("there are at most {GROUPS_MAX} groups")]
    TooMany,
    #[error("a group has at most {BUCKETS_MAX} buckets")]
    TooManyBuckets,
}

/// A group with the steps of its buckets.
#[derive(Debug)]
pub struct CompiledGroup {
    pub group: Group,
    /// One for each bucket.
    pub steps: Vec<Steps>,
}

impl CompiledGroup {
    pub fn new(group: Group) -> Self {
        let steps = group.buckets.iter().map(|bucket| action_set::bucket_steps(&bucket.actions)).collect();
        Self { group, steps }
    }

    /// The groups that the buckets lead to or watch.
    pub fn successors(&self) -> impl Iterator<Item = u32> {
        let led_to = |bucket: &Bucket| {
            let groups = bucket.actions.iter().filter_map(|action| match action {
                Action::Group(group) => Some(*group),
                _ => None,
            });
            groups.chain(bucket.watch_group).collect::<Vec<_>>()
        };
        self.group.buckets.iter().flat_map(led_to)
    }
}

/// Groups by number. Copies of a ruleset share them.
#[derive(Clone, Debug, Default)]
pub struct Groups(SharedMap<Arc<CompiledGroup>>);

/// Watched groups may be nested this deep.
const WATCH_MAX: usize = 16;

impl Groups {
    pub fn get(&self, id: u32) -> Option<&Arc<CompiledGroup>> {
        self.0.get(id)
    }

    /// All groups, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<CompiledGroup>)> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a group or replaces the one of its number; without a group, removes it.
    pub fn set(&mut self, id: u32, group: Option<Arc<CompiledGroup>>) {
        match group {
            Some(group) => self.0.insert(id, group),
            None => self.0.remove(id),
        }
    }

    /// Returns whether a group may come to be reached from itself.
    pub fn leads_round(&self, from: &CompiledGroup) -> bool {
        let mut reached: Vec<u32> = from.successors().collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = reached.pop() {
            if id == from.group.id {
                return true;
            }
            if seen.insert(id) {
                reached.extend(
                    self.get(id).into_iter().flat_map(|group| group.successors().collect::<Vec<_>>()),
                );
            }
        }
        false
    }

    /// Returns whether a bucket is live: its port is, and a bucket of its group.
    pub fn is_live(&self, bucket: &Bucket, port_is_live: &dyn Fn(PortNo) -> bool) -> bool {
        self.is_live_within(bucket, port_is_live, WATCH_MAX)
    }

    fn is_live_within(&self, bucket: &Bucket, port_is_live: &dyn Fn(PortNo) -> bool, depth: usize) -> bool {
        let group_is_live = |id: u32| {
            let Some(group) = self.get(id).filter(|_| depth > 0) else { return false };
            group.group.buckets.iter().any(|bucket| self.is_live_within(bucket, port_is_live, depth - 1))
        };
        match (bucket.watch_port, bucket.watch_group) {
            (None, None) => true,
            (port, group) => port.is_some_and(port_is_live) || group.is_some_and(group_is_live),
        }
    }

    /// Returns the places of the buckets that get a packet.
    pub fn chosen(&self, group: &Group, key: &FlowKey, port_is_live: &dyn Fn(PortNo) -> bool) -> Vec<usize> {
        let live = || (0..group.buckets.len()).filter(|&at| self.is_live(&group.buckets[at], port_is_live));
        match group.kind {
            GroupKind::All => (0..group.buckets.len()).collect(),
            GroupKind::Indirect => (0..group.buckets.len().min(1)).collect(),
            GroupKind::FastFailover => live().take(1).collect(),
            GroupKind::Select => {
                let hash = selection_hash(group, key);
                let score = |at: usize| {
                    let bucket = &group.buckets[at];
                    let own = hash_words(&[hash, bucket.id], group.basis as u32) & 0xffff;
                    u64::from(own) * u64::from(bucket.weight)
                };
                let weighted = live().filter(|&at| group.buckets[at].weight > 0);
                // Of equal scores, the first.
                weighted.rev().max_by_key(|&at| score(at)).into_iter().collect()
            }
        }
    }
}

/// Hashes the fields of a packet that a group selects a bucket by.
fn selection_hash(group: &Group, key: &FlowKey) -> u32 {
    let mut words = Vec::with_capacity(32);
    let mut add = |value: u128| words.extend((0..4).map(|i| (value >> (32 * i)) as u32));
    match &group.selection {
        Selection::Hash(fields) if !fields.is_empty() => fields.iter().for_each(|part| add(part.get(key))),
        Selection::Default | Selection::DpHash | Selection::Hash(_) => {
            Group::HASHED.iter().for_each(|&field| add(key.get(field)));
        }
    }
    hash_words(&words, (group.basis >> 32) as u32)
}

impl Ruleset {
    /// Checks a group that is added or replaced, and compiles its buckets.
    ///
    /// # Errors
    /// If its number, kind or buckets are not valid, or it would lead to itself.
    pub fn compile_group(&self, group: Group) -> Result<Arc<CompiledGroup>, GroupError> {
        let (groups, id) = (self.groups(), group.id);
        if id > Group::MAX || group.kind == GroupKind::Indirect && group.buckets.len() != 1 {
            return Err(GroupError::Invalid(id));
        }
        if groups.get(id).is_none() && groups.len() == GROUPS_MAX {
            return Err(GroupError::TooMany);
        }
        if group.buckets.len() > BUCKETS_MAX {
            return Err(GroupError::TooManyBuckets);
        }
        let mut numbers = BTreeSet::new();
        if let Some(bucket) = group.buckets.iter().find(|bucket| !numbers.insert(bucket.id)) {
            return Err(GroupError::BucketExists(bucket.id));
        }
        for bucket in &group.buckets {
            let rule = Rule::new(Match::any(), bucket.actions.clone());
            self.check_actions(&rule).map_err(|_| GroupError::BadBucket)?;
        }
        let group = CompiledGroup::new(group);
        match groups.leads_round(&group) {
            true => Err(GroupError::Loop(id)),
            false => Ok(Arc::new(group)),
        }
    }
}

#[cfg(test)]
mod tests {
    use flowlane::packet::Field;

    use super::*;

    fn bucket(id: u32, weight: u16, watch_port: Option<u32>) -> Bucket {
        let actions = vec![Action::Output(PortNo(id + 1))];
        Bucket { id, weight, watch_port: watch_port.map(PortNo), watch_group: None, actions }
    }

    fn group(id: u32, kind: GroupKind, buckets: Vec<Bucket>) -> Group {
        Group { id, kind, selection: Selection::Default, basis: 0, buckets }
    }

    #[test]
    fn flows_are_shared_by_weight_and_move_only_from_buckets_that_die() {
        let groups = Groups::default();
        let buckets =
            vec![bucket(0, 1, Some(1)), bucket(1, 2, Some(2)), bucket(2, 1, None), bucket(3, 0, None)];
        let select = group(1, GroupKind::Select, buckets);
        let (mut shares, mut moved) = ([0; 4], 0);
        for flow in 0..4000u32 {
            let mut key = FlowKey::zero();
            key.set(Field::Ipv4Src, flow.into());
            let all = groups.chosen(&select, &key, &|_| true)[0];
            shares[all] += 1;
            let without = groups.chosen(&select, &key, &|port| port != PortNo(1))[0];
            moved += usize::from(all != without);
            assert!(all == 0 || all == without, "only flows of the dead bucket move");
        }
        assert_eq!((shares[3], moved), (0, shares[0]));
        assert!(shares[1] > shares[0] * 3 / 2 && shares[0] > 600 && shares[2] > 600, "{shares:?}");
    }

    #[test]
    fn the_first_live_bucket_gets_the_packets_of_fast_failover() {
        let mut groups = Groups::default();
        let watched = group(2, GroupKind::All, vec![bucket(0, 0, Some(9))]);
        groups.set(2, Some(Arc::new(CompiledGroup::new(watched))));
        let second = Bucket { watch_group: Some(2), ..bucket(1, 0, None) };
        let failover = group(1, GroupKind::FastFailover, vec![bucket(0, 0, Some(1)), second]);
        let chosen = |up: &[u32]| groups.chosen(&failover, &FlowKey::zero(), &|port| up.contains(&port.0));
        assert_eq!((chosen(&[1, 9]), chosen(&[9]), chosen(&[])), (vec![0], vec![1], vec![]));
    }

    #[test]
    fn groups_that_lead_round_are_found() {
        let to = |id, next| {
            let actions = vec![Action::Group(next)];
            let only = Bucket { actions, ..bucket(0, 0, None) };
            Arc::new(CompiledGroup::new(group(id, GroupKind::Indirect, vec![only])))
        };
        let mut groups = Groups::default();
        groups.set(1, Some(to(1, 2)));
        groups.set(2, Some(to(2, 3)));
        assert!(!groups.leads_round(&to(3, 4)));
        assert!(groups.leads_round(&to(3, 1)) && groups.leads_round(&to(5, 5)));
    }
}
