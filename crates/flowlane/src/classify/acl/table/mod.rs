#![doc = include_str!("README.md")]

mod auto;
mod bulk;
mod config;
mod lookup;
#[cfg(test)]
mod tests;
mod work;

pub use auto::{AclCandidate, AclContest};
use bulk::Bulk;
pub use config::{AclConfig, AclEngine};

use std::collections::HashMap;
use std::sync::Arc;

use super::dynamic::Cutoff;
use super::{Brute, BuildError, Condition, Dynamic, Engine, Entry, Layout, RankKey, Tree, order};
use crate::classify::Hit;
use crate::rule::{Priority, RuleId};

/// Rules up to which the overlay is compared one by one: fewer cycles than its planned tables take.
const SMALL_OVERLAY_MAX: usize = 32;

/// Rules with which the overlay is planned for the first time. It is planned again after as many insertions as it was planned for.
const REPLAN_MIN: usize = SMALL_OVERLAY_MAX + 1;

/// Most rules of the sample from which an overlay is planned.
const ALIKE_MAX: usize = 8192;

/// The place of a slot's rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The slot has no rule.
    Free,
    /// In the bulk.
    Bulk,
    /// In the bulk, but removed since the bulk was built.
    Tombstone,
    /// In the overlay.
    Overlay,
}

/// The basis of the overlay's plan.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    /// The rules at that time, and the insertions since.
    rules: usize,
    since: usize,
    /// Whether the plan is for rules like all of the table, not only for the overlay's own.
    is_for_all: bool,
}

impl Plan {
    fn is_old(self) -> bool {
        self.since >= self.rules.max(REPLAN_MIN)
    }
}

/// An access list: rules by number, priority and category, and the engines that look keys up.
#[derive(Clone, Debug)]
pub struct Acl<const W: usize> {
    layout: Arc<Layout<W>>,
    config: AclConfig,
    /// All rules. Engines know them by their slot, so that the data of a result lies in columns, and a replaced rule is
    /// another one to them.
    slots: Vec<Entry<W>>,
    /// The hit of the rule in each slot, in a dense column: each result reads one element.
    hits: Vec<Hit>,
    states: Vec<State>,
    free: Vec<u32>,
    by_rule: HashMap<RuleId, u32>,
    /// Whether every slot equals its rule's number.
    direct: bool,
    /// The next rule's sequence number.
    sequence: u32,
    bulk: Option<Arc<Bulk<W>>>,
    /// Rules of the bulk that were removed since, one bit for each slot.
    tombstones: Vec<u32>,
    tombstone_count: usize,
    /// Rules inserted since the bulk was built.
    overlay: Dynamic<W>,
    /// The overlay's rules in brute force, where they are few and there is a bulk: that is fastest then.
    small_overlay: Option<Arc<Brute<W>>>,
    plan: Plan,
    /// The rank and class that beat each slot's rule in the overlay, where it has a plan for all rules.
    overlay_cutoffs: Vec<Cutoff>,
    /// The engine that the last contest chose.
    chosen: Option<AclEngine>,
    /// Whether the owner rebuilds the table: no change takes long then.
    rebuilds_deferred: bool,
    /// Whether rules have come or gone since the table was made: trees take changes then, and have no grid.
    has_changed: bool,
}

impl<const W: usize> Acl<W> {
    /// Creates an empty table.
    #[inline(never)]
    pub fn new(layout: Layout<W>, config: AclConfig) -> Self {
        let overlay = config.dynamic(layout.kinds(), &[], usize::MAX);
        let overlay = overlay.expect("no rules are within no limit");
        Self {
            layout: Arc::new(layout),
            config,
            slots: Vec::new(),
            hits: Vec::new(),
            states: Vec::new(),
            free: Vec::new(),
            by_rule: HashMap::new(),
            direct: true,
            sequence: 0,
            bulk: None,
            tombstones: Vec::new(),
            tombstone_count: 0,
            overlay,
            small_overlay: None,
            plan: Plan::default(),
            overlay_cutoffs: Vec::new(),
            chosen: None,
            rebuilds_deferred: false,
            has_changed: false,
        }
    }

