//! The bulk of the rules in one engine, built from a snapshot and adopted: on one thread, or on two.

use std::sync::Arc;

use super::{ALIKE_MAX, Acl, AclConfig, AclEngine, Plan, State};
use crate::classify::acl::engine::ImmutableEngine;
use crate::classify::acl::{Brute, BuildError, Dynamic, Engine, Entry, Tree, TreeConfig, WordKind};
use crate::rule::RuleId;

/// The rules of a table at some time, to be built on any thread while the table goes on.
#[derive(Clone, Debug)]
pub struct Snapshot<const W: usize> {
    kinds: [WordKind; W],
    config: AclConfig,
    /// Whether the dynamic engine may have all rules instead.
    may_be_dynamic: bool,
    engine: AclEngine,
    entries: Vec<Entry<W>>,
    memory_max: usize,
    /// Whether the rules that come will need a plan.
    plans: bool,
}

/// What was built of a [`Snapshot`].
pub struct Bulk<const W: usize> {
    /// None where all rules are for the dynamic engine.
    engine: Option<Box<dyn ImmutableEngine<W>>>,
    slots: Vec<u32>,
    chosen: AclEngine,
    /// The overlay's plan, a table without rules: for all of the snapshot's, where the dynamic engine has them; else for
    /// rules like them. None: the old one will do.
    plan: Option<Dynamic<W>>,
    /// How many rules the snapshot had.
    rules: usize,
}

impl<const W: usize> std::fmt::Debug for Bulk<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rules in {}", self.slots.len(), self.chosen)
    }
}

impl<const W: usize> Bulk<W> {
    pub(super) fn engine(&self) -> &dyn ImmutableEngine<W> {
        self.engine.as_deref().expect("a bulk without an engine is never kept")
    }
}

impl<const W: usize> Snapshot<W> {
    /// Builds the engine. Takes as long as it takes; nobody waits for it meanwhile.
    ///
    /// # Errors
    /// Where the budget is too small for the engine, and it was named; `auto` takes the dynamic engine then, and where no
    /// tree suits the rules.
    #[inline(never)]
    pub fn build(self) -> Result<Bulk<W>, BuildError> {
        let engine: Option<Box<dyn ImmutableEngine<W>>> = match self.engine {
            AclEngine::Brute => {
                Brute::<W>::fits(self.entries.len(), self.memory_max)?;
                let brute = self.config.brute(&self.kinds, &self.entries);
                Some(Box::new(brute))
            }
            AclEngine::Dynamic => None,
            AclEngine::Tree | AclEngine::Auto => {
                let config = TreeConfig {
                    memory_max: self.memory_max,
                    threads: self.config.threads,
                    variant: self.config.usable_variant(),
                };
                let better = |tree: &Tree<W>| {
                    self.config.dynamic_is_better(tree, &self.kinds, &self.entries, self.memory_max)
                };
                match Tree::build(&self.kinds, &self.entries, &config) {
                    Ok(tree) if self.engine == AclEngine::Auto && better(&tree) => None,
                    Ok(tree) => Some(Box::new(tree)),
                    Err(BuildError::Memory { .. }) if self.may_be_dynamic => None,
                    Err(error) => return Err(error),
                }
            }
        };
        let chosen = match self.engine {
            AclEngine::Auto => AclEngine::Tree,
            named => named,
        };
        let chosen = if engine.is_some() { chosen } else { AclEngine::Dynamic };
        let plan = match engine {
            None => Some(self.config.dynamic_for(&self.kinds, &self.entries)?),
            Some(_) if self.plans => {
                let step = (self.entries.len() / ALIKE_MAX).max(1);
                let alike: Vec<Entry<W>> = self.entries.iter().step_by(step).copied().collect();
                Some(self.config.overlay_for(&self.kinds, &alike)?)
            }
            Some(_) => None,
        };
        let slots = engine.iter().flat_map(|_| self.entries.iter().map(|e| e.rule.0)).collect();
        Ok(Bulk { engine, slots, chosen, plan, rules: self.entries.len() })
    }
}

impl<const W: usize> Acl<W> {
    /// The engine for the rules as they are.
    fn engine_now(&self) -> AclEngine {
        match self.config.engine {
            AclEngine::Auto if self.len() <= self.config.brute_rules_max() => {
                self.chosen.unwrap_or(AclEngine::Brute)
            }
            AclEngine::Auto => self.chosen.filter(|e| *e != AclEngine::Brute).unwrap_or(AclEngine::Auto),
            named => named,
        }
    }

    fn snapshot_for(&self, engine: AclEngine) -> Snapshot<W> {
        let entries = self.named(&[State::Bulk, State::Overlay]);
        Snapshot {
            kinds: *self.layout.kinds(),
            config: self.config,
            may_be_dynamic: self.config.engine == AclEngine::Auto,
            engine,
            entries,
            memory_max: self.config.memory_max.saturating_sub(self.own_bytes()),
            plans: self.plan.is_for_all && self.plan.is_old(),
        }
    }

