//! Lengths of packets without the padding of short Ethernet frames.

use flowlane::packet::{Headers, Network};

use super::Frame;

/// Returns an IP packet's length by its header.
pub(crate) fn ip_bytes(packet: &[u8]) -> usize {
    let number =
        |at: usize| packet.get(at..at + 2).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])));
    match packet.first() {
        // A jumbogram has 0, and is as long as its frame.
        Some(first) if first >> 4 == 6 && number(4) > 0 => 40 + number(4),
        Some(first) if first >> 4 == 4 => number(2),
        _ => packet.len(),
    }
}

/// Returns a frame's bytes without padding behind an IP packet.
pub(crate) fn without_padding(frame: &Frame, headers: &Headers) -> usize {
    let bytes = frame.bytes();
    let packet = bytes.get(usize::from(headers.l3)..).unwrap_or_default();
    let len = match headers.network {
        Network::Ipv4 | Network::Ipv6 => bytes.len().min(usize::from(headers.l3) + ip_bytes(packet)),
        _ => bytes.len(),
    };
    len - (bytes.len() - frame.packet().len())
}
