//! Ports that come and go while the switch runs, and the links of their interfaces.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::Thread;

use flowlane::rule::action::PortNo;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::RpcError;
use super::server::ControlServer;
use crate::control::{Changes, VlanChange};
use crate::datapath::{BfdInlet, Inlet, TreeView};
use crate::mgmt::config::{ConfigError, KeyPath, PortSection, Source};
use crate::mgmt::setup::{Asked, Opened, PortSet, vlan_of};
use crate::port::device::{self, LinkMode};
use crate::port::{Port, PortSpec};
use crate::ruleset::PortFlags;
use crate::state::bond::BondView;
use crate::state::multicast::Snooping;

/// The state of an interface of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    /// It is up and has a carrier.
    pub(crate) is_up: bool,
    /// It is set up.
    pub(crate) is_enabled: bool,
    pub(crate) mac: Option<[u8; 6]>,
    /// Its index.
    pub(crate) index: u32,
    /// In bytes.
    pub(crate) mtu: Option<u32>,
    pub(crate) mode: Option<LinkMode>,
    /// How often it has gone up or down since it was first seen.
    pub(crate) resets: u32,
}

/// The interfaces of the system by name; none while nothing follows them.
pub(crate) type Links = Option<HashMap<String, Link>>;

/// The Ethernet address of a port without an interface: a local one, that says its number.
pub(crate) fn local_mac(port: PortNo) -> [u8; 6] {
    let [.., high, low] = port.0.to_be_bytes();
    [0x02, 0xf1, 0x00, 0x00, high, low]
}

/// A port that has been added or removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortChangeReport {
    pub number: u32,
    pub name: String,
    pub open: String,
    /// The error of closing it, so that not everything could be written, or of its queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemovePortParams {
    pub(super) port: String,
}

/// The error of a port, as a client gets it.
pub(super) fn refused(error: ConfigError) -> RpcError {
    let help = error.help.map_or_else(String::new, |help| format!("; {help}"));
    RpcError::new(RpcError::REFUSED, format!("{}{help}", error.message))
}

/// Closes a port that no worker has any more. Returns what could not be written.
fn close(port: Option<Box<dyn Port>>) -> Option<String> {
    port.and_then(|mut port| port.close().and_then(|()| port.flush().map(drop)).err()).map(|e| e.to_string())
}

/// Reads the section of a port; without a number, it gets the lowest that is free.
fn section_of(params: Value, ports: &PortSet) -> Result<PortSection, RpcError> {
    let wrong = |problem: String| RpcError::new(RpcError::PARAMS, problem);
    let Value::Object(mut section) = params else {
        return Err(wrong("the keys of a [[port]] section are expected".to_owned()));
    };
    section.entry("number").or_insert_with(|| json!(ports.free_number()));
    serde_json::from_value(Value::Object(section)).map_err(|error| wrong(error.to_string()))
}

/// The methods that are the owner's where a switch has one.
const OWNED: [&str; 4] = ["reload", "add_port", "remove_port", "stop"];

impl ControlServer {
    /// Refuses clients of the control socket to change ports and the configuration, or to stop the switch, with this reason.
    pub(crate) fn set_owner(&mut self, why: &'static str) {
        self.owner = Some(why);
    }

    pub(super) fn check_owned(&self, method: &str) -> Result<(), RpcError> {
        match self.owner.filter(|_| OWNED.contains(&method)) {
            Some(why) => Err(RpcError::new(RpcError::REFUSED, why)),
            None => Ok(()),
        }
    }

    /// Adds a port: `params` has the keys of a `[[port]]` section.
    ///
    /// # Errors
    /// Where a key is wrong, the device cannot be opened, or the switch does not run; nothing has changed.
    pub fn add_port(&self, params: Value) -> Result<PortChangeReport, RpcError> {
        // A port that is opened may write a file.
        self.call_worker(0, |_| ())?;
        let mut ports = self.reload.ports();
        let section = section_of(params, &ports)?;
        ports.check_new(&section).map_err(refused)?;
        let asked = Asked { section, at: KeyPath::of("port") };
        let opened = ports.open(&asked, self.workers_count(), false, &Source::none()).map_err(refused)?;
        let report = report_of(&opened.section);
        let problem = self.put(&mut ports, opened)?;
        Ok(PortChangeReport { problem, ..report })
    }

    /// Removes the port of a name or number.
    ///
    /// # Errors
    /// Where there is none of this name or number, a rule names it, it is an interface of the router, or the switch does not run.
    pub fn remove_port(&self, port: &str) -> Result<PortChangeReport, RpcError> {
        self.call_worker(0, |_| ())?;
        let mut ports = self.reload.ports();
        let unknown = || RpcError::new(RpcError::REFUSED, format!("there is no port `{port}`"));
        let port = ports.find_either(port).ok_or_else(unknown)?;
        self.remove_unrouted(&mut ports, port)
    }

