//! A router's answers to packets: errors and echo replies of ICMP (RFC 792, RFC 1812) and ICMPv6 (RFC 4443).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane::packet::parse::ip_proto;
use flowlane::packet::{Headers, Network, Transport};

use super::wire::{Ends, Mac, fold_is_right, icmpv4, icmpv6_default, icmpv6_sum, is_group, is_host};
use crate::packet::edit::packet_end;

/// Why a packet is not forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Its TTL or hop limit has expired.
    Expired,
    /// There is no route.
    NoRoute,
    /// A route forbids it.
    Prohibited,
    /// The neighbour does not answer.
    NoNeighbour,
    /// It is longer than what leaves through the port, and must not be cut: the most bytes that can be.
    TooLong(u16),
    /// It is for the router, which does not speak this protocol.
    NoProtocol,
    /// It is for the router, where no program listens on this port.
    NoPort,
}

impl Reason {
    /// Type, code and the second word of the message.
    fn message(self, is_ipv6: bool) -> (u8, u8, u32) {
        match (self, is_ipv6) {
            (Self::Expired, false) => (11, 0, 0),
            (Self::Expired, true) => (3, 0, 0),
            (Self::NoRoute, false) => (3, 0, 0),
            (Self::NoRoute, true) => (1, 0, 0),
            (Self::Prohibited, false) => (3, 13, 0),
            (Self::Prohibited, true) => (1, 1, 0),
            (Self::NoNeighbour, false) => (3, 1, 0),
            (Self::NoNeighbour, true) => (1, 3, 0),
            (Self::TooLong(mtu), false) => (3, 4, mtu.into()),
            (Self::TooLong(mtu), true) => (2, 0, mtu.into()),
            (Self::NoProtocol, false) => (3, 2, 0),
            // The pointer: to the field that names the next header, of the fixed header.
            (Self::NoProtocol, true) => (4, 1, 6),
            (Self::NoPort, false) => (3, 3, 0),
            (Self::NoPort, true) => (1, 4, 0),
        }
    }
}

/// The longest error message, with its IP header: of IPv4 (RFC 1812, section 4.3.2.3), and of IPv6, which is the smallest MTU.
const ERROR_V4: usize = 576;
const ERROR_V6: usize = 1280;

/// Returns the addresses of an IP packet.
pub fn addresses(bytes: &[u8], headers: &Headers) -> Option<(IpAddr, IpAddr)> {
    let l3 = bytes.get(usize::from(headers.l3)..)?;
    match headers.network {
        Network::Ipv4 => {
            let address = |at| l3.get(at..at + 4).and_then(|b| <[u8; 4]>::try_from(b).ok());
            Some((Ipv4Addr::from(address(12)?).into(), Ipv4Addr::from(address(16)?).into()))
        }
        Network::Ipv6 => {
            let address = |at| l3.get(at..at + 16).and_then(|b| <[u8; 16]>::try_from(b).ok());
            Some((Ipv6Addr::from(address(8)?).into(), Ipv6Addr::from(address(24)?).into()))
        }
        Network::None | Network::Arp | Network::Nsh => None,
    }
}

/// The IP packet, without padding behind it.
fn ip_packet<'a>(bytes: &'a [u8], headers: &Headers) -> Option<&'a [u8]> {
    let end = packet_end(bytes, headers)?.min(bytes.len());
    bytes.get(usize::from(headers.l3)..end)
}

/// Returns whether an error about a packet may be sent (RFC 1812, section 4.3.2.7; RFC 4443, section 2.4e).
pub(super) fn may_be_answered(bytes: &[u8], headers: &Headers, reason: Reason) -> bool {
    let Some((source, destination)) = addresses(bytes, headers) else { return false };
    let is_to_all = bytes[0] & 1 == 1 || is_group(destination);
    // Packet too big is sent for groups, too, so that their senders learn the MTU.
    let is_to_all = is_to_all && !matches!((reason, destination), (Reason::TooLong(_), IpAddr::V6(_)));
    let is_later_fragment = headers.fragment & 2 != 0;
    !is_to_all && is_host(source) && !is_later_fragment && !is_error(bytes, headers)
}

