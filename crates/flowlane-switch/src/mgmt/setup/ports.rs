//! The ports of a running switch: those of its configuration, and those that clients have added.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use flowlane::rule::action::PortNo;

use super::{Setup, inputs, numbers, port_failed, qos, vlans};
use crate::datapath::{Clock, PortSlot};
use crate::mgmt::config::{Config, ConfigError, KeyPath, PortSection, Source};
use crate::port::spec::check_captures;
use crate::port::{
    Port, PortSpec,
    interface_lock::{self, Held},
};
use crate::state::vlan::PortVlan;
use crate::tunnel::PortTunnel;

/// A port that the switch has.
#[derive(Debug)]
struct Present {
    section: PortSection,
    spec: PortSpec,
    /// The lock of its interface, until the port is removed.
    _lock: Option<Held>,
    /// It is one of the configuration, not of a client.
    is_configured: bool,
}

/// A port whose queues are open, for the workers to take.
pub(crate) struct Opened {
    pub(crate) section: PortSection,
    spec: PortSpec,
    /// One for each worker.
    pub(crate) slots: Vec<PortSlot>,
    lock: Option<Held>,
    is_configured: bool,
}

/// A section of a configuration with its place there.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) section: PortSection,
    pub(crate) at: KeyPath,
}

/// The changes of ports that a reload makes.
#[derive(Default)]
pub(crate) struct PortPlan {
    /// Those that are opened before rules change, which may name them.
    pub(crate) new: Vec<Asked>,
    /// Those that are opened afterwards, in the place of the port of their number.
    pub(crate) replaced: Vec<Asked>,
    /// Those with other settings than before.
    pub(crate) changed: Vec<PortSection>,
    /// Those that are removed.
    pub(crate) gone: Vec<u32>,
    /// Ports of clients that a configuration has as they are.
    pub(crate) adopted: Vec<u32>,
}

impl PortPlan {
    /// Returns whether workers have something to do.
    pub(crate) fn is_needed(&self) -> bool {
        !(self.new.is_empty() && self.replaced.is_empty() && self.changed.is_empty() && self.gone.is_empty())
    }
}

/// All ports of a running switch.
pub struct PortSet {
    folder: PathBuf,
    /// Files that no port may write over.
    inputs: Vec<PathBuf>,
    clock: Clock,
    /// The capabilities to open interfaces are kept.
    adds_ports: bool,
    /// By number.
    present: BTreeMap<u32, Present>,
    /// The controller's.
    controller: Option<PortSpec>,
}

/// The port of a worker that a section asks for.
pub(super) fn slot_of(section: &PortSection, spec: &PortSpec, queue: Box<dyn Port>) -> PortSlot {
    let mut slot = PortSlot::new(PortNo(section.number), &section.name(), &section.open, queue);
    slot.tunnel = spec.tunnel().map(|tunnel| Box::new(PortTunnel::new(tunnel.clone())));
    (slot.decapsulate, slot.vrf, slot.vlan) = (section.decapsulate, section.vrf, vlans::of(section));
    slot
}

/// Returns whether two sections ask for the same but for settings that can change.
fn is_same_device(a: &PortSection, b: &PortSection) -> bool {
    a.number == b.number && a.open == b.open
}

/// Returns whether two sections differ in nothing but VLANs.
fn is_same(a: &PortSection, b: &PortSection) -> bool {
    let settings = |of: &PortSection| (of.decapsulate, of.vrf, of.addresses.clone(), of.qos.clone());
    is_same_device(a, b) && a.name() == b.name() && settings(a) == settings(b)
}

impl Opened {
    /// The VLAN settings.
    pub(crate) fn vlan(&self) -> Option<Arc<PortVlan>> {
        vlans::of(&self.section)
    }

    /// The interface of the system, if it is one.
    pub(crate) fn interface(&self) -> Option<&str> {
        self.spec.interface()
    }
}

impl PortSet {
    /// The ports that a switch is set up with.
    pub(super) fn of(setup: &Setup) -> Self {
        let ports = setup.config.port.iter().zip(&setup.specs).enumerate();
        let present = ports.map(|(place, (section, spec))| {
            let is_configured = place < setup.configured_ports;
            let lock = spec.interface().map(Held::of);
            (
                section.number,
                Present { section: section.clone(), spec: spec.clone(), _lock: lock, is_configured },
            )
        });
        Self {
            folder: setup.source.folder().to_owned(),
            inputs: inputs(&setup.config, &setup.source),
            clock: setup.clock(),
            adds_ports: setup.config.switch.adds_ports,
            present: present.collect(),
            controller: setup.controller.clone(),
        }
    }

    /// The interfaces of the system that the switch has.
    pub(crate) fn locked(&self) -> Vec<String> {
        let specs = self.present.values().map(|port| &port.spec).chain(&self.controller);
        specs.filter_map(|spec| spec.interface().map(str::to_owned)).collect()
    }

