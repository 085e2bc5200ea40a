//! Control packets in UDP, IPv4 and Ethernet (RFC 5881).

use std::net::Ipv4Addr;

use super::packet::BYTES;
use super::{ControlPacket, Refused, Settings};
use crate::packet::edit::checksum::{fold, sum};

/// The UDP port of control packets.
pub const PORT: u16 = 3784;
/// The longest frame with a control packet: two tags, options of IPv4, and authentication.
pub const FRAME_MAX: usize = 14 + 8 + 60 + 8 + 255;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const TTL: u8 = 255;
/// Internetwork control, as Open vSwitch sends it.
const TOS: u8 = 0xc0;
const PROTOCOL_UDP: u8 = 17;

/// Which control packets are for the session of a port; others go the way of all packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// The Ethernet address that they are for; none: any.
    pub mac: Option<[u8; 6]>,
    /// The address that they are for; none: any.
    pub ip: Option<Ipv4Addr>,
}

/// A datagram in a frame, whose lengths have not been checked but for the bytes of its headers.
struct Datagram<'a> {
    mac: &'a [u8],
    /// IPv4 and all behind.
    packet: &'a [u8],
    ip_len: usize,
    udp: &'a [u8; UDP],
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Finds a datagram that is whole, not a fragment, and for the port of control packets.
fn datagram(frame: &[u8]) -> Option<Datagram<'_>> {
    let mut at = ETHERNET - 2;
    for _ in 0..2 {
        // A priority tag, or tags of VLANs.
        if matches!(u16_at(frame, at)?, 0x8100 | 0x88a8) {
            at += 4;
        }
    }
    let packet = (u16_at(frame, at)? == 0x0800).then(|| frame.get(at + 2..)).flatten()?;
    let ip_len = usize::from(packet.first()? & 0xf) * 4;
    // More fragments, and the offset.
    let is_fragment = u16_at(packet, 6)? & 0x3fff != 0;
    if packet[0] >> 4 != 4 || ip_len < IPV4 || *packet.get(9)? != PROTOCOL_UDP || is_fragment {
        return None;
    }
    let udp = packet.get(ip_len..)?.first_chunk()?;
    (u16_at(udp, 2)? == PORT).then_some(Datagram { mac: &frame[..6], packet, ip_len, udp })
}

/// Returns whether a frame is a control packet for a session, sound or not.
pub fn is_control(frame: &[u8], filter: &Filter) -> bool {
    datagram(frame).is_some_and(|found| {
        filter.mac.is_none_or(|mac| found.mac == mac)
            && filter.ip.is_none_or(|ip| found.packet[16..20] == ip.octets())
    })
}

/// Reads the control packet of a frame. `is_complete`: checksums have been completed, not left to a device.
///
/// # Errors
/// Why it is to be discarded.
pub fn read(frame: &[u8], is_complete: bool) -> Result<ControlPacket, Refused> {
    let Datagram { packet, ip_len, udp, .. } = datagram(frame).ok_or(Refused::NotControl)?;
    let total = usize::from(u16_at(packet, 2).ok_or(Refused::Length)?);
    // Ethernet may have padded it.
    let packet = packet.get(..total).ok_or(Refused::Length)?;
    let udp_len = usize::from(u16_at(udp, 4).ok_or(Refused::Length)?);
    let behind = packet.get(ip_len..).ok_or(Refused::Length)?;
    let datagram = behind.get(..udp_len).ok_or(Refused::Length)?;
    let payload = datagram.get(UDP..).ok_or(Refused::Length)?;
    if fold(sum(&packet[..ip_len])) != 0xffff {
        return Err(Refused::Checksum);
    }
    if is_complete && udp[6..] != [0, 0] {
        let pseudo = sum(&packet[12..20]) + u32::from(PROTOCOL_UDP) + udp_len as u32;
        if fold(pseudo + sum(datagram)) != 0xffff {
            return Err(Refused::Checksum);
        }
    }
    match packet[8] {
        TTL => ControlPacket::read(payload),
        other => Err(Refused::Ttl(other)),
    }
}

/// Writes a frame with a control packet.
pub(super) fn write(settings: &Settings, packet: &ControlPacket) -> Vec<u8> {
    let mut out = Vec::with_capacity(ETHERNET + IPV4 + UDP + BYTES);
    out.extend(settings.destination_mac);
    out.extend(settings.source_mac);
    out.extend([0x08, 0x00, 0x45, TOS]);
    out.extend(((IPV4 + UDP + BYTES) as u16).to_be_bytes());
    out.extend([0, 0, 0, 0, TTL, PROTOCOL_UDP, 0, 0]);
    out.extend(settings.source_ip.octets());
    out.extend(settings.destination_ip.octets());
    let checksum = !fold(sum(&out[ETHERNET..]));
    out[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&checksum.to_be_bytes());
    out.extend(settings.source_port.to_be_bytes());
    out.extend(PORT.to_be_bytes());
    out.extend(((UDP + BYTES) as u16).to_be_bytes());
    // UDP without a checksum, as Open vSwitch's.
    out.extend([0, 0]);
    out.extend(packet.bytes());
    out
}
