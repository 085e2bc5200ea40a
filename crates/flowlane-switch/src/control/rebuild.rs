//! Engines that are built anew aside, when rules have changed.
//!
//! A tree of rules is fast as long as its rules are those that it was built of; what comes and goes since is made good for by
//! tables beside it, which every packet asks. So another tree is built on another thread while rules go on changing, and takes
//! the place of the first. Where so many rules change meanwhile that it would be old before it is there, the table gets an engine
//! that is changed in place, until there is peace again.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use flowlane::classify::Shared;
use flowlane::rule::RuleId;

use super::Control;
use crate::datapath::Given;
use crate::ruleset::{Entry, Event, Table};

/// How rules will go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Few of them will change: what looks up fastest is best.
    Few,
    /// The same, and the engine of this name has been found to be that for rules like these.
    Alike(&'static str),
    /// Many will: what is changed fastest is best.
    Many,
}

/// Makes an engine for rules; none where there is no room for it.
pub type Build = Arc<dyn Fn(&[Given<'_>], Expected) -> Option<Box<dyn Shared>> + Send + Sync>;

/// A thread that builds rests at least as long as it has built; where that was long, this many times as long.
const REST: u32 = 4;
/// To build for so long is long.
const LONG: Duration = Duration::from_millis(200);
/// Where one of so many rules changes while an engine is built, or in [`WINDOW`], many do.
const MANY_INVERSE: u64 = 8;
/// For so long changes are counted to tell whether they are many.
const WINDOW: Duration = Duration::from_secs(1);

/// How much those give way who build, to whoever changes rules and to workers: where there is no core to spare, an engine that comes
/// later costs less than changes that do.
const NICE: i32 = 10;

/// As long as an engine makes good for no more changes than these, which takes packets a tenth longer at most, another is not built
/// more often than this, nor for more than a fifth of the time.
const LITTLE: usize = 16;
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// So many events an engine follows while others wait for it; more of them on the other thread, as long as they become fewer.
const FOLLOWED_AT_ONCE: usize = 300;

/// What is known of a table's engine.
pub(super) struct Renewal {
    table: u8,
    build: Build,
    running: Option<Running>,
    /// Until then nothing is built.
    not_before: Instant,
    /// When the latest was there, and how long that had taken.
    built: Option<(Instant, Duration)>,
    /// What the present engine was built for, and for how many rules.
    expected: Expected,
    rules: usize,
    /// Rules that came or went so far.
    changes: u64,
    /// When the present window began, with how many changes; and how many there were in the one before.
    window: (Instant, u64),
    lately: u64,
}

/// An engine, and its like for the other copy of the ruleset.
type Engines = Vec<Box<dyn Shared>>;

/// An engine that is being built.
struct Running {
    done: Receiver<Option<Engines>>,
    since: u64,
    begun: Instant,
    expected: Expected,
    rules: usize,
    /// What there was when it began.
    changes: u64,
    /// Events that it follows at present; none while it is built.
    following: usize,
}

/// Has another thread do some work.
fn aside(
    work: impl FnOnce() -> Option<Engines> + Send + 'static,
    waker: Option<Thread>,
) -> Option<Receiver<Option<Engines>>> {
    let (finished, done) = channel();
    let work = move || {
        // Of this thread alone, on Linux. Where it may not be, others wait for it a little.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::nice(NICE);
        // Whoever wanted it may have gone.
        _ = finished.send(work());
        if let Some(waker) = waker {
            waker.unpark();
        }
    };
    let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(work);
    thread.is_ok().then_some(done)
}

/// Engines of a table after these events; none where there is no room in them for what has come.
fn followed(mut engines: Engines, table: u8, events: &[Arc<Event>]) -> Option<Engines> {
    for event in events {
        let Event::Rule(change) = &**event else { continue };
        let follow = |engine: &mut Box<dyn Shared>| change.tell(&mut **engine).is_ok();
        if change.table == table && !engines.iter_mut().all(follow) {
            return None;
        }
    }
    Some(engines)
}

impl Renewal {
    fn new(table: u8, build: Build, rules: usize) -> Self {
        let now = Instant::now();
        Self {
            table,
            build,
            running: None,
            not_before: now,
            built: None,
            expected: Expected::Few,
            rules,
            changes: 0,
            window: (now, 0),
            lately: 0,
        }
    }

    /// What the table had better have, if it is another engine.
    fn wanted(&mut self, table: &Table, now: Instant, pause: Duration) -> Option<Expected> {
        if now.duration_since(self.window.0) >= WINDOW {
            self.lately = self.changes - self.window.1;
            self.window = (now, self.changes);
        }
        if self.running.is_some() || now < self.not_before {
            return None;
        }
        let rules = table.len();
        let many = self.lately.max(self.changes - self.window.1) > rules as u64 / MANY_INVERSE;
        match self.expected {
            Expected::Many => (!many).then_some(Expected::Few),
            Expected::Few | Expected::Alike(_) => {
                let others = rules > 2 * self.rules + 8 || rules < self.rules / 4;
                let alike = table.engine().filter(|engine| match engine.unmerged() {
                    0 => false,
                    1..=LITTLE => {
                        self.built.is_none_or(|(built, took)| now >= built + pause.max(REST * took))
                    }
                    _ => true,
                });
                let alike = alike.map(|engine| Expected::Alike(engine.chosen()));
                if others { Some(Expected::Few) } else { alike }
            }
        }
    }

    /// Begins to build an engine for the rules that a table has in version `since`.
    fn begin(&mut self, table: &Table, since: u64, expected: Expected, waker: Option<Thread>) {
        let entries: Vec<(RuleId, Arc<Entry>)> =
            table.in_order().into_iter().map(|(id, entry)| (id, entry.clone())).collect();
        let (rules, build) = (entries.len(), self.build.clone());
        let work = move || {
            let given = |(id, entry): &'_ (RuleId, Arc<Entry>)| (*id, entry.rule.priority, entry.clone());
            let held: Vec<_> = entries.iter().map(given).collect();
            let given: Vec<Given<'_>> =
                held.iter().map(|(id, p, entry)| (*id, *p, &entry.rule.matches)).collect();
            let mut engine = build(&given, expected)?;
            engine.leave_merging();
            Some(vec![engine.duplicate(), engine])
        };
        let (begun, changes) = (Instant::now(), self.changes);
        // Without a thread, another time.
        self.not_before = begun + WINDOW;
        let done = aside(work, waker);
        self.running =
            done.map(|done| Running { done, since, begun, expected, rules, changes, following: 0 });
    }

    /// Has engines follow what has happened while they were built, until version `until`.
    fn follow(
        &mut self,
        running: Running,
        engines: Engines,
        events: Vec<Arc<Event>>,
        until: u64,
        waker: Option<Thread>,
    ) {
        let (table, following) = (self.table, events.len());
        let done = aside(move || followed(engines, table, &events), waker);
        self.running = done.map(|done| Running { done, since: until, following, ..running });
    }

    /// What has been built, if something has.
    fn finish(&mut self) -> Option<(Running, Option<Engines>)> {
        let built = match self.running.as_ref()?.done.try_recv() {
            Ok(built) => built,
            Err(TryRecvError::Empty) => return None,
            // It has panicked, which is told already.
            Err(TryRecvError::Disconnected) => None,
        };
        let running = self.running.take().expect("it is there");
        let took = running.begun.elapsed();
        let now = Instant::now();
        self.built = Some((now, took));
        self.not_before = now + if took < LONG { took } else { REST * took };
        Some((running, built))
    }
}

impl Control {
    /// From now on has this make engines for a table, when its rules have changed.
    pub fn renew_with(&mut self, table: u8, build: Build) {
        let rules = self.standby.table(table).map_or(0, Table::len);
        self.renewals.push(Renewal::new(table, build, rules));
    }

    /// For few changes engines are built anew no more often than this; by default, every tenth of a second.
    pub fn renew_every(&mut self, pause: Duration) {
        self.pause = pause;
    }

    /// Wakes this thread when something is due: it is to [renew](Self::renew).
    pub fn wake(&mut self, thread: Thread) {
        self.waker = Some(thread);
    }

    /// Rules of a table have come or gone.
    pub(super) fn note_changes(&mut self, table: u8, changes: u64) {
        let renewal = self.renewals.iter_mut().find(|renewal| renewal.table == table);
        renewal.into_iter().for_each(|renewal| renewal.changes += changes);
    }

    /// The version from which on events are still needed.
    pub(super) fn oldest_needed(&self) -> Option<u64> {
        self.renewals.iter().filter_map(|renewal| Some(renewal.running.as_ref()?.since)).min()
    }

    /// Takes what has been built aside, and begins what is due. To be called often; what takes long is done elsewhere.
    pub fn renew(&mut self) {
        for at in 0..self.renewals.len() {
            if let Some((running, built)) = self.renewals[at].finish() {
                self.take_over(at, running, built);
            }
            let now = Instant::now();
            let newest = self.published.newest();
            let (renewal, pause) = (&mut self.renewals[at], self.pause);
            let Some(table) = newest.table(renewal.table) else { continue };
            if let Some(expected) = renewal.wanted(table, now, pause) {
                renewal.begin(table, newest.version(), expected, self.waker.clone());
            }
        }
        // So that the next change finds the copy that stands by as it is to be.
        self.catch_up();
    }

    /// Gives a table the engine that has been built, after what has happened since, unless it is old already.
    fn take_over(&mut self, at: usize, running: Running, built: Option<Engines>) {
        let Some(engines) = built else { return };
        let newest = self.published.newest();
        let renewal = &mut self.renewals[at];
        let (table, meanwhile) = (renewal.table, renewal.changes - running.changes);
        if running.expected != Expected::Many && meanwhile > running.rules as u64 / MANY_INVERSE {
            if let Some(of_rules) = newest.table(table) {
                renewal.begin(of_rules, newest.version(), Expected::Many, self.waker.clone());
            }
            return;
        }
        let Some(events) = newest.events_since(running.since) else { return };
        let events: Vec<Arc<Event>> = events.cloned().collect();
        // Where rules change about as fast as an engine follows, it would never be there.
        let nears = running.following == 0 || events.len() < running.following / 2;
        if events.len() > FOLLOWED_AT_ONCE && nears {
            return renewal.follow(running, engines, events, newest.version(), self.waker.clone());
        }
        drop(newest);
        let Some(engines) = followed(engines, table, &events) else { return };
        self.catch_up();
        let engines = Arc::new(Mutex::new(engines));
        if self.standby().apply(Arc::new(Event::Engine { table, engines })).is_ok() {
            self.standby = self.published.publish(self.standby.clone());
            let renewal = &mut self.renewals[at];
            renewal.expected = running.expected;
            if !matches!(running.expected, Expected::Alike(_)) {
                // For so many rules the engine has been chosen.
                renewal.rules = running.rules;
            }
        }
    }
}
