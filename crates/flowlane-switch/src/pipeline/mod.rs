//! The rule tables, and the way of a packet through them.
//!
//! [`Pipeline::translate`] follows a key from table to table and flattens what the winning rules do into
//! one list of [`Step`]s, together with the mask of the bits that this depended on: that is a megaflow.
//! The caches then spare all later packets of the megaflow the tables.

mod actions;
mod by_number;
mod path;
pub mod route;
mod rules;
#[cfg(test)]
mod tests;
mod translate;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

pub use actions::{BehindError, steps_behind};
use by_number::{ByNumber, Numbers};
pub use path::{Gist, Path, PathId, Paths, Program, Seen, Step};
pub use route::RouteTable;
pub use rules::RuleEntry;
use rules::Rules;
pub use translate::{Translation, Walk};

use flowlane::classify::{Classifier, Deferred, Hit, InsertError};
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::key::FlowKey;
use flowlane::rule::action::HEADERS_PUSHED_MAX;
use flowlane::rule::{Action, Match, Priority, Rule, RuleId};

use crate::function::Function;

/// What happens to a packet that no rule of a table matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Miss {
    /// It is dropped (OpenFlow 1.3's default).
    #[default]
    Drop,
    /// It goes to the controller port.
    Controller,
    /// It goes on in the next table.
    Continue,
}

/// What finds rules in a table.
pub enum Engine {
    /// It answers at once.
    Now(Box<dyn Classifier>),
    /// It answers later.
    Later(Box<dyn Deferred>),
}

/// A rule as engines are given it.
pub type Given<'a> = (RuleId, Priority, &'a Match);

/// One table of the pipeline.
pub struct Table {
    /// For reports; empty where none was given.
    pub name: String,
    /// What happens to packets that match nothing.
    pub miss: Miss,
    /// Packets that matched nothing.
    pub missed: u64,
    engine: Engine,
    rules: Rules,
    /// What is done with packets that match nothing.
    missing: Program,
    identities: HashMap<(Priority, Match), RuleId>,
}

impl Table {
    /// The rules with their counters, in order of insertion.
    pub fn rules(&self) -> impl Iterator<Item = (RuleId, RuleEntry<&Rule>)> {
        self.rules.iter()
    }

    /// Counts packets for the rule that they matched, or among those that matched none. A rule that has gone since is not
    /// missed.
    fn count(&mut self, rule: Option<RuleId>, packets: u64, bytes: u64) {
        match rule {
            None => self.missed += packets,
            Some(id) => self.rules.count(id, packets, bytes),
        }
    }

    /// Finds the rules of some lanes' packets, and asks for what [`take`](Self::take) will touch.
    #[inline]
    pub(crate) fn find(&self, keys: &[FlowKey], lanes: LaneMask, hits: &mut [Option<Hit>; LANES_MAX]) {
        self.classifier().lookup_lanes(keys, lanes, hits);
        lanes.lanes().filter_map(|lane| hits[lane]).for_each(|hit| self.rules.prefetch(hit.rule));
    }

    /// Counts a packet. Gives what is to be done with it.
    #[inline]
    pub(crate) fn take(&mut self, rule: Option<RuleId>, bytes: u64) -> Gist {
        match rule {
            Some(id) => self.rules.take(id, bytes),
            None => {
                self.missed += 1;
                self.missing.gist()
            }
        }
    }

    /// What is done with packets that match this rule, or none.
    ///
    /// # Panics
    /// Where there is no such rule.
    #[inline]
    pub fn program(&self, rule: Option<RuleId>) -> &Program {
        rule.map_or(&self.missing, |id| self.rules.program(id))
    }

    /// The engine that finds rules here.
    pub fn classifier(&self) -> &dyn Classifier {
        match &self.engine {
            Engine::Now(classifier) => &**classifier,
            Engine::Later(deferred) => &**deferred,
        }
    }

    /// The same, if it answers later.
    pub fn deferred(&self) -> Option<&dyn Deferred> {
        match &self.engine {
            Engine::Now(_) => None,
            Engine::Later(deferred) => Some(&**deferred),
        }
    }

