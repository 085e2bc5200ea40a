//! Rules for flow keys on a device, as a [`Classifier`].
//!
//! The same rules are on the CPU, in an access list: it answers for single packets, says on which bits an answer depends,
//! and takes over where the device fails or its table is older than the rules.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use flowlane::classify::acl::{AclConfig, Entry, FlowShape, Layout, RankKey};
use flowlane::classify::{AclSearch, Classifier, Hit, InsertError};
use flowlane::packet::{FlowKey, FlowMask};
use flowlane::rule::{Match, Priority, RuleId};

use crate::device::Device;
use crate::error::GpuError;
use crate::search::Method;
use crate::session::{Session, SessionConfig};
use crate::table::GpuTable;

/// Words of the widest key that kernels take.
pub(crate) const WORDS_MAX: usize = 16;
/// Rules up to which every rule is compared with every packet, to see whether that is fastest.
const LINEAR_RULES_MAX: usize = 16_384;
/// Packets drawn from rules where there is no sample.
const SAMPLE: usize = 4096;
/// Rounds of a measurement, of which the fastest counts.
const ROUNDS: usize = 3;

/// How rules come onto a device.
#[derive(Clone, Debug)]
pub struct GpuConfig {
    /// How they are found; none: as is fastest for the sample.
    pub method: Option<Method>,
    /// Batches.
    pub session: SessionConfig,
    /// The list on the CPU; its seed is the device's, too.
    pub list: AclConfig,
}

/// A rule as it was given.
#[derive(Clone, Debug)]
struct Rule {
    priority: Priority,
    sequence: u32,
    matches: Match,
}

type Rules = BTreeMap<RuleId, Rule>;

/// Rules on a device and on the CPU.
#[derive(Debug)]
pub struct GpuSearch {
    device: Device,
    config: GpuConfig,
    rules: Rules,
    sequence: u32,
    epoch: u64,
    list: AclSearch,
    /// None where rules have changed since it was made.
    table: Option<Box<dyn FlowTable>>,
    failure: Mutex<Option<GpuError>>,
}

/// A table for keys of some width.
trait FlowTable: Send + fmt::Debug {
    fn lookup_batch(&self, keys: &[FlowKey], hits: &mut [Option<Hit>]) -> Result<(), GpuError>;
    fn method(&self) -> Method;
    fn table_bytes(&self) -> usize;
}

#[derive(Debug)]
struct Projected<const W: usize> {
    shape: FlowShape,
    layout: Layout<W>,
    table: Arc<GpuTable<W>>,
    session: Mutex<Projection<W>>,
}

/// What one batch after the other needs.
#[derive(Debug)]
struct Projection<const W: usize> {
    session: Session<W>,
    keys: Vec<[u32; W]>,
    places: Vec<usize>,
    hits: Vec<Option<Hit>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<const W: usize> Projected<W> {
    fn build(
        device: &Device,
        method: Method,
        config: &GpuConfig,
        shape: FlowShape,
        rules: &Rules,
        epoch: u64,
    ) -> Result<Box<dyn FlowTable>, GpuError> {
        let layout = shape.layout();
        let entry = |(id, rule): (&RuleId, &Rule)| Entry {
            condition: shape.condition(&layout, &rule.matches).expect("the shape was made for these rules"),
            rank: RankKey::new(rule.priority, rule.sequence),
            rule: *id,
            categories: 1,
        };
        let entries: Vec<Entry<W>> = rules.iter().map(entry).collect();
        let table = GpuTable::build(device, method, layout.kinds(), &entries, config.list.seed, epoch)?;
        let session = Session::new(device, config.session)?;
        let projection = Projection { session, keys: Vec::new(), places: Vec::new(), hits: Vec::new() };
        Ok(Box::new(Self { shape, layout, table: Arc::new(table), session: Mutex::new(projection) }))
    }
}

impl<const W: usize> FlowTable for Projected<W> {
    fn lookup_batch(&self, keys: &[FlowKey], hits: &mut [Option<Hit>]) -> Result<(), GpuError> {
        let projection = &mut *locked(&self.session);
        projection.keys.clear();
        projection.places.clear();
        for (place, key) in keys.iter().enumerate().filter(|(_, key)| self.shape.passes(key)) {
            projection.keys.push(self.layout.flow_key(key));
            projection.places.push(place);
        }
        projection.hits.resize(projection.keys.len(), None);
        projection.session.lookup_batch(&self.table, &projection.keys, &mut projection.hits)?;
        hits.fill(None);
        projection.places.iter().zip(&projection.hits).for_each(|(place, hit)| hits[*place] = *hit);
        Ok(())
    }

    fn method(&self) -> Method {
        self.table.method()
    }