    /// The rules as they are, to be built elsewhere and then [adopted](Self::adopt). Until that, or
    /// [`rebuild`](Self::rebuild), slots of removed rules are not used again: memory grows a little.
    #[inline(never)]
    pub fn snapshot(&mut self) -> Snapshot<W> {
        self.freeze();
        self.snapshot_for(self.engine_now())
    }

    /// A snapshot has been taken, of this table or of its copy in [`shared`](super::super::shared).
    pub(in crate::classify::acl) fn freeze(&mut self) {
        self.frozen = true;
    }

    /// Nothing will be adopted of the last snapshot: slots of removed rules are used again.
    pub(in crate::classify::acl) fn abandon(&mut self) {
        self.frozen = false;
        let free = |slot: &u32| self.states[*slot as usize] == State::Free;
        self.free = (0..self.states.len() as u32).rev().filter(free).collect();
    }

    /// Merges what has changed into the bulk.
    ///
    /// # Errors
    /// Where the budget is too small; the table is as before.
    #[inline(never)]
    pub fn rebuild(&mut self) -> Result<(), BuildError> {
        let bulk = self.snapshot_for(self.engine_now()).build()?;
        self.adopt(Arc::new(bulk))
    }

    /// Takes over what was built of the last [`snapshot`](Self::snapshot) of this table (or of one that has had the
    /// same changes). What has changed since is made up for by the overlay.
    ///
    /// # Errors
    /// Where the budget is too small; the table is as before.
    #[inline(never)]
    pub fn adopt(&mut self, bulk: Arc<Bulk<W>>) -> Result<(), BuildError> {
        let mut states: Vec<State> = self
            .states
            .iter()
            .map(|state| match state {
                State::Bulk | State::Overlay => State::Overlay,
                State::Free | State::Tombstone => State::Free,
            })
            .collect();
        let mut dead = vec![0u32; states.len().div_ceil(32)];
        let mut tombstone_count = 0;
        for slot in &bulk.slots {
            let state = &mut states[*slot as usize];
            *state = if *state == State::Overlay { State::Bulk } else { State::Tombstone };
            if *state == State::Tombstone {
                dead[*slot as usize / 32] |= 1 << (slot % 32);
                tombstone_count += 1;
            }
        }
        let newer = states.iter().enumerate().filter(|(_, state)| **state == State::Overlay);
        let newer: Vec<_> =
            newer.map(|(slot, _)| Entry { rule: RuleId(slot as u32), ..self.slots[slot] }).collect();
        let free: Vec<u32> =
            (0..states.len() as u32).rev().filter(|slot| states[*slot as usize] == State::Free).collect();
        // An empty overlay takes a few hundred bytes, which nobody is refused for.
        let taken = self.own_bytes() + bulk.engine.as_ref().map_or(0, |engine| engine.table_bytes());
        let room = if newer.is_empty() { usize::MAX } else { self.config.memory_max.saturating_sub(taken) };
        let (overlay, plan) = match &bulk.plan {
            Some(planned) => {
                let since =
                    if bulk.engine.is_some() { newer.len() } else { newer.len().abs_diff(bulk.rules) };
                let plan = Plan { rules: bulk.rules, since, is_for_all: bulk.engine.is_some() };
                (planned.by_the_same_plan(&newer, room)?, plan)
            }
            None if self.plan.is_for_all => (self.overlay.by_the_same_plan(&newer, room)?, self.plan),
            None => {
                let plan = Plan { rules: newer.len(), ..Plan::default() };
                (self.config.dynamic(self.layout.kinds(), &newer, room)?, plan)
            }
        };
        (self.overlay, self.plan) = (overlay.without_memory_limit(), plan);
        self.free = free;
        (self.states, self.tombstones, self.tombstone_count) = (states, dead, tombstone_count);
        self.bulk = bulk.engine.is_some().then_some(bulk);
        self.set_overlay_cutoffs();
        self.frozen = false;
        self.update_small_overlay();
        Ok(())
    }

    /// Rebuilds with this engine, and again with it as long as the rules are about as many.
    pub(in crate::classify::acl) fn rebuild_with(&mut self, engine: AclEngine) -> Result<(), BuildError> {
        let bulk = self.snapshot_for(engine).build()?;
        self.adopt(Arc::new(bulk))?;
        self.chosen = Some(engine);
        Ok(())
    }

    /// One engine with all rules, for a contest.
    pub(super) fn candidate(&self, engine: AclEngine) -> Result<Box<dyn Engine<W>>, BuildError> {
        let snapshot = self.snapshot_for(engine);
        if engine == AclEngine::Dynamic {
            let dynamic = self.config.dynamic(&snapshot.kinds, &snapshot.entries, snapshot.memory_max)?;
            return Ok(Box::new(dynamic));
        }
        let bulk = Snapshot { may_be_dynamic: false, ..snapshot }.build()?;
        Ok(bulk.engine.expect("is no dynamic engine"))
    }
}
