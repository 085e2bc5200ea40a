//! Rules for flow keys on a device, as a [`RuleEngine`].
//!
//! An access list on the CPU holds the rules, too. It answers single packets, computes the wildcards of an answer,
//! and takes over when the device fails or its table cannot follow the rules.

mod deferred;
mod on_device;
mod projected;
mod rebuild;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use flowlane::classify::acl::AclConfig;
use flowlane::classify::{AclSearch, Hit, InsertError, RuleEngine};
use flowlane::packet::{FlowKey, FlowMask};
use flowlane::rule::{Match, Priority, RuleId};

use self::deferred::Queue;
use self::on_device::OnDevice;
use self::projected::FlowTable;
use crate::device::Device;
use crate::error::GpuError;
use crate::search::Method;
use crate::session::SessionConfig;

/// The largest number of rules for which linear search is a candidate in measurements.
const LINEAR_RULES_MAX: usize = 16_384;
/// Packets drawn from the rules if the caller gives no sample.
const SAMPLE: usize = 4096;
/// Rounds of a measurement, of which the fastest counts. The third round to fill a session's slots uses graphs.
const ROUNDS: usize = 3;
/// Batches that take longer do not profit from graphs, which save a few microseconds a batch.
const GRAPH_BATCH_NS: u128 = 2_000_000;
const GRAPH_BATCH_MAX: usize = 1 << 16;

/// The configuration of a device's table.
#[derive(Clone, Debug)]
pub struct GpuConfig {
    /// The search method; `None` measures all methods on the sample.
    pub method: Option<Method>,
    /// The configuration of batches. If `method` is `None` and graphs are not requested here, they are measured as
    /// well.
    pub session: SessionConfig,
    /// The configuration of the list on the CPU. The device uses its seed.
    pub list: AclConfig,
    /// How the device follows rule changes.
    pub changes: Changes,
}

/// How the device follows rule changes: an overlay on the current table first, then a rebuild.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changes {
    /// The largest number of rules that may differ from the table on the device. Beyond it, the CPU answers until the
    /// table has been rebuilt. Every packet is compared with all rules in the overlay, and if a deleted rule would
    /// have won, the CPU looks the packet up.
    pub overlay_max: usize,
    /// When tables are rebuilt.
    pub rebuild: Rebuild,
}

/// When tables are rebuilt after rule changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rebuild {
    /// A background thread, as soon as the overlay is a quarter full or the table cannot follow the rules. The device
    /// must have room for two tables.
    Background,
    /// Only [`GpuSearch::publish`].
    Manual,
}

impl Default for Changes {
    /// Returns an overlay of 1024 rules, for which linear search takes as long as the other methods take for their
    /// tables, and rebuilds in the background.
    fn default() -> Self {
        Self { overlay_max: 1024, rebuild: Rebuild::Background }
    }
}

/// A rule as the caller gave it.
#[derive(Clone, Debug)]
struct Rule {
    priority: Priority,
    sequence: u32,
    matches: Arc<Match>,
}

type Rules = BTreeMap<RuleId, Rule>;

/// A classifier with its rules on a device and on the CPU.
#[derive(Debug)]
pub struct GpuSearch {
    device: Device,
    config: GpuConfig,
    rules: Rules,
    sequence: u32,
    epoch: u64,
    list: AclSearch,
    /// Every bit that a rule matches on, or has matched on since the last call of `publish`.
    looks_at: FlowMask,
    on_device: Mutex<OnDevice>,
    queue: Queue,
}

/// The current rules and the configuration of the table built from them.
#[derive(Clone, Copy, Debug)]
struct CurrentRules<'a> {
    device: &'a Device,
    config: &'a GpuConfig,
    rules: &'a Rules,
    epoch: u64,
}

