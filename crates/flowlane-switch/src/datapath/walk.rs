//! *Walk*: control flow over the steps that rules compile to.
//!
//! [`run`] takes one packet along a list of steps, applying operations, up to the next step that leads elsewhere. Every packet goes
//! through it: lanes of a burst that stand at a rule, a cached path, a next hop or a verdict ([`execute`](super::execute) looks
//! the lanes up together between two runs), a key that is [translated](super::xlate) to a path, and the packet of a
//! [trace](super::trace). The last two follow one packet by [`follow`].
//!
//! A [`Step::Call`] leads to a table and comes back: the rest of the list waits on the packet's call stack as a [`Return`]. A call in
//! the last place is a jump and leaves nothing behind.

use std::convert::Infallible;

use std::sync::Arc;

use flowlane::rule::Action;

use super::apply::{Applied, Effects, PacketEdit, apply};
use crate::packet::Shown;
use crate::ruleset::{ActionSet, LaneStep, Return, Step, Steps};

/// Calls that may be open for a packet. A packet that would open more is dropped and counted.
pub(super) const OPEN_CALLS_MAX: usize = 64;

/// Tables that a packet may call without leaving the switch. A packet that would call more is dropped and counted. Open vSwitch
/// allows 4,096.
pub(super) const CALLED_MAX: u32 = 16_384;

/// Rounds that a packet may take, as in Open vSwitch. A packet that would take more is dropped and counted.
pub(super) const ROUNDS_MAX: u8 = 64;

/// Where a run of steps ended.
#[derive(Debug)]
pub(super) enum Outcome<'a> {
    /// At the end of the list.
    Done,
    /// Before the step at this place: the packet is dropped.
    Stopped {
        /// The place.
        at: usize,
    },
    /// There, too, since its TTL has expired.
    Expired {
        /// The place.
        at: usize,
    },
    /// At a step that leads to a table, as the packet is.
    Enter {
        table: u8,
        /// Words of the key that it takes along.
        carry: &'a [(u8, u32, u32)],
    },
    /// At a step that leads to a table, with a key that is parsed again.
    Again {
        table: u8,
        /// Words of the key that it takes along.
        carry: &'a [(u8, u32, u32)],
    },
    /// At a call of a table; the list goes on from `resume` when the call returns.
    Call {
        table: u8,
        /// The fields that the table sees instead of the packet's own.
        shown: Shown,
        /// It leads back.
        back: bool,
        /// The key is to be parsed again before.
        again: bool,
        /// The place behind the call.
        resume: usize,
    },
    /// At a step that concerns more than the packet's bytes; the list goes on from `resume`.
    Lane {
        step: &'a Arc<LaneStep>,
        /// The key is to be parsed again before.
        again: bool,
        /// The place behind the step.
        resume: usize,
    },
    /// At an open call that a path brings along; the path goes on from `resume`.
    Push { call: &'a Return, resume: usize },
}

/// Takes a packet along a list of steps from a place in it.
///
/// # Errors
/// A port that fails for good.
#[inline]
pub(super) fn run<'a, P: PacketEdit, E: Effects<P>>(
    steps: &'a [Step],
    from: usize,
    packet: &mut P,
    effects: &mut E,
) -> Result<Outcome<'a>, E::Error> {
    let mut at = from;
    while let Some(step) = steps.get(at) {
        let applied = match step {
            Step::Do(action) => apply(action, packet, effects)?,
            Step::Controller { to, carry } => {
                packet.take_along(carry);
                effects.controller(packet, to)?;
                Applied::Next
            }
            Step::Matched { .. } => Applied::Next,
            Step::Parse => match effects.reparse(packet) {
                true => Applied::Next,
                false => Applied::Dropped,
            },
            Step::Enter { table, carry } => return Ok(Outcome::Enter { table: *table, carry }),
            Step::Recirculate { table, carry } => return Ok(Outcome::Again { table: *table, carry }),
            &Step::Call { table, shown, back, again } => {
                return Ok(Outcome::Call { table, shown, back, again, resume: at + 1 });
            }
            Step::Lane { step, again } => {
                return Ok(Outcome::Lane { step, again: *again, resume: at + 1 });
            }
            Step::Push(call) => return Ok(Outcome::Push { call, resume: at + 1 }),
        };
        match applied {
            Applied::Next => at += 1,
            Applied::Dropped => return Ok(Outcome::Stopped { at }),
            Applied::Expired => return Ok(Outcome::Expired { at }),
        }
    }
    Ok(Outcome::Done)
}

