//! Whoever changes rules while packets go through them.
//!
//! There are two copies of the [`Ruleset`]: packets go through the one that is published, the other stands by. A change is made
//! to the one that stands by, which is published then; as soon as every worker has passed on to it, the former repeats the
//! change, and stands by. So no worker ever waits, and no packet meets half a change.
//!
//! ```text
//! flow-mods ─► plan ─► apply to the copy that stands by ─► publish ─► every worker has passed ─► acknowledged
//!                          ▲        │ refused: nothing was published                  │
//!                          └────────┴──────── repeat on the other copy ◄──────────────┘
//! ```
//!
//! `Arc::get_mut` is the proof that nobody looks at the copy that is changed. Where somebody holds it for long (a worker that
//! does not run), another copy is made instead of waiting. A copy shares with the other what takes long to build.
//!
//! Where a rule has gone, megaflows may still have packets to credit it with: its handle is used again, and its last counters
//! are told, once every worker has brought them.

mod plan;
mod rebuild;
mod timer;

pub use rebuild::{Build, Expected};

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use flowlane::rule::action::PortNo;
use flowlane::rule::{Action, FlowMod, Rule, RuleId};

use crate::datapath::{Mailbox, Worker};
use crate::ruleset::{
    Change, ChangeKind, EVENTS_KEPT, Entry, FlowStats, RuleIndex, Ruleset, RulesetCell, RulesetError,
    TableMap, WorkerEpochs,
};

use rebuild::Renewal;
use timer::Timers;

/// Why changes are refused; none of them was made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The tables do not take a rule.
    #[error(transparent)]
    Pipeline(#[from] RulesetError),
    /// A rule names what is not there.
    #[error("there is no {what} {number}; those that there are: {there}")]
    Absent {
        /// Port, meter or tunnel.
        what: &'static str,
        number: u32,
        /// The numbers of those that there are.
        there: String,
    },
    /// A table's rules do not change while the switch runs.
    #[error("table {0} is on a device: its rules change only when the switch starts")]
    Device(u8),
}

/// Changes were refused because of one of them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {}: {refusal}", .line)]
pub struct Refused {
    /// The place of the flow-mod among those that were given.
    pub at: usize,
    /// Its line, as it was read.
    pub line: usize,
    pub refusal: Refusal,
}

/// Why a rule went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Reason {
    /// It was asked to.
    Deleted,
    /// No packet had come for too long.
    IdleTimeout,
    /// Its time was over.
    HardTimeout,
}

/// A rule that went.
#[derive(Clone, Debug)]
pub struct Gone {
    pub rule: Rule,
    /// All that it was ever for.
    pub count: FlowStats,
    /// How long it was there.
    pub lasted: Duration,
    pub reason: Reason,
}

/// A rule and what it was for so far.
#[derive(Clone, Debug)]
pub struct FlowStatistics {
    pub rule: Rule,
    pub count: FlowStats,
    /// How long it has been there.
    pub age: Duration,
    /// It goes when no packet has come for so long, in seconds; 0: it stays.
    pub idle_timeout_s: u16,
    /// It goes after so long, in seconds; 0: it stays.
    pub hard_timeout_s: u16,
}

/// What a change comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    pub added: usize,
    /// Rules whose actions or cookie are others now.
    pub modified: usize,
    pub removed: usize,
}

/// What rules may name.
#[derive(Clone, Debug, Default)]
struct References {
    ports: BTreeSet<u32>,
    meters: BTreeSet<u32>,
    tunnels: BTreeSet<u32>,
}

/// A rule that went and whose last counters may still come.
struct Going {
    table: u8,
    id: RuleId,
    version: u64,
    entry: Arc<Entry>,
    reason: Reason,
    at_ns: u64,
}

/// The owner of a switch's rules.
pub struct Control {
    published: Arc<RulesetCell>,
    readers: WorkerEpochs,
    mail: Vec<Mailbox>,
    /// Behind the published one by its last changes.
    standby: Arc<Ruleset>,
    writer: RuleIndex,
    devices: TableMap<()>,
    references: References,
    /// Oldest first.
    going: VecDeque<Going>,
    /// What was asked for, and the version all rules before which are done with when it has come.
    collecting: Option<(Vec<u64>, u64)>,
    gone: Vec<Gone>,
    timers: Timers,
    renewals: Vec<Renewal>,
    /// Between two engines of a table, as long as few rules change.
    pause: Duration,
    /// Who is to look when something has been built.
    waker: Option<Thread>,
}

/// Between two looks at whether workers have passed.
const LOOK: Duration = Duration::from_micros(10);

/// Looks at once before sleeping between them.
const LOOKS_AT_ONCE: u32 = 200;

/// Waits until something is so.
fn wait_until(is_so: impl Fn() -> bool) {
    for look in 0u32.. {
        if is_so() {
            return;
        }
        match look < LOOKS_AT_ONCE {
            true => std::thread::yield_now(),
            false => std::thread::sleep(LOOK),
        }
    }
}

