//! Publication of ruleset versions to workers (quiescent-state-based reclamation).
//!
//! Workers look at the version of the newest ruleset once a burst ([`Published`]), and announce which version they use. Since
//! packets of one burst meet one ruleset, a thread that sees that a worker uses version N knows that no packet meets an earlier one
//! any more (quiescent-state-based reclamation, McKenney and Slingwine 1998; the two copies are Ramalhete and Correia's left-right,
//! 2013, over whole programs).

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use flowlane::published::Published;
use flowlane::rule::RuleId;

use super::counters::{FlowStats, SharedCounters, sums};
use super::snapshot::Ruleset;
use super::table_map::TableMap;
use crate::sync::{AtomicU64, Ordering, fence};

/// The newest ruleset.
pub(crate) type PublishedRuleset = Published<Arc<Ruleset>>;

/// State of a worker that other threads read.
pub(crate) struct WorkerEpoch {
    /// The version that it uses; [`OFFLINE`](Self::OFFLINE) or [`RESTING`](Self::RESTING) while it has none in its hands.
    passed: AtomicU64,
    /// The number of requests for the paths' counters, and of those that have been served.
    wanted: AtomicU64,
    collected: AtomicU64,
    /// Its clock.
    now_ns: AtomicU64,
    /// While it runs by the time of the system: the origin of its clock, which goes on while it waits for packets.
    origin: std::sync::Mutex<Option<Instant>>,
    pub(crate) tallies: TableMap<Arc<SharedCounters>>,
}

impl WorkerEpoch {
    /// Not running: it looks at the version before its next burst.
    const OFFLINE: u64 = u64::MAX;

    /// It waits for packets, and takes the newest version when some have come.
    const RESTING: u64 = u64::MAX - 1;

    pub(crate) fn new(tallies: TableMap<Arc<SharedCounters>>) -> Self {
        Self {
            passed: AtomicU64::new(Self::OFFLINE),
            wanted: AtomicU64::new(0),
            collected: AtomicU64::new(0),
            now_ns: AtomicU64::new(0),
            origin: std::sync::Mutex::default(),
            tallies,
        }
    }

    /// Returns whether no packet meets a ruleset before this version any more.
    pub(crate) fn has_passed(&self, version: u64) -> bool {
        self.passed.load(Ordering::SeqCst) >= version
    }

    pub(crate) fn is_offline(&self) -> bool {
        self.passed.load(Ordering::SeqCst) == Self::OFFLINE
    }