fn locked(on_device: &Mutex<OnDevice>) -> MutexGuard<'_, OnDevice> {
    on_device.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GpuSearch {
    /// Builds a table on a device; among rules of equal priority the earlier one wins. If `config.method` is `None`,
    /// `sample` is used to measure the methods; an empty sample is replaced by a packet for each rule.
    ///
    /// # Errors
    /// Returns an error if the rules do not fit the device.
    pub fn build<'a>(
        device: Device,
        config: GpuConfig,
        rules: impl IntoIterator<Item = (RuleId, Priority, &'a Match)>,
        sample: &[FlowKey],
    ) -> Result<Self, GpuError> {
        let mut all = Rules::new();
        let mut sequence = 0;
        for (id, priority, matches) in rules {
            all.insert(id, Rule { priority, sequence, matches: Arc::new(matches.clone()) });
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

    /// Builds a table of the current rules and waits for it.
    ///
    /// # Errors
    /// Returns an error if the rules do not fit the device or the device fails; the CPU keeps answering.
    pub fn publish(&mut self, sample: &[FlowKey]) -> Result<(), GpuError> {
        self.on_device_mut().publish(None);
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
            (Some((cost, mut table)), _) => {
                let graphs = self.config.session.graphs
                    || self.config.method.is_none() && self.graphs_pay(&mut *table, sample, cost)?;
                table.use_graphs(graphs);
                let epoch = self.epoch;
                let on_device = self.on_device_mut();
                on_device.graphs = graphs;
                on_device.publish(Some((table, epoch)));
                (on_device.failure, on_device.refusal) = (None, None);
                Ok(())
            }
            (None, Some(error)) => {
                self.on_device_mut().refusal = Some(error.clone());
                Err(error)
            }
            (None, None) => unreachable!("some method suits every number of rules"),
        }
    }

    /// Returns whether graphs make full batches faster; `cost` is the time of the sample without graphs.
    fn graphs_pay(
        &self,
        table: &mut dyn FlowTable,
        sample: &[FlowKey],
        cost: u128,
    ) -> Result<bool, GpuError> {
        let SessionConfig { batch_max, slots, .. } = self.config.session;
        let passing: Vec<&FlowKey> = sample.iter().filter(|key| table.passes(key)).collect();
        let batch_ns = cost * batch_max as u128 / passing.len().max(1) as u128;
        if passing.is_empty() || batch_ns > GRAPH_BATCH_NS || batch_max > GRAPH_BATCH_MAX {
            return Ok(false);
        }
        let full: Vec<FlowKey> = passing.into_iter().cloned().cycle().take(batch_max * slots).collect();
        let without = self::cost(table, &full)?;
        table.use_graphs(true);
        Ok(self::cost(table, &full)? < without)
    }

    fn suits(&self, method: Method) -> bool {
        method != Method::Linear || self.rules.len() <= LINEAR_RULES_MAX
    }

    /// Returns the device's state through `&mut`, without locking.
    fn on_device_mut(&mut self) -> &mut OnDevice {
        self.on_device.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> CurrentRules<'_> {
        CurrentRules { device: &self.device, config: &self.config, rules: &self.rules, epoch: self.epoch }
    }

    /// Records that a rule was replaced or deleted, and the bits that it matches on.
    fn changed(&mut self, rule: RuleId, looks_at: Option<FlowMask>) {
        self.epoch += 1;
        looks_at.iter().for_each(|mask| self.looks_at.add(mask));
        locked(&self.on_device).changed(rule, &self.now());
    }

    /// Returns the sequence number of the next rule. When the numbers are exhausted, all rules are renumbered.
    fn next_sequence(&mut self) -> u32 {
        if self.sequence == u32::MAX {
            self.sequence = renumber(&mut self.rules);
            self.on_device_mut().forget();
        }
        self.sequence += 1;
        self.sequence - 1
    }

    /// Returns the error of a failed device.
    pub fn failure(&self) -> Option<GpuError> {
        locked(&self.on_device).failure.clone()
    }

    /// Returns why the last rebuild failed. The previous table remains in use as long as possible.
    pub fn refusal(&self) -> Option<GpuError> {
        locked(&self.on_device).refusal.clone()
    }

    /// Returns the search method, or `None` if the CPU answers.
    pub fn method(&self) -> Option<Method> {
        let mut on_device = locked(&self.on_device);
        on_device.follow(&self.now());
        on_device.table_of(self.epoch).map(|table| table.method())
    }

    /// Returns whether full batches use graphs, if the driver supports them.
    pub fn has_graphs(&self) -> bool {
        locked(&self.on_device).graphs
    }

    /// Returns the epoch of the rules from which the table on the device was built, and the number of rules changed
    /// since; `None` without a table.
    pub fn table_epoch(&self) -> Option<(u64, usize)> {
        locked(&self.on_device).bulk()
    }

    /// Waits for a running background rebuild and adopts its table. Returns whether one was running.
    pub fn finish_rebuild(&mut self) -> bool {
        locked(&self.on_device).finish(&self.now())
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the list on the CPU, which has the same rules.
    pub fn list(&self) -> &AclSearch {
        &self.list
    }
}

/// Builds the list on the CPU.
fn list(config: &GpuConfig, rules: &Rules) -> Result<AclSearch, GpuError> {
    let mut ordered: Vec<_> = rules.iter().collect();
    ordered.sort_by_key(|(_, rule)| rule.sequence);
    let rules = ordered.into_iter().map(|(id, rule)| (*id, rule.priority, &*rule.matches));
    AclSearch::build(config.list, rules).map_err(|error| GpuError::List { reason: error.to_string() })
}

/// Renumbers the rules in their order, from 0, and returns the next number.
fn renumber(rules: &mut Rules) -> u32 {
    let mut ordered: Vec<&mut Rule> = rules.values_mut().collect();
    ordered.sort_by_key(|rule| rule.sequence);
    ordered.iter_mut().zip(0..).for_each(|(rule, sequence)| rule.sequence = sequence);
    ordered.len() as u32
}

/// Returns the shortest time for a sample in several rounds.
fn cost(table: &mut dyn FlowTable, sample: &[FlowKey]) -> Result<u128, GpuError> {
    let mut hits = vec![None; sample.len()];
    let mut least = u128::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        table.lookup_batch(sample, &mut hits, &mut Vec::new())?;
        least = least.min(begun.elapsed().as_nanos());
    }
    Ok(least)
}

impl RuleEngine for GpuSearch {
    fn name(&self) -> &'static str {
        self.method().map_or("gpu", Method::name)
    }

    fn insert(&mut self, id: RuleId, priority: Priority, matches: &Match) -> Result<(), InsertError> {
        self.list.insert(id, priority, matches)?;
        let sequence = self.next_sequence();
        self.rules.insert(id, Rule { priority, sequence, matches: Arc::new(matches.clone()) });
        self.changed(id, Some(matches.mask()));
        Ok(())
    }

    fn remove(&mut self, id: RuleId) -> bool {
        if self.rules.remove(&id).is_none() {
            return false;
        }
        self.changed(id, None);
        self.list.remove(id)
    }

    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> bool {
        let Some(rule) = self.rules.get_mut(&id) else { return false };
        (rule.priority, rule.matches) = (priority, Arc::new(matches.clone()));
        self.changed(id, Some(matches.mask()));
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
        on_device.follow(&self.now());
        let Some(table) = on_device.table_of(self.epoch) else { return self.list.lookup_batch(keys, hits) };
        let mut unanswered = Vec::new();
        let looked_up = table.lookup_batch(keys, hits, &mut unanswered);
        on_device.failure = looked_up.err();
        if on_device.failure.is_some() || unanswered.len() > keys.len() / 2 {
            self.list.lookup_batch(keys, hits);
        } else {
            unanswered
                .iter()
                .for_each(|place| hits[*place as usize] = self.list.lookup(&keys[*place as usize]));
        }
        on_device.fallbacks(unanswered.len());
    }

    fn len(&self) -> usize {
        self.rules.len()
    }

    fn table_bytes(&self) -> usize {
        locked(&self.on_device).table_bytes() + self.list.table_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renumbered_rules_keep_their_order() {
        let rule = |sequence| Rule { priority: Priority(0), sequence, matches: Arc::new(Match::any()) };
        let mut rules = Rules::from([
            (RuleId(1), rule(u32::MAX - 1)),
            (RuleId(2), rule(7)),
            (RuleId(3), rule(90)),
            (RuleId(4), rule(0)),
        ]);
        assert_eq!(renumber(&mut rules), 4);
        assert_eq!(rules.values().map(|rule| rule.sequence).collect::<Vec<_>>(), [3, 1, 2, 0]);
    }
}
