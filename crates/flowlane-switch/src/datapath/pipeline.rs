//! The pipeline: a worker's tables and their rules.
//!
//! [`translate`](super::translate) follows a key from table to table and flattens the actions of the winning rules into one list
//! of [`Step`](crate::ruleset::Step)s, with the mask of the key bits that it depends on: together a megaflow. Later packets of
//! the megaflow hit the caches and skip the tables.

mod follow;

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::sync::Arc;

use flowlane::classify::{AsyncEngine, Hit, ReplicatedEngine};
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::key::FlowKey;
use flowlane::rule::group::Group;
use flowlane::rule::{Match, Priority, Rule, RuleId};

use super::table_view::{RuleEntry, TableView};
use crate::ruleset::{
    Change, EVENTS_KEPT, Entry, Event, FlowStats, GroupError, LocalCounters, Meters, Miss, PublishedRuleset,
    RuleIndex, RuleKey, Ruleset, RulesetError, RulesetReader, SharedCounters, Table, TableMap, TableSet,
    WorkerEpoch, is_conjunctive, without_recirc_id,
};
use crate::stage::route::RouteTable;
use crate::stage::{AnyStage, StageTable};

/// The engine of a table.
pub enum Engine {
    /// Answers lookups at once.
    Now(Box<dyn ReplicatedEngine>),
    /// Answers batches later: the table is offloaded.
    Later(Box<dyn AsyncEngine>),
}

/// Removed rules above which the paths' counters are collected, so that rule IDs can be reused.
const RETIRED_MAX: usize = 1024;

/// A rule as it is passed to engines.
pub type Given<'a> = (RuleId, Priority, &'a Match);

/// The reason that a table with its rules was not added.
#[derive(Debug)]
pub enum NotAdded<E> {
    /// A rule is invalid.
    Rule(Box<Rule>, RulesetError),
    /// No engine could be built for the rules.
    Engine(E),
}

/// The ownership of the rules, as control takes it over.
pub(crate) struct Handed {
    pub(crate) writer: RuleIndex,
    /// Equal to the worker's ruleset.
    pub(crate) copy: Arc<Ruleset>,
    pub(crate) published: Arc<PublishedRuleset>,
    pub(crate) reader: Arc<WorkerEpoch>,
    /// Offloaded tables: they do not follow publications.
    pub(crate) devices: TableMap<()>,
}

/// A worker's tables: the ruleset, and the state of this worker alone. Table 0 comes first. Until a `Control` is attached, rules are
/// changed here, by the worker's own thread.
pub struct Pipeline {
    pub(super) ruleset: Arc<Ruleset>,
    /// The right to change the ruleset; `None` if it is held elsewhere.
    pub(super) writer: Option<RuleIndex>,
    /// The source of newer rulesets.
    pub(super) source: Option<RulesetReader>,
    /// While the worker waits for packets: the version that it had.
    rested: Option<u64>,
    /// The ruleset is another one since [`follow`](Self::follow) was called last.
    is_new: bool,
    pub(super) counters: TableMap<LocalCounters>,
    /// Counters of the other workers that use this ruleset.
    pub(super) others: TableMap<Vec<Arc<SharedCounters>>>,
    pub(super) devices: TableMap<Box<dyn AsyncEngine>>,
    /// The tables behind the caches: stateful stages and route tables.
    pub(super) stages: TableMap<StageTable>,
    pub(super) meters: Meters,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self::new()
    }
}

impl Pipeline {
    /// Makes a pipeline without tables: drops everything.
    pub fn new() -> Self {
        Self {
            ruleset: Arc::default(),
            writer: Some(RuleIndex::default()),
            source: None,
            rested: None,
            is_new: false,
            counters: TableMap::default(),
            others: TableMap::default(),
            devices: TableMap::default(),
            stages: TableMap::default(),
            meters: Meters::default(),
        }
    }

