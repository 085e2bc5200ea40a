//! The state of the device: a table that follows the rules as far as possible, and its successor.
//!
//! ```text
//! change ─ recorded ─► next batch: bulk + overlay of changes ─┬─ few that suit the table ─► the device answers
//!                                                             └─ otherwise ─► the list answers until the next bulk
//! overlay too large, or a rule does not suit the table ─► a thread builds another bulk ─► it replaces the bulk, with later
//!                                                                                         changes as its overlay
//! ```

use std::collections::{HashSet, VecDeque};

use flowlane::classify::Hit;
use flowlane::rule::RuleId;

use super::projected::FlowTable;
use super::rebuild::{Made, Rebuilder};
use super::{CurrentRules, LINEAR_RULES_MAX, Rebuild};
use crate::error::GpuError;
use crate::search::Method;

/// Packets that fell back to the list because a deleted rule would have won, after which a rebuild pays: about as
/// many as the list looks up while a table of 100,000 rules is built.
const FALLBACKS_MAX: usize = 1 << 16;

/// A table, and its distance from the current rules.
#[derive(Debug)]
struct Current {
    table: Box<dyn FlowTable>,
    bulk_epoch: u64,
    /// Rules that differ from the bulk.
    changed: HashSet<RuleId>,
    /// The epoch of rules that the table could not follow.
    unfit: Option<u64>,
    fallbacks: usize,
}

/// The tables on the device.
#[derive(Debug, Default)]
pub(super) struct OnDevice {
    current: Option<Current>,
    /// Replaced tables with batches in flight, oldest first.
    retired: VecDeque<Box<dyn FlowTable>>,
    maker: Rebuilder,
    /// The search method of the last table, and whether it uses graphs.
    method: Option<Method>,
    pub(super) graphs: bool,
    /// Whether batches have been sent asynchronously.
    pub(super) batches: bool,
    /// The error of a failed device.
    pub(super) failure: Option<GpuError>,
    /// Why the last requested table was not built.
    pub(super) refusal: Option<GpuError>,
}

impl OnDevice {
    /// Replaces the table by one of the current rules, or by none. Batches in flight keep their table.
    pub(super) fn publish(&mut self, table: Option<(Box<dyn FlowTable>, u64)>) {
        self.put(table.map(|(table, bulk_epoch)| Current {
            table,
            bulk_epoch,
            changed: HashSet::new(),
            unfit: None,
            fallbacks: 0,
        }));
    }

    fn put(&mut self, current: Option<Current>) {
        self.method = current.as_ref().map(|current| current.table.method()).or(self.method);
        let old = std::mem::replace(&mut self.current, current).map(|current| current.table);
        self.retired.extend(old.filter(|table| table.under_way() > 0));
    }

    /// Records that a rule was replaced or deleted.
    pub(super) fn changed(&mut self, rule: RuleId, now: &CurrentRules<'_>) {
        let overlay_max = now.config.changes.overlay_max;
        self.maker.changed(rule, now.rules.len().max(overlay_max));
        let Some(current) = &mut self.current else { return };
        match now.rules.contains_key(&rule) || current.table.bulk_has(rule) {
            true => current.changed.insert(rule),
            false => current.changed.remove(&rule),
        };
        if current.changed.len() > overlay_max {
            self.put(None);
        }
    }

    /// Discards all tables after the ranks of rules have changed.
    pub(super) fn forget(&mut self) {
        self.put(None);
        self.maker.forget();
    }

    /// Applies the changes to the table, unless that takes longer than looking up the changes.
    pub(super) fn follow(&mut self, now: &CurrentRules<'_>) {
        if self.failure.is_some() {
            return;
        }
        if let Some(made) = self.maker.take(false) {
            self.adopt(made, now);
        }
        if let Some(current) = &mut self.current
            && current.table.epoch() != now.epoch
            && current.unfit != Some(now.epoch)
        {
            match current.table.follow(&current.changed, now.rules, now.epoch) {
                Ok(true) => {}
                Ok(false) | Err(GpuError::Entries { .. } | GpuError::Memory { .. }) => {
                    current.unfit = Some(now.epoch);
                }
                Err(error) => self.failure = Some(error),
            }
        }
        if self.needs_rebuild(now) {
            let requested = self.maker.request(now, self.methods(now), self.batches, self.graphs);
            self.refusal = requested.err().or(self.refusal.take());
        }
    }

