//! Sections of functions: packet filters, asset detection, address translation.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::stage::assets;
use crate::stage::nat::config as nat;

/// How a function looks keys up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LookupsChoice {
    /// All keys of a burst at once.
    #[default]
    Batch,
    /// One after the other, for comparison.
    Scalar,
}

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
    /// What happens to packets that are in the set: actions as in rules; `drop` where it is left out.
    #[serde(default = "drop")]
    pub hit: String,
    /// What happens to those that are not.
    #[serde(default = "drop")]
    pub miss: String,
    /// Entries: the key's fields with their values as in rules, as in `ip,nw_src=192.0.2.1`; behind them, `timeout=SECONDS`
    /// for one that is to go.
    #[serde(default)]
    pub entries: Vec<String>,
    /// A file of further entries, one in a line, relative to the configuration's folder.
    pub entries_file: Option<PathBuf>,
    /// The most entries.
    #[serde(default = "entries_max")]
    pub entries_max: usize,
    /// Packets that are not in the set are added to it.
    #[serde(default)]
    pub learn: bool,
    /// Seconds after which entries go that packets have added; 0 where they stay.
    #[serde(default)]
    pub timeout_s: u64,
    /// A hit begins the time of an entry anew; else it goes so long after it has come.
    #[serde(default)]
    pub refresh: bool,
    /// Count the packets of each entry.
    #[serde(default)]
    pub count: bool,
    /// How keys are looked up: `batch` or, for comparison, `scalar`.
    #[serde(default)]
    pub lookups: LookupsChoice,
}

/// Asset detection: the hosts and services that packets show are noted, and listed in the report.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssetTableSection {
    /// Its number, 0 to 254.
    pub number: u8,
    /// Its name in reports.
    #[serde(default)]
    pub name: String,
    /// What happens to packets: actions as in rules.
    pub known: String,
    /// What happens to packets that show a host or a service which was not known, also where the table is full and it is
    /// not noted; the same where it is left out.
    pub new: Option<String>,
    /// Networks whose addresses count, as in `["192.168.0.0/16", "2001:db8::/32"]`; all where it is left out.
    #[serde(default)]
    pub networks: Vec<String>,
    /// The largest source port of a UDP datagram that makes a service.
    #[serde(default = "udp_port_max")]
    pub udp_port_max: u16,
    /// The most assets (about 150 bytes each).
    #[serde(default = "entries_max")]
    pub entries_max: usize,
    /// Seconds after which an asset goes that has not been seen; 0 where it stays.
    #[serde(default = "assets_idle_s")]
    pub idle_s: u64,
    /// How keys are looked up: `batch` or, for comparison, `scalar`.
    #[serde(default)]
    pub lookups: LookupsChoice,
}

/// Address translation of IPv4 (NAPT): hosts of inside networks share outside addresses. The addresses say which way a packet
/// goes; what is neither from inside nor to the pool is `other`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NatTableSection {
    /// Its number, 0 to 254.
    pub number: u8,
    /// Its name in reports.
    #[serde(default)]
    pub name: String,
    /// Inside networks, as in `["10.0.0.0/8"]`.
    pub inside: Vec<String>,
    /// Outside addresses, as in `["203.0.113.1", "203.0.113.8-203.0.113.15"]`.
    pub pool: Vec<String>,
    /// The first and the last outside port that sessions get.
    #[serde(default = "nat_ports")]
    pub ports: (u16, u16),
    /// What happens to packets that have been translated on their way out: actions as in rules.
    pub outbound: String,
    /// What happens to those that have been translated on their way in.
    pub inbound: String,
    /// What happens to packets from inside to the pool, translated both ways; where it is left out, they are refused.
    pub hairpin: Option<String>,
    /// What happens to packets that are not translated; `drop` where it is left out.
    #[serde(default = "drop")]
    pub other: String,
    /// Services inside that are reached from outside.
    #[serde(default)]
    pub forward: Vec<ForwardSection>,
    /// The most sessions beside those of forwards (about 200 bytes each).
    #[serde(default = "entries_max")]
    pub sessions_max: usize,
    /// The most sessions of one inside address; 0 for as many as there are.
    #[serde(default)]
    pub sessions_per_host_max: u32,
    /// The most datagrams that may be on their way in fragments; 0 where fragments are refused.
    #[serde(default = "fragments_max")]
    pub fragments_max: usize,
    /// Seconds after which a session of UDP goes that is idle: from inside, nothing has come for it.
    #[serde(default = "udp_idle_s")]
    pub udp_idle_s: u64,
    /// Of TCP, while it is open.
    #[serde(default = "tcp_idle_s")]
    pub tcp_idle_s: u64,
    /// Of TCP that is opening or closed.
    #[serde(default = "tcp_transitory_idle_s")]
    pub tcp_transitory_idle_s: u64,
    /// Of ICMP.
    #[serde(default = "icmp_idle_s")]
    pub icmp_idle_s: u64,
    /// How keys are looked up: `batch` or, for comparison, `scalar`.
    #[serde(default)]
    pub lookups: LookupsChoice,
}

/// A service inside that is reached from outside.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForwardSection {
    /// Its protocol.
    pub protocol: ForwardProtocolChoice,
    /// Where it is reached, as in `203.0.113.1:443`: an address of the pool, and any port.
    pub outside: String,
    /// Where it is, as in `10.0.0.5:8443`.
    pub inside: String,
}

/// The protocol of a forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ForwardProtocolChoice {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

fn nat_ports() -> (u16, u16) {
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