    /// Returns the ruleset in force.
    #[inline]
    pub fn ruleset(&self) -> &Arc<Ruleset> {
        &self.ruleset
    }

    /// Returns the ruleset and its rule index for a change; `None` if they are not owned here.
    fn own(&mut self) -> Option<(&mut Ruleset, &mut RuleIndex)> {
        Some((Arc::get_mut(&mut self.ruleset)?, self.writer.as_mut()?))
    }

    /// Adds a table, or replaces one of this number together with its rules.
    ///
    /// # Panics
    /// If `Control` owns the rules, as with every method that adds tables.
    pub fn add_table(&mut self, number: u8, name: &str, classifier: Box<dyn ReplicatedEngine>, miss: Miss) {
        self.add(number, name, Engine::Now(classifier), miss, Vec::new());
    }

    /// Adds an offloaded table. It must not be replaced while packets wait for its answers.
    pub fn add_deferred_table(&mut self, number: u8, name: &str, deferred: Box<dyn AsyncEngine>, miss: Miss) {
        self.add(number, name, Engine::Later(deferred), miss, Vec::new());
    }

    /// Lets rules that are added from now on learn into tables that will be added later, as a table's own rules into itself.
    ///
    /// # Panics
    /// As [`add_table`](Self::add_table).
    pub(crate) fn expect_tables(&mut self, numbers: impl IntoIterator<Item = u8>) {
        let (ruleset, _) = self.own().expect("no control owns the rules");
        numbers.into_iter().for_each(|number| ruleset.expect_table(number));
    }

