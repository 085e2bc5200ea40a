//! Changes rules as packets ask for it: adds those that workers have learned, and lowers the timeouts of others.

use flowlane::rule::Rule;

use super::flow_mods::Made;
use super::{Control, FlowModResult, Refusal};
use crate::ruleset::{Learned, LowerTimeouts, RuleRequest};

/// How often rules are tried, without those that were refused. A refusal copies the ruleset, and packets decide how many there are:
/// the rules that are left then are lost, and their next packets make them again.
const ATTEMPTS: usize = 8;

impl Control {
    /// Adds the rules that workers have learned since the last call, without waiting for packets to meet them, and returns their
    /// number; lowers the timeouts of rules by whose connections packets with FIN or RST have come.
    ///
    /// One that is there already begins its hard timeout again, as in Open vSwitch. One that is refused is counted; one beyond its
    /// limit is not, nor is one whose rule to learn it has gone.
    pub fn add_learned(&mut self) -> usize {
        let requests = self.learned.take();
        if requests.is_empty() {
            return 0;
        }
        let now_ns = self.readers.now_ns();
        let (mut new, mut ended): (Vec<&Learned>, Vec<&LowerTimeouts>) = Default::default();
        for request in &requests {
            match &**request {
                RuleRequest::Learn(learned) if self.has_learned(learned, now_ns) => {}
                RuleRequest::Learn(learned) => new.push(learned),
                RuleRequest::Lower(lower) => ended.push(lower),
            }
        }
        let added = self.add_new(new);
        // A connection ends after its rule was learned.
        ended.into_iter().for_each(|lower| self.lower_timeouts(lower, now_ns));
        added
    }

    /// Adds rules as long as they are not refused, and returns their number.
    fn add_new(&mut self, mut new: Vec<&Learned>) -> usize {
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
    fn publish_learned(&mut self, new: &[&Learned]) -> Result<FlowModResult, (usize, Refusal)> {
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

    /// Lowers the timeouts of a rule, if it is still there.
    fn lower_timeouts(&mut self, lower: &LowerTimeouts, now_ns: u64) {
        let Some(id) = self.writer.find(lower.table, &lower.rule) else { return };
        let ruleset = self.published.newest();
        let Some(entry) = ruleset.table(lower.table).and_then(|table| table.rule(id)) else { return };
        if entry.timeouts.lower(lower.idle_s, lower.hard_s) {
            self.timers.lower(lower.table, id, entry, now_ns);
            self.learned.forget();
        }
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
                && (entry.timeouts.idle_s(), entry.timeouts.hard_s(), entry.flags) == settings
        });
        if let Some((id, _)) = same {
            self.timers.restart(rule.table, id, now_ns);
        }
        same.is_some()
    }
}
