//! Changing a packet: where its fields lie, and what its checksums are after that.

use flowlane::packet::Field;

use super::reading::{Ip, Reading, Transport, number};
use crate::packets::{crc32c, sum};

/// Where a field lies: bytes of the packet, and how far its lowest bit is from theirs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    at: usize,
    len: usize,
    shift: u32,
    width: u32,
}

fn whole(at: usize, len: usize) -> Option<Place> {
    Some(Place { at, len, shift: 0, width: 8 * len as u32 })
}

fn bits(at: usize, len: usize, shift: u32, width: u32) -> Option<Place> {
    Some(Place { at, len, shift, width })
}

/// Where a packet has a field of its headers, if it has it. Tags are not here: see [`set_tci`].
fn place(reading: &Reading, field: Field) -> Option<Place> {
    let arp = |at: usize, len| whole(reading.arp? + at, len);
    let label = |shift, width| bits(*reading.labels.first()?, 4, shift, width);
    let entry = |i: usize| whole(*reading.labels.get(i)?, 4);
    let v4 = || reading.ip.filter(|ip| !ip.v6);
    let v6 = || reading.ip.filter(|ip| ip.v6);
    let ip = reading.ip;
    // RFC 791 §3.1: the second byte; RFC 8200 §3: behind the version's four bits.
    let traffic_class = |shift, width| {
        let Ip { v6, at, .. } = ip?;
        if v6 { bits(at, 4, 20 + shift, width) } else { bits(at + 1, 1, shift, width) }
    };
    let segment = |kinds: &[Transport], at: usize, len| {
        reading.transport.filter(|t| kinds.contains(t))?;
        whole(ip?.header_end + at, len)
    };
    let ports = [Transport::Tcp, Transport::Udp, Transport::Sctp];
    let icmp = [Transport::Icmp, Transport::Icmp6];
    match field {
        Field::EthDst if reading.ethernet => whole(0, 6),
        Field::EthSrc if reading.ethernet => whole(6, 6),
        Field::MplsLabel => label(12, 20),
        Field::MplsTc => label(9, 3),
        Field::MplsBos => label(8, 1),
        Field::MplsTtl => label(0, 8),
        Field::MplsLse1 => entry(1),
        Field::MplsLse2 => entry(2),
        Field::ArpOp => arp(6, 2),
        Field::ArpSha => arp(8, 6),
        Field::ArpSpa => arp(14, 4),
        Field::ArpTha => arp(18, 6),
        Field::ArpTpa => arp(24, 4),
        Field::Ipv4Src => whole(v4()?.at + 12, 4),
        Field::Ipv4Dst => whole(v4()?.at + 16, 4),
        Field::Ipv6Src => whole(v6()?.at + 8, 16),
        Field::Ipv6Dst => whole(v6()?.at + 24, 16),
        Field::Ipv6Label => bits(v6()?.at, 4, 0, 20),
        Field::IpDscp => traffic_class(2, 6),
        Field::IpEcn => traffic_class(0, 2),
        Field::NwTtl => whole(ip?.at + if ip?.v6 { 7 } else { 8 }, 1),
        Field::TpSrc => segment(&ports, 0, 2),
        Field::TpDst => segment(&ports, 2, 2),
        Field::TcpFlags => segment(&[Transport::Tcp], 12, 2).map(|p| Place { width: 12, ..p }),
        Field::IcmpType => segment(&icmp, 0, 1),
        Field::IcmpCode => segment(&icmp, 1, 1),
        Field::NdReserved => whole(reading.neighbour.reserved?, 4),
        Field::NdTarget => whole(reading.neighbour.target?, 16),
        Field::NdOptionsType => whole(reading.neighbour.option?, 1),
        Field::NdSll => whole(reading.neighbour.source_address?, 6),
        Field::NdTll => whole(reading.neighbour.target_address?, 6),
        _ => None,
    }
}