    /// Requests the paths' counters; the returned number tells when they [have been brought](Self::has_collected).
    pub(crate) fn want_counters(&self) -> u64 {
        self.wanted.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn has_collected(&self, asked: u64) -> bool {
        self.collected.load(Ordering::SeqCst) >= asked
    }

    fn origin(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker's clock; by the time of frames, when its last burst came.
    pub(crate) fn now_ns(&self) -> u64 {
        let passed_ns = self.origin().map_or(0, |origin| origin.elapsed().as_nanos() as u64);
        self.now_ns.load(Ordering::Relaxed).max(passed_ns)
    }
}

/// State of all workers that other threads read.
#[derive(Default)]
pub(crate) struct WorkerEpochs(pub(crate) Vec<Arc<WorkerEpoch>>);

impl WorkerEpochs {
    /// Returns whether no packet meets a ruleset before this version any more.
    pub(crate) fn have_passed(&self, version: u64) -> bool {
        self.0.iter().all(|reader| reader.has_passed(version))
    }

    /// Requests the paths' counters; the returned number tells when they [have been brought](Self::have_collected).
    pub(crate) fn want_counters(&self) -> Vec<u64> {
        self.0.iter().map(|reader| reader.want_counters()).collect()
    }

    pub(crate) fn have_collected(&self, asked: &[u64]) -> bool {
        self.0.iter().zip(asked).all(|(reader, &asked)| reader.has_collected(asked))
    }

    /// The running workers among them.
    pub(crate) fn have_collected_or_stopped(&self, asked: &[u64]) -> bool {
        self.0.iter().zip(asked).all(|(reader, &asked)| reader.has_collected(asked) || reader.is_offline())
    }

    /// The clock of the worker that is furthest.
    pub(crate) fn now_ns(&self) -> u64 {
        self.0.iter().map(|reader| reader.now_ns()).max().unwrap_or(0)
    }

    /// Returns the counts of each id in `rules`; nothing if the table does not exist.
    pub(crate) fn counts(&self, table: u8, rules: impl IntoIterator<Item = RuleId>) -> Vec<FlowStats> {
        sums(self.0.iter().filter_map(|reader| reader.tallies.get(table)), rules)
    }

    /// Packets that no rule of a table was for; none where there is no such table.
    pub(crate) fn missed(&self, table: u8) -> Option<u64> {
        self.0.iter().map(|reader| Some(reader.tallies.get(table)?.missed().packets)).sum()
    }
}

/// A worker's side.
pub(crate) struct RulesetReader {
    published: Arc<PublishedRuleset>,
    reader: Arc<WorkerEpoch>,
    online: bool,
    /// In the place of a worker's ruleset while it rests.
    nothing: Arc<Ruleset>,
}

impl RulesetReader {
    pub(crate) fn new(published: Arc<PublishedRuleset>, reader: Arc<WorkerEpoch>) -> Self {
        Self { published, reader, online: false, nothing: Arc::default() }
    }

    /// Returns whether there is a ruleset of another version.
    #[inline]
    pub(crate) fn is_stale(&self, used: &Arc<Ruleset>) -> bool {
        self.published.is_stale(used)
    }

    /// Replaces the worker's ruleset by the newest one if it is stale, and returns the one before: to be dropped before this
    /// worker has [`passed`](Self::passed) the new one's version.
    #[inline]
    pub(crate) fn refresh(&self, used: &mut Arc<Ruleset>) -> Option<Arc<Ruleset>> {
        self.published.refresh(used)
    }

    /// From now on others wait for this worker, which uses this version. `origin` is that of its clock, if it goes by the time of the
    /// system.
    pub(crate) fn begin(&mut self, version: u64, origin: Option<Instant>) {
        self.online = true;
        *self.reader.origin() = origin;
        self.reader.passed.store(version, Ordering::SeqCst);
        // A publisher that does not see this has published before the next look at the version.
        fence(Ordering::SeqCst);
    }

    /// The origin of the worker's clock is another, if it runs and goes by the time of the system.
    pub(crate) fn move_origin(&self, origin: Instant) {
        if let Some(known) = &mut *self.reader.origin() {
            *known = origin;
        }
    }

    /// The worker lets go of its ruleset while it waits for packets: publications do not wait for it. Returns whether it did: one that
    /// is offline keeps it.
    pub(crate) fn rest(&self, used: &mut Arc<Ruleset>) -> bool {
        if self.online {
            used.clone_from(&self.nothing);
            self.reader.passed.store(WorkerEpoch::RESTING, Ordering::SeqCst);
        }
        self.online
    }

    /// The worker takes the newest ruleset after it has [rested](Self::rest).
    pub(crate) fn resume(&self, used: &mut Arc<Ruleset>) {
        self.reader.passed.store(0, Ordering::SeqCst);
        // A publisher that does not see this has published before the newest version is taken.
        fence(Ordering::SeqCst);
        *used = self.published.newest();
        self.passed(used.version());
    }

    /// The worker has nothing in its hands any more.
    pub(crate) fn end(&mut self) {
        self.online = false;
        *self.reader.origin() = None;
        self.reader.passed.store(WorkerEpoch::OFFLINE, Ordering::SeqCst);
    }

    /// The worker has let go of all programs before this version.
    pub(crate) fn passed(&self, version: u64) {
        if self.online {
            self.reader.passed.store(version, Ordering::SeqCst);
        }
    }

    #[inline]
    pub(crate) fn wants_counters(&self) -> bool {
        self.reader.wanted.load(Ordering::Relaxed) != self.reader.collected.load(Ordering::Relaxed)
    }

    /// Takes note of what has been asked for, before the paths' counters are brought.
    pub(crate) fn wanted(&self) -> u64 {
        self.reader.wanted.load(Ordering::SeqCst)
    }

    /// The paths' counters have been brought.
    pub(crate) fn collected(&self, wanted: u64) {
        self.reader.collected.store(wanted, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn tell_time(&self, now_ns: u64) {
        self.reader.now_ns.store(now_ns, Ordering::Relaxed);
    }
}

impl Drop for RulesetReader {
    fn drop(&mut self) {
        self.end();
        // No thread may wait for counters that will not come.
        self.reader.collected.store(u64::MAX, Ordering::SeqCst);
    }
}
