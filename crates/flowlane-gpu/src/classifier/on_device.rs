//! What is on the device: a table that follows the rules as far as it can, and the next one.
//!
//! ```text
//! change ─ noted ─► at the next batch: bulk + what changed beside it ─┬─ few, and they suit ─► the device answers
//!                                                                     └─ otherwise ─► the list, until there is another bulk
//! many, or the table cannot follow ─► a thread makes another bulk ─► in its place, with what changed meanwhile beside it
//! ```

use std::collections::{HashSet, VecDeque};

use flowlane::classify::Hit;
use flowlane::rule::RuleId;

use super::projected::FlowTable;
use super::rebuild::{Made, Maker};
use super::{LINEAR_RULES_MAX, Now, Rebuild};
use crate::error::GpuError;
use crate::search::Method;

/// Packets that the list had to look up since rules that won are gone, after which another table pays: about what the
/// list looks up while one of 100,000 rules is made.
const RESCUED_MAX: usize = 1 << 16;

/// A table, and how far its bulk is from the rules.
#[derive(Debug)]
struct Current {
    table: Box<dyn FlowTable>,
    bulk_epoch: u64,
    /// Rules that are not as in the bulk.
    changed: HashSet<RuleId>,
    /// The rules that it could not follow.
    unfit: Option<u64>,
    rescued: usize,
}

/// What is on the device.
#[derive(Debug, Default)]
pub(super) struct OnDevice {
    current: Option<Current>,
    /// Earlier tables with batches under way, oldest first.
    retired: VecDeque<Box<dyn FlowTable>>,
    maker: Maker,
    /// How the last table finds rules, and whether it has graphs.
    method: Option<Method>,
    pub(super) graphs: bool,
    /// Whether there have been batches that answer later.
    pub(super) batches: bool,
    /// Why the device no longer answers.
    pub(super) failure: Option<GpuError>,
    /// Why the last table that was asked for was not made.
    pub(super) refusal: Option<GpuError>,
}

impl OnDevice {
    /// A table of these rules, made just now, or none, instead of the one that is there. Batches under way stay with
    /// theirs.
    pub(super) fn publish(&mut self, table: Option<(Box<dyn FlowTable>, u64)>) {
        self.put(table.map(|(table, bulk_epoch)| Current {
            table,
            bulk_epoch,
            changed: HashSet::new(),
            unfit: None,
            rescued: 0,
        }));
    }

    fn put(&mut self, current: Option<Current>) {
        self.method = current.as_ref().map(|current| current.table.method()).or(self.method);
        let old = std::mem::replace(&mut self.current, current).map(|current| current.table);
        self.retired.extend(old.filter(|table| table.under_way() > 0));
    }

    /// A rule is another, or is there no longer.
    pub(super) fn changed(&mut self, rule: RuleId, now: &Now<'_>) {
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

    /// Rules have other ranks: nothing that was made of them holds.
    pub(super) fn forget(&mut self) {
        self.put(None);
        self.maker.forget();
    }

    /// Follows the rules, as far as that takes no longer than what has changed.
    pub(super) fn follow(&mut self, now: &Now<'_>) {
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
        if self.wants_another(now) {
            let requested = self.maker.request(now, self.methods(now), self.batches, self.graphs);
            self.refusal = requested.err().or(self.refusal.take());
        }
    }

    /// Waits for the table that is being made, and takes it. Says whether one was.
    pub(super) fn finish(&mut self, now: &Now<'_>) -> bool {
        let Some(made) = self.maker.take(true) else { return false };
        self.adopt(made, now);
        true
    }

    fn adopt(&mut self, made: Made, now: &Now<'_>) {
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
            self.put(Some(Current { table, bulk_epoch, changed, unfit: None, rescued: 0 }));
        }
    }

    /// Whether another table is to be made.
    fn wants_another(&self, now: &Now<'_>) -> bool {
        let changes = now.config.changes;
        if changes.rebuild == Rebuild::Manual || self.maker.is_making() || self.failure.is_some() {
            return false;
        }
        let soon = (changes.overlay_max / 4).max(1);
        // What was refused is not asked for again before there has been a change that may matter.
        let may_be_made =
            self.refusal.is_none() || self.maker.since().is_none_or(|since| since.len() >= soon);
        may_be_made
            && match self.current.as_ref().filter(|current| current.table.epoch() == now.epoch) {
                Some(current) => {
                    let changed = current.changed.len();
                    changed >= soon || changed > 0 && current.rescued > RESCUED_MAX
                }
                None => true,
            }
    }

    /// How a table made in the background finds rules: as the last, which was measured; or else as works.
    fn methods(&self, now: &Now<'_>) -> Vec<Method> {
        if let Some(method) = now.config.method {
            return vec![method];
        }
        let others = [Method::Filtered, Method::Pruned, Method::Vector, Method::Bloom, Method::Tuple];
        let last = self.method.filter(|m| *m != Method::Linear || now.rules.len() <= LINEAR_RULES_MAX);
        let others = others.into_iter().filter(|method| Some(*method) != last);
        last.into_iter().chain(others).collect()
    }

    /// The table that keys are gathered for.
    pub(super) fn table(&mut self) -> Option<&mut dyn FlowTable> {
        self.current.as_mut().map(|current| &mut *current.table as &mut dyn FlowTable)
    }

    /// The table, where it has the rules of now.
    pub(super) fn table_of(&mut self, epoch: u64) -> Option<&mut dyn FlowTable> {
        let works = self.failure.is_none();
        self.table().filter(|table| works && table.epoch() == epoch)
    }

    /// So many packets had to be looked up by the list, since a rule that won is gone.
    pub(super) fn rescued(&mut self, packets: usize) {
        if let Some(current) = &mut self.current {
            current.rescued += packets;
        }
    }

    pub(super) fn table_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, |current| current.table.table_bytes())
    }

    /// The rules of the bulk, and how many have changed since.
    pub(super) fn bulk(&self) -> Option<(u64, usize)> {
        self.current.as_ref().map(|current| (current.bulk_epoch, current.changed.len()))
    }

    fn oldest(&self) -> Option<&dyn FlowTable> {
        let current = self.current.as_ref().map(|current| &*current.table);
        self.retired.front().map(|table| &**table).or(current)
    }

    /// Whether the oldest batch under way has its answers, or never will.
    pub(super) fn is_ready(&self) -> bool {
        self.oldest().is_none_or(FlowTable::is_ready)
    }

    /// The answers to the oldest batch under way, and their epoch: see [`FlowTable::receive`].
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