impl Control {
    /// Takes over the rules of a worker. None where somebody has done so before.
    pub fn over(worker: &mut Worker) -> Option<Self> {
        Self::over_all(std::slice::from_mut(worker))
    }

    /// The same for workers that [go by one program](crate::datapath::Pipeline::fork).
    pub fn over_all(workers: &mut [Worker]) -> Option<Self> {
        let mail = workers.iter().map(Worker::mailbox).collect();
        let (first, others) = workers.split_first_mut()?;
        let handed = first.lookup.pipeline.share()?;
        let mut readers = WorkerEpochs(vec![handed.reader]);
        let published = &handed.published;
        readers.0.extend(others.iter_mut().map(|other| other.lookup.pipeline.subscribe(published)));
        let egress = &first.egress;
        let references = References {
            ports: egress.ports.slots().iter().map(|slot| slot.number.0).collect(),
            meters: egress.meters.keys().copied().collect(),
            tunnels: egress.tunnels.iter().flat_map(|tunnels| tunnels.leaving()).collect(),
        };
        Some(Self {
            published: handed.published,
            readers,
            mail,
            standby: handed.copy,
            writer: handed.writer,
            devices: handed.devices,
            references,
            going: VecDeque::new(),
            collecting: None,
            gone: Vec::new(),
            timers: Timers::default(),
            renewals: Vec::new(),
            pause: rebuild::PAUSE,
            waker: None,
        })
    }

    /// What rules say at present.
    pub fn ruleset(&self) -> Arc<Ruleset> {
        self.published.newest()
    }

    /// Where each worker may be asked something.
    pub fn mailboxes(&self) -> &[Mailbox] {
        &self.mail
    }

    /// Workers are to look at what is there for them.
    fn wake_workers(&self) {
        self.mail.iter().for_each(|mail| mail.waker().wake());
    }

    /// Makes these changes, all or none, and waits until no packet meets the rules as they were before.
    ///
    /// # Errors
    /// The first that cannot be; nothing has changed.
    pub fn change(&mut self, mods: &[FlowMod]) -> Result<Applied, Refused> {
        let applied = self.publish(mods)?;
        self.wait();
        Ok(applied)
    }

    /// The same without waiting: they are in force for every burst that a worker takes from now on.
    ///
    /// # Errors
    /// The first that cannot be; nothing has changed.
    pub fn publish(&mut self, mods: &[FlowMod]) -> Result<Applied, Refused> {
        self.reclaim();
        self.catch_up();
        let now_ns = self.readers.now_ns();
        let mut made = Vec::new();
        for (at, one) in mods.iter().enumerate() {
            if let Err(refusal) = self.make(one, now_ns, &mut made) {
                self.undo(&made);
                return Err(Refused { at, line: one.line, refusal });
            }
        }
        Ok(self.announce(&made, now_ns, |_| Reason::Deleted))
    }

    /// The copy that stands by has all changes that were published.
    fn catch_up(&mut self) {
        self.wait();
        let newest = self.published.newest();
        let behind = self.standby.version();
        let Some(standby) = Arc::get_mut(&mut self.standby) else {
            // Somebody looks at it who does not run.
            self.standby = Arc::new(newest.duplicate());
            return;
        };
        let events = newest.events_since(behind).map(|events| events.cloned().collect::<Vec<_>>());
        let repeated = events.is_some_and(|events| events.into_iter().all(|e| standby.apply(e).is_ok()));
        let needed = self.oldest_needed().map_or(0, |since| (newest.version() - since) as usize);
        match repeated {
            true => self.standby().forget(EVENTS_KEPT.max(needed)),
            false => self.standby = Arc::new(newest.duplicate()),
        }
    }

    fn standby(&mut self) -> &mut Ruleset {
        Arc::get_mut(&mut self.standby).expect("nobody has the copy that stands by")
    }

    /// None of these changes is to be.
    fn undo(&mut self, made: &[Change]) {
        made.iter().rev().for_each(|change| self.writer.undo(change));
        self.standby = Arc::new(self.published.newest().duplicate());
    }

    /// Publishes what has been made of the copy that stands by.
    fn announce(&mut self, made: &[Change], now_ns: u64, reason: impl Fn(&Change) -> Reason) -> Applied {
        let mut applied = Applied::default();
        if made.is_empty() {
            return applied;
        }
        let version = self.standby.version();
        for change in made {
            if change.what != ChangeKind::Replace {
                self.note_changes(change.table, 1);
            }
            self.timers.follow(change, now_ns);
            match change.what {
                ChangeKind::Add => applied.added += 1,
                ChangeKind::Replace => applied.modified += 1,
                ChangeKind::Remove => {
                    applied.removed += 1;
                    let Change { table, id, ref entry, .. } = *change;
                    let (entry, reason) = (entry.clone(), reason(change));
                    self.going.push_back(Going { table, id, version, entry, reason, at_ns: now_ns });
                }
            }
        }
        self.standby = self.published.publish(self.standby.clone());
        if let (Some(waker), false) = (&self.waker, self.renewals.is_empty()) {
            waker.unpark();
        }
        applied
    }

