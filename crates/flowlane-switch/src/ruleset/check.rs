//! Checks of rules before they are added.

use flowlane::packet::FlowKey;
use flowlane::rule::action::HEADERS_PUSHED_MAX;
use flowlane::rule::{Action, Rule};

use super::compile;
use super::rules::is_conjunctive;
use super::{Learned, Ruleset, RulesetError};

impl Ruleset {
    /// Checks that a rule's table exists and its actions are valid.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self, rule: &Rule) -> Result<(), RulesetError> {
        if self.table(rule.table).is_none() {
            return Err(RulesetError::NoTable(rule.table));
        }
        self.check_actions(rule)
    }

    /// Checks an action, and those within it.
    fn check_action(&self, action: &Action) -> Result<(), RulesetError> {
        compile::check_field(action)?;
        if let Some(why) = compile::unsupported(action) {
            return Err(RulesetError::Unsupported { action: action.to_string(), why });
        }
        if let Action::Learn(learn) = action {
            if !self.learns_into(learn.table) {
                return Err(RulesetError::NoTable(learn.table));
            }
            // Values differ from packet to packet, not fields.
            self.check_actions(&Learned::of(learn, &FlowKey::zero()).flow_mod.rule)?;
        }
        // In a copy it does nothing, as in Open vSwitch.
        let is_copy = matches!(action, Action::Clone(_));
        if is_conjunctive(action.nested()) && !(is_copy && action.nested().iter().all(is_of_part)) {
            return Err(RulesetError::Conjunction);
        }
        if let Action::ConnectionTracking(tracking) = action {
            // The mark and label of a connection are set here only, and it is translated here only.
            let is_known = |nested: &&Action| {
                matches!(nested, Action::SetField { .. } | Action::Move { .. } | Action::Nat(_))
            };
            return tracking
                .exec
                .iter()
                .filter(|nested| !is_known(nested))
                .try_for_each(|nested| self.check_action(nested));
        }
        action.nested().iter().try_for_each(|nested| self.check_action(nested))
    }

    /// Checks the actions of a rule whose table may not exist yet.
    pub(crate) fn check_actions(&self, rule: &Rule) -> Result<(), RulesetError> {
        let pushes = compile::pushes(&rule.actions);
        if pushes > HEADERS_PUSHED_MAX {
            return Err(RulesetError::Pushes(pushes));
        }
        if is_conjunctive(&rule.actions) && !rule.actions.iter().all(is_of_part) {
            return Err(RulesetError::Conjunction);
        }
        for (i, action) in rule.actions.iter().enumerate() {
            self.check_action(action)?;
            let &Action::Goto(to) = action else { continue };
            if to <= rule.table {
                return Err(RulesetError::GotoBackwards { from: rule.table, to });
            }
            if i + 1 < rule.actions.len() {
                return Err(RulesetError::GotoNotLast(to));
            }
            if !self.has_table(to) {
                return Err(RulesetError::NoGotoTable(to));
            }
        }
        Ok(())
    }
}

/// Returns whether an action may be beside a conjunction.
fn is_of_part(action: &Action) -> bool {
    match *action {
        Action::Conjunction { clause, clauses, .. } => (2..=64).contains(&clauses) && clause < clauses,
        Action::Note(_) => true,
        _ => false,
    }
}
