//! The switch under test, through its public API.

use std::sync::Arc;

use flowlane::classify::acl::AclConfig;
use flowlane::classify::{AclSearch, LinearSearch, ReplicatedEngine, TupleSearch};
use flowlane::rule::action::PortNo;
use flowlane::rule::flow_syntax::read_groups;
use flowlane::rule::{Format, ReadOptions, read, read_changes};
use flowlane_switch::control::{Changes, Control, FlowStatistics, GroupMod, VlanChange};
use flowlane_switch::datapath::Pipeline;
use flowlane_switch::datapath::{
    CacheConfig, Clock, Egress, Lookup, MalformedPolicy, PortSlot, Tracing, Worker,
};
use flowlane_switch::port::{MemoryHandle, MemoryPort};
use flowlane_switch::ruleset::Miss;
use flowlane_switch::state::conntrack::Wanted;
use flowlane_switch::state::fdb::Fdb;
use flowlane_switch::state::mirror::Mirrors;
use flowlane_switch::state::multicast::Snooping;
use flowlane_switch::state::vlan::{PortVlan, VlanMode};

use super::ovs::{Counters, PORTS, Sent, learned_text};
use super::rules::{Rules, is_learned};

/// One or two workers with ports 1 to [`PORTS`], which take frames in turn, one at a time.
pub(crate) struct Flowlane {
    workers: Vec<Worker>,
    /// By worker and port.
    ports: Vec<Vec<MemoryHandle>>,
    /// The worker that takes the next frame.
    next: usize,
    control: Control,
}

