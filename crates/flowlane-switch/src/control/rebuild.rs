//! Background rebuilds of engines after rule changes.
//!
//! A tree serves rules that have changed since it was built from an overlay table, which costs lookups. So another tree is built
//! on a background thread while rules go on changing, and replaces the first: prepared for changes, which it takes in place from then on.
//! Where it cannot, or rules change faster than it takes them, the table gets the dynamic engine until the update rate drops.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use flowlane::classify::ReplicatedEngine;
use flowlane::rule::RuleId;

use super::Control;
use crate::datapath::Given;
use crate::ruleset::{Entry, Event, Table};

/// The expected rate of changes of a table, which decides the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChurnClass {
    /// Few rules change: the engine with the fastest lookups is best.
    Low,
    /// Few rules change, and the engine of this name was measured to be the fastest for similar rules.
    LowWith(&'static str),
    /// Many rules change: the engine with the fastest updates is best.
    High,
}

/// Builds an engine for rules; `None` where it would exceed its memory.
pub type BuildEngine =
    Arc<dyn Fn(&[Given<'_>], ChurnClass) -> Option<Box<dyn ReplicatedEngine>> + Send + Sync>;

/// After a build, the thread pauses for as long as the build took; after a long one, for this multiple of it.
const PAUSE_AFTER_LONG: u32 = 4;
/// Builds from this duration on are long.
const LONG_BUILD: Duration = Duration::from_millis(200);
/// Churn is high where more than 1/8 of the rules change during a build, or in a [`CHURN_WINDOW`].
const HIGH_CHURN_INVERSE: u64 = 8;
/// Changes in a [`CHURN_WINDOW`] up to which an engine that takes them in place keeps up, in a fifth of a core at most; the dynamic
/// engine takes a change in a quarter of the time.
const IN_PLACE_CHANGES_MAX: u64 = 20_000;
/// The period over which changes are counted.
const CHURN_WINDOW: Duration = Duration::from_secs(1);

/// The nice value of build threads: without a spare core, a late engine costs less than late changes and packets.
const BUILD_NICE: i32 = 10;

/// While the overlay holds no more changes than this, which makes lookups at most a tenth slower, rebuilds are at least
/// [`REBUILD_INTERVAL`] apart, and take at most a fifth of the time.
const SMALL_OVERLAY_MAX: usize = 16;
/// Of a tree that takes changes in place, an overlay of 1/64 of the rules is small: those that it does not take.
const FEW_INVERSE: usize = 64;
/// The minimum time between rebuilds with a small overlay.
pub(super) const REBUILD_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum number of events that an engine catches up with on the control thread at once; more are left to the background thread, as
/// long as they become fewer. Where they do not, since rules change about as fast, the control thread catches up with as many at each call.
const CATCH_UP_EVENTS_MAX: usize = 300;

/// The state of a table's rebuilds.
pub(super) struct EngineRebuild {
    table: u8,
    build: BuildEngine,
    running: Option<Running>,
    /// No build begins before this.
    not_before: Instant,
    /// When the latest build ended, and its duration.
    built: Option<(Instant, Duration)>,
    /// Whether the engine that was built for low churn last takes changes in place.
    in_place: bool,
    /// The churn class and the number of rules that the present engine was built for.
    churn: ChurnClass,
    rules: usize,
    /// Rules added or removed so far.
    changes: u64,
    /// When the present window began, `changes` at that time, and the number of changes in the window before.
    window: (Instant, u64),
    last_window: u64,
}

/// An engine and its copy for the other copy of the ruleset.
type Engines = Vec<Box<dyn ReplicatedEngine>>;

/// An engine that is being built.
struct Running {
    done: Receiver<Option<Engines>>,
    since: u64,
    begun: Instant,
    churn: ChurnClass,
    rules: usize,
    /// `changes` when the build began.
    changes: u64,
    /// Events that it is catching up with; 0 during the build itself.
    following: usize,
}

/// Runs `work` on a background thread, which unparks `waker` at the end.
fn spawn_background(
    work: impl FnOnce() -> Option<Engines> + Send + 'static,
    waker: Option<Thread>,
) -> Option<Receiver<Option<Engines>>> {
    let (finished, done) = channel();
    let work = move || {
        // Affects this thread only, on Linux. Failure only makes other threads slower.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::nice(BUILD_NICE);
        // The receiver may have been dropped.
        _ = finished.send(work());
        if let Some(waker) = waker {
            waker.unpark();
        }
    };
    let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(work);
    thread.is_ok().then_some(done)
}

/// Applies events to engines of a table; `None` where they have no room for an added rule.
fn caught_up(mut engines: Engines, table: u8, events: &[Arc<Event>]) -> Option<Engines> {
    for event in events {
        let Event::Rule(change) = &**event else { continue };
        let follow = |engine: &mut Box<dyn ReplicatedEngine>| change.tell(&mut **engine).is_ok();
        if change.table == table && !engines.iter_mut().all(follow) {
            return None;
        }
    }
    Some(engines)
}

impl EngineRebuild {
    fn new(table: u8, build: BuildEngine, rules: usize) -> Self {
        let now = Instant::now();
        Self {
            table,
            build,
            running: None,
            not_before: now,
            built: None,
            in_place: false,
            churn: ChurnClass::Low,
            rules,
            changes: 0,
            window: (now, 0),
            last_window: 0,
        }
    }

    /// Returns the churn class to rebuild the engine for, or `None` if the current engine is fine.
    fn wanted(&mut self, table: &Table, now: Instant, pause: Duration) -> Option<ChurnClass> {
        if now.duration_since(self.window.0) >= CHURN_WINDOW {
            self.last_window = self.changes - self.window.1;
            self.window = (now, self.changes);
        }
        if self.running.is_some() || now < self.not_before {
            return None;
        }
        let rules = table.len();
        let many = self.in_window() > rules as u64 / HIGH_CHURN_INVERSE && !self.keeps_up();
        match self.churn {
            ChurnClass::High => {
                let is_calm = !self.in_place || self.in_window() <= IN_PLACE_CHANGES_MAX / 2;
                (!many && is_calm).then_some(ChurnClass::Low)
            }
            // For longer than a load of rules takes.
            _ if self.in_place && self.last_window.min(4 * self.in_this_window()) > IN_PLACE_CHANGES_MAX => {
                Some(ChurnClass::High)
            }
            ChurnClass::Low | ChurnClass::LowWith(_) => {
                let others = rules > 2 * self.rules + 8 || rules < self.rules / 4;
                let is_due =
                    || self.built.is_none_or(|(at, took)| now >= at + pause.max(PAUSE_AFTER_LONG * took));
                let alike = table.engine().filter(|engine| {
                    let few = if engine.takes_changes() { rules / FEW_INVERSE } else { 0 };
                    let pending = engine.pending_updates();
                    pending > 0 && (pending > few.max(SMALL_OVERLAY_MAX) || is_due())
                });
                let alike = alike.map(|engine| ChurnClass::LowWith(engine.engine_name()));
                if others { Some(ChurnClass::Low) } else { alike }
            }
        }
    }

    /// Returns the changes in the present window or the one before, whichever are more.
    fn in_window(&self) -> u64 {
        self.last_window.max(self.in_this_window())
    }

    fn in_this_window(&self) -> u64 {
        self.changes - self.window.1
    }

    /// Returns whether the engine for low churn takes the present changes in place.
    fn keeps_up(&self) -> bool {
        self.in_place && self.in_window() <= IN_PLACE_CHANGES_MAX
    }

    /// Starts to build an engine for the rules of a table in version `since`.
    fn begin(&mut self, table: &Table, since: u64, churn: ChurnClass, waker: Option<Thread>) {
        let ordinary = table.in_order().into_iter().filter(|(_, entry)| !entry.is_conjunctive());
        let entries: Vec<(RuleId, Arc<Entry>)> = ordinary.map(|(id, entry)| (id, entry.clone())).collect();
        let (rules, build) = (entries.len(), self.build.clone());
        let work = move || {
            let given = |(id, entry): &'_ (RuleId, Arc<Entry>)| (*id, entry.rule.priority, entry.clone());
            let held: Vec<_> = entries.iter().map(given).collect();
            let given: Vec<Given<'_>> =
                held.iter().map(|(id, p, entry)| (*id, *p, &entry.rule.matches)).collect();
            let mut engine = build(&given, churn)?;
            engine.defer_rebuilds();
            engine.prepare_changes();
            let mut other = engine.clone_box();
            other.prepare_changes();
            Some(vec![other, engine])
        };
        let (begun, changes) = (Instant::now(), self.changes);
        // If no thread can be spawned, try again after this.
        self.not_before = begun + CHURN_WINDOW;
        let done = spawn_background(work, waker);
        self.running = done.map(|done| Running { done, since, begun, churn, rules, changes, following: 0 });
    }

    /// Lets engines catch up with the first of these events at once, and with the rest at the next call.
    fn follow_slice(
        &mut self,
        running: Running,
        engines: Engines,
        events: &[Arc<Event>],
        waker: Option<&Thread>,
    ) {
        let slice = &events[..CATCH_UP_EVENTS_MAX];
        let (finished, done) = channel();
        _ = finished.send(caught_up(engines, self.table, slice));
        self.running = Some(Running { done, since: running.since + slice.len() as u64, ..running });
        waker.into_iter().for_each(Thread::unpark);
    }

    /// Lets engines catch up in the background with the events up to version `until`.
    fn follow(
        &mut self,
        running: Running,
        engines: Engines,
        events: Vec<Arc<Event>>,
        until: u64,
        waker: Option<Thread>,
    ) {
        let (table, following) = (self.table, events.len());
        let done = spawn_background(move || caught_up(engines, table, &events), waker);
        self.running = done.map(|done| Running { done, since: until, following, ..running });
    }

    /// Takes the result of a build that has ended.
    fn finish(&mut self) -> Option<(Running, Option<Engines>)> {
        let built = match self.running.as_ref()?.done.try_recv() {
            Ok(built) => built,
            Err(TryRecvError::Empty) => return None,
            // The thread has panicked, and its message was printed.
            Err(TryRecvError::Disconnected) => None,
        };
        let running = self.running.take().expect("it is there");
        let took = running.begun.elapsed();
        let now = Instant::now();
        self.built = Some((now, took));
        self.not_before = now + if took < LONG_BUILD { took } else { PAUSE_AFTER_LONG * took };
        Some((running, built))
    }
}

impl Control {
    /// Sets the function that builds engines for a table after its rules have changed.
    pub fn rebuild_with(&mut self, table: u8, build: BuildEngine) {
        let rules = self.standby.table(table).map_or(0, Table::len);
        self.rebuilds.push(EngineRebuild::new(table, build, rules));
    }

    /// Sets the minimum time between rebuilds at low churn; a tenth of a second by default.
    pub fn set_rebuild_interval(&mut self, pause: Duration) {
        self.pause = pause;
    }

    /// Sets the thread to unpark when [`rebuild_engines`](Self::rebuild_engines) or [`add_learned`](Self::add_learned) is due. Changes
    /// unpark it once a millisecond at most: let it look by time, too.
    pub fn wake(&mut self, thread: Thread) {
        self.learned.wake(thread.clone());
        self.waker = Some(thread);
    }

    /// Counts added and removed rules of a table.
    pub(super) fn count_changes(&mut self, table: u8, changes: u64) {
        let rebuild = self.rebuilds.iter_mut().find(|rebuild| rebuild.table == table);
        rebuild.into_iter().for_each(|rebuild| rebuild.changes += changes);
    }

    /// Returns the oldest version whose events a build still needs.
    pub(super) fn oldest_needed(&self) -> Option<u64> {
        self.rebuilds.iter().filter_map(|rebuild| Some(rebuild.running.as_ref()?.since)).min()
    }

    /// Installs engines that have been built, and starts the rebuilds that are due. Call it often; it does not block for builds.
    pub fn rebuild_engines(&mut self) {
        for at in 0..self.rebuilds.len() {
            if let Some((running, built)) = self.rebuilds[at].finish() {
                self.install(at, running, built);
            }
            let now = Instant::now();
            let newest = self.published.newest();
            let (rebuild, pause) = (&mut self.rebuilds[at], self.pause);
            let Some(table) = newest.table(rebuild.table) else { continue };
            if let Some(churn) = rebuild.wanted(table, now, pause) {
                rebuild.begin(table, newest.version(), churn, self.waker.clone());
            }
        }
        // So that the next change finds a standby that is up to date, or nearly.
        self.catch_up_slice();
    }

    /// Installs a built engine after it has caught up with the changes since, unless churn was too high.
    fn install(&mut self, at: usize, running: Running, built: Option<Engines>) {
        let Some(engines) = built else { return };
        let newest = self.published.newest();
        let rebuild = &mut self.rebuilds[at];
        let (table, meanwhile) = (rebuild.table, rebuild.changes - running.changes);
        let many = meanwhile > running.rules as u64 / HIGH_CHURN_INVERSE;
        if running.churn != ChurnClass::High {
            rebuild.in_place = engines.iter().all(|engine| engine.takes_changes());
        }
        // Rules that a tree does not take are in its overlay.
        let present = newest.table(table).and_then(Table::engine);
        let overflows = present.is_some_and(|engine| {
            engine.takes_changes() && engine.pending_updates() > running.rules / HIGH_CHURN_INVERSE as usize
        });
        if running.churn != ChurnClass::High && many && (!rebuild.keeps_up() || overflows) {
            if let Some(of_rules) = newest.table(table) {
                rebuild.begin(of_rules, newest.version(), ChurnClass::High, self.waker.clone());
            }
            return;
        }
        let Some(events) = newest.events_since(running.since) else { return };
        let events: Vec<Arc<Event>> = events.cloned().collect();
        if events.len() > CATCH_UP_EVENTS_MAX {
            let nears = running.following == 0 || events.len() < running.following / 2;
            return match nears {
                true => rebuild.follow(running, engines, events, newest.version(), self.waker.clone()),
                false => rebuild.follow_slice(running, engines, &events, self.waker.as_ref()),
            };
        }
        drop(newest);
        let Some(engines) = caught_up(engines, table, &events) else { return };
        self.catch_up();
        let engines = Arc::new(Mutex::new(engines));
        if self.standby().apply(Arc::new(Event::Engine { table, engines })).is_ok() {
            self.standby = self.published.publish(self.standby.clone());
            let rebuild = &mut self.rebuilds[at];
            rebuild.churn = running.churn;
            if !matches!(running.churn, ChurnClass::LowWith(_)) {
                // The engine was chosen for this number of rules.
                rebuild.rules = running.rules;
            }
        }
    }
}
