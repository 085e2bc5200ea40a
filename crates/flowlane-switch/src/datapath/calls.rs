//! Call stacks of a burst's lanes: the steps at which a packet resumes when a called table returns; its action set is the
//! outermost of them. With them a lane's stack of values, and the fields that a called table sees.
//!
//! A lane without open calls, as nearly all are, costs a test of one bit.

use std::sync::Arc;

use flowlane::packet::batch::LaneMask;

use flowlane::rule::Action;

use super::egress::Changed;
use super::track_burst::Prepared;
use super::walk::{CALLED_MAX, OPEN_CALLS_MAX};
use crate::packet::Shown;
use crate::ruleset::{ActionSet, Return, StepSummary};
use crate::state::conntrack::{Seen, Tracked};

/// State of a packet that is neither in its frame nor in its key.
#[derive(Clone, Debug, Default)]
pub(super) struct PacketState {
    /// Pushed values.
    values: Vec<u128>,
    /// The packet's connection.
    tracked: Tracked,
    /// The datagram that the packet is a fragment of, once all of that had come; in it, none if that is invalid.
    datagram: Option<Option<Seen>>,
    /// A `ct` has translated the packet: its headers have new ends, and its key those that it came with.
    translated: bool,
    /// Tables that were called.
    called: u32,
    /// The fields that the table sees which the lane enters next.
    shown: Shown,
}

impl PacketState {
    /// Makes it that of another packet. (In place: with a value to be moved here, it took a tenth of the time of a packet that meets
    /// its connection.)
    fn clear(&mut self) {
        let Self { values, tracked, datagram, translated, called, shown } = self;
        values.clear();
        tracked.clear();
        (*datagram, *translated, *called, *shown) = (None, false, 0, Shown::default());
    }
}

#[derive(Clone, Debug, Default)]
struct LaneCalls {
    open: Vec<Return>,
    /// The steps that the lane resumes, once a call has returned.
    current: Return,
    state: PacketState,
}

/// The calls of a packet that waits.
#[derive(Clone, Debug)]
pub(super) struct PausedCalls {
    lane: LaneCalls,
    leaves_set: bool,
}

impl PausedCalls {
    /// Returns the packet's connection.
    pub(super) fn tracked(&self) -> Tracked {
        self.lane.state.tracked
    }
}

/// Open calls, by lane.
#[derive(Debug, Default)]
pub(super) struct Calls {
    active: LaneMask,
    /// Lanes whose headers an action in a called table has moved.
    moved: LaneMask,
    /// Lanes that have values, have called a table or enter one that sees other fields.
    used: LaneMask,
    /// The lane is a copy for a group's bucket, which leaves its action set to the packet that it was made of.
    leaves_set: bool,
    /// That action set, when the copy has ended.
    left_set: Option<Arc<[Action]>>,
    /// The copy has met `exit`.
    exited: bool,
    lanes: Vec<LaneCalls>,
    /// Lanes that wait for their connections.
    pub(super) prepared: Prepared,
}

impl Calls {
    /// Returns the lanes with open calls.
    #[inline]
    pub(super) fn active(&self) -> LaneMask {
        self.active
    }

    /// Returns whether a lane has open calls.
    #[inline]
    pub(super) fn are_open(&self, lane: usize) -> bool {
        self.active.0 >> lane & 1 == 1
    }

    /// Returns whether a lane that goes on at `here` ends there, but for changes of its packet, which has no action set.
    pub(super) fn nothing_follows(&self, lane: usize, here: &Return) -> bool {
        let calls = if self.are_open(lane) { &*self.lanes[lane].open } else { &[] };
        here.leads_nowhere() && Return::lead_nowhere(calls)
    }

    /// Closes the calls of a lane, behind which nothing follows. It keeps its action set.
    pub(super) fn close(&mut self, lane: usize) {
        if self.are_open(lane) {
            let set = Return::for_copy(&self.lanes[lane].open);
            self.active.0 &= !(u64::from(set.is_empty()) << lane);
            self.lanes[lane].open = set;
        }
    }

