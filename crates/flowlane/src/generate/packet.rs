//! The frame that a flow key describes.
//!
//! [`build_frame`] is the parser's inverse for *consistent* keys: those in which every field that is not
//! zero is one that a packet with the key's other fields has. Of other keys it takes what fits: the EtherType
//! decides on the network header, the protocol on the transport header, and fields for which there is no
//! header are left out. Metadata and tunnel fields are not in a frame.
//!
//! ```text
//! Ethernet │ 802.1Q/ad ×0..2 │ MPLS ×0..4 │ ARP
//!                                         │ IPv4 or IPv6 (+ fragment header) │ TCP UDP SCTP ICMP ICMPv6 │ payload
//! ```
//! The payload is zeros. IP packets fill the frame; the rest of the frame after ARP, labels and other EtherTypes is
//! padding. Lengths and checksums are right; those of a first fragment cover what the fragment holds.

use super::checksum::{add, crc32c, fold};
use crate::packet::fields::{
    FRAG_ANY, FRAG_LATER, Field, ND_SLL_PRESENT, ND_TLL_PRESENT, VLAN_PRESENT, word,
};
use crate::packet::key::FlowKey;

/// The shortest frame on an Ethernet, without its frame check sequence.
pub const FRAME_MIN: usize = 60;

/// The longest that [`build_frame`] makes: what an IP length field can say, with room for the headers.
pub const FRAME_MAX: usize = 65_535;

/// Replaces the content of `out` with the frame that `key` describes: `frame_bytes` long without
/// frame check sequence (at most [`FRAME_MAX`]), or longer where its headers need more.
pub fn build_frame(key: &FlowKey, frame_bytes: usize, out: &mut Vec<u8>) {
    let frame_bytes = frame_bytes.min(FRAME_MAX);
    out.clear();
    out.extend(&bytes::<6>(key, Field::EthDst));
    out.extend(&bytes::<6>(key, Field::EthSrc));
    push_tags(key, out);
    let eth_type = key.get(Field::EthType) as u16;
    // Below 1536 the field is an 802.3 length, not a type.
    let length = frame_bytes.saturating_sub(out.len() + 2).clamp(46, 1500) as u16;
    out.extend(if eth_type < 0x0600 { length } else { eth_type }.to_be_bytes());
    match eth_type {
        0x8847 | 0x8848 => push_labels(key, out),
        0x0806 | 0x8035 => push_arp(key, out),
        0x0800 => push_ipv4(key, frame_bytes, out),
        0x86dd => push_ipv6(key, frame_bytes, out),
        _ => {}
    }
    let len = out.len().max(frame_bytes);
    out.resize(len, 0);
}

/// A field as on the wire, from its most significant byte.
fn bytes<const N: usize>(key: &FlowKey, field: Field) -> [u8; N] {
    let all = key.get(field).to_be_bytes();
    std::array::from_fn(|i| all[16 - N + i])
}

fn push_tags(key: &FlowKey, out: &mut Vec<u8>) {
    let (outer, inner) = (key.get(Field::VlanTci) as u16, key.get(Field::VlanTci1) as u16);
    if outer & VLAN_PRESENT == 0 {
        return;
    }
    let tpid = match key.get(Field::VlanTpid) as u16 {
        0 if inner & VLAN_PRESENT != 0 => 0x88a8,
        0 => 0x8100,
        tpid => tpid,
    };
    out.extend(tpid.to_be_bytes());
    out.extend((outer & !VLAN_PRESENT).to_be_bytes());
    if inner & VLAN_PRESENT != 0 {
        out.extend(0x8100u16.to_be_bytes());
        out.extend((inner & !VLAN_PRESENT).to_be_bytes());
    }
}

/// The key's labels up to the bottom of the stack. Where none of the three is the bottom, a fourth is.
fn push_labels(key: &FlowKey, out: &mut Vec<u8>) {
    const BOTTOM: u32 = 0x100;
    for i in 0..3 {
        let entry = key.word(word::MPLS + i);
        out.extend(entry.to_be_bytes());
        if entry & BOTTOM != 0 {
            return;
        }
    }
    out.extend(BOTTOM.to_be_bytes());
}

