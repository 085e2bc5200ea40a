//! A table's rules by id: the parts that packets read are kept apart.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use flowlane::memory::prefetch;
use flowlane::packet::{Field, FieldClass, WordSet};
use flowlane::rule::{Action, FlowFlags, Match, Rule, RuleId};

use super::compile::{compile_rule, forwards, keeps_ends};
use super::{FlowStats, RulesetError, StepSummary, Steps};

/// A rule of a ruleset. Copies of the ruleset share it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub rule: Rule,
    /// The compiled actions.
    pub steps: Steps,
    /// Its position in the order of insertion.
    pub sequence: u64,
    /// The sum of all workers' counters of its id when it was added.
    pub base: FlowStats,
    /// When it was added.
    pub created_ns: u64,
    /// When it was added or modified.
    pub modified_ns: u64,
    pub timeouts: Timeouts,
    /// Those flags of its flow-mod that last.
    pub flags: FlowFlags,
    /// Rules of less importance make room first (OpenFlow 1.4.1, 6.5).
    pub importance: u16,
}

/// The timeouts of a rule. Control lowers them when a packet ends a connection (`fin_timeout`), for all copies of the ruleset;
/// workers do not read them.
#[derive(Debug, Default)]
pub struct Timeouts {
    idle_s: AtomicU16,
    hard_s: AtomicU16,
}

impl Timeouts {
    /// Creates timeouts in seconds; 0: never.
    pub fn new(idle_s: u16, hard_s: u16) -> Self {
        Self { idle_s: AtomicU16::new(idle_s), hard_s: AtomicU16::new(hard_s) }
    }

    /// The rule expires after this many seconds without a packet; 0: never.
    pub fn idle_s(&self) -> u16 {
        self.idle_s.load(Ordering::Relaxed)
    }

    /// The rule expires after this many seconds; 0: never.
    pub fn hard_s(&self) -> u16 {
        self.hard_s.load(Ordering::Relaxed)
    }

    /// Lowers the timeouts to these, of which 0 changes nothing. Returns whether one was longer.
    pub fn lower(&self, idle_s: u16, hard_s: u16) -> bool {
        let lower = |timeout: &AtomicU16, to: u16| {
            let now = timeout.load(Ordering::Relaxed);
            let is_longer = to > 0 && (now == 0 || now > to);
            if is_longer {
                timeout.store(to, Ordering::Relaxed);
            }
            is_longer
        };
        lower(&self.idle_s, idle_s) | lower(&self.hard_s, hard_s)
    }
}

impl Clone for Timeouts {
    fn clone(&self) -> Self {
        Self::new(self.idle_s(), self.hard_s())
    }
}

impl Entry {
    /// Creates a rule without timeouts.
    pub fn new(rule: Rule) -> Self {
        let steps = compile_rule(&rule);
        Self {
            rule,
            steps,
            sequence: 0,
            base: FlowStats::default(),
            created_ns: 0,
            modified_ns: 0,
            timeouts: Timeouts::default(),
            flags: FlowFlags::default(),
            importance: 0,
        }
    }

    /// Returns whether it is a part of conjunctions: packets do not match it itself.
    pub fn is_conjunctive(&self) -> bool {
        is_conjunctive(&self.rule.actions)
    }

    /// Returns whether packets without an Ethernet header may match it. As in Open vSwitch, a rule is for packets with one if it asks
    /// for a field of headers, unless it says which other type they have.
    fn may_be_bare(&self) -> bool {
        let matches = &self.rule.matches;
        let headers = WordSet::of_class(FieldClass::Header).intersection(matches.mask().present());
        match matches.get(Field::PacketType) {
            (_, 0) => headers.is_empty() && !self.is_conjunctive(),
            (packet_type, _) => packet_type != 0 && !self.is_conjunctive(),
        }
    }

    /// Returns whether it at most forwards packets, unchanged.
    fn only_forwards(&self) -> bool {
        self.rule.actions.iter().all(forwards)
    }

    /// Returns whether it sets the marks or labels of connections.
    fn changes_connections(&self) -> bool {
        self.rule.actions.iter().any(changes_connections)
    }

    /// Returns whether packets keep their addresses and ports, and connections are kept with these alone.
    fn keeps_ends(&self) -> bool {
        self.rule.actions.iter().all(keeps_ends)
    }

    /// Returns whether a packet may come to a table again behind the rule.
    fn goes_back(&self) -> bool {
        self.rule.actions.iter().any(goes_back)
    }
}

/// Returns a rule as packets are looked up for it: in OpenFlow `recirc_id` is 0 for all of them, and the switch's own keys have
/// other values.
///
/// # Errors
/// If the rule is for another value.
pub(crate) fn without_recirc_id(rule: &Rule) -> Result<Cow<'_, Rule>, RulesetError> {
    match rule.matches.get(Field::RecircId) {
        (_, 0) => Ok(Cow::Borrowed(rule)),
        (0, _) => {
            let all = &rule.matches;
            let mut mask = all.word_mask();
            mask.set(Field::RecircId, 0);
            let mut matches = Match::from_key(&all.key(), &mask);
            for (field, range) in [(Field::TpSrc, all.tp_src_range()), (Field::TpDst, all.tp_dst_range())] {
                range.map(|range| matches.set_range(field, range.low(), range.high()));
            }
            Ok(Cow::Owned(Rule { matches, ..rule.clone() }))
        }
        _ => Err(RulesetError::RecircId),
    }
}

