//! Changes of rules that packets make (`learn`, `fin_timeout`): a bounded queue from all workers to control, which owns the rules.
//!
//! A worker takes no lock that another holds for long: it pushes a request, wakes control and goes on. Control changes the rules and
//! publishes them as any change.
//!
//! A packet that makes the same rule again restarts the rule's hard timeout, as in Open vSwitch. Control gets that at most four
//! times a second: all workers share a direct-mapped table of the latest requests' hashes. A rule that takes another's place, as that
//! of a host that moves to and fro, takes its place there, too, and removals empty the table. Rules that a limit refuses are in the
//! table, too: they stay refused until a rule goes.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;

use super::learn_limits::{LearnLimits, TableCookie};
use crate::ruleset::{Entry, Learned, RuleDigest, RuleRequest, Ruleset, limited};

/// Requests that wait for control. Those beyond are lost and counted: the next packet makes them again.
const WAITING_MAX: usize = 4096;

/// Requests that are remembered.
const RECENT: usize = 1024;

/// A request of the last quarter of a second is not passed on again.
const AGAIN_NS: u64 = 250_000_000;

/// A request that was passed on or refused. Workers may read and write it at once: at worst, a request is passed on once more, or a quarter of
/// a second late.
#[derive(Debug, Default)]
struct Recent {
    /// Its hash, with the age of the table; the complement, if it was refused.
    hash: AtomicU64,
    at_ns: AtomicU64,
}

/// The requests that wait, and the rules that limits count: both change together.
#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<WaitingRequest>,
    limits: LearnLimits,
}

/// A request that waits for control.
#[derive(Debug)]
pub(crate) struct WaitingRequest {
    pub(crate) request: Arc<RuleRequest>,
    /// The worker has found that the limit allows the rule.
    pub(crate) is_within_limit: bool,
}

/// The fate of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// Control gets it, or has got the same a moment ago.
    Passed,
    /// A limit refuses the rule.
    Refused,
    /// There is no room.
    Lost,
}

/// The queue.
#[derive(Debug)]
pub struct LearnQueue {
    /// The latest requests, by the identity of their rule.
    recent: Box<[Recent]>,
    /// Requests that were remembered at another age are forgotten.
    age: AtomicU64,
    waiting: Mutex<Waiting>,
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
    /// Queues a request, unless the same has been a moment ago, or a limit refuses it.
    fn request(&self, request: &Arc<RuleRequest>, now_ns: u64) -> Answer {
        let place = &self.recent[request.identity() as usize % RECENT];
        // Read first, so that rules which are removed meanwhile are forgotten.
        let hash = request.hash().wrapping_add(self.age.load(Ordering::Relaxed));
        let is_recent = now_ns < place.at_ns.load(Ordering::Relaxed).saturating_add(AGAIN_NS);
        if is_recent {
            match place.hash.load(Ordering::Relaxed) {
                recent if recent == hash => return Answer::Passed,
                recent if recent == !hash => return Answer::Refused,
                _ => {}
            }
        }
        let answer = self.push(request);
        if answer != Answer::Lost {
            let hash = if answer == Answer::Refused { !hash } else { hash };
            place.hash.store(hash, Ordering::Relaxed);
            place.at_ns.store(now_ns, Ordering::Relaxed);
        }
        answer
    }

    /// Forgets the latest requests: rules have been removed, or have other timeouts.
    pub(crate) fn forget(&self) {
        self.age.fetch_add(1, Ordering::Relaxed);
    }

    /// Queues a request, if a limit allows it.
    fn push(&self, request: &Arc<RuleRequest>) -> Answer {
        let mut waiting = lock(&self.waiting);
        let Waiting { requests, limits } = &mut *waiting;
        if let RuleRequest::Learn(learned) = &**request
            && !limits.allows(learned)
        {
            return Answer::Refused;
        }
        if requests.len() == WAITING_MAX {
            return Answer::Lost;
        }
        let mut is_within_limit = true;
        if let RuleRequest::Learn(learned) = &**request {
            is_within_limit = learned.limit == 0 || limits.counts(learned.digest.cookie);
            if limits.promise(learned.digest) {
                // Another cookie has room again.
                self.forget();
            }
        }
        let is_first = requests.is_empty();
        requests.push_back(WaitingRequest { request: request.clone(), is_within_limit });
        drop(waiting);
        if let (true, Some(waker)) = (is_first, &*lock(&self.waker)) {
            waker.unpark();
        }
        Answer::Passed
    }

