//! A running bridge: a switch with its workers, the agent for its controllers, and its ports.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flowlane::rule::action::PortNo;
use flowlane_openflow::Version;
use flowlane_ovsdb::Uuid;
use serde_json::to_value;

use super::bfd::BfdSessions;
use super::model::{BridgeSpec, InterfaceSpec, check_name};
use super::statistics;
use crate::control::{Changes, VlanChange};
use crate::datapath::{PacketIns, PortCounters, Until};
use crate::mgmt::config::PortSection;
use crate::mgmt::links::KernelLinks;
use crate::mgmt::openflow::{Address, Agent, AgentError, FailMode, Service};
use crate::mgmt::rpc::ControlServer;
use crate::mgmt::setup::{Reload, Setup, vlan_of};

/// Interval of periodic control work.
const TICK: Duration = Duration::from_millis(50);
/// The workers of a new bridge run after this time at the latest.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A port of a bridge, or the reason for which there is none.
#[derive(Clone, Debug)]
pub(super) struct BridgePort {
    pub(super) spec: InterfaceSpec,
    /// Its number.
    pub(super) opened: Result<u32, String>,
}

/// A running bridge.
pub(super) struct Bridge {
    spec: BridgeSpec,
    pub(super) datapath_id: u64,
    served: Arc<ControlServer>,
    packet_ins: Arc<PacketIns>,
    stop: Arc<AtomicBool>,
    /// The workers, the periodic work, and sessions of BFD: each ends with a problem or without.
    threads: Vec<JoinHandle<Option<String>>>,
    agent: Option<Agent>,
    /// Problems of its controllers, to be reported once.
    pub(super) problems: Vec<String>,
    /// The thread that follows the links of interfaces.
    links: Option<KernelLinks>,
    /// The sessions of its ports.
    bfd: Arc<BfdSessions>,
    /// By the rows of interfaces.
    pub(super) ports: BTreeMap<Uuid, BridgePort>,
}

/// The rule of bridges without controllers, which learn and flood.
const STANDALONE: &str = "priority=0,actions=normal";

fn is_standalone(spec: &BridgeSpec) -> bool {
    !spec.is_secure && spec.controllers.is_empty()
}

/// The configuration of a bridge without ports.
fn config(spec: &BridgeSpec) -> String {
    let rules = if is_standalone(spec) { format!("\"{STANDALONE}\"") } else { String::new() };
    format!("[switch]\nadds_ports = true\n[openflow]\n[[table]]\nnumber = 0\nrules = [{rules}]\n")
}

