//! A rule set for flow keys on a device: the projection of flow keys to the device's keys, and the batches in flight.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use flowlane::classify::Hit;
use flowlane::classify::acl::{Entry, FlowShape, Layout, RankKey};
use flowlane::packet::FlowKey;
use flowlane::rule::RuleId;

use super::{GpuConfig, Rule, Rules};
use crate::device::Device;
use crate::error::GpuError;
use crate::search::Method;
use crate::session::Session;
use crate::table::{GpuTable, WORDS_MAX};

/// A table, independent of the width of its keys.
pub(super) trait FlowTable: Send + fmt::Debug {
    fn method(&self) -> Method;

    fn table_bytes(&self) -> usize;

    /// Returns the epoch of the rules in the table.
    fn epoch(&self) -> u64;

    /// Returns whether the bulk contains a rule, deleted or not.
    fn bulk_has(&self, rule: RuleId) -> bool;

    /// Applies the rules that differ from those in the bulk, and returns whether it did. A rule that matches on more
    /// of a key than the bulk does is not applied, and the table stays unchanged.
    fn follow(&mut self, changed: &HashSet<RuleId>, rules: &Rules, epoch: u64) -> Result<bool, GpuError>;

    /// Returns whether any rule can match a key.
    fn passes(&self, key: &FlowKey) -> bool;

    /// Looks up keys and waits, except for those whose positions are written to `unanswered`.
    fn lookup_batch(
        &mut self,
        keys: &[FlowKey],
        hits: &mut [Option<Hit>],
        unanswered: &mut Vec<u32>,
    ) -> Result<(), GpuError>;

    /// Allocates memory for asynchronous batches, before the first one.
    fn expect_batches(&mut self) -> Result<(), GpuError>;

    /// Turns graphs for full batches on or off.
    fn use_graphs(&mut self, graphs: bool);

    /// Adds a key to the gathered batch.
    fn gather(&mut self, key: &FlowKey);

    /// Returns the number of gathered keys, including those that the device will not see.
    fn gathered(&self) -> usize;

    /// Discards the gathered keys.
    fn clear(&mut self);

    /// Sends the gathered keys; `places` receives the positions of those sent. Sends nothing if no key needs the
    /// device.
    fn send(&mut self, places: &mut Vec<u32>) -> Result<(), GpuError>;

    /// Returns the number of batches sent and not yet received.
    fn under_way(&self) -> usize;

    /// Returns whether the oldest batch in flight has finished or failed.
    fn is_ready(&self) -> bool;

    /// Waits for the oldest batch in flight and returns its epoch. The answers are written to the front of `hits`,
    /// except for positions that are written to `unanswered`.
    fn receive(&mut self, hits: &mut [Option<Hit>], unanswered: &mut Vec<u32>) -> Result<u64, GpuError>;
}

#[derive(Debug)]
struct Projected<const W: usize> {
    device: Device,
    config: GpuConfig,
    shape: FlowShape,
    layout: Layout<W>,
    table: Arc<GpuTable<W>>,
    /// The session of `lookup_batch`.
    session: Session<W>,
    keys: Vec<[u32; W]>,
    places: Vec<u32>,
    hits: Vec<Option<Hit>>,
    /// The session of asynchronous batches, allocated for the first.
    queue: Option<Session<W>>,
    gathered: Gathered<W>,
}

/// A batch being gathered.
#[derive(Debug, Default)]
struct Gathered<const W: usize> {
    count: usize,
    /// The keys for the device, and their positions.
    keys: Vec<[u32; W]>,
    places: Vec<u32>,
}

/// Builds a table on a device, with the narrowest key that holds the words of the rules.
pub(super) fn build(
    device: &Device,
    method: Method,
    config: &GpuConfig,
    rules: &Rules,
    epoch: u64,
) -> Result<Box<dyn FlowTable>, GpuError> {
    let shape = FlowShape::of(rules.values().map(|rule| &*rule.matches));
    match shape.width() {
        ..=4 => Projected::<4>::build(device, method, config, shape, rules, epoch),
        5..=9 => Projected::<9>::build(device, method, config, shape, rules, epoch),
        10 => Projected::<10>::build(device, method, config, shape, rules, epoch),
        11..=WORDS_MAX => Projected::<WORDS_MAX>::build(device, method, config, shape, rules, epoch),
        words => Err(GpuError::Words { words, words_max: WORDS_MAX }),
    }
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
        let entries: Vec<Entry<W>> =
            rules.iter().map(|(id, rule)| entry(&shape, &layout, *id, rule)).collect();
        let table = GpuTable::build(device, method, layout.kinds(), &entries, config.list.seed, epoch)?;
        Ok(Box::new(Self {
            device: device.clone(),
            config: config.clone(),
            shape,
            layout,
            table: Arc::new(table),
            session: Session::new(device, config.session)?,
            keys: Vec::new(),
            places: Vec::new(),
            hits: Vec::new(),
            queue: None,
            gathered: Gathered::default(),
        }))
    }
}