    /// Adds a table with these rules, or replaces one of this number, with the engine that `build` makes of all rules at once, in
    /// their order. The result is as if [`add_rule`](Self::add_rule) had added them one by one; the tables that they lead to must
    /// exist.
    ///
    /// # Errors
    /// If a rule leads nowhere or no engine can be built; the pipeline is unchanged.
    pub fn add_table_of<E>(
        &mut self,
        number: u8,
        name: &str,
        rules: Vec<Rule>,
        miss: Miss,
        build: impl FnOnce(&[Given<'_>]) -> Result<Engine, E>,
    ) -> Result<(), NotAdded<E>> {
        let mut kept: Vec<Rule> = Vec::with_capacity(rules.len());
        let mut places: HashMap<RuleKey, usize> = HashMap::with_capacity(rules.len());
        for rule in rules {
            let rule = Rule { table: number, ..rule };
            let checked = self.ruleset.check_actions(&rule).and_then(|()| without_recirc_id(&rule));
            let rule = match checked.map(Cow::into_owned) {
                Ok(rule) => rule,
                Err(error) => return Err(NotAdded::Rule(Box::new(rule), error)),
            };
            match places.entry((rule.priority, rule.matches.clone())) {
                Place::Occupied(before) => kept[*before.get()] = rule,
                Place::Vacant(place) => {
                    place.insert(kept.len());
                    kept.push(rule);
                }
            }
        }
        let ordinary = (0u32..).zip(&kept).filter(|(_, rule)| !is_conjunctive(&rule.actions));
        let given: Vec<Given<'_>> =
            ordinary.map(|(id, rule)| (RuleId(id), rule.priority, &rule.matches)).collect();
        let engine = build(&given).map_err(NotAdded::Engine)?;
        if let (Engine::Later(_), Some(rule)) =
            (&engine, kept.iter().find(|rule| is_conjunctive(&rule.actions)))
        {
            return Err(NotAdded::Rule(Box::new(rule.clone()), RulesetError::ConjunctionOnDevice));
        }
        self.add(number, name, engine, miss, kept);
        Ok(())
    }

    fn add(&mut self, number: u8, name: &str, engine: Engine, miss: Miss, rules: Vec<Rule>) {
        let mut entries: Vec<Entry> = rules.into_iter().map(Entry::new).collect();
        let mut counters = LocalCounters::default();
        counters.grow(entries.len());
        self.counters.insert(number, counters);
        let engine = match engine {
            Engine::Now(classifier) => {
                self.devices.remove(number);
                Some(classifier)
            }
            Engine::Later(deferred) => {
                self.devices.insert(number, deferred);
                None
            }
        };
        let mut table = Table::new(name, engine, miss);
        let (ruleset, writer) = self.own().expect("no `Control` owns the rules");
        writer.add_table(number, &mut entries);
        table.adopt(entries.into_iter().map(Arc::new));
        ruleset.add_table(number, table);
    }

    /// Returns whether any table is offloaded.
    #[inline]
    pub fn defers(&self) -> bool {
        !self.devices.is_empty()
    }

    /// Changes the ruleset before it is shared.
    #[cfg(test)]
    pub(super) fn apply(&mut self, event: Event) {
        let ruleset = Arc::get_mut(&mut self.ruleset).expect("not shared yet");
        ruleset.apply(Arc::new(event)).expect("the change is accepted");
    }

    /// Adds a group before the ruleset is shared, or replaces the one of its number.
    ///
    /// # Errors
    /// If the group is invalid.
    ///
    /// # Panics
    /// If `Control` owns the rules.
    pub fn add_group(&mut self, group: Group) -> Result<(), GroupError> {
        let group = self.ruleset.compile_group(group)?;
        let (ruleset, _) = self.own().expect("no `Control` owns the rules");
        let event = Event::Group { id: group.group.id, group: Some(group) };
        ruleset.apply(Arc::new(event)).expect("a group can always be set");
        Ok(())
    }

    /// Adds a route table. No other table may have its number.
    pub fn add_routes(&mut self, number: u8, routes: RouteTable) {
        self.add_stage(number, StageTable::of_routes(routes));
    }

    /// Puts a route table in the place of the one with this number, whose counters it takes over. Returns that one; the new one, if
    /// there is none.
    pub fn replace_routes(&mut self, number: u8, mut routes: RouteTable) -> RouteTable {
        let Some(AnyStage::Routes(before)) = self.stages.get_mut(number).map(|table| &mut table.stage) else {
            return routes;
        };
        routes.take_counters(before);
        std::mem::replace(before, routes)
    }

    /// Returns the route tables, in order.
    pub fn route_tables(&self) -> impl Iterator<Item = (u8, &RouteTable)> {
        self.stages.iter().filter_map(|(number, stage)| Some((number, stage.as_routes()?)))
    }

    /// Returns a route table.
    pub fn routes(&self, number: u8) -> Option<&RouteTable> {
        self.stages.get(number)?.as_routes()
    }

    /// Adds a stateful stage. No other table may have its number.
    pub fn add_stage(&mut self, number: u8, stage: StageTable) {
        let is_ordered = stage.is_ordered();
        self.stages.insert(number, stage);
        self.own().expect("no `Control` owns the rules").0.add_post_cache(number, is_ordered);
    }

    /// Returns the stateful stages without the route tables, in order.
    pub fn stages(&self) -> impl Iterator<Item = (u8, &StageTable)> {
        self.stages.iter().filter(|(_, stage)| stage.as_routes().is_none())
    }

    /// Returns all stages, in order. A change to their state changes no megaflow.
    pub fn stages_mut(&mut self) -> impl Iterator<Item = (u8, &mut StageTable)> {
        self.stages.iter_mut()
    }

    /// Returns the stages that must see the packets of a burst in their order.
    #[inline]
    pub(crate) fn ordered_stages(&self) -> TableSet {
        self.ruleset.ordered_stages()
    }

    /// Returns the stage with this number.
    #[inline]
    pub fn stage(&self, number: u8) -> Option<&StageTable> {
        self.stages.get(number)
    }

    /// Returns the stage with this number for a change.
    #[inline]
    pub fn stage_mut(&mut self, number: u8) -> Option<&mut StageTable> {
        self.stages.get_mut(number)
    }

    /// Returns whether this table is behind the caches.
    #[inline]
    pub fn is_post_cache(&self, number: u8) -> bool {
        self.ruleset.is_post_cache(number)
    }

    /// Returns a number that changes whenever the result of a lookup may have changed.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.ruleset.generation()
    }

    /// Returns the tables of rules, in order.
    pub fn tables(&self) -> impl Iterator<Item = (u8, TableView<'_>)> {
        self.ruleset.tables().map(|(number, table)| (number, self.view(number, table)))
    }

    pub fn table(&self, number: u8) -> Option<TableView<'_>> {
        Some(self.view(number, self.ruleset.table(number)?))
    }