/// Returns whether a rule with these actions is a part of conjunctions.
pub(crate) fn is_conjunctive(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Conjunction { .. }))
}

/// Returns whether a packet may come to a table again by an action.
fn goes_back(action: &Action) -> bool {
    let leads_back = match action {
        Action::Resubmit { .. } | Action::Group(_) => true,
        Action::ConnectionTracking(tracking) => tracking.table.is_some(),
        _ => false,
    };
    leads_back || action.nested().iter().any(goes_back)
}

/// Returns whether an action changes connections that there are: it replaces them, or sets their marks or labels.
fn changes_connections(action: &Action) -> bool {
    match action {
        Action::ConnectionTracking(tracking) => {
            tracking.force || tracking.exec.iter().any(|nested| !matches!(nested, Action::Nat(_)))
        }
        other => other.nested().iter().any(changes_connections),
    }
}

/// The numbers of rules that let a table not be taken for a simpler one.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// Rules that do more with a packet than forward it unchanged.
    more: usize,
    /// Rules after which a packet may come to a table again.
    back: usize,
    /// Rules that set marks or labels of connections.
    connections: usize,
    /// Rules that do not keep a packet's ends.
    ends: usize,
}

impl Counts {
    /// Returns the numbers, with what a rule adds to each.
    fn of(&mut self, entry: &Entry) -> [(&mut usize, usize); 4] {
        let Self { more, back, connections, ends } = self;
        [
            (more, usize::from(!entry.only_forwards())),
            (back, usize::from(entry.goes_back())),
            (connections, usize::from(entry.changes_connections())),
            (ends, usize::from(!entry.keeps_ends())),
        ]
    }

    fn add(&mut self, entry: &Entry) {
        self.of(entry).into_iter().for_each(|(count, by)| *count += by);
    }

    fn remove(&mut self, entry: &Entry) {
        self.of(entry).into_iter().for_each(|(count, by)| *count -= by);
    }
}

/// Rules by id.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// Summaries of the steps: all that most packets need, eight a line.
    summaries: Vec<StepSummary>,
    steps: Vec<Steps>,
    entries: Vec<Option<Arc<Entry>>>,
    len: usize,
    counts: Counts,
    /// Rules that packets without an Ethernet header may match.
    of_types: BTreeSet<RuleId>,
}

impl Rules {
    /// Returns a number above all ids.
    pub(super) fn end(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether all rules at most forward packets, unchanged.
    pub(super) fn only_forward(&self) -> bool {
        self.counts.more == 0
    }

    /// Returns whether a packet may come to a table again behind one of them.
    pub(super) fn go_back(&self) -> bool {
        self.counts.back > 0
    }

    /// Returns whether one of them sets marks or labels of connections.
    pub(super) fn change_connections(&self) -> bool {
        self.counts.connections > 0
    }

    /// Returns whether packets keep their addresses and ports, and connections are kept with these alone.
    pub(super) fn keep_ends(&self) -> bool {
        self.counts.ends == 0
    }

    /// Adds a rule, or replaces the one with this id.
    pub(super) fn put(&mut self, id: RuleId, entry: Arc<Entry>) {
        let at = id.0 as usize;
        if at >= self.entries.len() {
            self.entries.resize(at + 1, None);
            self.steps.resize(at + 1, Steps::default());
            self.summaries.resize(at + 1, StepSummary::default());
        }
        self.summaries[at] = entry.steps.summary();
        self.steps[at] = entry.steps.clone();
        self.counts.add(&entry);
        match entry.may_be_bare() {
            true => _ = self.of_types.insert(id),
            false => _ = self.of_types.remove(&id),
        }
        match self.entries[at].replace(entry) {
            Some(before) => self.counts.remove(&before),
            None => self.len += 1,
        }
    }

    pub(super) fn remove(&mut self, id: RuleId) -> Option<Arc<Entry>> {
        let entry = self.entries.get_mut(id.0 as usize)?.take()?;
        self.steps[id.0 as usize] = Steps::default();
        self.summaries[id.0 as usize] = StepSummary::default();
        self.len -= 1;
        self.of_types.remove(&id);
        self.counts.remove(&entry);
        Some(entry)
    }

    /// Returns a rule, if it exists.
    pub(super) fn get(&self, id: RuleId) -> Option<&Arc<Entry>> {
        self.entries.get(id.0 as usize)?.as_ref()
    }

    /// Iterates over the rules that packets without an Ethernet header may match, by id.
    pub(super) fn of_types(&self) -> impl Iterator<Item = (RuleId, &Arc<Entry>)> {
        self.of_types.iter().filter_map(|&id| Some((id, self.get(id)?)))
    }

    /// Returns the steps for packets of a rule.
    ///
    /// # Panics
    /// If there has never been such a rule.
    #[inline]
    pub(super) fn steps(&self, id: RuleId) -> &Steps {
        &self.steps[id.0 as usize]
    }

    /// Returns the summary of a rule's steps.
    ///
    /// # Panics
    /// If there has never been such a rule.
    #[inline]
    pub(super) fn summary(&self, id: RuleId) -> StepSummary {
        self.summaries[id.0 as usize]
    }

    /// Prefetches the summary of a rule's steps.
    #[inline]
    pub(super) fn prefetch(&self, id: RuleId) {
        prefetch(&self.summaries, id.0 as usize);
    }

    /// Iterates by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RuleId, &Arc<Entry>)> {
        (0..).map(RuleId).zip(&self.entries).filter_map(|(id, entry)| Some((id, entry.as_ref()?)))
    }
}
