//! Changes of groups.

use std::sync::Arc;

use flowlane::rule::group::{Bucket, Group, GroupKind};
use flowlane::rule::{Action, Command, FlowMod, Match, Rule};

use super::Control;
use crate::ruleset::{CompiledGroup, Event};

/// The most groups.
const GROUPS_MAX: usize = 1 << 16;
/// The most buckets of a group.
const BUCKETS_MAX: usize = 4096;

/// Where buckets are inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BucketPlace {
    First,
    Last,
    /// Behind the bucket of this number; those to remove: that bucket.
    Id(u32),
    /// All of them.
    All,
}

/// A change of groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupMod {
    /// A group comes.
    Add(Group),
    /// A group is replaced.
    Modify(Group),
    /// A group comes, or is replaced.
    AddOrModify(Group),
    /// A group goes, with the rules that name it; `None`: all.
    Delete(Option<u32>),
    /// Buckets come.
    InsertBuckets { group: u32, place: BucketPlace, buckets: Vec<Bucket> },
    /// Buckets go.
    RemoveBuckets { group: u32, place: BucketPlace },
}

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

impl Control {
    /// Changes groups, all or none, and waits until no packet meets the former ones.
    ///
    /// # Errors
    /// The first change that is rejected; nothing has changed.
    pub fn change_groups(&mut self, mods: &[GroupMod]) -> Result<(), GroupError> {
        self.catch_up();
        let mut gone = Vec::new();
        for one in mods {
            if let Err(error) = self.apply_group_mod(one, &mut gone) {
                self.standby = Arc::new(self.published.newest().duplicate());
                return Err(error);
            }
        }
        if self.standby.version() != self.published.newest().version() {
            self.standby = self.published.publish(self.standby.clone());
        }
        self.delete_rules_of(&gone);
        self.wait();
        Ok(())
    }

    fn apply_group_mod(&mut self, one: &GroupMod, gone: &mut Vec<u32>) -> Result<(), GroupError> {
        match one {
            GroupMod::Add(group) if self.standby.groups().get(group.id).is_some() => {
                Err(GroupError::Exists(group.id))
            }
            GroupMod::Modify(group) if self.standby.groups().get(group.id).is_none() => {
                Err(GroupError::Unknown(group.id))
            }
            GroupMod::Add(group) | GroupMod::Modify(group) | GroupMod::AddOrModify(group) => {
                self.set_group(group.clone())
            }
            GroupMod::Delete(id) => {
                let all: Vec<u32> = self.standby.groups().iter().map(|(id, _)| id).collect();
                for id in all.into_iter().filter(|one| id.is_none_or(|id| id == *one)) {
                    self.apply_group_event(id, None);
                    gone.push(id);
                }
                Ok(())
            }
            GroupMod::InsertBuckets { group: id, place, buckets } => {
                let mut group = self.group(*id)?;
                let at = match place {
                    BucketPlace::First => 0,
                    BucketPlace::Last | BucketPlace::All => group.buckets.len(),
                    BucketPlace::Id(id) => 1 + place_of(&group, *id)?,
                };
                group.buckets.splice(at..at, buckets.iter().cloned());
                self.set_group(group)
            }
            GroupMod::RemoveBuckets { group: id, place } => {
                let mut group = self.group(*id)?;
                match place {
                    BucketPlace::All => group.buckets.clear(),
                    BucketPlace::First => _ = group.buckets.drain(..group.buckets.len().min(1)),
                    BucketPlace::Last => _ = group.buckets.pop(),
                    BucketPlace::Id(id) => {
                        let at = place_of(&group, *id)?;
                        group.buckets.remove(at);
                    }
                }
                self.set_group(group)
            }
        }
    }

    fn group(&self, id: u32) -> Result<Group, GroupError> {
        Ok(self.standby.groups().get(id).ok_or(GroupError::Unknown(id))?.group.clone())
    }

    /// Checks a group and puts it into the standby.
    fn set_group(&mut self, group: Group) -> Result<(), GroupError> {
        let groups = self.standby.groups();
        let id = group.id;
        if id >= Group::MAX || group.kind == GroupKind::Indirect && group.buckets.len() != 1 {
            return Err(GroupError::Invalid(id));
        }
        if groups.get(id).is_none() && groups.len() == GROUPS_MAX {
            return Err(GroupError::TooMany);
        }
        if group.buckets.len() > BUCKETS_MAX {
            return Err(GroupError::TooManyBuckets);
        }
        let mut numbers = std::collections::BTreeSet::new();
        if let Some(bucket) = group.buckets.iter().find(|bucket| !numbers.insert(bucket.id)) {
            return Err(GroupError::BucketExists(bucket.id));
        }
        for bucket in &group.buckets {
            let rule = Rule::new(Match::any(), bucket.actions.clone());
            self.standby.check_actions(&rule).map_err(|_| GroupError::BadBucket)?;
        }
        let group = CompiledGroup::new(group);
        if groups.leads_round(&group) {
            return Err(GroupError::Loop(id));
        }
        self.apply_group_event(id, Some(Arc::new(group)));
        Ok(())
    }

    fn apply_group_event(&mut self, id: u32, group: Option<Arc<CompiledGroup>>) {
        let event = Arc::new(Event::Group { id, group });
        self.standby().apply(event).expect("a group can always be set");
    }

    /// Deletes the rules that name groups which are gone (OpenFlow 1.5.1, 6.7).
    fn delete_rules_of(&mut self, gone: &[u32]) {
        if gone.is_empty() {
            return;
        }
        let ruleset = self.ruleset();
        let rules = ruleset.tables().flat_map(|(_, table)| table.rules());
        let names = |entry: &Rule| entry.actions.iter().any(|action| names_group(action, gone));
        let named = rules.filter(|(_, entry)| names(&entry.rule)).map(|(_, entry)| {
            FlowMod::new(Command::DeleteStrict, Rule { actions: Vec::new(), ..entry.rule.clone() })
        });
        let mods: Vec<FlowMod> = named.collect();
        drop(ruleset);
        // The rules of a device stay, and drop the packets that come to such a group.
        _ = self.change(&mods);
    }
}

/// Returns whether an action, or one within it, leads to one of these groups.
fn names_group(action: &Action, groups: &[u32]) -> bool {
    matches!(action, Action::Group(group) if groups.contains(group))
        || action.nested().iter().any(|nested| names_group(nested, groups))
}

/// The place of a bucket in its group.
fn place_of(group: &Group, id: u32) -> Result<usize, GroupError> {
    let place = group.buckets.iter().position(|bucket| bucket.id == id);
    place.ok_or(GroupError::UnknownBucket(id))
}
