//! Rules, groups, meters and settings of ports as another process gets them, and as it takes them.
//!
//! Counters begin at 0, and so do idle timeouts; hard timeouts go on.

use std::collections::{BTreeSet, HashSet};

use flowlane::rule::action::PortNo;
use flowlane::rule::group::Group;
use flowlane::rule::{FlowFlags, Match, Priority, Rule};
use flowlane::tunnel::MappedOption;

use super::flow_mods::Made;
use super::{
    BundleError, Control, FAIL_OPEN, GroupMod, MeterError, MeterMod, MeterSpec, OptionMod, OptionsError,
    PortChange, Reason, Refusal,
};
use crate::ruleset::{Entry, PortFlags, Timeouts};

/// A rule with all that a flow-mod has given it.
#[derive(Clone, PartialEq, Debug)]
pub struct SavedRule {
    pub rule: Rule,
    /// Seconds; 0 for never.
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    pub flags: FlowFlags,
    pub importance: u16,
    pub created_ns: u64,
    /// When its hard timeout began.
    pub begun_ns: u64,
}

/// The state that control changes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SavedControl {
    pub meters: Vec<MeterSpec>,
    /// The fields of GENEVE options.
    pub options: Vec<(usize, MappedOption)>,
    pub groups: Vec<Group>,
    /// Settings of ports, by number.
    pub ports: Vec<(u32, PortFlags)>,
    pub rules: Vec<SavedRule>,
}

/// The reason for which the state of another switch does not fit this one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotRestored {
    #[error("meter {number}: {error}")]
    Meter { number: u32, error: MeterError },
    #[error("fields of options: {0}")]
    Options(#[from] OptionsError),
    #[error("rule `{rule}`: {refused}")]
    Rule { rule: String, refused: String },
    #[error(transparent)]
    Bundle(BundleError),
}

/// The part of a rule by which a table knows it.
type Name = (u8, Priority, Match);

fn name(rule: &Rule) -> Name {
    (rule.table, rule.priority, rule.matches.clone())
}

impl Control {
    /// Copies the rules, but for those of devices and the one of fail mode, with all that they may name.
    pub fn save(&self) -> SavedControl {
        let ruleset = self.ruleset();
        let tables = ruleset.tables().filter(|(number, _)| !self.devices.contains(*number));
        let rules = tables.flat_map(|(number, table)| {
            table.in_order().into_iter().map(move |(id, entry)| (number, id, entry))
        });
        let rules = rules.filter(|(_, _, entry)| entry.rule.priority != FAIL_OPEN);
        let saved = rules.map(|(number, id, entry)| SavedRule {
            rule: entry.rule.clone(),
            idle_timeout_s: entry.timeouts.idle_s(),
            hard_timeout_s: entry.timeouts.hard_s(),
            flags: entry.flags,
            importance: entry.importance,
            created_ns: entry.created_ns,
            begun_ns: self.timers.begun_ns(number, id).unwrap_or(entry.modified_ns),
        });
        SavedControl {
            meters: self.meters.values().map(|entry| entry.spec.clone()).collect(),
            options: self.options.iter().collect(),
            groups: ruleset.groups().iter().map(|(_, group)| group.group.clone()).collect(),
            ports: self.references.ports.iter().map(|(port, flags)| (*port, *flags)).collect(),
            rules: saved.collect(),
        }
    }

    /// Makes rules, groups, meters, fields of options and settings of ports those that another switch had, before workers run.
    /// Settings of ports that do not exist here are left out.
    ///
    /// # Errors
    /// The first that does not fit; the switch must not run then.
    pub fn restore(&mut self, saved: &SavedControl) -> Result<(), NotRestored> {
        self.restore_meters(&saved.meters)?;
        let same = self.options.iter().eq(saved.options.iter().copied());
        if !same && !saved.options.is_empty() {
            let gone = self.options.iter().map(|(number, _)| number).collect();
            self.change_options(&OptionMod::Delete(gone))?;
            self.change_options(&OptionMod::Add(saved.options.clone()))?;
        }
        let begun: Vec<(Name, u64)> =
            saved.rules.iter().map(|rule| (name(&rule.rule), rule.begun_ns)).collect();
        self.publish_made(|control, _, made| control.apply_saved(saved, made))?;
        self.wait();
        for (name, begun_ns) in begun {
            if let Some(id) = self.writer.find(name.0, &(name.1, name.2)) {
                self.timers.restart(name.0, id, begun_ns);
            }
        }
        Ok(())
    }

