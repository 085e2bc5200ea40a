//! A running bridge: a switch with its workers, the agent for its controllers, and its ports.

mod bonds;
mod controllers;
mod ports;
mod spanning_tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::Uuid;

use self::bonds::save_sessions;
use super::bfd::BfdSessions;
use super::bonds::Bonds;
use super::controllers::ControllersSpec;
use super::forwarding::{AgentPlace, Ended, Opened, StateFiles, control_path, wait_until_it_runs};
use super::mirrors::BridgeMirrors;
use super::model::{BridgeSpec, InterfaceSpec, check_name};
use super::multicast::BridgeSnooping;
use super::settings::FdbSettings;
use super::spanning_tree::BridgeTree;
use super::statistics;
use crate::datapath::{PacketIns, PortCounters, Switch};
use crate::mgmt::links::KernelLinks;
use crate::mgmt::rpc::{ControlServer, Socket, TakeOver};
use crate::mgmt::setup::vlan_of;

/// Interval of periodic control work.
const TICK: Duration = Duration::from_millis(50);
/// The system says how a new interface is after this time at the latest.
const LINK_TIMEOUT: Duration = Duration::from_millis(100);
/// The workers of a new bridge run after this time at the latest.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A port of a bridge, or the reason for which there is none.
#[derive(Clone, Debug)]
pub(super) struct BridgePort {
    pub(super) spec: InterfaceSpec,
    /// Its number.
    pub(super) opened: Result<u32, String>,
    /// How often its link had gone up or down before it was opened.
    pub(super) resets_before: u32,
}

/// A running bridge.
pub(super) struct Bridge {
    spec: BridgeSpec,
    /// The folder of its sockets and its state.
    folder: PathBuf,
    pub(super) datapath_id: u64,
    seed: u32,
    served: Arc<ControlServer>,
    packet_ins: Arc<PacketIns>,
    forwarding: Option<JoinHandle<Ended>>,
    /// The periodic work, and sessions of BFD.
    threads: Vec<JoinHandle<()>>,
    /// They are to end.
    is_over: Arc<AtomicBool>,
    agent: Arc<AgentPlace>,
    /// Controllers are left out, since files of TLS cannot be used.
    waits_for_tls: bool,
    /// The socket by which another process takes its place; none where it cannot be opened.
    socket: Option<Socket>,
    /// Problems of its controllers, and others, to be reported once.
    pub(super) problems: Vec<String>,
    /// The settings that are not supported, as the log has them.
    noted: Vec<String>,
    /// Problems of its forwarding thread.
    said: Arc<Mutex<Vec<String>>>,
    /// The thread that follows the links of interfaces.
    links: Option<KernelLinks>,
    /// The sessions of its ports.
    bfd: Arc<BfdSessions>,
    bonds: Arc<Bonds>,
    pub(super) mirrors: BridgeMirrors,
    pub(super) snooping: Arc<BridgeSnooping>,
    pub(super) tree: Arc<BridgeTree>,
    /// By the rows of interfaces.
    pub(super) ports: BTreeMap<Uuid, BridgePort>,
}

/// How a bridge has ended by itself.
pub(super) enum BridgeEnd {
    Problem(String),
    /// Another process has taken its place.
    HandedOver,
}

/// The rule of bridges without controllers, which learn and flood.
const STANDALONE: &str = "priority=0,actions=normal";

fn is_standalone(spec: &BridgeSpec) -> bool {
    !spec.is_secure && spec.controllers.addresses.is_empty()
}

impl Bridge {
    /// Starts a bridge, with the state that it had when the daemon ended; its ports come with [`follow`](Self::follow).
    pub(super) fn start(spec: &BridgeSpec, folder: &Path, seed: u32) -> Result<Self, String> {
        check_name(&spec.name)?;
        let failed = |error: &dyn std::fmt::Display| format!("bridge {}: {error}", spec.name);
        let (files, mut problems) = (StateFiles::of(folder, &spec.name, &spec.uuid), Vec::new());
        let rule = if is_standalone(spec) { STANDALONE } else { "" };
        let opened = Opened::open(rule, &files.packets, seed, &mut problems);
        let mut opened = opened.map_err(|error| failed(&error))?;
        let waiting = std::mem::take(&mut opened.waiting);
        let mut bridge = Self::run(spec, folder, seed, opened)?;
        bridge.problems = problems;
        bridge.restore_sessions(files.take_sessions());
        bridge.follow_ports(spec);
        bridge.tree.go_on(&bridge.served, &bridge.snooping);
        _ = bridge.served.call_worker(0, |worker| waiting.restore(worker));
        bridge.open_socket();
        bridge.settle(spec);
        Ok(bridge)
    }

