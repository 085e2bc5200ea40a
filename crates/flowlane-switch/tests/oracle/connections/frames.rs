//! Frames of conversations, put together and read byte by byte.

use super::super::packets::Random;

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;
pub(super) const SCTP: u8 = 132;

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

/// The addresses and ports of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ends {
    pub(super) v6: bool,
    /// Of IPv4 the first four bytes.
    pub(super) source: [u8; 16],
    pub(super) destination: [u8; 16],
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
}

impl Ends {
    pub(super) fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..self
        }
    }

    fn width(&self) -> usize {
        if self.v6 { 16 } else { 4 }
    }
}

/// An IPv4 address, or the IPv6 address made of it.
pub(super) fn address(v6: bool, v4: [u8; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    if v6 {
        bytes[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        bytes[12..].copy_from_slice(&v4);
    } else {
        bytes[..4].copy_from_slice(&v4);
    }
    bytes
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low))).sum()
}

fn checksum(total: u32) -> u16 {
    let mut total = total;
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

/// Puts the checksum of a transport header in place.
pub(super) fn seal(ends: &Ends, proto: u8, data: &mut [u8]) {
    let at = match proto {
        TCP => 16,
        UDP => 6,
        ICMP | ICMPV6 => 2,
        SCTP => {
            data[8..12].fill(0);
            let crc = crc32c(data).to_le_bytes();
            data[8..12].copy_from_slice(&crc);
            return;
        }
        _ => return,
    };
    data[at..at + 2].fill(0);
    let width = ends.width();
    let pseudo = match proto {
        ICMP => 0,
        _ => {
            sum(&ends.source[..width])
                + sum(&ends.destination[..width])
                + u32::from(proto)
                + data.len() as u32
        }
    };
    let value = checksum(pseudo + sum(data));
    let value = if proto == UDP && value == 0 { 0xffff } else { value };
    data[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// CRC32c, bit by bit (RFC 9260, appendix A).
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// An IP packet around a transport header.
pub(super) fn ip(ends: &Ends, proto: u8, data: &[u8]) -> Vec<u8> {
    let width = ends.width();
    let mut out = match ends.v6 {
        true => {
            let len = (data.len() as u16).to_be_bytes();
            vec![0x60, 0, 0, 0, len[0], len[1], proto, 64]
        }
        false => {
            let len = (data.len() as u16 + 20).to_be_bytes();
            vec![0x45, 0, len[0], len[1], 0, 1, 0x40, 0, 64, proto, 0, 0]
        }
    };
    out.extend(&ends.source[..width]);
    out.extend(&ends.destination[..width]);
    if !ends.v6 {
        let value = checksum(sum(&out)).to_be_bytes();
        out[10..12].copy_from_slice(&value);
    }
    out.extend(data);
    out
}

/// A frame around an IP packet; short ones are padded.
pub(super) fn ethernet(v6: bool, packet: &[u8]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    out.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
    out.extend(packet);
    if out.len() < 60 {
        out.resize(60, 0);
    }
    out
}

/// The fragments of a datagram, cut at these places.
pub(super) fn fragments(ends: &Ends, proto: u8, data: &[u8], cuts: &[usize], id: u32) -> Vec<Vec<u8>> {
    let begins = [0].iter().chain(cuts);
    let ends_at = cuts.iter().copied().chain([data.len()]);
    let one = |(&begin, end): (&usize, usize)| {
        let (part, more) = (&data[begin..end], end < data.len());
        let packet = match ends.v6 {
            true => {
                let place = (begin as u16 | u16::from(more)).to_be_bytes();
                let header = [&[proto, 0], &place[..], &id.to_be_bytes()].concat();
                ip(ends, 44, &[&header, part].concat())
            }
            false => {
                let mut packet = ip(ends, proto, part);
                packet[4..6].copy_from_slice(&(id as u16).to_be_bytes());
                let place = ((begin as u16 / 8) | if more { 0x2000 } else { 0 }).to_be_bytes();
                packet[6..8].copy_from_slice(&place);
                packet[10..12].fill(0);
                let value = checksum(sum(&packet[..20])).to_be_bytes();
                packet[10..12].copy_from_slice(&value);
                packet
            }
        };
        ethernet(ends.v6, &packet)
    };
    begins.zip(ends_at).map(one).collect()
}

/// Returns whether a frame has a fragment.
pub(super) fn is_fragment(frame: &[u8]) -> bool {
    match frame[12..14] {
        [8, 0] => (frame[20] & 0x3f, frame[21]) != (0, 0),
        [0x86, 0xdd] => frame[20] == 44,
        _ => false,
    }
}

/// Gives the datagram of a fragment another identification: Open vSwitch remembers earlier ones.
pub(super) fn identified(frame: &[u8], by: u16) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let flip = |frame: &mut [u8], at: usize| {
        let id = u16::from_be_bytes([frame[at], frame[at + 1]]) ^ by;
        frame[at..at + 2].copy_from_slice(&id.to_be_bytes());
    };
    match frame[12..14] {
        [8, 0] if is_fragment(&frame) => {
            flip(&mut frame, 18);
            frame[24..26].fill(0);
            let value = checksum(sum(&frame[14..34])).to_be_bytes();
            frame[24..26].copy_from_slice(&value);
        }
        [0x86, 0xdd] if is_fragment(&frame) => flip(&mut frame, 60),
        _ => {}
    }
    frame
}

/// The numbers of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) flags: u8,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    pub(super) window: u16,
    pub(super) scale: Option<u8>,
    pub(super) payload: usize,
}

pub(super) fn tcp(ends: &Ends, segment: &Segment) -> Vec<u8> {
    tcp_with(ends, segment, &vec![0x5a; segment.payload])
}

/// A segment with this payload.
pub(super) fn tcp_with(ends: &Ends, segment: &Segment, payload: &[u8]) -> Vec<u8> {
    let mut data = [ends.source_port.to_be_bytes(), ends.destination_port.to_be_bytes()].concat();
    data.extend(segment.sequence.to_be_bytes());
    data.extend(segment.acknowledgement.to_be_bytes());
    let options: &[u8] = match segment.scale {
        Some(scale) => &[2, 4, 5, 0xb4, 1, 3, 3, scale],
        None => &[],
    };
    data.extend([((20 + options.len()) as u8 / 4) << 4, segment.flags]);
    data.extend(segment.window.to_be_bytes());
    data.extend([0; 4]);
    data.extend(options);
    data.extend(payload);
    seal(ends, TCP, &mut data);
    data
}

pub(super) fn udp(ends: &Ends, payload: usize, r: &mut Random) -> Vec<u8> {
    udp_with(ends, &vec![0x33; payload], r)
}

/// A datagram with this payload, which may have no checksum.
pub(super) fn udp_with(ends: &Ends, payload: &[u8], r: &mut Random) -> Vec<u8> {
    let mut data = [ends.source_port.to_be_bytes(), ends.destination_port.to_be_bytes()].concat();
    data.extend((8 + payload.len() as u16).to_be_bytes());
    data.extend([0; 2]);
    data.extend(payload);
    if ends.v6 || r.below(4) > 0 {
        seal(ends, UDP, &mut data);
    }
    data
}

pub(super) fn sctp(ends: &Ends) -> Vec<u8> {
    let mut data = [ends.source_port.to_be_bytes(), ends.destination_port.to_be_bytes()].concat();
    data.extend([0, 0, 0, 9, 0, 0, 0, 0, 0, 3, 0, 4]);
    seal(ends, SCTP, &mut data);
    data
}

/// A message of ICMP, with an identifier.
pub(super) fn icmp(ends: &Ends, (kind, code): (u8, u8), identifier: u16) -> Vec<u8> {
    let mut data = vec![kind, code, 0, 0];
    data.extend(identifier.to_be_bytes());
    data.extend([0, 7, 1, 2, 3, 4]);
    seal(ends, if ends.v6 { ICMPV6 } else { ICMP }, &mut data);
    data
}

/// An error of ICMP, which quotes the beginning of a packet.
pub(super) fn error(ends: &Ends, kind: u8, quoted: &[u8]) -> Vec<u8> {
    let mut data = vec![kind, 1, 0, 0, 0, 0, 0, 0];
    data.extend(quoted);
    seal(ends, if ends.v6 { ICMPV6 } else { ICMP }, &mut data);
    data
}

/// The ends, the protocol and the IP packet of a frame.
pub(super) fn read(frame: &[u8]) -> Option<(Ends, u8, Vec<u8>)> {
    let v6 = match frame.get(12..14)? {
        [8, 0] => false,
        [0x86, 0xdd] => true,
        _ => return None,
    };
    let packet = &frame[14..];
    let (proto, at, width, header, len) = match v6 {
        true => (packet[6], 8, 16, 40, 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]))),
        false => (packet[9], 12, 4, 20, usize::from(u16::from_be_bytes([packet[2], packet[3]]))),
    };
    let take = |at: usize| {
        let mut out = [0; 16];
        out[..width].copy_from_slice(&packet[at..at + width]);
        out
    };
    let data = packet.get(header..len)?;
    let number = |at: usize| data.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let (source_port, destination_port) = match proto {
        ICMP | ICMPV6 => (number(4), number(4)),
        _ => (number(0), number(2)),
    };
    let ends = Ends { v6, source: take(at), destination: take(at + width), source_port, destination_port };
    Some((ends, proto, packet[..len].to_vec()))
}