/// Where a first fragment that ends within its transport header has a field of it.
fn place_in_beginning(frame: &[u8], reading: &Reading, field: Field) -> Option<Place> {
    let (begun, ip) = (reading.begun?, reading.ip?);
    let segment = &frame[ip.header_end..ip.end];
    // An impossible offset makes the ports doubtful.
    if begun == Transport::Tcp && segment.get(12).is_some_and(|offset| offset >> 4 < 5) {
        return None;
    }
    let least = match field {
        Field::TpSrc | Field::TpDst => 4,
        Field::TcpFlags => 14,
        Field::IcmpType | Field::IcmpCode => 2,
        _ => return None,
    };
    let whole = Reading { transport: Some(begun), ..reading.clone() };
    place(&whole, field).filter(|_| segment.len() >= least)
}

/// A field's value; none where the packet has no such field.
pub(super) fn get(frame: &[u8], reading: &Reading, field: Field) -> Option<u128> {
    if let Field::NwProto | Field::IpFrag = field {
        let ip = reading.ip?;
        let fragment = u128::from(ip.fragment) | u128::from(ip.later) << 1;
        return Some(if field == Field::NwProto { ip.protocol.into() } else { fragment });
    }
    // As in Open vSwitch, 0x1000 says 'there is a tag', in the place of its drop eligible bit.
    let tag = |i: usize| reading.tags.get(i).map(|tci| u128::from(tci | 0x1000));
    match field {
        Field::EthType if reading.ethernet => return Some(reading.ether_type.into()),
        Field::VlanTci => return tag(0),
        Field::VlanTci1 => return tag(1),
        Field::VlanVid => return tag(0).map(|tci| tci & 0xfff),
        Field::VlanPcp => return tag(0).map(|tci| tci >> 13),
        Field::VlanTpid => return tag(0).map(|_| reading.tpid.into()),
        _ => {}
    }
    let Place { at, len, shift, width } =
        place(reading, field).or_else(|| place_in_beginning(frame, reading, field))?;
    let ones = u128::MAX >> (128 - width);
    Some(number(&frame[at..at + len]) >> shift & ones)
}

/// Sets bits of a field. Where the packet has no such field nothing happens.
pub(super) fn set(frame: &mut Vec<u8>, reading: &Reading, field: Field, value: u128, mask: u128) {
    match field {
        Field::VlanTci => return set_tci(frame, reading, value, mask),
        Field::VlanVid => return set_tci(frame, reading, 0x1000 | value, 0x1000 | mask),
        Field::VlanPcp => return set_tci(frame, reading, 0x1000 | value << 13, 0x1000 | mask << 13),
        _ => {}
    }
    let Some(Place { at, len, shift, .. }) = place(reading, field) else { return };
    let discovers = field.info().name.starts_with("nd_");
    if discovers && reading.fault.is_some() {
        return; // A message whose options lie about their lengths is left alone.
    }
    let fragment = reading.ip.is_some_and(|ip| ip.fragment);
    if reading.transport == Some(Transport::Sctp) && fragment && matches!(field, Field::TpSrc | Field::TpDst)
    {
        return; // The CRC is over all fragments: a change of the ports could not correct it.
    }
    let mask = mask << shift;
    let old = number(&frame[at..at + len]);
    let new = old & !mask | value << shift & mask;
    let errors = Errors::of(frame, reading);
    frame[at..at + len].copy_from_slice(&new.to_be_bytes()[16 - len..]);
    if new != old {
        errors.restore(frame, reading);
    }
}

/// Sets bits of the outermost tag; 0x1000 says that there is to be one. The drop eligible bit, which OpenFlow has no
/// field for, stays (IEEE 802.1Q §6.9.3).
fn set_tci(frame: &mut Vec<u8>, reading: &Reading, value: u128, mask: u128) {
    let (value, mask) = (value as u16, mask as u16);
    if mask & 0x1000 != 0 && value & 0x1000 == 0 {
        return pop_vlan(frame, reading);
    }
    if reading.tags.is_empty() {
        push_vlan(frame, reading, 0x8100);
    }
    if !reading.ethernet {
        return;
    }
    let old = u16::from_be_bytes([frame[14], frame[15]]);
    let mask = mask & !0x1000;
    frame[14..16].copy_from_slice(&(old & !mask | value & mask).to_be_bytes());
}

