//! Applies flow-mods (add, modify, delete) to the standby ruleset.

use std::borrow::Cow;
use std::sync::Arc;

use flowlane::rule::{Command, FlowFlags, FlowMod, Rule, RuleId};

use super::{Control, FAIL_OPEN, Reason, Refusal, RuleEvent, RuleEventKind};
use crate::datapath::TableCookie;
use crate::ruleset::{Change, ChangeKind, Entry, Event, RulesetError, Timeouts, limited, without_recirc_id};

/// The changes made to the standby.
#[derive(Default)]
pub(super) struct Made {
    pub(super) changes: Vec<Change>,
    /// Why rules were removed: one for each removal among the changes, in their order.
    pub(super) reasons: Vec<Reason>,
    /// The changes that monitors of rules report, while there are any.
    pub(super) events: Vec<RuleEvent>,
    /// The former rules: one for each replacement among the changes, in their order.
    pub(super) replaced: Vec<Arc<Entry>>,
    /// Cookies of learned rules that are to be removed, since the last action that learns them has gone.
    pub(super) ended: Vec<TableCookie>,
    /// Cookies of learned rules for which new rules have limits.
    pub(super) limited: Vec<TableCookie>,
}

/// The flags of a flow-mod that the rule keeps.
const LASTING: u16 = FlowFlags::SEND_FLOW_REM.0
    | FlowFlags::CHECK_OVERLAP.0
    | FlowFlags::RESET_COUNTS.0
    | FlowFlags::NO_PACKET_COUNTS.0
    | FlowFlags::NO_BYTE_COUNTS.0;

impl Control {
    /// Applies one flow-mod to the standby, and removes the learned rules that go with others.
    pub(super) fn apply_flow_mod(
        &mut self,
        one: &FlowMod,
        now_ns: u64,
        made: &mut Made,
    ) -> Result<(), Refusal> {
        let rule = without_recirc_id(&one.rule)?;
        let changed;
        let one = match rule {
            Cow::Borrowed(_) => one,
            Cow::Owned(rule) => {
                changed = FlowMod { rule, ..one.clone() };
                &changed
            }
        };
        if let Some(table) = one.table
            && self.standby.table(table).is_none()
        {
            return Err(RulesetError::NoTable(table).into());
        }
        match one.command {
            Command::Add => {
                if one.flags.contains(FlowFlags::CHECK_OVERLAP) && self.overlaps(&one.rule) {
                    return Err(Refusal::Overlap);
                }
                let mut entry = Entry::new(one.rule.clone());
                (entry.created_ns, entry.modified_ns) = (now_ns, now_ns);
                entry.timeouts = Timeouts::new(one.idle_timeout_s, one.hard_timeout_s);
                entry.flags = FlowFlags(one.flags.0 & LASTING);
                entry.importance = one.importance;
                self.add_evicting(entry, made)?;
                self.watch(RuleEventKind::Added, made);
            }
            Command::Modify | Command::ModifyStrict => {
                for (_, before) in self.selected(one) {
                    let cookie = one.new_cookie.unwrap_or(before.rule.cookie);
                    let rule = Rule { actions: one.rule.actions.clone(), cookie, ..before.rule.clone() };
                    let is_other = rule != before.rule;
                    let entry = Entry {
                        created_ns: before.created_ns,
                        modified_ns: now_ns,
                        timeouts: before.timeouts.clone(),
                        flags: before.flags,
                        importance: before.importance,
                        ..Entry::new(rule)
                    };
                    self.add(entry, made)?;
                    if is_other {
                        self.watch(RuleEventKind::Modified, made);
                    }
                }
            }
            Command::Delete | Command::DeleteStrict => {
                for (id, entry) in self.selected(one) {
                    self.may_change(entry.rule.table)?;
                    self.remove(id, entry, Reason::Deleted, made);
                }
            }
        }
        self.remove_learned(made);
        Ok(())
    }

