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

mod cookies;
mod fail_open;
mod flow_mods;
mod groups;
mod learned;
mod meters;
mod mirrors;
mod notices;
mod options;
mod ports;
mod rebuild;
mod references;
mod removal;
mod restore;
mod table_settings;
mod timer;
mod wait;

pub use groups::{GroupError, GroupMod};
pub use meters::{MeterEntry, MeterError, MeterMod, MeterSpec};
pub use options::{OptionMod, OptionsError};
pub use ports::{PortChange, VlanChange};
pub use rebuild::{BuildEngine, ChurnClass};
pub use removal::{FlowRemoved, Reason};
pub use restore::{NotRestored, SavedControl, SavedRule};

pub(crate) use fail_open::FAIL_OPEN;
pub(crate) use meters::{BANDS_MAX, METERS_MAX};
pub(crate) use notices::{Notice, Notices, Requester, RuleEvent, RuleEventKind};
pub use table_settings::VacancyLimits;
pub(crate) use table_settings::{TableSettings, vacancy_of};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

use flowlane::rule::action::PortNo;
use flowlane::rule::{FlowFlags, FlowMod, Rule, RuleId};
use flowlane::tunnel::OptionMap;

use crate::datapath::{LearnQueue, Mailbox, Worker, limited_cookies};
use crate::ruleset::{
    Change, ChangeKind, EVENTS_KEPT, FlowStats, Meters, Policing, PortFlags, PortVlans, PublishedRuleset,
    RuleIndex, Ruleset, RulesetError, TableMap, WorkerEpochs,
};
use crate::state::fdb::Fdb;
use crate::state::mirror::Mirrors;

use cookies::Cookies;
use flow_mods::Made;
use rebuild::EngineRebuild;
use removal::{PendingRemoval, Removals};
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
    /// A rule of a controller has the field of an option of tunnels that is not mapped.
    #[error("tun_metadata{0} holds no option of tunnels")]
    NoOption(usize),
    /// A port that a rule or group names cannot be removed.
    #[error("port {port} is named by {user}; change that first")]
    PortInUse { port: u32, user: String },
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

/// Changes that take effect together, in the order of the fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes<'a> {
    pub groups: &'a [GroupMod],
    pub rules: &'a [FlowMod],
    /// Groups that are deleted, with the rules that still name them.
    pub deleted_groups: &'a [u32],
    pub ports: &'a [PortChange],
    pub vlans: &'a [VlanChange],
}

/// The change because of which [`Changes`] were rejected, by its position among those of its kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BundleError {
    #[error("{error}")]
    Group { at: usize, error: GroupError },
    #[error(transparent)]
    Rule(#[from] Refused),
    /// The position counts those of flags and then those of VLANs.
    #[error("there is no port {}", .port.0)]
    Port { at: usize, port: PortNo },
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
    /// Those flags of its flow-mod that last.
    pub flags: FlowFlags,
    /// Its importance (OpenFlow 1.4).
    pub importance: u16,
}

/// The numbers of rules that flow-mods changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowModResult {
    pub added: usize,
    /// Rules with new actions or cookies.
    pub modified: usize,
    pub removed: usize,
}

/// The ports, with their settings, and the numbers of tunnels that rules may refer to.
#[derive(Clone, Debug, Default)]
struct References {
    ports: BTreeMap<u32, PortFlags>,
    vlans: PortVlans,
    mirrors: Option<Arc<Mirrors>>,
    policing: Policing,
    tunnels: BTreeSet<u32>,
    /// Rules may name ports that do not exist, as in OpenFlow.
    any_port: bool,
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
    /// The meters that rules may name.
    meters: BTreeMap<u32, MeterEntry>,
    /// Those meters, as workers take them.
    shared_meters: Meters,
    /// Settings of tables by controllers.
    table_settings: BTreeMap<u8, TableSettings>,
    /// The fields of GENEVE options.
    options: OptionMap,
    removals: Removals,
    /// For controllers.
    notices: Arc<Notices>,
    /// The request that changes rules at present.
    requester: Option<Requester>,
    timers: Timers,
    cookies: Cookies,
    rebuilds: Vec<EngineRebuild>,
    /// The minimum time between two rebuilds of a table at low churn.
    pause: Duration,
    /// The thread to unpark when an engine has been built, or rules have changed.
    waker: Option<Thread>,
    /// When a change has unparked it last.
    woken: Option<Instant>,
    /// Rules that workers have learned.
    learned: Arc<LearnQueue>,
    /// The addresses that the workers have learned.
    macs: Fdb,
}

