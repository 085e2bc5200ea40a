//! Steps: the operations and jumps that actions compile to.

use std::sync::Arc;

use flowlane::memory::prefetch;
use flowlane::rule::action::{Controller, PortNo};
use flowlane::rule::{Action, Match, Rule, RuleId};

use super::compile::has_effects;
use super::{LaneStep, action_set};
use crate::packet::Shown;

/// One step of a path. All that depends on the bits that the megaflow fixes has been decided.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A rule won, or none did: a mark for the counters.
    Matched {
        /// Where.
        table: u8,
        /// Which; none for a miss.
        rule: Option<RuleId>,
        /// The table has seen the tuple of the packet's connection in place of the packet's own.
        original: bool,
    },
    /// Applies an action. `move` has become `set_field` where the megaflow fixes the source; `goto_table`
    /// has been followed.
    Do(Action),
    /// Sends the packet to controllers.
    Controller {
        to: Arc<ToController>,
        /// Words of the key that rules have set and that are in no header: (word, value, mask).
        carry: Vec<(u8, u32, u32)>,
    },
    /// Parse the packet again, since its headers are not where they were, and the next step looks at them.
    Parse,
    /// Go on in a table behind the caches, of routes or of a stateful stage, together with the burst's other packets that come
    /// there. The last step.
    Enter {
        /// Which.
        table: u8,
        /// Words of the key that rules have set and that are in no header: (word, value, mask).
        carry: Vec<(u8, u32, u32)>,
    },
    /// Goes through a table and whatever follows there, then comes back to the step behind.
    Call {
        /// Which table.
        table: u8,
        /// The fields that the table sees instead of the packet's own.
        shown: Shown,
        /// It leads back: to the table that the packet is in, or an earlier one.
        back: bool,
        /// The headers are not what the key says any more: the packet is parsed again before.
        again: bool,
    },
    /// A step that concerns more than the packet's bytes.
    Lane {
        step: Arc<LaneStep>,
        /// The headers are not what the key says any more: the packet is parsed again before.
        again: bool,
    },
    /// A call that was open when the rules were walked to record this path. It is open for the packet from here on.
    Push(Return),
    /// Parses the packet again, since its headers are not what the key says any more, and looks it up again
    /// from a table on. The last step.
    Recirculate {
        /// Where to go on.
        table: u8,
        /// Words of the key that rules have set and that are in no header: (word, value, mask).
        carry: Vec<(u8, u32, u32)>,
    },
}

impl From<ToController> for Step {
    fn from(to: ToController) -> Self {
        Self::Controller { to: Arc::new(to), carry: Vec::new() }
    }
}

/// A packet's way to controllers: the action, and the rule that has it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ToController {
    pub action: Controller,
    pub origin: Origin,
}

impl ToController {
    /// Returns whether the packet is sent because no rule matched.
    pub fn is_miss(&self) -> bool {
        self.action.reason == 0 && self.origin.cookie == u64::MAX
    }

    /// The way of a packet that a controller has sent, back to controllers: it has a reason of its own. As in Open vSwitch, actions that
    /// say more than that the packet is sent keep theirs.
    pub fn of_packet_out(&self) -> Option<Self> {
        // OFPR_PACKET_OUT instead of an action, an action set or a group (OpenFlow 1.4.1, 7.4.1).
        const PACKET_OUT: u8 = 5;
        let Controller { max_len, reason, .. } = self.action;
        let plain = Controller { max_len, reason, ..Controller::default() };
        let is_plain = self.action == plain && matches!(reason, 1 | 3 | 4);
        let origin = self.origin;
        is_plain.then_some(Self { action: Controller { reason: PACKET_OUT, ..plain }, origin })
    }
}

/// The rule whose actions are compiled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Origin {
    /// Its table.
    pub table: u8,
    /// Its cookie; all ones: there is no rule.
    pub cookie: u64,
    /// It is a table-miss rule (OpenFlow 1.3.5, 5.4): priority 0, and all packets match.
    pub is_table_miss: bool,
}