impl Flowlane {
    /// Creates workers with these rules; `seed` selects their number, engine and caches, which must not matter.
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
        let count = 1 + usize::from(seed / 2 % 2 == 1);
        let others = if count > 1 { pipeline.fork(count - 1) } else { vec![] };
        let macs = Fdb::new(16, 300, 1);
        let (mut workers, mut ports): (Vec<Worker>, _) = (Vec::new(), Vec::new());
        for pipeline in std::iter::once(pipeline).chain(others) {
            let mut egress = Egress::new(macs.share(), 1);
            egress.faults.policy = policy;
            if let Some(first) = workers.first() {
                egress.share_state(&first.egress);
            }
            let mut handles = Vec::new();
            for number in 1..=PORTS {
                let (port, handle) = MemoryPort::new();
                let name = format!("p{number}");
                egress.ports.add(PortSlot::new(PortNo(number as u32), &name, "", Box::new(port)));
                handles.push(handle);
            }
            ports.push(handles);
            workers.push(Worker::new(Lookup::new(pipeline, caches), egress, 1, Clock::Frames));
        }
        let mut control = Control::attach_all(&mut workers).expect("the workers are new");
        // As OpenFlow has it.
        control.accept_any_port();
        let groups = read_groups(&rules.groups, "groups", &options).map_err(|error| error.to_string())?;
        let groups: Vec<GroupMod> = groups.into_iter().map(|(_, group)| GroupMod::Add(group)).collect();
        control
            .change_all(&Changes { groups: &groups, ..Changes::default() })
            .map_err(|error| error.to_string())?;
        Ok(Self { workers, ports, next: 0, control })
    }

    /// Gives the ports, from port 1 on, these VLAN settings, as `ovs-vsctl set port` takes them.
    pub(crate) fn set_vlans(&mut self, settings: &[String]) {
        let change = |(number, settings): (u32, &String)| {
            let (mut mode, mut tag, mut carried) = (None, None, Vec::new());
            for (key, value) in settings.split_whitespace().filter_map(|part| part.split_once('=')) {
                match key {
                    "vlan_mode" => mode = Some(mode_named(value)),
                    "tag" => tag = Some(value.parse().expect("a tag is a number")),
                    _ => carried = value.split(',').map(|vid| vid.parse().expect("a number")).collect(),
                }
            }
            let mode = mode.unwrap_or(if tag.is_some() { VlanMode::Access } else { VlanMode::Trunk });
            let vlan = Arc::new(PortVlan::new(mode, tag.unwrap_or(0), &carried));
            VlanChange { port: PortNo(number), vlan: (!settings.is_empty()).then_some(vlan) }
        };
        let vlans: Vec<VlanChange> = (1..).zip(settings).map(change).collect();
        let changes = Changes { vlans: &vlans, ..Changes::default() };
        self.control.change_all(&changes).expect("there are these ports");
    }

    /// Gives the bridge these mirrors.
    pub(crate) fn set_mirrors(&mut self, mirrors: Mirrors) {
        self.control.set_mirrors(Some(Arc::new(mirrors)));
    }

    /// Snoops multicast with this table.
    pub(crate) fn set_multicast(&mut self, snooping: Option<&Arc<Snooping>>) {
        self.workers.iter_mut().for_each(|worker| worker.set_multicast(snooping.cloned()));
    }

    /// Returns how many connections were not kept because their replies would look like packets of another.
    pub(crate) fn ambiguous_connections(&self) -> u64 {
        let counters = &self.workers[0].egress.connections.counters;
        let refused = [&counters.refused_ambiguous, &counters.refused_nat];
        refused.iter().map(|counter| counter.load(std::sync::atomic::Ordering::Relaxed)).sum()
    }

    /// The connections, in order.
    pub(crate) fn connections(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.workers[0].egress.connections.for_each(&Wanted::default(), 0, |connection| {
            all.push(connection.to_string());
            true
        });
        all.sort();
        all
    }

    /// The learned addresses: VLAN, MAC and port.
    pub(crate) fn addresses(&self) -> Vec<(u16, u64, u32)> {
        let entries = self.workers[0].egress.macs.entries();
        let mut all: Vec<_> = entries.into_iter().map(|(mac, vid, port, _)| (vid, mac, port.0)).collect();
        all.sort_unstable();
        all
    }

    /// Returns the tables that a trace visits, whose `ct` actions find these states.
    pub(crate) fn visits(&self, in_port: usize, frame: &[u8], states: impl Iterator<Item = u32>) -> Vec<u8> {
        let Ok(Tracing::Ended(trace)) = self.workers[0].trace_with(PortNo(in_port as u32), frame, states)
        else {
            panic!("the port is there, and the trace ends")
        };
        let table = |place: &str| place.strip_prefix("table ")?.split(' ').next()?.parse().ok();
        trace.steps.iter().filter_map(|step| table(&step.place)).collect()
    }

    /// Returns the frames that a trace sends.
    pub(crate) fn traced(&self, in_port: usize, frame: &[u8]) -> Sent {
        let Ok(Tracing::Ended(trace)) = self.workers[0].trace(PortNo(in_port as u32), frame) else {
            panic!("the port is there, and the trace ends")
        };
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex");
        let mut out = Sent::default();
        for sent in trace.sent {
            let port = sent.port.expect("there is no controller") as usize;
            out[port - 1].push(sent.frame.as_bytes().chunks(2).map(byte).collect());
        }
        out
    }

    /// Forwards one frame; returns the frames sent, and how often one was found malformed.
    pub(crate) fn forward(&mut self, in_port: usize, frame: &[u8]) -> (Sent, u64) {
        self.forward_all(in_port, &[frame])
    }

    /// Forwards frames one by one, like [`forward`](Self::forward).
    pub(crate) fn forward_all(&mut self, in_port: usize, frames: &[&[u8]]) -> (Sent, u64) {
        let faults = |workers: &[Worker]| -> u64 {
            workers.iter().flat_map(|worker| worker.egress.faults.found).sum()
        };
        let before = faults(&self.workers);
        let mut sent = Sent::default();
        for frame in frames {
            let at = self.next;
            self.next = (at + 1) % self.workers.len();
            self.workers[at].inject(in_port - 1, &[frame]).expect("ports in memory do not fail");
            self.control.add_learned();
            sent.iter_mut().zip(&self.ports[at]).for_each(|(sent, port)| sent.extend(port.take_sent()));
        }
        (sent, faults(&self.workers) - before)
    }

    /// Removes the rules with a cookie.
    ///
    /// # Errors
    /// The message, if it refuses that.
    pub(crate) fn delete_rules(&mut self, cookie: u64) -> Result<(), String> {
        let change = format!("delete cookie={cookie}/-1");
        let change =
            read_changes(&change, "change", &ReadOptions::default()).map_err(|error| error.to_string())?;
        self.control.change(&change).map(|_| ()).map_err(|error| error.to_string())
    }

    /// Returns the rules that packets have made.
    pub(crate) fn learned(&self) -> Vec<String> {
        let learned = self.control.statistics(|_, rule| is_learned(rule.priority.0));
        let text = |flow: &FlowStatistics| {
            learned_text(&flow.rule, (flow.idle_timeout_s, flow.hard_timeout_s), flow.flags)
        };
        let mut all: Vec<String> = learned.iter().map(text).collect();
        all.sort();
        all
    }

    /// Returns the rules of a table, as they are written.
    pub(crate) fn rules(&self, table: u8) -> Vec<String> {
        let mut all: Vec<String> = self
            .control
            .statistics(|number, _| number == table)
            .iter()
            .map(|flow| flow.rule.to_string())
            .collect();
        all.sort();
        all
    }

    /// Returns the rules' counters by cookie.
    pub(crate) fn counters(&mut self) -> Vec<(u64, Counters)> {
        self.workers.iter_mut().for_each(|worker| worker.lookup.collect_counters());
        let count = |flow: FlowStatistics| {
            (flow.rule.cookie, Counters { packets: flow.count.packets, bytes: flow.count.bytes })
        };
        self.control.statistics(|_, _| true).into_iter().map(count).collect()
    }
}

fn mode_named(name: &str) -> VlanMode {
    let all = [
        VlanMode::Access,
        VlanMode::Trunk,
        VlanMode::NativeTagged,
        VlanMode::NativeUntagged,
        VlanMode::Dot1qTunnel,
    ];
    all.into_iter().find(|mode| mode.name() == name).expect("a mode of Open vSwitch")
}