    fn view<'a>(&'a self, number: u8, table: &'a Table) -> TableView<'a> {
        let own = self.counters.get(number).expect("every table has counters").tally();
        let others = self.others.get(number).into_iter().flatten();
        let tallies: Vec<&Arc<SharedCounters>> = std::iter::once(own).chain(others).collect();
        let device = self.devices.get(number).map(|device| &**device);
        let missed = tallies.iter().map(|tally| tally.missed().packets).sum();
        TableView { name: &table.name, miss: table.miss, missed, table, device, tallies }
    }

    /// Returns a table of rules that packets enter, with its counters.
    #[inline]
    pub(crate) fn entered(&self, number: u8) -> Option<(&Table, &LocalCounters)> {
        Some((self.ruleset.table(number)?, self.counters.get(number)?))
    }

    /// Looks up the rules of lanes, and prefetches the rules' data and counters.
    #[inline]
    pub(crate) fn find(
        &self,
        number: u8,
        keys: &[FlowKey],
        lanes: LaneMask,
        hits: &mut [Option<Hit>; LANES_MAX],
    ) {
        match (self.devices.get(number), self.entered(number)) {
            (Some(device), _) => device.lookup_lanes(keys, lanes, hits),
            (None, Some((table, counters))) => {
                table.find(keys, lanes, hits);
                for hit in lanes.lanes().filter_map(|lane| hits[lane]) {
                    table.prefetch(hit.rule);
                    counters.prefetch(hit.rule);
                }
            }
            (None, None) => {}
        }
    }

    /// Returns the engine of an offloaded table.
    pub fn deferred(&self, number: u8) -> Option<&dyn AsyncEngine> {
        self.devices.get(number).map(|device| &**device)
    }

    /// Returns the engine of an offloaded table for a change.
    pub fn deferred_mut(&mut self, number: u8) -> Option<&mut dyn AsyncEngine> {
        self.devices.get_mut(number).map(|device| &mut **device as &mut dyn AsyncEngine)
    }

    /// Returns the offloaded tables, in order.
    pub fn deferred_tables(&self) -> impl Iterator<Item = (u8, &dyn AsyncEngine)> {
        self.devices.iter().map(|(number, device)| (number, &**device))
    }

    /// Replaces the steps that a rule's actions compile to.
    #[cfg(test)]
    pub(super) fn replace_steps(&mut self, table: u8, id: RuleId, steps: crate::ruleset::Steps) {
        let (ruleset, _) = self.own().expect("nothing else changes the rules");
        ruleset.table_mut(table).expect("it is there").replace_steps(id, steps);
    }

    /// Adds a rule to the table that it names. A rule of the same priority and match is replaced, its
    /// counters kept, as OpenFlow's `add` does.
    ///
    /// # Errors
    /// If the rule leads nowhere, the table refuses it or `Control` owns the rules; the pipeline is unchanged.
    pub fn add_rule(&mut self, rule: Rule) -> Result<RuleId, RulesetError> {
        self.ruleset.check(&rule)?;
        let rule = without_recirc_id(&rule)?.into_owned();
        let number = rule.table;
        if self.devices.contains(number) && is_conjunctive(&rule.actions) {
            return Err(RulesetError::ConjunctionOnDevice);
        }
        let tally = self.counters.get(number).map(|counters| counters.tally().clone());
        let base = |id| tally.expect("every table has counters").of([id])[0];
        let (ruleset, writer) = self.own().ok_or(RulesetError::Controlled)?;
        let found = writer.find(number, &(rule.priority, rule.matches.clone()));
        let table = ruleset.table(number).expect("checked above");
        let before = found.map(|id| (id, &**table.rule(id).expect("it has a name")));
        let change = writer.add(Entry::new(rule), before, base);
        self.change(change)
    }

