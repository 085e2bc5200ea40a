//! Setting a field of the packet.

use flowlane::hash::crc32c;
use flowlane::packet::fields::Field;
use flowlane::packet::parse::{ether_type, ip_proto};
use flowlane::packet::{Headers, Network, Transport};

use super::checksum::Delta;
use super::headers::push_vlan;
use crate::packet::Frame;

/// Destination, source, EtherType.
const ETHERNET_BYTES: usize = 14;

/// Whose checksums a field is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Covered {
    /// Nobody's.
    None,
    /// The IPv4 header's.
    Ip,
    /// The pseudo header's, and the IPv4 header's where there is one.
    Addresses,
    /// The transport header's.
    Transport,
}

/// Where a field lies: the first byte of the bytes that hold it, how many, and by how much its value is
/// shifted left in them.
struct Place {
    at: usize,
    len: usize,
    shift: u32,
    covered: Covered,
}

/// Sets the bits `mask` of `field` to those of `value` (both right-aligned). Says whether the packet has the
/// field; one that has not is left alone, except that setting a VLAN field of an untagged frame adds a
/// tag, as Open vSwitch does. Fields that are in no header (metadata, tunnel, registers) are not had.
#[inline]
pub fn set_field(frame: &mut Frame, headers: &mut Headers, field: Field, value: u128, mask: u128) -> bool {
    let is_tag = matches!(field, Field::VlanTci | Field::VlanVid | Field::VlanPcp);
    if is_tag && headers.vlan_tags == 0 && !push_vlan(frame, headers, ether_type::VLAN) {
        return false;
    }
    if matches!(field, Field::EthDst | Field::EthSrc) && frame.is_bare() {
        return false;
    }
    let bytes = frame.bytes_mut();
    let Some(place) = place(bytes, headers, field) else { return false };
    let Some(old) = bytes.get(place.at..place.at + place.len) else { return false };
    let mut wide = [0; 16];
    wide[16 - place.len..].copy_from_slice(old);
    let (value, mut mask) = (value << place.shift, mask << place.shift);
    if field == Field::VlanTci {
        mask &= !0x1000; // The bit that says 'tag present' in the key is the DEI bit on the wire.
    }
    let old = u128::from_be_bytes(wide);
    let new = old & !mask | value & mask;
    if new == old {
        return true; // A wrong checksum of all ones would become 0, its other form.
    }
    let new = new.to_be_bytes();
    let sctp = headers.transport == Transport::Sctp && place.covered == Covered::Transport;
    let before = if sctp { sctp_crc(bytes, headers) } else { None };
    let delta = Delta::of_write(bytes, place.at, &new[16 - place.len..]);
    match place.covered {
        Covered::None => {}
        Covered::Ip => delta.apply(bytes, usize::from(headers.l3) + 10),
        Covered::Addresses => {
            if headers.network == Network::Ipv4 {
                delta.apply(bytes, usize::from(headers.l3) + 10);
            }
            if headers.transport != Transport::Icmpv4 {
                adjust_transport(bytes, headers, delta);
            }
        }
        Covered::Transport => adjust_transport(bytes, headers, delta),
    }
    if let Some(before) = before {
        adjust_sctp(bytes, headers, before);
    }
    true
}