    /// Waits until no packet meets another ruleset than the newest.
    pub fn wait(&self) {
        let version = self.published.newest().version();
        self.wake_workers();
        wait_until(|| self.readers.have_passed(version));
    }

    /// Asks for, and takes, the last counters of rules that went: those may go whose counters have all come.
    fn reclaim(&mut self) {
        self.reclaim_when(|readers, asked| readers.have_collected(asked));
    }

    fn reclaim_when(&mut self, is_complete: fn(&WorkerEpochs, &[u64]) -> bool) {
        if let Some((asked, version)) = &self.collecting
            && is_complete(&self.readers, asked)
        {
            let version = *version;
            self.collecting = None;
            while self.going.front().is_some_and(|going| going.version <= version) {
                let going = self.going.pop_front().expect("it is there");
                let count = self.counted(going.table, [going.id])[0].since(going.entry.base);
                let lasted = Duration::from_nanos(going.at_ns.saturating_sub(going.entry.created_ns));
                let rule = going.entry.rule.clone();
                self.gone.push(Gone { rule, count, lasted, reason: going.reason });
            }
            self.writer.release(version, |_| false);
        }
        let version = self.published.newest().version();
        if self.collecting.is_none() && !self.going.is_empty() && self.readers.have_passed(version) {
            self.collecting = Some((self.readers.want_counters(), version));
        }
    }

    /// Rules that went, with all that they were ever for, since this was last asked. What has gone just now may come later:
    /// when every worker has brought what it had counted.
    pub fn take_gone(&mut self) -> Vec<Gone> {
        self.reclaim();
        std::mem::take(&mut self.gone)
    }

    /// The same, after waiting for all that has gone; not for workers that packets come to without [running](Worker::run).
    pub fn wait_for_gone(&mut self) -> Vec<Gone> {
        while !self.going.is_empty() {
            // Who has stopped has brought everything.
            self.reclaim_when(WorkerEpochs::have_collected_or_stopped);
            if let Some((asked, _)) = &self.collecting {
                self.wake_workers();
                wait_until(|| self.readers.have_collected_or_stopped(asked));
            }
        }
        std::mem::take(&mut self.gone)
    }

    /// What has been counted for handles of rules.
    fn counted(&self, table: u8, rules: impl IntoIterator<Item = RuleId>) -> Vec<FlowStats> {
        self.readers.counts(table, rules)
    }

    /// Has the workers bring what their paths have counted; not where they do not run.
    fn collect(&self) {
        let asked = self.readers.want_counters();
        self.wake_workers();
        wait_until(|| self.readers.have_collected_or_stopped(&asked));
    }

    /// The rules that `wanted` selects, with their counters as they are now.
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

    /// Packets that no rule of a table was for; none where there is no such table.
    pub fn missed(&self, table: u8) -> Option<u64> {
        self.readers.missed(table)
    }

    /// Removes rules whose time is over. Says how many. To be called now and then: more often than once a second.
    pub fn expire(&mut self) -> usize {
        if self.timers.is_empty() {
            self.reclaim();
            return 0;
        }
        self.collect();
        let now_ns = self.readers.now_ns();
        let due = self.timers.due(now_ns, |table, id| self.readers.counts(table, [id])[0]);
        if due.is_empty() {
            return 0;
        }
        self.reclaim();
        self.catch_up();
        let mut made = Vec::with_capacity(due.len());
        for (table, id, _) in &due {
            let entry = self.standby.table(*table).and_then(|table| table.rule(*id)).cloned();
            self.remove(*id, entry.expect("a timer is for a rule that is there"), &mut made);
        }
        let reason = |change: &Change| {
            let of = |(table, id, reason): &(u8, RuleId, Reason)| {
                (*table == change.table && *id == change.id).then_some(*reason)
            };
            due.iter().find_map(of).unwrap_or(Reason::Deleted)
        };
        self.announce(&made, now_ns, reason).removed
    }

    fn check_references(&self, actions: &[Action]) -> Result<(), Refusal> {
        let References { ports, meters, tunnels } = &self.references;
        let there = |numbers: &BTreeSet<u32>| match numbers.is_empty() {
            true => "none".to_owned(),
            false => numbers.iter().take(16).map(u32::to_string).collect::<Vec<_>>().join(", "),
        };
        for action in actions {
            let (what, number, numbers) = match *action {
                Action::Output(PortNo(number)) => ("port", number, ports),
                Action::Meter(number) => ("meter", number, meters),
                Action::Encapsulate(number) => ("tunnel", number, tunnels),
                _ => continue,
            };
            if !numbers.contains(&number) {
                return Err(Refusal::Absent { what, number, there: there(numbers) });
            }
        }
        Ok(())
    }
}