    /// The number of the port of this name.
    pub fn find(&self, name: &str) -> Option<PortNo> {
        let mut names = self.present.values().map(|port| &port.section);
        let found = names.find(|one| one.name() == name);
        found.map(|section| PortNo(section.number))
    }

    /// Checks the names of ports with other settings.
    ///
    /// # Errors
    /// One that another port has.
    pub(crate) fn check_changed(&self, sections: &[PortSection], source: &Source) -> Result<(), ConfigError> {
        sections.iter().try_for_each(|section| self.check_name(section, &KeyPath::of("port"), source))
    }

    /// The number of the port of this name or number.
    pub(crate) fn find_either(&self, text: &str) -> Option<PortNo> {
        let numbered = || text.parse().ok().filter(|number| self.present.contains_key(number)).map(PortNo);
        self.find(text).or_else(numbered)
    }

    /// The sections of the ports that clients have added.
    pub(crate) fn of_clients(&self) -> impl Iterator<Item = &PortSection> {
        self.present.values().filter(|port| !port.is_configured).map(|port| &port.section)
    }

    /// The sections of the ports that ask for a discipline of the kernel.
    pub(crate) fn with_qos(&self) -> impl Iterator<Item = &PortSection> {
        self.present.values().map(|port| &port.section).filter(|section| section.qos.is_some())
    }

    /// The sections of the ports that ask for none.
    pub(super) fn without_qos(&self) -> impl Iterator<Item = &PortSection> {
        self.present.values().map(|port| &port.section).filter(|section| section.qos.is_none())
    }

    /// Returns whether a port is one of a client.
    pub(crate) fn is_of_client(&self, number: u32) -> bool {
        self.present.get(&number).is_some_and(|port| !port.is_configured)
    }

    /// The section of a port.
    pub(crate) fn section(&self, number: u32) -> Option<&PortSection> {
        self.present.get(&number).map(|port| &port.section)
    }

    /// The number of ports.
    pub(crate) fn len(&self) -> usize {
        self.present.len()
    }

