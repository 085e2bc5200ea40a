//! Removed rules and their final counters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use flowlane::rule::{FlowFlags, Rule, RuleId};

use super::{Control, Notice, SLICE, wait_until};
use crate::ruleset::{Entry, FlowStats, WorkerEpochs};

/// The reason for removing a rule, as of OpenFlow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Reason {
    /// A flow-mod deleted it.
    Deleted,
    /// A group that it named was deleted.
    GroupDeleted,
    /// A meter that it named was deleted.
    MeterDeleted,
    /// No packet matched for the idle timeout.
    IdleTimeout,
    /// The hard timeout passed.
    HardTimeout,
    /// It made room for another.
    Evicted,
}

/// A removed rule with its final counters, as OpenFlow's flow-removed message.
#[derive(Clone, Debug)]
pub struct FlowRemoved {
    pub rule: Rule,
    /// Its packets and bytes.
    pub count: FlowStats,
    /// The time between its addition and its removal.
    pub duration: Duration,
    /// Its timeouts, as in [`FlowStatistics`](super::FlowStatistics).
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    pub reason: Reason,
}

/// A removed rule whose final counters are not yet complete.
pub(super) struct PendingRemoval {
    pub(super) table: u8,
    pub(super) id: RuleId,
    pub(super) version: u64,
    pub(super) entry: Arc<Entry>,
    pub(super) reason: Reason,
    pub(super) at_ns: u64,
}

impl PendingRemoval {
    /// Returns whether controllers get a message.
    fn is_told(&self) -> bool {
        self.entry.flags.contains(FlowFlags::SEND_FLOW_REM)
    }
}

/// The removed rules of a control.
#[derive(Default)]
pub(super) struct Removals {
    /// Oldest first.
    pending: VecDeque<PendingRemoval>,
    /// The number of those for which controllers get a message.
    told: usize,
    /// The counter flush in progress, and the version up to whose removals counters are complete after it.
    collecting: Option<(Vec<u64>, u64)>,
    /// The version up to whose removals counters are complete, while not all of them are reported.
    collected: Option<u64>,
    reported: Vec<FlowRemoved>,
}

impl Removals {
    pub(super) fn push(&mut self, removal: PendingRemoval) {
        self.told += usize::from(removal.is_told());
        self.pending.push_back(removal);
    }
}

impl Control {
    /// Requests the final counters of removed rules, and reports those whose counters are complete.
    pub(super) fn reclaim(&mut self) {
        self.reclaim_when(|readers, asked| readers.have_collected(asked));
    }

    fn reclaim_when(&mut self, is_complete: fn(&WorkerEpochs, &[u64]) -> bool) {
        if let Some((asked, version)) = &self.removals.collecting
            && is_complete(&self.readers, asked)
        {
            self.removals.collected = Some(*version);
            self.removals.collecting = None;
        }
        if let Some(version) = self.removals.collected {
            self.report_removed(version);
        }
        let version = self.published.newest().version();
        let is_idle = self.removals.collecting.is_none() && self.removals.collected.is_none();
        if is_idle && !self.removals.pending.is_empty() && self.readers.have_passed(version) {
            self.removals.collecting = Some((self.readers.want_counters(), version));
            self.wake_workers();
        }
    }

    /// Reports rules that were removed up to a version, at most [`SLICE`] of them.
    fn report_removed(&mut self, version: u64) {
        let complete = |pending: &&PendingRemoval| pending.version <= version;
        let some = self.removals.pending.iter().take(SLICE).take_while(complete).count();
        let some: Vec<PendingRemoval> = self.removals.pending.drain(..some).collect();
        for of_table in some.chunk_by(|a, b| a.table == b.table) {
            let counts = self.counted(of_table[0].table, of_table.iter().map(|pending| pending.id));
            for (pending, count) in of_table.iter().zip(counts) {
                let count = count.since(pending.entry.base);
                let duration = Duration::from_nanos(pending.at_ns.saturating_sub(pending.entry.created_ns));
                let removed = FlowRemoved {
                    rule: pending.entry.rule.clone(),
                    count,
                    duration,
                    idle_timeout_s: pending.entry.timeouts.idle_s(),
                    hard_timeout_s: pending.entry.timeouts.hard_s(),
                    reason: pending.reason,
                };
                if pending.is_told() {
                    self.removals.told -= 1;
                    self.notices.push(Notice::FlowRemoved(removed.clone()));
                }
                self.removals.reported.push(removed);
            }
        }
        if !self.removals.pending.front().is_some_and(|pending| complete(&pending)) {
            self.writer.release(version, |_| false);
            self.removals.collected = None;
        }
    }

    /// Returns the rules removed since the last call, with their final counters. A rule removed just now appears later: when every
    /// worker has flushed its counters.
    pub fn take_flow_removed(&mut self) -> Vec<FlowRemoved> {
        self.reclaim();
        std::mem::take(&mut self.removals.reported)
    }

    /// Waits for the final counters of all removed rules, and returns them. Not for workers that receive packets without
    /// [running](crate::datapath::Worker::run).
    pub fn wait_for_flow_removed(&mut self) -> Vec<FlowRemoved> {
        self.finish_removals();
        std::mem::take(&mut self.removals.reported)
    }

    /// Reports the rules that the latest change removed to controllers. Many of them are reported
    /// [later](Self::take_flow_removed), so that others may use the control in between.
    pub(crate) fn tell_removed(&mut self) {
        if (1..=SLICE).contains(&self.removals.told) {
            self.finish_removals();
        }
    }

    fn finish_removals(&mut self) {
        while !self.removals.pending.is_empty() {
            // A worker that has stopped has flushed everything.
            self.reclaim_when(WorkerEpochs::have_collected_or_stopped);
            if let Some((asked, _)) = &self.removals.collecting {
                self.wake_workers();
                wait_until(|| self.readers.have_collected_or_stopped(asked));
            }
        }
    }
}