    /// Removes the port of a number.
    ///
    /// # Errors
    /// As [`remove_port`](Self::remove_port).
    pub(crate) fn remove_port_number(&self, port: PortNo) -> Result<PortChangeReport, RpcError> {
        self.call_worker(0, |_| ())?;
        let mut ports = self.reload.ports();
        let unknown = || RpcError::new(RpcError::REFUSED, format!("there is no port {}", port.0));
        ports.section(port.0).ok_or_else(unknown)?;
        self.remove_unrouted(&mut ports, port)
    }

    /// Removes a port, unless it is an interface of the router.
    fn remove_unrouted(&self, ports: &mut PortSet, port: PortNo) -> Result<PortChangeReport, RpcError> {
        if ports.section(port.0).is_some_and(|section| !section.addresses.is_empty()) {
            let message =
                format!("port {} is an interface of the router: stop the switch to remove it", port.0);
            return Err(RpcError::new(RpcError::REFUSED, message));
        }
        self.take_out(ports, port.0)
    }

    /// Gives the workers a port that has been opened; it takes the place of one of its number.
    pub(super) fn put(&self, ports: &mut PortSet, mut opened: Opened) -> Result<Option<String>, RpcError> {
        let (port, flags) = (PortNo(opened.section.number), self.link_flags(opened.interface()));
        let place = self.call_worker(0, |worker| worker.egress.ports.free_place())?;
        let mut problem = None;
        for (worker, mut slot) in std::mem::take(&mut opened.slots).into_iter().enumerate() {
            slot.flags = flags;
            problem =
                close(self.call_worker(worker, move |worker| worker.put_port(place, slot))?).or(problem);
        }
        self.control().add_port(port, &opened.section.name(), flags, opened.vlan());
        let problem = self.follow_qos(&opened.section).err().or(problem);
        ports.added(opened);
        Ok(problem)
    }

    /// Takes a port from the workers.
    pub(super) fn take_out(&self, ports: &mut PortSet, number: u32) -> Result<PortChangeReport, RpcError> {
        let section = ports.section(number).expect("the port is there");
        let mut report = report_of(section);
        let removed = self.control().remove_port(PortNo(number), &report.name);
        removed.map_err(|refusal| RpcError::new(RpcError::REFUSED, refusal.to_string()))?;
        for worker in 0..self.workers_count() {
            let gone = self.call_worker(worker, move |worker| worker.egress.ports.remove(PortNo(number)))?;
            report.problem = close(gone).or(report.problem);
        }
        self.remove_qos(PortNo(number));
        ports.removed(number);
        Ok(report)
    }

    /// Gives a port the settings of another section that opens the same. Returns why its queues are not as it asks for.
    pub(super) fn set_port(
        &self,
        ports: &mut PortSet,
        section: PortSection,
    ) -> Result<Option<String>, RpcError> {
        let (port, name) = (PortNo(section.number), section.name().into_owned());
        for worker in 0..self.workers_count() {
            let (name, decapsulate, vrf) = (name.clone(), section.decapsulate, section.vrf);
            self.call_worker(worker, move |worker| {
                let ports = &mut worker.egress.ports;
                if let Some(place) = ports.place(port) {
                    let slot = &mut ports.slots_mut()[place];
                    (slot.name, slot.decapsulate, slot.vrf) = (name, decapsulate, vrf);
                }
            })?;
        }
        self.control().tell_port(port);
        let problem = self.follow_qos(&section).err();
        ports.changed(section);
        Ok(problem)
    }

    /// Gives a port the VLAN settings of a section that is otherwise the same.
    pub(crate) fn set_vlan(&self, section: PortSection) {
        let mut ports = self.reload.ports();
        let change = VlanChange { port: PortNo(section.number), vlan: vlan_of(&section) };
        // The port is there: nothing can be refused.
        _ = self.control().change_all(&Changes { vlans: &[change], ..Changes::default() });
        ports.set_vlan(section);
    }

    /// The sections of the ports that clients have added.
    pub(crate) fn sections_of_clients(&self) -> Vec<PortSection> {
        self.reload.ports().of_clients().cloned().collect()
    }

