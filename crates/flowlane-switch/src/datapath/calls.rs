//! Call stacks of a burst's lanes: the steps at which a packet resumes when a called table returns.
//!
//! A lane without open calls, as nearly all are, costs a test of one bit.

use flowlane::packet::batch::LaneMask;

use super::walk::CALLS_MAX;
use crate::ruleset::{Return, StepSummary};

#[derive(Debug, Default)]
struct LaneCalls {
    open: Vec<Return>,
    /// The steps that the lane resumes, once a call has returned.
    current: Return,
}

/// Open calls, by lane.
#[derive(Debug, Default)]
pub(super) struct Calls {
    active: LaneMask,
    /// Lanes whose headers an action in a called table has moved.
    moved: LaneMask,
    lanes: Vec<LaneCalls>,
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

    /// Opens calls, the outermost first. Returns whether they fit; if not, all calls of the lane are closed.
    #[cold]
    pub(super) fn open(&mut self, lane: usize, calls: Vec<Return>) -> bool {
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, LaneCalls::default);
        }
        if !self.are_open(lane) {
            self.lanes[lane].open.clear();
        }
        self.moved.remove(lane);
        let open = &mut self.lanes[lane].open;
        open.extend(calls);
        let fits = open.len() <= CALLS_MAX;
        self.active.0 |= 1 << lane;
        if !fits {
            self.clear(lane);
        }
        fits
    }

    /// Clears the state of the previous burst.
    #[inline]
    pub(super) fn begin_burst(&mut self) {
        (self.active, self.moved) = (LaneMask(0), LaneMask(0));
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
        let Some(call) = calls.open.pop() else { return false };
        calls.current = call;
        if calls.open.is_empty() {
            self.active.remove(lane);
        }
        true
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
            self.lanes[lane].open.clear();
            self.active.remove(lane);
        }
    }
}
