//! The spanning tree of a bridge, as the tables Bridge and Port ask for it (ovs-vswitchd.conf.db(5)).
//!
//! ```text
//! worker ─ inlets ─► thread of the tree ─ 1. states of ports ─► workers ─ 2. BPDUs ─► neighbours
//!                         ▲
//!            links ───────┘
//! ```
//!
//! The thread runs where a bridge has a tree. A port discards before it is opened, and workers have new states before neighbours hear
//! of them: no loop is open for a moment. With the tree of another process, ports discard until all of them are there, and go on as they
//! were ([`saved`]).

mod saved;
mod spec;
mod text;

pub(super) use spec::TreeSpec;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::{Datum, Uuid};

use saved::SavedTree;

use super::multicast::BridgeSnooping;
use super::protocol_thread::{self, ProtocolThread};
use crate::datapath::{Inlet, TreeView};
use crate::mgmt::rpc::ControlServer;
use crate::state::fdb::STATIC;
use crate::state::rstp::{BridgeSettings, PortSettings, PortState, Rstp, TICK_MS};

/// The longest BPDU that is read.
const BPDU_BYTES_MAX: usize = 128;

/// A port of the tree that is open, or about to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TreePort {
    /// The row of its port.
    row: Uuid,
    name: String,
    settings: PortSettings,
    is_open: bool,
    /// It is an interface of the system.
    has_link: bool,
    /// It is up where the system does not know it.
    may_hide: bool,
}

/// A running tree.
struct Running {
    rstp: Rstp,
    settings: BridgeSettings,
    /// It is asked for as a tree of RSTP, whatever it speaks.
    is_rapid: bool,
    ports: BTreeMap<PortNo, TreePort>,
    inlets: BTreeMap<PortNo, Arc<Inlet>>,
    /// The states that workers have, and since when.
    states: BTreeMap<PortNo, (PortState, u64)>,
    /// Workers have other states than these.
    is_stale: bool,
    /// Ports whose addresses are to be forgotten, and when that was last done: once in a tick, however often neighbours ask for it.
    flushes: BTreeSet<PortNo>,
    flushed_ms: Option<u64>,
    begun_ms: u64,
}

/// The spanning tree of a bridge, if it has one.
#[derive(Default)]
pub(super) struct BridgeTree {
    pub(super) thread: ProtocolThread,
    running: Mutex<Option<Running>>,
    /// The tree of another process, until all ports are there.
    saved: Mutex<Option<SavedTree>>,
}

/// The work that a step has left.
#[derive(Default)]
struct Due {
    /// None: workers have it, or there is no tree.
    view: Option<TreeView>,
    /// Ports whose addresses are to be forgotten.
    flushed: BTreeSet<PortNo>,
    frames: Vec<(PortNo, Vec<u8>)>,
    deadline_ms: u64,
}

impl BridgeTree {
    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        // A tree is consistent between two of its methods, and none of them panics midway.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the tree this one, of RSTP or of STP, with the ports that are open or about to be; `None`: there is none.
    pub(super) fn follow(
        &self,
        settings: Option<(BridgeSettings, bool)>,
        ports: BTreeMap<PortNo, TreePort>,
        served: &ControlServer,
    ) {
        let _turn = self.thread.take_turn();
        let now_ms = self.thread.now_ms();
        let mut running = self.lock();
        let Some((settings, is_rapid)) = settings else {
            if running.take().is_some() {
                // Workers that do not run any more forward nothing.
                _ = served.set_tree(None);
            }
            return;
        };
        let new = || Running {
            rstp: Rstp::new(settings.clone(), now_ms),
            settings: settings.clone(),
            is_rapid,
            ports: BTreeMap::new(),
            inlets: BTreeMap::new(),
            states: BTreeMap::new(),
            is_stale: true,
            flushes: BTreeSet::new(),
            flushed_ms: None,
            begun_ms: now_ms,
        };
        let running = running.get_or_insert_with(new);
        running.settings.clone_from(&settings);
        running.is_rapid = is_rapid;
        running.rstp.configure(settings);
        running.ports = ports;
        running.follow_inlets(self.thread.get());
        if !self.is_waiting() {
            running.follow_ports(served);
        }
    }