    /// Opens calls, the outermost first. Returns whether they fit; if not, all calls of the lane are closed.
    #[cold]
    pub(super) fn open(&mut self, lane: usize, calls: Vec<Return>) -> bool {
        self.moved.remove(lane);
        let open = self.open_of(lane);
        open.extend(calls);
        let fits = open.len() <= OPEN_CALLS_MAX;
        self.active.0 |= 1 << lane;
        if !fits {
            self.clear(lane);
        }
        fits
    }

    /// Makes the calls of a burst with one lane, which takes some steps.
    pub(super) fn alone(current: Return) -> Self {
        Self { lanes: vec![LaneCalls { current, ..LaneCalls::default() }], ..Self::default() }
    }

    /// Makes the calls of a burst with one lane: a copy of a lane of this burst, which takes some steps. It has a copy of its stack
    /// and of its action set, and goes on with its counter; a bucket's leaves its action set.
    pub(super) fn of_copy(&self, lane: usize, current: Return, is_bucket: bool) -> Self {
        let calls = if self.are_open(lane) { &*self.lanes[lane].open } else { &[] };
        let open = Return::for_copy(calls);
        let mut copy = LaneCalls { current, open, ..LaneCalls::default() };
        if self.is_used(lane) {
            copy.state.clone_from(&self.lanes[lane].state);
        }
        let active = LaneMask(u64::from(!copy.open.is_empty()));
        let (used, leaves_set) = (LaneMask(1), is_bucket);
        Self { active, used, leaves_set, lanes: vec![copy], ..Self::default() }
    }

    /// Ends a lane, and returns its calls for a packet that goes on at `here` later.
    pub(super) fn pause(&mut self, lane: usize, here: Return) -> PausedCalls {
        let mut paused = LaneCalls { current: here, ..LaneCalls::default() };
        if self.is_used(lane) {
            paused.state.clone_from(&self.lanes[lane].state);
        }
        if self.are_open(lane) {
            paused.open.clone_from(&self.lanes[lane].open);
        }
        self.clear(lane);
        PausedCalls { lane: paused, leaves_set: self.leaves_set }
    }

    /// Takes a lane back that was paused.
    pub(super) fn take_back(&mut self, lane: usize, paused: PausedCalls) {
        let PausedCalls { lane: calls, .. } = paused;
        self.used(lane);
        self.active.0 |= u64::from(!calls.open.is_empty()) << lane;
        self.lanes[lane] = calls;
        // It leaves what its action set is when it ends, not what it was here.
        self.left_set = None;
    }

    /// Makes the calls of a burst with one lane: a packet that goes on.
    pub(super) fn of_paused(paused: &PausedCalls) -> Self {
        let PausedCalls { lane, leaves_set } = paused;
        let active = LaneMask(u64::from(!lane.open.is_empty()));
        Self {
            active,
            used: LaneMask(1),
            leaves_set: *leaves_set,
            lanes: vec![lane.clone()],
            ..Self::default()
        }
    }

    /// Takes over from a copy of a lane that has ended: its counter, and if it was a bucket's its stack and its action set.
    /// Returns whether the copy has met an `exit` that is the lane's, too.
    pub(super) fn take_over(&mut self, lane: usize, copy: &mut Self) -> bool {
        let (called, values) = (copy.used(0).called, std::mem::take(&mut copy.used(0).values));
        self.used(lane).called = called;
        if !copy.leaves_set {
            return copy.exited;
        }
        self.used(lane).values = values;
        copy.clear(0);
        let left = copy.left_set.take();
        self.write(lane, None);
        if let Some(set) = left {
            self.write(lane, Some(&set));
        }
        false
    }

    /// Returns whether the lane is a copy for a group's bucket, which does not execute its action set.
    #[inline]
    pub(super) fn leave_set(&self) -> bool {
        self.leaves_set
    }

