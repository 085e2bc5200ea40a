//! The rule index: rules by priority and match, and free ids.

use std::collections::HashMap;
use std::sync::Arc;

use flowlane::rule::{Match, Priority, RuleId};

use super::snapshot::{Change, ChangeKind};
use super::table_map::TableMap;
use super::{Entry, FlowStats};

/// A rule's identity in its table.
pub type RuleKey = (Priority, Match);

#[derive(Debug, Default)]
struct TableIndex {
    by_identity: HashMap<RuleKey, RuleId>,
    /// Ids that nothing refers to any more.
    free: Vec<RuleId>,
    /// All ids are below this number.
    end: u32,
}

/// The id of a removed rule.
#[derive(Clone, Copy, Debug)]
struct RetiredId {
    table: u8,
    id: RuleId,
    /// The first version without the rule.
    version: u64,
}

/// The ids of all rules by identity. A ruleset and its copies share one.
#[derive(Debug, Default)]
pub(crate) struct RuleIndex {
    tables: TableMap<TableIndex>,
    sequence: u64,
    /// Ids for which paths may still hold unflushed counts, oldest first.
    retired: Vec<RetiredId>,
}

impl RuleIndex {
    /// Adds a table with these rules, whose ids are their positions.
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

    /// Finds a rule by its identity.
    pub(crate) fn find(&self, table: u8, identity: &RuleKey) -> Option<RuleId> {
        self.tables.get(table)?.by_identity.get(identity).copied()
    }

    /// Returns the change that adds a rule, or replaces `before`, the rule with its identity. `base` returns the counts so far
    /// of an id.
    ///
    /// # Panics
    /// If there is no such table.
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
                let turns = entry.is_conjunctive() != before.is_conjunctive();
                (id, if turns { ChangeKind::Turn } else { ChangeKind::Replace })
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

    /// Returns the change that removes a rule; `version` is the first without it.
    pub(crate) fn remove(&mut self, id: RuleId, entry: Arc<Entry>, version: u64) -> Change {
        let table = entry.rule.table;
        let names = self.tables.get_mut(table).expect("the table is there");
        names.by_identity.remove(&(entry.rule.priority, entry.rule.matches.clone()));
        self.retired.push(RetiredId { table, id, version });
        Change { table, id, what: ChangeKind::Remove, entry }
    }

    /// Undoes a change; later ones must be undone before.
    pub(crate) fn undo(&mut self, change: &Change) {
        let Change { table, id, what, ref entry } = *change;
        let names = self.tables.get_mut(table).expect("the table is there");
        let identity = || (entry.rule.priority, entry.rule.matches.clone());
        match what {
            ChangeKind::Add => {
                names.by_identity.remove(&identity());
                names.free.push(id);
            }
            ChangeKind::Replace | ChangeKind::Turn => {}
            ChangeKind::Remove => {
                names.by_identity.insert(identity(), id);
                self.retired.pop();
            }
        }
    }

    /// Frees the ids of rules that were removed up to this version, to which nothing refers any more; ids of tables that are
    /// `kept` are not reused.
    pub(crate) fn release(&mut self, version: u64, kept: impl Fn(u8) -> bool) {
        let old = self.retired.partition_point(|retired| retired.version <= version);
        for RetiredId { table, id, .. } in self.retired.drain(..old).filter(|retired| !kept(retired.table)) {
            if let Some(names) = self.tables.get_mut(table) {
                names.free.push(id);
            }
        }
    }

    /// Counts removed rules whose ids are not free yet.
    pub(crate) fn retired(&self) -> usize {
        self.retired.len()
    }
}
