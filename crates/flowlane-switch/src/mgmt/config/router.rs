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
