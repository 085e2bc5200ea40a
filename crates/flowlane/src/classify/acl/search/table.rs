//! An [`Acl`] over words of the flow key, of any width.

use super::shape::FlowShape;
use super::{FlowExplanation, Rule, Rules};
use crate::classify::Hit;
use crate::classify::acl::table::AclContest;
use crate::classify::acl::{Acl, AclConfig, AclEngine, BuildError};
use crate::isa::Variant;
use crate::packet::batch::{LANES_MAX, LaneMask};
use crate::packet::columns::FlowColumns;
use crate::packet::{FlowKey, FlowMask};
use crate::rule::{Match, Priority, RuleId};

/// Keys that are projected at a time: what the tree's widest kernel has on its way at once.
const CHUNK: usize = 128;

/// What an [`AclSearch`](super::AclSearch) asks of its table.
pub(super) trait FlowTable: Send + Sync + std::fmt::Debug {
    fn clone_box(&self) -> Box<dyn FlowTable>;
    fn suits(&self, matches: &Match) -> bool;
    fn insert(
        &mut self,
        id: RuleId,
        priority: Priority,
        matches: &Match,
        categories: u16,
    ) -> Result<(), BuildError>;
    fn remove(&mut self, id: RuleId) -> bool;
    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> Result<bool, BuildError>;
    fn rebuild(&mut self) -> Result<(), BuildError>;
    fn rebuild_with(&mut self, engine: AclEngine) -> Result<(), BuildError>;
    fn choose(
        &mut self,
        sample: &[FlowKey],
        clock: &mut dyn FnMut() -> u64,
    ) -> Result<AclContest, BuildError>;
    fn changes(&self) -> usize;
    fn defer_rebuilds(&mut self);
    fn lookup(&self, key: &FlowKey) -> Option<Hit>;
    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<RuleId>;
    fn lookup_batch(&self, keys: &[FlowKey], hits: &mut [Option<Hit>]);
    fn lookup_columns(&self, packets: &FlowColumns<'_>, categories: usize, rules: &mut [u32]);
    fn lookup_lanes(&self, keys: &[FlowKey], lanes: LaneMask, hits: &mut [Option<Hit>]);
    fn lookup_categories(&self, keys: &[FlowKey], categories: usize, hits: &mut [Option<Hit>]);
    fn explain(&self, key: &FlowKey) -> FlowExplanation;
    fn engine(&self) -> (&'static str, Variant);
    fn table_bytes(&self) -> usize;
}

#[derive(Clone, Debug)]
pub(super) struct Projected<const W: usize> {
    pub(super) acl: Acl<W>,
    pub(super) shape: FlowShape,
}

/// A table of these rules, in the narrowest key that their words fit.
pub(super) fn table(
    shape: FlowShape,
    config: AclConfig,
    rules: &Rules,
) -> Result<Box<dyn FlowTable>, BuildError> {
    match shape.words.len() {
        // Each width is compiled for every kernel of every engine: only those that common lists need.
        ..=4 => Projected::<4>::build(shape, config, rules),
        5..=10 => Projected::<10>::build(shape, config, rules),
        11..=16 => Projected::<16>::build(shape, config, rules),
        _ => Projected::<64>::build(shape, config, rules),
    }
}

/// Earlier rules first.
fn in_order(rules: &Rules) -> Vec<(&RuleId, &Rule)> {
    let mut ordered: Vec<_> = rules.iter().collect();
    ordered.sort_by_key(|(_, rule)| rule.sequence);
    ordered
}

impl<const W: usize> Projected<W> {
    fn build(shape: FlowShape, config: AclConfig, rules: &Rules) -> Result<Box<dyn FlowTable>, BuildError> {
        let layout = shape.layout();
        let entries = in_order(rules).into_iter().map(|(id, rule)| {
            let condition = shape.condition(&layout, &rule.matches);
            (*id, rule.priority, condition.expect("the shape was made for these rules"), rule.categories)
        });
        let acl = Acl::build(layout.clone(), config, entries)?;
        Ok(Box::new(Self { acl, shape }))
    }

    fn project(&self, key: &FlowKey) -> Option<[u32; W]> {
        self.shape.passes(key).then(|| self.acl.layout().flow_key(key))
    }
}

impl<const W: usize> FlowTable for Projected<W> {
    fn clone_box(&self) -> Box<dyn FlowTable> {
        Box::new(self.clone())
    }

    fn suits(&self, matches: &Match) -> bool {
        self.shape.suits(matches)
    }

    fn insert(
        &mut self,
        id: RuleId,
        priority: Priority,
        matches: &Match,
        categories: u16,
    ) -> Result<(), BuildError> {
        let condition = self.shape.condition(self.acl.layout(), matches);
        self.acl.insert(id, priority, condition.expect("asked before whether it suits"), categories)
    }

    fn remove(&mut self, id: RuleId) -> bool {
        self.acl.remove(id)
    }

    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> Result<bool, BuildError> {
        let condition = self.shape.condition(self.acl.layout(), matches);
        let categories = self.acl.get(id).map_or(1, |entry| entry.categories);
        self.acl.replace(id, priority, condition.expect("asked before whether it suits"), categories)
    }

    fn rebuild(&mut self) -> Result<(), BuildError> {
        self.acl.rebuild()
    }

    fn rebuild_with(&mut self, engine: AclEngine) -> Result<(), BuildError> {
        self.acl.rebuild_with(engine)
    }

    fn choose(
        &mut self,
        sample: &[FlowKey],
        clock: &mut dyn FnMut() -> u64,
    ) -> Result<AclContest, BuildError> {
        let sample: Vec<_> = sample.iter().filter_map(|key| self.project(key)).collect();
        self.acl.choose(&sample, clock)
    }

    fn changes(&self) -> usize {
        self.acl.changes()
    }

    fn defer_rebuilds(&mut self) {
        self.acl.defer_rebuilds();
    }

    fn lookup(&self, key: &FlowKey) -> Option<Hit> {
        self.acl.lookup(&self.project(key)?)
    }

    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<RuleId> {
        if let Some(gate) = self.shape.stopped_by(key) {
            looked_at.or_word(gate.word.into(), gate.mask);
            return None;
        }
        self.shape.gates.iter().for_each(|gate| looked_at.or_word(gate.word.into(), gate.mask));
        let told = self.acl.depends(&self.acl.layout().flow_key(key));
        for ((word, _), bits) in self.shape.words.iter().zip(told.looked_at) {
            looked_at.or_word((*word).into(), bits);
        }
        told.winner
    }

    fn lookup_batch(&self, keys: &[FlowKey], hits: &mut [Option<Hit>]) {
        let mut projected = [[0; W]; CHUNK];
        let mut places = [0u8; CHUNK];
        let mut found = [None; CHUNK];
        for (keys, hits) in keys.chunks(CHUNK).zip(hits.chunks_mut(CHUNK)) {
            let mut count = 0;
            for (place, key) in keys.iter().enumerate() {
                projected[count] = self.acl.layout().flow_key(key);
                places[count] = place as u8;
                count += usize::from(self.shape.passes(key));
            }
            self.acl.lookup_hits(&projected[..count], &mut found[..count]);
            if count == keys.len() {
                hits.copy_from_slice(&found[..count]);
                continue;
            }
            hits.fill(None);
            places[..count].iter().zip(&found).for_each(|(place, hit)| hits[usize::from(*place)] = *hit);
        }
    }

    fn lookup_columns(&self, packets: &FlowColumns<'_>, categories: usize, rules: &mut [u32]) {
        super::columns::lookup(self, packets, categories, rules);
    }

    fn lookup_lanes(&self, keys: &[FlowKey], lanes: LaneMask, hits: &mut [Option<Hit>]) {
        let mut projected = [[0; W]; LANES_MAX];
        let mut places = [0u8; LANES_MAX];
        let mut found = [None; LANES_MAX];
        let mut count = 0;
        for lane in lanes.lanes() {
            let key = &keys[lane];
            projected[count] = self.acl.layout().flow_key(key);
            places[count] = lane as u8;
            count += usize::from(self.shape.passes(key));
            hits[lane] = None;
        }
        self.acl.lookup_hits(&projected[..count], &mut found[..count]);
        places[..count].iter().zip(&found).for_each(|(place, hit)| hits[usize::from(*place)] = *hit);
    }

    fn lookup_categories(&self, keys: &[FlowKey], categories: usize, hits: &mut [Option<Hit>]) {
        let mut projected = [[0; W]; CHUNK];
        let mut places = [0u8; CHUNK];
        let mut found = [None; CHUNK];
        let chunk = CHUNK / categories;
        for (keys, hits) in keys.chunks(chunk).zip(hits.chunks_mut(chunk * categories)) {
            let mut count = 0;
            for (place, key) in keys.iter().enumerate() {
                projected[count] = self.acl.layout().flow_key(key);
                places[count] = place as u8;
                count += usize::from(self.shape.passes(key));
            }
            let found = &mut found[..count * categories];
            self.acl.lookup_category_hits(&projected[..count], categories, found);
            hits.fill(None);
            for (place, found) in places.iter().zip(found.chunks(categories)) {
                hits[usize::from(*place) * categories..][..categories].copy_from_slice(found);
            }
        }
    }

    fn explain(&self, key: &FlowKey) -> FlowExplanation {
        let mut looked_at = FlowMask::zero();
        self.lookup_wildcards(key, &mut looked_at);
        let told = self.project(key).map(|key| self.acl.explain(&key));
        let (engine, variant) = self.engine();
        FlowExplanation {
            winner: told.as_ref().and_then(|t| t.winner),
            runner_up: told.as_ref().and_then(|t| t.runner_up),
            engine,
            variant,
            nodes: told.as_ref().map_or(0, |t| t.nodes),
            rules: told.as_ref().map_or(0, |t| t.rules),
            looked_at,
        }
    }

    fn engine(&self) -> (&'static str, Variant) {
        (self.acl.engine_name(), self.acl.variant())
    }

    fn table_bytes(&self) -> usize {
        self.acl.table_bytes()
    }
}
