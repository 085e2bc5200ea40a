//! The part of a packet that connection tracking looks at, and its translation.
//!
//! A packet is invalid to connection tracking where a checksum is wrong, a header is cut off, or its ICMP type is none that belongs to
//! a connection: as in Open vSwitch.

use flowlane::hash::crc32c;
use flowlane::packet::fields::word;
use flowlane::packet::parse::ip_proto;
use flowlane::packet::{Field, FlowKey, Headers, Network, Transport};

use super::{End, Message, Rewrite, Seen, Segment, Translated, Tuple, WINDOW_SHIFT_MAX};
use crate::packet::Frame;
use crate::packet::edit::checksum::{Delta, fold, sum};
use crate::packet::edit::{packet_end, set_field};

/// Bytes of a transport header that every error of ICMP quotes (RFC 792).
const QUOTED_BYTES: usize = 8;

/// Bytes of headers.
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const SCTP_BYTES: usize = 12;
const ICMP_BYTES: usize = 8;
const IPV6_BYTES: usize = 40;

/// The option of TCP that has the shift of windows (RFC 7323).
const WINDOW_SCALE: u8 = 3;

fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// An IP packet: its addresses, and the bytes behind its header.
struct Ip<'a> {
    is_ipv6: bool,
    source: u128,
    destination: u128,
    proto: u8,
    /// The transport header and what follows, without padding.
    data: &'a [u8],
}

impl Ip<'_> {
    /// Returns the sum of the pseudo header.
    fn pseudo_sum(&self) -> u64 {
        // A sum of words of 32 bits is one of words of 16 bits when it is folded.
        let words = |address: u128| (0..4).map(|at| u64::from((address >> (32 * at)) as u32)).sum::<u64>();
        let addresses = match self.is_ipv6 {
            true => words(self.source) + words(self.destination),
            false => self.source as u64 + self.destination as u64,
        };
        addresses + u64::from(self.proto) + self.data.len() as u64
    }

    /// Returns whether the checksum over the data, and the pseudo header if that is covered, is right.
    fn is_sound(&self, covers_addresses: bool) -> bool {
        let pseudo = if covers_addresses { self.pseudo_sum() } else { 0 };
        let total = pseudo + u64::from(sum(self.data));
        let parts = (total & 0xffff) + (total >> 16 & 0xffff) + (total >> 32);
        fold(parts as u32) == 0xffff
    }

    // Inlined, as is what calls it: the ends would else be copied, by wider loads than they were stored by, which wait until the stores
    // have retired.
    #[inline(always)]
    fn tuple(&self, source: End, destination: End) -> Tuple {
        Tuple {
            source: End { address: self.source, ..source },
            destination: End { address: self.destination, ..destination },
            zone: 0,
            proto: self.proto,
            is_ipv6: self.is_ipv6,
        }
    }

    #[inline(always)]
    fn with_ports(&self, at: usize) -> Tuple {
        let end = |at| End { port: word16(self.data, at), ..End::default() };
        self.tuple(end(at), end(at + 2))
    }

    fn with_identifier(&self, icmp_types: [u8; 2]) -> Tuple {
        let port = word16(self.data, 4);
        let [source, destination] = icmp_types.map(|icmp_type| End { port, icmp_type, ..End::default() });
        self.tuple(source, destination)
    }
}

/// Returns the type that answers a request of ICMP, or asks for an answer.
fn counterpart(icmp_type: u8, is_ipv6: bool) -> Option<u8> {
    Some(match (is_ipv6, icmp_type) {
        (false, 8) => 0,
        (false, 0) => 8,
        (false, 13) => 14,
        (false, 14) => 13,
        (false, 15) => 16,
        (false, 16) => 15,
        (true, 128) => 129,
        (true, 129) => 128,
        _ => return None,
    })
}

/// Returns whether an ICMP type is of errors, which quote a packet.
fn is_error(icmp_type: u8, is_ipv6: bool) -> bool {
    match is_ipv6 {
        // Unreachable, source quench, redirect, time exceeded, parameter problem.
        false => matches!(icmp_type, 3 | 4 | 5 | 11 | 12),
        // Unreachable, too big, time exceeded, parameter problem.
        true => matches!(icmp_type, 1..=4),
    }
}