    /// Returns the rules that a flow-mod selects.
    fn selected(&self, one: &FlowMod) -> Vec<(RuleId, Arc<Entry>)> {
        let tables =
            self.standby.tables().filter(|(number, _)| one.table.is_none_or(|table| table == *number));
        let strict = matches!(one.command, Command::ModifyStrict | Command::DeleteStrict);
        let mut out = Vec::new();
        for (number, table) in tables {
            if strict {
                // The index finds priority and match directly.
                let id = self.writer.find(number, &(one.rule.priority, one.rule.matches.clone()));
                let found = id.and_then(|id| Some((id, table.rule(id)?.clone())));
                out.extend(found.filter(|(_, entry)| one.selects(number, &entry.rule)));
            } else {
                let is_selected = |rule: &Rule| rule.priority != FAIL_OPEN && one.selects(number, rule);
                let rules = table.rules().filter(|(_, entry)| is_selected(&entry.rule));
                out.extend(rules.map(|(id, entry)| (id, entry.clone())));
            }
        }
        out
    }

    /// Returns whether a packet could match a rule and another of its table and priority (OpenFlow 1.3.5, 6.4).
    fn overlaps(&self, rule: &Rule) -> bool {
        let (key, mask) = (rule.matches.key(), rule.matches.mask());
        let table = self.standby.table(rule.table);
        table.into_iter().flat_map(|table| table.rules()).any(|(_, entry)| {
            entry.rule.priority == rule.priority && !entry.rule.matches.is_disjoint(&key, &mask)
        })
    }

    fn may_change(&self, table: u8) -> Result<(), Refusal> {
        match self.devices.contains(table) {
            true => Err(Refusal::Device(table)),
            false => Ok(()),
        }
    }

    /// Adds a rule, or replaces the one of the same priority and match.
    pub(super) fn add(&mut self, entry: Entry, made: &mut Made) -> Result<(), Refusal> {
        let number = entry.rule.table;
        self.standby.check(&entry.rule)?;
        self.may_change(number)?;
        self.check_references(&self.standby, &entry.rule.actions)?;
        self.check_options(&entry.rule.matches)?;
        let found = self.writer.find(number, &(entry.rule.priority, entry.rule.matches.clone()));
        let table = self.standby.table(number).expect("checked above");
        let before = found.map(|id| (id, table.rule(id).expect("the index has it").clone()));
        let readers = &self.readers;
        let base = |id| readers.counts(number, [id])[0];
        let change = self.writer.add(entry, before.as_ref().map(|(id, entry)| (*id, &**entry)), base);
        if let Err(refused) = self.standby().apply(Arc::new(Event::Rule(change.clone()))) {
            self.writer.undo(&change);
            return Err(refused.into());
        }
        let before = before.map(|(_, entry)| entry);
        made.limited.extend(limited(&change.entry.rule.actions));
        made.ended.extend(self.cookies.follow(before.as_deref(), Some(&change.entry)));
        made.replaced.extend(before);
        made.changes.push(change);
        Ok(())
    }

    /// Removes a rule.
    pub(super) fn remove(&mut self, id: RuleId, entry: Arc<Entry>, reason: Reason, made: &mut Made) {
        let version = self.standby.version() + 1;
        let change = self.writer.remove(id, entry, version);
        self.standby().apply(Arc::new(Event::Rule(change.clone()))).expect("a rule can always be removed");
        made.ended.extend(self.cookies.follow(Some(&change.entry), None));
        made.changes.push(change);
        made.reasons.push(reason);
        self.watch(RuleEventKind::Removed(reason), made);
    }

    /// Lets monitors of rules report the last change.
    fn watch(&self, kind: RuleEventKind, made: &mut Made) {
        let changed = made.changes.last().filter(|change| change.entry.rule.priority != FAIL_OPEN);
        if let (true, Some(change)) = (self.notices.is_watched(), changed) {
            made.events.push(RuleEvent {
                kind,
                is_new: change.what == ChangeKind::Add,
                entry: change.entry.clone(),
                before: match change.what {
                    ChangeKind::Replace | ChangeKind::Turn => made.replaced.last().cloned(),
                    ChangeKind::Add | ChangeKind::Remove => None,
                },
            });
        }
    }
}
