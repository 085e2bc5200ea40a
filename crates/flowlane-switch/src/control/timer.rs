//! Idle and hard timeouts of rules.

use std::collections::BTreeMap;

use flowlane::rule::RuleId;

use super::Reason;
use crate::ruleset::{Change, ChangeKind, Entry, FlowStats};

/// A rule, by its table and id.
type RuleOfTable = (u8, RuleId);

const NS: u64 = 1_000_000_000;

/// The timeouts of a rule.
#[derive(Clone, Copy, Debug)]
struct Timer {
    /// When it was added or modified, which is when its hard timeout begins, as in Open vSwitch.
    begun_ns: u64,
    idle_ns: u64,
    hard_ns: u64,
    /// When its counter was last seen to have increased, and its value then.
    used_ns: u64,
    packets: u64,
}

impl Timer {
    /// Creates a timer that begins now.
    fn new(entry: &Entry, now_ns: u64, packets: u64) -> Self {
        let ns = |seconds: u16| if seconds == 0 { u64::MAX } else { u64::from(seconds) * NS };
        let timeouts = &entry.timeouts;
        let (idle_ns, hard_ns) = (ns(timeouts.idle_s()), ns(timeouts.hard_s()));
        Self { begun_ns: now_ns, idle_ns, hard_ns, used_ns: now_ns, packets }
    }
}

/// The rules with timeouts, which are looked at in slices. Idle times are as exact as the passes over all of them are frequent.
#[derive(Debug, Default)]
pub(super) struct Timers {
    by_rule: BTreeMap<RuleOfTable, Timer>,
    /// The rule from which the pass continues; `None` between two passes.
    next: Option<RuleOfTable>,
}

impl Timers {
    pub(super) fn is_empty(&self) -> bool {
        self.by_rule.is_empty()
    }

    /// Updates the timers after a rule has been added, replaced or removed.
    pub(super) fn follow(&mut self, change: &Change, now_ns: u64) {
        let (rule, entry) = ((change.table, change.id), &change.entry);
        let timed = entry.timeouts.idle_s() > 0 || entry.timeouts.hard_s() > 0;
        if change.what == ChangeKind::Remove || !timed {
            self.by_rule.remove(&rule);
            // No slice would end the pass.
            self.next.take_if(|_| self.by_rule.is_empty());
            return;
        }
        let packets = self.by_rule.get(&rule).map_or(entry.base.packets, |before| before.packets);
        self.by_rule.insert(rule, Timer::new(entry, now_ns, packets));
    }

    /// Takes over the timeouts of a rule, which have been lowered by a packet just now.
    pub(super) fn lower(&mut self, table: u8, id: RuleId, entry: &Entry, now_ns: u64) {
        let new = Timer::new(entry, now_ns, entry.base.packets);
        let timer = self.by_rule.entry((table, id)).or_insert(Timer { begun_ns: entry.modified_ns, ..new });
        (timer.idle_ns, timer.hard_ns, timer.used_ns) = (new.idle_ns, new.hard_ns, now_ns);
    }

    /// Begins the hard timeout of a rule again.
    pub(super) fn restart(&mut self, table: u8, id: RuleId, now_ns: u64) {
        if let Some(timer) = self.by_rule.get_mut(&(table, id)) {
            timer.begun_ns = now_ns;
        }
    }

    /// Returns when the hard timeout of a rule began.
    pub(super) fn begun_ns(&self, table: u8, id: RuleId) -> Option<u64> {
        self.by_rule.get(&(table, id)).map(|timer| timer.begun_ns)
    }

    /// Returns whether the next slice begins a pass.
    pub(super) fn begins_pass(&self) -> bool {
        self.next.is_none()
    }

