//! An [`Acl`] over words of the flow key, for keys of one width.

use std::sync::Arc;

use super::shape::FlowShape;
use super::{FlowExplanation, HasMatch};
use crate::classify::Hit;
use crate::classify::acl::table::AclContest;
use crate::classify::acl::{
    Acl, AclConfig, AclEngine, BATCH, BuildError, Condition, FEW, MatchId, keys_per_batch,
};
use crate::isa::Variant;
use crate::packet::batch::{LANES_MAX, LaneMask};
use crate::packet::columns::FlowColumns;
use crate::packet::{FlowKey, FlowMask};
use crate::rule::{Match, Priority, RuleId};

/// Changes that never cause a rebuild: a tree of twice as many rules takes 0.1 ms.
const CHANGES_MIN: usize = 16;

/// A rule with its match as it was given.
#[derive(Clone)]
pub(super) struct FlowRule {
    pub(super) id: RuleId,
    pub(super) priority: Priority,
    pub(super) matches: Arc<dyn HasMatch>,
    /// The categories in which the rule counts, one bit each.
    pub(super) categories: u16,
}

/// The operations of an [`AclSearch`](super::AclSearch) that depend on the width of the engine's keys.
pub(super) trait FlowTable: Send + Sync + std::fmt::Debug {
    fn clone_box(&self) -> Box<dyn FlowTable>;
    /// Returns the rules in the order of their insertion.
    fn rules(&self) -> Vec<FlowRule>;
    fn for_each_match(&self, look: &mut dyn FnMut(&Match));
    fn priority(&self, id: RuleId) -> Option<Priority>;
    fn len(&self) -> usize;
    /// Returns whether a match can be compiled for this table's keys.
    fn suits(&self, matches: &Match) -> bool;
    fn insert(&mut self, rule: FlowRule) -> Result<(), BuildError>;
    fn remove(&mut self, id: RuleId) -> bool;
    fn replace(
        &mut self,
        id: RuleId,
        priority: Priority,
        matches: Arc<dyn HasMatch>,
    ) -> Result<(), BuildError>;
    fn rebuild(&mut self) -> Result<(), BuildError>;
    fn rebuild_with(&mut self, engine: AclEngine) -> Result<(), BuildError>;
    fn choose(
        &mut self,
        sample: &[FlowKey],
        clock: &mut dyn FnMut() -> u64,
    ) -> Result<AclContest, BuildError>;
    /// Returns the number of changes that slow lookups down; all rules, where another build suits them better.
    fn pending_updates(&self) -> usize;
    fn defer_rebuilds(&mut self);
    fn prepare_changes(&mut self);
    fn takes_changes(&self) -> bool;
    fn rebuilds_deferred(&self) -> bool;
    fn lookup(&self, key: &FlowKey) -> Option<Hit>;
    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<Hit>;
    fn lookup_hits(&self, keys: &[FlowKey], categories: usize, hits: &mut [Option<Hit>]);
    fn lookup_numbers(&self, keys: &[FlowKey], categories: usize, rules: &mut [u32]);
    fn lookup_lanes(&self, keys: &[FlowKey], lanes: LaneMask, hits: &mut [Option<Hit>]);
    fn lookup_columns(&self, packets: &FlowColumns<'_>, categories: usize, rules: &mut [u32]);
    fn explain(&self, key: &FlowKey) -> FlowExplanation;
    fn engine(&self) -> (&'static str, Variant);
    fn table_bytes(&self) -> usize;
}

impl Clone for Box<dyn FlowTable> {
    fn clone(&self) -> Self {
        self.clone_box()
    }
}

/// The rules of an [`AclSearch`](super::AclSearch), compiled for keys of `W` words.
#[derive(Clone)]
pub(super) struct Projected<const W: usize> {
    pub(super) acl: Acl<W>,
    pub(super) shape: FlowShape,
    /// The match of the rule in each slot of `acl`: what another shape is made from.
    matches: Vec<Option<Arc<dyn HasMatch>>>,
}

impl<const W: usize> std::fmt::Debug for Projected<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Projected")
            .field("acl", &self.acl)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// Builds a table of these rules, earlier ones first among equals, in the narrowest key that their words fit.
pub(super) fn table(config: AclConfig, rules: Vec<FlowRule>) -> Result<Box<dyn FlowTable>, BuildError> {
    let shape = FlowShape::of(rules.iter().map(|rule| rule.matches.matches()));
    match shape.words.len() {
        // Each width is compiled for every kernel of every engine: only those that common lists need.
        ..=4 => Projected::<4>::build(shape, config, rules),
        5..=10 => Projected::<10>::build(shape, config, rules),
        11..=16 => Projected::<16>::build(shape, config, rules),
        _ => Projected::<64>::build(shape, config, rules),
    }
}

impl<const W: usize> Projected<W> {
    fn build(
        shape: FlowShape,
        config: AclConfig,
        rules: Vec<FlowRule>,
    ) -> Result<Box<dyn FlowTable>, BuildError> {
        let layout = shape.layout();
        let entries = rules.iter().map(|rule| {
            let condition = shape.condition(&layout, rule.matches.matches());
            let condition = condition.expect("the shape was made for these rules");
            (rule.id, rule.priority, condition, rule.categories)
        });
        let acl = Acl::build(layout.clone(), config, entries)?;
        let mut table = Self { acl, shape, matches: Vec::new() };
        rules.into_iter().for_each(|rule| table.keep(rule.id, rule.matches));
        Ok(Box::new(table))
    }

    /// Notes the match of a rule that has just got its slot.
    fn keep(&mut self, id: RuleId, matches: Arc<dyn HasMatch>) {
        let slot = self.acl.slot(id).expect("the rule is in the table");
        if slot >= self.matches.len() {
            self.matches.resize(slot + 1, None);
        }
        self.matches[slot] = Some(matches);
    }

    fn condition(&self, matches: &Match) -> Condition<W> {
        let condition = self.shape.condition(self.acl.layout(), matches);
        condition.expect("the caller has checked that the match suits")
    }

    /// Rebuilds after a change where lookups have to make good for many, unless the owner does.
    fn merge_if_many(&mut self) {
        let changes = self.acl.changes();
        let many = changes > CHANGES_MIN && changes > self.acl.len() / 2 || self.acl.is_outgrown();
        if many && !self.acl.rebuilds_deferred() {
            // Without room for it, answers stay right.
            _ = self.acl.rebuild();
        }
    }

    fn project(&self, key: &FlowKey) -> Option<[u32; W]> {
        self.shape.passes(key).then(|| self.acl.layout().flow_key(key))
    }

    /// Projects those of the keys that pass the gates, notes their places, and returns their number.
    #[inline(always)]
    fn gather<'a, const N: usize>(
        &self,
        keys: impl Iterator<Item = (usize, &'a FlowKey)>,
        projected: &mut [[u32; W]; N],
        places: &mut [u8; N],
    ) -> usize {
        let mut count = 0;
        for (place, key) in keys {
            projected[count] = self.acl.layout().flow_key(key);
            places[count] = place as u8;
            count += usize::from(self.shape.passes(key));
        }
        count
    }

    /// Finds the hits of at most `N` lanes.
    fn lanes_by<const N: usize>(&self, keys: &[FlowKey], lanes: LaneMask, hits: &mut [Option<Hit>]) {
        let (mut projected, mut places, mut found) = ([[0; W]; N], [0; N], [None; N]);
        lanes.lanes().for_each(|lane| hits[lane] = None);
        let count = self.gather(lanes.lanes().map(|lane| (lane, &keys[lane])), &mut projected, &mut places);
        self.acl.lookup_hits(&projected[..count], 1, &mut found[..count]);
        places[..count].iter().zip(&found).for_each(|(place, hit)| hits[usize::from(*place)] = *hit);
    }

    /// Finds hits in batches of at most `N` results.
    fn hits_by<const N: usize>(&self, keys: &[FlowKey], categories: usize, hits: &mut [Option<Hit>]) {
        let (mut projected, mut places, mut found) = ([[0; W]; N], [0; N], [None; N]);
        let chunk = keys_per_batch(categories).min(N);
        for (keys, hits) in keys.chunks(chunk).zip(hits.chunks_mut(chunk * categories)) {
            let count = self.gather(keys.iter().enumerate(), &mut projected, &mut places);
            let found = &mut found[..count * categories];
            self.acl.lookup_hits(&projected[..count], categories, found);
            scatter(&places[..count], categories, found, hits, None);
        }
    }
}

impl<const W: usize> FlowTable for Projected<W> {
    fn clone_box(&self) -> Box<dyn FlowTable> {
        Box::new(self.clone())
    }

    fn rules(&self) -> Vec<FlowRule> {
        let mut entries: Vec<_> = self.acl.entries().collect();
        entries.sort_unstable_by_key(|entry| entry.rank.sequence());
        let rule = |entry: &crate::classify::acl::Entry<W>| {
            let slot = self.acl.slot(entry.rule).expect("the rule is in the table");
            let matches = self.matches[slot].clone().expect("a rule in the table has a match");
            FlowRule {
                id: entry.rule,
                priority: entry.rank.priority(),
                matches,
                categories: entry.categories,
            }
        };
        entries.into_iter().map(rule).collect()
    }

    fn for_each_match(&self, look: &mut dyn FnMut(&Match)) {
        self.matches.iter().flatten().for_each(|matches| look(matches.matches()));
    }

    fn priority(&self, id: RuleId) -> Option<Priority> {
        self.acl.get(id).map(|entry| entry.rank.priority())
    }

    fn len(&self) -> usize {
        self.acl.len()
    }

    fn suits(&self, matches: &Match) -> bool {
        self.shape.suits(matches)
    }

    fn insert(&mut self, rule: FlowRule) -> Result<(), BuildError> {
        let condition = self.condition(rule.matches.matches());
        self.acl.insert(rule.id, rule.priority, condition, rule.categories)?;
        self.keep(rule.id, rule.matches);
        self.merge_if_many();
        Ok(())
    }

    fn remove(&mut self, id: RuleId) -> bool {
        let Some(slot) = self.acl.slot(id) else { return false };
        self.acl.remove(id);
        self.matches[slot] = None;
        self.merge_if_many();
        true
    }

    fn replace(
        &mut self,
        id: RuleId,
        priority: Priority,
        matches: Arc<dyn HasMatch>,
    ) -> Result<(), BuildError> {
        let condition = self.condition(matches.matches());
        let categories = self.acl.get(id).map_or(1, |entry| entry.categories);
        let old = self.acl.slot(id).and_then(|slot| self.matches[slot].take());
        let replaced = self.acl.replace(id, priority, condition, categories);
        // Whether or not there was room, the rule has another slot.
        match (&replaced, old) {
            (Err(_), Some(old)) => self.keep(id, old),
            _ => self.keep(id, matches),
        }
        replaced?;
        self.merge_if_many();
        Ok(())
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

    fn pending_updates(&self) -> usize {
        if self.acl.is_outgrown() { self.acl.len() } else { self.acl.changes() }
    }

    fn defer_rebuilds(&mut self) {
        self.acl.defer_rebuilds();
    }

    fn prepare_changes(&mut self) {
        self.acl.prepare_changes();
    }

    fn takes_changes(&self) -> bool {
        self.acl.takes_changes()
    }

    fn rebuilds_deferred(&self) -> bool {
        self.acl.rebuilds_deferred()
    }

    fn lookup(&self, key: &FlowKey) -> Option<Hit> {
        self.acl.lookup(&self.project(key)?)
    }

    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<Hit> {
        if let Some(gate) = self.shape.stopped_by(key) {
            looked_at.or_word(gate.word.into(), gate.mask);
            return None;
        }
        self.shape.gates.iter().for_each(|gate| looked_at.or_word(gate.word.into(), gate.mask));
        let explained = self.acl.depends(&self.acl.layout().flow_key(key));
        for ((word, _), bits) in self.shape.words.iter().zip(explained.looked_at) {
            looked_at.or_word((*word).into(), bits);
        }
        self.acl.get(explained.winner?).map(|entry| entry.hit())
    }

    fn lookup_hits(&self, keys: &[FlowKey], categories: usize, hits: &mut [Option<Hit>]) {
        match hits.len() {
            ..=FEW => self.hits_by::<FEW>(keys, categories, hits),
            _ => self.hits_by::<BATCH>(keys, categories, hits),
        }
    }

    fn lookup_numbers(&self, keys: &[FlowKey], categories: usize, rules: &mut [u32]) {
        let (mut projected, mut places) = ([[0; W]; BATCH], [0; BATCH]);
        let (mut found, mut numbers) = ([MatchId::NONE; BATCH], [0; BATCH]);
        let chunk = keys_per_batch(categories);
        for (keys, rules) in keys.chunks(chunk).zip(rules.chunks_mut(chunk * categories)) {
            let count = self.gather(keys.iter().enumerate(), &mut projected, &mut places);
            let found = &mut found[..count * categories];
            self.acl.lookup_ids(&projected[..count], categories, found);
            numbers.iter_mut().zip(&*found).for_each(|(number, id)| *number = id.number());
            scatter(&places[..count], categories, &numbers[..found.len()], rules, MatchId::NONE.number());
        }
    }

    fn lookup_lanes(&self, keys: &[FlowKey], lanes: LaneMask, hits: &mut [Option<Hit>]) {
        match lanes.len() {
            ..=FEW => self.lanes_by::<FEW>(keys, lanes, hits),
            _ => self.lanes_by::<LANES_MAX>(keys, lanes, hits),
        }
    }

    fn lookup_columns(&self, packets: &FlowColumns<'_>, categories: usize, rules: &mut [u32]) {
        super::columns::lookup(self, packets, categories, rules);
    }

    fn explain(&self, key: &FlowKey) -> FlowExplanation {
        let mut looked_at = FlowMask::zero();
        self.lookup_wildcards(key, &mut looked_at);
        let explained = self.project(key).map(|key| self.acl.explain(&key));
        let explained = explained.as_ref();
        let (engine, variant) = self.engine();
        FlowExplanation {
            winner: explained.and_then(|e| e.winner),
            runner_up: explained.and_then(|e| e.runner_up),
            engine,
            variant,
            nodes: explained.map_or(0, |e| e.nodes),
            rules: explained.map_or(0, |e| e.rules),
            looked_at,
        }
    }

    fn engine(&self) -> (&'static str, Variant) {
        (self.acl.engine_name(), self.acl.variant())
    }

    fn table_bytes(&self) -> usize {
        let words = self.matches.iter().flatten().map(|m| size_of_val(m.matches().words())).sum::<usize>();
        self.acl.table_bytes() + self.matches.capacity() * size_of::<Option<Arc<dyn HasMatch>>>() + words
    }
}

/// Writes the results of the keys that passed the gates to their places, and `none` to all others.
#[inline(always)]
fn scatter<T: Copy>(places: &[u8], categories: usize, found: &[T], results: &mut [T], none: T) {
    if found.len() == results.len() {
        return results.copy_from_slice(found);
    }
    results.fill(none);
    if categories == 1 {
        return places.iter().zip(found).for_each(|(place, result)| results[usize::from(*place)] = *result);
    }
    for (place, found) in places.iter().zip(found.chunks(categories)) {
        results[usize::from(*place) * categories..][..categories].copy_from_slice(found);
    }
}
