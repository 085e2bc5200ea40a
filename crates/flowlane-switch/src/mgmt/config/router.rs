//! The section of the router.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::stage::route::ReversePath;

/// A router between the ports that have `addresses`. It answers ARP, IPv6 neighbour discovery and pings, finds its neighbours, and
/// tells senders by ICMP why packets cannot be forwarded. The section expands to a table of rules and a table of routes;
/// `flowlane switch check --explain` prints both.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouterSection {
    /// Routes beside those of the ports' networks, as `ip route` prints them: `default via 198.51.100.1`.
    #[serde(default)]
    pub routes: Vec<String>,
    /// A file with further routes, relative to the configuration's folder.
    pub routes_file: Option<PathBuf>,
    /// A table of the system whose routes are followed, by name (`main`) or number: those through the router's ports, as routing
    /// daemons and `ip route` change them. The system then has the ports' addresses, too, and answers for them: the router does not,
    /// and the ports are `afpacket:` ones.
    pub kernel_table: Option<String>,
    /// Whether packets are dropped to whose sources the routes do not lead back: `strict` (through the port that they came in
    /// through), `loose` (at all) or `off`.
    #[serde(default = "strict")]
    pub reverse_path: ReversePath,
    /// The table of rules that packets enter by: those for the router's Ethernet addresses go on.
    #[serde(default)]
    pub table: u8,
    /// The table of routes. With a firewall, each port has two more tables, with the numbers behind.
    #[serde(default = "routes_table")]
    pub routes_table: u8,
    /// The maximum number of neighbours.
    #[serde(default = "neighbours_max")]
    pub neighbours_max: usize,
    /// The most ICMP errors that are sent in a second.
    #[serde(default = "errors_per_s")]
    pub errors_per_s: u32,
    /// Interfaces beside the ports with addresses: VLANs of the other ports, and tunnels.
    #[serde(default)]
    pub interface: Vec<InterfaceSection>,
}

/// An interface of the router that is not a port: a VLAN of the ports without addresses, or a tunnel.
///
/// Frames of a VLAN that are not for the router are switched between its ports, as by `normal`; the ports' `tag`, `trunks` and
/// `vlan_mode` say who is in it. Packets out of a tunnel arrive at a port with `decapsulate`; those into it are routed to its other end.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterfaceSection {
    /// The number that its packets have as `in_port` in rules; no port has it.
    pub number: u32,
    /// Its name in routes, the firewall and reports.
    pub name: String,
    /// The VLAN, 1 to 4094; 0 for frames without a tag.
    pub vlan: Option<u16>,
    /// The number of the tunnel, which carries Ethernet frames and has a `remote` end.
    pub tunnel: Option<u32>,
    /// The router's addresses here, each with the length of its network's prefix, as in `192.0.2.1/24`.
    pub addresses: Vec<String>,
    /// The router's Ethernet address here; by default one made from the machine, the name and the addresses.
    pub mac: Option<String>,
    /// The longest IP packet that the router sends here; by default 1500 in a VLAN, and what fits into a tunnel. Of a tunnel, it becomes
    /// shorter where routers on the way say that they cannot send longer packets.
    pub mtu: Option<u16>,
}

fn strict() -> ReversePath {
    ReversePath::Strict
}

fn routes_table() -> u8 {
    100
}

fn neighbours_max() -> usize {
    4096
}

fn errors_per_s() -> u32 {
    1000
}