    fn table_bytes(&self) -> usize {
        self.table.table_bytes()
    }
}

impl GpuSearch {
    /// Puts rules onto a device; of equal priority the earlier wins. `sample` is what `method: None` measures with;
    /// where it is empty, a packet of each rule.
    ///
    /// # Errors
    /// Where they do not fit the device.
    pub fn build<'a>(
        device: Device,
        config: GpuConfig,
        rules: impl IntoIterator<Item = (RuleId, Priority, &'a Match)>,
        sample: &[FlowKey],
    ) -> Result<Self, GpuError> {
        let mut all = Rules::new();
        let mut sequence = 0;
        for (id, priority, matches) in rules {
            all.insert(id, Rule { priority, sequence, matches: matches.clone() });
            sequence += 1;
        }
        let list = list(&config, &all)?;
        let failure = Mutex::new(None);
        let mut out = Self { device, config, rules: all, sequence, epoch: 0, list, table: None, failure };
        out.publish(sample)?;
        Ok(out)
    }

    /// Brings changes to the device, which answers again from then on. Until then the CPU does.
    ///
    /// # Errors
    /// Where the rules do not fit the device, or it fails; the CPU goes on answering.
    pub fn publish(&mut self, sample: &[FlowKey]) -> Result<(), GpuError> {
        self.epoch += 1;
        self.table = None;
        let drawn: Vec<FlowKey>;
        let sample = match sample {
            [] => {
                drawn = self.rules.values().take(SAMPLE).map(|rule| rule.matches.key()).collect();
                &drawn
            }
            given => given,
        };
        let methods = match self.config.method {
            Some(method) => vec![method],
            None => Method::ALL.into_iter().filter(|method| self.suits(*method)).collect(),
        };
        let mut best = None;
        let mut refused = None;
        for method in methods {
            match self.table(method).and_then(|table| Ok((cost(&*table, sample)?, table))) {
                Ok((cost, table)) if best.as_ref().is_none_or(|(least, _)| cost < *least) => {
                    best = Some((cost, table));
                }
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        match (best, refused) {
            (Some((_, table)), _) => {
                self.table = Some(table);
                *locked(&self.failure) = None;
                Ok(())
            }
            (None, Some(error)) => Err(error),
            (None, None) => unreachable!("some method suits every number of rules"),
        }
    }

    fn suits(&self, method: Method) -> bool {
        method != Method::Linear || self.rules.len() <= LINEAR_RULES_MAX
    }

    fn table(&self, method: Method) -> Result<Box<dyn FlowTable>, GpuError> {
        let shape = FlowShape::of(self.rules.values().map(|rule| &rule.matches));
        let (device, config, rules) = (&self.device, &self.config, &self.rules);
        match shape.width() {
            ..=4 => Projected::<4>::build(device, method, config, shape, rules, self.epoch),
            5..=9 => Projected::<9>::build(device, method, config, shape, rules, self.epoch),
            10 => Projected::<10>::build(device, method, config, shape, rules, self.epoch),
            11..=WORDS_MAX => Projected::<16>::build(device, method, config, shape, rules, self.epoch),
            words => Err(GpuError::Words { words, words_max: WORDS_MAX }),
        }
    }

    /// Why the device no longer answers, where it has failed.
    pub fn failure(&self) -> Option<GpuError> {
        locked(&self.failure).clone()
    }

    /// How rules are found; none where the CPU answers.
    pub fn method(&self) -> Option<Method> {
        self.table.as_ref().map(|table| table.method())
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The same rules on the CPU.
    pub fn list(&self) -> &AclSearch {
        &self.list
    }
}

/// The rules on the CPU.
fn list(config: &GpuConfig, rules: &Rules) -> Result<AclSearch, GpuError> {
    let mut ordered: Vec<_> = rules.iter().collect();
    ordered.sort_by_key(|(_, rule)| rule.sequence);
    let rules = ordered.into_iter().map(|(id, rule)| (*id, rule.priority, &rule.matches));
    AclSearch::build(config.list, rules).map_err(|error| GpuError::List { reason: error.to_string() })
}

/// The least time for a sample, of several rounds.
fn cost(table: &dyn FlowTable, sample: &[FlowKey]) -> Result<u128, GpuError> {
    let mut hits = vec![None; sample.len()];
    let mut least = u128::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        table.lookup_batch(sample, &mut hits)?;
        least = least.min(begun.elapsed().as_nanos());
    }
    Ok(least)
}

impl Classifier for GpuSearch {
    fn name(&self) -> &'static str {
        self.method().map_or("gpu", Method::name)
    }

    fn insert(&mut self, id: RuleId, priority: Priority, matches: &Match) -> Result<(), InsertError> {
        self.list.insert(id, priority, matches)?;
        self.rules.insert(id, Rule { priority, sequence: self.sequence, matches: matches.clone() });
        self.sequence += 1;
        self.table = None;
        Ok(())
    }

    fn remove(&mut self, id: RuleId) -> bool {
        if self.rules.remove(&id).is_none() {
            return false;
        }
        self.table = None;
        self.list.remove(id)
    }

    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> bool {
        let Some(rule) = self.rules.get_mut(&id) else { return false };
        (rule.priority, rule.matches) = (priority, matches.clone());
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
            Some(table) if self.failure().is_none() => table.lookup_batch(keys, hits).err(),
            _ => return self.list.lookup_batch(keys, hits),
        };
        if failed.is_some() {
            *locked(&self.failure) = failed;
            self.list.lookup_batch(keys, hits);
        }
    }

    fn len(&self) -> usize {
        self.rules.len()
    }

    fn table_bytes(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.table_bytes()) + self.list.table_bytes()
    }
}
