//! Rule changes while packets are forwarded: flow-mods, publication, expiry, background rebuilds of engines.
//!
//! There are two copies of the [`Ruleset`]: workers read the published one, the other is the standby. A change is made to the
//! standby, which is then published; when every worker has passed a quiescent state, the former copy repeats the change and
//! becomes the standby. Workers never wait, and no packet sees half a change.
//!
//! ```text
//! flow-mods ─► apply to the standby ─► publish ─► grace period ─► acknowledge
//!                  ▲     │ rejected: nothing was published │
//!                  └─────┴───── repeat on the other copy ◄─┘
//! ```
//!
//! `Arc::get_mut` proves that no thread reads the copy that is changed. Where a reader holds it for long (a worker that does not
//! run), a new copy is made instead of waiting. The copies share everything that takes long to build.
//!
//! After a rule is deleted, megaflows may still hold packet counts for it. Its id is reused, and its final counters are reported
//! ([`FlowRemoved`]), after every worker has flushed them.

mod flow_mods;
mod groups;
mod learned;
mod rebuild;
mod timer;
mod wait;

pub use groups::{GroupError, GroupMod};
pub use rebuild::{BuildEngine, ChurnClass};

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use flowlane::rule::action::Reference;
use flowlane::rule::{Action, FlowMod, Match, Rule, RuleId};

use crate::datapath::{LearnQueue, Mailbox, Worker};
use crate::ruleset::{
    Change, ChangeKind, EVENTS_KEPT, Entry, FlowStats, PublishedRuleset, RuleIndex, Ruleset, RulesetError,
    TableMap, WorkerEpochs,
};

use rebuild::EngineRebuild;
use timer::Timers;
use wait::wait_until;

/// The reason for rejecting changes; none of them was made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A table rejects a rule.
    #[error(transparent)]
    Pipeline(#[from] RulesetError),
    /// A rule refers to a port, meter or tunnel that does not exist.
    #[error("there is no {what} {number}; those that there are: {there}")]
    Absent {
        /// Port, meter or tunnel.
        what: &'static str,
        number: u32,
        /// The existing numbers.
        there: String,
    },
    /// A rule of the same priority matches packets that the new one matches, too, and the change asks for none.
    #[error("a rule of this priority overlaps with it")]
    Overlap,
    /// The table is on a device, whose rules cannot change while the switch runs.
    #[error("table {0} is on a device: its rules change only when the switch starts")]
    Device(u8),
}

/// The flow-mod because of which changes were rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {}: {refusal}", .line)]
pub struct Refused {
    /// The position of the flow-mod in its bundle.
    pub at: usize,
    /// The line that it was read from.
    pub line: usize,
    pub refusal: Refusal,
}

/// The change because of which changes of rules and groups were rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BundleError {
    #[error(transparent)]
    Rule(#[from] Refused),
    #[error(transparent)]
    Group(#[from] GroupError),
}

/// The reason for removing a rule, as of OpenFlow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Reason {
    /// A flow-mod deleted it.
    Deleted,
    /// No packet matched for the idle timeout.
    IdleTimeout,
    /// The hard timeout passed.
    HardTimeout,
}

/// A removed rule with its final counters, as OpenFlow's flow-removed message.
#[derive(Clone, Debug)]
pub struct FlowRemoved {
    pub rule: Rule,
    /// Its packets and bytes.
    pub count: FlowStats,
    /// The time between its addition and its removal.
    pub duration: Duration,
    pub reason: Reason,
}

/// A rule with its counters.
#[derive(Clone, Debug)]
pub struct FlowStatistics {
    pub rule: Rule,
    pub count: FlowStats,
    /// The time since its addition.
    pub age: Duration,
    /// Seconds without a packet after which it is removed; 0 for never.
    pub idle_timeout_s: u16,
    /// Seconds after its addition when it is removed; 0 for never.
    pub hard_timeout_s: u16,
}

/// The numbers of rules that flow-mods changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowModResult {
    pub added: usize,
    /// Rules with new actions or cookies.
    pub modified: usize,
    pub removed: usize,
}

/// The numbers of ports, meters and tunnels that rules may refer to.
#[derive(Clone, Debug, Default)]
struct References {
    ports: BTreeSet<u32>,
    meters: BTreeSet<u32>,
    tunnels: BTreeSet<u32>,
    /// Rules may name ports that do not exist, as in OpenFlow.
    any_port: bool,
}

