//! Sections of routes and tunnels.

use std::net::IpAddr;
use std::path::PathBuf;

use flowlane::tunnel::{Policy, TunnelKind};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ByName, memory_mib};
use crate::stage::route::{FibEngine, ReversePath, RouteMiss};

/// A table of routes: a packet that a rule sends here (`goto_table`) takes the next hop of its destination's longest matching
/// prefix.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteTableSection {
    /// Its number, 0 to 254.
    pub number: u8,
    /// Its name in reports.
    #[serde(default)]
    pub name: String,
    /// The treatment of packets without a route: `drop`, `controller` or `unreachable`.
    #[serde(default)]
    pub miss: RouteMiss,
    /// Whether packets are dropped to whose sources the routes do not lead back: `off`, `loose` (no route leads there) or `strict`
    /// (none that leads through the port that they came in through).
    #[serde(default)]
    pub reverse_path: ReversePath,
    /// The lookup structure.
    #[serde(default)]
    pub engine: FibEngine,
    /// Routes: a prefix and the name of a next hop, as in `192.0.2.0/24 198.51.100.1`, or as `ip route` prints them.
    #[serde(default)]
    pub routes: Vec<String>,
    /// A file with further routes, relative to the configuration's folder.
    pub routes_file: Option<PathBuf>,
    /// The maximum number of routes of each family.
    #[serde(default = "routes_max")]
    pub routes_max: usize,
    /// The maximum memory of the forwarding tables, in MiB.
    #[serde(default = "memory_mib")]
    pub memory_mib: usize,
    /// The next hops that routes name.
    #[serde(default)]
    pub next_hop: Vec<NextHopSection>,
}

impl RouteTableSection {
    /// A table of this number, without routes.
    pub(crate) fn numbered(number: u8) -> Self {
        Self {
            number,
            name: String::new(),
            miss: RouteMiss::Drop,
            reverse_path: ReversePath::Off,
            engine: FibEngine::Auto,
            routes: Vec::new(),
            routes_file: None,
            routes_max: routes_max(),
            memory_mib: memory_mib(),
            next_hop: Vec::new(),
        }
    }
}

fn routes_max() -> usize {
    4_000_000
}

/// A next hop: actions for the packets of its routes, or a group of next hops that share their flows.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextHopSection {
    /// Its name in routes: an address, a number, or `dev NAME`; `blackhole`, `unreachable`, `prohibit`, `local`, `nhid N`. That of
    /// routes with an encapsulation has it behind: `192.0.2.1 encap mpls 100`.
    pub name: String,
    /// Actions as in rules. A next hop has these or members.
    pub actions: Option<String>,
    /// Next hops that share its flows.
    #[serde(default)]
    pub members: Vec<MemberSection>,
}

/// A member of a group of next hops.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberSection {
    /// The next hop's name.
    pub name: String,
    /// Its share of flows, in proportion to those of the other members.
    #[serde(default = "one")]
    pub weight: u32,
}

fn one() -> u32 {
    1
}

