//! Changes of rules that packets make (`learn`, `fin_timeout`): a bounded queue from all workers to control, which owns the rules.
//!
//! A worker takes no lock that another holds for long: it pushes a request, wakes control and goes on. Control changes the rules and
//! publishes them as any change.
//!
//! A packet that makes the same rule again restarts the rule's hard timeout, as in Open vSwitch. Control gets that at most four
//! times a second: all workers share a direct-mapped table of the latest requests' hashes. A rule that takes another's place, as that
//! of a host that moves to and fro, takes its place there, too, and removals empty the table.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;

use crate::ruleset::RuleRequest;

/// Requests that wait for control. Those beyond are lost and counted: the next packet makes them again.
const WAITING_MAX: usize = 4096;

/// Requests that are remembered.
const RECENT: usize = 1024;

/// A request of the last quarter of a second is not passed on again.
const AGAIN_NS: u64 = 250_000_000;

/// A request that was passed on. Workers may read and write it at once: at worst, a request is passed on once more, or a quarter of
/// a second late.
#[derive(Debug, Default)]
struct Recent {
    /// Its hash, with the age of the table.
    hash: AtomicU64,
    at_ns: AtomicU64,
}

/// The queue.
#[derive(Debug)]
pub struct LearnQueue {
    /// The latest requests, by the identity of their rule.
    recent: Box<[Recent]>,
    /// Requests that were remembered at another age are forgotten.
    age: AtomicU64,
    waiting: Mutex<VecDeque<Arc<RuleRequest>>>,
    /// The thread to unpark for the first request that waits.
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
    /// Queues a request, unless the same has been a moment ago. Returns whether there was room.
    fn request(&self, request: &Arc<RuleRequest>, now_ns: u64) -> bool {
        let place = &self.recent[request.identity() as usize % RECENT];
        // Read first, so that rules which are removed meanwhile are forgotten.
        let hash = request.hash().wrapping_add(self.age.load(Ordering::Relaxed));
        let is_recent = now_ns < place.at_ns.load(Ordering::Relaxed).saturating_add(AGAIN_NS);
        if is_recent && place.hash.load(Ordering::Relaxed) == hash {
            return true;
        }
        let has_room = self.push(request.clone());
        if has_room {
            place.hash.store(hash, Ordering::Relaxed);
            place.at_ns.store(now_ns, Ordering::Relaxed);
        }
        has_room
    }

    /// Forgets the latest requests: rules have been removed, or have other timeouts.
    pub(crate) fn forget(&self) {
        self.age.fetch_add(1, Ordering::Relaxed);
    }

    /// Queues a request. Returns whether there was room.
    fn push(&self, request: Arc<RuleRequest>) -> bool {
        let mut waiting = lock(&self.waiting);
        let (has_room, is_first) = (waiting.len() < WAITING_MAX, waiting.is_empty());
        if has_room {
            waiting.push_back(request);
        }
        drop(waiting);
        if let (true, Some(waker)) = (is_first, &*lock(&self.waker)) {
            waker.unpark();
        }
        has_room
    }

    /// Takes all requests.
    pub(crate) fn take(&self) -> VecDeque<Arc<RuleRequest>> {
        std::mem::take(&mut lock(&self.waiting))
    }

    /// Sets the thread to unpark when requests wait.
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
    /// Has control change rules.
    pub(super) fn request(&mut self, request: &Arc<RuleRequest>, now_ns: u64) {
        if !self.queue.as_ref().is_some_and(|queue| queue.request(request, now_ns)) {
            *self.lost.get_mut() += 1;
        }
    }

    /// Counts requests that came to nothing: there was no room, or control has refused them. Refusals are in the count
    /// of the worker that is asked first.
    pub fn lost(&self) -> u64 {
        let refused = self.queue.as_ref().map_or(0, |queue| queue.refused.swap(0, Ordering::Relaxed));
        self.lost.fetch_add(refused, Ordering::Relaxed) + refused
    }
}
