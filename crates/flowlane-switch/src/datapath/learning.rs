//! Rules that workers learn: a bounded queue from all workers to control, which owns the rules.
//!
//! A worker takes no lock that another holds for long: it pushes a rule and goes on. Control adds the rules and publishes them as
//! any change, so a learned rule is in force some ten microseconds later, for the next packet of a conversation.
//!
//! A packet that makes the same rule again restarts the rule's hard timeout, as in Open vSwitch. A worker tells control at most
//! four times a second: its memory of the latest rules is a direct-mapped table of hashes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;

use flowlane::rule::FlowMod;

use crate::ruleset::Learned;

/// Rules that wait for control. Those beyond are lost and counted: the next packet makes them again.
const WAITING_MAX: usize = 4096;

/// Rules that a worker remembers.
const RECENT: usize = 1024;

/// A rule that was learned in the last quarter of a second is not passed on again.
const AGAIN_NS: u64 = 250_000_000;

/// The queue.
#[derive(Debug, Default)]
pub struct LearnQueue {
    waiting: Mutex<VecDeque<FlowMod>>,
    /// The thread to unpark for the first rule that waits.
    waker: Mutex<Option<Thread>>,
    /// Rules that control has refused.
    refused: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl LearnQueue {
    /// Queues a rule. Returns whether there was room.
    fn push(&self, learned: FlowMod) -> bool {
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
    pub(crate) fn take(&self) -> VecDeque<FlowMod> {
        std::mem::take(&mut lock(&self.waiting))
    }

    /// Sets the thread to unpark when rules wait.
    pub(crate) fn wake(&self, thread: Thread) {
        *lock(&self.waker) = Some(thread);
    }

    /// Counts a rule that cannot be added.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// A worker's part in learning.
#[derive(Debug, Default)]
pub struct Learning {
    /// None where no control is attached: then nothing is learned.
    pub queue: Option<Arc<LearnQueue>>,
    /// The latest rules by hash, with the times when they were passed on.
    recent: Vec<(u64, u64)>,
    lost: AtomicU64,
}

impl Learning {
    /// Has control add a rule.
    pub(super) fn learn(&mut self, learned: &Learned, now_ns: u64) {
        if self.recent.is_empty() {
            self.recent = vec![(0, 0); RECENT];
        }
        let place = &mut self.recent[learned.hash as usize % RECENT];
        if place.0 == learned.hash && now_ns < place.1.saturating_add(AGAIN_NS) {
            return;
        }
        if self.queue.as_ref().is_some_and(|queue| queue.push(learned.flow_mod.clone())) {
            *place = (learned.hash, now_ns);
        } else {
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
