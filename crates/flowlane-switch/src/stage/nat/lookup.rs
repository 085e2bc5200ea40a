//! The lookup that a packet asks for: its direction, its kind, and the tuples of its sessions.

use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::ip_proto;
use flowlane::packet::{Field, Headers, Network, Transport};

use super::config::{Mapping, Refusal, is_translated};
use super::{HAIRPIN, INBOUND, Nat, OUTBOUND};
use crate::stage::{StagePacket, flag};
use crate::state::conntrack::{End, Hashed, Message, Seen, Tuple, ends, with_addresses};

/// The direction of a packet, by its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Outbound,
    Inbound,
    /// From inside to the pool.
    Hairpin,
}

/// The part that a packet plays in a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketKind {
    /// It may open a session.
    Initiating,
    /// It needs a session.
    Established,
    /// An ICMP error about a packet of a session.
    Error,
}

/// The result of reading a packet.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each lane, and most are packets")]
pub(super) enum NatLookup {
    /// The packet is not translated.
    Other,
    Refused(Refusal),
    Packet(Packet),
}

/// A packet that is translated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) direction: Direction,
    pub(super) kind: PacketKind,
    /// The flags of TCP.
    pub(super) flags: Option<u16>,
    pub(super) is_fragment: bool,
    /// Its ends, and its zone. Of an error, those of packets that go its way.
    pub(super) tuple: Tuple,
    /// The tuples of its source's session, unless it is inbound, and of its destination's, unless it is outbound.
    pub(super) sides: [Option<Hashed>; 2],
}

impl Direction {
    pub(super) fn verdict(self) -> u32 {
        match self {
            Direction::Outbound => OUTBOUND,
            Direction::Inbound => INBOUND,
            Direction::Hairpin => HAIRPIN,
        }
    }
}

/// The kinds of ICMP messages that translation distinguishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Icmp {
    /// A query: echo, timestamp.
    Request,
    /// The answer.
    Reply,
    /// An error that quotes a packet: unreachable, too big, time exceeded, parameter problem.
    Error,
    /// A message to a neighbour, which no router forwards.
    Neighbour,
    /// Anything else.
    Other,
}

/// Returns the kind of an ICMP type (RFC 792, RFC 4443; RFC 5508 §3 and §4).
fn icmp(kind: u8, is_ipv6: bool) -> Icmp {
    match (is_ipv6, kind) {
        (false, 8 | 13) | (true, 128) => Icmp::Request,
        (false, 0 | 14) | (true, 129) => Icmp::Reply,
        (false, 3 | 11 | 12) | (true, 1..=4) => Icmp::Error,
        (true, 130..=137 | 143) => Icmp::Neighbour,
        _ => Icmp::Other,
    }
}

/// Returns a tuple's end as a session has it, whose other end is any host: the identifier of ICMP serves as a port, whatever the type.
fn wiped(end: End, is_icmp: bool) -> End {
    End { address: 0, port: if is_icmp { end.port } else { 0 }, icmp_type: 0 }
}

/// Returns whether a destination is a group, or all hosts.
fn is_group(is_ipv6: bool, destination: u128) -> bool {
    if is_ipv6 { destination >> 120 == 0xff } else { destination >> 28 >= 0xe }
}

/// Returns the version of IP, source and destination.
#[inline]
pub(super) fn addresses(headers: &Headers, key: &FlowKey) -> Option<(bool, u128, u128)> {
    match headers.network {
        Network::Ipv4 => Some((false, key.word(word::IPV4_SRC).into(), key.word(word::IPV4_DST).into())),
        Network::Ipv6 => Some((true, key.get(Field::Ipv6Src), key.get(Field::Ipv6Dst))),
        Network::Arp | Network::Nsh | Network::None => None,
    }
}