/// Returns whether a packet is an error of ICMP, or might be one.
fn is_error(bytes: &[u8], headers: &Headers) -> bool {
    let kind = bytes.get(usize::from(headers.l4)).copied();
    match headers.transport {
        // Requests and replies; anything else is, or may be, an error.
        Transport::Icmpv4 => !matches!(kind, Some(0 | 8..=10 | 13..=18)),
        Transport::Icmpv6 => kind.is_none_or(|kind| kind < 128),
        // A truncated one.
        Transport::None => {
            let l3 = usize::from(headers.l3);
            match headers.network {
                Network::Ipv4 => bytes.get(l3 + 9) == Some(&ip_proto::ICMP),
                _ => bytes.get(l3 + 6) == Some(&ip_proto::ICMPV6),
            }
        }
        Transport::Tcp | Transport::Udp | Transport::Sctp | Transport::UdpLite | Transport::Gre => false,
    }
}

/// Returns the error about a packet: from an address of the router, by the way that the packet has come.
pub(super) fn error(
    bytes: &[u8],
    headers: &Headers,
    reason: Reason,
    (mac, own): (Mac, IpAddr),
) -> Option<Vec<u8>> {
    let packet = ip_packet(bytes, headers)?;
    let (source, _) = addresses(bytes, headers)?;
    let ends = Ends { source: mac, destination: bytes.get(6..12)?.try_into().ok()? };
    let (kind, code, word) = reason.message(source.is_ipv6());
    let mut message = vec![kind, code, 0, 0];
    message.extend_from_slice(&word.to_be_bytes());
    let room = if source.is_ipv6() { ERROR_V6 - 40 } else { ERROR_V4 - 20 };
    message.extend_from_slice(&packet[..packet.len().min(room - message.len())]);
    match (own, source) {
        (IpAddr::V4(own), IpAddr::V4(to)) => Some(icmpv4(ends, own, to, message)),
        (IpAddr::V6(own), IpAddr::V6(to)) => Some(icmpv6_default(ends, own, to, message)),
        _ => None,
    }
}

/// A message of ICMP to the router.
pub(super) struct Message<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) bytes: &'a [u8],
}

/// Returns the message of ICMP in a packet that is no fragment, if its checksum is right.
pub(super) fn message<'a>(bytes: &'a [u8], headers: &Headers) -> Option<Message<'a>> {
    if headers.fragment != 0 {
        return None;
    }
    let end = packet_end(bytes, headers)?;
    let message = bytes.get(usize::from(headers.l4)..end)?;
    let (source, destination) = addresses(bytes, headers)?;
    let is_right = match (source, destination, headers.transport) {
        (IpAddr::V4(_), IpAddr::V4(_), Transport::Icmpv4) => {
            fold_is_right(crate::packet::edit::checksum::sum(message))
        }
        (IpAddr::V6(source), IpAddr::V6(destination), Transport::Icmpv6) => {
            fold_is_right(icmpv6_sum(source, destination, message))
        }
        _ => false,
    };
    is_right.then_some(Message { source, destination, bytes: message })
}

/// Returns the reply to an echo request, from the address that it was for.
pub(super) fn echo_reply(frame: &[u8], message: &Message<'_>, mac: Mac) -> Option<Vec<u8>> {
    let ends = Ends { source: mac, destination: frame.get(6..12)?.try_into().ok()? };
    let mut reply = message.bytes.to_vec();
    match (message.destination, message.source) {
        (IpAddr::V4(own), IpAddr::V4(to)) if reply.len() >= 8 && reply[..2] == [8, 0] => {
            reply[0] = 0;
            Some(icmpv4(ends, own, to, reply))
        }
        (IpAddr::V6(own), IpAddr::V6(to)) if reply.len() >= 8 && reply[..2] == [128, 0] => {
            reply[0] = 129;
            Some(icmpv6_default(ends, own, to, reply))
        }
        _ => None,
    }
}
