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

use super::apply::{Applied, Effects, PacketEdit, apply};
use crate::ruleset::{Return, Step, Steps};

/// Calls that may be open for a packet. A packet that would open more is dropped and counted.
pub(super) const CALLS_MAX: usize = 64;

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
        /// The key is to be parsed again before.
        again: bool,
        /// The place behind the call.
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
            Step::Matched { .. } => Applied::Next,
            Step::Parse => match effects.reparse(packet) {
                true => Applied::Next,
                false => Applied::Dropped,
            },
            Step::Enter { table, carry } => return Ok(Outcome::Enter { table: *table, carry }),
            Step::Recirculate { table, carry } => return Ok(Outcome::Again { table: *table, carry }),
            Step::Call { table, again } => {
                return Ok(Outcome::Call { table: *table, again: *again, resume: at + 1 });
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
    /// Looks the packet up in a table.
    fn enter(&mut self, table: u8, calls: &[Return]) -> Entered;
    /// [Runs](run) the packet along steps.
    fn run<'a>(&mut self, steps: &'a [Step], from: usize) -> Result<Outcome<'a>, Infallible>;
    /// The steps lead to a table. Returns whether the packet enters it as part of this walk.
    fn pass(&mut self, table: u8, carry: &[(u8, u32, u32)], again: bool, calls: &[Return]) -> bool;
    /// The packet ends before its steps do.
    fn stop(&mut self, expired: bool);
    /// The packet has more open calls than [`CALLS_MAX`].
    fn refuse_call(&mut self, table: u8, calls: &[Return]);
}

/// The position of a packet that is followed: before a table, with open calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    /// The table that comes next; none at the end.
    pub(super) table: Option<u8>,
    pub(super) calls: Vec<Return>,
}

impl Position {
    /// Before a table.
    pub(super) fn at(table: u8) -> Self {
        Self { table: Some(table), calls: Vec::new() }
    }
}

/// Follows one packet until its walk ends (`position.table` is none then) or pauses before a table.
pub(super) fn follow<F: Follow>(packet: &mut F, position: &mut Position) {
    while let Some(table) = position.table {
        let steps = match packet.enter(table, &position.calls) {
            Entered::Steps(steps) => steps,
            Entered::Nothing => Steps::default(),
            Entered::Pause => return,
            Entered::End => {
                *position = Position::default();
                return;
            }
        };
        position.table = follow_steps(packet, Return { steps, at: 0 }, &mut position.calls);
    }
    position.calls.clear();
}

/// Follows one packet along steps and, at their end, back to its callers. Returns the table that comes next.
pub(super) fn follow_steps<F: Follow>(
    packet: &mut F,
    mut here: Return,
    calls: &mut Vec<Return>,
) -> Option<u8> {
    loop {
        let Ok(outcome) = packet.run(here.steps.steps(), here.at);
        let (table, carry, again) = match outcome {
            Outcome::Done => {
                here = calls.pop()?;
                continue;
            }
            Outcome::Stopped { .. } | Outcome::Expired { .. } => {
                packet.stop(matches!(outcome, Outcome::Expired { .. }));
                return None;
            }
            Outcome::Call { table, again, resume } => {
                let is_tail = here.steps.steps().len() == resume;
                if !is_tail && calls.len() == CALLS_MAX {
                    packet.refuse_call(table, calls);
                    return None;
                }
                let nothing: &[(u8, u32, u32)] = &[];
                if !is_tail {
                    calls.push(Return { steps: here.steps.clone(), at: resume });
                }
                (table, nothing, again)
            }
            Outcome::Push { call, resume } => {
                calls.push(call.clone());
                here.at = resume;
                continue;
            }
            Outcome::Enter { table, carry } => (table, carry, false),
            Outcome::Again { table, carry } => (table, carry, true),
        };
        return packet.pass(table, carry, again, calls).then_some(table);
    }
}
