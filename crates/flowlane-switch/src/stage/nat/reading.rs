//! What translation asks of a packet: which way it goes, and by which keys its sessions are found.

use flowlane::packet::fields::{FRAG_LATER, word};
use flowlane::packet::parse::ip_proto;
use flowlane::packet::{Headers, Network, Transport};

use super::config::Refusal;
use super::packet::{Icmp, icmp, quoted, word16};
use super::session::session_key;
use super::{HAIRPIN, INBOUND, Nat, OUTBOUND};
use crate::packet::Burst;
use crate::stage::flag;

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Outbound,
    Inbound,
    Hairpin,
}

/// What a packet is to a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// It may begin one.
    Opens,
    /// It may not.
    Goes,
    /// It is about one.
    Error,
    /// It has no ports.
    LaterFragment,
}

/// What translation asks of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    Other,
    Refused(Refusal),
    Packet(Packet),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) way: Way,
    pub(super) what: What,
    pub(super) proto: u8,
    pub(super) flags: u8,
    pub(super) first_fragment: bool,
    /// The key of the session of its source, where it goes outbound or turns round.
    pub(super) inside: [u32; 2],
    /// The key of the session of its destination, where it goes inbound or turns round.
    pub(super) outside: [u32; 2],
}

impl Way {
    pub(super) fn verdict(self) -> u8 {
        match self {
            Way::Outbound => OUTBOUND,
            Way::Inbound => INBOUND,
            Way::Hairpin => HAIRPIN,
        }
    }
}

impl Packet {
    #[inline]
    pub(super) fn looks_inside(&self) -> bool {
        self.way != Way::Inbound && self.what != What::LaterFragment
    }

    #[inline]
    pub(super) fn looks_outside(&self) -> bool {
        self.way != Way::Outbound && self.what != What::LaterFragment
    }
}

impl Nat {
    /// Reads what translation asks of a lane's packet.
    #[inline]
    pub(super) fn read(&self, packets: &Burst, lane: usize) -> Reading {
        let (key, headers) = (&packets.keys[lane], &packets.headers[lane]);
        if headers.network != Network::Ipv4 {
            return Reading::Other;
        }
        let (source, destination) = (key.word(word::IPV4_SRC), key.word(word::IPV4_DST));
        // Groups and broadcast.
        if destination >> 28 >= 0xe {
            return Reading::Other;
        }
        let from_inside = self.config.is_inside(source);
        let way = match (from_inside, self.pool.contains(destination)) {
            (false, false) => return Reading::Other,
            (true, false) => Way::Outbound,
            (false, true) => Way::Inbound,
            (true, true) if self.config.hairpin => Way::Hairpin,
            (true, true) => return Reading::Refused(Refusal::Hairpin),
        };
        if headers.malformed.is_some() {
            return Reading::Refused(Refusal::Malformed);
        }
        let [proto, _, _, _] = key.word(word::NW_PROTO).to_be_bytes();
        let mut packet = Packet {
            way,
            what: What::Goes,
            proto,
            flags: (key.word(word::FLAGS) >> 16) as u8,
            first_fragment: headers.fragment != 0,
            inside: [0; 2],
            outside: [0; 2],
        };
        if headers.fragment & FRAG_LATER != 0 {
            packet.what = What::LaterFragment;
            return Reading::Packet(packet);
        }
        if packet.first_fragment && self.fragments.is_none() {
            return Reading::Refused(Refusal::FragmentAlone);
        }
        let ports = key.word(word::PORTS);
        let (mut from, mut to) = ((ports >> 16) as u16, ports as u16);
        match headers.transport {
            Transport::Tcp => {
                let opening = flag::SYN | flag::ACK | flag::RST | flag::FIN;
                if packet.flags & opening == flag::SYN {
                    packet.what = What::Opens;
                }
            }
            Transport::Udp => packet.what = What::Opens,
            Transport::Icmpv4 => {
                let bytes = packets.frames[lane].bytes();
                let at = usize::from(headers.l4);
                let (Some(&kind), Some(id)) = (bytes.get(at), word16(bytes, at + 4)) else {
                    return Reading::Refused(Refusal::Malformed);
                };
                (from, to) = (id, id);
                match (icmp(kind), way) {
                    (Icmp::Request, Way::Outbound) => packet.what = What::Opens,
                    (Icmp::Reply, Way::Inbound) => {}
                    (Icmp::Error, Way::Hairpin) => return Reading::Refused(Refusal::Hairpin),
                    (Icmp::Error, _) => return self.read_error(bytes, headers, packet),
                    (Icmp::Request | Icmp::Reply, _) => return Reading::Refused(Refusal::NoSession),
                    (Icmp::Other, _) => return Reading::Refused(Refusal::IcmpType),
                }
            }
            _ => return Reading::Refused(Refusal::Protocol),
        }
        packet.inside = session_key(source, proto, from);
        packet.outside = session_key(destination, proto, to);
        Reading::Packet(packet)
    }

    /// Reads an ICMP error: the session is that of the packet which it quotes, and which went the other way.
    #[cold]
    fn read_error(&self, bytes: &[u8], headers: &Headers, mut packet: Packet) -> Reading {
        let Some(quoted) = quoted(bytes, headers).filter(|_| headers.fragment == 0) else {
            return Reading::Refused(Refusal::ErrorAlone);
        };
        let (source, destination, proto) = (quoted.source, quoted.destination, quoted.place.proto);
        packet.what = What::Error;
        packet.inside = session_key(destination.address, proto, destination.port);
        packet.outside = session_key(source.address, proto, source.port);
        let answers = if packet.way == Way::Inbound { Icmp::Request } else { Icmp::Reply };
        if proto == ip_proto::ICMP && quoted.icmp != answers {
            return Reading::Refused(Refusal::ErrorAlone);
        }
        Reading::Packet(packet)
    }
}
