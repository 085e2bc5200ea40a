//! Rebuilding: the bulk of the rules in one engine, built at once from the live entries.

use std::sync::Arc;

use super::{ALIKE_MAX, Acl, AclConfig, AclEngine, Plan, State};
use crate::classify::acl::engine::BulkEngine;
use crate::classify::acl::{Brute, BuildError, Dynamic, Engine, Entry, Tree, TreeConfig, WordKind};

/// The live rules of a table, and the settings to build an engine of them.
struct Rebuild<const W: usize> {
    kinds: [WordKind; W],
    config: AclConfig,
    /// Whether the dynamic engine may take all rules instead.
    may_be_dynamic: bool,
    engine: AclEngine,
    entries: Vec<Entry<W>>,
    memory_max: usize,
    /// Whether the overlay needs a new plan.
    plans: bool,
    /// Whether a tree may have a grid.
    grid: bool,
}

/// The result of a [`Rebuild`].
pub(super) struct Bulk<const W: usize> {
    /// `None` where the dynamic engine takes all rules.
    engine: Option<Box<dyn BulkEngine<W>>>,
    /// The overlay's plan, a table without rules: for all rules, where the dynamic engine takes them; else for
    /// rules like them. `None` where the overlay keeps its plan.
    plan: Option<Dynamic<W>>,
}

impl<const W: usize> std::fmt::Debug for Bulk<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let engine = self.engine.as_ref();
        write!(f, "{} rules in {}", engine.map_or(0, |e| e.len()), engine.map_or("dynamic", |e| e.name()))
    }
}

impl<const W: usize> Bulk<W> {
    /// Returns the tree of a table, prepared for changes in place, and no other table's.
    fn own_tree<'a>(this: &'a mut Arc<Self>, slots: &[Entry<W>]) -> Option<&'a mut Tree<W>> {
        this.engine().as_tree().filter(|tree| !tree.has_grid())?;
        if Arc::get_mut(this).is_none() {
            let engine: Box<dyn BulkEngine<W>> = Box::new(this.engine().as_tree()?.clone());
            *this = Arc::new(Self { engine: Some(engine), plan: None });
        }
        let tree = Arc::get_mut(this)?.engine.as_mut()?.as_tree_mut()?;
        if !tree.takes_changes() {
            tree.prepare_changes(|slot| slots[slot.0 as usize].rank);
        }
        Some(tree)
    }

    /// Returns whether the tree of a table can be changed at once.
    fn is_ready(this: &mut Arc<Self>) -> bool {
        this.engine().as_tree().is_some_and(Tree::takes_changes) && Arc::get_mut(this).is_some()
    }

    pub(super) fn engine(&self) -> &dyn BulkEngine<W> {
        self.engine.as_deref().expect("a bulk without an engine is never kept")
    }
}

impl<const W: usize> Rebuild<W> {
    /// Builds the engine.
    ///
    /// # Errors
    /// Where the budget is too small for the engine that the configuration names; `auto` takes the dynamic engine then, and
    /// where no tree suits the rules.
    #[inline(never)]
    fn build(self) -> Result<Bulk<W>, BuildError> {
        let engine: Option<Box<dyn BulkEngine<W>>> = match self.engine {
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
                    grid: self.grid,
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
        let plan = match engine {
            None => Some(self.config.dynamic_for(&self.kinds, &self.entries)?),
            Some(_) if self.plans => {
                let step = (self.entries.len() / ALIKE_MAX).max(1);
                let alike: Vec<Entry<W>> = self.entries.iter().step_by(step).copied().collect();
                Some(self.config.overlay_for(&self.kinds, &alike)?)
            }
            Some(_) => None,
        };
        Ok(Bulk { engine, plan })
    }
}

impl<const W: usize> Acl<W> {
    /// Returns the tree that has the bulk of the rules, for changes in place. There is none where the budget has no room for it, and, where
    /// changes must not take long, as long as it is not prepared, or another table shares it.
    pub(super) fn tree_mut(&mut self) -> Option<&mut Tree<W>> {
        let has_room = self.has_room_for_changes();
        let bulk = self.bulk.as_mut()?;
        let may = Bulk::is_ready(bulk) || !self.rebuilds_deferred && has_room;
        may.then(|| Bulk::own_tree(bulk, &self.slots))?
    }

    /// Returns whether a tree is prepared for changes, or there is room for that.
    fn has_room_for_changes(&self) -> bool {
        let more = |tree: &Tree<W>| if tree.takes_changes() { 0 } else { tree.bytes_of_changes() };
        self.tree().is_some_and(|tree| self.table_bytes() + more(tree) <= self.config.memory_max)
    }

    /// Makes the next change as fast as those after it: a tree gets room for changes, and is copied where another table shares it. One with
    /// a grid is built again without.
    pub(in crate::classify::acl) fn prepare_changes(&mut self) {
        self.has_changed = true;
        if self.tree().is_some_and(Tree::has_grid) {
            // Without memory for another, this one stays.
            _ = self.rebuild();
        }
        if self.has_room_for_changes() {
            _ = self.bulk.as_mut().and_then(|bulk| Bulk::own_tree(bulk, &self.slots));
        }
    }

