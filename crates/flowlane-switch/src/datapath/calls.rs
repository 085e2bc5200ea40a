//! Call stacks of a burst's lanes: the places to which calls of tables return.
//!
//! Lanes without open calls, which is nearly all of them, cost a test of one bit.

use flowlane::packet::batch::LaneMask;

use super::walk::CALLS_MAX;
use crate::ruleset::{Return, StepSummary};

#[derive(Debug, Default)]
struct LaneCalls {
    open: Vec<Return>,
    /// The list that it is in, where a call has returned.
    current: Return,
}

/// Open calls by lane.
#[derive(Debug, Default)]
pub(super) struct Calls {
    active: LaneMask,
    /// Lanes whose headers an action of a table that was called has moved.
    moved: LaneMask,
    lanes: Vec<LaneCalls>,
}

impl Calls {
    /// Lanes with open calls.
    #[inline]
    pub(super) fn active(&self) -> LaneMask {
        self.active
    }

    /// Whether some calls of a lane are open.
    #[inline]
    pub(super) fn are_open(&self, lane: usize) -> bool {
        self.active.0 >> lane & 1 == 1
    }

    /// Opens calls, the outermost first. Returns whether there is room; else all calls of the lane are closed.
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

    /// Forgets the lanes of the burst before.
    #[inline]
    pub(super) fn begin_burst(&mut self) {
        (self.active, self.moved) = (LaneMask(0), LaneMask(0));
    }

    /// Whether the headers of a lane's packet have moved before a call returned.
    #[inline]
    pub(super) fn has_moved(&self, lane: usize) -> bool {
        self.moved.0 >> lane & 1 == 1
    }

    /// A lane's packet enters a table: its headers are where its key says.
    #[inline]
    pub(super) fn headers_are_in_place(&mut self, lane: usize) {
        self.moved.remove(lane);
    }

    /// Closes the innermost call: the lane is behind it then. Returns whether there was one.
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

    /// The list that a lane is in since a call has returned.
    pub(super) fn current(&self, lane: usize) -> &Return {
        &self.lanes[lane].current
    }

    /// A summary of the rest of that list.
    pub(super) fn summary(&self, lane: usize) -> StepSummary {
        let here = self.current(lane);
        here.steps.summary_from(here.at)
    }

    /// Closes all calls of a lane, whose packet has ended.
    #[inline]
    pub(super) fn clear(&mut self, lane: usize) {
        if self.are_open(lane) {
            self.lanes[lane].open.clear();
            self.active.remove(lane);
        }
    }
}