impl Bridge {
    /// Starts a bridge; its ports come with [`follow`](Self::follow).
    pub(super) fn start(spec: &BridgeSpec, folder: &Path, seed: u32) -> Result<Self, String> {
        check_name(&spec.name)?;
        let failed = |error: &dyn std::fmt::Display| format!("bridge {}: {error}", spec.name);
        let setup = Setup::parse(&config(spec)).map_err(|error| failed(&error))?;
        let reload = Reload::of(&setup);
        let (mut switch, mut control) = setup.open_controlled(seed).map_err(|error| failed(&error))?;
        control.accept_any_port();
        let packet_ins = Arc::new(PacketIns::default());
        switch.workers_mut().iter_mut().for_each(|w| w.egress.packet_ins = Some(packet_ins.clone()));
        let stop = Arc::new(AtomicBool::new(false));
        let served = Arc::new(ControlServer::new(control, reload, stop.clone()));
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let running = thread("bridge").spawn({
            let stop = stop.clone();
            move || switch.run(Until::default(), &stop, |_| {}).err().map(|error| error.to_string())
        });
        let bfd = Arc::new(BfdSessions::default());
        let ticking = thread("tick").spawn({
            let (served, bfd, stop) = (served.clone(), bfd.clone(), stop.clone());
            move || {
                served.control().wake(std::thread::current());
                while !stop.load(Ordering::Relaxed) {
                    bfd.publish(&served);
                    served.tick();
                    std::thread::park_timeout(TICK);
                }
                None
            }
        });
        let sessions = thread("bfd").spawn({
            let (served, bfd, stop) = (served.clone(), bfd.clone(), stop.clone());
            move || {
                bfd.run(&served, &stop);
                None
            }
        });
        let threads = [running, ticking, sessions].into_iter().collect::<Result<Vec<_>, _>>();
        let mut bridge = Self {
            spec: BridgeSpec { controllers: Vec::new(), interfaces: Vec::new(), ..spec.clone() },
            datapath_id: spec.datapath_id.unwrap_or(0),
            links: KernelLinks::follow(served.clone()).ok(),
            served,
            packet_ins,
            stop,
            threads: threads.map_err(|error| failed(&error))?,
            agent: None,
            problems: Vec::new(),
            bfd,
            ports: BTreeMap::new(),
        };
        let begun = Instant::now();
        while !bridge.served.runs() {
            if begun.elapsed() > START_TIMEOUT {
                return Err(failed(&"its workers do not start"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        bridge.follow_ports(spec);
        bridge.datapath_id = spec.datapath_id.unwrap_or_else(|| bridge.own_datapath_id(seed));
        bridge.open_agent(spec, folder);
        bridge.spec = spec.clone();
        Ok(bridge)
    }

    /// The identifier of a bridge that is given none: as in Open vSwitch, the Ethernet address of its own port.
    fn own_datapath_id(&self, seed: u32) -> u64 {
        let macs = self.served.macs_of_ports();
        let own = macs.get(&PortNo::LOCAL.0).copied();
        let [a, b, c, d] = seed.to_be_bytes();
        let [m0, m1, m2, m3, m4, m5] = own.unwrap_or([0x02, 0xf1, a, b, c, d]);
        u64::from_be_bytes([0, 0, m0, m1, m2, m3, m4, m5])
    }

    /// Changes the bridge to what the database asks for now.
    pub(super) fn follow(&mut self, spec: &BridgeSpec, folder: &Path) {
        if *spec == self.spec {
            return;
        }
        self.follow_ports(spec);
        let of_agent = |spec: &BridgeSpec| {
            (spec.controllers.clone(), spec.versions.clone(), spec.is_secure, spec.datapath_id)
        };
        if is_standalone(spec) != is_standalone(&self.spec) {
            let change = match is_standalone(spec) {
                true => format!("add {STANDALONE}"),
                false => "delete_strict priority=0".to_owned(),
            };
            // It is a rule that every switch accepts.
            _ = self.served.change(&change, "bridge");
        }
        if of_agent(spec) != of_agent(&self.spec) {
            self.datapath_id = spec.datapath_id.unwrap_or(self.datapath_id);
            // The next one has the same addresses.
            drop(self.agent.take());
            self.open_agent(spec, folder);
        }
        self.spec = spec.clone();
    }

    fn open_agent(&mut self, spec: &BridgeSpec, folder: &Path) {
        let own = folder.join(format!("{}.mgmt", spec.name));
        let (secured, plain): (Vec<&Address>, Vec<&Address>) =
            spec.controllers.iter().partition(|address| address.has_tls());
        let addresses: Vec<Address> =
            std::iter::once(Address::ListenUnix(own)).chain(plain.into_iter().cloned()).collect();
        let versions = if spec.versions.is_empty() { Version::ALL.to_vec() } else { spec.versions.clone() };
        let fail_mode = if spec.is_secure { FailMode::Secure } else { FailMode::default() };
        let service =
            Service::new(self.served.clone(), &spec.name, self.datapath_id, self.packet_ins.clone())
                .with_versions(versions)
                .with_standalone_after(fail_mode.standalone_after().filter(|_| !spec.controllers.is_empty()));
        let open = |addresses: &[Address]| {
            let mut agent = Agent::open(addresses, None, service.clone())?;
            agent.open_snoop(&folder.join(format!("{}.snoop", spec.name)))?;
            Ok::<_, AgentError>(agent)
        };
        self.agent = match open(&addresses) {
            Ok(agent) => Some(agent),
            Err(error) => {
                self.problems.push(error.to_string());
                // Its own socket must not fail with an address of a controller.
                open(&addresses[..1]).map_err(|error| self.problems.push(error.to_string())).ok()
            }
        };
        let without = |what: &dyn std::fmt::Display| {
            format!("{what} is left out: it is no address of a controller without TLS")
        };
        self.problems.extend(secured.iter().map(|address| without(address)));
        self.problems.extend(spec.unknown_controllers.iter().map(|target| without(target)));
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
            }
        }
    }

    fn follow_ports(&mut self, spec: &BridgeSpec) {
        self.remove_gone(spec);
        let mut wanted: Vec<&InterfaceSpec> = spec.interfaces.iter().collect();
        // A new interface must not take a number that another one asks for or had.
        let has_number = |interface: &InterfaceSpec| interface.ofport.is_some_and(|number| number > 0);
        wanted.sort_by_key(|interface| (interface.ofport_request.is_none(), !has_number(interface)));
        for interface in wanted {
            let uuid = interface.uuid;
            match self.ports.get_mut(&uuid) {
                Some(BridgePort { spec, opened: Ok(number) }) => {
                    let before = std::mem::replace(spec, interface.clone());
                    let number = *number;
                    self.follow_vlan(number, &before, interface);
                }
                // An interface that was missing may be there now.
                _ => {
                    let opened = self.open(&spec.name, interface);
                    self.ports.insert(uuid, BridgePort { spec: interface.clone(), opened });
                }
            }
        }
        self.follow_bfd();
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

    fn open(&self, bridge: &str, interface: &InterfaceSpec) -> Result<u32, String> {
        let section = interface.section(self.number_for(bridge, interface))?;
        let value = to_value(&section).map_err(|error| error.to_string())?;
        self.served.add_port(value).map(|report| report.number).map_err(|error| error.message)
    }

    /// The number of a port: LOCAL for the bridge's own, the requested one, the one that it had, or the lowest that is free.
    fn number_for(&self, bridge: &str, interface: &InterfaceSpec) -> u32 {
        if interface.name == bridge {
            return PortNo::LOCAL.0;
        }
        let is_free = |number: &u32| {
            (1..=PortNo::MAX.0).contains(number) && self.ports.values().all(|port| port.opened != Ok(*number))
        };
        let before = interface.ofport.and_then(|number| u32::try_from(number).ok());
        let mut wished = interface.ofport_request.into_iter().chain(before).chain(1..=PortNo::MAX.0);
        wished.find(is_free).unwrap_or(PortNo::MAX.0)
    }

    fn follow_vlan(&self, number: u32, before: &InterfaceSpec, now: &InterfaceSpec) {
        let section = |of: &InterfaceSpec| -> Option<PortSection> { of.section(number).ok() };
        let (Some(before), Some(now)) = (section(before), section(now)) else { return };
        let (before, vlan) = (vlan_of(&before), vlan_of(&now));
        if before != vlan {
            let change = VlanChange { port: PortNo(number), vlan };
            let changes = Changes { vlans: &[change], ..Changes::default() };
            // The port is there: nothing can be refused.
            _ = self.served.control().change_all(&changes);
        }
    }

    /// Returns why the bridge has ended by itself, if it has.
    pub(super) fn end(&mut self) -> Option<String> {
        let at = self.threads.iter().position(JoinHandle::is_finished)?;
        let ended = self.threads.swap_remove(at).join();
        let problem = ended.unwrap_or_else(|_| Some("a thread has panicked".to_owned()));
        Some(problem.unwrap_or_else(|| "its workers have ended".to_owned()))
    }

    /// Tries ports again that could not be opened.
    pub(super) fn retry(&mut self) {
        let failed: Vec<InterfaceSpec> =
            self.ports.values().filter(|port| port.opened.is_err()).map(|port| port.spec.clone()).collect();
        for interface in failed {
            let opened = self.open(&self.spec.name.clone(), &interface);
            self.ports.insert(interface.uuid, BridgePort { spec: interface, opened });
        }
        // The address of an interface may have come, or changed.
        self.follow_bfd();
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

    /// Lists the ports, as `dpif/show` does.
    pub(super) fn describe(&self) -> String {
        let mut out = format!("  {}:\n", self.spec.name);
        for (number, spec) in self.opened() {
            let options: Vec<String> =
                spec.options.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let options =
                if options.is_empty() { String::new() } else { format!(": {}", options.join(", ")) };
            out += &format!("    {} {number}/{number}: ({}{options})\n", spec.name, spec.type_name());
        }
        out
    }

    /// The switch, for the commands of `ovs-appctl`.
    pub(super) fn served(&self) -> &ControlServer {
        &self.served
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        drop(self.agent.take());
        self.links = None;
        self.bfd.end_all(&self.served);
        self.served.end();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            _ = thread.join();
        }
        debug_assert!(self.stop.load(Ordering::Relaxed));
        self.served.close_interfaces();
    }
}
