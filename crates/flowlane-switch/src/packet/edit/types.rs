//! Headers that change the type of a packet: Ethernet, NSH (RFC 8300) and MPLS put around it or taken off.
//!
//! A packet without an Ethernet header keeps the place of one, with addresses of zeros, in front: see [`Frame::is_bare`]. So
//! `encap(ethernet)` and `decap` of Ethernet move no byte of most packets.

use flowlane::packet::parse::ether_type;
use flowlane::packet::{Headers, Network};
use flowlane::rule::action::EncapsulateHeader;

use super::{pop_mpls, push_mpls};
use crate::packet::Frame;
use crate::packet::frame::ETHERNET_BYTES;

/// Next protocols of NSH (RFC 8300 §2.2), and the EtherTypes of packets of that type without an Ethernet header.
const NEXT_PROTOCOLS: [(u8, u16); 3] = [(1, ether_type::IPV4), (2, ether_type::IPV6), (4, ether_type::NSH)];

/// The next protocol of NSH in front of an Ethernet frame.
const NEXT_ETHERNET: u8 = 3;

/// Bytes of NSH without metadata.
const NSH_BYTES: usize = 8;

/// The most bytes of NSH: its length has six bits, and counts words.
pub(crate) const NSH_BYTES_MAX: usize = 63 * 4;

/// Puts a header around a packet. Returns whether the packet's type allows that: Ethernet goes around packets without it, and NSH
/// around Ethernet, IP and NSH. As in Open vSwitch, the packet has no Ethernet header afterwards unless that is what it gets.
pub fn encapsulate(frame: &mut Frame, headers: &mut Headers, header: &EncapsulateHeader) -> bool {
    match *header {
        EncapsulateHeader::Ethernet if frame.is_bare() => {
            frame.set_bare(false);
            true
        }
        EncapsulateHeader::Ethernet => false,
        EncapsulateHeader::Mpls => push_label(frame, headers, ether_type::MPLS),
        EncapsulateHeader::MplsMulticast => push_label(frame, headers, ether_type::MPLS_MULTICAST),
        EncapsulateHeader::Nsh { metadata_type, ref tlvs } => push_nsh(frame, metadata_type, tlvs),
    }
}

/// Takes off a packet's outermost header. Returns whether the packet's type allows that: VLAN tags are in the way of Ethernet, and
/// a label's header does not say the type of the packet behind it, so the rule must, by the type `to`.
pub fn decapsulate(frame: &mut Frame, headers: &mut Headers, to: Option<(u16, u16)>) -> bool {
    if !frame.is_bare() {
        return pop_ethernet(frame, headers);
    }
    match (outer_type(frame), to) {
        (Some(ether_type::NSH), _) if headers.network == Network::Nsh => pop_nsh(frame, headers),
        (Some(ether_type::MPLS | ether_type::MPLS_MULTICAST), Some((1, eth_type))) => {
            pop_mpls(frame, headers, eth_type)
        }
        (Some(ether_type::MPLS | ether_type::MPLS_MULTICAST), Some((0, 0))) if headers.mpls_labels > 0 => {
            frame.pull(ETHERNET_BYTES + 4);
            frame.set_bare(false);
            true
        }
        _ => false,
    }
}

