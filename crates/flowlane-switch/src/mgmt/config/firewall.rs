//! The section of the firewall.

use schemars::JsonSchema;
use serde::Deserialize;

/// A firewall between ports that keeps track of connections: packets of connections that are allowed pass both ways, and others are
/// dropped. The section expands to rules of two tables; `flowlane switch check --explain` prints them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FirewallSection {
    /// The names of the ports of the protected hosts.
    pub inside: Vec<String>,
    /// The names of the other ports.
    pub outside: Vec<String>,
    /// The connections that may begin: `outgoing` (all from inside), `dhcp`, or `in` or `out`, a protocol (`any`, `tcp`, `udp`,
    /// `sctp`, `icmp`, `gre` or `esp`, or `ftp` or `tftp` with the connections that they announce), ports or `echo`, `from NETWORK`
    /// and `to NETWORK`, as in `in tcp 22,8000-8100 from 192.0.2.0/24`.
    #[serde(default)]
    pub allow: Vec<String>,
    /// The outside ports with an address of IPv4 that connections take which leave there (source translation).
    #[serde(default)]
    pub translate: Vec<String>,
    /// Connections to the IPv4 addresses of an outside port that go to a host inside (destination translation), also from inside: the
    /// port, `tcp`, `udp`, `sctp`, `ftp` or `tftp`, ports, `from NETWORK`, `to` and the host's address and port, as in
    /// `wan tcp 8022 to 192.168.1.80:22`. They need no entry of `allow`.
    #[serde(default)]
    pub forward: Vec<String>,
    /// The first of its two tables, which have this number and the next; 0 by default, or the one behind that of `[router]`.
    pub table: Option<u8>,
    /// The table that packets that pass go to; without it, the router or else `normal` forwards them.
    pub next_table: Option<u8>,
}