    /// Builds a table of these rules; of equal priority the earlier wins.
    ///
    /// # Errors
    /// Where there are too many, two have the same number, or the budget is too small.
    pub fn build(
        layout: Layout<W>,
        config: AclConfig,
        rules: impl IntoIterator<Item = (RuleId, Priority, Condition<W>, u16)>,
    ) -> Result<Self, BuildError> {
        let mut acl = Self::new(layout, config);
        for (rule, priority, condition, categories) in rules {
            let rank = acl.admit(rule, priority)?;
            acl.sequence += 1;
            acl.fill_slot(Entry { condition, rank, rule, categories }, State::Overlay);
        }
        acl.rebuild()?;
        Ok(acl)
    }

    /// Returns the layout of keys.
    pub fn layout(&self) -> &Layout<W> {
        &self.layout
    }

    /// Returns the limits, the engine and its variant.
    pub fn config(&self) -> &AclConfig {
        &self.config
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.by_rule.len()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.by_rule.is_empty()
    }

    /// Returns the number of changes since the last [`rebuild`](Self::rebuild) that slow lookups down: insertions and
    /// removals that a tree did not take in place. It is 0 where the dynamic engine has all rules.
    pub fn changes(&self) -> usize {
        if self.bulk.is_none() { 0 } else { self.overlay.len() + self.tombstone_count }
    }

    /// Returns whether the tree has outgrown the rules that it was built for, or has a grid and lacks rules: another suits them better.
    pub fn is_outgrown(&self) -> bool {
        let slow = self.tombstone_count > 0 && self.tree().is_some_and(Tree::has_grid);
        slow || self.tree().is_some_and(Tree::is_outgrown)
    }

    /// Bounds the time of changes from now on: plans the overlay once, for rules like the present ones, and never replans or
    /// rebuilds within a change.
    pub(super) fn defer_rebuilds(&mut self) {
        if !self.rebuilds_deferred && self.bulk.is_some() && self.overlay.is_empty() {
            self.plan_for_all();
        }
        self.rebuilds_deferred = true;
    }

    /// Returns whether the owner rebuilds the table.
    pub(super) fn rebuilds_deferred(&self) -> bool {
        self.rebuilds_deferred
    }

    /// Returns the slot of a rule, which it keeps until it is removed or replaced.
    pub(super) fn slot(&self, rule: RuleId) -> Option<usize> {
        self.by_rule.get(&rule).map(|slot| *slot as usize)
    }

    /// Plans the overlay for rules like all of the table, and for packets that may hit any of them. Most packets match nothing
    /// in the overlay, and with a plan for its own rules they would walk its chains to the end.
    fn plan_for_all(&mut self) {
        let step = (self.len() / ALIKE_MAX).max(1);
        let alike: Vec<Entry<W>> = self.entries().step_by(step).copied().collect();
        let own: Vec<Entry<W>> = self.overlay.entries().collect();
        let planned = self.config.overlay_for(self.layout.kinds(), &alike);
        // Without memory for a new plan, the old one stays right.
        if let Ok(planned) = planned.and_then(|planned| planned.by_the_same_plan(&own, usize::MAX)) {
            self.overlay = planned;
            self.plan = Plan { rules: self.len(), since: 0, is_for_all: true };
            self.set_overlay_cutoffs();
        }
    }

    /// Computes the cutoffs after a change of plan, of the bulk, or of ranks.
    fn set_overlay_cutoffs(&mut self) {
        let cutoff = |entry: &Entry<W>| self.overlay.cutoff(entry.rank);
        self.overlay_cutoffs = match self.bulk.is_some() && self.plan.is_for_all {
            true => self.slots.iter().map(cutoff).collect(),
            false => Vec::new(),
        };
    }

