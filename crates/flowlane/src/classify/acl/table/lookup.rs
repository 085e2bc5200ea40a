//! Lookups: the bulk's answer, corrected by the overlay and the tombstones.

use super::{Acl, State};
use crate::classify::Hit;
use crate::classify::acl::dynamic::Cutoff;
use crate::classify::acl::engine::{BulkEngine, Tombstones};
use crate::classify::acl::{
    BATCH, CATEGORIES_MAX, Engine, Explanation, FEW, MatchId, RankKey, best, keys_per_batch,
};
use crate::isa::Variant;
use crate::rule::RuleId;

impl<const W: usize> Acl<W> {
    /// Returns the engine that has the bulk of the rules.
    pub fn engine(&self) -> &dyn Engine<W> {
        self.bulk.as_ref().map_or(&self.overlay, |bulk| bulk.engine())
    }

    /// Returns the name of the engine that has the bulk of the rules.
    pub fn engine_name(&self) -> &'static str {
        self.engine().name()
    }

    /// Returns the variant that looks up in the bulk.
    pub fn variant(&self) -> Variant {
        self.engine().variant()
    }

    /// Finds the best rule of category 0 for each key.
    ///
    /// # Panics
    /// Where the slices differ in length.
    #[inline(never)]
    pub fn lookup_batch(&self, keys: &[[u32; W]], verdicts: &mut [MatchId]) {
        assert_eq!(keys.len(), verdicts.len(), "one verdict for each key");
        self.lookup_ids(keys, 1, verdicts);
    }

    /// Finds the best rule of each category for each key, in one pass: `verdicts[key * categories + category]`.
    ///
    /// # Panics
    /// Where `categories` is 0 or above [`CATEGORIES_MAX`], or `verdicts` is not `keys.len() * categories` long.
    #[inline(never)]
    pub fn lookup_categories(&self, keys: &[[u32; W]], categories: usize, verdicts: &mut [MatchId]) {
        assert!((1..=CATEGORIES_MAX).contains(&categories), "1 to {CATEGORIES_MAX} categories");
        assert_eq!(keys.len() * categories, verdicts.len(), "a verdict for each key and category");
        self.lookup_ids(keys, categories, verdicts);
    }

    /// Does the work of [`lookup_categories`](Self::lookup_categories); the caller has checked the lengths.
    #[inline(never)]
    pub(in crate::classify::acl) fn lookup_ids(
        &self,
        keys: &[[u32; W]],
        categories: usize,
        verdicts: &mut [MatchId],
    ) {
        self.slots_of(keys, categories, verdicts);
        if !self.direct {
            for verdict in verdicts {
                let name = |slot: RuleId| MatchId::of(self.hits[slot.0 as usize].rule);
                *verdict = verdict.rule().map_or(MatchId::NONE, name);
            }
        }
    }

    /// Finds the best rule of each category and its priority for each key: `hits[key * categories + category]`.
    ///
    /// # Panics
    /// Where `categories` is 0 or above [`CATEGORIES_MAX`], or `hits` is not `keys.len() * categories` long.
    #[inline(never)]
    pub fn lookup_hits(&self, keys: &[[u32; W]], categories: usize, hits: &mut [Option<Hit>]) {
        assert!((1..=CATEGORIES_MAX).contains(&categories), "1 to {CATEGORIES_MAX} categories");
        assert_eq!(keys.len() * categories, hits.len(), "a hit for each key and category");
        match hits.len() {
            ..=FEW => self.hits_by::<FEW>(keys, categories, hits),
            _ => self.hits_by::<BATCH>(keys, categories, hits),
        }
    }

    /// Finds hits in batches of at most `N` results.
    fn hits_by<const N: usize>(&self, keys: &[[u32; W]], categories: usize, hits: &mut [Option<Hit>]) {
        let mut found = [MatchId::NONE; N];
        let chunk = keys_per_batch(categories).min(N);
        for (keys, hits) in keys.chunks(chunk).zip(hits.chunks_mut(chunk * categories)) {
            let found = &mut found[..hits.len()];
            self.slots_of(keys, categories, found);
            hits.iter_mut().zip(found).for_each(|(hit, slot)| *hit = self.hit(*slot));
        }
    }

    /// Finds the best rule of category 0 for one key.
    #[inline(never)]
    pub fn lookup(&self, key: &[u32; W]) -> Option<Hit> {
        let mut slot = [MatchId::NONE];
        self.slots_of(std::slice::from_ref(key), 1, &mut slot);
        self.hit(slot[0])
    }

    fn hit(&self, slot: MatchId) -> Option<Hit> {
        Some(self.hits[slot.rule()?.0 as usize])
    }

    fn engine_slots(engine: &dyn Engine<W>, keys: &[[u32; W]], categories: usize, slots: &mut [MatchId]) {
        match categories {
            1 => engine.lookup_batch(keys, slots),
            _ => engine.lookup_categories(keys, categories, slots),
        }
    }

    /// Finds the slots of the winners.
    fn slots_of(&self, keys: &[[u32; W]], categories: usize, slots: &mut [MatchId]) {
        let Some(bulk) = self.bulk.as_deref().filter(|_| self.changes() > 0) else {
            return Self::engine_slots(self.engine(), keys, categories, slots);
        };
        // Room for all categories of as many keys would take longer to clear than the lookup takes.
        let mut newer = [MatchId::NONE; BATCH];
        let chunk = keys_per_batch(categories);
        for (keys, slots) in keys.chunks(chunk).zip(slots.chunks_mut(chunk * categories)) {
            self.best_of_both(bulk.engine(), keys, categories, slots, &mut newer[..keys.len() * categories]);
        }
    }

    /// Finds the slots of the winners in bulk and overlay; `newer` is scratch space for as many results, all `NONE`.
    fn best_of_both(
        &self,
        bulk: &dyn BulkEngine<W>,
        keys: &[[u32; W]],
        categories: usize,
        slots: &mut [MatchId],
        newer: &mut [MatchId],
    ) {
        match self.tombstone_count {
            0 => Self::engine_slots(bulk, keys, categories, slots),
            _ => bulk.lookup_live(keys, categories, slots, Tombstones(&self.tombstones)),
        }
        match &self.small_overlay {
            _ if self.overlay.is_empty() => return,
            Some(brute) => Self::engine_slots(&**brute, keys, categories, newer),
            None if categories == 1 => {
                let mut overlay_cutoffs = [Cutoff::default(); BATCH];
                let found = overlay_cutoffs.iter_mut().zip(&*slots);
                found.for_each(|(cutoff, slot)| *cutoff = self.cutoff(*slot));
                return self.overlay.improve_batch(keys, &overlay_cutoffs[..keys.len()], slots);
            }
            None => Self::engine_slots(&self.overlay, keys, categories, newer),
        }
        for (slot, newer) in slots.iter_mut().zip(&*newer) {
            // Most keys match no rule of the overlay.
            if newer.rule().is_some() && self.rank(*newer) > self.rank(*slot) {
                *slot = *newer;
            }
        }
    }

    fn rank(&self, slot: MatchId) -> Option<RankKey> {
        slot.rule().map(|slot| self.slots[slot.0 as usize].rank)
    }

    /// Returns the rank and class that a rule of the overlay needs to beat this answer of the bulk.
    fn cutoff(&self, slot: MatchId) -> Cutoff {
        let Some(slot) = slot.rule() else { return Cutoff::default() };
        let known = self.overlay_cutoffs.get(slot.0 as usize).copied();
        known.unwrap_or_else(|| self.overlay.cutoff(self.slots[slot.0 as usize].rank))
    }

    fn is_tombstone(&self, slot: MatchId) -> bool {
        // Slots behind the last word are newer than the bulk.
        let word = |slot: RuleId| self.tombstones.get(slot.0 as usize / 32).copied().unwrap_or(0);
        slot.rule().is_some_and(|slot| word(slot) >> (slot.0 % 32) & 1 == 1)
    }

    /// Explains the answer for a key, with the runner-up among all rules.
    #[inline(never)]
    pub fn explain(&self, key: &[u32; W]) -> Explanation<W> {
        let mut explained = self.depends(key);
        // Engines stop at the winner.
        let winner = explained.winner.and_then(|rule| self.get(rule)).map(|e| e.rank);
        let others = self.entries().filter(|e| winner.is_some_and(|w| e.rank < w));
        explained.runner_up = best(others, self.layout.kinds(), key, 0).map(|e| e.rule);
        explained
    }

    /// Explains the answer for a key without a search for the runner-up.
    #[inline(never)]
    pub fn depends(&self, key: &[u32; W]) -> Explanation<W> {
        let mut explained = self.engine().explain(key);
        if let Some(bulk) = &self.bulk {
            if explained.winner.is_some_and(|slot| self.is_tombstone(MatchId::of(slot))) {
                explained = bulk.engine().explain_live(key, Tombstones(&self.tombstones));
            }
            if !self.overlay.is_empty() {
                add(&mut explained, self.overlay.explain(key), |slot| self.rank(MatchId::of(slot)));
            }
        }
        let name = |slot: RuleId| self.slots[slot.0 as usize].rule;
        let alive = |slot: &RuleId| self.states[slot.0 as usize] != State::Tombstone;
        Explanation {
            winner: explained.winner.map(name),
            runner_up: explained.runner_up.filter(alive).map(name),
            ..explained
        }
    }
}

/// Adds the explanation of another engine; the better of the two winners stays.
fn add<const W: usize>(
    explained: &mut Explanation<W>,
    other: Explanation<W>,
    rank: impl Fn(RuleId) -> Option<RankKey>,
) {
    explained.nodes += other.nodes;
    explained.rules += other.rules;
    explained.looked_at.iter_mut().zip(other.looked_at).for_each(|(bits, more)| *bits |= more);
    let mut known = [explained.winner, explained.runner_up, other.winner, other.runner_up];
    known.sort_by_key(|slot| std::cmp::Reverse(slot.and_then(&rank)));
    (explained.winner, explained.runner_up) = (known[0], known[1]);
}