/// A removed rule whose final counters are not yet complete.
struct PendingRemoval {
    table: u8,
    id: RuleId,
    version: u64,
    entry: Arc<Entry>,
    reason: Reason,
    at_ns: u64,
}

/// The owner of a switch's rules: the only one that changes them.
pub struct Control {
    published: Arc<PublishedRuleset>,
    readers: WorkerEpochs,
    mail: Vec<Mailbox>,
    /// Lacks the last changes of the published copy.
    standby: Arc<Ruleset>,
    writer: RuleIndex,
    devices: TableMap<()>,
    references: References,
    /// Oldest first.
    pending_removals: VecDeque<PendingRemoval>,
    /// The counter flush in progress, and the version up to whose removals counters are complete after it.
    collecting: Option<(Vec<u64>, u64)>,
    /// The version up to whose removals counters are complete, while not all of them are reported.
    collected: Option<u64>,
    flow_removed: Vec<FlowRemoved>,
    timers: Timers,
    rebuilds: Vec<EngineRebuild>,
    /// The minimum time between two rebuilds of a table at low churn.
    pause: Duration,
    /// The thread to unpark when an engine has been built.
    waker: Option<Thread>,
    /// Rules that workers have learned.
    learned: Arc<LearnQueue>,
}

/// Changes that are repeated, and rules that are looked at or reported as removed, before others may use the control.
const SLICE: usize = 4096;

impl Control {
    /// Attaches to the rules of a worker. Returns `None` where another control is attached.
    pub fn attach(worker: &mut Worker) -> Option<Self> {
        Self::attach_all(std::slice::from_mut(worker))
    }

    /// Attaches to workers that [share one ruleset](crate::datapath::Pipeline::fork).
    pub fn attach_all(workers: &mut [Worker]) -> Option<Self> {
        let mail = workers.iter().map(Worker::mailbox).collect();
        let learned = Arc::new(LearnQueue::default());
        let (first, others) = workers.split_first_mut()?;
        let handed = first.lookup.pipeline.share()?;
        for worker in std::iter::once(&mut *first).chain(others.iter_mut()) {
            worker.egress.learning.queue = Some(learned.clone());
        }
        let mut readers = WorkerEpochs(vec![handed.reader]);
        let published = &handed.published;
        readers.0.extend(others.iter_mut().map(|other| other.lookup.pipeline.subscribe(published)));
        let egress = &first.egress;
        let references = References {
            ports: egress.ports.slots().iter().map(|slot| slot.number.0).collect(),
            meters: egress.meters.keys().copied().collect(),
            tunnels: egress.tunnels.iter().flat_map(|tunnels| tunnels.leaving()).collect(),
            any_port: false,
        };
        Some(Self {
            published: handed.published,
            readers,
            mail,
            standby: handed.copy,
            writer: handed.writer,
            devices: handed.devices,
            references,
            pending_removals: VecDeque::new(),
            collecting: None,
            collected: None,
            flow_removed: Vec::new(),
            timers: Timers::default(),
            rebuilds: Vec::new(),
            pause: rebuild::REBUILD_INTERVAL,
            waker: None,
            learned,
        })
    }

    /// Returns the published ruleset.
    pub fn ruleset(&self) -> Arc<Ruleset> {
        self.published.newest()
    }

    /// Accepts rules that send packets to ports which do not exist, as OpenFlow does: ports come and go there.
    pub fn accept_any_port(&mut self) {
        self.references.any_port = true;
    }

    /// Returns the mailbox of each worker.
    pub fn mailboxes(&self) -> &[Mailbox] {
        &self.mail
    }

    /// Wakes all workers, so that they read the new version or their mailbox.
    fn wake_workers(&self) {
        self.mail.iter().for_each(|mail| mail.notifier().wake());
    }

    /// Applies flow-mods, all or none, and waits until no packet sees the former rules.
    ///
    /// # Errors
    /// The first flow-mod that is rejected; nothing has changed.
    pub fn change(&mut self, mods: &[FlowMod]) -> Result<FlowModResult, Refused> {
        let result = self.publish(mods)?;
        self.wait();
        Ok(result)
    }

