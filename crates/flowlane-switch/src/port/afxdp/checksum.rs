//! Checksums that a virtual neighbour has left to the next sender of a packet.

use flowlane::packet::parse::{ether_type, ip_proto};

use crate::packet::Offload;

/// The one's complement sum of bytes, beginning with `sum`.
fn sum(mut sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        sum += u64::from(u32::from_be_bytes(*word));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The parts of a pseudo header and a segment.
struct Segment {
    /// Sum of the addresses.
    addresses: u64,
    protocol: u8,
    at: usize,
    len: usize,
}

/// The whole TCP or UDP segment of a packet; none of fragments and others.
fn segment(frame: &[u8]) -> Option<Segment> {
    let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let mut at = 12;
    while matches!(word(at)?, ether_type::VLAN | ether_type::QINQ) {
        at += 4;
    }
    let ip = at + 2;
    let segment = match word(at)? {
        ether_type::IPV4 => {
            let header = usize::from(*frame.get(ip)? & 15) * 4;
            let len = usize::from(word(ip + 2)?).checked_sub(header)?;
            if word(ip + 6)? & 0x3fff != 0 {
                return None;
            }
            let addresses = sum(0, frame.get(ip + 12..ip + 20)?);
            Segment { addresses, protocol: frame[ip + 9], at: ip + header, len }
        }
        ether_type::IPV6 => {
            let (addresses, len) = (sum(0, frame.get(ip + 8..ip + 40)?), word(ip + 4)?.into());
            Segment { addresses, protocol: frame[ip + 6], at: ip + 40, len }
        }
        _ => return None,
    };
    frame.get(segment.at..segment.at + segment.len)?;
    Some(segment)
}

/// Returns where a TCP or UDP packet's checksum is to be completed, in whose place the sum of the pseudo header is: where what it
/// covers begins, its place behind that, and the end of what it covers.
#[inline]
fn partial(frame: &[u8]) -> Option<(usize, usize, usize)> {
    let Segment { addresses, protocol, at, len } = segment(frame)?;
    let offset = match protocol {
        ip_proto::TCP => 16,
        ip_proto::UDP => 6,
        _ => return None,
    };
    let &[high, low] = frame.get(at + offset..)?.first_chunk()?;
    let pseudo = addresses + u64::from(protocol) + len as u64;
    let is_partial = offset + 2 <= len && u16::from_be_bytes([high, low]) == fold(pseudo);
    is_partial.then_some((at, offset, at + len))
}

/// Returns what a frame's neighbour has left to its next sender, as a packet socket tells it; a frame with padding is finished.
#[inline]
pub(super) fn left(frame: &mut [u8]) -> Option<Offload> {
    let (at, offset, end) = partial(frame)?;
    if end < frame.len() {
        finish(frame);
        return None;
    }
    Some(Offload { checksum: Some((at as u16, offset as u16)), cut: None })
}

/// Finishes the checksum of a TCP or UDP packet in whose place the sum of the pseudo header is.
#[inline]
pub(super) fn finish(frame: &mut [u8]) {
    let Some((at, offset, end)) = partial(frame) else { return };
    let place = at + offset;
    // The checksum field holds the sum of the pseudo header.
    let checksum = !fold(sum(0, &frame[at..end]));
    // In UDP zero means that there is none; for TCP the two are the same number.
    let checksum = if checksum == 0 && offset == 6 { 0xffff } else { checksum };
    frame[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};

    use super::*;

    fn packets() -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for len in [0, 1, 2, 3, 64, 999] {
            let payload: Vec<u8> = (0..len).map(|i| (i * 31 + 7) as u8).collect();
            let eth = || PacketBuilder::ethernet2([2; 6], [4; 6]);
            let mut push = |write: &dyn Fn(&mut Vec<u8>)| {
                let mut bytes = Vec::new();
                write(&mut bytes);
                all.push(bytes);
            };
            push(&|out| eth().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9).udp(7, 9).write(out, &payload).unwrap());
            push(&|out| {
                eth().ipv4([10, 0, 0, 1], [10, 9, 0, 2], 9).tcp(7, 9, 1, 2).write(out, &payload).unwrap()
            });
            push(&|out| eth().ipv6([1; 16], [2; 16], 9).udp(7, 9).write(out, &payload).unwrap());
            push(&|out| {
                let tagged = eth().vlan(etherparse::VlanHeader::Single(Default::default()));
                tagged.ipv6([1; 16], [2; 16], 9).tcp(7, 9, 1, 2).write(out, &payload).unwrap();
            });
        }
        all
    }

    /// Where the checksum is, and the sum of the pseudo header.
    fn place(frame: &[u8]) -> (usize, u16) {
        let parsed = SlicedPacket::from_ethernet(frame).unwrap();
        let (protocol, at, len) = match parsed.transport.unwrap() {
            TransportSlice::Udp(udp) => (17, 6, udp.slice().len()),
            TransportSlice::Tcp(tcp) => (6, 16, tcp.slice().len()),
            _ => unreachable!(),
        };
        let end = frame.len() - len;
        let addresses = if frame[end - 20] >> 4 == 4 { &frame[end - 8..end] } else { &frame[end - 32..end] };
        let mut sum: u32 = addresses.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        sum += protocol + len as u32;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (end + at, sum as u16)
    }

    #[test]
    fn what_was_left_is_finished_and_all_else_stays_as_it_is() {
        for right in packets() {
            let (at, pseudo) = place(&right);
            let mut left = right.clone();
            left[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
            finish(&mut left);
            assert_eq!(left, right);
            // Or it is left to the kernel, which completes it.
            left[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
            let offload = super::left(&mut left).unwrap();
            assert!(offload.finish(&mut left, |bytes| assert_eq!(bytes, right)));
            assert_eq!(super::left(&mut right.clone()), None);
            // Finished ones, wrong ones and such without.
            for wrong in [right[at..at + 2].try_into().unwrap(), [0, 0], [0x12, 0x34]] {
                let mut other = right.clone();
                other[at..at + 2].copy_from_slice(&wrong);
                let before = other.clone();
                finish(&mut other);
                assert_eq!(other, before);
            }
            // Padding is not summed.
            let mut padded = right.clone();
            padded[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
            padded.extend([9; 7]);
            let mut other = padded.clone();
            finish(&mut padded);
            assert_eq!(padded[..right.len()], right);
            assert!(super::left(&mut other).is_none() && other == padded);
            for cut in 0..right.len() {
                let mut short = right[..cut].to_vec();
                finish(&mut short);
                assert_eq!(short, right[..cut], "cut to {cut}");
            }
        }
    }
}
