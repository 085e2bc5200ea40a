//! A table's rules, by handle: what a packet touches apart from the rest.

use std::sync::Arc;

use flowlane::memory::prefetch;
use flowlane::rule::{Rule, RuleId};

use super::compile::{compile, forwards};
use super::{FlowStats, StepSummary, Steps};

/// A rule as a ruleset has it. Copies of the ruleset share it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub rule: Rule,
    /// The compiled actions.
    pub steps: Steps,
    /// Its place in the order of insertion.
    pub sequence: u64,
    /// The sum of all workers' counters of its id when it was added.
    pub base: FlowStats,
    /// When it came.
    pub created_ns: u64,
    /// It goes when no packet has come for so long, in seconds; 0: it stays.
    pub idle_timeout_s: u16,
    /// It goes after so long, in seconds; 0: it stays.
    pub hard_timeout_s: u16,
}

impl Entry {
    /// A rule that stays until it is removed.
    pub fn new(rule: Rule) -> Self {
        let steps = compile(&rule.actions);
        Self {
            rule,
            steps,
            sequence: 0,
            base: FlowStats::default(),
            created_ns: 0,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
        }
    }

    /// Whether it does nothing with packets but send them on as they came.
    fn only_forwards(&self) -> bool {
        self.rule.actions.iter().all(forwards)
    }
}

/// Rules by handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// What the steps come to: all that most packets need, eight rules a line.
    summaries: Vec<StepSummary>,
    steps: Vec<Steps>,
    entries: Vec<Option<Arc<Entry>>>,
    len: usize,
    /// Those that do more with a packet than to send it on as it came.
    more: usize,
}

impl Rules {
    /// Handles are below this number.
    pub(super) fn end(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether they do nothing with packets but send them on as they came.
    pub(super) fn only_forward(&self) -> bool {
        self.more == 0
    }

    /// Adds a rule, or lets it take another's place.
    pub(super) fn put(&mut self, id: RuleId, entry: Arc<Entry>) {
        let at = id.0 as usize;
        if at >= self.entries.len() {
            self.entries.resize(at + 1, None);
            self.steps.resize(at + 1, Steps::default());
            self.summaries.resize(at + 1, StepSummary::default());
        }
        self.summaries[at] = entry.steps.summary();
        self.steps[at] = entry.steps.clone();
        self.more += usize::from(!entry.only_forwards());
        match self.entries[at].replace(entry) {
            Some(before) => self.more -= usize::from(!before.only_forwards()),
            None => self.len += 1,
        }
    }

    pub(super) fn remove(&mut self, id: RuleId) -> Option<Arc<Entry>> {
        let entry = self.entries.get_mut(id.0 as usize)?.take()?;
        self.steps[id.0 as usize] = Steps::default();
        self.summaries[id.0 as usize] = StepSummary::default();
        self.len -= 1;
        self.more -= usize::from(!entry.only_forwards());
        Some(entry)
    }

    /// A rule, if there is one.
    pub(super) fn get(&self, id: RuleId) -> Option<&Arc<Entry>> {
        self.entries.get(id.0 as usize)?.as_ref()
    }

    /// What is done with the packets of a rule.
    ///
    /// # Panics
    /// Where there has never been such a rule.
    #[inline]
    pub(super) fn steps(&self, id: RuleId) -> &Steps {
        &self.steps[id.0 as usize]
    }

    /// What that comes to.
    ///
    /// # Panics
    /// Where there has never been such a rule.
    #[inline]
    pub(super) fn summary(&self, id: RuleId) -> StepSummary {
        self.summaries[id.0 as usize]
    }

    /// Asks for what a packet of this rule will touch.
    #[inline]
    pub(super) fn prefetch(&self, id: RuleId) {
        prefetch(&self.summaries, id.0 as usize);
    }

    /// All, by handle.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RuleId, &Arc<Entry>)> {
        (0..).map(RuleId).zip(&self.entries).filter_map(|(id, entry)| Some((id, entry.as_ref()?)))
    }
}
