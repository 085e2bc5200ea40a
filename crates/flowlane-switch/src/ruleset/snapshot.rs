//! The ruleset: rule tables with their engines. A published ruleset never changes.
//!
//! There are two copies of it if rules change while packets are forwarded (`control`). Both apply the same changes in the
//! same order, so that lookups agree; they share what takes long to build. A ruleset keeps its latest changes: the other copy
//! repeats them, and a megaflow of an earlier version is compared with them, since most rules that are added or removed do not
//! concern it.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use flowlane::classify::conjunction::{Clause, Conjunctions};
use flowlane::classify::{AsyncEngine, Hit, InsertError, ReplicatedEngine, RuleEngine};
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::key::{FlowKey, FlowMask};
use flowlane::packet::{FieldClass, WordSet};
use flowlane::published::Versioned;
use flowlane::rule::Action;
use flowlane::rule::RuleId;
use flowlane::rule::action::Controller;

use crate::packet::recirculate::is_bare;

use super::rules::Rules;
use super::table_map::{TableMap, TableSet};
use super::{
    CompiledGroup, Entry, Groups, Miss, Origin, Resources, RulesetError, Step, StepSummary, Steps,
    ToController,
};

/// The number of events kept.
pub const EVENTS_KEPT: usize = 1024;

/// A change of a ruleset.
#[derive(Clone)]
pub enum Event {
    /// A change of one rule.
    Rule(Change),
    /// A group comes, is replaced, or goes. Packets meet it when they come to it: no path depends on it.
    Group { id: u32, group: Option<Arc<CompiledGroup>> },
    /// There are other meters, or settings of ports.
    Resources(Arc<Resources>),
    /// A table has another engine, with the same rules: answers are as before.
    Engine {
        table: u8,
        /// One for each copy of the ruleset.
        engines: Arc<Mutex<Vec<Box<dyn ReplicatedEngine>>>>,
    },
}

impl Event {
    /// Returns whether packets that agree with `key` in the bits of `mask`, and so take a path of these steps, may be concerned.
    pub fn concerns(&self, steps: &[Step], key: &FlowKey, mask: &FlowMask) -> bool {
        match self {
            Event::Rule(change) => change.concerns(steps, key, mask),
            // A meter may change packets now, or no longer.
            Event::Resources(_) => steps.iter().any(|step| matches!(step, Step::Do(Action::Meter(_)))),
            Event::Engine { .. } | Event::Group { .. } => false,
        }
    }
}

/// Rules up to which an engine that is replaced is freed at once. Of 10,000 rules that takes milliseconds.
const FREED_AT_ONCE_MAX: usize = 1000;

/// Frees an engine on a thread of its own, so that changes do not wait; at once where there is none.
fn free_in_background(engine: Option<Box<dyn ReplicatedEngine>>) {
    // Where no thread can be spawned, the closure is dropped with the engine.
    _ = std::thread::Builder::new().name("engine".to_owned()).spawn(move || drop(engine));
}

/// The change of one rule.
#[derive(Clone, Debug)]
pub struct Change {
    pub table: u8,
    /// The rule's id in its table.
    pub id: RuleId,
    /// The kind of change.
    pub what: ChangeKind,
    /// The rule: the new one if it replaces another, which has the same priority and match.
    pub entry: Arc<Entry>,
}

/// A kind of change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// Added.
    Add,
    /// Replaces the one with the same priority and match.
    Replace,
    /// Does that, and is a part of conjunctions where the other is an ordinary rule, or the reverse.
    Turn,
    /// Removed.
    Remove,
}

impl Change {
    /// Applies it to an engine, which has the ordinary rules.
    ///
    /// # Errors
    /// If it refuses the rule.
    pub(crate) fn tell(&self, engine: &mut dyn RuleEngine) -> Result<(), InsertError> {
        let (rule, is_ordinary) = (&self.entry.rule, !self.entry.is_conjunctive());
        match self.what {
            ChangeKind::Add | ChangeKind::Turn if is_ordinary => {
                engine.insert(self.id, rule.priority, &rule.matches)?;
            }
            ChangeKind::Remove | ChangeKind::Turn => _ = engine.remove(self.id),
            ChangeKind::Add | ChangeKind::Replace => {}
        }
        Ok(())
    }

