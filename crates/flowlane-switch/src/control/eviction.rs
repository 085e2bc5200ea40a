//! Rules that make room for new ones in a table that is full (OpenFlow 1.4.1, 6.5 and 7.3.4.1).
//!
//! As in Open vSwitch, only rules with timeouts may go: first those of the least importance, of them the one whose hard timeout, or
//! whose idle timeout since its last change, passes first.

use flowlane::classify::InsertError;

use super::flow_mods::Made;
use super::{Control, FAIL_OPEN, Reason, Refusal};
use crate::ruleset::{Entry, RulesetError};

const NS_PER_S: u64 = 1_000_000_000;

impl Control {
    /// Lets rules of a table make room for new ones, or not; `None`: of all tables.
    ///
    /// # Errors
    /// There is no such table.
    pub fn set_evicting(&mut self, table: Option<u8>, evicts: bool) -> Result<(), RulesetError> {
        let ruleset = self.ruleset();
        if let Some(number) = table.filter(|number| ruleset.table(*number).is_none()) {
            return Err(RulesetError::NoTable(number));
        }
        for (number, _) in ruleset.tables().filter(|(number, _)| table.is_none_or(|one| one == *number)) {
            match evicts {
                true => _ = self.evicting.insert(number),
                false => _ = self.evicting.remove(&number),
            }
        }
        Ok(())
    }

    /// Returns whether rules of a table make room for new ones.
    pub fn is_evicting(&self, table: u8) -> bool {
        self.evicting.contains(&table)
    }

    /// Adds a rule, or replaces the one of its priority and match; where its table is full and evicts, another rule goes.
    pub(super) fn add_evicting(&mut self, entry: Entry, made: &mut Made) -> Result<(), Refusal> {
        let table = entry.rule.table;
        if !self.is_evicting(table) {
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
