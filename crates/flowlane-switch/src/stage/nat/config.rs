//! Settings of address translation, refusal reasons and counters.

use flowlane::named_enum;
use flowlane::packet::parse::ip_proto;
use flowlane::route::Prefix;
use strum::{IntoStaticStr, VariantArray};

use super::ports::{Range, Secret};
use super::session::state;
use crate::stage::ageing::idle_ticks;
use crate::stage::{Lookups, Shard};

/// A permanent session: an inside service that is reachable from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forward {
    /// TCP (6) or UDP (17).
    pub proto: u8,
    /// The outside address and port; the address is in the pool.
    pub outside: (u32, u16),
    /// The address and port of the service.
    pub inside: (u32, u16),
}

/// The settings of address translation.
#[derive(Clone, Debug)]
pub struct NatConfig {
    /// The inside networks.
    pub inside: Vec<Prefix<u32>>,
    /// The outside addresses.
    pub pool: Vec<Range>,
    /// The outside ports that sessions get, both ends included.
    pub ports: (u16, u16),
    /// The permanent sessions.
    pub forwards: Vec<Forward>,
    /// The maximum number of other sessions.
    pub sessions_max: usize,
    /// The maximum number of sessions of one inside address; 0 for no limit. By default, one that has as many sessions as are free
    /// gets no more.
    pub sessions_per_host_max: Option<u32>,
    /// The maximum number of fragmented datagrams that are incomplete at a time; 0 refuses fragments.
    pub fragments_max: usize,
    /// Whether packets from inside to the pool are translated; else they are refused.
    pub hairpin: bool,
    /// The idle times.
    pub idle: IdleTimes,
    /// How keys are looked up.
    pub lookups: Lookups,
    /// The key of the hashes.
    pub seed: u32,
    /// The secret that determines the order of ports.
    pub secret: Secret,
    /// This worker's shard.
    pub shard: Shard,
}

/// The default for the ports of sessions: those that need no privilege.
pub const PORTS: (u16, u16) = (1024, u16::MAX);

/// The default for the maximum number of fragmented datagrams.
pub const FRAGMENTS_MAX: usize = 1024;

/// The default idle time of UDP sessions, in seconds (RFC 4787 REQ-5).
pub const UDP_IDLE_S: u64 = 300;

/// The default idle time of TCP sessions that are opening or closed, in seconds (RFC 5382 REQ-5).
pub const TCP_TRANSITORY_IDLE_S: u64 = 240;

/// The default idle time of established TCP sessions, in seconds (RFC 5382 REQ-5).
pub const TCP_IDLE_S: u64 = 7440;

/// The default idle time of ICMP sessions, in seconds (RFC 5508 REQ-2).
pub const ICMP_IDLE_S: u64 = 60;

/// Idle times of sessions, in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleTimes {
    /// UDP.
    pub udp: u32,
    /// TCP that is opening or closed.
    pub tcp_transitory: u32,
    /// Established TCP.
    pub tcp_established: u32,
    /// ICMP.
    pub icmp: u32,
}

impl Default for IdleTimes {
    fn default() -> Self {
        Self {
            udp: idle_ticks(UDP_IDLE_S),
            tcp_transitory: idle_ticks(TCP_TRANSITORY_IDLE_S),
            tcp_established: idle_ticks(TCP_IDLE_S),
            icmp: idle_ticks(ICMP_IDLE_S),
        }
    }
}

impl NatConfig {
    /// Returns whether an address is in an inside network.
    #[inline]
    pub(super) fn is_inside(&self, address: u32) -> bool {
        self.inside.iter().any(|network| network.contains(address))
    }

    /// Translation of these networks to these addresses, with up to `sessions_max` sessions.
    pub fn new(inside: Vec<Prefix<u32>>, pool: Vec<Range>, sessions_max: usize) -> Self {
        Self {
            inside,
            pool,
            ports: PORTS,
            forwards: Vec::new(),
            sessions_max,
            sessions_per_host_max: None,
            fragments_max: FRAGMENTS_MAX,
            hairpin: false,
            idle: IdleTimes::default(),
            lookups: Lookups::default(),
            seed: 0,
            secret: Secret::seeded(0),
            shard: Shard::default(),
        }
    }
}

/// An invalid setting of address translation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatError {
    /// A forward whose outside address and port another forward has, or whose address is not in the pool.
    #[error(
        "forward {0}: its outside address is not of the pool, or another forward has its outside address and port"
    )]
    Outside(usize),
    /// Two forwards to one service: its answers could leave by one only.
    #[error("forward {0}: another leads to the same inside address and port")]
    Inside(usize),
    /// A forward to an address outside the inside networks: its answers would not be translated.
    #[error("forward {0}: its inside address is of none of the inside networks")]
    NotInside(usize),
}

impl IdleTimes {
    /// Returns the idle time of sessions of a protocol, for TCP by state.
    pub(super) fn of(&self, proto: u8, state: u8) -> u32 {
        match proto {
            ip_proto::TCP if state::is_established(state) => self.tcp_established,
            ip_proto::TCP => self.tcp_transitory,
            ip_proto::UDP => self.udp,
            _ => self.icmp,
        }
    }
}

/// The reason why a packet is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, IntoStaticStr, VariantArray)]
#[repr(u8)]
pub enum Refusal {
    /// Malformed headers.
    #[strum(to_string = "refused: malformed")]
    Malformed,
    /// Neither TCP, nor UDP, nor ICMP.
    #[strum(to_string = "refused: other protocol")]
    Protocol,
    /// An ICMP message that is neither a query nor an answer nor an error.
    #[strum(to_string = "refused: other ICMP type")]
    IcmpType,
    /// From outside, without a session.
    #[strum(to_string = "refused: no session")]
    NoSession,
    /// TCP from inside without a session or a SYN.
    #[strum(to_string = "refused: TCP without session or SYN")]
    TcpWithoutSyn,
    /// An ICMP error about a packet without a session.
    #[strum(to_string = "refused: ICMP error without session")]
    ErrorAlone,
    /// A later fragment before its first, or any fragment if fragments are refused.
    #[strum(to_string = "refused: fragment without the first")]
    FragmentAlone,
    /// A first fragment of a source of which too many datagrams are incomplete.
    #[strum(to_string = "refused: too many incomplete datagrams of one source")]
    SourceIncomplete,
    /// From inside to the pool, if that is not enabled, or an ICMP error.
    #[strum(to_string = "refused: from inside to the pool")]
    Hairpin,
    /// The table of sessions is full.
    #[strum(to_string = "refused: sessions full")]
    Full,
    /// The inside address has reached its maximum of sessions.
    #[strum(to_string = "refused: sessions of the host full")]
    HostFull,
    /// The outside addresses have no free port.
    #[strum(to_string = "refused: no outside port")]
    NoPort,
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Self; 12] = named_enum::all();

    /// Returns the reason's name in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The counters of address translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NatCounters {
    /// Sessions opened.
    pub created: u64,
    /// Sessions that expired.
    pub aged: u64,
    /// ICMP errors translated.
    pub errors: u64,
    /// Later fragments translated.
    pub fragments: u64,
    /// Incomplete datagrams that were forgotten since the table was full: their later fragments are refused.
    pub fragments_full: u64,
    /// Packets refused, by [`Refusal`].
    pub refused: [u64; Refusal::ALL.len()],
}