    /// Applies it to the parts of conjunctions.
    ///
    /// # Errors
    /// If there are too many.
    fn tell_conjunctions(&self, parts: &mut Conjunctions) -> Result<(), InsertError> {
        let (rule, is_part) = (&self.entry.rule, self.entry.is_conjunctive());
        match self.what {
            ChangeKind::Add | ChangeKind::Turn if is_part => {
                parts.insert(self.id, rule.priority, &rule.matches, &Clause::of(&rule.actions))?;
            }
            ChangeKind::Replace if is_part => parts.set(self.id, &Clause::of(&rule.actions)),
            ChangeKind::Remove | ChangeKind::Turn => _ = parts.remove(self.id),
            ChangeKind::Add | ChangeKind::Replace => {}
        }
        Ok(())
    }

    fn concerns(&self, steps: &[Step], key: &FlowKey, mask: &FlowMask) -> bool {
        let here = |step: &Step| matches!(step, Step::Matched { table, .. } if *table == self.table);
        // The last of several lookups has more actions in front.
        let Some(at) = steps.iter().rposition(here) else { return false };
        // After an action, the table sees another key than the packet came with.
        let is_other = |step: &Step| !matches!(step, Step::Matched { .. });
        let shows_other = |step: &Step| here(step) && matches!(step, Step::Matched { original: true, .. });
        if steps[..at].iter().any(is_other) || steps[..=at].iter().any(shows_other) {
            return true;
        }
        let matches = &self.entry.rule.matches;
        if at == 0 {
            return !matches.is_disjoint(key, mask);
        }
        // A field in no header may also have been written without a step.
        let mut in_headers = FlowMask::zero();
        let words = mask.present().intersection(WordSet::of_class(FieldClass::Header));
        words.iter().for_each(|w| in_headers.or_word(w, mask.word(w)));
        !matches.is_disjoint(key, &in_headers)
    }
}

/// One table of rules.
pub struct Table {
    /// For reports; empty where none was given.
    pub name: String,
    /// The treatment of packets that match nothing.
    pub miss: Miss,
    /// None where a worker's device answers.
    engine: Option<Box<dyn ReplicatedEngine>>,
    /// The rules that are parts of conjunctions: the engine has the others.
    conjunctions: Option<Box<Conjunctions>>,
    rules: Rules,
    /// The steps of packets that match nothing.
    missing: Steps,
}

impl Table {
    pub(crate) fn new(name: &str, engine: Option<Box<dyn ReplicatedEngine>>, miss: Miss) -> Self {
        let (rules, missing) = (Rules::default(), Steps::default());
        Self { name: name.to_owned(), miss, engine, conjunctions: None, rules, missing }
    }

    fn duplicate(&self) -> Self {
        Self {
            name: self.name.clone(),
            miss: self.miss,
            engine: self.engine.as_ref().map(|engine| engine.clone_box()),
            conjunctions: self.conjunctions.clone(),
            rules: self.rules.clone(),
            missing: self.missing.clone(),
        }
    }

