//! Changes of groups.

use std::sync::Arc;

use flowlane::rule::Action;
use flowlane::rule::action::Reference;
use flowlane::rule::group::{Bucket, BucketPlace, Group};

use super::flow_mods::Made;
use super::{Control, Reason};
pub use crate::ruleset::GroupError;
use crate::ruleset::{CompiledGroup, Entry, Event};

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

impl Control {
    /// Applies one change of groups to the standby, and removes the rules that name groups which go.
    pub(super) fn apply_group_mod(&mut self, one: &GroupMod, made: &mut Made) -> Result<(), GroupError> {
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
                let there = self.standby.groups().iter().map(|(id, _)| id);
                let gone: Vec<u32> = there.filter(|one| id.is_none_or(|id| id == *one)).collect();
                gone.iter().for_each(|&id| self.apply_group_event(id, None));
                let is_gone =
                    |reference| matches!(reference, Reference::Group(group) if gone.contains(&group));
                if !gone.is_empty() {
                    self.remove_rules_that_name(is_gone, Reason::GroupDeleted, made);
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
        let group = self.standby.compile_group(group)?;
        self.apply_group_event(group.group.id, Some(group));
        Ok(())
    }

    fn apply_group_event(&mut self, id: u32, group: Option<Arc<CompiledGroup>>) {
        let event = Arc::new(Event::Group { id, group });
        self.standby().apply(event).expect("a group can always be set");
    }

    /// Removes the rules with actions that refer to removed groups or meters (OpenFlow 1.5.1, 6.5 and 6.7), and what they have
    /// learned. Those of a device stay: they drop the packets that would get to such a group, and such a meter lets all pass.
    pub(super) fn remove_rules_that_name(
        &mut self,
        is_removed: impl Fn(Reference) -> bool,
        reason: Reason,
        made: &mut Made,
    ) {
        let tables = self.standby.tables().filter(|(number, _)| !self.devices.contains(*number));
        let names = |entry: &Entry| names(&entry.rule.actions, &is_removed);
        let rules = tables.flat_map(|(_, table)| table.rules()).filter(|(_, entry)| names(entry));
        let rules: Vec<_> = rules.map(|(id, entry)| (id, entry.clone())).collect();
        rules.into_iter().for_each(|(id, entry)| self.remove(id, entry, reason, made));
        self.remove_learned(made);
    }
}

/// Returns whether an action, or one within it, has such a reference.
pub(super) fn names(actions: &[Action], is_one: &impl Fn(Reference) -> bool) -> bool {
    actions.iter().any(|action| action.references().into_iter().any(is_one) || names(action.nested(), is_one))
}

/// The place of a bucket in its group.
fn place_of(group: &Group, id: u32) -> Result<usize, GroupError> {
    let place = group.buckets.iter().position(|bucket| bucket.id == id);
    place.ok_or(GroupError::UnknownBucket(id))
}
