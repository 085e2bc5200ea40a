//! Rules for flow keys on a device, as a [`Classifier`].
//!
//! The same rules are on the CPU, in an access list: it answers for single packets, says on which bits an answer depends,
//! and takes over where the device fails or its table is older than the rules.

mod deferred;
mod projected;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use flowlane::classify::acl::AclConfig;
use flowlane::classify::{AclSearch, Classifier, Hit, InsertError};
use flowlane::packet::{FlowKey, FlowMask};
use flowlane::rule::{Match, Priority, RuleId};

use self::deferred::Queue;
use self::projected::FlowTable;
use crate::device::Device;
use crate::error::GpuError;
use crate::search::Method;
use crate::session::SessionConfig;

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
    /// Every bit at which a rule looks, or has looked since the last time that all came to the device.
    looks_at: FlowMask,
    on_device: Mutex<OnDevice>,
    queue: Queue,
}

/// What is on the device.
#[derive(Debug, Default)]
struct OnDevice {
    /// None where rules have changed since it was made.
    table: Option<Box<dyn FlowTable>>,
    /// Earlier ones with batches under way, oldest first.
    retired: VecDeque<Box<dyn FlowTable>>,
    failure: Option<GpuError>,
}

impl OnDevice {
    /// Another table, or none, instead of the one that is there. Batches under way stay with theirs.
    fn put(&mut self, table: Option<Box<dyn FlowTable>>) {
        let old = std::mem::replace(&mut self.table, table);
        self.retired.extend(old.filter(|table| table.under_way() > 0));
    }

    /// Whether the oldest batch under way has its answers, or never will.
    fn is_ready(&self) -> bool {
        self.retired.front().or(self.table.as_ref()).is_none_or(|table| table.is_ready())
    }

    /// The answers to the oldest batch under way, and their epoch.
    fn receive(&mut self, hits: &mut [Option<Hit>]) -> Result<u64, GpuError> {
        let oldest = self.retired.front_mut().or(self.table.as_mut()).expect("a batch has its table");
        let received = oldest.receive(hits);
        if self.retired.front().is_some_and(|table| table.under_way() == 0) {
            self.retired.pop_front();
        }
        received
    }
}

fn locked(on_device: &Mutex<OnDevice>) -> MutexGuard<'_, OnDevice> {
    on_device.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (on_device, queue) = (Mutex::new(OnDevice::default()), Queue::default());
        let looks_at = FlowMask::zero();
        let mut out =
            Self { device, config, rules: all, sequence, epoch: 1, list, looks_at, on_device, queue };
        out.publish(sample)?;
        Ok(out)
    }

    /// Brings changes to the device, which answers again from then on. Until then the CPU does.
    ///
    /// # Errors
    /// Where the rules do not fit the device, or it fails; the CPU goes on answering.
    pub fn publish(&mut self, sample: &[FlowKey]) -> Result<(), GpuError> {
        self.on_device_mut().put(None);
        self.looks_at = FlowMask::zero();
        self.rules.values().for_each(|rule| self.looks_at.add(&rule.matches.mask()));
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
            let built = projected::build(&self.device, method, &self.config, &self.rules, self.epoch);
            match built.and_then(|mut table| Ok((cost(&mut *table, sample)?, table))) {
                Ok((cost, table)) if best.as_ref().is_none_or(|(least, _)| cost < *least) => {
                    best = Some((cost, table));
                }
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        match (best, refused) {
            (Some((_, table)), _) => {
                let on_device = self.on_device_mut();
                on_device.put(Some(table));
                on_device.failure = None;
                Ok(())
            }
            (None, Some(error)) => Err(error),
            (None, None) => unreachable!("some method suits every number of rules"),
        }
    }

    fn suits(&self, method: Method) -> bool {
        method != Method::Linear || self.rules.len() <= LINEAR_RULES_MAX
    }

    /// Without waiting for anybody.
    fn on_device_mut(&mut self) -> &mut OnDevice {
        self.on_device.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules are others now, and this one looks at this.
    fn changed(&mut self, looks_at: Option<FlowMask>) {
        self.epoch += 1;
        self.on_device_mut().put(None);
        if let Some(mask) = looks_at {
            self.looks_at.add(&mask);
        }
    }

    /// Why the device no longer answers, where it has failed.
    pub fn failure(&self) -> Option<GpuError> {
        locked(&self.on_device).failure.clone()
    }

    /// How rules are found; none where the CPU answers.
    pub fn method(&self) -> Option<Method> {
        locked(&self.on_device).table.as_ref().map(|table| table.method())
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
fn cost(table: &mut dyn FlowTable, sample: &[FlowKey]) -> Result<u128, GpuError> {
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
        self.changed(Some(matches.mask()));
        Ok(())
    }

    fn remove(&mut self, id: RuleId) -> bool {
        if self.rules.remove(&id).is_none() {
            return false;
        }
        self.changed(None);
        self.list.remove(id)
    }

    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> bool {
        let Some(rule) = self.rules.get_mut(&id) else { return false };
        (rule.priority, rule.matches) = (priority, matches.clone());
        self.changed(Some(matches.mask()));
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
        let on_device = &mut *locked(&self.on_device);
        if on_device.failure.is_none()
            && let Some(table) = &mut on_device.table
        {
            on_device.failure = table.lookup_batch(keys, hits).err();
            if on_device.failure.is_none() {
                return;
            }
        }
        self.list.lookup_batch(keys, hits);
    }

    fn len(&self) -> usize {
        self.rules.len()
    }

    fn table_bytes(&self) -> usize {
        let on_device = locked(&self.on_device);
        on_device.table.as_ref().map_or(0, |table| table.table_bytes()) + self.list.table_bytes()
    }
}