    /// Applies flow-mods without waiting: every burst that a worker begins from now on sees them.
    ///
    /// # Errors
    /// The first flow-mod that is rejected; nothing has changed.
    pub fn publish(&mut self, mods: &[FlowMod]) -> Result<FlowModResult, Refused> {
        self.publish_all(&[], mods).map_err(|error| match error {
            BundleError::Rule(refused) => refused,
            BundleError::Group(_) => unreachable!("there are no changes of groups"),
        })
    }

    /// Applies changes of groups and then flow-mods, all or none, and waits until no packet sees the former rules.
    ///
    /// # Errors
    /// The first change that is rejected; nothing has changed.
    pub fn change_all(
        &mut self,
        groups: &[GroupMod],
        mods: &[FlowMod],
    ) -> Result<FlowModResult, BundleError> {
        let result = self.publish_all(groups, mods)?;
        self.wait();
        Ok(result)
    }

    fn publish_all(&mut self, groups: &[GroupMod], mods: &[FlowMod]) -> Result<FlowModResult, BundleError> {
        self.reclaim();
        self.catch_up();
        let now_ns = self.readers.now_ns();
        let mut made = Vec::new();
        match self.apply_all(groups, mods, now_ns, &mut made) {
            Ok(()) => Ok(self.publish_changes(&made, now_ns, std::iter::repeat(Reason::Deleted))),
            Err(error) => {
                self.undo(&made);
                Err(error)
            }
        }
    }

    fn apply_all(
        &mut self,
        groups: &[GroupMod],
        mods: &[FlowMod],
        now_ns: u64,
        made: &mut Vec<Change>,
    ) -> Result<(), BundleError> {
        groups.iter().try_for_each(|one| self.apply_group_mod(one, made))?;
        for (at, one) in mods.iter().enumerate() {
            self.apply_flow_mod(one, now_ns, made).map_err(|refusal| Refused {
                at,
                line: one.line,
                refusal,
            })?;
        }
        Ok(())
    }

    /// Brings the standby up to date with the published ruleset.
    fn catch_up(&mut self) {
        while !self.catch_up_slice() {}
    }

    /// Brings the standby nearer to the published ruleset, by 4,096 changes. Returns whether it is up to date.
    pub fn catch_up_slice(&mut self) -> bool {
        self.wait();
        let newest = self.published.newest();
        let behind = self.standby.version();
        let Some(standby) = Arc::get_mut(&mut self.standby) else {
            // A worker that does not run holds it.
            self.standby = Arc::new(newest.duplicate());
            return true;
        };
        let events: Option<Vec<_>> =
            newest.events_since(behind).map(|events| events.take(SLICE).cloned().collect());
        if !events.is_some_and(|events| events.into_iter().all(|event| standby.apply(event).is_ok())) {
            self.standby = Arc::new(newest.duplicate());
            return true;
        }
        let is_current = standby.version() == newest.version();
        if is_current {
            let needed = self.oldest_needed().map_or(0, |since| (newest.version() - since) as usize);
            self.standby().forget(EVENTS_KEPT.max(needed));
        }
        is_current
    }

    fn standby(&mut self) -> &mut Ruleset {
        Arc::get_mut(&mut self.standby).expect("no reader holds the standby after `catch_up`")
    }

    /// Rolls back changes that were not published.
    fn undo(&mut self, made: &[Change]) {
        made.iter().rev().for_each(|change| self.writer.undo(change));
        self.standby = Arc::new(self.published.newest().duplicate());
    }

    /// Publishes the standby, to which these changes were made; `reasons` has one for each, which counts if it is a removal.
    fn publish_changes(
        &mut self,
        made: &[Change],
        now_ns: u64,
        reasons: impl IntoIterator<Item = Reason>,
    ) -> FlowModResult {
        let mut result = FlowModResult::default();
        let version = self.standby.version();
        if version == self.published.newest().version() {
            return result;
        }
        for (change, reason) in made.iter().zip(reasons) {
            if change.what != ChangeKind::Replace {
                self.count_changes(change.table, 1);
            }
            self.timers.follow(change, now_ns);
            match change.what {
                ChangeKind::Add => result.added += 1,
                ChangeKind::Replace | ChangeKind::Turn => result.modified += 1,
                ChangeKind::Remove => {
                    result.removed += 1;
                    let Change { table, id, ref entry, .. } = *change;
                    let entry = entry.clone();
                    self.pending_removals.push_back(PendingRemoval {
                        table,
                        id,
                        version,
                        entry,
                        reason,
                        at_ns: now_ns,
                    });
                }
            }
        }
        self.standby = self.published.publish(self.standby.clone());
        if let (Some(waker), false) = (&self.waker, self.rebuilds.is_empty()) {
            waker.unpark();
        }
        result
    }

