//! The spanning tree of a bridge, as the tables Bridge and Port ask for it (ovs-vswitchd.conf.db(5)).
//!
//! ```text
//! worker ─ inlets ─► thread of the tree ─ 1. states of ports ─► workers ─ 2. BPDUs ─► neighbours
//!                         ▲
//!            links ───────┘
//! ```
//!
//! The thread runs where a bridge has a tree. A port discards before it is opened, and workers have new states before neighbours hear
//! of them: no loop is open for a moment.

mod spec;
mod text;

pub(super) use spec::TreeSpec;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::{Datum, Uuid};

use super::multicast::BridgeSnooping;
use crate::datapath::{Inlet, TreeView};
use crate::mgmt::rpc::ControlServer;
use crate::state::fdb::STATIC;
use crate::state::rstp::{BridgeSettings, PortSettings, PortState, Rstp};

/// The longest pause of the thread.
const PAUSE: Duration = Duration::from_secs(1);
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
    ports: BTreeMap<PortNo, TreePort>,
    inlets: BTreeMap<PortNo, Arc<Inlet>>,
    /// The states that workers have, and since when.
    states: BTreeMap<PortNo, (PortState, u64)>,
    /// Workers have other states than these.
    is_stale: bool,
}

/// The spanning tree of a bridge, if it has one.
pub(super) struct BridgeTree {
    begun: Instant,
    running: Mutex<Option<Running>>,
    /// Held while workers get states, so that the latest ones are the last.
    turn: Mutex<()>,
    thread: OnceLock<Thread>,
}

impl Default for BridgeTree {
    fn default() -> Self {
        let (running, turn, thread) = (Mutex::default(), Mutex::default(), OnceLock::new());
        Self { begun: Instant::now(), running, turn, thread }
    }
}

/// The work that a step has left.
#[derive(Default)]
struct Due {
    /// None: workers have it.
    view: Option<TreeView>,
    /// Ports whose addresses are to be forgotten.
    flushed: Vec<PortNo>,
    frames: Vec<(PortNo, Vec<u8>)>,
    deadline_ms: u64,
}

impl BridgeTree {
    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        // A tree is consistent between two of its methods, and none of them panics midway.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// Returns whether its thread has begun.
    pub(super) fn has_thread(&self) -> bool {
        self.thread.get().is_some()
    }

    /// Notes the thread that [runs](Self::run) the tree.
    pub(super) fn set_thread(&self, thread: Thread) {
        _ = self.thread.set(thread);
    }

    /// Makes the tree this one, with the ports that are open or about to be; `None`: there is none.
    pub(super) fn follow(
        &self,
        settings: Option<BridgeSettings>,
        ports: BTreeMap<PortNo, TreePort>,
        served: &ControlServer,
    ) {
        let now_ms = self.now_ms();
        let mut running = self.lock();
        let Some(settings) = settings else {
            if running.take().is_some() {
                // Workers that do not run any more forward nothing.
                _ = served.set_tree(None);
            }
            return;
        };
        let new = || Running {
            rstp: Rstp::new(settings.clone(), now_ms),
            settings: settings.clone(),
            ports: BTreeMap::new(),
            inlets: BTreeMap::new(),
            states: BTreeMap::new(),
            is_stale: true,
        };
        let running = running.get_or_insert_with(new);
        running.settings.clone_from(&settings);
        running.rstp.configure(settings);
        running.ports = ports;
        running.follow_ports(served, self.thread.get());
    }

    /// Lets time pass, and gives workers the states of ports. Returns when there is more to do.
    pub(super) fn update(&self, served: &ControlServer, snooping: &BridgeSnooping) -> u64 {
        // Nothing is left half done by a thread that panics here: the next update is whole.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
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
        if !frames.is_empty() {
            _ = served.call_worker(0, move |worker| worker.send_frames(&frames));
        }
        deadline_ms
    }

    /// Runs the tree until `stop` is set.
    pub(super) fn run(&self, served: &ControlServer, snooping: &BridgeSnooping, stop: &AtomicBool) {
        served.watch_links(std::thread::current());
        while !stop.load(Ordering::Relaxed) {
            let deadline_ms = self.update(served, snooping);
            let until = Duration::from_millis(deadline_ms).saturating_sub(self.begun.elapsed());
            std::thread::park_timeout(until.min(PAUSE));
        }
    }

    fn step(&self, served: &ControlServer) -> Due {
        let now_ms = self.now_ms();
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
            flushed: running.rstp.take_flushes(),
            frames,
            deadline_ms: running.rstp.deadline_ms(),
        }
    }

    /// Notices a change of the topology, as a command asks for it. Returns whether the bridge has such a tree.
    pub(super) fn change_topology(&self, is_rapid: bool) -> bool {
        let mut running = self.lock();
        let of_kind = running.as_mut().filter(|running| running.settings.speaks_rapid == is_rapid);
        of_kind.map(|running| running.rstp.change_topology()).is_some()
    }

    /// Describes the tree as `rstp/show` or `stp/show` does; `None` where the bridge has no such tree.
    pub(super) fn describe(&self, bridge: &str, is_rapid: bool) -> Option<String> {
        let running = self.lock();
        let running = running.as_ref().filter(|running| running.settings.speaks_rapid == is_rapid)?;
        Some(running.describe(bridge))
    }

    /// The columns `status` and `rstp_status` of the bridge.
    pub(super) fn bridge_status(&self) -> [(&'static str, Datum); 2] {
        match &*self.lock() {
            Some(running) => running.bridge_status(),
            None => [("status", Datum::map::<&str>([])), ("rstp_status", Datum::map::<&str>([]))],
        }
    }

    /// The columns `status` and `rstp_status` of the row of a port.
    pub(super) fn port_status(&self, row: &Uuid) -> [(&'static str, Datum); 2] {
        let running = self.lock();
        let found = running.as_ref().and_then(|running| running.port_status(row, self.now_ms()));
        found.unwrap_or([("status", Datum::map::<&str>([])), ("rstp_status", Datum::map::<&str>([]))])
    }
}

impl Running {
    fn follow_ports(&mut self, served: &ControlServer, thread: Option<&Thread>) {
        let settings =
            |(number, port): (&PortNo, &TreePort)| (*number, port.settings.clone(), port.is_up(served));
        self.rstp.set_ports(&self.ports.iter().map(settings).collect::<Vec<_>>());
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
    fn is_up(&self, served: &ControlServer) -> bool {
        self.is_open && (!self.has_link || served.is_link_up(&self.name, self.may_hide))
    }
}
