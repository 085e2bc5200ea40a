//! Who may change rules: their names, and the handles that are free.

use std::collections::HashMap;
use std::sync::Arc;

use flowlane::rule::{Match, Priority, RuleId};

use super::snapshot::{Change, ChangeKind};
use super::table_map::TableMap;
use super::{Entry, FlowStats};

/// What names a rule in its table.
pub(crate) type RuleKey = (Priority, Match);

#[derive(Debug, Default)]
struct TableIndex {
    by_identity: HashMap<RuleKey, RuleId>,
    /// Handles that nothing means any more.
    free: Vec<RuleId>,
    /// Handles are below this number.
    end: u32,
}

/// A handle whose rule has gone.
#[derive(Clone, Copy, Debug)]
struct RetiredId {
    table: u8,
    id: RuleId,
    /// From this version on there is no such rule.
    version: u64,
}

/// The names of all rules, and their handles. There is one for a ruleset and its copies.
#[derive(Debug, Default)]
pub(crate) struct RuleIndex {
    tables: TableMap<TableIndex>,
    sequence: u64,
    /// Handles to which paths may still have counters to bring: oldest first.
    retired: Vec<RetiredId>,
}

impl RuleIndex {
    /// A table with these rules, whose handles are their places.
    pub(crate) fn add_table(&mut self, number: u8, entries: &mut [Entry]) {
        self.retired.retain(|retired| retired.table != number);
        let mut names = TableIndex { end: entries.len() as u32, ..TableIndex::default() };
        for (id, entry) in (0..).map(RuleId).zip(entries) {
            entry.sequence = self.sequence;
            self.sequence += 1;
            names.by_identity.insert((entry.rule.priority, entry.rule.matches.clone()), id);
        }
        self.tables.insert(number, names);
    }

    /// The rule of this name.
    pub(crate) fn find(&self, table: u8, identity: &RuleKey) -> Option<RuleId> {
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
        base: impl FnOnce(RuleId) -> FlowStats,
    ) -> Change {
        let table = entry.rule.table;
        let names = self.tables.get_mut(table).expect("the table is there");
        let (id, what) = match before {
            Some((id, before)) => {
                (entry.sequence, entry.base) = (before.sequence, before.base);
                (id, ChangeKind::Replace)
            }
            None => {
                let id = names.free.pop().unwrap_or_else(|| {
                    names.end += 1;
                    RuleId(names.end - 1)
                });
                (entry.sequence, entry.base) = (self.sequence, base(id));
                self.sequence += 1;
                names.by_identity.insert((entry.rule.priority, entry.rule.matches.clone()), id);
                (id, ChangeKind::Add)
            }
        };
        Change { table, id, what, entry: Arc::new(entry) }
    }

    /// The change by which a rule goes; `version` is that of the ruleset without it.
    pub(crate) fn remove(&mut self, id: RuleId, entry: Arc<Entry>, version: u64) -> Change {
        let table = entry.rule.table;
        let names = self.tables.get_mut(table).expect("the table is there");
        names.by_identity.remove(&(entry.rule.priority, entry.rule.matches.clone()));
        self.retired.push(RetiredId { table, id, version });
        Change { table, id, what: ChangeKind::Remove, entry }
    }

    /// A change is not to be, and none that came after it.
    pub(crate) fn undo(&mut self, change: &Change) {
        let Change { table, id, what, ref entry } = *change;
        let names = self.tables.get_mut(table).expect("the table is there");
        let identity = || (entry.rule.priority, entry.rule.matches.clone());
        match what {
            ChangeKind::Add => {
                names.by_identity.remove(&identity());
                names.free.push(id);
            }
            ChangeKind::Replace => {}
            ChangeKind::Remove => {
                names.by_identity.insert(identity(), id);
                self.retired.pop();
            }
        }
    }

    /// Nothing means the rules any more that went before this version, or with it: their handles may be used again, but those
    /// of the tables that are `kept`.
    pub(crate) fn release(&mut self, version: u64, kept: impl Fn(u8) -> bool) {
        let old = self.retired.partition_point(|retired| retired.version <= version);
        for RetiredId { table, id, .. } in self.retired.drain(..old).filter(|retired| !kept(retired.table)) {
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
