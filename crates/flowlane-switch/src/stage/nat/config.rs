//! How addresses are to be translated, what is refused, and what is counted.

use flowlane::named_enum;
use flowlane::packet::parse::ip_proto;
use flowlane::route::Prefix;
use strum::{IntoStaticStr, VariantArray};

use super::ports::{Range, Secret};
use super::session::state;
use crate::stage::ageing::idle_ticks;
use crate::stage::{Lookups, Share};

/// A session that is always there: a service inside that is reached from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forward {
    /// TCP (6) or UDP (17).
    pub proto: u8,
    /// Address and port by which it is reached; the address is of the pool.
    pub outside: (u32, u16),
    /// Address and port of the service.
    pub inside: (u32, u16),
}

/// How addresses are to be translated.
#[derive(Clone, Debug)]
pub struct NatConfig {
    /// Inside networks.
    pub inside: Vec<Prefix<u32>>,
    /// Outside addresses.
    pub pool: Vec<Range>,
    /// Outside ports that sessions get, both ends included.
    pub ports: (u16, u16),
    /// Sessions that are always there.
    pub forwards: Vec<Forward>,
    /// Most sessions beside these.
    pub sessions_max: usize,
    /// Most sessions of one inside address; 0 for as many as there are.
    pub sessions_per_host_max: u32,
    /// Most datagrams in fragments at a time; 0 where fragments are refused.
    pub fragments_max: usize,
    /// Whether packets from inside to the pool turn round; else they are refused.
    pub hairpin: bool,
    /// Idle times in ticks.
    pub idle: IdleTimes,
    /// How keys are looked up.
    pub lookups: Lookups,
    /// Keys the hashes.
    pub seed: u32,
    /// What ports are drawn from.
    pub secret: Secret,
    /// Whose sessions these are.
    pub share: Share,
}

/// The ports that sessions get by default: those that need no privilege.
pub const PORTS: (u16, u16) = (1024, u16::MAX);

/// Datagrams in fragments at a time, by default.
pub const FRAGMENTS_MAX: usize = 1024;

/// Seconds after which an idle session of UDP goes by default (RFC 4787 REQ-5).
pub const UDP_IDLE_S: u64 = 300;

/// Of TCP that is opening or closed (RFC 5382 REQ-5).
pub const TCP_TRANSITORY_IDLE_S: u64 = 240;

/// Of TCP that is open (RFC 5382 REQ-5).
pub const TCP_IDLE_S: u64 = 7440;

/// Of ICMP (RFC 5508 REQ-2).
pub const ICMP_IDLE_S: u64 = 60;

/// Idle times of sessions, in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleTimes {
    /// UDP.
    pub udp: u32,
    /// TCP that is opening or closed.
    pub tcp_transitory: u32,
    /// TCP that is open.
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
    /// Whether an address is of an inside network.
    #[inline]
    pub(super) fn is_inside(&self, address: u32) -> bool {
        self.inside.iter().any(|network| network.contains(address))
    }

    /// Translation of these networks to these addresses, for up to so many sessions.
    pub fn new(inside: Vec<Prefix<u32>>, pool: Vec<Range>, sessions_max: usize) -> Self {
        Self {
            inside,
            pool,
            ports: PORTS,
            forwards: Vec::new(),
            sessions_max,
            sessions_per_host_max: 0,
            fragments_max: FRAGMENTS_MAX,
            hairpin: false,
            idle: IdleTimes::default(),
            lookups: Lookups::default(),
            seed: 0,
            secret: Secret::seeded(0),
            share: Share::default(),
        }
    }
}

/// Why translation cannot be as it is asked for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatError {
    /// A forward from an address or port that another has, or that is not of the pool.
    #[error(
        "forward {0}: its outside address is not of the pool, or another forward has its outside address and port"
    )]
    Outside(usize),
    /// Two forwards to one service: answers could leave by one only.
    #[error("forward {0}: another leads to the same inside address and port")]
    Inside(usize),
    /// A forward to an address that is of no inside network: its answers would not be translated.
    #[error("forward {0}: its inside address is of none of the inside networks")]
    NotInside(usize),
}

impl IdleTimes {
    /// The idle time of sessions of a protocol, of TCP in a state.
    pub(super) fn of(&self, proto: u8, state: u8) -> u32 {
        match proto {
            ip_proto::TCP if state::is_established(state) => self.tcp_established,
            ip_proto::TCP => self.tcp_transitory,
            ip_proto::UDP => self.udp,
            _ => self.icmp,
        }
    }
}

/// Why a packet is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, IntoStaticStr, VariantArray)]
#[repr(u8)]
pub enum Refusal {
    /// Something is malformed in it.
    #[strum(to_string = "refused: malformed")]
    Malformed,
    /// Neither TCP, nor UDP, nor ICMP.
    #[strum(to_string = "refused: other protocol")]
    Protocol,
    /// An ICMP message that is no query, no answer and no error.
    #[strum(to_string = "refused: other ICMP type")]
    IcmpType,
    /// From outside, and nobody inside has asked for it.
    #[strum(to_string = "refused: no session")]
    NoSession,
    /// TCP from inside without session, which does not begin a connection.
    #[strum(to_string = "refused: TCP without session or SYN")]
    TcpWithoutSyn,
    /// An ICMP error about a packet of no session.
    #[strum(to_string = "refused: ICMP error without session")]
    ErrorAlone,
    /// A later fragment whose first has not come, or a fragment where these are refused.
    #[strum(to_string = "refused: fragment without the first")]
    FragmentAlone,
    /// From inside to the pool, where such packets do not turn round, or cannot: ICMP errors.
    #[strum(to_string = "refused: from inside to the pool")]
    Hairpin,
    /// The table of sessions is full.
    #[strum(to_string = "refused: sessions full")]
    Full,
    /// The inside address has as many sessions as it may.
    #[strum(to_string = "refused: sessions of the host full")]
    HostFull,
    /// The outside address has no port left.
    #[strum(to_string = "refused: no outside port")]
    NoPort,
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Self; 11] = named_enum::all();

    /// The reason's name in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NatCounters {
    /// Sessions made.
    pub created: u64,
    /// Sessions that went because they were idle.
    pub aged: u64,
    /// ICMP errors translated.
    pub errors: u64,
    /// Later fragments translated.
    pub fragments: u64,
    /// First fragments translated that could not be remembered: those behind them are refused.
    pub fragments_full: u64,
    /// Packets refused, by [`Refusal`].
    pub refused: [u64; Refusal::ALL.len()],
}
