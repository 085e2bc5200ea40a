//! The switch under test, through its public API.

use flowlane::classify::acl::AclConfig;
use flowlane::classify::{AclSearch, LinearSearch, ReplicatedEngine, TupleSearch};
use flowlane::rule::action::PortNo;
use flowlane::rule::{Format, ReadOptions, read};
use flowlane_switch::datapath::Pipeline;
use flowlane_switch::datapath::{CacheConfig, Clock, Egress, Lookup, MalformedPolicy, PortSlot, Worker};
use flowlane_switch::port::{MemoryHandle, MemoryPort};
use flowlane_switch::ruleset::Miss;
use flowlane_switch::state::fdb::Fdb;

use super::ovs::{Counters, PORTS, Sent};
use super::rules::Rules;

/// A worker with ports 1 to [`PORTS`] that takes one frame at a time.
pub(crate) struct Flowlane {
    worker: Worker,
    ports: Vec<MemoryHandle>,
}

impl Flowlane {
    /// Creates a worker with these rules; `seed` selects engine and caches, which must not matter.
    ///
    /// # Errors
    /// The message, if it refuses a rule.
    pub(crate) fn new(rules: &Rules, policy: MalformedPolicy, seed: u64) -> Result<Self, String> {
        let mut pipeline = Pipeline::new();
        for table in 0..rules.tables {
            let engine: Box<dyn ReplicatedEngine> = match seed / 3 % 3 {
                0 => Box::new(LinearSearch::new(1000)),
                1 => Box::new(AclSearch::new(AclConfig::default())),
                _ => Box::new(TupleSearch::new(1000, seed as u32)),
            };
            pipeline.add_table(table, "", engine, Miss::Drop);
        }
        let options = ReadOptions::default();
        let read = read(&rules.text, "rules", Some(Format::Flows), &options).map_err(|e| e.to_string())?;
        for rule in read {
            let cookie = rule.cookie;
            pipeline.add_rule(rule).map_err(|error| format!("rule {cookie}: {error}"))?;
        }
        let caches = CacheConfig {
            exact_entries: if seed.is_multiple_of(2) { 64 } else { 0 },
            exact_insert_inverse: 2,
            signature_entries: if seed.is_multiple_of(5) { 64 } else { 0 },
            signature_insert_inverse: 2,
            // Tables only, caches always, or adaptive.
            megaflows_max: if seed.is_multiple_of(3) { 0 } else { 1000 },
            adaptive: seed % 3 == 1,
            masks_max: 100,
            ..CacheConfig::default()
        };
        let mut egress = Egress::new(Fdb::new(16, 300, 1), 1);
        let mut ports = Vec::new();
        for number in 1..=PORTS {
            let (port, handle) = MemoryPort::new();
            let name = format!("p{number}");
            egress.ports.add(PortSlot::new(PortNo(number as u32), &name, "", Box::new(port)));
            ports.push(handle);
        }
        let mut worker = Worker::new(Lookup::new(pipeline, caches), egress, 1, Clock::Frames);
        worker.egress.faults.policy = policy;
        Ok(Self { worker, ports })
    }

    /// Forwards one frame; returns the frames sent, and how often one was found malformed.
    pub(crate) fn forward(&mut self, in_port: usize, frame: &[u8]) -> (Sent, u64) {
        self.forward_all(in_port, &[frame])
    }

    /// Forwards frames one by one, like [`forward`](Self::forward).
    pub(crate) fn forward_all(&mut self, in_port: usize, frames: &[&[u8]]) -> (Sent, u64) {
        let before: u64 = self.worker.egress.faults.found.iter().sum();
        self.worker.inject(in_port - 1, frames).expect("ports in memory do not fail");
        let sent = std::array::from_fn(|port| self.ports[port].take_sent());
        (sent, self.worker.egress.faults.found.iter().sum::<u64>() - before)
    }

    /// Returns the rules' counters by cookie.
    pub(crate) fn counters(&mut self) -> Vec<(u64, Counters)> {
        self.worker.lookup.collect_counters();
        let tables = self.worker.lookup.pipeline.tables();
        let rules = tables.flat_map(|(_, table)| table.rules());
        rules.map(|(_, e)| (e.rule.cookie, Counters { packets: e.packets, bytes: e.bytes })).collect()
    }
}