    /// Removes a rule and returns it with its counters; `None` if it does not exist or `Control` owns the rules.
    pub fn remove_rule(&mut self, table: u8, id: RuleId) -> Option<RuleEntry> {
        let counted = self.counters.get(table)?.get(id);
        let (ruleset, writer) = self.own()?;
        let entry = ruleset.table(table)?.rule(id)?.clone();
        let FlowStats { packets, bytes } = counted.since(entry.base);
        let rule = entry.rule.clone();
        let change = writer.remove(id, entry, ruleset.version() + 1);
        self.change(change).expect("a rule may always go");
        Some(RuleEntry { rule, packets, bytes })
    }

    fn change(&mut self, change: Change) -> Result<RuleId, RulesetError> {
        let number = change.table;
        let applied = self.tell_device(&change).and_then(|()| {
            let (ruleset, _) = self.own().expect("asked before");
            ruleset.forget(EVENTS_KEPT);
            ruleset.apply(Arc::new(Event::Rule(change.clone())))
        });
        match applied {
            Ok(()) => {
                self.make_room(number);
                Ok(change.id)
            }
            Err(error) => {
                self.own().expect("asked before").1.undo(&change);
                Err(error)
            }
        }
    }

    /// Applies a change to the table's device, if it has one.
    fn tell_device(&mut self, change: &Change) -> Result<(), RulesetError> {
        let Some(device) = self.devices.get_mut(change.table) else { return Ok(()) };
        change.tell(&mut **device).map_err(|source| RulesetError::Insert { table: change.table, source })
    }

    /// Grows a table's counters to its number of rules.
    fn make_room(&mut self, number: u8) {
        let rules = self.ruleset.table(number).map_or(0, Table::handles_end);
        if let Some(counters) = self.counters.get_mut(number) {
            counters.grow(rules);
        }
    }

    /// Returns the rule with this priority and match, if there is one.
    pub fn find_rule(&self, table: u8, priority: Priority, matches: &Match) -> Option<RuleId> {
        let of = |(id, entry): (RuleId, &Arc<Entry>)| {
            (entry.rule.priority == priority && entry.rule.matches == *matches).then_some(id)
        };
        match &self.writer {
            Some(writer) => writer.find(table, &(priority, matches.clone())),
            None => self.ruleset.table(table)?.rules().find_map(of),
        }
    }

    /// Credits a rule, or a table's misses where `rule` is none.
    pub fn credit(&mut self, table: u8, rule: Option<RuleId>, packets: u64, bytes: u64) {
        if let Some(counters) = self.counters.get(table) {
            counters.count(rule, packets, bytes);
        }
    }

    /// Returns the number of counter requests so far, for [`release`](Self::release) once the paths' counters are collected.
    pub(crate) fn wanted(&self) -> u64 {
        self.source.as_ref().map_or(0, RulesetReader::wanted)
    }

    /// Reports that the paths' counters are collected: the IDs of removed rules may be reused, except where a device may still
    /// answer with them.
    pub(crate) fn release(&mut self, wanted: u64) {
        if let Some(source) = &self.source {
            source.collected(wanted);
        } else if let Some(writer) = &mut self.writer {
            writer.release(self.ruleset.version(), |table| self.devices.contains(table));
        }
    }

    /// Returns whether the paths' counters must be collected.
    #[inline]
    pub(crate) fn wants_counters(&self) -> bool {
        match (&self.source, &self.writer) {
            (Some(source), _) => source.wants_counters(),
            (None, Some(writer)) => writer.retired() > RETIRED_MAX,
            (None, None) => false,
        }
    }