/// The place of a field in the frame, where it has it.
#[inline]
fn place(bytes: &[u8], headers: &Headers, field: Field) -> Option<Place> {
    let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
    let (v4, v6) = (headers.network == Network::Ipv4, headers.network == Network::Ipv6);
    let place = |at, len, shift, covered| Some(Place { at, len, shift, covered });
    match field {
        Field::EthDst if bytes.len() >= ETHERNET_BYTES => place(0, 6, 0, Covered::None),
        Field::EthSrc if bytes.len() >= ETHERNET_BYTES => place(6, 6, 0, Covered::None),
        Field::VlanTci | Field::VlanVid => place(14, 2, 0, Covered::None),
        Field::VlanPcp => place(14, 2, 13, Covered::None),
        Field::MplsLabel if headers.mpls_labels > 0 => place(headers.mpls_at(), 4, 12, Covered::None),
        Field::MplsTc if headers.mpls_labels > 0 => place(headers.mpls_at(), 4, 9, Covered::None),
        Field::MplsTtl if headers.mpls_labels > 0 => place(headers.mpls_at(), 4, 0, Covered::None),
        Field::Ipv4Src if v4 => place(l3 + 12, 4, 0, Covered::Addresses),
        Field::Ipv4Dst if v4 => place(l3 + 16, 4, 0, Covered::Addresses),
        Field::Ipv6Src if v6 => place(l3 + 8, 16, 0, Covered::Addresses),
        Field::Ipv6Dst if v6 && headers.segments_left => place(l3 + 24, 16, 0, Covered::None),
        Field::Ipv6Dst if v6 => place(l3 + 24, 16, 0, Covered::Addresses),
        Field::Ipv6Label if v6 => place(l3, 4, 0, Covered::None),
        Field::NwTtl if v4 => place(l3 + 8, 1, 0, Covered::Ip),
        Field::NwTtl if v6 => place(l3 + 7, 1, 0, Covered::None),
        Field::IpEcn if v4 => place(l3 + 1, 1, 0, Covered::Ip),
        Field::IpDscp if v4 => place(l3 + 1, 1, 2, Covered::Ip),
        Field::IpEcn if v6 => place(l3, 4, 20, Covered::None),
        Field::IpDscp if v6 => place(l3, 4, 22, Covered::None),
        Field::TpSrc if has_ports(headers) => place(l4, 2, 0, Covered::Transport),
        Field::TpDst if has_ports(headers) => place(l4 + 2, 2, 0, Covered::Transport),
        Field::IcmpType if is_icmp(headers) => place(l4, 1, 0, Covered::Transport),
        Field::IcmpCode if is_icmp(headers) => place(l4 + 1, 1, 0, Covered::Transport),
        Field::ArpOp | Field::ArpSha | Field::ArpSpa | Field::ArpTha | Field::ArpTpa => {
            let (at, len) = arp_place(field);
            (headers.network == Network::Arp).then_some(Place {
                at: l3 + at,
                len,
                shift: 0,
                covered: Covered::None,
            })
        }
        Field::NdTarget | Field::NdReserved | Field::NdSll | Field::NdTll | Field::NdOptionsType => {
            nd_place(bytes, headers, field)
        }
        _ if headers.network == Network::Nsh => nsh_place(bytes, l3, field),
        _ => None,
    }
}

/// The bits of a field that a header has room for: fewer than OpenFlow's fields, for some of NSH.
pub(crate) fn bits(field: Field) -> u128 {
    match field {
        Field::NshFlags => 3,
        Field::NshTtl => 0x3f,
        _ => u128::MAX,
    }
}

/// The place of a field of NSH (RFC 8300 §2), whose header begins at `l3`.
fn nsh_place(bytes: &[u8], l3: usize, field: Field) -> Option<Place> {
    let (at, len, shift) = match field {
        Field::NshFlags => (0, 2, 12),
        Field::NshTtl => (0, 2, 6),
        Field::NshSpi => (4, 4, 8),
        Field::NshSi => (7, 1, 0),
        // Metadata of type 2 has no such words.
        _ if bytes.get(l3 + 2)? & 0xf != 1 => return None,
        Field::NshC1 => (8, 4, 0),
        Field::NshC2 => (12, 4, 0),
        Field::NshC3 => (16, 4, 0),
        Field::NshC4 => (20, 4, 0),
        _ => return None,
    };
    Some(Place { at: l3 + at, len, shift, covered: Covered::None })
}

/// Returns whether a packet has a protocol over IP that has fields.
pub fn has_protocol(headers: &Headers, protocol: u8) -> bool {
    protocol
        == match headers.transport {
            Transport::Tcp => ip_proto::TCP,
            Transport::Udp => ip_proto::UDP,
            Transport::Sctp => ip_proto::SCTP,
            Transport::Icmpv4 => ip_proto::ICMP,
            Transport::Icmpv6 => ip_proto::ICMPV6,
            _ => return false,
        }
}

/// Returns whether there are ports that may be changed: SCTP's checksum cannot be computed from a fragment.
fn has_ports(headers: &Headers) -> bool {
    match headers.transport {
        Transport::Tcp | Transport::Udp => true,
        Transport::Sctp => headers.fragment == 0,
        _ => false,
    }
}

fn is_icmp(headers: &Headers) -> bool {
    matches!(headers.transport, Transport::Icmpv4 | Transport::Icmpv6)
}