    /// Lets time pass, and gives workers the states of ports. Returns when there is more to do.
    pub(super) fn update(&self, served: &ControlServer, snooping: &BridgeSnooping) -> u64 {
        let _turn = self.thread.take_turn();
        let Due { view, flushed, frames, deadline_ms } = self.step(served);
        if let Some(view) = view
            && served.set_tree(Some(&Arc::new(view))).is_err()
            && let Some(running) = &mut *self.lock()
        {
            // A switch that does not run gets them when it does.
            running.is_stale = true;
        }
        if !flushed.is_empty() {
            snooping.flush();
            _ = served.call_worker(0, move |worker| {
                worker
                    .egress
                    .macs
                    .retain_where(|_, port, seen_s| seen_s == STATIC || !flushed.contains(&port));
            });
        }
        protocol_thread::send(frames, served);
        deadline_ms
    }

    /// Runs the tree until `stop` is set.
    pub(super) fn run(&self, served: &ControlServer, snooping: &BridgeSnooping, stop: &AtomicBool) {
        self.thread.run(served, stop, || self.update(served, snooping));
    }

    fn step(&self, served: &ControlServer) -> Due {
        let now_ms = self.thread.now_ms();
        let mut running = self.lock();
        let Some(running) = &mut *running else { return Due { deadline_ms: u64::MAX, ..Due::default() } };
        for (number, port) in &running.ports {
            running.rstp.set_up(*number, port.is_up(served));
        }
        for (number, inlet) in &running.inlets {
            for frame in inlet.take() {
                // The port counts those that are refused.
                _ = running.rstp.receive(*number, &frame.bytes);
            }
        }
        let frames = running.rstp.run(now_ms);
        Due {
            view: running.changed_view(now_ms),
            flushed: running.take_flushes(now_ms),
            frames,
            deadline_ms: running.rstp.deadline_ms(),
        }
    }

    /// Notices a change of the topology, as a command asks for it. Returns whether the bridge has such a tree.
    pub(super) fn change_topology(&self, is_rapid: bool) -> bool {
        let mut running = self.lock();
        let of_kind = running.as_mut().filter(|running| running.is_rapid == is_rapid);
        of_kind.map(|running| running.rstp.change_topology()).is_some()
    }

    /// Describes the tree as `rstp/show` or `stp/show` does; `None` where the bridge has no such tree.
    pub(super) fn describe(&self, bridge: &str, is_rapid: bool) -> Option<String> {
        let running = self.lock();
        let running = running.as_ref().filter(|running| running.is_rapid == is_rapid)?;
        Some(running.describe(bridge))
    }

