//! Cookies of learned rules, and the `learn` actions that take those rules along.

use std::collections::HashMap;

use flowlane::rule::Action;
use flowlane::rule::action::Learn;

use super::Control;
use super::flow_mods::Made;
use super::removal::Reason;
use crate::datapath::TableCookie;
use crate::ruleset::{Entry, Ruleset};

/// The counts, of the standby.
#[derive(Debug, Default)]
pub(super) struct Cookies {
    /// The `learn` actions with `delete_learned`, by the table and cookie of what they learn.
    keepers: HashMap<TableCookie, usize>,
}

impl Cookies {
    /// Counts the actions of a ruleset.
    pub(super) fn of(ruleset: &Ruleset) -> Self {
        let mut cookies = Self::default();
        for (_, entry) in ruleset.tables().flat_map(|(_, table)| table.rules()) {
            cookies.follow(None, Some(entry));
        }
        cookies
    }

    /// Updates the counts after a rule was added, replaced or removed. Returns the cookies whose last `learn` action has gone.
    pub(super) fn follow(&mut self, before: Option<&Entry>, after: Option<&Entry>) -> Vec<TableCookie> {
        let mut ended = Vec::new();
        for keeper in after.into_iter().flat_map(keepers) {
            *self.keepers.entry(keeper).or_default() += 1;
        }
        for keeper in before.into_iter().flat_map(keepers) {
            let count = self.keepers.get_mut(&keeper).expect("counted when its rule was added");
            *count -= 1;
            if *count == 0 {
                self.keepers.remove(&keeper);
                ended.push(keeper);
            }
        }
        ended
    }

    /// Returns whether a rule has a `learn` action with `delete_learned` for this cookie.
    pub(super) fn is_kept(&self, cookie: TableCookie) -> bool {
        self.keepers.contains_key(&cookie)
    }
}

/// Returns the tables and cookies of rules that go with this one.
fn keepers(entry: &Entry) -> Vec<TableCookie> {
    let mut found = Vec::new();
    add_keepers(&entry.rule.actions, &mut found);
    found
}

fn add_keepers(actions: &[Action], found: &mut Vec<TableCookie>) {
    for action in actions {
        match action {
            Action::Learn(learn) => {
                let Learn { table, cookie, delete_learned, .. } = **learn;
                found.extend(delete_learned.then_some((table, cookie)));
            }
            other => add_keepers(other.nested(), found),
        }
    }
}

impl Control {
    /// Removes the rules that have been learned by actions of which the last has gone, as in Open vSwitch. Rules that learn may be
    /// among them.
    pub(super) fn remove_learned(&mut self, made: &mut Made) {
        while let Some(cookie) = made.ended.pop() {
            if self.cookies.is_kept(cookie) || self.devices.contains(cookie.0) {
                continue;
            }
            let rules = self.standby.table(cookie.0).into_iter().flat_map(|table| table.rules());
            let learned = rules.filter(|(_, entry)| entry.rule.cookie == cookie.1);
            let learned: Vec<_> = learned.map(|(id, entry)| (id, entry.clone())).collect();
            learned.into_iter().for_each(|(id, entry)| self.remove(id, entry, Reason::Deleted, made));
        }
    }
}