    /// Takes the place of another process's bridge, with all that it has.
    pub(super) fn take_over(
        spec: &BridgeSpec,
        folder: &Path,
        seed: u32,
        other: TakeOver,
    ) -> Result<Self, String> {
        check_name(&spec.name)?;
        let failed = |error: &dyn std::fmt::Display| format!("bridge {}: {error}", spec.name);
        let sessions = other.program().clone();
        let (mut opened, unconfirmed) = Opened::take_over(other).map_err(|error| failed(&error))?;
        // Their members are no ports of their own, even before they are followed.
        opened.close_bonds(&spec.bonds);
        if spec.tree.is_some() {
            opened.close_ports();
        }
        let served = opened.served.clone();
        let path = control_path(folder, &spec.name);
        let socket = Socket::open_beside(&path, served).map_err(|error| failed(&error))?;
        unconfirmed.confirm().map_err(|error| failed(&error))?;
        let mut bridge = Self::run(spec, folder, seed, opened)?;
        let socket = bridge.socket.insert(socket);
        if let Err(error) = socket.move_to(&path) {
            bridge.problems.push(error.to_string());
        }
        bridge.restore_sessions(sessions);
        bridge.adopt_ports(spec);
        bridge.follow_ports(spec);
        bridge.tree.go_on(&bridge.served, &bridge.snooping);
        bridge.settle(spec);
        Ok(bridge)
    }