impl Origin {
    /// No rule: that of a table's miss, a next hop, a verdict, a bucket.
    pub fn none(table: u8) -> Self {
        Self { table, cookie: u64::MAX, is_table_miss: false }
    }

    /// A rule.
    pub fn of(rule: &Rule) -> Self {
        let is_table_miss = rule.priority.0 == 0 && rule.matches == Match::any();
        Self { table: rule.table, cookie: rule.cookie, is_table_miss }
    }

    /// Returns whether there is no rule.
    pub fn is_none(self) -> bool {
        self.cookie == u64::MAX
    }
}

/// A place in a list of steps to which a call returns.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Return {
    pub steps: Steps,
    /// The next step.
    pub at: usize,
    /// The packet's action set: the outermost return, if the packet has one.
    pub set: ActionSet,
    /// The packet's rounds when it comes back.
    pub rounds: u8,
}

/// The part of a packet's action set in a [`Return`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum ActionSet {
    /// None: the return is a call's.
    #[default]
    No,
    /// The return's steps are those of these actions.
    Written(Arc<[Action]>),
    /// The set is being executed, and actions that are written meanwhile are lost, as in Open vSwitch.
    Executing,
}

impl Return {
    /// A place in steps that are no action set's, and the packet's rounds there.
    pub fn to(steps: Steps, at: usize, rounds: u8) -> Self {
        Self { steps, at, set: ActionSet::No, rounds }
    }

    /// Writes to the action set at the outermost place of a call stack; without `written`, empties it.
    pub fn write(calls: &mut Vec<Return>, written: Option<&[Action]>) {
        let before = match calls.first().map(|call| &call.set) {
            Some(ActionSet::Executing) => return,
            Some(ActionSet::Written(before)) => {
                let before = before.clone();
                calls.remove(0);
                before
            }
            Some(ActionSet::No) | None => Arc::default(),
        };
        if let Some(written) = written {
            calls.insert(0, Self::of_set(action_set::merge(&before, written)));
        }
    }

    /// Pops the innermost return. A packet that then executes its action set stays in that.
    pub fn pop(calls: &mut Vec<Return>) -> Option<Return> {
        let call = calls.pop()?;
        match call.set {
            ActionSet::No => {}
            ActionSet::Executing => return None,
            ActionSet::Written(_) => {
                calls.push(Self { set: ActionSet::Executing, ..Self::default() });
            }
        }
        Some(call)
    }

    /// Returns the call stack of a copy of a packet: its action set.
    pub fn for_copy(calls: &[Return]) -> Vec<Return> {
        let has_set = |call: &&Return| call.set != ActionSet::No;
        calls.first().filter(has_set).cloned().into_iter().collect()
    }

    /// Returns whether a packet does nothing that others can tell after these calls return: they only change the packet,
    /// which has no action set.
    pub fn lead_nowhere(calls: &[Return]) -> bool {
        calls.iter().all(|call| call.set == ActionSet::No && call.leads_nowhere())
    }

    /// Returns whether a packet that goes on here is only changed until the end of the list.
    pub fn leads_nowhere(&self) -> bool {
        self.steps.lead_nowhere_from(self.at)
    }

    /// Returns the action set at the outermost place of a call stack.
    pub fn set_of(calls: &[Return]) -> &ActionSet {
        calls.first().map_or(&ActionSet::No, |call| &call.set)
    }

    /// The steps of an action set.
    pub fn of_set(set: Arc<[Action]>) -> Self {
        Self { steps: action_set::steps(&set), at: 0, set: ActionSet::Written(set), rounds: 0 }
    }
}

/// Steps with a summary of their effects: steps without visible effects run for all packets of a burst together, the rest run
/// in their order.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Steps {
    steps: Arc<[Step]>,
    summary: StepSummary,
}