    /// Takes all requests. [`settle`](Self::settle) is to follow.
    pub(crate) fn take(&self) -> VecDeque<WaitingRequest> {
        std::mem::take(&mut lock(&self.waiting).requests)
    }

    /// Ends the promises of requests that control has taken; `is` returns the rule that is there now.
    pub(crate) fn settle<'a>(
        &self,
        learned: impl Iterator<Item = &'a Learned>,
        is: impl Fn(&Learned) -> Option<RuleDigest>,
    ) {
        let limits = &mut lock(&self.waiting).limits;
        let broken = learned.filter(|learned| limits.settle(learned.digest.identity, || is(learned)));
        if broken.count() > 0 {
            // Rules that were refused because of it have room.
            self.forget();
        }
    }

    /// Follows changes of rules: each is this entry now, or is not there any more.
    pub(crate) fn follow<'a>(&self, changes: impl Iterator<Item = (&'a Entry, bool)>) {
        let limits = &mut lock(&self.waiting).limits;
        if limits.is_empty() {
            return;
        }
        for (entry, is_there) in changes {
            let digest = RuleDigest::of(entry);
            limits.follow(digest.identity, is_there.then_some(digest));
        }
    }

    /// Counts the rules of cookies from now on, for which there are limits.
    pub(crate) fn count(&self, cookies: &[TableCookie], ruleset: &Ruleset) {
        let limits = &mut lock(&self.waiting).limits;
        let new: HashSet<TableCookie> =
            cookies.iter().copied().filter(|cookie| !limits.counts(*cookie)).collect();
        if new.is_empty() {
            return;
        }
        if limits.is_full() {
            limits.retain(&limited_cookies(ruleset).collect());
        }
        new.iter().for_each(|&cookie| limits.begin(cookie));
        let tables: HashSet<u8> = new.iter().map(|(table, _)| *table).collect();
        let rules = tables.iter().filter_map(|number| ruleset.table(*number)).flat_map(|table| table.rules());
        for (_, entry) in rules.filter(|(_, entry)| new.contains(&(entry.rule.table, entry.rule.cookie))) {
            let digest = RuleDigest::of(entry);
            limits.follow(digest.identity, Some(digest));
        }
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
    /// Has control change rules. Returns whether a rule is learned or there already, as `result_dst` has it: a rule without a limit
    /// always is, since cached paths hold that.
    pub(super) fn request(&mut self, request: &Arc<RuleRequest>, now_ns: u64) -> bool {
        let answer = self.queue.as_ref().map_or(Answer::Lost, |queue| queue.request(request, now_ns));
        *self.lost.get_mut() += u64::from(answer == Answer::Lost);
        let is_unlimited = || matches!(&**request, RuleRequest::Learn(learned) if learned.limit == 0);
        answer == Answer::Passed || is_unlimited()
    }

    /// Returns what [`request`](Self::request) would return.
    pub(super) fn allows(&self, learned: &Learned) -> bool {
        let allows = |queue: &Arc<LearnQueue>| lock(&queue.waiting).limits.allows(learned);
        learned.limit == 0 || self.queue.as_ref().is_some_and(allows)
    }

    /// Counts requests that came to nothing: there was no room, or control has refused them. Refusals are in the count
    /// of the worker that is asked first.
    pub fn lost(&self) -> u64 {
        let refused = self.queue.as_ref().map_or(0, |queue| queue.refused.swap(0, Ordering::Relaxed));
        self.lost.fetch_add(refused, Ordering::Relaxed) + refused
    }
}

/// The cookies of the rules that limits in a ruleset are for. Groups and action sets have no `learn`.
pub(crate) fn limited_cookies(ruleset: &Ruleset) -> impl Iterator<Item = TableCookie> {
    let rules = ruleset.tables().flat_map(|(_, table)| table.rules());
    rules.flat_map(|(_, entry)| limited(&entry.rule.actions))
}