    /// The ports that are interfaces of the system, with these.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = (PortNo, &PortSpec)> {
        let all = self.present.iter().map(|(number, port)| (PortNo(*number), &port.spec));
        all.filter(|(_, spec)| spec.interface().is_some())
    }

    /// The lowest number that no port has.
    pub(crate) fn free_number(&self) -> u32 {
        (1..).find(|number| !self.present.contains_key(number)).expect("there are fewer ports than numbers")
    }

    /// Checks the section of a port that a client adds.
    ///
    /// # Errors
    /// A setting that is wrong, or a number, name or interface in use.
    pub(crate) fn check_new(&self, section: &PortSection) -> Result<(), ConfigError> {
        let (source, at) = (&Source::none(), KeyPath::of("port"));
        if self.present.contains_key(&section.number) {
            let message = format!("there is a port {} already", section.number);
            return Err(source.error(&at, message, "give it another number, or remove that one first"));
        }
        if !section.addresses.is_empty() {
            let message = "the router's interfaces are made when the switch starts";
            return Err(source.error(
                &at,
                message,
                "leave addresses out, or add the port to the configuration",
            ));
        }
        let config = Config { port: vec![section.clone()], ..Config::default() };
        numbers::ports(&config, source)?;
        vlans::check(&config, source)?;
        qos::check(&config, source)?;
        self.check_name(section, &at, source)
    }

    /// Checks that no other port has the name of a port.
    fn check_name(&self, section: &PortSection, at: &KeyPath, source: &Source) -> Result<(), ConfigError> {
        let name = section.name();
        match self.find(&name) {
            Some(other) if other.0 != section.number => {
                let message = format!("port {} is called `{name}`", other.0);
                Err(source.error(at, message, "give each its own name, or remove that port first"))
            }
            _ => Ok(()),
        }
    }

    /// Opens a port with a queue for each worker. No worker has it yet.
    ///
    /// # Errors
    /// A device that is not there, or is in use.
    pub(crate) fn open(
        &self,
        asked: &Asked,
        workers: usize,
        is_configured: bool,
        source: &Source,
    ) -> Result<Opened, ConfigError> {
        let Asked { section, at } = asked;
        self.check_name(section, at, source)?;
        let failed = |error| port_failed(&error, at, source);
        let mut spec: PortSpec = section.open.parse().map_err(failed)?;
        spec.relative_to(&self.folder);
        let refused = |message: String, help| source.error(&at.key("open"), message, help);
        if self.clock == Clock::Frames && spec.is_live() {
            let help = "start the switch with clock = \"wall\"";
            return Err(refused("the switch goes by the times of captures".to_owned(), help));
        }
        self.check_device(&spec).map_err(|(message, help)| refused(message, help))?;
        let mut specs: Vec<PortSpec> = self.present.values().map(|port| port.spec.clone()).collect();
        specs.push(spec.clone());
        check_captures(&specs, &self.inputs).map_err(|(_, error)| failed(error))?;
        // Let go where the port is not opened, or not taken by the workers.
        let lock = spec.interface().map(Held::of);
        let queues = spec.open_all(workers).map_err(|error| {
            let error = failed(error);
            let lacks_rights = error.environment && !self.adds_ports;
            let help = "a running switch keeps the capabilities for further interfaces with adds_ports = true in [switch]";
            ConfigError { help: lacks_rights.then(|| help.to_owned()).or(error.help.clone()), ..error }
        })?;
        let slots = queues.into_iter().map(|queue| slot_of(section, &spec, queue)).collect();
        Ok(Opened { section: section.clone(), spec, slots, lock, is_configured })
    }

    /// Checks that a device is not in use in this process, and that opening it does not wait.
    fn check_device(&self, spec: &PortSpec) -> Result<(), (String, &'static str)> {
        let interface = spec.interface();
        let mut others = self.present.iter();
        let same = others.find(|(_, other)| interface.is_some() && interface == other.spec.interface());
        if let Some((number, other)) = same {
            return Err((format!("port {number} has {}", other.spec), "remove that port first"));
        }
        if let Some(interface) = interface.filter(|interface| interface_lock::is_locked(interface)) {
            return Err((format!("another bridge has {interface}"), "remove it there first"));
        }
        let files = match spec {
            PortSpec::Pcap(config) => vec![Some(&config.file), config.out.as_ref()],
            PortSpec::PcapOut(config) => vec![Some(&config.file)],
            _ => Vec::new(),
        };
        // Others wait for the change meanwhile.
        let is_other = |file: &&PathBuf| file.metadata().is_ok_and(|data| !data.is_file());
        match files.into_iter().flatten().find(is_other) {
            Some(file) => Err((format!("{} is not a file", file.display()), "start the switch with it")),
            None => Ok(()),
        }
    }

    /// Notes that the workers have a port.
    pub(crate) fn added(&mut self, opened: Opened) {
        let Opened { section, spec, lock, is_configured, .. } = opened;
        self.present.insert(section.number, Present { section, spec, _lock: lock, is_configured });
    }

    /// Notes that the workers have no such port any more.
    pub(crate) fn removed(&mut self, number: u32) {
        self.present.remove(&number);
    }

    /// Notes the settings of a port, which a configuration has.
    pub(crate) fn changed(&mut self, section: PortSection) {
        if let Some(port) = self.present.get_mut(&section.number) {
            (port.section, port.is_configured) = (section, true);
        }
    }

    /// Notes the VLAN settings of a port.
    pub(crate) fn set_vlan(&mut self, section: PortSection) {
        if let Some(port) = self.present.get_mut(&section.number) {
            port.section = section;
        }
    }

    /// Notes that a configuration has a port that a client has added.
    pub(crate) fn adopt(&mut self, number: u32) {
        if let Some(port) = self.present.get_mut(&number) {
            port.is_configured = true;
        }
    }

    /// Returns what a reload has to do.
    pub(crate) fn plan(&self, wanted: &[Asked]) -> PortPlan {
        let numbers: BTreeSet<u32> = wanted.iter().map(|asked| asked.section.number).collect();
        let mut plan = PortPlan::default();
        for asked in wanted {
            match self.present.get(&asked.section.number) {
                None => plan.new.push(asked.clone()),
                Some(port) if !is_same_device(&port.section, &asked.section) => {
                    plan.replaced.push(asked.clone());
                }
                Some(port) if !is_same(&port.section, &asked.section) => {
                    plan.changed.push(asked.section.clone());
                }
                Some(port) if !port.is_configured => plan.adopted.push(asked.section.number),
                Some(_) => {}
            }
        }
        let gone =
            self.present.iter().filter(|(number, port)| port.is_configured && !numbers.contains(number));
        plan.gone = gone.map(|(number, _)| *number).collect();
        plan
    }
}

impl Setup {
    /// Adds the ports that clients have added to a switch whose place this one takes, unless its configuration has others of their
    /// number or name.
    pub fn add_ports(&mut self, sections: Vec<PortSection>) {
        for section in sections {
            let is_other =
                |port: &PortSection| port.number != section.number && port.name() != section.name();
            let Ok(mut spec) = section.open.parse::<PortSpec>() else { continue };
            let is_free =
                |other: &PortSpec| spec.interface().is_none() || spec.interface() != other.interface();
            if self.config.port.iter().all(is_other) && self.specs.iter().all(is_free) {
                spec.relative_to(self.source.folder());
                self.specs.push(spec);
                self.config.port.push(section);
            }
        }
    }

    /// The ports of the configuration, with their places in it.
    pub(super) fn asked(&self) -> Vec<Asked> {
        let ports = self.config.port.iter().enumerate();
        ports
            .map(|(n, section)| Asked { section: section.clone(), at: KeyPath::section("port", n) })
            .collect()
    }
}