/// OpenFlow 1.3.5 §5.12: a new outermost tag, all zero.
pub(super) fn push_vlan(frame: &mut Vec<u8>, reading: &Reading, tpid: u16) {
    if reading.ethernet {
        let [high, low] = tpid.to_be_bytes();
        frame.splice(12..12, [high, low, 0, 0]);
    }
}

pub(super) fn pop_vlan(frame: &mut Vec<u8>, reading: &Reading) {
    if !reading.tags.is_empty() {
        frame.drain(12..16);
    }
}

/// OpenFlow 1.3.5 §5.12, §5.12.1: a new outermost label stack entry whose fields are those of the one before it, or the
/// TTL that of IP. An 802.3 frame takes none. Says whether this is decided: a tag that is not parsed hides where labels go.
pub(super) fn push_mpls(frame: &mut Vec<u8>, reading: &Reading, ether_type: u16) -> bool {
    if reading.tags_in_all > reading.tags.len() {
        return false;
    }
    let Some(at) = reading.ether_type_at.filter(|&at| at == reading.type_at) else { return true };
    let mut entry: [u8; 4] = match (reading.labels.first(), reading.ip) {
        (Some(&label), _) => frame[label..label + 4].try_into().unwrap(),
        (None, Some(ip)) => [0, 0, 1, frame[ip.at + if ip.v6 { 7 } else { 8 }]],
        (None, None) => [0, 0, 1, 64],
    };
    if !reading.labels.is_empty() {
        entry[2] &= !1; // It is not the bottom of the stack.
    }
    frame[at..at + 2].copy_from_slice(&ether_type.to_be_bytes());
    frame.splice(at + 2..at + 2, entry);
    true
}

/// OpenFlow 1.3.5 §5.12: the outermost entry goes, and the EtherType is the one given. The length of an 802.3 frame
/// (IEEE 802.3 §3.2.6) is that of the remaining bytes.
pub(super) fn pop_mpls(frame: &mut Vec<u8>, reading: &Reading, ether_type: u16) {
    let (Some(&label), Some(at)) = (reading.labels.first(), reading.ether_type_at) else { return };
    frame.drain(label..label + 4);
    frame[at..at + 2].copy_from_slice(&ether_type.to_be_bytes());
    if at != reading.type_at {
        let length = &mut frame[reading.type_at..reading.type_at + 2];
        let shorter = u16::from_be_bytes([length[0], length[1]]).saturating_sub(4);
        length.copy_from_slice(&shorter.to_be_bytes());
    }
}

/// By how much a packet's checksums are wrong. A switch that changes a packet keeps that (RFC 1624 §1), so that no receiver
/// takes a corrupted packet for a sound one.
struct Errors {
    /// The IPv4 header.
    ip: Option<Vec<u8>>,
    /// The range of the transport checksum, and its offset.
    transport: Option<(Vec<u8>, usize)>,
    /// The packet, where it is SCTP.
    sctp: Option<Vec<u8>>,
}

impl Errors {
    fn of(frame: &[u8], reading: &Reading) -> Self {
        let sctp = reading.transport == Some(Transport::Sctp);
        Self {
            ip: reading.ip.filter(|ip| !ip.v6).map(|ip| v4_header(frame, ip)),
            transport: checksum_at(frame, reading).map(|at| (transport_covered(frame, reading), at)),
            sctp: reading.ip.filter(|_| sctp).map(|ip| frame[ip.header_end..ip.end].to_vec()),
        }
    }