    /// Waits until every worker has passed a quiescent state since the newest publication.
    pub fn wait(&self) {
        let version = self.published.newest().version();
        self.wake_workers();
        wait_until(|| self.readers.have_passed(version));
    }

    /// Requests the final counters of removed rules, and reports those whose counters are complete.
    fn reclaim(&mut self) {
        self.reclaim_when(|readers, asked| readers.have_collected(asked));
    }

    fn reclaim_when(&mut self, is_complete: fn(&WorkerEpochs, &[u64]) -> bool) {
        if let Some((asked, version)) = &self.collecting
            && is_complete(&self.readers, asked)
        {
            self.collected = Some(*version);
            self.collecting = None;
        }
        if let Some(version) = self.collected {
            self.report_removed(version);
        }
        let version = self.published.newest().version();
        let is_idle = self.collecting.is_none() && self.collected.is_none();
        if is_idle && !self.pending_removals.is_empty() && self.readers.have_passed(version) {
            self.collecting = Some((self.readers.want_counters(), version));
        }
    }

    /// Reports rules that were removed up to a version, at most [`SLICE`] of them.
    fn report_removed(&mut self, version: u64) {
        let complete = |pending: &&PendingRemoval| pending.version <= version;
        let some = self.pending_removals.iter().take(SLICE).take_while(complete).count();
        let some: Vec<PendingRemoval> = self.pending_removals.drain(..some).collect();
        for of_table in some.chunk_by(|a, b| a.table == b.table) {
            let counts = self.counted(of_table[0].table, of_table.iter().map(|pending| pending.id));
            for (pending, count) in of_table.iter().zip(counts) {
                let count = count.since(pending.entry.base);
                let duration = Duration::from_nanos(pending.at_ns.saturating_sub(pending.entry.created_ns));
                let rule = pending.entry.rule.clone();
                self.flow_removed.push(FlowRemoved { rule, count, duration, reason: pending.reason });
            }
        }
        if !self.pending_removals.front().is_some_and(|pending| complete(&pending)) {
            self.writer.release(version, |_| false);
            self.collected = None;
        }
    }

    /// Returns the rules removed since the last call, with their final counters. A rule removed just now appears later: when every
    /// worker has flushed its counters.
    pub fn take_flow_removed(&mut self) -> Vec<FlowRemoved> {
        self.reclaim();
        std::mem::take(&mut self.flow_removed)
    }

    /// Waits for the final counters of all removed rules, and returns them. Not for workers that receive packets without
    /// [running](Worker::run).
    pub fn wait_for_flow_removed(&mut self) -> Vec<FlowRemoved> {
        while !self.pending_removals.is_empty() {
            // A worker that has stopped has flushed everything.
            self.reclaim_when(WorkerEpochs::have_collected_or_stopped);
            if let Some((asked, _)) = &self.collecting {
                self.wake_workers();
                wait_until(|| self.readers.have_collected_or_stopped(asked));
            }
        }
        std::mem::take(&mut self.flow_removed)
    }

    /// Returns the counters of rule ids.
    fn counted(&self, table: u8, rules: impl IntoIterator<Item = RuleId>) -> Vec<FlowStats> {
        self.readers.counts(table, rules)
    }

    /// Makes the workers flush the counters of their paths; those that do not run have done so.
    fn collect(&self) {
        let asked = self.readers.want_counters();
        self.wake_workers();
        wait_until(|| self.readers.have_collected_or_stopped(&asked));
    }

