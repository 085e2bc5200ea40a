//! The numbers that ports have in the datapath, as `dpif/show`, `dpctl/show` and traces name them.
//!
//! Open vSwitch has one datapath for all bridges, whose ports are numbered apart from those of OpenFlow: tunnels of one kind and UDP
//! port share a number, and patch ports have none.

use std::collections::{BTreeMap, BTreeSet};

use flowlane_ovsdb::Uuid;

use super::bridge::Bridge;
use super::model::InterfaceSpec;

/// A port of the datapath.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Device {
    Interface(Uuid),
    /// All tunnels of a kind, of those behind UDP with one port.
    Tunnel(String),
}

/// A port of the datapath, as it is listed.
#[derive(Clone, Debug)]
pub(super) struct DatapathPort {
    pub(super) name: String,
    /// Its type, with what else there is to say; empty for an interface of the system.
    pub(super) kind: String,
}

/// The ports of the datapath.
#[derive(Clone, Debug, Default)]
pub(super) struct DatapathPorts {
    numbers: BTreeMap<Device, u32>,
    ports: BTreeMap<u32, DatapathPort>,
}

/// The port of the datapath that an interface is, or shares; none for patch ports.
fn device(spec: &InterfaceSpec) -> Option<(Device, DatapathPort)> {
    let port = |name: String, kind: &str| DatapathPort { name, kind: kind.to_owned() };
    let behind_udp = |prefix: &str, default: &str| {
        let own = spec.options.get("dst_port").filter(|own| *own != default);
        let (udp, shown) = match own {
            Some(own) => (own.as_str(), format!("dst_port={own}, ")),
            None => (default, String::new()),
        };
        let name = format!("{prefix}_sys_{udp}");
        (Device::Tunnel(name.clone()), port(name, &format!("{}: {shown}packet_type=ptap", spec.kind)))
    };
    match &*spec.kind {
        "patch" => None,
        "geneve" => Some(behind_udp("genev", "6081")),
        "vxlan" => Some(behind_udp("vxlan", "4789")),
        "gre" | "ip6gre" | "erspan" | "ip6erspan" => {
            let name = format!("{}_sys", spec.kind);
            let version = if spec.kind.ends_with("erspan") { "erspan_ver=0, " } else { "" };
            let shown = format!("{}: {version}packet_type=ptap", spec.kind);
            Some((Device::Tunnel(name.clone()), port(name, &shown)))
        }
        "" | "system" => Some((Device::Interface(spec.uuid), port(spec.name.clone(), ""))),
        _ => Some((Device::Interface(spec.uuid), port(spec.name.clone(), spec.datapath_type()))),
    }
}

impl DatapathPorts {
    /// Numbers the ports that have come, and frees the numbers of those that are gone.
    pub(super) fn follow(&mut self, bridges: &BTreeMap<Uuid, Bridge>) {
        let mut there: Vec<(Device, DatapathPort)> = Vec::new();
        for bridge in bridges.values() {
            // The bridge's own port first, then the others in the order of their numbers.
            let mut opened = bridge.opened();
            opened.sort_by_key(|(number, spec)| (spec.name != bridge.name(), *number));
            there.extend(opened.into_iter().filter_map(|(_, spec)| device(spec)));
        }
        let devices: BTreeSet<&Device> = there.iter().map(|(device, _)| device).collect();
        self.numbers.retain(|device, _| devices.contains(device));
        let mut used: BTreeSet<u32> = self.numbers.values().copied().collect();
        for (device, _) in &there {
            self.numbers.entry(device.clone()).or_insert_with(|| {
                // Open vSwitch's number 0 is the datapath's own.
                let free =
                    (1..).find(|number| !used.contains(number)).expect("there are more numbers than ports");
                used.insert(free);
                free
            });
        }
        self.ports = there.into_iter().map(|(device, port)| (self.numbers[&device], port)).collect();
    }

    /// The number of an interface; none where it is no port of the datapath.
    pub(super) fn number(&self, spec: &InterfaceSpec) -> Option<u32> {
        self.numbers.get(&device(spec)?.0).copied()
    }

    /// The ports, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &DatapathPort)> {
        self.ports.iter().map(|(number, port)| (*number, port))
    }
}
