//! Rules that workers learn: a bounded queue from all workers to control, which owns the rules.
//!
//! A worker takes no lock that another holds for long: it pushes a rule, wakes control and goes on. Control adds the rules and
//! publishes them as any change.
//!
//! A packet that makes the same rule again restarts the rule's hard timeout, as in Open vSwitch. Control gets that at most four
//! times a second: all workers share a direct-mapped table of the latest rules' hashes. A rule that takes another's place, as that
//! of a host that moves to and fro, takes its place there, too, and removals empty the table.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;

use crate::ruleset::Learned;

/// Rules that wait for control. Those beyond are lost and counted: the next packet makes them again.
const WAITING_MAX: usize = 4096;

/// Rules that are remembered.
const RECENT: usize = 1024;

/// A rule that was learned in the last quarter of a second is not passed on again.
const AGAIN_NS: u64 = 250_000_000;

/// A rule that was passed on. Workers may read and write it at once: at worst, a rule is passed on once more, or a quarter of a
/// second late.
#[derive(Debug, Default)]
struct Recent {
    /// Its hash, with the age of the table.
    hash: AtomicU64,
    at_ns: AtomicU64,
}

/// The queue.
#[derive(Debug)]
pub struct LearnQueue {
    /// The latest rules, by their identity.
    recent: Box<[Recent]>,
    /// Rules that were remembered at another age are forgotten.
    age: AtomicU64,
    waiting: Mutex<VecDeque<Arc<Learned>>>,
    /// The thread to unpark for the first rule that waits.
    waker: Mutex<Option<Thread>>,
    /// Rules that control has refused.
    refused: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Default for LearnQueue {
    fn default() -> Self {
        Self {
            recent: (0..RECENT).map(|_| Recent::default()).collect(),
            age: AtomicU64::new(1),
            waiting: Mutex::default(),
            waker: Mutex::default(),
            refused: AtomicU64::new(0),
        }
    }
}

impl LearnQueue {
    /// Queues a rule, unless the same has been a moment ago. Returns whether there was room.
    fn learn(&self, learned: &Arc<Learned>, now_ns: u64) -> bool {
        let place = &self.recent[learned.identity as usize % RECENT];
        // Read first, so that rules which are removed meanwhile are forgotten.
        let hash = learned.hash.wrapping_add(self.age.load(Ordering::Relaxed));
        let is_recent = now_ns < place.at_ns.load(Ordering::Relaxed).saturating_add(AGAIN_NS);
        if is_recent && place.hash.load(Ordering::Relaxed) == hash {
            return true;
        }
        let has_room = self.push(learned.clone());
        if has_room {
            place.hash.store(hash, Ordering::Relaxed);
            place.at_ns.store(now_ns, Ordering::Relaxed);
        }
        has_room
    }

    /// Forgets the latest rules: some have been removed.
    pub(crate) fn forget(&self) {
        self.age.fetch_add(1, Ordering::Relaxed);
    }

    /// Queues a rule. Returns whether there was room.
    fn push(&self, learned: Arc<Learned>) -> bool {
        let mut waiting = lock(&self.waiting);
        let (has_room, is_first) = (waiting.len() < WAITING_MAX, waiting.is_empty());
        if has_room {
            waiting.push_back(learned);
        }
        drop(waiting);
        if let (true, Some(waker)) = (is_first, &*lock(&self.waker)) {
            waker.unpark();
        }
        has_room
    }

    /// Takes all rules.
    pub(crate) fn take(&self) -> VecDeque<Arc<Learned>> {
        std::mem::take(&mut lock(&self.waiting))
    }

    /// Sets the thread to unpark when rules wait.
    pub(crate) fn wake(&self, thread: Thread) {
        *lock(&self.waker) = Some(thread);
    }

    /// Counts rules that cannot be added.
    pub(crate) fn refuse(&self, rules: u64) {
        self.refused.fetch_add(rules, Ordering::Relaxed);
    }
}

/// A worker's part in learning.
#[derive(Debug, Default)]
pub struct Learning {
    /// None where no control is attached: then nothing is learned.
    pub queue: Option<Arc<LearnQueue>>,
    lost: AtomicU64,
}

impl Learning {
    /// Has control add a rule.
    pub(super) fn learn(&mut self, learned: &Arc<Learned>, now_ns: u64) {
        if !self.queue.as_ref().is_some_and(|queue| queue.learn(learned, now_ns)) {
            *self.lost.get_mut() += 1;
        }
    }

    /// Counts rules that were to be learned and were not: there was no room, or control has refused them. Refusals are in the count
    /// of the worker that is asked first.
    pub fn lost(&self) -> u64 {
        let refused = self.queue.as_ref().map_or(0, |queue| queue.refused.swap(0, Ordering::Relaxed));
        self.lost.fetch_add(refused, Ordering::Relaxed) + refused
    }
}