/// Returns what connection tracking sees of a packet; `None` if that is invalid.
pub(crate) fn seen(bytes: &[u8], headers: &Headers, key: &FlowKey) -> Option<Seen> {
    let ip = outer(bytes, headers, key)?;
    let data = ip.data;
    let (tuple, message) = match ip.proto {
        ip_proto::TCP => {
            let header = usize::from(data.get(12)? >> 4) * 4;
            if data.len() < TCP_BYTES || header < TCP_BYTES || header > data.len() || !ip.is_sound(true) {
                return None;
            }
            (ip.with_ports(0), Message::Tcp(segment(data, header)))
        }
        ip_proto::UDP => {
            let len = usize::from(word16(data.get(..UDP_BYTES)?, 4));
            let has_none = word16(data, 6) == 0 && !ip.is_ipv6;
            if len < UDP_BYTES || len > data.len() || !has_none && !ip.is_sound(true) {
                return None;
            }
            (ip.with_ports(0), Message::Other)
        }
        ip_proto::SCTP => {
            let stored = data.get(8..SCTP_BYTES)?;
            let mut copy = data.to_vec();
            copy[8..SCTP_BYTES].fill(0);
            if crc32c::checksum(&copy).to_le_bytes() != *stored {
                return None;
            }
            (ip.with_ports(0), Message::Other)
        }
        ip_proto::ICMP if !ip.is_ipv6 => return icmp(&ip, data, false),
        ip_proto::ICMPV6 if ip.is_ipv6 => return icmp(&ip, data, true),
        _ => (ip.tuple(End::default(), End::default()), Message::Other),
    };
    Some(Seen { tuple, message, is_error: false })
}

/// Returns the ends of a packet whose headers are sound, and whether it is an error of ICMP: then those of packets that go its way.
/// Checksums are not looked at. `None` if it has neither ports nor an identifier, or is an error without a packet that goes back.
#[inline]
pub(crate) fn ends(bytes: &[u8], headers: &Headers, key: &FlowKey) -> Option<(Tuple, bool)> {
    let ip = unverified(bytes, headers, key)?;
    match headers.transport {
        Transport::Tcp | Transport::Udp => {
            let ports = key.word(word::PORTS);
            let end = |port: u32| End { port: port as u16, ..End::default() };
            Some((ip.tuple(end(ports >> 16), end(ports)), false))
        }
        Transport::Icmpv4 | Transport::Icmpv6 if ip.data.len() >= ICMP_BYTES => {
            let icmp_type = ip.data[0];
            if let Some(other) = counterpart(icmp_type, ip.is_ipv6) {
                return Some((ip.with_identifier([icmp_type, other]), false));
            }
            error_ends(&ip, true).map(|tuple| (tuple, true))
        }
        _ => None,
    }
}

/// Reads the packet's own IP header, whose checksum must be right.
fn outer<'a>(bytes: &'a [u8], headers: &Headers, key: &FlowKey) -> Option<Ip<'a>> {
    let ip = unverified(bytes, headers, key)?;
    let l3 = usize::from(headers.l3);
    if headers.fragment != 0
        || !ip.is_ipv6 && fold(sum(bytes.get(l3..l3 + 4 * usize::from(bytes[l3] & 15))?)) != 0xffff
    {
        return None;
    }
    Some(ip)
}

/// Reads the packet's own IP header.
#[inline]
fn unverified<'a>(bytes: &'a [u8], headers: &Headers, key: &FlowKey) -> Option<Ip<'a>> {
    let l4 = usize::from(headers.l4);
    let is_ipv6 = match headers.network {
        Network::Ipv4 => false,
        Network::Ipv6 => true,
        Network::Arp | Network::Nsh | Network::None => return None,
    };
    let wide = |first: usize| (0..4).fold(0, |value, at| value << 32 | u128::from(key.word(first + at)));
    let (source, destination) = match is_ipv6 {
        true => (wide(word::IPV6_SRC), wide(word::IPV6_DST)),
        false => (key.word(word::IPV4_SRC).into(), key.word(word::IPV4_DST).into()),
    };
    Some(Ip {
        is_ipv6,
        source,
        destination,
        proto: (key.word(word::NW_PROTO) >> 24) as u8,
        data: bytes.get(l4..packet_end(bytes, headers)?)?,
    })
}