    /// Looks at the timers of the next `most` rules, and returns those whose timeout has passed. `counted` returns the counters of
    /// rules of a table.
    pub(super) fn due(
        &mut self,
        now_ns: u64,
        most: usize,
        counted: impl Fn(u8, &[RuleOfTable]) -> Vec<FlowStats>,
    ) -> Vec<(u8, RuleId, Reason)> {
        let first = self.next.take().unwrap_or((0, RuleId(0)));
        let mut slice: Vec<RuleOfTable> =
            self.by_rule.range(first..).take(most + 1).map(|(rule, _)| *rule).collect();
        if slice.len() > most {
            self.next = slice.pop();
        }
        let counts = slice.chunk_by(|a, b| a.0 == b.0).flat_map(|rules| counted(rules[0].0, rules));
        let mut due = Vec::new();
        for ((&(table, id), timer), count) in self.by_rule.range_mut(first..).zip(counts) {
            if count.packets != timer.packets {
                (timer.packets, timer.used_ns) = (count.packets, now_ns);
            }
            if now_ns.saturating_sub(timer.begun_ns) >= timer.hard_ns {
                due.push((table, id, Reason::HardTimeout));
            } else if now_ns.saturating_sub(timer.used_ns) >= timer.idle_ns {
                due.push((table, id, Reason::IdleTimeout));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flowlane::rule::{Match, Rule};

    use super::*;
    use crate::ruleset::Timeouts;

    #[test]
    fn passes_in_slices_find_what_one_pass_finds() {
        let mut timers = Timers::default();
        for n in 0..1000u32 {
            let rule = Rule::new(Match::default(), Vec::new());
            let entry =
                Arc::new(Entry { timeouts: Timeouts::new(0, 1 + (n % 3) as u16), ..Entry::new(rule) });
            let (table, id) = ((n % 7) as u8, RuleId(n));
            timers.follow(&Change { table, id, what: ChangeKind::Add, entry }, 0);
        }
        let none = |_: u8, rules: &[RuleOfTable]| vec![FlowStats::default(); rules.len()];
        for most in [1, 10, 999, 1000, 1001] {
            let (mut found, mut slices) = (Vec::new(), 0);
            loop {
                found.extend(timers.due(2 * NS, most, none));
                slices += 1;
                if timers.begins_pass() {
                    break;
                }
            }
            assert_eq!(slices, 1000usize.div_ceil(most));
            let mut expected: Vec<_> = (0..1000)
                .filter(|n| n % 3 < 2)
                .map(|n| ((n % 7) as u8, RuleId(n), Reason::HardTimeout))
                .collect();
            expected.sort_by_key(|&(table, id, _)| (table, id));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_rule_removed_between_two_slices_does_not_end_the_pass() {
        let mut timers = Timers::default();
        let rule = Rule::new(Match::default(), Vec::new());
        let entry = Arc::new(Entry { timeouts: Timeouts::new(1, 0), ..Entry::new(rule) });
        let change = |id, what| Change { table: 0, id: RuleId(id), what, entry: entry.clone() };
        (0..4).for_each(|id| timers.follow(&change(id, ChangeKind::Add), 0));
        let none = |_: u8, rules: &[RuleOfTable]| vec![FlowStats::default(); rules.len()];
        assert_eq!(timers.due(NS, 2, none).len(), 2);
        timers.follow(&change(2, ChangeKind::Remove), 0);
        assert_eq!(timers.due(NS, 2, none), [(0, RuleId(3), Reason::IdleTimeout)]);
        assert!(timers.begins_pass());
    }

    #[test]
    fn a_pass_ends_when_all_its_rules_are_removed() {
        let mut timers = Timers::default();
        let entry = Arc::new(Entry {
            timeouts: Timeouts::new(1, 0),
            ..Entry::new(Rule::new(Match::default(), Vec::new()))
        });
        let change = |id, what| Change { table: 0, id: RuleId(id), what, entry: entry.clone() };
        (0..4).for_each(|id| timers.follow(&change(id, ChangeKind::Add), 0));
        timers.due(0, 2, |_, rules| vec![FlowStats::default(); rules.len()]);
        assert!(!timers.begins_pass());
        (0..4).for_each(|id| timers.follow(&change(id, ChangeKind::Remove), 0));
        assert!(timers.is_empty() && timers.begins_pass());
    }
}