    /// The columns `status` and `rstp_status` of the bridge.
    pub(super) fn bridge_status(&self) -> [(&'static str, Datum); 2] {
        match &*self.lock() {
            Some(running) => running.bridge_status(),
            None => [("status", Datum::map::<&str>([])), ("rstp_status", Datum::map::<&str>([]))],
        }
    }

    /// The columns `statistics` and `rstp_statistics` of the rows of all ports.
    pub(super) fn counts(&self) -> Vec<(Uuid, [(&'static str, Datum); 2])> {
        self.lock().as_ref().map(|running| running.counts(self.thread.now_ms())).unwrap_or_default()
    }

    /// The columns `status` and `rstp_status` of the row of a port.
    pub(super) fn port_status(&self, row: &Uuid) -> [(&'static str, Datum); 2] {
        let running = self.lock();
        let found = running.as_ref().and_then(|running| running.port_status(row, self.thread.now_ms()));
        found.unwrap_or([("status", Datum::map::<&str>([])), ("rstp_status", Datum::map::<&str>([]))])
    }
}

impl Running {
    fn follow_ports(&mut self, served: &ControlServer) {
        let settings =
            |(number, port): (&PortNo, &TreePort)| (*number, port.settings.clone(), port.is_up(served));
        self.rstp.set_ports(&self.ports.iter().map(settings).collect::<Vec<_>>());
    }

    fn follow_inlets(&mut self, thread: Option<&Thread>) {
        self.inlets.retain(|number, _| self.ports.contains_key(number));
        for number in self.ports.keys() {
            if let Some(thread) = thread {
                let inlet = || Arc::new(Inlet::new(BPDU_BYTES_MAX, thread.clone()));
                self.inlets.entry(*number).or_insert_with(inlet);
            }
        }
    }

    fn state(&self, port: PortNo) -> PortState {
        self.rstp.status(port).map_or(PortState::Discarding, |status| status.state())
    }

    /// Takes the ports whose addresses are to be forgotten now.
    fn take_flushes(&mut self, now_ms: u64) -> BTreeSet<PortNo> {
        self.flushes.extend(self.rstp.take_flushes());
        if self.flushes.is_empty() || self.flushed_ms.is_some_and(|last_ms| now_ms < last_ms + TICK_MS) {
            return BTreeSet::new();
        }
        self.flushed_ms = Some(now_ms);
        std::mem::take(&mut self.flushes)
    }

    /// The view of workers, if it is to change.
    fn changed_view(&mut self, now_ms: u64) -> Option<TreeView> {
        let now: BTreeMap<PortNo, PortState> =
            self.inlets.keys().map(|port| (*port, self.state(*port))).collect();
        let before = self.states.iter().map(|(port, (state, _))| (*port, *state));
        let is_same = before.eq(now.iter().map(|(port, state)| (*port, *state)));
        if !std::mem::take(&mut self.is_stale) && is_same {
            return None;
        }
        let since = |port: &PortNo, state: PortState| match self.states.get(port) {
            Some((before, since_ms)) if *before == state => *since_ms,
            _ => now_ms,
        };
        let states = now.iter().map(|(port, state)| (*port, (*state, since(port, *state)))).collect();
        self.states = states;
        let ports = self.inlets.iter().map(|(port, inlet)| (*port, (now[port], inlet.clone())));
        Some(TreeView(ports.collect()))
    }
}

impl TreePort {
    /// Gives the port another number in its identifier where another port has that, which would take this one's BPDUs for its own. Returns
    /// whether one is free.
    pub(super) fn take_number(&mut self, taken: &mut BTreeSet<u16>) -> bool {
        let own = self.settings.id & 0xff;
        let mut numbers = std::iter::once(own).chain(1..256);
        let free = numbers.find(|number| *number > 0 && !taken.contains(number));
        if let Some(number) = free {
            taken.insert(number);
            self.settings.id = self.settings.id & 0xff00 | number;
        }
        free.is_some()
    }

    fn is_up(&self, served: &ControlServer) -> bool {
        self.is_open && (!self.has_link || served.is_link_up(&self.name, self.may_hide))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_a_tree_have_identifiers_of_their_own() {
        let port = |id| TreePort {
            row: Uuid::read("3ac15d72-3a63-4226-b67c-d7ec44d93b2f").unwrap(),
            name: String::new(),
            settings: PortSettings {
                mac: [2; 6],
                id,
                cost: 1,
                is_edge: false,
                finds_edge: false,
                is_point_to_point: true,
            },
            is_open: true,
            has_link: false,
            may_hide: false,
        };
        let mut ports = [0x8001, 0x8001, 0x7001, 0x8000].map(port);
        let mut taken = BTreeSet::new();
        assert!(ports.iter_mut().all(|port| port.take_number(&mut taken)));
        assert_eq!(ports.map(|port| port.settings.id), [0x8001, 0x8002, 0x7003, 0x8004]);
        taken.extend(1..256);
        assert!(!port(0x8001).take_number(&mut taken), "none is free");
    }
}