/// Reads a message of ICMP: a request, an answer, or an error about a packet of a connection.
fn icmp(ip: &Ip<'_>, data: &[u8], is_ipv6: bool) -> Option<Seen> {
    if data.len() < ICMP_BYTES || !ip.is_sound(is_ipv6) {
        return None;
    }
    let (icmp_type, code) = (data[0], data[1]);
    if let Some(other) = counterpart(icmp_type, is_ipv6) {
        let tuple = ip.with_identifier([icmp_type, other]);
        return (code == 0).then_some(Seen { tuple, message: Message::Icmp, is_error: false });
    }
    let tuple = error_ends(ip, false)?;
    Some(Seen { tuple, message: Message::Other, is_error: true })
}

/// Returns the ends of packets that go the way of an error about a packet of a connection.
fn error_ends(ip: &Ip<'_>, may_be_first_fragment: bool) -> Option<Tuple> {
    if !is_error(ip.data[0], ip.is_ipv6) {
        return None;
    }
    let tuple = quoted(&ip.data[ICMP_BYTES..], ip.is_ipv6, may_be_first_fragment)?.ports()?;
    // Errors go to where the packet came from.
    (tuple.source.address == ip.destination).then(|| tuple.reversed())
}

/// Reads the packet that an error quotes.
fn quoted(bytes: &[u8], is_ipv6: bool, may_be_first_fragment: bool) -> Option<Ip<'_>> {
    let (header, proto, total, fragment) = match is_ipv6 {
        false => {
            let header = usize::from(bytes.first()? & 15) * 4;
            if bytes[0] >> 4 != 4 || header < 20 || bytes.len() < header {
                return None;
            }
            let place = word16(bytes, 6) & if may_be_first_fragment { 0x1fff } else { 0x3fff };
            (header, bytes[9], usize::from(word16(bytes, 2)), place != 0)
        }
        true => {
            if bytes.len() < IPV6_BYTES || bytes[0] >> 4 != 6 {
                return None;
            }
            let (header, proto, is_fragment) = behind_extensions(bytes)?;
            (header, proto, IPV6_BYTES + usize::from(word16(bytes, 4)), is_fragment)
        }
    };
    if fragment || total < header {
        return None;
    }
    let address = |at: usize| match is_ipv6 {
        false => u128::from(word32(bytes, at)),
        true => bytes[at..at + 16].iter().fold(0, |address, byte| address << 8 | u128::from(*byte)),
    };
    let (source, destination) = if is_ipv6 { (address(8), address(24)) } else { (address(12), address(16)) };
    Some(Ip { is_ipv6, source, destination, proto, data: &bytes[header..] })
}

/// Returns where the transport header of an IPv6 packet begins, its protocol, and whether the packet is a fragment.
pub(super) fn behind_extensions(bytes: &[u8]) -> Option<(usize, u8, bool)> {
    let (mut at, mut next) = (IPV6_BYTES, bytes[6]);
    // More extension headers than the parser follows are not followed here.
    for _ in 0..8 {
        match next {
            ip_proto::HOP_BY_HOP | ip_proto::ROUTING | ip_proto::DESTINATION => {
                let header = bytes.get(at..at + 2)?;
                next = header[0];
                at += (usize::from(header[1]) + 1) * 8;
            }
            ip_proto::FRAGMENT => return Some((at, next, true)),
            _ => return (at <= bytes.len()).then_some((at, next, false)),
        }
    }
    None
}

impl Ip<'_> {
    /// Returns the tuple of a quoted packet, of whose transport header only the first bytes are there.
    fn ports(&self) -> Option<Tuple> {
        match self.proto {
            ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP => {
                (self.data.len() >= QUOTED_BYTES).then(|| self.with_ports(0))
            }
            ip_proto::ICMP | ip_proto::ICMPV6 if (self.proto == ip_proto::ICMPV6) == self.is_ipv6 => {
                let other = counterpart(*self.data.first()?, self.is_ipv6)?;
                let is_whole = self.data.len() >= ICMP_BYTES && self.data[1] == 0;
                is_whole.then(|| self.with_identifier([self.data[0], other]))
            }
            _ => Some(self.tuple(End::default(), End::default())),
        }
    }
}

/// Reads a TCP header, which is there.
#[inline(always)]
fn segment(data: &[u8], header: usize) -> Segment {
    Segment {
        flags: word16(data, 12) & 0xfff,
        sequence: word32(data, 4),
        acknowledgement: word32(data, 8),
        window: word16(data, 14),
        window_shift: window_shift(&data[TCP_BYTES..header]),
        payload: (data.len() - header) as u32,
    }
}