/// The EtherType of a packet whose Ethernet header is not there.
fn outer_type(frame: &Frame) -> Option<u16> {
    let bytes = frame.bytes().get(ETHERNET_BYTES - 2..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// Puts the place of an Ethernet header in front of a packet, with the EtherType of what follows.
fn write_placeholder(frame: &mut Frame, eth_type: u16) {
    let bytes = frame.bytes_mut();
    bytes[..ETHERNET_BYTES - 2].fill(0);
    bytes[ETHERNET_BYTES - 2..ETHERNET_BYTES].copy_from_slice(&eth_type.to_be_bytes());
    frame.set_bare(true);
}

fn pop_ethernet(frame: &mut Frame, headers: &Headers) -> bool {
    let type_at = headers.eth_type_at();
    let found = frame.bytes().get(type_at..).and_then(|bytes| bytes.first_chunk());
    let Some(eth_type) = found.map(|bytes| u16::from_be_bytes(*bytes)).filter(|_| headers.vlan_tags == 0)
    else {
        return false;
    };
    frame.pull(type_at + 2 - ETHERNET_BYTES);
    write_placeholder(frame, eth_type);
    true
}

fn push_label(frame: &mut Frame, headers: &mut Headers, eth_type: u16) -> bool {
    if frame.is_bare() && headers.mpls_labels > 0 {
        return push_mpls(frame, headers, eth_type);
    }
    frame.push(if frame.is_bare() { 4 } else { ETHERNET_BYTES + 4 });
    write_placeholder(frame, eth_type);
    // Label 0, the bottom of the stack, TTL 64. A frame behind it is opaque, whatever labels it has.
    frame.bytes_mut()[ETHERNET_BYTES..][..4].copy_from_slice(&[0, 0, 1, 64]);
    true
}

fn push_nsh(frame: &mut Frame, metadata_type: u8, tlvs: &[(u16, u8, Vec<u8>)]) -> bool {
    let of_type = |eth_type| NEXT_PROTOCOLS.iter().find(|(_, of)| *of == eth_type).map(|(next, _)| *next);
    let next = match frame.is_bare() {
        false => Some(NEXT_ETHERNET),
        true => outer_type(frame).and_then(of_type),
    };
    let Some(next) = next else { return false };
    let len = nsh_bytes_of(metadata_type, tlvs);
    if len > NSH_BYTES_MAX {
        return false;
    }
    let mut metadata = Vec::new();
    for (class, kind, value) in tlvs {
        metadata.extend([&class.to_be_bytes()[..], &[*kind, value.len() as u8], value].concat());
        metadata.resize(metadata.len().next_multiple_of(4), 0);
    }
    let is_fixed = metadata_type != 2;
    if is_fixed {
        metadata = vec![0; 16];
    }
    // Version 0, no flags, TTL 63 (RFC 8300 §2.2: the default).
    let first = 63 << 22 | (len as u32 / 4) << 16 | if is_fixed { 1 << 8 } else { 2 << 8 } | u32::from(next);
    frame.push(if frame.is_bare() { len } else { ETHERNET_BYTES + len });
    write_placeholder(frame, ether_type::NSH);
    let nsh = &mut frame.bytes_mut()[ETHERNET_BYTES..][..len];
    nsh[..4].copy_from_slice(&first.to_be_bytes());
    // No service path yet, and the first service index (RFC 8300 §2.3).
    nsh[4..NSH_BYTES].copy_from_slice(&255_u32.to_be_bytes());
    nsh[NSH_BYTES..].copy_from_slice(&metadata);
    true
}

/// Bytes of NSH where a header is that.
pub(crate) fn nsh_bytes(header: &EncapsulateHeader) -> usize {
    match header {
        EncapsulateHeader::Nsh { metadata_type, tlvs } => nsh_bytes_of(*metadata_type, tlvs),
        EncapsulateHeader::Ethernet | EncapsulateHeader::Mpls | EncapsulateHeader::MplsMulticast => 0,
    }
}

fn nsh_bytes_of(metadata_type: u8, tlvs: &[(u16, u8, Vec<u8>)]) -> usize {
    let of_tlv = |(_, _, value): &(u16, u8, Vec<u8>)| (4 + value.len()).next_multiple_of(4);
    let metadata = if metadata_type == 2 { tlvs.iter().map(of_tlv).sum() } else { 16 };
    NSH_BYTES + metadata
}

fn pop_nsh(frame: &mut Frame, headers: &Headers) -> bool {
    let at = usize::from(headers.l3);
    let Some(&[_, length, _, next]) = frame.bytes().get(at..).and_then(|bytes| bytes.first_chunk()) else {
        return false;
    };
    let end = at + usize::from(length & 0x3f) * 4;
    if end > frame.len() {
        return false;
    }
    if next == NEXT_ETHERNET {
        frame.pull(end);
        frame.set_bare(false);
        return true;
    }
    let Some((_, eth_type)) = NEXT_PROTOCOLS.iter().find(|(protocol, _)| *protocol == next) else {
        return false;
    };
    frame.pull(end - ETHERNET_BYTES);
    write_placeholder(frame, *eth_type);
    true
}
