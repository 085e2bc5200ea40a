//! Settings of tables by controllers: rules that make room for new ones in a table that is full, and events of its free space
//! (OpenFlow 1.4.1, 6.5, 7.3.4.1 and 7.4.5).
//!
//! As in Open vSwitch, only rules with timeouts may go: first those of the least importance, of them the one whose hard timeout, or
//! whose idle timeout since its last change, passes first. An event of one kind arms the other, so that a table at a limit sends few.

use flowlane::classify::InsertError;

use super::flow_mods::Made;
use super::{Control, FAIL_OPEN, Notice, Reason, Refusal};
use crate::ruleset::{Entry, RulesetError, Table};

const NS_PER_S: u64 = 1_000_000_000;

/// Settings of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TableSettings {
    /// Rules make room for new ones when it is full.
    pub(crate) evicts: bool,
    /// The events of its free space; `None`: there are none.
    pub(crate) vacancy: Option<VacancyEvents>,
}

/// The free space of a table, in percent, at which events are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VacancyLimits {
    /// An event is sent when it falls below this.
    pub down: u8,
    /// An event is sent when it rises above this.
    pub up: u8,
}

/// The events of a table's free space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct VacancyEvents {
    pub(crate) limits: VacancyLimits,
    /// The next event is that the free space has come up.
    next_is_up: bool,
}

/// Returns the free space of a table in percent: all of it where only memory limits the rules.
pub(crate) fn vacancy_of(table: &Table) -> u8 {
    let rules_max = table.engine().and_then(|engine| engine.rules_max()).filter(|rules_max| *rules_max > 0);
    let free = rules_max.map_or(100, |rules_max| rules_max.saturating_sub(table.len()) * 100 / rules_max);
    free as u8
}

impl Control {
    /// Changes the settings of a table; `None`: of all tables. Where there were events
    /// already, the next one stays the kind that it was, as in Open vSwitch.
    ///
    /// # Errors
    /// There is no such table.
    pub fn set_table(
        &mut self,
        table: Option<u8>,
        evicts: bool,
        vacancy: Option<VacancyLimits>,
    ) -> Result<(), RulesetError> {
        let ruleset = self.ruleset();
        if let Some(number) = table.filter(|number| ruleset.table(*number).is_none()) {
            return Err(RulesetError::NoTable(number));
        }
        for (number, state) in ruleset.tables().filter(|(number, _)| table.is_none_or(|one| one == *number)) {
            let settings = self.table_settings.entry(number).or_default();
            settings.evicts = evicts;
            let armed = settings.vacancy.map(|events| events.next_is_up);
            settings.vacancy = vacancy.map(|limits| VacancyEvents {
                limits,
                next_is_up: armed.unwrap_or(vacancy_of(state) < limits.up),
            });
        }
        Ok(())
    }

    /// Returns the settings of a table.
    pub(crate) fn table_settings(&self, table: u8) -> TableSettings {
        self.table_settings.get(&table).copied().unwrap_or_default()
    }

    /// Notifies controllers of changes that have been published.
    pub(super) fn tell_changes(&mut self, made: &Made) {
        if !made.events.is_empty() {
            self.notices.push(Notice::RulesChanged { by: self.requester, events: made.events.clone() });
        }
        let ruleset = self.published.newest();
        for (&number, settings) in &mut self.table_settings {
            let changed = || made.changes.iter().any(|change| change.table == number);
            let Some(events) = settings.vacancy.as_mut().filter(|_| changed()) else { continue };
            let vacancy = ruleset.table(number).map_or(100, vacancy_of);
            let VacancyLimits { down, up } = events.limits;
            let is_up = events.next_is_up;
            if is_up && vacancy > up || !is_up && vacancy < down {
                events.next_is_up = !is_up;
                let settings = *settings;
                self.notices.push(Notice::Vacancy { table: number, is_up, vacancy, settings });
            }
        }
    }

    /// Adds a rule, or replaces the one of its priority and match; where its table is full and evicts, another rule goes.
    pub(super) fn add_evicting(&mut self, entry: Entry, made: &mut Made) -> Result<(), Refusal> {
        let table = entry.rule.table;
        if !self.table_settings(table).evicts {
            return self.add(entry, made);
        }
        match self.add(entry.clone(), made) {
            Err(refused) if is_full(&refused) && self.evict(table, made) => self.add(entry, made),
            result => result,
        }
    }

    /// Removes the rule of a table that goes first. Returns whether there is one.
    fn evict(&mut self, number: u8, made: &mut Made) -> bool {
        let Some(table) = self.standby.table(number) else { return false };
        let rules = table.rules().filter(|(_, entry)| entry.rule.priority != FAIL_OPEN);
        let candidates = rules.filter_map(|(id, entry)| Some((entry.importance, ends_ns(entry)?, id)));
        let Some((.., id)) = candidates.min_by_key(|&(importance, ends_ns, id)| (importance, ends_ns, id.0))
        else {
            return false;
        };
        let entry = table.rule(id).expect("it is one of its rules").clone();
        self.remove(id, entry, Reason::Evicted, made);
        true
    }
}

fn is_full(refused: &Refusal) -> bool {
    let Refusal::Pipeline(RulesetError::Insert { source, .. }) = refused else { return false };
    matches!(source, InsertError::Full { .. })
}

/// When a rule's timeout passes if no packet comes; `None`: never.
fn ends_ns(entry: &Entry) -> Option<u64> {
    let after = |from_ns: u64, timeout_s: u16| {
        (timeout_s > 0).then(|| from_ns.saturating_add(u64::from(timeout_s) * NS_PER_S))
    };
    let hard = after(entry.modified_ns, entry.timeouts.hard_s());
    let idle = after(entry.modified_ns, entry.timeouts.idle_s());
    hard.into_iter().chain(idle).min()
}