fn push_arp(key: &FlowKey, out: &mut Vec<u8>) {
    out.extend([0, 1, 0x08, 0, 6, 4]);
    out.extend(bytes::<2>(key, Field::ArpOp));
    out.extend(bytes::<6>(key, Field::ArpSha));
    out.extend(bytes::<4>(key, Field::ArpSpa));
    out.extend(bytes::<6>(key, Field::ArpTha));
    out.extend(bytes::<4>(key, Field::ArpTpa));
}

/// The part of a packet that a frame carries.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Whole,
    First,
    Later,
}

impl Part {
    fn of(key: &FlowKey) -> Part {
        match key.get(Field::IpFrag) as u8 {
            f if f & FRAG_LATER != 0 => Part::Later,
            f if f & FRAG_ANY != 0 => Part::First,
            _ => Part::Whole,
        }
    }

    /// Offset in units of 8 bytes: a later fragment follows 1480 bytes.
    fn offset(self) -> u16 {
        if self == Part::Later { 185 } else { 0 }
    }
}

/// DSCP and ECN, as IPv4 and IPv6 have them (RFC 3168 §5).
fn traffic_class(key: &FlowKey) -> u8 {
    (key.get(Field::IpDscp) << 2 | key.get(Field::IpEcn)) as u8
}

fn push_ipv4(key: &FlowKey, frame_bytes: usize, out: &mut Vec<u8>) {
    let start = out.len();
    let part = Part::of(key);
    let flags = if part == Part::First { 0x2000 } else { part.offset() };
    out.extend([0x45, traffic_class(key), 0, 0, 0, 0]);
    out.extend(flags.to_be_bytes());
    out.extend([key.get(Field::NwTtl) as u8, key.get(Field::NwProto) as u8, 0, 0]);
    out.extend(bytes::<4>(key, Field::Ipv4Src));
    out.extend(bytes::<4>(key, Field::Ipv4Dst));
    let pseudo = add(0, &out[start + 12..start + 20]);
    let len = push_transport(key, part, pseudo, frame_bytes, out);
    let total = (20 + len) as u16;
    out[start + 2..start + 4].copy_from_slice(&total.to_be_bytes());
    let checksum = fold(add(0, &out[start..start + 20]));
    out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
}

fn push_ipv6(key: &FlowKey, frame_bytes: usize, out: &mut Vec<u8>) {
    const FRAGMENT: u8 = 44;
    let start = out.len();
    let part = Part::of(key);
    let protocol = key.get(Field::NwProto) as u8;
    let (class, label) = (u32::from(traffic_class(key)), key.get(Field::Ipv6Label) as u32);
    out.extend((6 << 28 | class << 20 | label).to_be_bytes());
    out.extend([0, 0, if part == Part::Whole { protocol } else { FRAGMENT }, key.get(Field::NwTtl) as u8]);
    out.extend(bytes::<16>(key, Field::Ipv6Src));
    out.extend(bytes::<16>(key, Field::Ipv6Dst));
    let pseudo = add(0, &out[start + 8..start + 40]);
    if part != Part::Whole {
        // The key of a later fragment does not say what it is a part of: of a UDP datagram.
        out.extend([if part == Part::Later && protocol == FRAGMENT { 17 } else { protocol }, 0]);
        out.extend((part.offset() << 3 | u16::from(part == Part::First)).to_be_bytes());
        out.extend(1u32.to_be_bytes());
    }
    let extension = out.len() - start - 40;
    let len = (extension + push_transport(key, part, pseudo, frame_bytes, out)) as u16;
    out[start + 4..start + 6].copy_from_slice(&len.to_be_bytes());
}

