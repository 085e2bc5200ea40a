//! Cutting packets of IPv4 that are too long for their way (RFC 791, section 3.2; RFC 1812, section 4.2.2.7).

use flowlane::packet::Headers;

use super::wire::ETHERNET;
use crate::packet::edit::checksum::{fold, sum};
use crate::packet::edit::packet_end;

/// Flags of a fragment.
const DONT_FRAGMENT: u16 = 0x4000;
const MORE: u16 = 0x2000;

/// Options that each fragment has are marked by a bit (RFC 791, section 3.1).
const COPIED: u8 = 0x80;

/// Returns the frames of the fragments of a packet, each with an IP packet of at most `mtu` bytes; none if the packet must not be
/// cut, or cannot be.
pub fn cut(bytes: &[u8], headers: &Headers, mtu: u16) -> Option<Vec<Vec<u8>>> {
    let l3 = usize::from(headers.l3);
    let packet = bytes.get(l3..packet_end(bytes, headers)?)?;
    let header_bytes = 4 * usize::from(packet.first()? & 0xf);
    let (first, payload) = packet.split_at_checked(header_bytes)?;
    let flags = u16::from_be_bytes([*first.get(6)?, *first.get(7)?]);
    if l3 < ETHERNET || header_bytes < 20 || flags & DONT_FRAGMENT != 0 {
        return None;
    }
    let other = without_own_options(first);
    let mut frames = Vec::new();
    let (mut at, offset) = (0, usize::from(flags & 0x1fff));
    while at < payload.len() || frames.is_empty() {
        let header = if at == 0 { first } else { &other };
        let room = usize::from(mtu).checked_sub(header.len()).filter(|room| *room >= 8)?;
        let rest = payload.len() - at;
        // All but the last are multiples of 8 bytes.
        let len = if rest <= room { rest } else { room & !7 };
        let is_last = len == rest && flags & MORE == 0;
        let mut frame = bytes[..l3].to_vec();
        frame.extend_from_slice(header);
        let place = (offset + at / 8) as u16 | if is_last { 0 } else { MORE };
        let head = &mut frame[l3..];
        head[2..4].copy_from_slice(&((header.len() + len) as u16).to_be_bytes());
        head[6..8].copy_from_slice(&place.to_be_bytes());
        head[10..12].fill(0);
        let checksum = !fold(sum(head));
        head[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend_from_slice(&payload[at..at + len]);
        frames.push(frame);
        at += len;
    }
    Some(frames)
}

/// The header of later fragments: with the options alone that each fragment has.
fn without_own_options(header: &[u8]) -> Vec<u8> {
    let mut out = header[..20].to_vec();
    let mut options = &header[20..];
    while let Some(&kind) = options.first() {
        // The end, and a byte of padding.
        let len = match kind {
            0 => break,
            1 => 1,
            _ => options.get(1).map_or(0, |len| usize::from(*len)),
        };
        let Some((option, rest)) = options.split_at_checked(len).filter(|_| len > 0) else { break };
        if kind & COPIED != 0 {
            out.extend_from_slice(option);
        }
        options = rest;
    }
    out.resize(out.len().next_multiple_of(4), 0);
    out[0] = 0x40 | (out.len() / 4) as u8;
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane::packet::key::FlowKey;
    use flowlane::packet::parse;

    /// A packet with options of both kinds, and a payload that counts.
    fn packet(payload: usize, flags: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend_from_slice(&[8, 0, 0x47, 0]);
        frame.extend_from_slice(&(28 + payload as u16).to_be_bytes());
        frame.extend_from_slice(&[1, 2]);
        frame.extend_from_slice(&flags.to_be_bytes());
        frame.extend_from_slice(&[64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1]);
        // Router alert (copied), then a timestamp of no room (not copied).
        frame.extend_from_slice(&[148, 4, 0, 0, 68, 4, 5, 0]);
        let checksum = !fold(sum(&frame[14..42]));
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame.extend((0..payload).map(|n| n as u8));
        // Padding.
        frame.extend_from_slice(&[0xee; 3]);
        frame
    }

    fn headers(frame: &[u8]) -> Headers {
        parse(frame, 0, &mut FlowKey::zero())
    }

    #[test]
    fn fragments_together_are_the_packet() {
        for (payload, mtu, flags) in
            [(1472, 576, 0), (1480, 1500, 0), (100, 68, 0x2003), (3000, 1280, 5), (25, 36, 0)]
        {
            let frame = packet(payload, flags);
            let frames = cut(&frame, &headers(&frame), mtu).unwrap();
            let (mut seen, mut next) = (Vec::new(), usize::from(flags & 0x1fff));
            for (n, part) in frames.iter().enumerate() {
                let ip = &part[14..];
                assert!(ip.len() <= mtu.into(), "{} bytes of {mtu}", ip.len());
                let header = 4 * usize::from(ip[0] & 15);
                assert_eq!(header, if n == 0 { 28 } else { 24 });
                assert_eq!(fold(sum(&ip[..header])), 0xffff);
                assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
                let place = u16::from_be_bytes([ip[6], ip[7]]);
                assert_eq!(usize::from(place & 0x1fff), next);
                let more = n + 1 < frames.len() || flags & MORE != 0;
                assert_eq!(place & MORE != 0, more);
                seen.extend_from_slice(&ip[header..]);
                next = usize::from(flags & 0x1fff) + seen.len() / 8;
            }
            assert_eq!(seen, (0..payload).map(|n| n as u8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_must_not_or_cannot_be_cut_is_not() {
        let frame = packet(1472, DONT_FRAGMENT);
        assert_eq!(cut(&frame, &headers(&frame), 576), None);
        let frame = packet(1472, 0);
        assert_eq!(cut(&frame, &headers(&frame), 30), None);
    }
}