/// Offset and length of a field of an ARP packet (RFC 826, for Ethernet and IPv4).
fn arp_place(field: Field) -> (usize, usize) {
    match field {
        Field::ArpOp => (6, 2),
        Field::ArpSha => (8, 6),
        Field::ArpSpa => (14, 4),
        Field::ArpTha => (18, 6),
        _ => (24, 4),
    }
}

/// Flags, target and options of a neighbour solicitation or advertisement (RFC 4861 §4.3, §4.4, §4.6.1).
fn nd_place(bytes: &[u8], headers: &Headers, field: Field) -> Option<Place> {
    let l4 = usize::from(headers.l4);
    let message = bytes.get(l4..packet_end(bytes, headers)?)?;
    let whole = headers.fragment == 0 && headers.malformed.is_none();
    if headers.transport != Transport::Icmpv6 || !whole || !matches!(message, [135 | 136, 0, ..]) {
        return None;
    }
    let place = |at, len| Some(Place { at: l4 + at, len, shift: 0, covered: Covered::Transport });
    let wanted: &[u8] = match field {
        Field::NdReserved if message.len() >= 24 => return place(4, 4),
        Field::NdTarget if message.len() >= 24 => return place(8, 16),
        Field::NdSll => &[1],
        Field::NdTll => &[2],
        Field::NdOptionsType => &[1, 2],
        _ => return None,
    };
    let mut at = 24;
    loop {
        let &[kind, units] = message.get(at..)?.first_chunk::<2>()?;
        if wanted.contains(&kind) && message.len() >= at + 8 {
            return if field == Field::NdOptionsType { place(at, 1) } else { place(at + 2, 6) };
        }
        if units == 0 {
            return None;
        }
        at += usize::from(units) * 8;
    }
}

#[inline]
fn adjust_transport(bytes: &mut [u8], headers: &Headers, delta: Delta) {
    let l4 = usize::from(headers.l4);
    match headers.transport {
        Transport::Tcp => delta.apply(bytes, l4 + 16),
        // UDP-Lite's pseudo header has the packet's length, which stays, and its checksum must not be 0 (RFC 3828 §3.1):
        // one that is 0 is wrong, and stays so.
        Transport::Udp | Transport::UdpLite => delta.apply_udp(bytes, l4 + 6),
        Transport::Icmpv4 | Transport::Icmpv6 => delta.apply(bytes, l4 + 2),
        // SCTP's is no sum, and has no pseudo header: see `adjust_sctp`.
        Transport::Sctp | Transport::Gre | Transport::None => {}
    }
}

/// Where the IP packet ends: behind it there is padding.
pub fn packet_end(bytes: &[u8], headers: &Headers) -> Option<usize> {
    let l3 = usize::from(headers.l3);
    let &[_, _, a, b, c, d, next] = bytes.get(l3..)?.first_chunk()?;
    Some(match (headers.network, u16::from_be_bytes([c, d])) {
        (Network::Ipv4, _) => l3 + usize::from(u16::from_be_bytes([a, b])),
        // A jumbogram (RFC 2675), as the parser takes it.
        (_, 0) if next == ip_proto::HOP_BY_HOP => bytes.len(),
        (_, payload) => l3 + 40 + usize::from(payload),
    })
}

/// The CRC32c of an SCTP packet as it lies there, the checksum's own bytes included.
fn sctp_crc(bytes: &[u8], headers: &Headers) -> Option<u32> {
    let packet = bytes.get(usize::from(headers.l4)..packet_end(bytes, headers)?)?;
    (packet.len() >= 12).then(|| crc32c::checksum(packet))
}

/// Changes SCTP's checksum (RFC 9260 §6.8, appendix A: little-endian) by as much as the right one has changed since it was
/// that of a packet whose CRC was `before`: a packet that was damaged stays damaged. The checksum's own bytes are the same
/// in both packets, and so drop out.
fn adjust_sctp(bytes: &mut [u8], headers: &Headers, before: u32) {
    let Some(now) = sctp_crc(bytes, headers) else { return };
    let at = usize::from(headers.l4) + 8;
    for (byte, change) in bytes[at..at + 4].iter_mut().zip((before ^ now).to_le_bytes()) {
        *byte ^= change;
    }
}
