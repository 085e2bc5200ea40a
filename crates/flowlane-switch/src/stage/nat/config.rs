//! Settings of address translation, refusal reasons and counters.

use std::collections::HashSet;
use std::sync::Arc;

use flowlane::named_enum;
use flowlane::packet::parse::ip_proto;
use flowlane::route::Prefix;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::stage::Lookups;
use crate::state::conntrack::session::{IdleTimes, NotOpened, Range};
use crate::state::conntrack::{Connections, End, Limits, Secret, Tuple};

/// A permanent session: an inside service that is reachable from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forward {
    /// TCP (6) or UDP (17).
    pub proto: u8,
    pub is_ipv6: bool,
    /// The outside end; its address is in the pool.
    pub outside: End,
    /// The end of the service.
    pub inside: End,
}

impl Forward {
    /// A forward of IPv4: from an outside address and port to those of the service.
    pub fn v4(proto: u8, outside: (u32, u16), inside: (u32, u16)) -> Self {
        let end = |(address, port): (u32, u16)| End { address: address.into(), port, icmp_type: 0 };
        Self { proto, is_ipv6: false, outside: end(outside), inside: end(inside) }
    }

    /// Returns the tuples of its session.
    pub(super) fn tuples(&self, zone: u16) -> [Tuple; 2] {
        let &Self { proto, is_ipv6, outside, inside } = self;
        let any = End::default();
        let tuple = |source, destination| Tuple { source, destination, zone, proto, is_ipv6 };
        [tuple(inside, any), tuple(any, outside)]
    }
}

/// The ends that a session is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mapping {
    /// An inside address and port, whatever the other end: any host may send to its outside address and port (RFC 4787 REQ-1, REQ-8).
    #[default]
    EndpointIndependent,
    /// An inside address and port and one other end, which alone may answer.
    Connection,
}

/// The settings of address translation.
#[derive(Clone, Debug)]
pub struct NatConfig {
    /// The table of the sessions, which workers share.
    pub connections: Arc<Connections>,
    /// The zone of the sessions: nothing else is in it.
    pub zone: u16,
    pub mapping: Mapping,
    /// The inside networks.
    pub inside: Vec<Range>,
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
    /// The maximum number of fragmented datagrams that wait for their fragments at a time; 0 refuses fragments.
    pub fragments_max: usize,
    /// Whether packets from inside to the pool are translated; else they are refused.
    pub hairpin: bool,
    /// The idle times.
    pub idle: IdleTimes,
    /// How keys are looked up.
    pub lookups: Lookups,
    /// This worker reports what all share.
    pub is_first: bool,
}

/// The forwards for which a table of its own has room.
const FORWARDS: usize = 1024;

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

impl Default for IdleTimes {
    fn default() -> Self {
        Self {
            udp: UDP_IDLE_S * 1000,
            tcp_transitory: TCP_TRANSITORY_IDLE_S * 1000,
            tcp_established: TCP_IDLE_S * 1000,
            icmp: ICMP_IDLE_S * 1000,
        }
    }
}

impl NatConfig {
    /// Translation of these networks to these addresses, with up to `sessions_max` sessions in a table of their own, whose secret is
    /// none.
    pub fn new(inside: Vec<Prefix<u32>>, pool: Vec<(u32, u32)>, sessions_max: usize) -> Self {
        let limits = Limits { connections: 0, per_zone: None };
        let room = sessions_max.saturating_add(FORWARDS);
        Self {
            connections: Arc::new(Connections::with_sessions(limits, room, Secret::seeded(0))),
            zone: 0,
            mapping: Mapping::default(),
            inside: inside.into_iter().map(|network| Range::v4(network.first(), network.last())).collect(),
            pool: pool.into_iter().map(|(first, last)| Range::v4(first, last)).collect(),
            ports: PORTS,
            forwards: Vec::new(),
            sessions_max,
            sessions_per_host_max: None,
            fragments_max: FRAGMENTS_MAX,
            hairpin: false,
            idle: IdleTimes::default(),
            lookups: Lookups::default(),
            is_first: true,
        }
    }

    /// Returns whether an address is in an inside network.
    #[inline]
    pub(super) fn is_inside(&self, is_ipv6: bool, address: u128) -> bool {
        self.inside.iter().any(|network| network.contains(is_ipv6, address))
    }

    /// Returns the connections of its zone at most.
    pub(super) fn zone_max(&self) -> u32 {
        u32::try_from(self.sessions_max.saturating_add(self.forwards.len())).unwrap_or(u32::MAX)
    }

    /// Checks that forwards agree with each other and with the pool.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&self) -> Result<(), NatError> {
        let (mut insides, mut outsides) = (HashSet::new(), HashSet::new());
        for (n, forward) in self.forwards.iter().enumerate() {
            let &Forward { proto, is_ipv6, outside, inside } = forward;
            if !self.is_inside(is_ipv6, inside.address) {
                return Err(NatError::NotInside(n));
            }
            if !insides.insert((proto, is_ipv6, inside)) {
                return Err(NatError::Inside(n));
            }
            let is_of_pool = self.pool.iter().any(|range| range.contains(is_ipv6, outside.address));
            if !is_of_pool || !outsides.insert((proto, is_ipv6, outside)) {
                return Err(NatError::Outside(n));
            }
        }
        Ok(())
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
    /// There is no room for the forwards among the connections.
    #[error("there is no room for forward {0} among the connections")]
    Full(usize),
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
    /// A fragment that is not sound, or for which there is no room to wait for the others.
    #[strum(to_string = "refused: fragment that may not wait for others")]
    Fragment,
    /// From inside to the pool, if that is not enabled, or an ICMP error.
    #[strum(to_string = "refused: from inside to the pool")]
    Hairpin,
    /// There is no room for another session.
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
    pub const ALL: [Self; 11] = named_enum::all();

    /// Returns the reason's name in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl From<NotOpened> for Refusal {
    fn from(reason: NotOpened) -> Self {
        match reason {
            // A worker that has been slower than others every time is refused like one that finds no room.
            NotOpened::Full | NotOpened::Known => Self::Full,
            NotOpened::HostFull => Self::HostFull,
            NotOpened::NoPort => Self::NoPort,
        }
    }
}

/// Returns whether TCP, UDP or ICMP is a packet's protocol.
pub(super) fn is_translated(proto: u8) -> bool {
    matches!(proto, ip_proto::TCP | ip_proto::UDP | ip_proto::ICMP | ip_proto::ICMPV6)
}

/// The counters of address translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NatCounters {
    /// Sessions opened.
    pub created: u64,
    /// Sessions that have ended.
    pub aged: u64,
    /// ICMP errors translated.
    pub errors: u64,
    /// Fragments translated.
    pub fragments: u64,
    /// Packets refused, by [`Refusal`].
    pub refused: [u64; Refusal::ALL.len()],
}