/// A tunnel. Its packets that arrive at a port with `decapsulate` are matched on their inner headers; `encap:NUMBER` sends
/// packets into it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelSection {
    /// Its number in actions.
    pub number: u32,
    /// Its name in reports.
    #[serde(default)]
    pub name: String,
    /// The protocol: VXLAN (RFC 7348), GENEVE (RFC 8926), GTP-U (3GPP TS 29.281), GRE (RFC 2784) or ERSPAN, of which packets that
    /// leave are of version 1.
    pub kind: ByName<TunnelKind>,
    /// VNI (VXLAN, GENEVE: 24 bits), TEID (GTP-U: 32 bits), key (GRE: 32 bits; 0: packets that leave have none) or session (ERSPAN: 10
    /// bits).
    pub id: u32,
    /// TEID, key or session of packets that leave, where the other end expects another; `id` by default.
    pub id_out: Option<u32>,
    /// This node's address: the outer destination of packets that arrive, the outer source of those that leave.
    pub local: IpAddr,
    /// The other end's address. Without it, packets of any source are accepted, and none leave.
    pub remote: Option<IpAddr>,
    /// The UDP destination port of its packets, those that arrive and those that leave; by default the protocol's own (VXLAN
    /// 4789, GENEVE 6081, GTP-U 2152; GRE and ERSPAN have none). Linux's VXLAN devices, and flannel's, have 8472. All tunnels of a protocol share one.
    pub port: Option<u16>,
    /// The routing instance (VRF) of the ports that its packets arrive at.
    #[serde(default)]
    pub vrf: u32,
    /// The `in_port` that rules see in decapsulated packets; the port of arrival by default.
    pub in_port: Option<u32>,
    /// The inner protocol: by default `ethernet`, and `ipv4` for GTP-U.
    pub inner: Option<InnerProtocol>,
    /// Outer source MAC address of packets that leave, as in `02:00:00:00:00:01`; zeros by default.
    pub eth_src: Option<String>,
    /// Outer destination MAC address, of the next hop; zeros by default.
    pub eth_dst: Option<String>,
    /// Outer TTL or hop limit.
    #[serde(default = "ttl")]
    pub ttl: u8,
    /// Outer DSCP; that of the inner packet by default. ECN is always the inner packet's (RFC 6040).
    pub dscp: Option<u8>,
    /// The maximum length of the outer IP packet; by default the smallest MTU of the interfaces that the rules send its packets
    /// through, 1600 where these are none; of a router's interface, the smallest of its ports and VLANs.
    pub mtu: Option<u16>,
    /// Whether outer UDP checksums are computed; by default over IPv6 only.
    pub udp_checksum: Option<bool>,
    /// Whether packets of GRE that leave have a checksum.
    #[serde(default)]
    pub gre_checksum: bool,
    /// Whether packets of GRE that leave have a sequence number.
    #[serde(default)]
    pub gre_sequence: bool,
    /// The index of ERSPAN's packets that leave, of 20 bits.
    #[serde(default)]
    pub erspan_index: u32,
    /// GENEVE options of packets that leave, in hexadecimal.
    #[serde(default)]
    pub options: String,
}

fn ttl() -> u8 {
    64
}

/// The inner protocol of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InnerProtocol {
    /// Ethernet frames.
    Ethernet,
    /// IPv4 packets.
    Ipv4,
    /// IPv6 packets.
    Ipv6,
}

/// A GENEVE option (RFC 8926) that has a field: packets that come out of tunnels have its value in `tun_metadataN`, and those that go into
/// GENEVE tunnels get it from there. Controllers may change the map of options.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelOptionSection {
    /// The number of `tun_metadataN`, 0 to 6.
    pub number: u16,
    /// The option's class.
    pub class: u16,
    /// Its type; 128 and above are critical ones.
    #[serde(rename = "type")]
    pub kind: u8,
    /// Bytes of its value: 4, 8, 12 or 16.
    #[serde(default = "option_bytes")]
    pub bytes: u8,
}

fn option_bytes() -> u8 {
    4
}

/// Checks of packets that arrive through tunnels.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TunnelPolicySection {
    /// Verify IPv4 header checksums.
    pub verify_ipv4_checksum: bool,
    /// Verify UDP checksums where a packet has one.
    pub verify_udp_checksum: bool,
    /// Accept UDP over IPv6 without checksum (RFC 6935).
    pub ipv6_zero_checksum: bool,
    /// Critical GENEVE options that are accepted: class and type.
    pub geneve_options: Vec<(u16, u8)>,
}

impl Default for TunnelPolicySection {
    fn default() -> Self {
        let Policy { verify_ipv4_checksum, verify_udp_checksum, ipv6_zero_checksum, geneve_options, .. } =
            Policy::default();
        Self { verify_ipv4_checksum, verify_udp_checksum, ipv6_zero_checksum, geneve_options }
    }
}