/// Returns the shift of windows among the options of TCP.
fn window_shift(mut options: &[u8]) -> Option<u8> {
    loop {
        match *options {
            [] | [0, ..] => return None,
            [1, ..] => options = &options[1..],
            [WINDOW_SCALE, 3, shift, ..] => return Some(shift.min(WINDOW_SHIFT_MAX)),
            [_, len, ..] if len >= 2 => options = options.get(usize::from(len)..)?,
            _ => return None,
        }
    }
}

/// Rewrites the ends of a packet, in its frame and its key.
pub(crate) fn rewrite(frame: &mut Frame, headers: &mut Headers, key: &mut FlowKey, by: &Rewrite) {
    let Rewrite { ends, from, to, is_error } = by;
    // Later fragments have no part of the quoted packet's headers.
    if *is_error && headers.transport != Transport::None {
        rewrite_quoted(frame, headers, by);
    }
    if !*is_error && matches!(headers.transport, Transport::Tcp | Transport::Udp) && headers.fragment == 0 {
        return rewrite_segment(frame, headers, key, by);
    }
    let mut set = |field: Field, value: u128| {
        if set_field(frame, headers, field, value, field.info().ones()) {
            key.set(field, value);
        }
    };
    let fields = |v4, v6| if to.is_ipv6 { v6 } else { v4 };
    if ends.source {
        set(fields(Field::Ipv4Src, Field::Ipv6Src), to.source.address);
    }
    if ends.destination {
        set(fields(Field::Ipv4Dst, Field::Ipv6Dst), to.destination.address);
    }
    if *is_error {
        return;
    }
    // The port of an end moves, too, where only the other one is translated and the ports are in use.
    if !to.is_icmp() {
        if from.source.port != to.source.port {
            set(Field::TpSrc, to.source.port.into());
        }
        if from.destination.port != to.destination.port {
            set(Field::TpDst, to.destination.port.into());
        }
    } else if headers.transport != Transport::None && from.source.port != to.source.port {
        let at = usize::from(headers.l4) + 4;
        let delta = Delta::of_write(frame.bytes_mut(), at, &to.source.port.to_be_bytes());
        delta.apply(frame.bytes_mut(), at - 2);
    }
}

/// Rewrites a packet of TCP or UDP, which has all its headers: both checksums are adjusted once.
#[inline]
fn rewrite_segment(frame: &mut Frame, headers: &Headers, key: &mut FlowKey, by: &Rewrite) {
    let Rewrite { ends, from, to, .. } = by;
    let (bytes, l3, l4) = (frame.bytes_mut(), usize::from(headers.l3), usize::from(headers.l4));
    let (width, first) = if to.is_ipv6 { (16, l3 + 8) } else { (4, l3 + 12) };
    let fields = |v4, v6| if to.is_ipv6 { v6 } else { v4 };
    let (mut addresses, mut ports) = (Delta::default(), Delta::default());
    let sides = [
        (ends.source, &from.source, &to.source, fields(Field::Ipv4Src, Field::Ipv6Src), Field::TpSrc),
        (
            ends.destination,
            &from.destination,
            &to.destination,
            fields(Field::Ipv4Dst, Field::Ipv6Dst),
            Field::TpDst,
        ),
    ];
    for (side, (is_translated, old, new, address, port)) in sides.into_iter().enumerate() {
        if is_translated {
            addresses = addresses.and(replace(bytes, first + side * width, width, new.address));
            key.set(address, new.address);
        }
        if old.port != new.port {
            ports = ports.and(replace(bytes, l4 + 2 * side, 2, new.port.into()));
            key.set(port, new.port.into());
        }
    }
    if addresses != Delta::default() && !to.is_ipv6 {
        addresses.apply(bytes, l3 + 10);
    }
    let both = addresses.and(ports);
    if both != Delta::default() {
        match headers.transport {
            Transport::Tcp => both.apply(bytes, l4 + 16),
            _ => both.apply_udp(bytes, l4 + 6),
        }
    }
}

