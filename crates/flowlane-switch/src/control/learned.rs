//! Adds the rules that workers have learned.

use flowlane::rule::FlowMod;

use super::Control;

/// How often rules are tried, without those that were refused. A refusal copies the ruleset, and packets decide how many there are:
/// the rules that are left then are lost, and their next packets make them again.
const ATTEMPTS: usize = 8;

impl Control {
    /// Adds the rules that workers have learned since the last call, without waiting for packets to meet them; returns their number.
    /// One that is there already begins its hard timeout again, as in Open vSwitch. One that is refused is counted.
    pub fn add_learned(&mut self) -> usize {
        let learned = self.learned.take();
        if learned.is_empty() {
            return 0;
        }
        let now_ns = self.readers.now_ns();
        let mut new: Vec<FlowMod> =
            learned.into_iter().filter(|learned| !self.has_learned(learned, now_ns)).collect();
        for _ in 0..ATTEMPTS {
            if new.is_empty() {
                return 0;
            }
            match self.publish(&new) {
                Ok(done) => return done.added + done.modified,
                Err(refused) => {
                    // All were refused because of it.
                    new.remove(refused.at);
                    self.learned.refuse(1);
                }
            }
        }
        self.learned.refuse(new.len() as u64);
        0
    }

    /// Returns whether a learned rule is there; if so, restarts its hard timeout.
    fn has_learned(&mut self, learned: &FlowMod, now_ns: u64) -> bool {
        let rule = &learned.rule;
        let ruleset = self.published.newest();
        let id = self.writer.find(rule.table, &(rule.priority, rule.matches.clone()));
        let there = id.and_then(|id| Some((id, ruleset.table(rule.table)?.rule(id)?)));
        let settings = (learned.idle_timeout_s, learned.hard_timeout_s, learned.flags);
        let same = there.filter(|(_, entry)| {
            entry.rule.actions == rule.actions
                && entry.rule.cookie == rule.cookie
                && (entry.idle_timeout_s, entry.hard_timeout_s, entry.flags) == settings
        });
        if let Some((id, _)) = same {
            self.timers.restart(rule.table, id, now_ns);
        }
        same.is_some()
    }
}