    /// The engine, unless a worker's device answers.
    pub fn engine(&self) -> Option<&dyn ReplicatedEngine> {
        self.engine.as_deref()
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a number above all rule ids.
    pub(crate) fn handles_end(&self) -> usize {
        self.rules.end()
    }

    /// Returns a rule, if it exists.
    pub fn rule(&self, id: RuleId) -> Option<&Arc<Entry>> {
        self.rules.get(id)
    }

    /// All rules, by handle.
    pub fn rules(&self) -> impl Iterator<Item = (RuleId, &Arc<Entry>)> {
        self.rules.iter()
    }

    /// The rules that packets without an Ethernet header may match.
    pub(super) fn rules_of_types(&self) -> impl Iterator<Item = (RuleId, &Arc<Entry>)> {
        self.rules.of_types()
    }

    /// All rules, in order of insertion.
    pub fn in_order(&self) -> Vec<(RuleId, &Arc<Entry>)> {
        let mut all: Vec<_> = self.rules.iter().collect();
        all.sort_unstable_by_key(|(_, entry)| entry.sequence);
        all
    }

    /// Returns the steps of packets that match this rule, or none.
    ///
    /// # Panics
    /// If there has never been such a rule.
    #[inline]
    pub fn steps(&self, rule: Option<RuleId>) -> &Steps {
        rule.map_or(&self.missing, |id| self.rules.steps(id))
    }

    /// Returns the summary of [`steps`](Self::steps); prefetches them unless it holds them.
    #[inline]
    pub(crate) fn summary(&self, rule: Option<RuleId>) -> StepSummary {
        let summary = rule.map_or(self.missing.summary(), |id| self.rules.summary(id));
        if let StepSummary::Several(_) = summary {
            self.steps(rule).prefetch();
        }
        summary
    }

    /// Prefetches the summary of a rule's steps.
    #[inline]
    pub(crate) fn prefetch(&self, id: RuleId) {
        self.rules.prefetch(id);
    }

    /// Looks up the rules of some lanes' packets.
    #[inline]
    pub(crate) fn find(&self, keys: &[FlowKey], lanes: LaneMask, hits: &mut [Option<Hit>; LANES_MAX]) {
        let engine = self.engine().expect("no device's table");
        engine.lookup_lanes(keys, lanes, hits);
        if let Some(conjunctions) = &self.conjunctions {
            for lane in lanes.lanes() {
                hits[lane] = conjunctions.winner(&keys[lane], hits[lane], None, |key, _| engine.lookup(key));
            }
        }
    }

    /// Returns the table's engine, or its device.
    ///
    /// # Panics
    /// If the table has neither.
    pub(crate) fn engine_or<'a>(&'a self, device: Option<&'a dyn AsyncEngine>) -> &'a dyn RuleEngine {
        match (self.engine(), device) {
            (Some(engine), _) => engine,
            (None, Some(device)) => device,
            (None, None) => unreachable!("a table without an engine has a device"),
        }
    }

    /// Finds the winning rule for a key with the table's engine, or its `device`, and adds the bits that the answer depends on.
    ///
    /// # Panics
    /// If the table has neither.
    pub(crate) fn lookup_wildcards(
        &self,
        device: Option<&dyn AsyncEngine>,
        key: &FlowKey,
        looked_at: &mut FlowMask,
    ) -> Option<Hit> {
        if is_bare(key) {
            return self.lookup_of_type(key, Some(looked_at));
        }
        let engine = self.engine_or(device);
        let hit = engine.lookup_wildcards(key, looked_at);
        let Some(conjunctions) = &self.conjunctions else { return hit };
        conjunctions.winner(key, hit, Some(looked_at), |key, looked_at| {
            engine.lookup_wildcards(key, looked_at.expect("given above"))
        })
    }

    /// The size of the rules that are parts of conjunctions in bytes.
    pub(crate) fn conjunction_bytes(&self) -> usize {
        self.conjunctions.as_ref().map_or(0, |conjunctions| conjunctions.table_bytes())
    }

    fn apply(&mut self, change: &Change) -> Result<(), InsertError> {
        // What may refuse the rule comes first.
        if change.entry.is_conjunctive() {
            change.tell_conjunctions(self.conjunctions.get_or_insert_with(new_conjunctions))?;
        }
        if let Some(engine) = &mut self.engine {
            change.tell(&mut **engine)?;
        }
        if let Some(parts) = self.conjunctions.as_mut().filter(|_| !change.entry.is_conjunctive()) {
            change.tell_conjunctions(parts)?;
        }
        self.conjunctions = self.conjunctions.take().filter(|parts| !parts.is_empty());
        match change.what {
            ChangeKind::Remove => _ = self.rules.remove(change.id),
            ChangeKind::Add | ChangeKind::Replace | ChangeKind::Turn => {
                self.rules.put(change.id, change.entry.clone());
            }
        }
        Ok(())
    }

    /// Replaces the steps that a rule's actions compiled to.
    #[cfg(test)]
    pub(crate) fn replace_steps(&mut self, id: RuleId, steps: Steps) {
        let entry = Entry { steps, ..Entry::clone(self.rules.get(id).expect("it is there")) };
        self.rules.put(id, Arc::new(entry));
    }

    /// Adds rules, of which the engine has the ordinary ones already.
    pub(crate) fn adopt(&mut self, entries: impl IntoIterator<Item = Arc<Entry>>) {
        for (id, entry) in (0..).map(RuleId).zip(entries) {
            if entry.is_conjunctive() {
                let parts = self.conjunctions.get_or_insert_with(new_conjunctions);
                let (rule, clauses) = (&entry.rule, Clause::of(&entry.rule.actions));
                let inserted = parts.insert(id, rule.priority, &rule.matches, &clauses);
                inserted.expect("ids are new, and there is room for all ids");
            }
            self.rules.put(id, entry);
        }
    }
}

/// The most rules of a table that are parts of conjunctions: engines have limits of their own for the others.
const PARTS_MAX: usize = 1_000_000;

fn new_conjunctions() -> Box<Conjunctions> {
    Box::new(Conjunctions::new(PARTS_MAX, RandomState::new().hash_one(0) as u32))
}

/// The rule tables.
#[derive(Default)]
pub struct Ruleset {
    tables: TableMap<Table>,
    /// The tables behind the caches, and those of them that are ordered stages: read for every packet that reaches one.
    behind: TableSet,
    ordered: TableSet,
    /// Tables that will be added: those before may learn rules into them.
    expected: TableSet,
    groups: Groups,
    /// `None` while those that the workers began with have not changed.
    resources: Option<Arc<Resources>>,
    version: u64,
    /// The latest changes, each of which added one to the version.
    events: VecDeque<Arc<Event>>,
}

impl Versioned for Ruleset {
    #[inline]
    fn version(&self) -> u64 {
        self.version
    }
}

impl std::fmt::Debug for Ruleset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ruleset").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Ruleset {
    /// Returns a copy.
    pub fn duplicate(&self) -> Self {
        Self {
            tables: self.tables.map(Table::duplicate),
            behind: self.behind,
            ordered: self.ordered,
            expected: self.expected,
            groups: self.groups.clone(),
            resources: self.resources.clone(),
            version: self.version,
            events: self.events.clone(),
        }
    }

