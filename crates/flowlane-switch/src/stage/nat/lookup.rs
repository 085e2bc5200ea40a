//! The lookup that a packet asks for: its direction, its kind, and the keys of its sessions.

use flowlane::packet::fields::{FRAG_ANY, FRAG_LATER, word};
use flowlane::packet::parse::ip_proto;
use flowlane::packet::{Headers, Network, Transport};

use super::config::Refusal;
use super::packet::{Icmp, icmp, quoted, word16};
use super::session::session_key;
use super::{HAIRPIN, INBOUND, Nat, OUTBOUND};
use crate::stage::{StagePacket, flag};

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
    /// It has no ports.
    LaterFragment,
}

/// The result of reading a packet.
#[derive(Clone, Copy, Debug)]
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
    pub(super) proto: u8,
    pub(super) flags: u8,
    /// Whether it is a fragment; with ports, the first.
    pub(super) is_fragment: bool,
    /// The key of its source's session, unless it is inbound.
    pub(super) inside: [u32; 2],
    /// The key of its destination's session, unless it is outbound.
    pub(super) outside: [u32; 2],
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

impl Packet {
    /// Returns whether its source has a session.
    #[inline]
    pub(super) fn looks_inside(&self) -> bool {
        self.direction != Direction::Inbound && self.kind != PacketKind::LaterFragment
    }

    /// Returns whether its destination has a session.
    #[inline]
    pub(super) fn looks_outside(&self) -> bool {
        self.direction != Direction::Outbound && self.kind != PacketKind::LaterFragment
    }
}

/// Returns whether a packet is a first fragment that ends within its transport header.
fn lacks_ports(headers: &Headers, proto: u8) -> bool {
    let has_ports = matches!(proto, ip_proto::TCP | ip_proto::UDP | ip_proto::ICMP);
    has_ports && headers.fragment == FRAG_ANY && headers.transport == Transport::None
}

impl Nat {
    /// Reads a packet's direction, kind and keys.
    #[inline]
    pub(super) fn read(&self, seen: StagePacket<'_>) -> NatLookup {
        let (key, headers) = (seen.key, seen.headers);
        if headers.network != Network::Ipv4 {
            return NatLookup::Other;
        }
        let (source, destination) = (key.word(word::IPV4_SRC), key.word(word::IPV4_DST));
        // Groups and broadcast.
        if destination >> 28 >= 0xe {
            return NatLookup::Other;
        }
        let from_inside = self.config.is_inside(source);
        let direction = match (from_inside, self.pool.contains(destination)) {
            (false, false) => return NatLookup::Other,
            (true, false) => Direction::Outbound,
            (false, true) => Direction::Inbound,
            (true, true) if self.config.hairpin => Direction::Hairpin,
            (true, true) => return NatLookup::Refused(Refusal::Hairpin),
        };
        let [proto, _, _, _] = key.word(word::NW_PROTO).to_be_bytes();
        if headers.malformed.is_some() || lacks_ports(headers, proto) {
            return NatLookup::Refused(Refusal::Malformed);
        }
        let mut packet = Packet {
            direction,
            kind: PacketKind::Established,
            proto,
            flags: (key.word(word::FLAGS) >> 16) as u8,
            is_fragment: headers.fragment != 0,
            inside: [0; 2],
            outside: [0; 2],
        };
        if headers.fragment & FRAG_LATER != 0 {
            packet.kind = PacketKind::LaterFragment;
            return NatLookup::Packet(packet);
        }
        if packet.is_fragment && self.fragments.is_none() {
            return NatLookup::Refused(Refusal::FragmentAlone);
        }
        let ports = key.word(word::PORTS);
        let (mut from, mut to) = ((ports >> 16) as u16, ports as u16);
        match headers.transport {
            Transport::Tcp => {
                let opening = flag::SYN | flag::ACK | flag::RST | flag::FIN;
                if packet.flags & opening == flag::SYN {
                    packet.kind = PacketKind::Initiating;
                }
            }
            Transport::Udp => packet.kind = PacketKind::Initiating,
            Transport::Icmpv4 => {
                let bytes = seen.frame.bytes();
                let at = usize::from(headers.l4);
                let (Some(&kind), Some(id)) = (bytes.get(at), word16(bytes, at + 4)) else {
                    return NatLookup::Refused(Refusal::Malformed);
                };
                (from, to) = (id, id);
                match (icmp(kind), direction) {
                    (Icmp::Request, Direction::Outbound) => packet.kind = PacketKind::Initiating,
                    (Icmp::Reply, Direction::Inbound) => {}
                    (Icmp::Error, Direction::Hairpin) => return NatLookup::Refused(Refusal::Hairpin),
                    (Icmp::Error, _) => return self.read_error(bytes, headers, packet),
                    (Icmp::Request | Icmp::Reply, _) => return NatLookup::Refused(Refusal::NoSession),
                    (Icmp::Other, _) => return NatLookup::Refused(Refusal::IcmpType),
                }
            }
            _ => return NatLookup::Refused(Refusal::Protocol),
        }
        packet.inside = session_key(source, proto, from);
        packet.outside = session_key(destination, proto, to);
        NatLookup::Packet(packet)
    }

    /// Reads an ICMP error: the session is that of the packet that it quotes, which went the other way.
    #[cold]
    fn read_error(&self, bytes: &[u8], headers: &Headers, mut packet: Packet) -> NatLookup {
        let Some(quoted) = quoted(bytes, headers).filter(|_| headers.fragment == 0) else {
            return NatLookup::Refused(Refusal::ErrorAlone);
        };
        let (source, destination, proto) = (quoted.source, quoted.destination, quoted.place.proto);
        packet.kind = PacketKind::Error;
        packet.inside = session_key(destination.address, proto, destination.port);
        packet.outside = session_key(source.address, proto, source.port);
        let answers = if packet.direction == Direction::Inbound { Icmp::Request } else { Icmp::Reply };
        if proto == ip_proto::ICMP && quoted.icmp != answers {
            return NatLookup::Refused(Refusal::ErrorAlone);
        }
        NatLookup::Packet(packet)
    }
}