/// Writes the transport header and a payload that fills the frame. `pseudo` is the sum of the addresses.
/// Returns the length of both.
fn push_transport(key: &FlowKey, part: Part, pseudo: u32, frame_bytes: usize, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    let protocol = key.get(Field::NwProto) as u8;
    let ipv6 = key.get(Field::EthType) == 0x86dd;
    // Offset of the checksum from the start.
    let checksum_at = match protocol {
        _ if part == Part::Later => None,
        6 => Some(push_tcp(key, out)),
        17 => {
            out.extend(key.word(word::PORTS).to_be_bytes());
            out.extend([0; 4]);
            Some(6)
        }
        132 => {
            out.extend(key.word(word::PORTS).to_be_bytes());
            out.extend([0; 8]);
            Some(8)
        }
        1 if !ipv6 => Some(push_icmp(key, out)),
        58 if ipv6 => Some(push_icmpv6(key, out)),
        _ => None,
    };
    let header = out.len() - start;
    let fill = match part {
        // All fragments but the last are a multiple of eight bytes.
        Part::First => (frame_bytes.saturating_sub(start) & !7).max(header.next_multiple_of(8)) - header,
        // Zeros would be options of length 0.
        Part::Whole if ipv6 && protocol == 58 && is_neighbour_discovery(key) => 0,
        _ => frame_bytes.saturating_sub(out.len()),
    };
    if protocol == 132 && checksum_at.is_some() {
        push_sctp_padding(fill, out);
    } else {
        out.resize(out.len() + fill, 0);
    }
    let len = out.len() - start;
    if let Some(at) = checksum_at {
        fill_checksum(&mut out[start..], protocol, pseudo, at);
    }
    len
}

/// Length and checksum of a transport header that is otherwise complete.
fn fill_checksum(segment: &mut [u8], protocol: u8, pseudo: u32, at: usize) {
    let len = segment.len() as u32;
    if protocol == 132 {
        let crc = crc32c(segment);
        segment[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        return;
    }
    if protocol == 17 {
        segment[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    }
    // ICMP over IPv4 has no pseudo header.
    let seed = if protocol == 1 { 0 } else { pseudo + u32::from(protocol) + len };
    let checksum = match fold(add(seed, segment)) {
        0 if protocol == 17 => 0xffff, // 0 says that there is none
        checksum => checksum,
    };
    segment[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn push_tcp(key: &FlowKey, out: &mut Vec<u8>) -> usize {
    out.extend(key.word(word::PORTS).to_be_bytes());
    out.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    out.extend((0x5000 | key.get(Field::TcpFlags) as u16).to_be_bytes());
    out.extend([0xff, 0xff, 0, 0, 0, 0]);
    16
}

fn push_icmp(key: &FlowKey, out: &mut Vec<u8>) -> usize {
    out.extend([key.get(Field::IcmpType) as u8, key.get(Field::IcmpCode) as u8, 0, 0, 0, 0, 0, 0]);
    2
}

fn is_neighbour_discovery(key: &FlowKey) -> bool {
    matches!(key.get(Field::IcmpType), 135 | 136) && key.get(Field::IcmpCode) == 0
}

/// With the flags, the target and the options of a neighbour solicitation or advertisement.
fn push_icmpv6(key: &FlowKey, out: &mut Vec<u8>) -> usize {
    push_icmp(key, out);
    if is_neighbour_discovery(key) {
        let reserved = out.len() - 4;
        out[reserved..].copy_from_slice(&bytes::<4>(key, Field::NdReserved));
        out.extend(bytes::<16>(key, Field::NdTarget));
        let present = key.get(Field::NdOptions) as u8;
        let first = key.get(Field::NdOptionsType) as u8;
        let mut options = [(1, Field::NdSll, ND_SLL_PRESENT), (2, Field::NdTll, ND_TLL_PRESENT)];
        if first == 2 {
            options.reverse();
        }
        for (option, field, bit) in options {
            // A key made by hand need not say that a non-zero address is present.
            if key.get(field) != 0 || present & bit != 0 || option == first {
                out.extend([option, 1]);
                out.extend(bytes::<6>(key, field));
            }
        }
    }
    2
}

/// One PAD chunk (RFC 4820) of `bytes`, rounded down to a multiple of four: the rest is the frame's.
fn push_sctp_padding(bytes: usize, out: &mut Vec<u8>) {
    let len = bytes & !3;
    if len == 0 {
        return;
    }
    out.extend([0x84, 0]);
    out.extend((len as u16).to_be_bytes());
    out.resize(out.len() + len - 4, 0);
}