    fn restore_meters(&mut self, saved: &[MeterSpec]) -> Result<(), NotRestored> {
        let wanted: BTreeSet<u32> = saved.iter().map(|spec| spec.number).collect();
        let gone: Vec<u32> = self.meters.keys().copied().filter(|number| !wanted.contains(number)).collect();
        let failed = |number| move |error| NotRestored::Meter { number, error };
        for number in gone {
            self.change_meters(&MeterMod::Delete(Some(number))).map_err(failed(number))?;
        }
        for spec in saved {
            let change = match self.meters.get(&spec.number) {
                Some(there) if there.spec == *spec => continue,
                Some(_) => MeterMod::Modify(spec.clone()),
                None => MeterMod::Add(spec.clone()),
            };
            self.change_meters(&change).map_err(failed(spec.number))?;
        }
        Ok(())
    }

    /// Makes the standby's groups, rules and settings of ports the saved ones.
    fn apply_saved(&mut self, saved: &SavedControl, made: &mut Made) -> Result<(), NotRestored> {
        let wanted: HashSet<Name> = saved.rules.iter().map(|saved| name(&saved.rule)).collect();
        let tables = self.standby.tables().filter(|(number, _)| !self.devices.contains(*number));
        let there = tables.flat_map(|(_, table)| table.rules()).map(|(id, entry)| (id, entry.clone()));
        let gone: Vec<_> = there.filter(|(_, entry)| !wanted.contains(&name(&entry.rule))).collect();
        gone.into_iter().for_each(|(id, entry)| self.remove(id, entry, Reason::Deleted, made));
        self.remove_learned(made);
        // Those that change go first: one of them and a new one might lead to each other.
        let is_saved = |group: &Group| saved.groups.iter().any(|one| one == group);
        let there = self.standby.groups().iter().map(|(_, group)| &group.group);
        let changed: Vec<u32> = there.filter(|group| !is_saved(group)).map(|group| group.id).collect();
        let delete = changed.into_iter().map(|id| GroupMod::Delete(Some(id)));
        let set = saved.groups.iter().map(|group| GroupMod::AddOrModify(group.clone()));
        for (at, one) in delete.chain(set).enumerate() {
            let failed = |error| NotRestored::Bundle(BundleError::Group { at, error });
            self.apply_group_mod(&one, made).map_err(failed)?;
        }
        for saved in &saved.rules {
            let refused = |refusal: Refusal| NotRestored::Rule {
                rule: saved.rule.to_string(),
                refused: refusal.to_string(),
            };
            self.restore_rule(saved, made).map_err(refused)?;
        }
        let ports = saved.ports.iter().filter(|(port, _)| self.references.ports.contains_key(port));
        let all = PortFlags(u16::MAX);
        let ports = ports.map(|&(port, flags)| PortChange { port: PortNo(port), flags, mask: all });
        let ports: Vec<PortChange> = ports.collect();
        self.apply_port_changes(&ports, &[]).map_err(NotRestored::Bundle)
    }

    /// Adds a rule, unless it is there.
    fn restore_rule(&mut self, saved: &SavedRule, made: &mut Made) -> Result<(), Refusal> {
        let SavedRule { rule, idle_timeout_s, hard_timeout_s, flags, importance, created_ns, begun_ns } =
            saved;
        let (table, known) = (rule.table, name(rule));
        let id = self.writer.find(table, &(known.1, known.2));
        let there = id.and_then(|id| self.standby.table(table)?.rule(id));
        let is_same = there.is_some_and(|entry| {
            entry.rule == *rule
                && (entry.timeouts.idle_s(), entry.timeouts.hard_s()) == (*idle_timeout_s, *hard_timeout_s)
                && (entry.flags, entry.importance) == (*flags, *importance)
        });
        if is_same {
            return Ok(());
        }
        let mut entry = Entry::new(rule.clone());
        (entry.created_ns, entry.modified_ns) = (*created_ns, *begun_ns);
        entry.timeouts = Timeouts::new(*idle_timeout_s, *hard_timeout_s);
        (entry.flags, entry.importance) = (*flags, *importance);
        self.add(entry, made)
    }
}