    /// Runs a switch that has been opened.
    fn run(spec: &BridgeSpec, folder: &Path, seed: u32, opened: Opened) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("bridge {}: {error}", spec.name);
        let (served, packet_ins) = (opened.served.clone(), opened.packet_ins.clone());
        let (agent, is_over) = (Arc::new(AgentPlace::default()), Arc::new(AtomicBool::new(false)));
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let say = {
            let said = said.clone();
            move |text| said.lock().unwrap_or_else(PoisonError::into_inner).push(text)
        };
        let forwarding = opened.run(agent.clone(), say).map_err(|error| failed(&error))?;
        let bfd = Arc::new(BfdSessions::default());
        let mut bridge = Self {
            spec: BridgeSpec {
                controllers: ControllersSpec::default(),
                interfaces: Vec::new(),
                bonds: Vec::new(),
                ..spec.clone()
            },
            folder: folder.to_owned(),
            datapath_id: spec.datapath_id.unwrap_or(0),
            seed,
            links: KernelLinks::follow(served.clone()).ok(),
            served,
            packet_ins,
            forwarding: Some(forwarding),
            threads: Vec::new(),
            is_over,
            agent,
            waits_for_tls: false,
            socket: None,
            problems: Vec::new(),
            noted: Vec::new(),
            said,
            bfd,
            bonds: Arc::default(),
            mirrors: BridgeMirrors::default(),
            snooping: Arc::default(),
            tree: Arc::default(),
            ports: BTreeMap::new(),
        };
        bridge.start_threads().map_err(|error| failed(&error))?;
        wait_until_it_runs(&bridge.served, START_TIMEOUT).map_err(|error| failed(&error))?;
        Ok(bridge)
    }

    /// Starts the threads beside the one that forwards.
    fn start_threads(&mut self) -> std::io::Result<()> {
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let (served, bfd, is_over) = (self.served.clone(), self.bfd.clone(), self.is_over.clone());
        self.threads.push(thread("tick").spawn(move || {
            served.control().wake(std::thread::current());
            while !is_over.load(Ordering::Relaxed) {
                bfd.publish(&served);
                served.tick();
                std::thread::park_timeout(TICK);
            }
        })?);
        let (served, bfd, is_over) = (self.served.clone(), self.bfd.clone(), self.is_over.clone());
        self.threads.push(thread("bfd").spawn(move || bfd.run(&served, &is_over))?);
        let (bfd, bonds) = (self.bfd.clone(), self.bonds.clone());
        let (snooping, tree) = (self.snooping.clone(), self.tree.clone());
        self.served.hand_over_with(Box::new(move || save_sessions(&bfd, &bonds, &snooping, &tree)));
        Ok(())
    }

    /// Opens the socket by which another process takes the place of this one.
    fn open_socket(&mut self) {
        match Socket::open(&control_path(&self.folder, &self.spec.name), self.served.clone()) {
            Ok(socket) => self.socket = Some(socket),
            Err(error) => self.problems.push(error.to_string()),
        }
    }

    /// Lets controllers drive a bridge that has its ports.
    fn settle(&mut self, spec: &BridgeSpec) {
        self.datapath_id = self.own_datapath_id(spec);
        self.follow_fdb(&spec.fdb);
        self.note_unsupported(spec);
        self.note_bonds(spec);
        self.open_agent(spec);
        self.spec = spec.clone();
    }

    /// Notes the ports that have been taken over from another process, and removes those that the database does not ask for.
    fn adopt_ports(&mut self, spec: &BridgeSpec) {
        for section in self.served.sections_of_clients() {
            let number = section.number;
            let wanted = spec.interfaces.iter().find_map(|interface| {
                let own = interface.section(number).ok()?;
                (interface.name == section.name() && own.open == section.open).then_some((interface, own))
            });
            match wanted {
                Some((interface, own)) => {
                    if vlan_of(&own) != vlan_of(&section) {
                        self.served.set_vlan(own);
                    }
                    self.follow_limits(number, None, interface);
                    let resets_before = self.served.link(&interface.name).map_or(0, |link| link.resets);
                    let port = BridgePort { spec: interface.clone(), opened: Ok(number), resets_before };
                    self.ports.insert(interface.uuid, port);
                }
                // A worker that does not run any more has no port.
                None => _ = self.served.remove_port_number(PortNo(number)),
            }
        }
    }

    /// The identifier of a bridge: the one that it is given or, as in Open vSwitch, its Ethernet address.
    fn own_datapath_id(&self, spec: &BridgeSpec) -> u64 {
        let [a, b, c, d, e, f] = self.own_mac(spec);
        spec.datapath_id.unwrap_or_else(|| u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// The Ethernet address of the bridge's own port.
    fn own_mac(&self, spec: &BridgeSpec) -> [u8; 6] {
        let links = self.served.links_of_ports();
        // The system has just been given the address that is asked for, and may not have said so yet.
        let asked = spec.interfaces.iter().find(|interface| interface.name == spec.name);
        let of_link = links.get(&PortNo::LOCAL.0).and_then(|link| link.mac);
        let [a, b, c, d] = self.seed.to_be_bytes();
        asked.and_then(|interface| interface.mac).or(of_link).unwrap_or([0x02, 0xf1, a, b, c, d])
    }

    /// Changes the bridge to what the database asks for now.
    pub(super) fn follow(&mut self, spec: &BridgeSpec) {
        if *spec == self.spec {
            return;
        }
        self.note_unsupported(spec);
        self.note_bonds(spec);
        self.follow_ports(spec);
        let of_agent = |spec: &BridgeSpec| {
            (spec.controllers.clone(), spec.versions.clone(), spec.is_secure, spec.tls.clone())
        };
        if spec.fdb != self.spec.fdb {
            self.follow_fdb(&spec.fdb);
        }
        if is_standalone(spec) != is_standalone(&self.spec) {
            let change = match is_standalone(spec) {
                true => format!("add {STANDALONE}"),
                false => "delete_strict priority=0".to_owned(),
            };
            // It is a rule that every switch accepts.
            _ = self.served.change(&change, "bridge");
        }
        let datapath_id = self.own_datapath_id(spec);
        if of_agent(spec) != of_agent(&self.spec) || datapath_id != self.datapath_id {
            self.datapath_id = datapath_id;
            self.open_agent(spec);
        }
        self.spec = spec.clone();
    }

    /// Names the settings of the database that are not supported.
    fn note_unsupported(&mut self, spec: &BridgeSpec) {
        // Each is said once.
        let new = spec.unsupported.iter().filter(|text| !self.noted.contains(*text)).cloned();
        self.problems.extend(new);
        self.noted.clone_from(&spec.unsupported);
    }

    /// Gives the table of addresses its settings.
    fn follow_fdb(&self, settings: &FdbSettings) {
        // Workers that do not run any more learn nothing.
        _ = self.served.set_fdb_limits(settings.entries_max, settings.ageing_s);
        _ = self.served.flood_vlans(settings.flooded.as_ref());
    }

    /// Removes the ports that the database does not ask for any more, or otherwise than before: other bridges may get them.
    pub(super) fn remove_gone(&mut self, spec: &BridgeSpec) {
        let is_kept = |uuid: &Uuid, port: &BridgePort| {
            let device = |spec: &InterfaceSpec| {
                (spec.name.clone(), spec.kind.clone(), spec.options.clone(), spec.ofport_request)
            };
            let wanted = spec.interfaces.iter().find(|wanted| wanted.uuid == *uuid);
            wanted.is_some_and(|wanted| device(wanted) == device(&port.spec))
        };
        let gone: Vec<Uuid> =
            self.ports.iter().filter(|(uuid, port)| !is_kept(uuid, port)).map(|(uuid, _)| *uuid).collect();
        for uuid in gone {
            self.bfd.end(&uuid, &self.served);
            if let Some(BridgePort { opened: Ok(number), .. }) = self.ports.remove(&uuid) {
                // A worker that does not run any more has no port.
                _ = self.served.remove_port_number(PortNo(number));
                self.snooping.forget(PortNo(number));
            }
        }
    }

    fn follow_ports(&mut self, spec: &BridgeSpec) {
        self.remove_gone(spec);
        self.follow_bonds(spec, None);
        self.follow_tree(spec, None);
        let mut wanted: Vec<&InterfaceSpec> = spec.interfaces.iter().collect();
        // A new interface must not take a number that another one asks for or had.
        let has_number = |interface: &InterfaceSpec| interface.ofport.is_some_and(|number| number > 0);
        wanted.sort_by_key(|interface| (interface.ofport_request.is_none(), !has_number(interface)));
        let mut new = Vec::new();
        for interface in wanted {
            let uuid = interface.uuid;
            match self.ports.get_mut(&uuid) {
                Some(BridgePort { spec, opened: Ok(number), .. }) => {
                    let before = std::mem::replace(spec, interface.clone());
                    let number = *number;
                    self.follow_vlan(number, &before, interface);
                    self.follow_limits(number, Some(&before), interface);
                    self.follow_settings(Some(&before), interface);
                }
                // An interface that was missing may be there now.
                _ => {
                    self.open_port(spec, interface);
                    new.push(interface);
                }
            }
        }
        self.settle_opened(&new);
        self.follow_bfd();
        self.follow_bonds(spec, None);
        self.follow_mirrors(spec);
        self.follow_multicast(spec);
        self.follow_tree(spec, None);
    }

    /// Begins, changes and ends the sessions of ports.
    fn follow_bfd(&self) {
        for (uuid, port) in &self.ports {
            match (&port.spec.bfd, &port.opened) {
                (Some(wanted), Ok(number)) => {
                    let mac = self.served.link(&port.spec.name).and_then(|link| link.mac);
                    self.bfd.follow(*uuid, &port.spec.name, PortNo(*number), wanted, mac, &self.served);
                }
                _ => self.bfd.end(uuid, &self.served),
            }
        }
    }

    /// Opens a port, or notes why that fails.
    fn open_port(&mut self, spec: &BridgeSpec, interface: &InterfaceSpec) {
        let number = self.number_for(&spec.name, interface);
        if spec.bonds.iter().any(|bond| bond.members.iter().any(|member| member.interface == interface.uuid))
        {
            self.follow_bonds(spec, Some((interface, number)));
        }
        self.follow_tree(spec, Some((interface, number)));
        let opened = self.open(interface, number);
        if let Ok(number) = opened {
            self.follow_limits(number, None, interface);
        }
        let port = BridgePort { spec: interface.clone(), opened, resets_before: 0 };
        self.ports.insert(interface.uuid, port);
    }

    /// Waits until the links of ports are known that have been opened, of all together, and gives their interfaces the
    /// settings that are asked for.
    fn settle_opened(&mut self, interfaces: &[&InterfaceSpec]) {
        for interface in interfaces.iter().filter(|interface| interface.has_link()) {
            if self.ports.get(&interface.uuid).is_none_or(|port| port.opened.is_err()) {
                continue;
            }
            // Clients look for the link's state as soon as the port has a number.
            self.wait_for_link(&interface.name, |_| true);
            let resets = self.served.link(&interface.name).map_or(0, |link| link.resets);
            if let Some(port) = self.ports.get_mut(&interface.uuid) {
                port.resets_before = resets;
            }
            self.follow_settings(None, interface);
        }
    }

    /// Returns how the bridge has ended by itself, if it has.
    pub(super) fn end(&mut self) -> Option<BridgeEnd> {
        let problem = |text: &str| Some(BridgeEnd::Problem(text.to_owned()));
        if self.threads.iter().any(JoinHandle::is_finished) {
            return problem("a thread has panicked");
        }
        let forwarding = self.forwarding.take_if(|thread| thread.is_finished())?;
        match forwarding.join() {
            Ok(Ended::HandedOver) => Some(BridgeEnd::HandedOver),
            Ok(Ended::Stopped(_)) => problem("its workers have ended"),
            Ok(Ended::Failed(error)) => problem(&error),
            Err(_) => problem("its workers have panicked"),
        }
    }

    /// Problems since this was called last, for its operator.
    pub(super) fn take_problems(&mut self) -> Vec<String> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let of_links = self.served.take_link_notices();
        self.problems.drain(..).chain(said.drain(..)).chain(of_links).collect()
    }

    /// Tries ports again that could not be opened.
    pub(super) fn retry(&mut self) {
        let failed: Vec<InterfaceSpec> =
            self.ports.values().filter(|port| port.opened.is_err()).map(|port| port.spec.clone()).collect();
        let has_failed = !failed.is_empty();
        if has_failed || !self.spec.bonds.is_empty() {
            let spec = self.spec.clone();
            failed.iter().for_each(|interface| self.open_port(&spec, interface));
            self.settle_opened(&failed.iter().collect::<Vec<_>>());
            self.follow_bonds(&spec, None);
        }
        if has_failed {
            let spec = self.spec.clone();
            self.follow_mirrors(&spec);
            self.follow_multicast(&spec);
            self.follow_tree(&spec, None);
        }
        self.problems.extend(self.served.renew_qos());
        // The address of an interface may have come, or changed.
        self.follow_bfd();
        self.retry_agent();
    }

    /// Its bonds.
    pub(super) fn bonds(&self) -> &Bonds {
        &self.bonds
    }

    /// The sessions of its ports.
    pub(super) fn bfd(&self) -> &BfdSessions {
        &self.bfd
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    /// The counters of ports, by number.
    pub(super) fn counters(&self) -> BTreeMap<u32, PortCounters> {
        let mut all: BTreeMap<u32, PortCounters> = BTreeMap::new();
        for of_worker in self.served.call_workers(statistics::of_worker).unwrap_or_default() {
            of_worker.into_iter().for_each(|(number, counters)| *all.entry(number).or_default() += counters);
        }
        all
    }

    /// The rows of interfaces that are open, with the numbers of their ports.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (Uuid, u32)> {
        self.ports.iter().filter_map(|(uuid, port)| Some((*uuid, *port.opened.as_ref().ok()?)))
    }

    /// The interfaces that are open, in the order of their numbers.
    pub(super) fn opened(&self) -> Vec<(u32, &InterfaceSpec)> {
        let opened = self.ports.values().filter_map(|port| Some((*port.opened.as_ref().ok()?, &port.spec)));
        let mut ports: Vec<_> = opened.collect();
        ports.sort_by_key(|(number, _)| *number);
        ports
    }

    /// The switch, for the commands of `ovs-appctl`.
    pub(super) fn served(&self) -> &ControlServer {
        &self.served
    }

    /// Ends the bridge, and saves its state for the next one. Returns what could not be saved.
    pub(super) fn end_with_state(mut self) -> Vec<String> {
        let sessions = save_sessions(&self.bfd, &self.bonds, &self.snooping, &self.tree);
        let Some(mut switch) = self.shut() else { return Vec::new() };
        let name = &self.spec.name;
        let files = StateFiles::of(&self.folder, name, &self.spec.uuid);
        let not_saved = |what, error: String| format!("bridge {name}: its {what} are not saved: {error}");
        let saved = files.save_sessions(&sessions);
        let mut problems: Vec<String> = saved
            .err()
            .map(|error| not_saved("sessions of BFD and LACP", error.to_string()))
            .into_iter()
            .collect();
        let mut control = self.served.control();
        control.add_learned();
        let written = files.packets.write_with_rules(&mut switch.workers_mut(), &control);
        problems.extend(written.err().map(|error| not_saved("rules and connections", error.to_string())));
        drop(control);
        // Its interfaces keep their addresses.
        let ports = switch.workers_mut().iter_mut().flat_map(|worker| worker.egress.ports.slots_mut());
        ports.for_each(|slot| slot.port.release());
        problems
    }

    /// Ends all threads, and lets go of interfaces. Returns the switch, unless forwarding had ended otherwise.
    fn shut(&mut self) -> Option<Box<Switch>> {
        self.agent.replace(|| None);
        (self.links, self.socket) = (None, None);
        self.is_over.store(true, Ordering::Relaxed);
        self.served.end();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            _ = thread.join();
        }
        let ended = self.forwarding.take().map(JoinHandle::join);
        self.served.close_interfaces();
        match ended {
            Some(Ok(Ended::Stopped(switch))) => Some(switch),
            _ => None,
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.bfd.end_all(&self.served);
        drop(self.shut());
    }
}