    /// Returns the rules, in no order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry<W>> {
        let live = |(_, state): &(_, &State)| matches!(state, State::Bulk | State::Overlay);
        self.slots.iter().zip(&self.states).filter(live).map(|(entry, _)| entry)
    }

    /// Returns a rule.
    pub fn get(&self, rule: RuleId) -> Option<&Entry<W>> {
        Some(&self.slots[*self.by_rule.get(&rule)? as usize])
    }

    /// Adds a rule behind all others of its priority.
    ///
    /// # Errors
    /// Where the number is in use or `u32::MAX`, the table is full, or the budget is too small; the table is as before.
    #[inline(never)]
    pub fn insert(
        &mut self,
        rule: RuleId,
        priority: Priority,
        condition: Condition<W>,
        categories: u16,
    ) -> Result<(), BuildError> {
        let rank = self.admit(rule, priority)?;
        self.add(Entry { condition, rank, rule, categories }, self.config.memory_max)?;
        self.sequence += 1;
        self.update_engines();
        Ok(())
    }

    /// Removes a rule. Returns whether it was there.
    #[inline(never)]
    pub fn remove(&mut self, rule: RuleId) -> bool {
        let Some(slot) = self.by_rule.get(&rule).copied() else { return false };
        self.retire_slot(slot);
        self.update_engines();
        true
    }

    /// Gives a rule another condition, priority and categories. Among rules of equal priority it keeps the place of its
    /// insertion. Returns whether it was there.
    ///
    /// # Errors
    /// Where the budget is too small; the table is as before.
    #[inline(never)]
    pub fn replace(
        &mut self,
        rule: RuleId,
        priority: Priority,
        condition: Condition<W>,
        categories: u16,
    ) -> Result<bool, BuildError> {
        let Some(slot) = self.by_rule.get(&rule).copied() else { return Ok(false) };
        let old = self.slots[slot as usize];
        let rank = old.rank.with_priority(priority);
        // The old entry is removed first, since no two entries have the same rank.
        self.retire_slot(slot);
        if let Err(error) = self.add(Entry { condition, rank, rule, categories }, self.config.memory_max) {
            self.add(old, usize::MAX).expect("was there a moment ago, and there is no limit");
            return Err(error);
        }
        self.update_engines();
        Ok(true)
    }

    /// Checks that a rule may be inserted, and returns its rank.
    fn admit(&mut self, rule: RuleId, priority: Priority) -> Result<RankKey, BuildError> {
        if rule.0 == u32::MAX || self.by_rule.contains_key(&rule) {
            return Err(BuildError::Duplicate(rule));
        }
        if self.len() >= self.config.rules_max {
            return Err(BuildError::Rules { rules_max: self.config.rules_max });
        }
        if self.sequence == u32::MAX {
            self.renumber();
        }
        Ok(RankKey::new(priority, self.sequence))
    }

    /// Adds an entry to the tree, or where that does not take it to the overlay, unless the table would exceed `memory_max`.
    fn add(&mut self, entry: Entry<W>, memory_max: usize) -> Result<(), BuildError> {
        let slot = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        let named = Entry { rule: RuleId(slot), ..entry };
        // The tree refuses what the budget has no room for; the overlay gives it back.
        let bytes = self.table_bytes();
        let room = memory_max.checked_sub(bytes);
        let is_in_tree =
            room.is_some_and(|room| self.tree_mut().is_some_and(|tree| tree.insert(&named, room)));
        if is_in_tree {
            self.fill_slot(entry, State::Bulk);
            return Ok(());
        }
        self.overlay.insert(named)?;
        let needed_bytes = self.table_bytes();
        if needed_bytes > memory_max {
            self.overlay.remove(named.rule);
            let (engine, rules) = (self.engine_name(), self.len() + 1);
            return Err(BuildError::Memory { engine, rules, needed_bytes, memory_max });
        }
        self.fill_slot(entry, State::Overlay);
        self.plan.since += 1;
        if self.plan.is_old() && self.overlay.len() > SMALL_OVERLAY_MAX && !self.rebuilds_deferred {
            self.replan();
        }
        Ok(())
    }

    /// Plans the overlay for the present rules. Without memory for a new plan the old one stays, slower but right.
    fn replan(&mut self) {
        if self.bulk.is_some() {
            return self.plan_for_all();
        }
        if let Ok(planned) = self.overlay.replan() {
            self.overlay = planned;
        }
        self.plan = Plan { rules: self.len(), since: 0, is_for_all: false };
    }

    /// Stores an entry in a free slot.
    fn fill_slot(&mut self, entry: Entry<W>, state: State) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(entry);
            self.hits.push(entry.hit());
            self.states.push(state);
            self.slots.len() as u32 - 1
        });
        (self.slots[slot as usize], self.states[slot as usize]) = (entry, state);
        self.hits[slot as usize] = entry.hit();
        if state == State::Bulk {
            self.tombstones.resize(self.states.len().div_ceil(32).max(self.tombstones.len()), 0);
        }
        if let Some(cutoff) = self.overlay_cutoffs.get_mut(slot as usize) {
            *cutoff = self.overlay.cutoff(entry.rank);
        }
        self.by_rule.insert(entry.rule, slot);
        self.direct &= entry.rule.0 == slot;
    }

    /// Removes the rule of a slot: frees the slot, or leaves a tombstone where the bulk keeps the rule.
    fn retire_slot(&mut self, slot: u32) {
        self.by_rule.remove(&self.slots[slot as usize].rule);
        let is_gone = match self.states[slot as usize] {
            State::Bulk => self.tree_mut().is_some_and(|tree| tree.remove(RuleId(slot))),
            _ => self.overlay.remove(RuleId(slot)).is_some(),
        };
        if is_gone {
            self.states[slot as usize] = State::Free;
            self.free.push(slot);
        } else {
            self.states[slot as usize] = State::Tombstone;
            self.tombstones[slot as usize / 32] |= 1 << (slot % 32);
            self.tombstone_count += 1;
        }
    }

    /// Returns the entries in these states, named by their slots.
    fn named(&self, states: &[State]) -> Vec<Entry<W>> {
        let slots = self.slots.iter().zip(&self.states).enumerate();
        let wanted = slots.filter(|(_, (_, state))| states.contains(state));
        wanted.map(|(slot, (entry, _))| Entry { rule: RuleId(slot as u32), ..*entry }).collect()
    }

    /// Updates the engines after a change. Where the table is so small that brute force is fastest, rebuilds it, which takes
    /// microseconds, unless the configuration names another engine.
    fn update_engines(&mut self) {
        self.has_changed = true;
        self.update_small_overlay();
        if self.tombstone_count > 0 && !self.rebuilds_deferred && self.tree().is_some_and(Tree::has_grid) {
            // Lookups that meet a removed rule of a grid go through all behind it. Without room, they are slow and right.
            _ = self.rebuild();
        }
        let small = self.len() <= self.config.brute_rules_max();
        let brute = match self.config.engine {
            AclEngine::Brute => true,
            AclEngine::Auto => self.chosen.is_none_or(|chosen| chosen == AclEngine::Brute),
            AclEngine::Tree | AclEngine::Dynamic => false,
        };
        if small && brute {
            // Without room for it, the change is in the overlay.
            _ = self.rebuild();
        }
    }

    /// Builds brute force over a small overlay.
    fn update_small_overlay(&mut self) {
        let few = self.bulk.is_some() && (1..=SMALL_OVERLAY_MAX).contains(&self.overlay.len());
        self.small_overlay = few.then(|| {
            let entries: Vec<Entry<W>> = self.overlay.entries().collect();
            Arc::new(self.config.brute(self.layout.kinds(), &entries))
        });
    }

    /// Renumbers the sequence of the rules, in the same order, so that there is room behind the last.
    fn renumber(&mut self) {
        // Tombstones too, since live rules are compared with them.
        let taken = |slot: &u32| self.states[*slot as usize] != State::Free;
        let live: Vec<u32> = (0..self.slots.len() as u32).filter(taken).collect();
        let order = order::descending(live.iter().map(|slot| self.slots[*slot as usize].rank.0));
        for (place, i) in order.into_iter().enumerate() {
            let entry = &mut self.slots[live[i as usize] as usize];
            entry.rank = RankKey::new(entry.rank.priority(), place as u32);
        }
        self.sequence = live.len() as u32;
        // The bulk keeps its order. The overlay had room for as many rules before.
        self.rename_keys();
        let overlay = self.config.dynamic(self.layout.kinds(), &self.named(&[State::Overlay]), usize::MAX);
        self.overlay = overlay.expect("there is no limit, and handles differ");
        // The new plan is for the overlay's own rules.
        self.plan.is_for_all = false;
        self.set_overlay_cutoffs();
    }

    /// Returns the bytes of rules and engines.
    pub fn table_bytes(&self) -> usize {
        let bulk = self.bulk.as_ref().map_or(0, |bulk| bulk.engine().table_bytes());
        self.own_bytes() + bulk + self.overlay.table_bytes()
    }

    /// Returns the bytes of the rules themselves.
    fn own_bytes(&self) -> usize {
        self.slots.capacity() * (size_of::<Entry<W>>() + size_of::<Hit>() + size_of::<State>())
            + (self.by_rule.capacity() + self.free.capacity()) * size_of::<(RuleId, u32)>()
            + size_of_val(&self.tombstones[..])
            + size_of_val(&self.overlay_cutoffs[..])
    }
}
