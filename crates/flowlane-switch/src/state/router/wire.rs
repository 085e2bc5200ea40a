//! Frames that a router makes itself: Ethernet, IPv4 (RFC 791), IPv6 (RFC 8200) and their checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane::packet::parse::{ether_type, ip_proto};

use crate::packet::edit::checksum::{fold, sum};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// The address of all stations.
pub(super) const BROADCAST: Mac = [0xff; 6];

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;

/// TTL of the packets that a router sends (RFC 1700: 64).
const TTL: u8 = 64;

/// Returns an address as text.
pub fn text_of(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns whether an address is of one station.
pub(super) fn is_unicast_mac(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// Returns whether an address may be the source of a packet that is to be answered.
pub fn is_host(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_loopback() && !is_group(address)
}

/// Returns whether an address is of several hosts.
pub(super) fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_multicast() || address.octets()[0] >= 240,
        IpAddr::V6(address) => address.is_multicast(),
    }
}

/// The Ethernet address of a group of IPv6 (RFC 2464, section 7).
pub(super) fn mac_of_group(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// The group that a neighbour with an address listens to (RFC 4291, section 2.7.1).
pub(super) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The link-local address that an Ethernet address makes (RFC 4291, appendix A).
pub fn link_local_of(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The two ends of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) source: Mac,
    pub(super) destination: Mac,
}

/// A frame with this content.
pub(super) fn ethernet(ends: Ends, eth_type: u16, content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET + content.len());
    frame.extend_from_slice(&ends.destination);
    frame.extend_from_slice(&ends.source);
    frame.extend_from_slice(&eth_type.to_be_bytes());
    frame.extend_from_slice(content);
    frame
}

/// An ICMP message over IPv4 in a frame. The message's checksum is computed here.
pub(super) fn icmpv4(ends: Ends, source: Ipv4Addr, destination: Ipv4Addr, mut message: Vec<u8>) -> Vec<u8> {
    message[2..4].fill(0);
    let checksum = !fold(sum(&message));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&(20 + message.len() as u16).to_be_bytes());
    // No identification, for a datagram that is never a fragment (RFC 6864, section 4.1).
    packet.extend_from_slice(&[0, 0, 0x40, 0, TTL, ip_proto::ICMP, 0, 0]);
    packet.extend_from_slice(&source.octets());
    packet.extend_from_slice(&destination.octets());
    let checksum = !fold(sum(&packet));
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend_from_slice(&message);
    ethernet(ends, ether_type::IPV4, &packet)
}

/// An ICMPv6 message in a frame. The message's checksum is computed here.
pub(super) fn icmpv6(
    ends: Ends,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hop_limit: u8,
    mut message: Vec<u8>,
) -> Vec<u8> {
    message[2..4].fill(0);
    let checksum = !fold(icmpv6_sum(source, destination, &message));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend_from_slice(&(message.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[ip_proto::ICMPV6, hop_limit]);
    packet.extend_from_slice(&source.octets());
    packet.extend_from_slice(&destination.octets());
    packet.extend_from_slice(&message);
    ethernet(ends, ether_type::IPV6, &packet)
}

/// The sum of an ICMPv6 message with its pseudo header (RFC 8200, section 8.1); folded, all ones if the checksum is right.
pub(super) fn icmpv6_sum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u32 {
    let pseudo = sum(&source.octets()) + sum(&destination.octets());
    pseudo + message.len() as u32 + u32::from(ip_proto::ICMPV6) + sum(message)
}

/// Returns whether a sum that covers its checksum says that the checksum is right.
pub(super) fn fold_is_right(sum: u32) -> bool {
    fold(sum) == 0xffff
}

/// A message over ICMPv6 between two hosts that answer as routers do: the default hop limit.
pub(super) fn icmpv6_default(
    ends: Ends,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    message: Vec<u8>,
) -> Vec<u8> {
    icmpv6(ends, source, destination, TTL, message)
}