/// The least time between two changes that wake the thread which rebuilds engines.
const WAKE_INTERVAL: Duration = Duration::from_millis(1);

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
            ports: egress.ports.iter().map(|slot| (slot.number.0, slot.flags)).collect(),
            vlans: ports::vlans_of(&egress.ports),
            mirrors: None,
            policing: Policing::new(),
            tunnels: egress.tunnels.iter().flat_map(|tunnels| tunnels.leaving()).collect(),
            any_port: false,
        };
        let (meters, shared_meters) = (meters::configured(&egress.meters), egress.meters.clone());
        let options = egress.port_tunnels.policy.option_fields.clone();
        let cookies = Cookies::of(&handed.copy);
        learned.count(&limited_cookies(&handed.copy).collect::<Vec<_>>(), &handed.copy);
        let macs = egress.macs.share();
        Some(Self {
            published: handed.published,
            readers,
            mail,
            standby: handed.copy,
            writer: handed.writer,
            devices: handed.devices,
            references,
            meters,
            shared_meters,
            table_settings: BTreeMap::new(),
            options,
            removals: Removals::default(),
            notices: Arc::default(),
            requester: None,
            timers: Timers::default(),
            cookies,
            rebuilds: Vec::new(),
            pause: rebuild::REBUILD_INTERVAL,
            waker: None,
            woken: None,
            learned,
            macs,
        })
    }

    /// Returns the published ruleset.
    pub fn ruleset(&self) -> Arc<Ruleset> {
        self.published.newest()
    }

    /// Returns the queue of notices for controllers.
    pub(crate) fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    /// Names the request that makes the next changes of rules, or none.
    pub(crate) fn set_requester(&mut self, requester: Option<Requester>) {
        self.requester = requester;
    }

    /// Returns the mailbox of each worker.
    pub fn mailboxes(&self) -> &[Mailbox] {
        &self.mail
    }

    /// Wakes all workers, so that they bring their counters.
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
        self.publish_all(&Changes { rules: mods, ..Changes::default() }).map_err(|error| match error {
            BundleError::Rule(refused) => refused,
            BundleError::Group { .. } | BundleError::Port { .. } => {
                unreachable!("there are changes of rules alone")
            }
        })
    }

    /// Makes changes, all or none, waits until no packet meets the former state, and reports changed ports to controllers.
    ///
    /// # Errors
    /// The first change that is rejected; nothing has changed.
    pub fn change_all(&mut self, changes: &Changes<'_>) -> Result<FlowModResult, BundleError> {
        let before = self.references.ports.clone();
        let vlans = self.references.vlans.clone();
        let result = self.publish_all(changes)?;
        self.wait();
        if vlans != self.references.vlans {
            self.forget_addresses();
        }
        self.tell_changed_ports(&before);
        Ok(result)
    }

    fn publish_all(&mut self, changes: &Changes<'_>) -> Result<FlowModResult, BundleError> {
        self.publish_made(|control, now_ns, made| control.apply_all(changes, now_ns, made))
    }

    /// Publishes what a function changes in the standby, if it can change it.
    fn publish_made<E>(
        &mut self,
        change: impl FnOnce(&mut Self, u64, &mut Made) -> Result<(), E>,
    ) -> Result<FlowModResult, E> {
        self.reclaim();
        self.catch_up();
        let now_ns = self.readers.now_ns();
        let mut made = Made::default();
        match change(self, now_ns, &mut made) {
            Ok(()) => Ok(self.publish_changes(&made, now_ns)),
            Err(error) => {
                self.undo(&made);
                Err(error)
            }
        }
    }

    fn apply_all(&mut self, changes: &Changes<'_>, now_ns: u64, made: &mut Made) -> Result<(), BundleError> {
        for (at, one) in changes.groups.iter().enumerate() {
            self.apply_group_mod(one, made).map_err(|error| BundleError::Group { at, error })?;
        }
        for (at, one) in changes.rules.iter().enumerate() {
            self.apply_flow_mod(one, now_ns, made).map_err(|refusal| Refused {
                at,
                line: one.line,
                refusal,
            })?;
        }
        for (at, &id) in changes.deleted_groups.iter().enumerate() {
            let deleted = self.apply_group_mod(&GroupMod::Delete(Some(id)), made);
            deleted.map_err(|error| BundleError::Group { at, error })?;
        }
        self.apply_port_changes(changes.ports, changes.vlans)
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
    fn undo(&mut self, made: &Made) {
        let mut replaced = made.replaced.iter().rev();
        for change in made.changes.iter().rev() {
            self.writer.undo(change);
            let entry = Some(&*change.entry);
            match change.what {
                ChangeKind::Add => _ = self.cookies.follow(entry, None),
                ChangeKind::Remove => _ = self.cookies.follow(None, entry),
                ChangeKind::Replace | ChangeKind::Turn => {
                    let before = replaced.next().expect("each replacement has its former rule");
                    self.cookies.follow(entry, Some(before));
                }
            }
        }
        self.standby = Arc::new(self.published.newest().duplicate());
    }

    /// Publishes the standby, to which these changes were made.
    fn publish_changes(&mut self, made: &Made, now_ns: u64) -> FlowModResult {
        let mut result = FlowModResult::default();
        let version = self.standby.version();
        if version == self.published.newest().version() {
            return result;
        }
        let mut reasons = made.reasons.iter();
        for change in &made.changes {
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
                    self.removals.push(PendingRemoval {
                        table,
                        id,
                        version,
                        entry: entry.clone(),
                        reason: *reasons.next().expect("each removal has a reason"),
                        at_ns: now_ns,
                    });
                }
            }
        }
        self.follow_learned(made);
        self.standby = self.published.publish(self.standby.clone());
        self.tell_changes(made);
        if result.removed + result.modified > 0 {
            self.learned.forget();
        }
        self.wake_for_rebuilds();
        result
    }

    /// Unparks the thread that rebuilds engines. It looks by itself, too, so that changes one behind the other need not each wake it.
    fn wake_for_rebuilds(&mut self) {
        let Some(waker) = self.waker.as_ref().filter(|_| !self.rebuilds.is_empty()) else { return };
        let now = Instant::now();
        if self.woken.is_none_or(|woken| now - woken >= WAKE_INTERVAL) {
            self.woken = Some(now);
            waker.unpark();
        }
    }

    /// Waits until every worker has passed a quiescent state since the newest publication.
    pub fn wait(&self) {
        let version = self.published.newest().version();
        let late = self.mail.iter().zip(&self.readers.0).filter(|(_, reader)| !reader.has_passed(version));
        late.for_each(|(mail, _)| mail.notifier().wake());
        wait_until(|| self.readers.have_passed(version));
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
                idle_timeout_s: entry.timeouts.idle_s(),
                hard_timeout_s: entry.timeouts.hard_s(),
                flags: entry.flags,
                importance: entry.importance,
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
        let mut made = Made::default();
        for (table, id, reason) in due {
            let entry = self.standby.table(table).and_then(|table| table.rule(id)).cloned();
            self.remove(id, entry.expect("a timer is for a rule that is there"), reason, &mut made);
        }
        self.remove_learned(&mut made);
        self.publish_changes(&made, now_ns).removed
    }
}
