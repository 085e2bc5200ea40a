//! Linear search for few rules that becomes another engine when rules are added.
//!
//! A changed table keeps its engine until another one has been built on a background thread. Linear search among the 100,000 rules
//! of one change takes 4 ms a packet until then (up to 260 ms in which nothing was forwarded). So with more than
//! [`LINEAR_RULES_MAX`] rules the table takes the engine that takes changes in place, at once.

use flowlane::classify::auto::LINEAR_RULES_MAX;
use flowlane::classify::{Hit, InsertError, LinearSearch, ReplicatedEngine, RuleEngine};
use flowlane::packet::batch::LaneMask;
use flowlane::packet::{FlowKey, FlowMask};
use flowlane::rule::{Match, Priority, RuleId};

use super::engine;
use crate::datapath::Given;
use crate::mgmt::config::TableSection;

/// Few rules, or those that they have become.
pub(super) struct FewRules {
    table: TableSection,
    seed: u32,
    engine: Engine,
}

enum Engine {
    Few(LinearSearch),
    Many(Box<dyn ReplicatedEngine>),
}

impl FewRules {
    pub(super) fn new(table: &TableSection, rules: &[Given<'_>], seed: u32) -> Result<Self, InsertError> {
        let mut few =
            Self { table: table.clone(), seed, engine: Engine::Few(LinearSearch::new(table.rules_max)) };
        rules.iter().try_for_each(|(id, priority, matches)| few.insert(*id, *priority, matches))?;
        Ok(few)
    }

    fn engine(&self) -> &dyn ReplicatedEngine {
        match &self.engine {
            Engine::Few(linear) => linear,
            Engine::Many(engine) => &**engine,
        }
    }

    fn engine_mut(&mut self) -> &mut dyn ReplicatedEngine {
        match &mut self.engine {
            Engine::Few(linear) => linear,
            Engine::Many(engine) => &mut **engine,
        }
    }
}

impl RuleEngine for FewRules {
    fn name(&self) -> &'static str {
        self.engine().name()
    }

    fn insert(&mut self, id: RuleId, priority: Priority, matches: &Match) -> Result<(), InsertError> {
        self.engine_mut().insert(id, priority, matches)?;
        if let Engine::Few(linear) = &self.engine
            && linear.len() > LINEAR_RULES_MAX
        {
            let rules: Vec<Given<'_>> = linear.rules().collect();
            // Without memory for another engine, the present one stays.
            if let Ok(mut engine) = engine::changing(&self.table, &rules, self.seed) {
                engine.defer_rebuilds();
                self.engine = Engine::Many(engine);
            }
        }
        Ok(())
    }

    fn remove(&mut self, id: RuleId) -> bool {
        self.engine_mut().remove(id)
    }

    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> bool {
        self.engine_mut().replace(id, priority, matches)
    }

    fn lookup(&self, key: &FlowKey) -> Option<Hit> {
        self.engine().lookup(key)
    }

    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<Hit> {
        self.engine().lookup_wildcards(key, looked_at)
    }

    fn lookup_batch(&self, keys: &[FlowKey], hits: &mut [Option<Hit>]) {
        self.engine().lookup_batch(keys, hits);
    }

    fn lookup_lanes(&self, keys: &[FlowKey], lanes: LaneMask, hits: &mut [Option<Hit>]) {
        self.engine().lookup_lanes(keys, lanes, hits);
    }

    fn rules_max(&self) -> Option<usize> {
        Some(self.table.rules_max)
    }

    fn len(&self) -> usize {
        self.engine().len()
    }

    fn table_bytes(&self) -> usize {
        self.engine().table_bytes()
    }
}

impl ReplicatedEngine for FewRules {
    fn clone_box(&self) -> Box<dyn ReplicatedEngine> {
        let engine = match &self.engine {
            Engine::Few(linear) => Engine::Few(linear.clone()),
            Engine::Many(engine) => Engine::Many(engine.clone_box()),
        };
        Box::new(Self { table: self.table.clone(), seed: self.seed, engine })
    }

    fn engine_name(&self) -> &'static str {
        self.engine().engine_name()
    }

    fn defer_rebuilds(&mut self) {
        self.engine_mut().defer_rebuilds();
    }

    fn prepare_changes(&mut self) {
        self.engine_mut().prepare_changes();
    }

    fn takes_changes(&self) -> bool {
        self.engine().takes_changes()
    }

    fn pending_updates(&self) -> usize {
        self.engine().pending_updates()
    }
}