/// Converts a rule that is known to suit the shape.
fn entry<const W: usize>(shape: &FlowShape, layout: &Layout<W>, id: RuleId, rule: &Rule) -> Entry<W> {
    Entry {
        condition: shape.condition(layout, &rule.matches).expect("the rule suits the shape"),
        rank: RankKey::new(rule.priority, rule.sequence),
        rule: id,
        categories: 1,
    }
}

impl<const W: usize> FlowTable for Projected<W> {
    fn method(&self) -> Method {
        self.table.method()
    }

    fn table_bytes(&self) -> usize {
        self.table.table_bytes()
    }

    fn epoch(&self) -> u64 {
        self.table.epoch()
    }

    fn bulk_has(&self, rule: RuleId) -> bool {
        self.table.bulk_has(rule)
    }

    fn follow(&mut self, changed: &HashSet<RuleId>, rules: &Rules, epoch: u64) -> Result<bool, GpuError> {
        let now = |id: &RuleId| rules.get(id).map(|rule| (*id, rule));
        if !changed.iter().filter_map(now).all(|(_, rule)| self.shape.suits(&rule.matches)) {
            return Ok(false);
        }
        let entry = |(id, rule)| entry(&self.shape, &self.layout, id, rule);
        let added: Vec<Entry<W>> = changed.iter().filter_map(now).map(entry).collect();
        self.table = Arc::new(self.table.with_changes(changed.iter().copied(), &added, epoch)?);
        Ok(true)
    }

    fn lookup_batch(
        &mut self,
        keys: &[FlowKey],
        hits: &mut [Option<Hit>],
        unanswered: &mut Vec<u32>,
    ) -> Result<(), GpuError> {
        self.keys.clear();
        self.places.clear();
        for (place, key) in keys.iter().enumerate().filter(|(_, key)| self.shape.passes(key)) {
            self.keys.push(self.layout.flow_key(key));
            self.places.push(place as u32);
        }
        self.hits.resize(self.keys.len(), None);
        self.session.lookup_batch(&self.table, &self.keys, &mut self.hits)?;
        hits.fill(None);
        self.places.iter().zip(&self.hits).for_each(|(place, hit)| hits[*place as usize] = *hit);
        unanswered.extend(self.session.unanswered().iter().map(|place| self.places[*place as usize]));
        Ok(())
    }

    fn passes(&self, key: &FlowKey) -> bool {
        self.shape.passes(key)
    }

    fn expect_batches(&mut self) -> Result<(), GpuError> {
        if self.queue.is_none() {
            self.queue = Some(Session::new(&self.device, self.config.session)?);
        }
        Ok(())
    }

    fn use_graphs(&mut self, graphs: bool) {
        self.config.session.graphs = graphs;
        self.session.set_graphs(graphs);
        self.queue.iter_mut().for_each(|queue| queue.set_graphs(graphs));
    }

    fn gather(&mut self, key: &FlowKey) {
        if self.shape.passes(key) {
            self.gathered.keys.push(self.layout.flow_key(key));
            self.gathered.places.push(self.gathered.count as u32);
        }
        self.gathered.count += 1;
    }

    fn gathered(&self) -> usize {
        self.gathered.count
    }

    fn clear(&mut self) {
        self.gathered.count = 0;
        self.gathered.keys.clear();
        self.gathered.places.clear();
    }

    fn send(&mut self, places: &mut Vec<u32>) -> Result<(), GpuError> {
        if !self.gathered.keys.is_empty() {
            self.expect_batches()?;
            let queue = self.queue.as_mut().expect("it is there now");
            queue.send(&self.table, &self.gathered.keys)?;
        }
        // Both buffers are reused.
        std::mem::swap(places, &mut self.gathered.places);
        Ok(())
    }

    fn under_way(&self) -> usize {
        self.queue.as_ref().map_or(0, Session::under_way)
    }

    fn is_ready(&self) -> bool {
        self.queue.as_ref().is_none_or(Session::is_ready)
    }

    fn receive(&mut self, hits: &mut [Option<Hit>], unanswered: &mut Vec<u32>) -> Result<u64, GpuError> {
        let queue = self.queue.as_mut().expect("a batch is under way");
        let answered = queue.receive(hits).expect("a batch is under way")?;
        unanswered.extend(queue.unanswered());
        Ok(answered.epoch)
    }
}