    /// Creates an empty ruleset.
    #[cfg(all(loom, test))]
    pub(super) fn of_version(version: u64) -> Self {
        Self { version, ..Self::default() }
    }

    /// Increases with every change.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The version as megaflows store it, where it wraps.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.version as u32
    }

    /// The changes since a version; none where that is too long ago, or the tables themselves have changed.
    pub fn events_since(&self, version: u64) -> Option<impl Iterator<Item = &Arc<Event>>> {
        self.latest(self.version.checked_sub(version)?)
    }

    /// The changes since a [generation](Self::generation).
    #[inline]
    pub fn events_since_generation(&self, generation: u32) -> Option<impl Iterator<Item = &Arc<Event>>> {
        self.latest(self.generation().wrapping_sub(generation).into())
    }

    #[inline]
    fn latest(&self, count: u64) -> Option<impl Iterator<Item = &Arc<Event>>> {
        let skipped = self.events.len().checked_sub(usize::try_from(count).ok()?)?;
        Some(self.events.range(skipped..))
    }

    /// The tables of rules, in order.
    pub fn tables(&self) -> impl Iterator<Item = (u8, &Table)> {
        self.tables.iter()
    }

    #[cfg(test)]
    pub(crate) fn table_mut(&mut self, number: u8) -> Option<&mut Table> {
        self.tables.get_mut(number)
    }

    #[inline]
    pub fn table(&self, number: u8) -> Option<&Table> {
        self.tables.get(number)
    }

    /// The groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The meters and the settings of ports, if they have changed since the switch began.
    pub fn resources(&self) -> Option<&Arc<Resources>> {
        self.resources.as_ref()
    }

    /// Returns whether a packet may come to a table again, by a `resubmit`, a group or an action set.
    pub(crate) fn goes_back(&self) -> bool {
        !self.groups.is_empty() || self.tables.iter().any(|(_, table)| table.rules.go_back())
    }

    /// Returns whether a rule, or a group, may change connections that there are: their marks, their labels, their direction.
    pub(crate) fn changes_connections(&self) -> bool {
        !self.groups.is_empty() || self.tables.iter().any(|(_, table)| table.rules.change_connections())
    }

    /// Returns whether every packet keeps the addresses and ports that it came with, and rules keep connections with these alone.
    pub(crate) fn keeps_ends(&self) -> bool {
        let by_rules = || self.tables.iter().all(|(_, table)| table.rules.keep_ends());
        self.groups.is_empty() && self.behind.is_empty() && by_rules()
    }

    /// Returns the stages that must see the packets of a burst in their order.
    #[inline]
    pub(crate) fn ordered_stages(&self) -> TableSet {
        self.ordered
    }

    /// Returns whether this table is behind the caches.
    #[inline]
    pub fn is_post_cache(&self, number: u8) -> bool {
        self.behind.has(number)
    }

    /// Returns whether there is a table of this number, of rules or behind the caches.
    pub fn has_table(&self, number: u8) -> bool {
        self.tables.contains(number) || self.is_post_cache(number)
    }

    /// Returns whether all rules at most forward packets, unchanged, and no table is behind the caches.
    pub(crate) fn only_forwards(&self) -> bool {
        self.behind.is_empty() && self.tables.iter().all(|(_, table)| table.rules.only_forward())
    }

    /// Returns the table after this one.
    pub(crate) fn next_table(&self, number: u8) -> Option<u8> {
        (number..=u8::MAX).skip(1).find(|&next| self.has_table(next))
    }

    /// Lets rules that are checked from now on learn into a table that will be added.
    pub(crate) fn expect_table(&mut self, number: u8) {
        self.expected.add(number);
    }

    /// Returns whether rules may learn into a table.
    pub(super) fn learns_into(&self, number: u8) -> bool {
        self.tables.contains(number) || self.expected.has(number)
    }

    pub(crate) fn add_table(&mut self, number: u8, table: Table) {
        self.tables.insert(number, table);
        self.renew();
    }

    pub(crate) fn add_post_cache(&mut self, number: u8, ordered: bool) {
        self.behind.add(number);
        if ordered {
            self.ordered.add(number);
        }
        self.renew();
    }

    /// Recompiles misses after a table was added: the next may be another.
    fn renew(&mut self) {
        self.version += 1;
        self.events.clear();
        let numbers: Vec<u8> = self.tables.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let next = self.next_table(number).map(|table| Step::Enter { table, carry: Vec::new() });
            let table = self.tables.get_mut(number).expect("it is one of them");
            let steps = match table.miss {
                Miss::Drop => None,
                Miss::Controller => Some(Step::from(ToController {
                    action: Controller { reason: 0, ..Controller::default() },
                    origin: Origin::none(number),
                })),
                Miss::Continue => next,
            };
            table.missing = Steps::new(Vec::from_iter(steps));
        }
    }

    /// Applies a change and records it.
    ///
    /// # Errors
    /// If a table's engine refuses a rule; nothing has changed.
    pub fn apply(&mut self, event: Arc<Event>) -> Result<(), RulesetError> {
        match &*event {
            Event::Rule(change) => {
                let number = change.table;
                let table = self.tables.get_mut(number).ok_or(RulesetError::NoTable(number))?;
                table.apply(change).map_err(|source| RulesetError::Insert { table: number, source })?;
            }
            Event::Group { id, group } => self.groups.set(*id, group.clone()),
            Event::Resources(resources) => self.resources = Some(resources.clone()),
            Event::Engine { table: number, engines } => {
                let table = self.tables.get_mut(*number).ok_or(RulesetError::NoTable(*number))?;
                let mut engines = engines.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                let engine = engines.pop().expect("there are as many as copies of the program");
                let former = table.engine.replace(engine);
                if table.rules.len() > FREED_AT_ONCE_MAX {
                    free_in_background(former);
                }
            }
        }
        self.version += 1;
        self.events.push_back(event);
        Ok(())
    }

    /// Bounds the time of changes from now on: the caller rebuilds the engines.
    pub(crate) fn defer_rebuilds(&mut self) {
        for (_, table) in self.tables.iter_mut() {
            if let Some(engine) = &mut table.engine {
                engine.defer_rebuilds();
            }
        }
    }

    /// Forgets all but the latest `kept` changes.
    pub fn forget(&mut self, kept: usize) {
        self.events.drain(..self.events.len().saturating_sub(kept));
    }
}
