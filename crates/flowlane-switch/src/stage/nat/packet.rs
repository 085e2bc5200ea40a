//! Reads ICMP messages, and writes addresses and ports with their checksums.
//!
//! Checksums are updated by difference (RFC 1624): one that was wrong stays wrong.

use flowlane::packet::Headers;
use flowlane::packet::parse::ip_proto;

use crate::packet::edit::checksum::Delta;

/// An end of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Source,
    Destination,
}

/// An address, and a port or an ICMP identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Endpoint {
    pub(super) address: u32,
    pub(super) port: u16,
}

/// The offsets of a packet's headers, and its protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) l3: usize,
    pub(super) l4: usize,
    pub(super) proto: u8,
}

impl Place {
    pub(super) fn of(headers: &Headers, proto: u8) -> Self {
        Self { l3: headers.l3.into(), l4: headers.l4.into(), proto }
    }
}

/// The kinds of ICMP messages that translation distinguishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Icmp {
    /// A query: echo, timestamp.
    Request,
    /// The answer.
    Reply,
    /// An error that quotes a packet: unreachable, time exceeded, parameter problem.
    Error,
    /// Anything else.
    Other,
}

/// Returns the kind of an ICMP type (RFC 792; RFC 5508 §3 and §4).
pub(super) fn icmp(kind: u8) -> Icmp {
    match kind {
        8 | 13 => Icmp::Request,
        0 | 14 => Icmp::Reply,
        3 | 11 | 12 => Icmp::Error,
        _ => Icmp::Other,
    }
}

/// Reads two bytes in network order.
#[inline]
pub(super) fn word16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

/// Writes an end's address and, if the transport header is present, its port or identifier. `bytes` ends with the packet.
#[inline]
pub(super) fn write_end(bytes: &mut [u8], place: Place, end: End, to: Endpoint) {
    let Place { l3, l4, proto } = place;
    let address = write_address(bytes, l3, end, to.address);
    if bytes.len() < l4 + 8 {
        return;
    }
    let port_at = match (proto, end) {
        (ip_proto::ICMP, _) => l4 + 4,
        (_, End::Source) => l4,
        (_, End::Destination) => l4 + 2,
    };
    let port = Delta::of_write(bytes, port_at, &to.port.to_be_bytes());
    match proto {
        ip_proto::TCP => address.and(port).apply(bytes, l4 + 16),
        ip_proto::UDP => address.and(port).apply_udp(bytes, l4 + 6),
        _ => port.apply(bytes, l4 + 2),
    }
}

/// Writes an end's address and the IPv4 checksum.
#[inline]
pub(super) fn write_address(bytes: &mut [u8], l3: usize, end: End, address: u32) -> Delta {
    let at = l3 + if end == End::Source { 12 } else { 16 };
    if bytes.len() < l3 + 20 {
        return Delta::default();
    }
    let delta = Delta::of_write(bytes, at, &address.to_be_bytes());
    delta.apply(bytes, l3 + 10);
    delta
}

/// The packet that an ICMP error quotes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quoted {
    pub(super) place: Place,
    pub(super) source: Endpoint,
    pub(super) destination: Endpoint,
    /// The end of the message.
    pub(super) end: usize,
    /// Its kind, if it is ICMP.
    pub(super) icmp: Icmp,
}

/// Reads the packet that an ICMP error quotes; none unless it has both ends.
pub(super) fn quoted(bytes: &[u8], headers: &Headers) -> Option<Quoted> {
    let outer = usize::from(headers.l3);
    let end = outer + usize::from(word16(bytes, outer + 2)?);
    let message = bytes.get(..end)?;
    let l3 = usize::from(headers.l4) + 8;
    let first = *message.get(l3)?;
    let l4 = l3 + 4 * usize::from(first & 15);
    let proto = *message.get(l3 + 9)?;
    let whole = word16(message, l3 + 6)? & 0x1fff == 0;
    if first >> 4 != 4 || l4 < l3 + 20 || !whole || message.len() < l4 + 8 {
        return None;
    }
    let (mut ports, mut kind) = ((word16(message, l4)?, word16(message, l4 + 2)?), Icmp::Other);
    match proto {
        ip_proto::TCP | ip_proto::UDP => {}
        ip_proto::ICMP => {
            let id = word16(message, l4 + 4)?;
            (ports, kind) = ((id, id), icmp(message[l4]));
            if !matches!(kind, Icmp::Request | Icmp::Reply) {
                return None;
            }
        }
        _ => return None,
    }
    Some(Quoted {
        place: Place { l3, l4, proto },
        source: Endpoint { address: word32(message, l3 + 12)?, port: ports.0 },
        destination: Endpoint { address: word32(message, l3 + 16)?, port: ports.1 },
        end,
        icmp: kind,
    })
}

/// Writes an end of the packet that an ICMP error quotes, with its checksums and that of the error.
pub(super) fn write_quoted(bytes: &mut [u8], headers: &Headers, quoted: &Quoted, end: End, to: Endpoint) {
    let from = usize::from(headers.l4) + 8;
    let message = &mut bytes[..quoted.end];
    let before = crate::packet::edit::checksum::sum(&message[from..]);
    write_end(message, quoted.place, end, to);
    let after = crate::packet::edit::checksum::sum(&message[from..]);
    Delta::between(before, after).apply(message, usize::from(headers.l4) + 2);
}