/// The result of entering a table.
pub(super) enum Entered {
    /// These steps.
    Steps(Steps),
    /// Nothing: the table does not exist.
    Nothing,
    /// The walk pauses before the table, which is offloaded or on another worker.
    Pause,
    /// The walk has ended here.
    End,
}

/// A packet that is followed from table to table.
pub(super) trait Follow {
    /// Looks the packet up in a table, which may see other fields than the packet's own.
    fn enter(&mut self, table: u8, shown: Shown, calls: &[Return]) -> Entered;
    /// Takes a step that concerns more than the packet's bytes; `here` is its place in its list.
    fn lane_step(
        &mut self,
        step: &LaneStep,
        again: bool,
        here: &Return,
        position: &mut Position,
    ) -> AfterStep;
    /// [Runs](run) the packet along steps.
    fn run<'a>(
        &mut self,
        steps: &'a [Step],
        from: usize,
        calls: &[Return],
    ) -> Result<Outcome<'a>, Infallible>;
    /// The steps lead to a table. Returns whether the packet enters it as part of this walk.
    fn pass(&mut self, table: u8, carry: &[(u8, u32, u32)], again: bool, calls: &[Return]) -> bool;
    /// Returns the steps of a copy behind which nothing follows, if the packet itself takes them.
    fn last_copy(&mut self, _step: &LaneStep, _again: bool, _position: &mut Position) -> Option<Steps> {
        None
    }
    /// Returns whether the table that is called at `here` can be shown other fields in this walk.
    fn may_show(&mut self, _here: &dyn Fn() -> Return, _calls: &[Return]) -> bool {
        true
    }
    /// The packet's TTL expires at a step. Returns whether what has called the table goes on in this walk.
    fn expired(&mut self, here: &Return, calls: &[Return]) -> bool;
    /// The packet ends before its steps do.
    fn stop(&mut self);
    /// Returns the packet's rounds.
    fn rounds(&self) -> u8;
    /// Sets them.
    fn set_rounds(&mut self, rounds: u8);
    /// The packet would have more open calls than [`OPEN_CALLS_MAX`], more calls than [`CALLED_MAX`] or more rounds than
    /// [`ROUNDS_MAX`].
    fn refuse_call(&mut self, table: u8);
}

/// The way of a packet after a step that concerns more than its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AfterStep {
    /// It goes on with the next step.
    Next,
    /// It has ended by `exit`.
    Exit,
    /// Its walk has ended.
    End,
}

/// The position of a packet that is followed: before a table, with open calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    /// The table that comes next; none at the end.
    pub(super) table: Option<u8>,
    /// The fields that the table sees instead of the packet's own.
    pub(super) shown: Shown,
    pub(super) calls: Vec<Return>,
    /// Tables called so far.
    pub(super) called: u32,
    /// It is a copy for a group's bucket, which leaves its action set to the packet that it was made of.
    pub(super) leaves_set: bool,
    /// That action set, when the copy has ended.
    pub(super) left_set: Option<Arc<[Action]>>,
    /// The packet has met `exit`.
    pub(super) exited: bool,
}

impl Position {
    /// Before a table.
    pub(super) fn at(table: u8) -> Self {
        Self { table: Some(table), ..Self::default() }
    }

    /// Returns where the packet goes on when steps have ended.
    fn pop<F: Follow>(&mut self, packet: &mut F) -> Option<Return> {
        let call = Return::pop(&mut self.calls)?;
        packet.set_rounds(call.rounds);
        match call.set {
            ActionSet::Written(set) if self.leaves_set => {
                self.left_set = Some(set);
                None
            }
            _ => Some(call),
        }
    }

    /// Returns where the packet goes on when its TTL has expired.
    fn pop_expired<F: Follow>(&mut self, packet: &mut F, here: &Return, at: usize) -> Option<Return> {
        let at = Return::to(here.steps.clone(), at, packet.rounds());
        match packet.expired(&at, &self.calls) {
            true => self.pop(packet),
            false => None,
        }
    }

    /// Counts a call, perhaps in the last place or leading back. Returns whether the packet may make it.
    fn may_call(&mut self, is_tail: bool, back: bool, rounds: u8) -> bool {
        self.called += 1;
        (is_tail || self.calls.len() < OPEN_CALLS_MAX)
            && !(back && rounds == ROUNDS_MAX)
            && self.called <= CALLED_MAX
    }

    /// Returns the steps of a copy behind which a list leads nowhere, if the packet itself takes them: where nothing follows.
    fn last_copy<F: Follow>(&mut self, packet: &mut F, step: &LaneStep, again: bool) -> Option<Return> {
        if !Return::lead_nowhere(&self.calls) || self.called == CALLED_MAX {
            return None;
        }
        let steps = packet.last_copy(step, again, self)?;
        // A copy before it may have left its action set.
        self.calls = Return::for_copy(&self.calls);
        self.called += 1;
        Some(Return::to(steps, 0, packet.rounds()))
    }

