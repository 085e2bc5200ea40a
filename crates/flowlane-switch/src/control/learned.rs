//! Changes rules as packets ask for it: adds those that workers have learned, and lowers the timeouts of others.

use std::collections::HashMap;
use std::sync::Arc;

use flowlane::rule::{Command, FlowMod, Rule};

use super::flow_mods::Made;
use super::{Control, FlowModResult, Refusal};
use crate::datapath::{TableCookie, WaitingRequest};
use crate::ruleset::{ChangeKind, Entry, Learned, LowerTimeouts, RuleDigest, RuleKey, RuleRequest};

/// How often rules are tried, without those that were refused. A refusal copies the ruleset, and packets decide how many there are:
/// the rules that are left then are lost, and their next packets make them again.
const ATTEMPTS: usize = 8;

/// A rule to add.
struct NewRule<'a> {
    learned: &'a Learned,
    /// A worker has found that the limit allows it.
    is_within_limit: bool,
}

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
        let (mut new, mut ended): (Vec<NewRule<'_>>, Vec<&LowerTimeouts>) = Default::default();
        // What rules will be: a rule that is there may be replaced by a request, and be asked for again by the next.
        let mut promised = HashMap::new();
        for WaitingRequest { request, is_within_limit } in &requests {
            let learned = match &**request {
                RuleRequest::Learn(learned) => learned,
                RuleRequest::Lower(lower) => {
                    ended.push(lower);
                    continue;
                }
            };
            let RuleDigest { identity, content, .. } = learned.digest;
            let is_there = match promised.get(&identity) {
                Some(promised) => *promised == content,
                None => self.has_learned(learned, now_ns),
            };
            if !is_there {
                promised.insert(identity, content);
                new.push(NewRule { learned, is_within_limit: *is_within_limit });
            }
        }
        let added = self.add_new(new);
        let learned = requests.iter().filter_map(|waiting| match &*waiting.request {
            RuleRequest::Learn(learned) => Some(learned),
            RuleRequest::Lower(_) => None,
        });
        self.learned.settle(learned, |learned| {
            let rule = &learned.flow_mod.rule;
            self.entry(rule.table, &(rule.priority, rule.matches.clone())).map(|entry| RuleDigest::of(&entry))
        });
        // A connection ends after its rule was learned.
        ended.into_iter().for_each(|lower| self.lower_timeouts(lower, now_ns));
        added
    }

    /// Returns the published rule of a priority and match.
    fn entry(&self, table: u8, rule: &RuleKey) -> Option<Arc<Entry>> {
        let id = self.writer.find(table, rule)?;
        self.published.newest().table(table)?.rule(id).cloned()
    }

    /// Has limits count what changes have made of rules, before workers see it.
    pub(super) fn follow_learned(&self, made: &Made) {
        let changes = made.changes.iter().map(|change| (&*change.entry, change.what != ChangeKind::Remove));
        self.learned.follow(changes);
        self.learned.count(&made.limited, &self.standby);
    }

    /// Adds rules as long as they are not refused, and returns their number.
    fn add_new(&mut self, mut new: Vec<NewRule<'_>>) -> usize {
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
    fn publish_learned(&mut self, new: &[NewRule<'_>]) -> Result<FlowModResult, (usize, Refusal)> {
        self.publish_made(|control, now_ns, made| {
            let mut each = new.iter().enumerate();
            each.try_for_each(|(at, one)| control.learn(one, now_ns, made).map_err(|refusal| (at, refusal)))
        })
    }

    /// Adds a rule, if its limit allows it and its action is still there.
    fn learn(&mut self, new: &NewRule<'_>, now_ns: u64, made: &mut Made) -> Result<(), Refusal> {
        let &NewRule { learned, is_within_limit } = new;
        let cookie = learned.digest.cookie;
        if !is_within_limit {
            // The worker did not know how many rules have the cookie.
            made.limited.push(cookie);
        }
        let is_full = || self.rules_with(cookie) >= learned.limit as usize;
        if !is_within_limit && is_full() || learned.delete_learned && !self.cookies.is_kept(cookie) {
            return Ok(());
        }
        let add = &learned.flow_mod;
        let Rule { table, priority, ref matches, cookie, .. } = add.rule;
        if self.writer.find(table, &(priority, matches.clone())).is_none() {
            return self.apply_flow_mod(add, now_ns, made);
        }
        // ovs-actions(7): a rule that is there is modified. So it keeps its timeouts and flags.
        let modify = FlowMod { command: Command::ModifyStrict, new_cookie: Some(cookie), ..add.clone() };
        self.apply_flow_mod(&modify, now_ns, made)
    }

    /// Counts the standby's rules with a cookie.
    fn rules_with(&self, (table, cookie): TableCookie) -> usize {
        let rules = self.standby.table(table).into_iter().flat_map(|table| table.rules());
        rules.filter(|(_, entry)| entry.rule.cookie == cookie).count()
    }

    /// Lowers the timeouts of a rule, if it is still there.
    fn lower_timeouts(&mut self, lower: &LowerTimeouts, now_ns: u64) {
        let Some(id) = self.writer.find(lower.table, &lower.rule) else { return };
        let ruleset = self.published.newest();
        let Some(entry) = ruleset.table(lower.table).and_then(|table| table.rule(id)) else { return };
        if entry.timeouts.lower(lower.idle_s, lower.hard_s) {
            self.timers.lower(lower.table, id, entry, now_ns);
            self.learned.follow([(&**entry, true)].into_iter());
            self.learned.forget();
        }
    }

    /// Returns whether a learned rule is there, with timeouts and flags of its own perhaps; if so, restarts its hard timeout.
    fn has_learned(&mut self, learned: &Learned, now_ns: u64) -> bool {
        let rule = &learned.flow_mod.rule;
        let ruleset = self.published.newest();
        let id = self.writer.find(rule.table, &(rule.priority, rule.matches.clone()));
        let there = id.and_then(|id| Some((id, ruleset.table(rule.table)?.rule(id)?)));
        let same =
            there.filter(|(_, entry)| entry.rule.actions == rule.actions && entry.rule.cookie == rule.cookie);
        if let Some((id, _)) = same {
            self.timers.restart(rule.table, id, now_ns);
        }
        same.is_some()
    }
}
