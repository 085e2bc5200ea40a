//! Adding and removing headers. The offsets in [`Headers`] follow.

use flowlane::packet::parse::ether_type;
use flowlane::packet::{Headers, Network, Transport};

use crate::packet::Frame;

/// The length of two MAC addresses.
const MACS: usize = 12;

/// Adds an outermost VLAN tag with VID 0 and priority 0 (IEEE 802.1Q §9). Says whether there was a frame to
/// add it to.
#[inline]
pub fn push_vlan(frame: &mut Frame, headers: &mut Headers, tpid: u16) -> bool {
    if frame.len() < MACS + 2 || frame.is_bare() {
        return false;
    }
    frame.push(4);
    let bytes = frame.bytes_mut();
    bytes.copy_within(4..4 + MACS, 0);
    bytes[MACS..MACS + 2].copy_from_slice(&tpid.to_be_bytes());
    bytes[MACS + 2..MACS + 4].fill(0);
    headers.vlan_tags += 1;
    shift(headers, 4);
    true
}

/// Removes the outermost VLAN tag. Says whether there was one.
#[inline]
pub fn pop_vlan(frame: &mut Frame, headers: &mut Headers) -> bool {
    if headers.vlan_tags == 0 || frame.len() < MACS + 4 {
        return false;
    }
    frame.bytes_mut().copy_within(0..MACS, 4);
    frame.pull(4);
    headers.vlan_tags -= 1;
    shift(headers, -4);
    true
}

/// Adds a label stack entry (RFC 3032) and sets the EtherType. As OpenFlow 1.3 §5.12.1 has it, the label,
/// traffic class and TTL are those of the entry before it; else the TTL is the IP header's, or 64 where
/// there is none, and the rest 0. Says whether that was done: to an 802.3 frame, with SNAP or without, it is not.
pub fn push_mpls(frame: &mut Frame, headers: &mut Headers, eth_type: u16) -> bool {
    let (type_at, at) = (headers.eth_type_at(), headers.mpls_at());
    if type_or_length(frame, headers).is_none_or(|old| old < ether_type::MIN) {
        return false;
    }
    let byte = |at: usize| frame.bytes().get(at).copied();
    let entry = if headers.mpls_labels > 0 {
        let Some(&[a, b, c, ttl]) = frame.bytes().get(at..).and_then(|b| b.first_chunk::<4>()) else {
            return false;
        };
        [a, b, c & !1, ttl]
    } else {
        let l3 = usize::from(headers.l3);
        let ttl = match headers.network {
            Network::Ipv4 => byte(l3 + 8),
            Network::Ipv6 => byte(l3 + 7),
            _ => None,
        };
        [0, 0, 1, ttl.unwrap_or(64)]
    };
    frame.push(4);
    let bytes = frame.bytes_mut();
    bytes.copy_within(4..4 + at, 0);
    bytes[type_at..at].copy_from_slice(&eth_type.to_be_bytes());
    bytes[at..at + 4].copy_from_slice(&entry);
    headers.mpls_labels = (headers.mpls_labels + 1).min(3);
    behind_labels(headers);
    true
}

/// Removes the outermost label stack entry and sets the EtherType, that of SNAP in an 802.3 frame, which says that it is
/// shorter. Says whether there was one.
pub fn pop_mpls(frame: &mut Frame, headers: &mut Headers, eth_type: u16) -> bool {
    let (type_at, at) = (headers.eth_type_at(), headers.mpls_at());
    if headers.mpls_labels == 0 || frame.len() < at + 4 {
        return false;
    }
    let length = type_or_length(frame, headers).filter(|_| headers.snap);
    let bytes = frame.bytes_mut();
    if let Some(length) = length {
        let length_at = headers.type_or_length_at();
        bytes[length_at..length_at + 2].copy_from_slice(&length.saturating_sub(4).to_be_bytes());
    }
    bytes[type_at..at].copy_from_slice(&eth_type.to_be_bytes());
    bytes.copy_within(0..at, 4);
    frame.pull(4);
    headers.mpls_labels -= 1;
    behind_labels(headers);
    true
}

/// The EtherType, or the length of an 802.3 frame, behind the VLAN tags.
fn type_or_length(frame: &Frame, headers: &Headers) -> Option<u16> {
    let bytes = frame.bytes().get(headers.type_or_length_at()..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// The headers behind labels are unknown until the packet is parsed again.
fn behind_labels(headers: &mut Headers) {
    headers.network = Network::None;
    headers.transport = Transport::None;
    headers.fragment = 0;
    headers.l3 = (headers.mpls_at() + 4 * usize::from(headers.mpls_labels)) as u16;
    (headers.l4, headers.payload) = (0, 0);
}

fn shift(headers: &mut Headers, by: i16) {
    for offset in [&mut headers.l3, &mut headers.l4, &mut headers.payload] {
        *offset = offset.saturating_add_signed(by);
    }
}
