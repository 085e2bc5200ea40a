//! Who may change rules: their names, and the handles that are free.

use std::collections::HashMap;
use std::sync::Arc;

use flowlane::rule::{Match, Priority, RuleId};

use super::by_number::ByNumber;
use super::snapshot::{Change, What};
use super::{Count, Entry};

/// What names a rule in its table.
pub(crate) type Identity = (Priority, Match);

#[derive(Debug, Default)]
struct Names {
    by_identity: HashMap<Identity, RuleId>,
    /// Handles that nothing means any more.
    free: Vec<RuleId>,
    /// Handles are below this number.
    end: u32,
}

/// A handle whose rule has gone.
#[derive(Clone, Copy, Debug)]
struct Retired {
    table: u8,
    id: RuleId,
    /// From this version on there is no such rule.
    version: u64,
}

/// The names of all rules, and their handles. There is one for a program and its copies.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    tables: ByNumber<Names>,
    sequence: u64,
    /// Handles to which paths may still have counters to bring: oldest first.
    retired: Vec<Retired>,
}

impl Writer {
    /// A table with these rules, whose handles are their places.
    pub(crate) fn add_table(&mut self, number: u8, entries: &mut [Entry]) {
        self.retired.retain(|retired| retired.table != number);
        let mut names = Names { end: entries.len() as u32, ..Names::default() };
        for (id, entry) in (0..).map(RuleId).zip(entries) {
            entry.sequence = self.sequence;
            self.sequence += 1;
            names.by_identity.insert((entry.rule.priority, entry.rule.matches.clone()), id);
        }
        self.tables.insert(number, names);
    }

    /// The rule of this name.
    pub(crate) fn find(&self, table: u8, identity: &Identity) -> Option<RuleId> {
        self.tables.get(table)?.by_identity.get(identity).copied()
    }

    /// The change by which a rule comes, or takes the place of `before`, the one of its name. `base` says what has been counted
    /// for a handle.
    ///
    /// # Panics
    /// Where there is no such table.
    pub(crate) fn add(
        &mut self,
        mut entry: Entry,
        before: Option<(RuleId, &Entry)>,
        base: impl FnOnce(RuleId) -> Count,
    ) -> Change {
        let table = entry.rule.table;
        let names = self.tables.get_mut(table).expect("the table is there");
        let (id, what) = match before {
            Some((id, before)) => {
                (entry.sequence, entry.base) = (before.sequence, before.base);
                (id, What::Replace)
            }
            None => {
                let id = names.free.pop().unwrap_or_else(|| {
                    names.end += 1;
                    RuleId(names.end - 1)
                });
                (entry.sequence, entry.base) = (self.sequence, base(id));
                self.sequence += 1;
                names.by_identity.insert((entry.rule.priority, entry.rule.matches.clone()), id);
                (id, What::Add)
            }
        };
        Change { table, id, what, entry: Arc::new(entry) }
    }

    /// The change by which a rule goes; `version` is that of the program without it.
    pub(crate) fn remove(&mut self, id: RuleId, entry: Arc<Entry>, version: u64) -> Change {
        let table = entry.rule.table;
        let names = self.tables.get_mut(table).expect("the table is there");
        names.by_identity.remove(&(entry.rule.priority, entry.rule.matches.clone()));
        self.retired.push(Retired { table, id, version });
        Change { table, id, what: What::Remove, entry }
    }

    /// A change is not to be, and none that came after it.
    pub(crate) fn undo(&mut self, change: &Change) {
        let Change { table, id, what, ref entry } = *change;
        let names = self.tables.get_mut(table).expect("the table is there");
        let identity = || (entry.rule.priority, entry.rule.matches.clone());
        match what {
            What::Add => {
                names.by_identity.remove(&identity());
                names.free.push(id);
            }
            What::Replace => {}
            What::Remove => {
                names.by_identity.insert(identity(), id);
                self.retired.pop();
            }
        }
    }

    /// Nothing means the rules any more that went before this version, or with it: their handles may be used again, but those
    /// of the tables that are `kept`.
    pub(crate) fn release(&mut self, version: u64, kept: impl Fn(u8) -> bool) {
        let old = self.retired.partition_point(|retired| retired.version <= version);
        for Retired { table, id, .. } in self.retired.drain(..old).filter(|retired| !kept(retired.table)) {
            if let Some(names) = self.tables.get_mut(table) {
                names.free.push(id);
            }
        }
    }

    /// Rules that went and whose handles are not free yet.
    pub(crate) fn retired(&self) -> usize {
        self.retired.len()
    }
}