/// A summary of steps, marks aside. Most packets meet a single step, which the summary holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum StepSummary {
    /// To send the packet through a port.
    Output(PortNo),
    /// To go on in a table as it is.
    Enter(u8),
    /// To look its connection up, and to go on in a table.
    Track,
    /// To nothing.
    #[default]
    Nothing,
    /// To several things, or another one.
    Several(SideEffects),
}

impl StepSummary {
    fn of(steps: &[Step]) -> Self {
        let mut but_marks = steps.iter().filter(|step| !matches!(step, Step::Matched { .. }));
        let first = but_marks.next();
        match (first, but_marks.next()) {
            (Some(Step::Do(Action::Output(port))), None) => return StepSummary::Output(*port),
            (Some(Step::Enter { table, carry }), None) if carry.is_empty() => {
                return StepSummary::Enter(*table);
            }
            (None, _) => return StepSummary::Nothing,
            (Some(Step::Lane { step, again: false }), None) if step.only_tracks() => {
                return StepSummary::Track;
            }
            _ => {}
        }
        let seen = |step: &Step| match step {
            Step::Controller { .. } => true,
            Step::Do(action) => has_effects(action),
            Step::Lane { step, .. } => step.has_effects(),
            _ => false,
        };
        let returns = |step: &Step| matches!(step, Step::Call { .. } | Step::Lane { .. });
        let leads_on = leads_on(steps) || steps.iter().any(returns);
        StepSummary::Several(match (steps.iter().any(seen), leads_on) {
            (false, _) => SideEffects::None,
            (true, true) => SideEffects::ThenContinues,
            (true, false) => SideEffects::Terminal,
        })
    }

    /// Returns whether the steps have visible effects.
    #[inline]
    pub fn seen(self) -> SideEffects {
        match self {
            StepSummary::Output(_) => SideEffects::Terminal,
            StepSummary::Track => SideEffects::ThenContinues,
            StepSummary::Enter(_) | StepSummary::Nothing => SideEffects::None,
            StepSummary::Several(seen) => seen,
        }
    }
}

/// Whether others can tell when the steps of a [`Steps`] are taken: whether one of them sends the packet somewhere, or uses
/// what other packets use too. (An expired TTL is handled by the caller.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SideEffects {
    /// None does: they change nothing but the packet.
    #[default]
    None,
    /// Some does, before the last leads on.
    ThenContinues,
    /// Some does, and the packet goes nowhere else.
    Terminal,
}

impl Steps {
    pub fn new(steps: impl Into<Arc<[Step]>>) -> Self {
        let steps = steps.into();
        Self { summary: StepSummary::of(&steps), steps }
    }

    /// A summary of the steps from a place on.
    pub fn summary_from(&self, at: usize) -> StepSummary {
        StepSummary::of(&self.steps[at..])
    }

    /// Returns whether the steps from a place on only change the packet, and lead nowhere.
    pub fn lead_nowhere_from(&self, at: usize) -> bool {
        self.steps[at..].iter().all(|step| match step {
            Step::Matched { .. }
            | Step::Do(Action::SetField { .. } | Action::SetQueue(_) | Action::PopQueue) => true,
            Step::Lane { step, again: false } => {
                matches!(**step, LaneStep::Push(_) | LaneStep::PushValue(_) | LaneStep::Pop(_))
            }
            _ => false,
        })
    }

    /// The steps, in order.
    #[inline]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The summary.
    #[inline]
    pub fn summary(&self) -> StepSummary {
        self.summary
    }

    /// Asks for them.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&self.steps, 0);
        prefetch(&self.steps, self.steps.len().saturating_sub(1));
    }

    /// Returns whether the last step leads elsewhere.
    #[inline]
    pub fn leads_on(&self) -> bool {
        leads_on(&self.steps)
    }
}

fn leads_on(steps: &[Step]) -> bool {
    matches!(steps.last(), Some(Step::Enter { .. } | Step::Recirculate { .. }))
}