    /// Sets the checksums of what has changed so that the sums are what they were.
    fn restore(&self, frame: &mut [u8], reading: &Reading) {
        let Some(ip) = reading.ip else { return };
        if let Some(before) = &self.ip {
            restore(frame, ip.at + 10, before, |frame| v4_header(frame, ip));
        }
        if let Some((before, at)) = &self.transport {
            restore(frame, *at, before, |frame| transport_covered(frame, reading));
            // RFC 768, RFC 3828 §3.1: 0 means none, so that a checksum of 0 is sent as all ones.
            let udp = matches!(reading.transport, Some(Transport::Udp | Transport::UdpLite));
            if udp && frame[*at..at + 2] == [0, 0] {
                frame[*at..at + 2].fill(0xff);
            }
        }
        if let Some(before) = &self.sctp {
            let segment = &mut frame[ip.header_end..ip.end];
            let crc = sctp_crc(segment) ^ sctp_crc(before);
            (8..12).zip(crc.to_le_bytes()).for_each(|(at, change)| segment[at] ^= change);
        }
    }
}

/// The CRC32c that an SCTP packet should have (RFC 9260 §6.8, appendix A: its bytes leave the register low end first).
fn sctp_crc(packet: &[u8]) -> u32 {
    let mut packet = packet.to_vec();
    packet[8..12].fill(0);
    crc32c(&packet)
}

/// Sets the checksum at `at` to what makes the sum of what it covers that of `before` again, in ones' complement.
fn restore(frame: &mut [u8], at: usize, before: &[u8], covered: impl Fn(&[u8]) -> Vec<u8>) {
    if covered(frame) == before {
        return;
    }
    frame[at..at + 2].fill(0);
    let (before, others) = (u32::from(sum(&[before])), u32::from(sum(&[&covered(frame)])));
    let new = (before + 0xffff - others) % 0xffff;
    frame[at..at + 2].copy_from_slice(&(new as u16).to_be_bytes());
}

fn v4_header(frame: &[u8], ip: Ip) -> Vec<u8> {
    frame[ip.at..ip.at + usize::from(frame[ip.at] & 15) * 4].to_vec()
}

/// Where the transport checksum lies that is a sum.
fn checksum_at(frame: &[u8], reading: &Reading) -> Option<usize> {
    let start = reading.ip?.header_end;
    match reading.transport? {
        Transport::Tcp => Some(start + 16),
        // RFC 768: a checksum of 0 says that there is none.
        Transport::Udp | Transport::UdpLite => Some(start + 6).filter(|&at| frame[at..at + 2] != [0, 0]),
        Transport::Icmp | Transport::Icmp6 => Some(start + 2),
        Transport::Sctp => None,
    }
}

/// The range of the transport checksum. Of the pseudo header (RFC 768, RFC 8200 §8.1) only the addresses
/// can change.
fn transport_covered(frame: &[u8], reading: &Reading) -> Vec<u8> {
    let ip = reading.ip.expect("there is a transport header");
    let (src, dst) = if ip.v6 { (8..24, 24..40) } else { (12..16, 16..20) };
    let address = |range: std::ops::Range<usize>| &frame[ip.at + range.start..ip.at + range.end];
    let (mut src, mut dst) = (address(src), address(dst));
    if ip.segments_left {
        dst = &[]; // The last address of the Routing header is there.
    }
    if reading.transport == Some(Transport::Icmp) {
        (src, dst) = (&[], &[]);
    }
    let mut segment = &frame[ip.header_end..ip.end];
    if reading.transport == Some(Transport::UdpLite) {
        // RFC 3828 §3.1: the first bytes only, 0 standing for all.
        let coverage = usize::from(u16::from_be_bytes([segment[4], segment[5]]));
        if coverage != 0 {
            segment = &segment[..coverage.clamp(8, segment.len())];
        }
    }
    [src, dst, segment].concat()
}

/// Lowers a TTL by one. Says whether the packet may go on: one whose TTL is 0 or 1 may not.
pub(super) fn decrement(frame: &mut Vec<u8>, reading: &Reading, field: Field) -> bool {
    match get(frame, reading, field) {
        Some(0 | 1) => false,
        Some(ttl) => {
            set(frame, reading, field, ttl - 1, 0xff);
            true
        }
        None => true,
    }
}