    /// Returns whether a copy of a lane takes along what no cached path knows: an action set.
    pub(super) fn copy_holds_state(&self, lane: usize) -> bool {
        self.are_open(lane) && !Return::for_copy(&self.lanes[lane].open).is_empty()
    }

    /// Returns a lane's action set.
    fn set(&self, lane: usize) -> Option<Arc<[Action]>> {
        let calls = if self.are_open(lane) { &*self.lanes[lane].open } else { &[] };
        match Return::set_of(calls) {
            ActionSet::Written(set) => Some(set.clone()),
            ActionSet::No | ActionSet::Executing => None,
        }
    }

    /// Ends a lane by `exit`: its calls are closed, and its action set is not executed.
    pub(super) fn exit(&mut self, lane: usize) {
        self.exited = true;
        self.clear(lane);
    }

    /// Returns the open calls of a lane.
    fn open_of(&mut self, lane: usize) -> &mut Vec<Return> {
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, LaneCalls::default);
        }
        let open = &mut self.lanes[lane].open;
        if self.active.0 >> lane & 1 == 0 {
            open.clear();
        }
        open
    }

    /// Returns the state of a lane's packet.
    fn used(&mut self, lane: usize) -> &mut PacketState {
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, LaneCalls::default);
        }
        let state = &mut self.lanes[lane].state;
        if self.used.0 >> lane & 1 == 0 {
            state.clear();
            self.used.0 |= 1 << lane;
        }
        state
    }

    fn is_used(&self, lane: usize) -> bool {
        self.used.0 >> lane & 1 == 1
    }

    /// Writes to a lane's action set; without `written`, empties it.
    #[cold]
    pub(super) fn write(&mut self, lane: usize, written: Option<&[Action]>) {
        let open = self.open_of(lane);
        Return::write(open, written);
        let is_open = u64::from(!open.is_empty());
        self.active.0 = self.active.0 & !(1 << lane) | is_open << lane;
    }

    /// Counts a called table, which sees some fields. Returns whether the lane may go there: not if it goes round.
    #[cold]
    pub(super) fn call(&mut self, lane: usize, shown: Shown) -> bool {
        let state = self.used(lane);
        state.called += 1;
        state.shown = shown;
        state.called <= CALLED_MAX
    }

    /// Takes the fields that the table sees which a lane enters.
    pub(super) fn take_shown(&mut self, lane: usize) -> Shown {
        if self.is_used(lane) { std::mem::take(&mut self.lanes[lane].state.shown) } else { Shown::default() }
    }

    /// Returns the lanes that may enter a table which sees other fields.
    #[inline]
    pub(super) fn lanes_used(&self) -> LaneMask {
        self.used
    }

    /// Returns whether a lane takes along what no cached path knows: open calls, an action set, other fields. Values on its
    /// stack stay there: a path ends before it would pop one that it has not pushed.
    #[inline]
    pub(super) fn hold_state(&self, lane: usize) -> bool {
        self.are_open(lane) || self.is_used(lane) && !self.lanes[lane].state.shown.is_nothing()
    }

    /// Takes the state of a packet that goes on in another burst.
    pub(super) fn take_state(&mut self, lane: usize) -> Option<PacketState> {
        let is_used = self.is_used(lane);
        self.used.remove(lane);
        is_used.then(|| std::mem::take(&mut self.lanes[lane].state))
    }

    /// Gives a lane the state of its packet, which comes from another burst.
    pub(super) fn set_state(&mut self, lane: usize, state: PacketState) {
        *self.used(lane) = state;
    }

    /// Returns the connection of a lane's packet.
    pub(super) fn tracked(&mut self, lane: usize) -> &mut Tracked {
        &mut self.used(lane).tracked
    }

    /// Forgets what actions have changed of a lane's packet: its connection, or which that is.
    #[inline]
    pub(super) fn note_change(&mut self, lane: usize, changed: Changed) {
        if changed == Changed::Nothing || !self.is_used(lane) {
            return;
        }
        let state = &mut self.lanes[lane].state;
        match changed {
            Changed::Nothing => {}
            Changed::Ends => state.tracked.forget_place(),
            Changed::Headers => {
                state.tracked.forget_place();
                state.translated = false;
            }
            Changed::Packet => {
                (state.tracked, state.datagram, state.translated) = (Tracked::default(), None, false);
            }
        }
    }

    /// Records that a lane's packet has other ends than its key.
    pub(super) fn note_translated(&mut self, lane: usize) {
        self.used(lane).translated = true;
    }

    /// Records that a lane's key is given the ends of its packet.
    pub(super) fn forget_translation(&mut self, lane: usize) {
        self.used(lane).translated = false;
    }

    /// Returns whether a lane's packet has other ends than its key.
    #[inline]
    pub(super) fn is_translated(&self, lane: usize) -> bool {
        self.is_used(lane) && self.lanes[lane].state.translated
    }

    /// Returns the datagram that a lane's packet is a fragment of, once all of that had come.
    pub(super) fn datagram(&mut self, lane: usize) -> &mut Option<Option<Seen>> {
        &mut self.used(lane).datagram
    }

    /// Pushes a value on a lane's stack.
    pub(super) fn push_value(&mut self, lane: usize, value: u128) {
        self.used(lane).values.push(value);
    }

    /// Pops a value from a lane's stack.
    pub(super) fn pop_value(&mut self, lane: usize) -> Option<u128> {
        self.used(lane).values.pop()
    }

    /// Lets a lane resume at a place.
    #[cold]
    pub(super) fn resume_at(&mut self, lane: usize, here: Return, moved: bool) {
        self.moved.remove(lane);
        self.moved.0 |= u64::from(moved) << lane;
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, LaneCalls::default);
        }
        self.lanes[lane].current = here;
    }

    /// Clears the state of the previous burst.
    #[inline]
    pub(super) fn begin_burst(&mut self) {
        (self.active, self.moved, self.used) = (LaneMask(0), LaneMask(0), LaneMask(0));
    }

    /// Records whether a lane's headers have moved.
    #[inline]
    pub(super) fn note_moved(&mut self, lane: usize, moved: bool) {
        self.moved.remove(lane);
        self.moved.0 |= u64::from(moved) << lane;
    }

    /// Returns whether a lane's headers had moved when a call returned.
    #[inline]
    pub(super) fn has_moved(&self, lane: usize) -> bool {
        self.moved.0 >> lane & 1 == 1
    }

    /// Records that a lane's headers are where its key says: its packet enters a table.
    #[inline]
    pub(super) fn headers_are_in_place(&mut self, lane: usize) {
        self.moved.remove(lane);
    }

    /// Pops the innermost call, after which the lane resumes. Returns whether there was one.
    #[cold]
    pub(super) fn resume(&mut self, lane: usize, moved: bool) -> bool {
        self.moved.remove(lane);
        self.moved.0 |= u64::from(moved) << lane;
        let calls = &mut self.lanes[lane];
        let call = Return::pop(&mut calls.open);
        if calls.open.is_empty() {
            self.active.remove(lane);
        }
        let Some(call) = call else { return false };
        match call.set {
            ActionSet::Written(set) if self.leaves_set => {
                self.left_set = Some(set);
                false
            }
            _ => {
                self.lanes[lane].current = call;
                true
            }
        }
    }

    /// Returns where a lane resumes after a call.
    pub(super) fn current(&self, lane: usize) -> &Return {
        &self.lanes[lane].current
    }

    /// Returns a summary of the steps from there on.
    pub(super) fn summary(&self, lane: usize) -> StepSummary {
        let here = self.current(lane);
        here.steps.summary_from(here.at)
    }

    /// Closes all calls of a lane whose packet has ended.
    #[inline]
    pub(super) fn clear(&mut self, lane: usize) {
        if self.are_open(lane) {
            // None where the set has been left already.
            if let Some(set) = self.set(lane).filter(|_| self.leaves_set) {
                self.left_set = Some(set);
            }
            self.lanes[lane].open.clear();
            self.active.remove(lane);
        }
    }
}
