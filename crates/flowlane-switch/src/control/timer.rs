//! Idle and hard timeouts of rules.

use std::collections::HashMap;

use flowlane::rule::RuleId;

use super::Reason;
use crate::ruleset::{Change, ChangeKind, FlowStats};

const NS: u64 = 1_000_000_000;

/// The timeouts of a rule.
#[derive(Debug)]
struct Timer {
    created_ns: u64,
    idle_ns: u64,
    hard_ns: u64,
    /// When its counter was last seen to have increased, and its value then.
    used_ns: u64,
    packets: u64,
}

/// The rules with timeouts. Idle times are as exact as the polling.
#[derive(Debug, Default)]
pub(super) struct Timers {
    by_rule: HashMap<(u8, RuleId), Timer>,
}

impl Timers {
    pub(super) fn is_empty(&self) -> bool {
        self.by_rule.is_empty()
    }

    /// Updates the timers after a rule has been added, replaced or removed.
    pub(super) fn follow(&mut self, change: &Change, now_ns: u64) {
        let (rule, entry) = ((change.table, change.id), &change.entry);
        let timed = entry.idle_timeout_s > 0 || entry.hard_timeout_s > 0;
        if change.what == ChangeKind::Remove || !timed {
            self.by_rule.remove(&rule);
            return;
        }
        let ns = |seconds: u16| if seconds == 0 { u64::MAX } else { u64::from(seconds) * NS };
        let packets = self.by_rule.get(&rule).map_or(entry.base.packets, |before| before.packets);
        let timer = Timer {
            created_ns: entry.created_ns,
            idle_ns: ns(entry.idle_timeout_s),
            hard_ns: ns(entry.hard_timeout_s),
            used_ns: now_ns,
            packets,
        };
        self.by_rule.insert(rule, timer);
    }

    /// Returns the rules whose timeout has passed, given their counters.
    pub(super) fn due(
        &mut self,
        now_ns: u64,
        counted: impl Fn(u8, RuleId) -> FlowStats,
    ) -> Vec<(u8, RuleId, Reason)> {
        let mut due = Vec::new();
        for (&(table, id), timer) in &mut self.by_rule {
            let packets = counted(table, id).packets;
            if packets != timer.packets {
                (timer.packets, timer.used_ns) = (packets, now_ns);
            }
            if now_ns.saturating_sub(timer.created_ns) >= timer.hard_ns {
                due.push((table, id, Reason::HardTimeout));
            } else if now_ns.saturating_sub(timer.used_ns) >= timer.idle_ns {
                due.push((table, id, Reason::IdleTimeout));
            }
        }
        due.sort_unstable_by_key(|(table, id, _)| (*table, *id));
        due
    }
}