    /// Returns whether rules are in a tree that takes changes.
    pub(in crate::classify::acl) fn takes_changes(&self) -> bool {
        self.tree().is_some_and(Tree::takes_changes)
    }

    /// Tells a tree that takes changes that rules have other ranks, in the same order.
    pub(super) fn rename_keys(&mut self) {
        let slots = &self.slots;
        if self.bulk.as_ref().is_some_and(|bulk| bulk.engine().as_tree().is_some_and(Tree::takes_changes))
            && let Some(tree) = self.bulk.as_mut().and_then(|bulk| Bulk::own_tree(bulk, slots))
        {
            tree.rename_keys(|slot| slots[slot.0 as usize].rank);
        }
    }

    /// Returns the tree that has the bulk of the rules.
    pub(super) fn tree(&self) -> Option<&Tree<W>> {
        self.bulk.as_ref()?.engine().as_tree()
    }

    /// Returns the engine for the present rules.
    fn engine_now(&self) -> AclEngine {
        match self.config.engine {
            AclEngine::Auto if self.len() <= self.config.brute_rules_max() => {
                self.chosen.unwrap_or(AclEngine::Brute)
            }
            AclEngine::Auto => self.chosen.filter(|e| *e != AclEngine::Brute).unwrap_or(AclEngine::Auto),
            named => named,
        }
    }

    fn rebuild_for(&self, engine: AclEngine) -> Rebuild<W> {
        let entries = self.named(&[State::Bulk, State::Overlay]);
        Rebuild {
            kinds: *self.layout.kinds(),
            config: self.config,
            may_be_dynamic: self.config.engine == AclEngine::Auto,
            engine,
            entries,
            memory_max: self.config.memory_max.saturating_sub(self.own_bytes()),
            plans: self.plan.is_for_all && self.plan.is_old(),
            grid: !self.has_changed,
        }
    }

    /// Merges all changes into the bulk.
    ///
    /// # Errors
    /// Where the budget is too small; the table is as before.
    #[inline(never)]
    pub fn rebuild(&mut self) -> Result<(), BuildError> {
        let bulk = self.rebuild_for(self.engine_now()).build()?;
        self.adopt(bulk)
    }

    /// Replaces the engines with those built of the present rules.
    fn adopt(&mut self, bulk: Bulk<W>) -> Result<(), BuildError> {
        let state = if bulk.engine.is_some() { State::Bulk } else { State::Overlay };
        let entries = match state {
            State::Overlay => self.named(&[State::Bulk, State::Overlay]),
            _ => Vec::new(),
        };
        // An empty overlay takes a few hundred bytes, for which no table is refused.
        let room = match &entries[..] {
            [] => usize::MAX,
            _ => self.config.memory_max.saturating_sub(self.own_bytes()),
        };
        let (overlay, plan) = match &bulk.plan {
            Some(planned) => {
                let plan = Plan { rules: self.len(), since: 0, is_for_all: bulk.engine.is_some() };
                (planned.by_the_same_plan(&entries, room)?, plan)
            }
            None if self.plan.is_for_all => (self.overlay.by_the_same_plan(&entries, room)?, self.plan),
            None => (self.config.dynamic(self.layout.kinds(), &entries, room)?, Plan::default()),
        };
        (self.overlay, self.plan) = (overlay.without_memory_limit(), plan);
        for live in &mut self.states {
            *live = match live {
                State::Bulk | State::Overlay => state,
                State::Free | State::Tombstone => State::Free,
            };
        }
        let free = |slot: &u32| self.states[*slot as usize] == State::Free;
        self.free = (0..self.states.len() as u32).rev().filter(free).collect();
        self.tombstones = vec![0; self.states.len().div_ceil(32)];
        self.tombstone_count = 0;
        self.bulk = bulk.engine.is_some().then(|| Arc::new(bulk));
        self.set_overlay_cutoffs();
        self.update_small_overlay();
        Ok(())
    }

    /// Rebuilds with this engine, and prefers it for later rebuilds as long as the number of rules changes little.
    pub(in crate::classify::acl) fn rebuild_with(&mut self, engine: AclEngine) -> Result<(), BuildError> {
        let bulk = self.rebuild_for(engine).build()?;
        self.adopt(bulk)?;
        self.chosen = Some(engine);
        Ok(())
    }

    /// Builds one engine with all rules, for a contest.
    pub(super) fn candidate(&self, engine: AclEngine) -> Result<Box<dyn Engine<W>>, BuildError> {
        let rebuild = self.rebuild_for(engine);
        if engine == AclEngine::Dynamic {
            let dynamic = self.config.dynamic(&rebuild.kinds, &rebuild.entries, rebuild.memory_max)?;
            return Ok(Box::new(dynamic));
        }
        let bulk = Rebuild { may_be_dynamic: false, ..rebuild }.build()?;
        Ok(bulk.engine.expect("is no dynamic engine"))
    }
}
