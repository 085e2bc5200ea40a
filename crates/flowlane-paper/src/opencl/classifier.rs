//! Rules for flow keys on the cores of a CPU through OpenCL, as a [`Classifier`].
//!
//! The same rules are in an access list, which answers for single packets and after changes.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flowlane::classify::acl::{AclConfig, Entry, FlowShape, Layout, RankKey};
use flowlane::classify::{AclSearch, Classifier, Hit, InsertError};
use flowlane::packet::{FlowKey, FlowMask};
use flowlane::rule::{Match, Priority, RuleId};
use flowlane_gpu::GpuError;
use flowlane_gpu::kernel_tables::WORDS_MAX;

use super::error::ClError;
use super::{ClDevice, ClMethod, ClTable};

/// Rules on the cores of a CPU.
#[derive(Debug)]
pub struct ClSearch {
    device: ClDevice,
    method: ClMethod,
    list: AclSearch,
    /// None where rules have changed since it was made.
    table: Option<Box<dyn FlowTable>>,
    failure: Mutex<Option<ClError>>,
}

/// A table for keys of some width.
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
    /// Makes a table of rules, of which of equal priority the earlier wins; keys are looked up in batches of at most
    /// `batch_max`. The seed of the list is the table's, too.
    ///
    /// # Errors
    /// Where the rules do not fit, or the device fails.
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

    /// Where it looks up.
    pub fn device(&self) -> &ClDevice {
        &self.device
    }

    /// Why the device no longer answers, where it has failed.
    pub fn failure(&self) -> Option<ClError> {
        self.failed().clone()
    }

    fn failed(&self) -> MutexGuard<'_, Option<ClError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Rule<'a> = (RuleId, Priority, &'a Match);

/// A table as wide as the rules need it.
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

impl Classifier for ClSearch {
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
