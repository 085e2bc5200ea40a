//! Sections of stateful stages: packet filters, asset detection, address translation.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::stage::Lookups;
use crate::stage::assets;
use crate::stage::nat::config as nat;

/// A packet filter: packets that a rule sends here (`goto_table`) are looked up in a set of keys.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterTableSection {
    /// Its number, 0 to 254.
    pub number: u8,
    /// Its name in reports.
    #[serde(default)]
    pub name: String,
    /// The fields of a key, as in `["nw_src"]` or `["nw_proto", "nw_src", "nw_dst", "tp_src", "tp_dst"]`. A packet that
    /// lacks one of them is a miss.
    pub key: Vec<String>,
    /// Actions of packets that are in the set, as in rules; `drop` by default.
    #[serde(default = "drop")]
    pub hit: String,
    /// Actions of packets that are not in the set; `drop` by default.
    #[serde(default = "drop")]
    pub miss: String,
    /// Entries: the key's fields with their values as in rules, as in `ip,nw_src=192.0.2.1`; `timeout=SECONDS` behind them
    /// makes an entry expire.
    #[serde(default)]
    pub entries: Vec<String>,
    /// A file with further entries, one per line, relative to the configuration's folder.
    pub entries_file: Option<PathBuf>,
    /// The maximum number of entries.
    #[serde(default = "entries_max")]
    pub entries_max: usize,
    /// The maximum number of entries that the packets of one port add; 0 for no limit. By default, a port that has as many as are
    /// free adds no more: one port alone half of all.
    pub entries_per_port_max: Option<usize>,
    /// Add packets that are not in the set to it.
    #[serde(default)]
    pub learn: bool,
    /// Seconds after which learned entries expire; 0 for never.
    #[serde(default)]
    pub timeout_s: u64,
    /// Restart an entry's timeout on every hit; else it expires that long after it was added.
    #[serde(default)]
    pub refresh: bool,
    /// Count the packets of each entry.
    #[serde(default)]
    pub count: bool,
    /// How keys are looked up: `batch` or, for comparison, `scalar`.
    #[serde(default)]
    pub lookups: Lookups,
}

/// Asset detection: the hosts and services that packets reveal are recorded, and listed in the report.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssetTableSection {
    /// Its number, 0 to 254.
    pub number: u8,
    /// Its name in reports.
    #[serde(default)]
    pub name: String,
    /// Actions of packets, as in rules.
    pub known: String,
    /// Actions of packets that reveal a new host or service, even where the table is full and cannot record it; those of
    /// `known` by default.
    pub new: Option<String>,
    /// Networks whose addresses count, as in `["192.168.0.0/16", "2001:db8::/32"]`; all by default.
    #[serde(default)]
    pub networks: Vec<String>,
    /// The largest source port of a UDP datagram that reveals a service.
    #[serde(default = "udp_port_max")]
    pub udp_port_max: u16,
    /// The maximum number of assets (about 150 bytes each).
    #[serde(default = "entries_max")]
    pub entries_max: usize,
    /// The maximum number of entries that the packets of one port add; 0 for no limit. By default, a port that has as many as are
    /// free adds no more: one port alone half of all.
    pub entries_per_port_max: Option<usize>,
    /// Seconds after which an asset that has not been seen is removed; 0 for never.
    #[serde(default = "assets_idle_s")]
    pub idle_s: u64,
    /// How keys are looked up: `batch` or, for comparison, `scalar`.
    #[serde(default)]
    pub lookups: Lookups,
}

/// Address translation (NAPT of IPv4 and IPv6): hosts of inside networks share outside addresses. The addresses determine a packet's
/// direction; a packet that is neither from inside nor to the pool is `other`. Sessions are connections of a zone of their own.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NatTableSection {
    /// Its number, 0 to 254.
    pub number: u8,
    /// Its name in reports.
    #[serde(default)]
    pub name: String,
    /// The zone of its sessions among the connections, which no rule and no other table uses; 65280 and the table's number by default.
    pub zone: Option<u16>,
    /// The ends that a session is for: `endpoint_independent`, an inside address and port, to whose outside address and port any host
    /// may send; or `connection`, an inside address and port and one other end, which alone may answer.
    #[serde(default)]
    pub mapping: nat::Mapping,
    /// Inside networks, as in `["10.0.0.0/8", "fd00:1::/64"]`.
    pub inside: Vec<String>,
    /// Outside addresses, as in `["203.0.113.1", "203.0.113.8-203.0.113.15", "2001:db8::1"]`.
    pub pool: Vec<String>,
    /// The first and the last outside port of sessions.
    #[serde(default = "ports")]
    pub ports: (u16, u16),
    /// Actions of packets translated from inside to outside, as in rules.
    pub outbound: String,
    /// Actions of packets translated from outside to inside.
    pub inbound: String,
    /// Actions of packets from inside to the pool, translated both ways (hairpinning); by default, they are refused.
    pub hairpin: Option<String>,
    /// Actions of packets that are not translated; `drop` by default.
    #[serde(default = "drop")]
    pub other: String,
    /// Services inside that are reached from outside.
    #[serde(default)]
    pub forward: Vec<ForwardSection>,
    /// The maximum number of sessions, those of forwards not counted (about 200 bytes each).
    #[serde(default = "entries_max")]
    pub sessions_max: usize,
    /// The maximum number of sessions of one inside address; 0 for no limit. By default, one that has as many sessions as are free
    /// gets no more: one host alone half of all.
    pub sessions_per_host_max: Option<u32>,
    /// The maximum number of fragmented datagrams that wait for their fragments; 0 refuses fragments. All tables and rules together
    /// have room for 1000 fragments.
    #[serde(default = "fragments_max")]
    pub fragments_max: usize,
    /// Seconds without a packet from inside after which a UDP session is removed.
    #[serde(default = "udp_idle_s")]
    pub udp_idle_s: u64,
    /// The idle time of open TCP connections.
    #[serde(default = "tcp_idle_s")]
    pub tcp_idle_s: u64,
    /// The idle time of TCP connections that are opening or closed.
    #[serde(default = "tcp_transitory_idle_s")]
    pub tcp_transitory_idle_s: u64,
    /// The idle time of ICMP queries.
    #[serde(default = "icmp_idle_s")]
    pub icmp_idle_s: u64,
    /// How keys are looked up: `batch` or, for comparison, `scalar`.
    #[serde(default)]
    pub lookups: Lookups,
}

/// A service inside that is reached from outside.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForwardSection {
    /// Its protocol.
    pub protocol: ForwardProtocol,
    /// Its outside address and port, as in `203.0.113.1:443` or `[2001:db8::1]:443`: an address of the pool, and any port.
    pub outside: String,
    /// Its inside address and port, as in `10.0.0.5:8443`.
    pub inside: String,
}

/// The protocol of a forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ForwardProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

fn ports() -> (u16, u16) {
    nat::PORTS
}

fn fragments_max() -> usize {
    nat::FRAGMENTS_MAX
}

fn udp_idle_s() -> u64 {
    nat::UDP_IDLE_S
}

fn tcp_idle_s() -> u64 {
    nat::TCP_IDLE_S
}

fn tcp_transitory_idle_s() -> u64 {
    nat::TCP_TRANSITORY_IDLE_S
}

fn icmp_idle_s() -> u64 {
    nat::ICMP_IDLE_S
}

fn udp_port_max() -> u16 {
    assets::UDP_PORT_MAX
}

fn assets_idle_s() -> u64 {
    86_400
}

fn drop() -> String {
    "drop".to_owned()
}

fn entries_max() -> usize {
    100_000
}