    /// Gives a port a session of BFD, whose control packets go there, or takes it.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(crate) fn set_bfd(&self, port: PortNo, inlet: Option<&Arc<BfdInlet>>) -> Result<(), RpcError> {
        for worker in 0..self.workers_count() {
            let inlet = inlet.cloned();
            self.call_worker(worker, move |worker| worker.set_bfd(port, inlet))?;
        }
        Ok(())
    }

    /// Makes the bonds of ports these, and the inlets of those that speak LACP. Through bonds with a member of `announced`, neighbours
    /// learn again where addresses are.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(crate) fn set_bonds(
        &self,
        bonds: &[Arc<BondView>],
        inlets: &[(PortNo, Arc<Inlet>)],
        announced: &[PortNo],
    ) -> Result<(), RpcError> {
        for worker in 0..self.workers_count() {
            let (bonds, inlets) = (bonds.to_vec(), inlets.to_vec());
            // One of the workers announces.
            let announced = if worker == 0 { announced.to_vec() } else { Vec::new() };
            self.call_worker(worker, move |worker| {
                worker.set_lacp(&inlets);
                worker.set_bonds(bonds, &announced);
            })?;
        }
        Ok(())
    }

    /// Snoops multicast with this table; `None`: packets for groups go to all ports.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(crate) fn set_multicast(&self, multicast: Option<&Arc<Snooping>>) -> Result<(), RpcError> {
        for worker in 0..self.workers_count() {
            let multicast = multicast.cloned();
            self.call_worker(worker, move |worker| worker.set_multicast(multicast))?;
        }
        Ok(())
    }

    /// Gives ports these states in a spanning tree, and the inlets of their BPDUs; `None`: there is none.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(crate) fn set_tree(&self, tree: Option<&Arc<TreeView>>) -> Result<(), RpcError> {
        for worker in 0..self.workers_count() {
            let tree = tree.cloned();
            self.call_worker(worker, move |worker| worker.set_tree(tree))?;
        }
        Ok(())
    }

    /// Wakes a thread when links change.
    pub(crate) fn watch_links(&self, thread: Thread) {
        self.links_watchers.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    }

    /// Returns whether the link of an interface is up. Of one that is not known, it is, if nothing follows links, or if it `may_hide`.
    pub(crate) fn is_link_up(&self, interface: &str, may_hide: bool) -> bool {
        let links = self.links();
        links.as_ref().is_none_or(|links| links.get(interface).map_or(may_hide, |link| link.is_up))
    }

    /// Returns whether the workers run.
    pub(crate) fn runs(&self) -> bool {
        self.call_worker(0, |_| ()).is_ok()
    }

    /// The state of an interface of the system, as far as it is known.
    pub(crate) fn link(&self, interface: &str) -> Option<Link> {
        self.links().as_ref()?.get(interface).copied()
    }

    /// Lets other processes open the interfaces of a switch that has ended.
    pub(crate) fn close_interfaces(&self) {
        let mut ports = self.reload.ports();
        let all: Vec<u32> = ports.interfaces().map(|(port, _)| port.0).collect();
        all.into_iter().for_each(|number| ports.removed(number));
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        // It is replaced as a whole.
        self.links.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The state of an interface's link, as a flag.
    fn link_flags(&self, interface: Option<&str>) -> PortFlags {
        let (Some(interface), Some(links)) = (interface, &*self.links()) else { return PortFlags::default() };
        match links.get(interface) {
            Some(link) if !link.is_up => PortFlags::NO_LINK,
            _ => PortFlags::default(),
        }
    }

    /// Notes the interfaces of the system, and which ports have a link. One that is not there has none, unless it is a TAP, whose other
    /// end may be in another namespace.
    pub(crate) fn set_links(&self, links: HashMap<String, Link>) {
        let ports = self.reload.ports();
        let is_up = |spec: &PortSpec| match spec.interface().and_then(|name| links.get(name)) {
            Some(link) => link.is_up,
            None => matches!(spec, PortSpec::Tap { .. }),
        };
        let states: Vec<_> = ports.interfaces().map(|(port, spec)| (port, is_up(spec))).collect();
        self.note_links(&ports, &links);
        *self.links() = Some(links);
        let watchers = self.links_watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.iter().for_each(Thread::unpark);
        drop(watchers);
        self.control().set_links(&states);
    }

    /// The links of the ports that are interfaces of the system.
    pub(crate) fn links_of_ports(&self) -> HashMap<u32, Link> {
        let ports = self.reload.ports();
        let links = self.links();
        let link = |spec: &PortSpec| links.as_ref()?.get(spec.interface()?).copied();
        ports.interfaces().filter_map(|(port, spec)| Some((port.0, link(spec)?))).collect()
    }

    /// Sets the interface of a port up or down, if it has one.
    pub(crate) fn set_interface_up(&self, port: PortNo, is_up: bool) {
        let ports = self.reload.ports();
        let found = ports.interfaces().find(|(number, _)| *number == port);
        if let Some(name) = found.and_then(|(_, spec)| spec.interface().map(str::to_owned)) {
            drop(ports);
            // The port's own setting holds all the same where the interface may not be changed.
            _ = device::set_up(&name, is_up);
        }
    }
}

fn report_of(section: &PortSection) -> PortChangeReport {
    PortChangeReport {
        number: section.number,
        name: section.name().into_owned(),
        open: section.open.clone(),
        problem: None,
    }
}
