//! A table's rules, by handle: what a packet touches apart from the rest.

use flowlane::memory::prefetch;
use flowlane::rule::{Rule, RuleId};

use super::actions::program_of;
use super::{Gist, Program};

/// A rule with its counters.
#[derive(Clone, Debug)]
pub struct RuleEntry<R = Rule> {
    pub rule: R,
    /// Packets that it won.
    pub packets: u64,
    pub bytes: u64,
}

/// Half a cache line of a rule: all that most packets need.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct Hot {
    packets: u64,
    bytes: u64,
    gist: Gist,
}

#[derive(Debug)]
struct Cold {
    rule: Rule,
    sequence: u64,
}

/// Rules by handle. Handles are places, used again when nothing can mean who had them before.
#[derive(Debug, Default)]
pub(super) struct Rules {
    hot: Vec<Hot>,
    programs: Vec<Program>,
    cold: Vec<Option<Cold>>,
    /// Handles of rules that went, to which paths may still have counters to bring.
    retired: Vec<RuleId>,
    free: Vec<RuleId>,
    sequence: u64,
}

impl Rules {
    /// The handle that the next rule will have.
    pub(super) fn next(&self) -> RuleId {
        self.free.last().copied().unwrap_or(RuleId(self.cold.len() as u32))
    }

    /// Adds a rule under the [next](Self::next) handle.
    pub(super) fn add(&mut self, rule: Rule) {
        let program = program_of(&rule.actions);
        let hot = Hot { gist: program.gist(), ..Hot::default() };
        let cold = Some(Cold { rule, sequence: self.sequence });
        self.sequence += 1;
        match self.free.pop() {
            Some(RuleId(id)) => {
                let at = id as usize;
                (self.hot[at], self.programs[at], self.cold[at]) = (hot, program, cold);
            }
            None => {
                self.hot.push(hot);
                self.programs.push(program);
                self.cold.push(cold);
            }
        }
    }

    /// Lets another rule take the place of one, and its counters.
    ///
    /// # Panics
    /// Where there is none.
    pub(super) fn replace(&mut self, id: RuleId, rule: Rule) {
        let at = id.0 as usize;
        self.programs[at] = program_of(&rule.actions);
        self.hot[at].gist = self.programs[at].gist();
        self.cold[at].as_mut().expect("the rule is there").rule = rule;
    }

    pub(super) fn remove(&mut self, id: RuleId) -> Option<RuleEntry> {
        let Cold { rule, .. } = self.cold.get_mut(id.0 as usize)?.take()?;
        let Hot { packets, bytes, .. } = self.hot[id.0 as usize];
        self.programs[id.0 as usize] = Program::default();
        self.retired.push(id);
        Some(RuleEntry { rule, packets, bytes })
    }

    /// Nothing means rules that went any more: their handles may be used again.
    pub(super) fn release(&mut self) {
        self.free.append(&mut self.retired);
    }

    /// Rules that went and whose handles are not free yet.
    pub(super) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// A rule.
    ///
    /// # Panics
    /// Where there is none.
    pub(super) fn get(&self, id: RuleId) -> &Rule {
        &self.cold[id.0 as usize].as_ref().expect("the rule is there").rule
    }

    /// What is done with the packets of a rule.
    ///
    /// # Panics
    /// Where there has never been such a rule.
    #[inline]
    pub(super) fn program(&self, id: RuleId) -> &Program {
        &self.programs[id.0 as usize]
    }

    /// Asks for what a packet of this rule will touch.
    #[inline]
    pub(super) fn prefetch(&self, id: RuleId) {
        prefetch(&self.hot, id.0 as usize);
        prefetch(&self.programs, id.0 as usize);
    }

    /// Counts a packet. Gives what its rule comes to.
    ///
    /// # Panics
    /// Where there has never been such a rule.
    #[inline]
    pub(super) fn take(&mut self, id: RuleId, bytes: u64) -> Gist {
        let hot = &mut self.hot[id.0 as usize];
        hot.packets += 1;
        hot.bytes += bytes;
        if let Gist::Several(_) = hot.gist {
            let steps = self.programs[id.0 as usize].steps();
            prefetch(steps, 0);
            prefetch(steps, steps.len() - 1);
        }
        hot.gist
    }

    /// Counts packets, unless the rule has gone.
    pub(super) fn count(&mut self, id: RuleId, packets: u64, bytes: u64) {
        if let Some(Some(_)) = self.cold.get(id.0 as usize) {
            let hot = &mut self.hot[id.0 as usize];
            hot.packets += packets;
            hot.bytes += bytes;
        }
    }

    /// All, in order of insertion.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RuleId, RuleEntry<&Rule>)> {
        let there = (0..).map(RuleId).zip(&self.cold).filter_map(|(id, cold)| Some((id, cold.as_ref()?)));
        let mut all: Vec<_> = there.collect();
        all.sort_unstable_by_key(|(_, cold)| cold.sequence);
        all.into_iter().map(|(id, cold)| {
            let Hot { packets, bytes, .. } = self.hot[id.0 as usize];
            (id, RuleEntry { rule: &cold.rule, packets, bytes })
        })
    }
}

#[cfg(test)]
mod tests {
    use flowlane::rule::{Action, Match, Priority};

    use super::*;

    fn rule(cookie: u64) -> Rule {
        Rule {
            table: 0,
            priority: Priority(1),
            cookie,
            matches: Match::any(),
            actions: vec![Action::Goto(cookie as u8 | 1)],
        }
    }

    #[test]
    fn handles_are_used_again_once_nothing_means_who_had_them() {
        let mut rules = Rules::default();
        let add = |rules: &mut Rules, cookie| {
            let id = rules.next();
            rules.add(rule(cookie));
            id
        };
        let ids: Vec<RuleId> = (0..100).map(|cookie| add(&mut rules, cookie)).collect();
        assert_eq!(rules.take(ids[3], 60), Gist::Enter(3));
        rules.count(ids[3], 2, 100);
        let gone = rules.remove(ids[3]).unwrap();
        assert_eq!((gone.rule, gone.packets, gone.bytes), (rule(3), 3, 160));
        rules.count(ids[3], 7, 7);
        assert!(rules.remove(ids[3]).is_none());
        assert_eq!((add(&mut rules, 200), rules.retired()), (RuleId(100), 1));
        rules.release();
        assert_eq!((add(&mut rules, 201), rules.retired()), (ids[3], 0));
        let (last, entry) = rules.iter().last().unwrap();
        assert_eq!((last, entry.rule, entry.packets), (ids[3], &rule(201), 0));
    }

    #[test]
    fn a_million_changes_leave_nothing_behind() {
        let mut rules = Rules::default();
        for n in 0..1_000_000u64 {
            let id = rules.next();
            rules.add(rule(n % 100));
            rules.remove(id).unwrap();
            if n % 100 == 0 {
                rules.release();
            }
        }
        assert!(rules.cold.len() <= 200 && rules.iter().next().is_none());
    }
}