/// Writes a number of some bytes at an even offset of the frame, if the frame has them; returns the difference to the one that was there.
#[inline]
fn replace(bytes: &mut [u8], at: usize, width: usize, new: u128) -> Delta {
    let Some(place) = bytes.get_mut(at..at + width) else { return Delta::default() };
    let old = place.iter().fold(0u128, |old, byte| old << 8 | u128::from(*byte));
    place.copy_from_slice(&new.to_be_bytes()[16 - width..]);
    if old == new { Delta::default() } else { Delta::of_numbers(old, new) }
}

/// Rewrites the packet that an error quotes: its ends are the other way round.
fn rewrite_quoted(frame: &mut Frame, headers: &Headers, by: &Rewrite) {
    let Some(end) = packet_end(frame.bytes(), headers) else { return };
    let l4 = usize::from(headers.l4);
    let message = &mut frame.bytes_mut()[l4..end];
    let before = sum(&message[ICMP_BYTES..]);
    let inner = &mut message[ICMP_BYTES..];
    let header = match by.to.is_ipv6 {
        true => behind_extensions(inner).map_or(IPV6_BYTES, |(at, ..)| at),
        false => usize::from(inner[0] & 15) * 4,
    };
    write_ends(inner, header, by.ends.reversed(), &by.to.reversed(), by.from.proto);
    let after = sum(&message[ICMP_BYTES..]);
    Delta::between(before, after).apply(message, 2);
}

/// Writes ends into a quoted packet whose transport header may be cut off.
fn write_ends(inner: &mut [u8], header: usize, ends: Translated, to: &Tuple, proto: u8) {
    let width = if to.is_ipv6 { 16 } else { 4 };
    let first = if to.is_ipv6 { 8 } else { 12 };
    let mut delta = Delta::default();
    let mut write = |inner: &mut [u8], at: usize, bytes: &[u8]| {
        if inner.len() >= at + bytes.len() {
            delta = delta.and(Delta::of_write(inner, at, bytes));
        }
    };
    for (is_changed, at, end) in
        [(ends.source, first, to.source), (ends.destination, first + width, to.destination)]
    {
        if is_changed {
            write(inner, at, &end.address.to_be_bytes()[16 - width..]);
        }
    }
    let addresses = delta;
    let mut ports = Delta::default();
    let has_ports = matches!(proto, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP);
    for (at, end) in [(header, to.source), (header + 2, to.destination)] {
        if has_ports && inner.len() >= at + 2 {
            ports = ports.and(Delta::of_write(inner, at, &end.port.to_be_bytes()));
        }
    }
    if to.is_icmp() && inner.len() >= header + ICMP_BYTES {
        ports = Delta::of_write(inner, header + 4, &to.source.port.to_be_bytes());
    }
    if !to.is_ipv6 {
        addresses.apply(inner, 10);
    }
    let all = addresses.and(ports);
    match proto {
        ip_proto::TCP => all.apply(inner, header + 16),
        ip_proto::UDP => all.apply_udp(inner, header + 6),
        ip_proto::ICMP => ports.apply(inner, header + 2),
        ip_proto::ICMPV6 => all.apply(inner, header + 2),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use flowlane::packet::parse;

    use super::*;

    /// The last fragment of an error is shorter than the header of ICMP, and has none.
    #[test]
    fn later_fragments_of_an_error_get_addresses_alone() {
        let mut bytes =
            vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 23, 0, 1, 0, 150, 64, 1, 0, 0];
        bytes.extend([192, 0, 2, 1, 10, 0, 0, 1, 7, 8, 9]);
        let mut frame = Frame::default();
        frame.fill(&bytes);
        let mut key = FlowKey::zero();
        let mut headers = parse(frame.bytes(), 1, &mut key);
        let end = |address| End { address, port: 5, icmp_type: 0 };
        let tuple = |source, destination| Tuple {
            source: end(source),
            destination: end(destination),
            zone: 0,
            proto: ip_proto::UDP,
            is_ipv6: false,
        };
        let (from, to) = (tuple(0xc000_0201, 0x0a00_0001), tuple(0xc633_6401, 0x0a00_0001));
        let ends = Translated { source: true, destination: false };
        rewrite(&mut frame, &mut headers, &mut key, &Rewrite { ends, from, to, is_error: true });
        assert_eq!(frame.bytes()[26..], [198, 51, 100, 1, 10, 0, 0, 1, 7, 8, 9]);
        assert_eq!(key.get(Field::Ipv4Src), 0xc633_6401);
    }
}