impl Nat {
    /// Reads a packet's direction, kind and tuples. `datagram` is the one that it is a fragment of, once all of that has come; in it,
    /// none if that is not sound.
    #[inline(always)]
    pub(super) fn read(&self, seen: StagePacket<'_>, datagram: Option<Option<Seen>>) -> NatLookup {
        let (key, headers) = (seen.key, seen.headers);
        let Some((is_ipv6, source, destination)) = addresses(headers, key) else { return NatLookup::Other };
        if is_group(is_ipv6, destination) {
            return NatLookup::Other;
        }
        let from_inside = self.config.is_inside(is_ipv6, source);
        let direction = match (from_inside, self.pool.contains(is_ipv6, destination)) {
            (false, false) => return NatLookup::Other,
            (true, false) => Direction::Outbound,
            (false, true) => Direction::Inbound,
            (true, true) if self.config.hairpin => Direction::Hairpin,
            (true, true) => return NatLookup::Refused(Refusal::Hairpin),
        };
        let read = match (headers.malformed, headers.fragment) {
            (Some(_), _) => Err(Refusal::Malformed),
            (None, 0) => self.read_whole(seen, direction),
            (None, _) => self.read_fragment(key, datagram, direction),
        };
        match read {
            Ok(Some(packet)) => NatLookup::Packet(packet),
            Ok(None) => NatLookup::Other,
            Err(refusal) => NatLookup::Refused(refusal),
        }
    }

    /// Reads a packet that is no fragment; none if it is not for routers.
    #[inline(always)]
    fn read_whole(&self, seen: StagePacket<'_>, direction: Direction) -> Result<Option<Packet>, Refusal> {
        let (bytes, key, headers) = (seen.frame.bytes(), seen.key, seen.headers);
        let (kind, flags) = match headers.transport {
            Transport::Tcp => {
                let flags = (key.word(word::FLAGS) >> 16) as u16 & 0xfff;
                (kind_of_segment(flags), Some(flags))
            }
            Transport::Udp => (PacketKind::Initiating, None),
            Transport::Icmpv4 | Transport::Icmpv6 => {
                let Some(&icmp_type) = bytes.get(usize::from(headers.l4)) else {
                    return Err(Refusal::Malformed);
                };
                let is_ipv6 = headers.transport == Transport::Icmpv6;
                match kind_of_message(icmp(icmp_type, is_ipv6), direction)? {
                    Some(kind) => (kind, None),
                    None => return Ok(None),
                }
            }
            _ => return Err(without_ports(key)),
        };
        let found = ends(bytes, headers, key).ok_or(match kind {
            PacketKind::Error => Refusal::ErrorAlone,
            _ => Refusal::Malformed,
        });
        self.packet(found?.0, (kind, flags), direction).map(Some)
    }

    /// Reads a fragment, of whose datagram all are there: it is translated as that would be.
    #[cold]
    fn read_fragment(
        &self,
        key: &FlowKey,
        datagram: Option<Option<Seen>>,
        direction: Direction,
    ) -> Result<Option<Packet>, Refusal> {
        let whole = datagram.ok_or(Refusal::Fragment)?.ok_or(Refusal::Malformed)?;
        let Seen { tuple, message, is_error } = with_addresses(whole, key);
        let (mut kind, mut flags) = (PacketKind::Initiating, None);
        match message {
            _ if is_error => kind = PacketKind::Error,
            Message::Tcp(segment) => (kind, flags) = (kind_of_segment(segment.flags), Some(segment.flags)),
            Message::Icmp => match kind_of_message(icmp(tuple.source.icmp_type, tuple.is_ipv6), direction)? {
                Some(found) => kind = found,
                None => return Ok(None),
            },
            Message::Other if is_translated(tuple.proto) => {}
            Message::Other => return Err(Refusal::Protocol),
        }
        let packet = self.packet(tuple, (kind, flags), direction)?;
        Ok(Some(Packet { is_fragment: true, ..packet }))
    }