    fn classifier_mut(&mut self) -> &mut dyn Classifier {
        match &mut self.engine {
            Engine::Now(classifier) => &mut **classifier,
            Engine::Later(deferred) => &mut **deferred,
        }
    }
}

/// Why a rule was not accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The rule names a table that does not exist.
    #[error("there is no table {0}; declare it in the configuration")]
    NoTable(u8),
    /// A `goto_table` leads to a table that does not exist.
    #[error("goto_table:{0} leads to a table that does not exist; declare it in the configuration")]
    NoGotoTable(u8),
    /// A `goto_table` does not lead onwards, so that packets might go round for ever.
    #[error("goto_table:{to} in table {from} does not lead to a later table")]
    GotoBackwards {
        /// The rule's table.
        from: u8,
        /// Where it leads.
        to: u8,
    },
    /// A step follows `goto_table`, or would.
    #[error("goto_table:{0} must be the last action of its rule")]
    GotoNotLast(u8),
    /// A rule pushes too many headers.
    #[error("{0} headers are pushed; a rule may push {HEADERS_PUSHED_MAX}")]
    Pushes(usize),
    /// The table's engine refuses it.
    #[error("table {table}: {source}")]
    Insert {
        table: u8,
        /// What the engine says.
        source: InsertError,
    },
}

/// Why a table with its rules was not added.
#[derive(Debug)]
pub enum NotAdded<E> {
    /// Because of this rule.
    Rule(Box<Rule>, PipelineError),
    /// There is no engine for them.
    Engine(E),
}

/// The tables. Table 0 comes first.
pub struct Pipeline {
    tables: ByNumber<Table>,
    routes: ByNumber<RouteTable>,
    functions: ByNumber<Function>,
    /// The tables behind the caches, and those of them that are functions: every packet that comes to one asks.
    behind: Numbers,
    is_function: Numbers,
    generation: u32,
    defers: bool,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self::new()
    }
}

impl Pipeline {
    /// A pipeline without tables: drops everything.
    pub fn new() -> Self {
        Self {
            tables: ByNumber::default(),
            routes: ByNumber::default(),
            functions: ByNumber::default(),
            behind: Numbers::default(),
            is_function: Numbers::default(),
            generation: 0,
            defers: false,
        }
    }

    /// Adds a table, or replaces one of this number together with its rules.
    pub fn add_table(&mut self, number: u8, name: &str, classifier: Box<dyn Classifier>, miss: Miss) {
        self.add(number, name, Engine::Now(classifier), miss);
    }

    /// The same with an engine that answers later. It must not be replaced while packets wait for its answers.
    pub fn add_deferred_table(&mut self, number: u8, name: &str, deferred: Box<dyn Deferred>, miss: Miss) {
        self.add(number, name, Engine::Later(deferred), miss);
    }

