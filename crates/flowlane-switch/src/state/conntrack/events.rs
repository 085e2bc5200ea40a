//! What becomes of connections, for those who follow them: flow logs.
//!
//! Each subscriber has a queue of limited length. A worker looks whether there are subscribers, which is one load where there are
//! none, adds the event to the queues that want it, and goes on; events for which there is no room are lost and counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, SystemTime};

use strum::IntoStaticStr;

use super::Connections;
use super::entry::Live;
use super::sweep::{Listed, Wanted};

/// The events that wait for a subscriber at most: some megabytes.
const WAITING_MAX: usize = 8192;

/// The subscribers at most: each event is copied for each of them.
const SUBSCRIBERS_MAX: usize = 8;

/// The change of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is kept from now on.
    New,
    /// It has another state, mark or label.
    Updated,
    /// It is not kept any more.
    Ended(Ended),
}

/// Why a connection is not kept any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Ended {
    /// Its ends have closed it, and its time is over or another one begins.
    Closed,
    /// Its time is over.
    Expired,
    /// It has made room for another in a full table.
    Evicted,
    /// One has begun in the other direction (`force`).
    Replaced,
    /// A user or a controller has asked for that.
    Flushed,
}

/// A change of a connection.
#[derive(Clone, Debug)]
pub struct Event {
    pub change: Change,
    /// The connection after the change; one that has ended, as it was.
    pub connection: Listed,
    pub at: SystemTime,
}

/// The events that wait for a subscriber.
#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// Those that have been lost behind them.
    lost: u64,
}

/// A subscriber's queue.
#[derive(Debug)]
struct Queue {
    wanted: Wanted,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: Event) {
        let mut waiting = self.lock();
        // None comes behind a gap before the subscriber has got its number.
        match waiting.events.len() < WAITING_MAX && waiting.lost == 0 {
            true => waiting.events.push_back(event),
            false => waiting.lost += 1,
        }
        self.arrived.notify_one();
    }
}

/// The subscribers.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Their number.
    count: AtomicUsize,
    queues: RwLock<Vec<Arc<Queue>>>,
}

impl Events {
    fn change(&self) -> RwLockWriteGuard<'_, Vec<Arc<Queue>>> {
        self.queues.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is a subscriber.
    #[inline]
    pub(super) fn are_wanted(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Passes an event on to those who want it.
    #[cold]
    pub(super) fn push(&self, change: Change, connection: &Listed) {
        let at = SystemTime::now();
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        for queue in queues.iter().filter(|queue| queue.wanted.is(connection)) {
            queue.push(Event { change, connection: connection.clone(), at });
        }
    }
}

/// The parts of a connection whose changes are events.
pub(super) fn followed_parts(live: &Live) -> (&'static str, u32, u128) {
    (live.state.name(), live.mark, live.label())
}

/// A subscription, which ends when it is dropped.
#[derive(Debug)]
pub struct Subscription {
    connections: Arc<Connections>,
    queue: Arc<Queue>,
}

impl Subscription {
    /// Takes the events that have come, after waiting for the first for some time, and the number of those that have been lost behind
    /// them.
    pub fn take(&self, patience: Duration) -> (VecDeque<Event>, u64) {
        let is_empty = |waiting: &mut Waiting| waiting.events.is_empty() && waiting.lost == 0;
        let waited = self.queue.arrived.wait_timeout_while(self.queue.lock(), patience, is_empty);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let Waiting { events, lost } = std::mem::take(&mut *waiting);
        (events, lost)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let events = &self.connections.events;
        let mut queues = events.change();
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        events.count.store(queues.len(), Ordering::Relaxed);
    }
}

impl Connections {
    /// Subscribes to the events of the wanted connections; `None` where there are too many subscribers.
    pub fn subscribe(self: &Arc<Self>, wanted: Wanted) -> Option<Subscription> {
        let queue = Arc::new(Queue { wanted, waiting: Mutex::default(), arrived: Condvar::new() });
        let mut queues = self.events.change();
        if queues.len() == SUBSCRIBERS_MAX {
            return None;
        }
        queues.push(queue.clone());
        self.events.count.store(queues.len(), Ordering::Relaxed);
        Some(Subscription { connections: self.clone(), queue })
    }
}
