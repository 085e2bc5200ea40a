//! How a worker's pipeline follows published rulesets.

use std::sync::Arc;
use std::time::Instant;

use super::Pipeline;
use crate::ruleset::Ruleset;

impl Pipeline {
    /// Goes online: until [`end`](Self::end), publications wait for this worker's quiescent state.
    /// `origin` is that of the worker's clock, if it goes by the time of the system.
    pub(crate) fn begin(&mut self, origin: Option<Instant>) {
        if let Some(source) = &mut self.source {
            source.begin(self.ruleset.version(), origin);
        }
    }

    /// Goes offline: this worker processes no packets for now.
    pub(crate) fn end(&mut self) {
        if let Some(source) = &mut self.source {
            source.end();
        }
    }

    /// Lets control know another origin of the clock, if it goes by the time of the system.
    pub(crate) fn move_origin(&self, origin: Instant) {
        if let Some(source) = &self.source {
            source.move_origin(origin);
        }
    }

    /// Lets control know the worker's clock.
    #[inline]
    pub(crate) fn tell_time(&self, now_ns: u64) {
        if let Some(source) = &self.source {
            source.tell_time(now_ns);
        }
    }

    /// Takes the newest ruleset between two bursts; returns whether it has changed. `now_ns` is the worker's clock.
    #[inline]
    pub(crate) fn follow(&mut self, now_ns: u64) -> bool {
        self.tell_time(now_ns);
        let Some(source) = &self.source else { return false };
        let before = source.refresh(&mut self.ruleset);
        let is_new = before.map(|before| self.pass(before)).is_some();
        is_new | std::mem::take(&mut self.is_new)
    }

    /// Lets go of the ruleset while the worker waits for packets, so that changes do not wait for it. Nothing is looked up until it
    /// [resumes](Self::resume).
    pub(crate) fn rest(&mut self) {
        let version = self.ruleset.version();
        let has_rested = self.source.as_ref().is_some_and(|source| source.rest(&mut self.ruleset));
        self.rested = has_rested.then_some(version);
    }

    /// Takes the newest ruleset after the wait.
    pub(crate) fn resume(&mut self) {
        if let (Some(version), Some(source)) = (self.rested.take(), &self.source) {
            source.resume(&mut self.ruleset);
            if self.ruleset.version() != version {
                self.is_new = true;
                self.make_all_room();
            }
        }
    }

    /// Returns whether this worker must [follow](Self::follow) a newer ruleset, or collect counters.
    pub(crate) fn is_asked(&self) -> bool {
        let is_stale = self.source.as_ref().is_some_and(|source| source.is_stale(&self.ruleset));
        self.is_new || is_stale || self.wants_counters()
    }

    /// Makes room for the counters of a newer ruleset.
    fn make_all_room(&mut self) {
        let numbers: Vec<u8> = self.ruleset.tables().map(|(number, _)| number).collect();
        numbers.into_iter().for_each(|number| self.make_room(number));
    }

    /// Makes room for the counters of a newer ruleset, and lets go of the one before.
    #[cold]
    fn pass(&mut self, before: Arc<Ruleset>) {
        self.make_all_room();
        drop(before);
        if let Some(source) = &self.source {
            source.passed(self.ruleset.version());
        }
    }
}