    /// Ends the packet's way: its calls are closed, and its action set is not executed.
    fn exit(&mut self) {
        self.exited = true;
        self.close();
    }

    /// Closes the packet's calls. A bucket leaves the action set to the packet that it was made of, however it ends.
    fn close(&mut self) {
        if let Some(set) = self.set().filter(|_| self.leaves_set) {
            self.left_set = Some(set);
        }
        self.calls.clear();
    }

    /// Returns the packet's action set.
    pub(super) fn set(&self) -> Option<Arc<[Action]>> {
        match Return::set_of(&self.calls) {
            ActionSet::Written(set) => Some(set.clone()),
            ActionSet::No | ActionSet::Executing => None,
        }
    }
}

/// Follows one packet until its walk ends (`position.table` is none then) or pauses before a table.
pub(super) fn follow<F: Follow>(packet: &mut F, position: &mut Position) {
    while let Some(table) = position.table {
        let steps = match packet.enter(table, position.shown, &position.calls) {
            Entered::Steps(steps) => steps,
            Entered::Nothing => Steps::default(),
            Entered::Pause => return,
            Entered::End => {
                *position = Position::default();
                return;
            }
        };
        follow_steps(packet, Return::to(steps, 0, packet.rounds()), position);
    }
    (position.table, position.shown) = (None, Shown::default());
    position.calls.clear();
}

/// Takes a step that concerns more than the packet's bytes; `at` is its place.
fn take_step<F: Follow>(
    packet: &mut F,
    step: &LaneStep,
    again: bool,
    at: &Return,
    position: &mut Position,
) -> AfterStep {
    match step {
        LaneStep::Exit => return AfterStep::Exit,
        LaneStep::WriteActions(written) => Return::write(&mut position.calls, Some(written)),
        LaneStep::ClearActions => Return::write(&mut position.calls, None),
        step => return packet.lane_step(step, again, at, position),
    }
    AfterStep::Next
}

/// Follows one packet along steps and, at their end, back to its callers, up to the table that comes next.
pub(super) fn follow_steps<F: Follow>(packet: &mut F, mut here: Return, position: &mut Position) {
    (position.table, position.shown) = (None, Shown::default());
    loop {
        let Ok(outcome) = packet.run(here.steps.steps(), here.at, &position.calls);
        let (to, carry, again) = match outcome {
            Outcome::Done => match position.pop(packet) {
                Some(call) => {
                    here = call;
                    continue;
                }
                None => return,
            },
            Outcome::Stopped { .. } => {
                packet.stop();
                return position.close();
            }
            // As in Open vSwitch, the rule ends, and what has called its table goes on.
            Outcome::Expired { at } => match position.pop_expired(packet, &here, at) {
                Some(call) => {
                    here = call;
                    continue;
                }
                None => return,
            },
            Outcome::Lane { step, again, resume } => {
                if here.steps.lead_nowhere_from(resume)
                    && let Some(copied) = position.last_copy(packet, step, again)
                {
                    here = copied;
                    continue;
                }
                let at = Return::to(here.steps.clone(), resume - 1, packet.rounds());
                match take_step(packet, step, again, &at, position) {
                    AfterStep::Next => here.at = resume,
                    AfterStep::Exit => return position.exit(),
                    AfterStep::End => return position.close(),
                }
                continue;
            }
            Outcome::Call { table: to, shown, back, again, resume } => {
                let (is_tail, rounds) = (here.steps.steps().len() == resume, packet.rounds());
                if !position.may_call(is_tail, back, rounds) {
                    packet.refuse_call(to);
                    return position.close();
                }
                let at = || Return::to(here.steps.clone(), resume - 1, rounds);
                if !shown.is_nothing() && !packet.may_show(&at, &position.calls) {
                    return;
                }
                if !is_tail {
                    position.calls.push(Return::to(here.steps.clone(), resume, rounds));
                }
                packet.set_rounds(rounds + u8::from(back));
                position.shown = shown;
                (to, &[][..], again)
            }
            Outcome::Push { call, resume } => {
                position.calls.push(call.clone());
                here.at = resume;
                continue;
            }
            Outcome::Enter { table, carry } => (table, carry, false),
            Outcome::Again { table, carry } => (table, carry, true),
        };
        if packet.pass(to, carry, again, &position.calls) {
            position.table = Some(to);
        }
        return;
    }
}
