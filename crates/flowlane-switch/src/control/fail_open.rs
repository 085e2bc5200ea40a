//! Forwarding by `normal` while no controller is connected.

use flowlane::rule::{Action, Command, FlowMod, Match, Priority, Rule};

use super::{Control, Refused};

/// The priority of the rule that forwards then: above all of OpenFlow's, as in Open vSwitch. Flow-mods do not select the rule.
pub(crate) const FAIL_OPEN: Priority = Priority(0xf0_f0f0);

fn rule(priority: Priority) -> Rule {
    Rule { priority, ..Rule::new(Match::any(), vec![Action::Normal]) }
}

impl Control {
    /// Removes all rules, and forwards all packets by `normal`.
    ///
    /// # Errors
    /// Where the first table, or rules of a device, cannot be changed; nothing has changed.
    pub fn fail_open(&mut self) -> Result<(), Refused> {
        let all =
            FlowMod { table: None, ..FlowMod::new(Command::Delete, Rule::new(Match::any(), Vec::new())) };
        self.change(&[all, FlowMod::new(Command::Add, rule(FAIL_OPEN))])?;
        Ok(())
    }

    /// Removes the rule that [`fail_open`](Self::fail_open) has added.
    ///
    /// # Errors
    /// Where the first table cannot be changed.
    pub fn end_fail_open(&mut self) -> Result<(), Refused> {
        self.change(&[FlowMod::new(Command::DeleteStrict, rule(FAIL_OPEN))])?;
        Ok(())
    }

    /// Forwards packets that no other rule of the first table matches by `normal`, unless there is a table-miss rule.
    ///
    /// # Errors
    /// Where the first table cannot be changed.
    pub fn forward_misses(&mut self) -> Result<(), Refused> {
        let rule = rule(Priority(0));
        match self.writer.find(rule.table, &(rule.priority, rule.matches.clone())) {
            Some(_) => Ok(()),
            None => self.change(&[FlowMod::new(Command::Add, rule)]).map(drop),
        }
    }
}
