//! Adds the rules that workers have learned.

use std::sync::Arc;

use flowlane::rule::Rule;

use super::flow_mods::Made;
use super::{Control, FlowModResult, Refusal};
use crate::ruleset::Learned;

/// How often rules are tried, without those that were refused. A refusal copies the ruleset, and packets decide how many there are:
/// the rules that are left then are lost, and their next packets make them again.
const ATTEMPTS: usize = 8;

impl Control {
    /// Adds the rules that workers have learned since the last call, without waiting for packets to meet them; returns their number.
    /// One that is there already begins its hard timeout again, as in Open vSwitch. One that is refused is counted; one beyond its
    /// limit is not, nor is one whose rule to learn it has gone.
    pub fn add_learned(&mut self) -> usize {
        let learned = self.learned.take();
        if learned.is_empty() {
            return 0;
        }
        let now_ns = self.readers.now_ns();
        let mut new: Vec<Arc<Learned>> =
            learned.into_iter().filter(|learned| !self.has_learned(learned, now_ns)).collect();
        for _ in 0..ATTEMPTS {
            if new.is_empty() {
                return 0;
            }
            match self.publish_learned(&new) {
                Ok(done) => return done.added + done.modified,
                Err((at, _)) => {
                    // All were refused because of it.
                    new.remove(at);
                    self.learned.refuse(1);
                }
            }
        }
        self.learned.refuse(new.len() as u64);
        0
    }

    /// Adds rules, all or none of those that have room below their limits; fails with the place of one that is refused.
    fn publish_learned(&mut self, new: &[Arc<Learned>]) -> Result<FlowModResult, (usize, Refusal)> {
        self.publish_made(|control, now_ns, made| {
            let mut each = new.iter().enumerate();
            each.try_for_each(|(at, one)| control.learn(one, now_ns, made).map_err(|refusal| (at, refusal)))
        })
    }

    /// Adds a rule, unless as many have its cookie as its limit allows, though it may be to take the place of one, as in Open vSwitch.
    fn learn(&mut self, learned: &Learned, now_ns: u64, made: &mut Made) -> Result<(), Refusal> {
        let Rule { table, cookie, .. } = learned.flow_mod.rule;
        let (standby, limit) = (&self.standby, learned.limit as usize);
        let is_full = limit > 0 && self.cookies.rules((table, cookie), standby) >= limit;
        if is_full || learned.delete_learned && !self.cookies.is_kept((table, cookie)) {
            return Ok(());
        }
        self.apply_flow_mod(&learned.flow_mod, now_ns, made)
    }

    /// Returns whether a learned rule is there; if so, restarts its hard timeout.
    fn has_learned(&mut self, learned: &Learned, now_ns: u64) -> bool {
        let (learned, rule) = (&learned.flow_mod, &learned.flow_mod.rule);
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