    /// Returns the rules that `wanted` selects, with their current counters.
    pub fn statistics(&self, wanted: impl Fn(u8, &Rule) -> bool) -> Vec<FlowStatistics> {
        self.collect();
        let (ruleset, now_ns) = (self.ruleset(), self.readers.now_ns());
        let mut out = Vec::new();
        for (number, table) in ruleset.tables() {
            let mut rules = table.in_order();
            rules.retain(|(_, entry)| wanted(number, &entry.rule));
            let counts = self.counted(number, rules.iter().map(|(id, _)| *id));
            out.extend(rules.into_iter().zip(counts).map(|((_, entry), count)| FlowStatistics {
                rule: entry.rule.clone(),
                count: count.since(entry.base),
                age: Duration::from_nanos(now_ns.saturating_sub(entry.created_ns)),
                idle_timeout_s: entry.idle_timeout_s,
                hard_timeout_s: entry.hard_timeout_s,
            }));
        }
        out
    }

    /// Returns the number of packets that no rule of a table matched; `None` where there is no such table.
    pub fn missed(&self, table: u8) -> Option<u64> {
        self.readers.missed(table)
    }

    /// Removes all rules whose timeout has passed, and returns their number. Call it more often than once a second.
    pub fn expire(&mut self) -> usize {
        let mut removed = 0;
        loop {
            removed += self.expire_slice();
            if self.is_expired() {
                return removed;
            }
        }
    }

    /// Returns whether the latest [slice](Self::expire_slice) was the last of a pass over all rules with timeouts.
    pub fn is_expired(&self) -> bool {
        self.timers.begins_pass()
    }

    /// Looks at the next few thousand rules with timeouts, removes those whose timeout has passed, and returns their number. A
    /// million rules whose time is up together would otherwise keep other changes waiting for seconds.
    pub fn expire_slice(&mut self) -> usize {
        self.reclaim();
        if self.timers.is_empty() {
            return 0;
        }
        if self.timers.begins_pass() {
            self.collect();
        }
        let now_ns = self.readers.now_ns();
        let readers = &self.readers;
        let counted = |table, rules: &[(u8, RuleId)]| readers.counts(table, rules.iter().map(|&(_, id)| id));
        let due = self.timers.due(now_ns, SLICE, counted);
        if due.is_empty() {
            return 0;
        }
        self.catch_up();
        let mut made = Vec::with_capacity(due.len());
        for (table, id, _) in &due {
            let entry = self.standby.table(*table).and_then(|table| table.rule(*id)).cloned();
            self.remove(*id, entry.expect("a timer is for a rule that is there"), &mut made);
        }
        let reasons = due.iter().map(|(_, _, reason)| *reason);
        self.publish_changes(&made, now_ns, reasons).removed
    }

    /// Checks the actions of a packet that a controller sends.
    ///
    /// # Errors
    /// The first that the switch does not execute, or that refers to something absent.
    pub fn check_packet_out(&self, actions: &[Action]) -> Result<(), Refusal> {
        let ruleset = self.ruleset();
        ruleset.check_actions(&Rule::new(Match::any(), actions.to_vec()))?;
        self.check_references(&ruleset, actions)
    }

    fn check_references(&self, ruleset: &Ruleset, actions: &[Action]) -> Result<(), Refusal> {
        let References { ports, meters, tunnels, any_port } = &self.references;
        for action in actions {
            self.check_references(ruleset, action.nested())?;
            for reference in action.references() {
                let (what, number, numbers) = match reference {
                    Reference::Port(_) if *any_port => continue,
                    Reference::Port(port) => ("port", port.0, ports),
                    Reference::Meter(meter) => ("meter", meter, meters),
                    Reference::Tunnel(tunnel) => ("tunnel", tunnel, tunnels),
                    Reference::Group(group) if ruleset.groups().get(group).is_none() => {
                        let there = list(&ruleset.groups().iter().map(|(id, _)| id).collect());
                        return Err(Refusal::Absent { what: "group", number: group, there });
                    }
                    // The ruleset has checked the table.
                    Reference::Group(_) | Reference::Table(_) => continue,
                };
                if !numbers.contains(&number) {
                    return Err(Refusal::Absent { what, number, there: list(numbers) });
                }
            }
        }
        Ok(())
    }
}

/// The first of some numbers.
fn list(numbers: &BTreeSet<u32>) -> String {
    match numbers.is_empty() {
        true => "none".to_owned(),
        false => numbers.iter().take(16).map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}