    /// Hands the rules over to control, with a copy of the ruleset; `None` if they are not owned here. From now on this worker
    /// follows publications.
    pub(crate) fn share(&mut self) -> Option<Handed> {
        let writer = self.writer.take()?;
        if let Some(ruleset) = Arc::get_mut(&mut self.ruleset) {
            ruleset.defer_rebuilds();
        }
        let copy = Arc::new(self.ruleset.duplicate());
        let published = Arc::new(PublishedRuleset::new(self.ruleset.clone()));
        let reader = self.subscribe(&published);
        let devices = self.devices.map(|_| ());
        Some(Handed { writer, copy, published, reader, devices })
    }

    /// Follows `published` from now on; returns this worker's epoch.
    pub(crate) fn subscribe(&mut self, published: &Arc<PublishedRuleset>) -> Arc<WorkerEpoch> {
        let reader = Arc::new(WorkerEpoch::new(self.counters.map(|counters| counters.tally().clone())));
        self.source = Some(RulesetReader::new(published.clone(), reader.clone()));
        reader
    }

    /// Returns `others` pipelines for other workers, with the same ruleset and their own counters. Ordered stages, of which each
    /// worker has its own shard, must be [set](Self::set_stage). From now on only [`Control`](crate::control::Control) changes
    /// rules.
    ///
    /// # Panics
    /// If a table is offloaded: its device has one session, with one worker.
    pub fn fork(&mut self, others: usize) -> Vec<Self> {
        assert!(!self.defers(), "a device answers one worker");
        if let Some(ruleset) = Arc::get_mut(&mut self.ruleset) {
            ruleset.defer_rebuilds();
        }
        let fork = |_| Self {
            ruleset: self.ruleset.clone(),
            writer: None,
            source: None,
            rested: None,
            is_new: false,
            counters: self.counters.map(LocalCounters::alike),
            others: TableMap::default(),
            devices: TableMap::default(),
            stages: self.shared_stages(),
            meters: self.meters.clone(),
        };
        let mut forks: Vec<Self> = (0..others).map(fork).collect();
        let tallies = |worker: &Self| worker.counters.map(|counters| counters.tally().clone());
        let all: Vec<_> = std::iter::once(&*self).chain(&forks).map(tallies).collect();
        for (place, worker) in std::iter::once(self).chain(&mut forks).enumerate() {
            let of_others = |number| {
                let others = all.iter().enumerate().filter(|(other, _)| *other != place);
                others.filter_map(|(_, tallies)| tallies.get(number).cloned()).collect()
            };
            for (number, _) in worker.ruleset.tables() {
                worker.others.insert(number, of_others(number));
            }
        }
        forks
    }

    /// Returns the stages that other workers share: the route tables.
    fn shared_stages(&self) -> TableMap<StageTable> {
        let mut shared = TableMap::default();
        for (number, routes) in self.route_tables() {
            shared.insert(number, StageTable::of_routes(routes.share()));
        }
        shared
    }

    /// Sets this worker's shard of a stage that the ruleset has.
    ///
    /// # Panics
    /// If the ruleset has no such stage.
    pub fn set_stage(&mut self, number: u8, stage: StageTable) {
        assert!(self.ordered_stages().has(number), "the ruleset has no stage {number}");
        self.stages.insert(number, stage);
    }

    /// Returns whether rules only forward packets unchanged, and no table is offloaded.
    pub(crate) fn only_forwards(&self) -> bool {
        self.ruleset.only_forwards() && !self.defers()
    }

    /// Returns the size of the tables in bytes.
    pub fn table_bytes(&self) -> usize {
        let rules: usize = self.tables().map(|(_, table)| table.table_bytes()).sum();
        rules + self.stages.iter().map(|(_, stage)| stage.table_bytes()).sum::<usize>()
    }
}