    /// Waits for a table in construction and adopts it. Returns whether there was one.
    pub(super) fn finish(&mut self, now: &CurrentRules<'_>) -> bool {
        let Some(made) = self.maker.take(true) else { return false };
        self.adopt(made, now);
        true
    }

    fn adopt(&mut self, made: Made, now: &CurrentRules<'_>) {
        let table = match made.table {
            Ok(table) => table,
            Err(error) => {
                self.refusal = Some(error);
                return;
            }
        };
        self.refusal = None;
        let is_newer = self.current.as_ref().is_none_or(|current| current.bulk_epoch < made.epoch);
        let Some(since) = self.maker.since().filter(|_| is_newer) else { return };
        let matters = |id: &&RuleId| now.rules.contains_key(id) || table.bulk_has(**id);
        let changed: HashSet<RuleId> = since.iter().filter(matters).copied().collect();
        if changed.len() <= now.config.changes.overlay_max {
            let bulk_epoch = made.epoch;
            self.put(Some(Current { table, bulk_epoch, changed, unfit: None, fallbacks: 0 }));
        }
    }

    /// Returns whether a rebuild is needed.
    fn needs_rebuild(&self, now: &CurrentRules<'_>) -> bool {
        let changes = now.config.changes;
        if changes.rebuild == Rebuild::Manual || self.maker.is_building() || self.failure.is_some() {
            return false;
        }
        let soon = (changes.overlay_max / 4).max(1);
        // A refused rebuild is repeated only after a change that may matter.
        let may_be_made =
            self.refusal.is_none() || self.maker.since().is_none_or(|since| since.len() >= soon);
        may_be_made
            && match self.current.as_ref().filter(|current| current.table.epoch() == now.epoch) {
                Some(current) => {
                    let changed = current.changed.len();
                    changed >= soon || changed > 0 && current.fallbacks > FALLBACKS_MAX
                }
                None => true,
            }
    }

    /// Returns the search methods for a background rebuild: the measured one first, then any that works.
    fn methods(&self, now: &CurrentRules<'_>) -> Vec<Method> {
        if let Some(method) = now.config.method {
            return vec![method];
        }
        let others = [Method::Filtered, Method::Pruned, Method::Vector, Method::Bloom, Method::Tuple];
        let last = self.method.filter(|m| *m != Method::Linear || now.rules.len() <= LINEAR_RULES_MAX);
        let others = others.into_iter().filter(|method| Some(*method) != last);
        last.into_iter().chain(others).collect()
    }

    /// Returns the table that keys are gathered for.
    pub(super) fn table(&mut self) -> Option<&mut dyn FlowTable> {
        self.current.as_mut().map(|current| &mut *current.table as &mut dyn FlowTable)
    }

    /// Returns the table if it matches the rules of `epoch`.
    pub(super) fn table_of(&mut self, epoch: u64) -> Option<&mut dyn FlowTable> {
        let works = self.failure.is_none();
        self.table().filter(|table| works && table.epoch() == epoch)
    }

    /// Counts packets that fell back to the list because the winning rule was deleted.
    pub(super) fn fallbacks(&mut self, packets: usize) {
        if let Some(current) = &mut self.current {
            current.fallbacks += packets;
        }
    }

    pub(super) fn table_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, |current| current.table.table_bytes())
    }

    /// Returns the epoch of the bulk and the number of rules changed since.
    pub(super) fn bulk(&self) -> Option<(u64, usize)> {
        self.current.as_ref().map(|current| (current.bulk_epoch, current.changed.len()))
    }

    fn oldest(&self) -> Option<&dyn FlowTable> {
        let current = self.current.as_ref().map(|current| &*current.table);
        self.retired.front().map(|table| &**table).or(current)
    }

    /// Returns whether the oldest batch in flight has finished or failed.
    pub(super) fn is_ready(&self) -> bool {
        self.oldest().is_none_or(FlowTable::is_ready)
    }

    /// Receives the answers to the oldest batch in flight and their epoch; see [`FlowTable::receive`].
    pub(super) fn receive(
        &mut self,
        hits: &mut [Option<Hit>],
        unanswered: &mut Vec<u32>,
    ) -> Result<u64, GpuError> {
        let current = self.current.as_mut().map(|current| &mut current.table);
        let oldest = self.retired.front_mut().or(current).expect("a batch under way has its table");
        let received = oldest.receive(hits, unanswered);
        if self.retired.front().is_some_and(|table| table.under_way() == 0) {
            self.retired.pop_front();
        }
        received
    }
}
