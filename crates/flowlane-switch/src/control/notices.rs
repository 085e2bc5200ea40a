//! Notices for controllers: a bounded queue from control to the agent.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use flowlane::rule::action::PortNo;

use super::{FlowRemoved, Reason, TableSettings};
use crate::ruleset::{Entry, PortFlags, Ruleset};

/// Notices that wait for the agent.
const WAITING_MAX: usize = 1 << 14;
/// The longest that a change waits for room. The agent never waits for a controller, so that it makes room at once.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);

/// A change of the switch that controllers learn of without asking.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// A rule with [`SEND_FLOW_REM`](flowlane::rule::FlowFlags::SEND_FLOW_REM) was removed.
    FlowRemoved(FlowRemoved),
    /// A port has come.
    PortAdded { port: PortNo, name: String, flags: PortFlags },
    /// A port has gone.
    PortRemoved { port: PortNo, name: String, flags: PortFlags },
    /// A port has other settings, or its link has gone up or down.
    PortChanged(PortNo, PortFlags),
    /// The free space of a table, in percent, has risen above a limit, or fallen below one.
    Vacancy { table: u8, is_up: bool, vacancy: u8, settings: TableSettings },
    /// Rules changed, while a monitor of a controller watches them.
    RulesChanged { by: Option<Requester>, events: Vec<RuleEvent> },
    /// The place of a connection's request among the changes: the ruleset has all that come before.
    Reached { connection: u64, ruleset: Arc<Ruleset> },
}

/// The request of a connection that changes rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Requester {
    pub(crate) connection: u64,
    pub(crate) xid: u32,
}

/// A change of a rule, with the rule after it, or before its removal.
#[derive(Clone, Debug)]
pub(crate) struct RuleEvent {
    pub(crate) kind: RuleEventKind,
    /// There was no rule of its priority and match before.
    pub(crate) is_new: bool,
    pub(crate) entry: Arc<Entry>,
    /// The rule that it replaces: a monitor that has selected that rule reports the change, too.
    pub(crate) before: Option<Arc<Entry>>,
}

/// The kind of a rule's change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RuleEventKind {
    Added,
    Modified,
    Removed(Reason),
}

#[derive(Debug, Default)]
struct Waiting {
    notices: VecDeque<Notice>,
    /// An agent takes them; without one they are dropped.
    is_open: bool,
    /// There was no room for some.
    lost: bool,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Monitors of rules.
    monitors: AtomicUsize,
}

impl Notices {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Accepts notices from now on, or drops them.
    pub(crate) fn set_open(&self, is_open: bool) {
        *self.lock() = Waiting { is_open, ..Waiting::default() };
        self.changed.notify_all();
    }

    /// Counts monitors that begin.
    pub(crate) fn watch(&self, monitors: usize) {
        self.monitors.fetch_add(monitors, Ordering::Relaxed);
    }

    /// Counts monitors that end.
    pub(crate) fn unwatch(&self, monitors: usize) {
        self.monitors.fetch_sub(monitors, Ordering::Relaxed);
    }

    /// Returns whether a monitor watches the rules.
    pub(crate) fn is_watched(&self) -> bool {
        self.monitors.load(Ordering::Relaxed) > 0
    }

    /// Queues a notice, when there is room.
    pub(crate) fn push(&self, notice: Notice) {
        let has_room = |waiting: &Waiting| waiting.notices.len() < WAITING_MAX;
        // After a loss, nothing waits until the agent is there again.
        let waits = |waiting: &mut Waiting| waiting.is_open && !waiting.lost && !has_room(waiting);
        let waited = self.changed.wait_timeout_while(self.lock(), ROOM_TIMEOUT, waits);
        let (mut waiting, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        if !waiting.is_open {
            return;
        }
        match has_room(&waiting) {
            true => waiting.notices.push_back(notice),
            false => waiting.lost = true,
        }
        self.changed.notify_all();
    }

    /// Takes all notices, after waiting for the first for some time. Returns also whether some before them are lost.
    pub(crate) fn take(&self, patience: Duration) -> (VecDeque<Notice>, bool) {
        let is_idle = |waiting: &mut Waiting| waiting.notices.is_empty() && !waiting.lost;
        let waited = self.changed.wait_timeout_while(self.lock(), patience, is_idle);
        let (mut waiting, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        self.changed.notify_all();
        (std::mem::take(&mut waiting.notices), std::mem::take(&mut waiting.lost))
    }
}

#[cfg(test)]
mod tests {
    use flowlane::rule::{Match, Rule};

    use super::*;

    #[test]
    fn a_full_queue_waits_for_the_agent_and_says_when_it_lost_some() {
        let rule = Rule::new(Match::any(), Vec::new());
        let removed = || {
            Notice::FlowRemoved(FlowRemoved {
                rule: rule.clone(),
                count: Default::default(),
                duration: Duration::ZERO,
                idle_timeout_s: 0,
                hard_timeout_s: 0,
                reason: Reason::Deleted,
            })
        };
        let queue = Notices::default();
        queue.push(removed());
        assert_eq!(queue.take(Duration::ZERO).0.len(), 0, "there is no agent");
        queue.set_open(true);
        (0..WAITING_MAX).for_each(|_| queue.push(removed()));
        std::thread::scope(|scope| {
            scope.spawn(|| queue.push(removed()));
            let (notices, lost) = queue.take(Duration::ZERO);
            assert_eq!((notices.len(), lost), (WAITING_MAX, false));
        });
        (0..WAITING_MAX + 3).for_each(|_| queue.push(removed()));
        let (notices, lost) = queue.take(Duration::ZERO);
        assert_eq!((notices.len(), lost), (WAITING_MAX, true));
        assert!(!queue.take(Duration::ZERO).1);
    }
}