    /// Finishes reading: the tuples of a packet's sessions.
    #[inline(always)]
    fn packet(
        &self,
        tuple: Tuple,
        (kind, flags): (PacketKind, Option<u16>),
        direction: Direction,
    ) -> Result<Packet, Refusal> {
        if kind == PacketKind::Error {
            quotes_a_sessions_packet(&tuple, direction)?;
        }
        let tuple = Tuple { zone: self.config.zone, ..tuple };
        let mut packet = Packet { direction, kind, flags, is_fragment: false, tuple, sides: [None; 2] };
        let by_connection = self.config.mapping == Mapping::Connection && direction != Direction::Hairpin;
        if direction != Direction::Inbound {
            let tuple = if by_connection { typeless(tuple) } else { with_any(tuple, 0) };
            packet.sides[0] = Some(self.config.connections.prepare(&tuple));
        }
        if direction != Direction::Outbound {
            let tuple = if by_connection { typeless(tuple) } else { with_any(tuple, 1) };
            packet.sides[1] = Some(self.config.connections.prepare(&tuple));
        }
        Ok(packet)
    }
}

/// Returns the tuple of a session whose other end is any host: of the source (0), or of the destination (1).
#[inline]
pub(super) fn with_any(tuple: Tuple, side: usize) -> Tuple {
    let (is_icmp, mut tuple) = (tuple.is_icmp(), typeless(tuple));
    match side {
        0 => tuple.destination = wiped(tuple.destination, is_icmp),
        _ => tuple.source = wiped(tuple.source, is_icmp),
    }
    tuple
}

/// Returns a tuple without types of ICMP: a session is for queries of all types.
#[inline]
pub(super) fn typeless(mut tuple: Tuple) -> Tuple {
    (tuple.source.icmp_type, tuple.destination.icmp_type) = (0, 0);
    tuple
}

/// Returns the reason to refuse a packet without ports.
fn without_ports(key: &FlowKey) -> Refusal {
    let [proto, ..] = key.word(word::NW_PROTO).to_be_bytes();
    if is_translated(proto) { Refusal::Malformed } else { Refusal::Protocol }
}

fn kind_of_segment(flags: u16) -> PacketKind {
    let opening = u16::from(flag::SYN | flag::ACK | flag::RST | flag::FIN);
    if flags & opening == u16::from(flag::SYN) { PacketKind::Initiating } else { PacketKind::Established }
}

/// Returns the part of an ICMP message in a session; none if it is not translated.
fn kind_of_message(icmp: Icmp, direction: Direction) -> Result<Option<PacketKind>, Refusal> {
    match (icmp, direction) {
        (Icmp::Request, Direction::Outbound) => Ok(Some(PacketKind::Initiating)),
        (Icmp::Reply, Direction::Inbound) => Ok(Some(PacketKind::Established)),
        (Icmp::Error, Direction::Hairpin) => Err(Refusal::Hairpin),
        (Icmp::Error, _) => Ok(Some(PacketKind::Error)),
        (Icmp::Request | Icmp::Reply, _) => Err(Refusal::NoSession),
        (Icmp::Neighbour, _) => Ok(None),
        (Icmp::Other, _) => Err(Refusal::IcmpType),
    }
}

/// Refuses errors about packets that no session has: of other protocols, and queries that came in or answers that went out.
fn quotes_a_sessions_packet(tuple: &Tuple, direction: Direction) -> Result<(), Refusal> {
    // The quoted packet went the other way: its type is that of the tuple's destination.
    let quoted = icmp(tuple.destination.icmp_type, tuple.is_ipv6);
    let wanted = if direction == Direction::Inbound { Icmp::Request } else { Icmp::Reply };
    let is_sound = match tuple.proto {
        ip_proto::ICMP | ip_proto::ICMPV6 => quoted == wanted,
        proto => is_translated(proto),
    };
    if is_sound { Ok(()) } else { Err(Refusal::ErrorAlone) }
}