    /// Adds a table with these rules, or replaces one of this number, with the engine that `build` makes of all of them at
    /// once, in their order. The rules are as if [`add_rule`](Self::add_rule) had added one after the other; the tables that
    /// they lead to must be there.
    ///
    /// # Errors
    /// Where a rule leads nowhere or there is no engine for them; the pipeline is as before.
    pub fn add_table_of<E>(
        &mut self,
        number: u8,
        name: &str,
        rules: Vec<Rule>,
        miss: Miss,
        build: impl FnOnce(&[Given<'_>]) -> Result<Engine, E>,
    ) -> Result<(), NotAdded<E>> {
        let mut kept: Vec<Rule> = Vec::with_capacity(rules.len());
        let mut identities: HashMap<_, RuleId> = HashMap::with_capacity(rules.len());
        for rule in rules {
            let rule = Rule { table: number, ..rule };
            if let Err(error) = self.check(&rule) {
                return Err(NotAdded::Rule(Box::new(rule), error));
            }
            let id = RuleId(kept.len() as u32);
            match identities.entry((rule.priority, rule.matches.clone())) {
                Entry::Occupied(before) => kept[before.get().0 as usize] = rule,
                Entry::Vacant(place) => {
                    place.insert(id);
                    kept.push(rule);
                }
            }
        }
        let given: Vec<Given<'_>> =
            (0u32..).zip(&kept).map(|(id, rule)| (RuleId(id), rule.priority, &rule.matches)).collect();
        let engine = build(&given).map_err(NotAdded::Engine)?;
        self.add(number, name, engine, miss);
        let table = self.tables.get_mut(number).expect("added just now");
        kept.into_iter().for_each(|rule| table.rules.add(rule));
        table.identities = identities;
        Ok(())
    }

    fn add(&mut self, number: u8, name: &str, engine: Engine, miss: Miss) {
        let table = Table {
            name: name.to_owned(),
            miss,
            missed: 0,
            engine,
            rules: Rules::default(),
            missing: Program::default(),
            identities: HashMap::new(),
        };
        self.tables.insert(number, table);
        self.defers = self.tables.iter().any(|(_, table)| table.deferred().is_some());
        self.renew();
    }

    /// Tables have come: what led to the next one may lead elsewhere.
    fn renew(&mut self) {
        self.generation += 1;
        let numbers: Vec<u8> = self.tables.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let next = self.next_table(number).map(|table| Step::Enter { table, carry: Vec::new() });
            let table = self.tables.get_mut(number).expect("it is one of them");
            let steps = match table.miss {
                Miss::Drop => None,
                Miss::Controller => Some(Step::Do(Action::Controller { max_len: u16::MAX })),
                Miss::Continue => next,
            };
            table.missing = Program::new(Vec::from_iter(steps));
        }
    }

    /// Whether some table answers later.
    #[inline]
    pub fn defers(&self) -> bool {
        self.defers
    }

    /// Adds a table of routes. Its number must be no other table's.
    pub fn add_routes(&mut self, number: u8, routes: RouteTable) {
        self.routes.insert(number, routes);
        self.behind.add(number);
        self.renew();
    }

    /// The tables of routes, in order.
    pub fn route_tables(&self) -> impl Iterator<Item = (u8, &RouteTable)> {
        self.routes.iter()
    }

    /// A table of routes. What changes in it changes no megaflow: packets meet it after these.
    pub fn routes_mut(&mut self, number: u8) -> Option<&mut RouteTable> {
        self.routes.get_mut(number)
    }

    pub fn routes(&self, number: u8) -> Option<&RouteTable> {
        self.routes.get(number)
    }

    /// Adds a function. Its number must be no table's.
    pub fn add_function(&mut self, number: u8, function: Function) {
        self.functions.insert(number, function);
        self.behind.add(number);
        self.is_function.add(number);
        self.renew();
    }

    /// The functions, in order.
    pub fn functions(&self) -> impl Iterator<Item = (u8, &Function)> {
        self.functions.iter()
    }

    /// The functions, in order. What changes in them changes no megaflow.
    pub fn functions_mut(&mut self) -> impl Iterator<Item = (u8, &mut Function)> {
        self.functions.iter_mut()
    }

    /// Which tables are functions.
    #[inline]
    pub(crate) fn are_functions(&self) -> Numbers {
        self.is_function
    }

    pub fn function(&self, number: u8) -> Option<&Function> {
        self.functions.get(number)
    }

    pub fn function_mut(&mut self, number: u8) -> Option<&mut Function> {
        self.functions.get_mut(number)
    }

    /// Whether packets meet this table behind the caches: one of routes, or a function.
    #[inline]
    pub fn is_behind(&self, number: u8) -> bool {
        self.behind.has(number)
    }

    /// Whether there is a table of this number, of rules or behind the caches.
    pub fn has_table(&self, number: u8) -> bool {
        self.tables.contains(number) || self.is_behind(number)
    }

    /// The table behind this one.
    fn next_table(&self, number: u8) -> Option<u8> {
        let (rules, routes) = (self.tables.behind(number), self.routes.behind(number));
        rules.into_iter().chain(routes).chain(self.functions.behind(number)).min()
    }

    /// Changes whenever an answer may have changed; a megaflow of an earlier generation is made anew.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The tables, in order.
    pub fn tables(&self) -> impl Iterator<Item = (u8, &Table)> {
        self.tables.iter()
    }

    pub fn table(&self, number: u8) -> Option<&Table> {
        self.tables.get(number)
    }

    pub(crate) fn table_mut(&mut self, number: u8) -> Option<&mut Table> {
        self.tables.get_mut(number)
    }

    /// The engine of a table that answers later.
    pub fn deferred_mut(&mut self, number: u8) -> Option<&mut dyn Deferred> {
        match &mut self.tables.get_mut(number)?.engine {
            Engine::Now(_) => None,
            Engine::Later(deferred) => Some(&mut **deferred),
        }
    }

    /// The tables that answer later, in order.
    pub fn deferred_tables(&self) -> impl Iterator<Item = (u8, &dyn Deferred)> {
        self.tables.iter().filter_map(|(number, table)| Some((number, table.deferred()?)))
    }

    /// Adds a rule to the table that it names. A rule of the same priority and match is replaced, its
    /// counters kept, as OpenFlow's `add` does.
    ///
    /// # Errors
    /// Where the rule leads nowhere or the table refuses it; the pipeline is as before.
    pub fn add_rule(&mut self, rule: Rule) -> Result<RuleId, PipelineError> {
        self.check(&rule)?;
        let number = rule.table;
        let table = self.tables.get_mut(number).ok_or(PipelineError::NoTable(number))?;
        let identity = (rule.priority, rule.matches.clone());
        self.generation += 1;
        if let Some(&id) = table.identities.get(&identity) {
            table.rules.replace(id, rule);
            return Ok(id);
        }
        let id = table.rules.next();
        table
            .classifier_mut()
            .insert(id, rule.priority, &rule.matches)
            .map_err(|source| PipelineError::Insert { table: number, source })?;
        table.identities.insert(identity, id);
        table.rules.add(rule);
        Ok(id)
    }

    /// Removes a rule and returns it with its counters.
    pub fn remove_rule(&mut self, table: u8, id: RuleId) -> Option<RuleEntry> {
        let table = self.tables.get_mut(table)?;
        let entry = table.rules.remove(id)?;
        table.classifier_mut().remove(id);
        table.identities.remove(&(entry.rule.priority, entry.rule.matches.clone()));
        self.generation += 1;
        Some(entry)
    }

    /// The rule with this priority and match, if there is one.
    pub fn find_rule(&self, table: u8, priority: Priority, matches: &Match) -> Option<RuleId> {
        self.tables.get(table)?.identities.get(&(priority, matches.clone())).copied()
    }

    /// Credits a rule, or a table's misses where `rule` is none. A rule that has gone since is not missed.
    pub fn credit(&mut self, table: u8, rule: Option<RuleId>, packets: u64, bytes: u64) {
        if let Some(table) = self.tables.get_mut(table) {
            table.count(rule, packets, bytes);
        }
    }

    /// All paths have brought their counters: handles of rules that went may be used again, but where a device may still
    /// answer with them.
    pub(crate) fn release(&mut self) {
        let tables = self.tables.iter_mut().map(|(_, table)| table);
        tables.filter(|table| table.deferred().is_none()).for_each(|table| table.rules.release());
    }

    /// Rules that went since [`release`](Self::release), as far as that concerns them.
    pub(crate) fn retired(&self) -> usize {
        let tables = self.tables.iter().map(|(_, table)| table);
        tables.filter(|table| table.deferred().is_none()).map(|table| table.rules.retired()).sum()
    }

    /// Bytes that the tables occupy.
    pub fn table_bytes(&self) -> usize {
        let rules: usize = self.tables.iter().map(|(_, t)| t.classifier().table_bytes()).sum();
        let functions: usize = self.functions.iter().map(|(_, f)| f.table_bytes()).sum();
        rules + functions + self.routes.iter().map(|(_, r)| r.table_bytes()).sum::<usize>()
    }

    fn check(&self, rule: &Rule) -> Result<(), PipelineError> {
        let pushes = actions::pushes(&rule.actions);
        if pushes > HEADERS_PUSHED_MAX {
            return Err(PipelineError::Pushes(pushes));
        }
        for (i, action) in rule.actions.iter().enumerate() {
            let &Action::Goto(to) = action else { continue };
            if to <= rule.table {
                return Err(PipelineError::GotoBackwards { from: rule.table, to });
            }
            if i + 1 < rule.actions.len() {
                return Err(PipelineError::GotoNotLast(to));
            }
            if !self.has_table(to) {
                return Err(PipelineError::NoGotoTable(to));
            }
        }
        Ok(())
    }
}
