//! Rules for flow keys on the cores of a CPU through OpenCL, as a [`RuleEngine`].
//!
//! An access list holds the rules, too; it answers single packets, and everything after changes.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flowlane::classify::acl::{AclConfig, Entry, FlowShape, Layout, RankKey};
use flowlane::classify::{AclSearch, Hit, InsertError, RuleEngine};
use flowlane::packet::{FlowKey, FlowMask};
use flowlane::rule::{Match, Priority, RuleId};
use flowlane_gpu::GpuError;
use flowlane_gpu::kernel_tables::WORDS_MAX;

use super::error::ClError;
use super::{ClDevice, ClMethod, ClTable};

/// A classifier with its rules on the cores of a CPU.
#[derive(Debug)]
pub struct ClSearch {
    device: ClDevice,
    method: ClMethod,
    list: AclSearch,
    /// The table; `None` after rules have changed.
    table: Option<Box<dyn FlowTable>>,
    failure: Mutex<Option<ClError>>,
}

/// A table, independent of the width of its keys.
trait FlowTable: Send + Sync + fmt::Debug {
    fn lookup_batch(&self, keys: &[FlowKey], hits: &mut [Option<Hit>]) -> Result<(), ClError>;
    fn table_bytes(&self) -> usize;
}

#[derive(Debug)]
struct Projected<const W: usize> {
    shape: FlowShape,
    layout: Layout<W>,
    table: ClTable<W>,
}

impl<const W: usize> FlowTable for Projected<W> {
    fn lookup_batch(&self, keys: &[FlowKey], hits: &mut [Option<Hit>]) -> Result<(), ClError> {
        let places: Vec<usize> = (0..keys.len()).filter(|place| self.shape.passes(&keys[*place])).collect();
        let projected: Vec<[u32; W]> =
            places.iter().map(|place| self.layout.flow_key(&keys[*place])).collect();
        let mut found = vec![None; projected.len()];
        self.table.lookup_batch(&projected, &mut found)?;
        hits.fill(None);
        places.iter().zip(found).for_each(|(place, hit)| hits[*place] = hit);
        Ok(())
    }

    fn table_bytes(&self) -> usize {
        self.table.table_bytes()
    }
}

impl ClSearch {
    /// Builds a table; among rules of equal priority the earlier one wins. Batches have at most `batch_max` keys, and
    /// the table uses the seed of the list.
    ///
    /// # Errors
    /// Returns an error if the rules do not fit, or if the device fails.
    pub fn build<'a>(
        device: ClDevice,
        method: ClMethod,
        batch_max: usize,
        list: AclConfig,
        rules: impl IntoIterator<Item = (RuleId, Priority, &'a Match)>,
    ) -> Result<Self, ClError> {
        let rules: Vec<(RuleId, Priority, &Match)> = rules.into_iter().collect();
        let table = table(&device, method, batch_max, list.seed, &rules)?;
        let list = AclSearch::build(list, rules.iter().copied());
        let list = list.map_err(|error| GpuError::List { reason: error.to_string() })?;
        Ok(Self { device, method, list, table: Some(table), failure: Mutex::new(None) })
    }

    /// Returns the device.
    pub fn device(&self) -> &ClDevice {
        &self.device
    }

    /// Returns the error of a failed device.
    pub fn failure(&self) -> Option<ClError> {
        self.failed().clone()
    }

    fn failed(&self) -> MutexGuard<'_, Option<ClError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Rule<'a> = (RuleId, Priority, &'a Match);

/// Builds a table with the narrowest key that holds the rules' words.
fn table(
    device: &ClDevice,
    method: ClMethod,
    batch_max: usize,
    seed: u64,
    rules: &[Rule<'_>],
) -> Result<Box<dyn FlowTable>, ClError> {
    let shape = FlowShape::of(rules.iter().map(|(_, _, matches)| *matches));
    match shape.width() {
        ..=4 => projected::<4>(device, method, batch_max, seed, shape, rules),
        5..=9 => projected::<9>(device, method, batch_max, seed, shape, rules),
        10 => projected::<10>(device, method, batch_max, seed, shape, rules),
        11..=WORDS_MAX => projected::<WORDS_MAX>(device, method, batch_max, seed, shape, rules),
        words => Err(GpuError::Words { words, words_max: WORDS_MAX }.into()),
    }
}

fn projected<const W: usize>(
    device: &ClDevice,
    method: ClMethod,
    batch_max: usize,
    seed: u64,
    shape: FlowShape,
    rules: &[Rule<'_>],
) -> Result<Box<dyn FlowTable>, ClError> {
    let layout = shape.layout();
    let entry = |(sequence, (id, priority, matches)): (usize, &Rule<'_>)| Entry {
        condition: shape.condition(&layout, matches).expect("the shape was made for these rules"),
        rank: RankKey::new(*priority, sequence as u32),
        rule: *id,
        categories: 1,
    };
    let entries: Vec<Entry<W>> = rules.iter().enumerate().map(entry).collect();
    let table = ClTable::build(device, method, layout.kinds(), &entries, seed, batch_max)?;
    Ok(Box::new(Projected { shape, layout, table }))
}

impl RuleEngine for ClSearch {
    fn name(&self) -> &'static str {
        self.method.name()
    }

    fn insert(&mut self, id: RuleId, priority: Priority, matches: &Match) -> Result<(), InsertError> {
        self.table = None;
        self.list.insert(id, priority, matches)
    }

    fn remove(&mut self, id: RuleId) -> bool {
        self.table = None;
        self.list.remove(id)
    }

    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> bool {
        self.table = None;
        self.list.replace(id, priority, matches)
    }

    fn lookup(&self, key: &FlowKey) -> Option<Hit> {
        self.list.lookup(key)
    }

    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<Hit> {
        self.list.lookup_wildcards(key, looked_at)
    }

    fn lookup_batch(&self, keys: &[FlowKey], hits: &mut [Option<Hit>]) {
        assert_eq!(keys.len(), hits.len());
        let failed = match &self.table {
            Some(table) if self.failed().is_none() => table.lookup_batch(keys, hits).err(),
            _ => return self.list.lookup_batch(keys, hits),
        };
        if failed.is_some() {
            *self.failed() = failed;
            self.list.lookup_batch(keys, hits);
        }
    }

    fn len(&self) -> usize {
        self.list.len()
    }

    fn table_bytes(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.table_bytes()) + self.list.table_bytes()
    }
}
