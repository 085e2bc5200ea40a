//! What network cards do for the kernel, done here: a frame from another interface of the same machine may
//! arrive without checksums and longer than the link allows.

use std::sync::atomic::{AtomicU32, Ordering};

use flowlane::packet::parse::ip_proto;
use flowlane::packet::{FlowKey, Headers, Network, Transport, parse};

use crate::packet::edit::checksum::{fold, sum};
use crate::packet::{Cut, Offload};

/// `struct virtio_net_hdr` (virtio 1.2 §5.1.6): flags, GSO type, header length, GSO size, checksum start
/// and offset; in the machine's byte order here.
pub(super) const VNET_HEADER: usize = 10;
const NEEDS_CHECKSUM: u8 = 1;
/// The GSO type of a UDP datagram that leaves in IP fragments (`VIRTIO_NET_HDR_GSO_UDP`).
const GSO_UDP_FRAGMENTS: u8 = 3;
/// That of one that leaves as several, each with headers of its own (`VIRTIO_NET_HDR_GSO_UDP_L4`).
pub(super) const GSO_UDP_SEGMENTS: u8 = 5;
/// The GSO type's bit for ECN.
const GSO_ECN: u8 = 0x80;

impl Offload {
    /// Reads a header; `None` where it has no offload metadata.
    pub(super) fn read(header: &[u8; VNET_HEADER]) -> Option<Self> {
        let number = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let checksum = (header[0] & NEEDS_CHECKSUM != 0).then(|| (number(6), number(8)));
        let cut = header[1] & !GSO_ECN != 0;
        let cut = cut.then(|| Cut { kind: header[1], size: number(4), headers: number(2) });
        (checksum.is_some() || cut.is_some()).then_some(Self { checksum, cut })
    }

    /// The header that says this.
    pub(super) fn header(offload: Option<Self>) -> [u8; VNET_HEADER] {
        let Self { checksum, cut } = offload.unwrap_or_default();
        let (start, offset) = checksum.unwrap_or_default();
        let Cut { kind, size, headers } = cut.unwrap_or(Cut { kind: 0, size: 0, headers: 0 });
        let mut header = [0; VNET_HEADER];
        (header[0], header[1]) = (if checksum.is_some() { NEEDS_CHECKSUM } else { 0 }, kind);
        for (at, number) in [(2, headers), (4, size), (6, start), (8, offset)] {
            header[at..at + 2].copy_from_slice(&number.to_ne_bytes());
        }
        header
    }

    /// Returns whether the system does it for a frame that is sent: not everywhere for fragmented UDP datagrams. (Frames whose tag the
    /// kernel took off are finished as they come: no kernel with VLAN devices was available to test them.)
    pub(super) fn can_be_left(self) -> bool {
        self.cut.is_none_or(|cut| cut.kind & !GSO_ECN != GSO_UDP_FRAGMENTS && self.checksum.is_some())
    }

    /// Does it: gives the frames that are to be sent. Says whether it could.
    pub fn finish(self, frame: &mut [u8], mut emit: impl FnMut(&[u8])) -> bool {
        let complete = |frame: &mut [u8]| {
            if let Some((start, offset)) = self.checksum {
                complete_checksum(frame, start.into(), offset.into());
            }
        };
        match self.cut {
            None => {
                complete(frame);
                emit(frame);
                true
            }
            Some(Cut { kind, size, .. }) if kind & !GSO_ECN == GSO_UDP_FRAGMENTS => {
                complete(frame);
                fragment(frame, size.into(), emit)
            }
            Some(Cut { size, .. }) => segment(frame, size.into(), emit),
        }
    }
}

/// Completes the checksum at `start + offset`, which holds the sum of the pseudo header, over the bytes
/// from `start` on (virtio 1.2 §5.1.6.2, `VIRTIO_NET_HDR_F_NEEDS_CSUM`). Nothing where it does not lie
/// within the frame.
pub fn complete_checksum(frame: &mut [u8], start: usize, offset: usize) {
    if start > frame.len() || frame.get(start + offset..start + offset + 2).is_none() {
        return;
    }
    let checksum = match !fold(sum(&frame[start..])) {
        0 => 0xffff, // For UDP 0 means none; for TCP the two are the same number.
        other => other,
    };
    frame[start + offset..start + offset + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Cuts a TCP or UDP frame into frames with `size` bytes of payload each, with lengths, identification,
/// sequence numbers, flags and checksums as each needs them. Says whether it could.
pub fn segment(frame: &[u8], size: usize, mut emit: impl FnMut(&[u8])) -> bool {
    let headers = parse(frame, 0, &mut FlowKey::zero());
    let payload_at = usize::from(headers.payload);
    let whole = headers.malformed.is_none() && headers.fragment == 0 && size > 0;
    if !whole || !matches!(headers.transport, Transport::Tcp | Transport::Udp) {
        return false;
    }
    let (head, payload) = frame.split_at(payload_at);
    let count = payload.len().div_ceil(size).max(1);
    let mut out = Vec::with_capacity(payload_at + size);
    for i in 0..count {
        let chunk = &payload[i * size..payload.len().min((i + 1) * size)];
        out.clear();
        out.extend_from_slice(head);
        out.extend_from_slice(chunk);
        fix_network(&mut out, &headers, i as u16);
        fix_transport(&mut out, &headers, (i * size) as u32, i == 0, i + 1 == count);
        emit(&out);
    }
    true
}

/// Cuts a datagram into IP fragments of up to `size` bytes of payload each, rounded down to a multiple of 8 (RFC 791 §3.2,
/// RFC 8200 §4.5); its transport checksum, which covers the whole, must be complete. Says whether it could.
pub fn fragment(frame: &[u8], size: usize, mut emit: impl FnMut(&[u8])) -> bool {
    let headers = parse(frame, 0, &mut FlowKey::zero());
    let size = size & !7;
    let whole = headers.malformed.is_none() && headers.fragment == 0 && size > 0;
    if !whole || !matches!(headers.network, Network::Ipv4 | Network::Ipv6) {
        return false;
    }
    let (l3, v6) = (usize::from(headers.l3), headers.network == Network::Ipv6);
    // Options and extension headers for hops on the way are repeated; there are none in what a kernel cuts.
    let payload_at = if v6 { l3 + 40 } else { usize::from(headers.l4) };
    let (head, payload) = frame.split_at(payload_at);
    if payload.len() > 0xffff {
        return false;
    }
    let id = FRAGMENT_ID.fetch_add(1, Ordering::Relaxed);
    let mut out = Vec::with_capacity(payload_at + 8 + size);
    for (i, chunk) in payload.chunks(size).enumerate() {
        let offset = i * size;
        let more = offset + chunk.len() < payload.len();
        out.clear();
        out.extend_from_slice(head);
        if v6 {
            let [a, b] = (offset as u16 | u16::from(more)).to_be_bytes();
            out.extend_from_slice(&[frame[l3 + 6], 0, a, b]);
            out.extend_from_slice(&id.to_be_bytes());
            out[l3 + 6] = ip_proto::FRAGMENT;
        } else {
            put(&mut out, l3 + 6, (offset / 8) as u16 | u16::from(more) << 13);
        }
        out.extend_from_slice(chunk);
        fix_network(&mut out, &headers, 0);
        emit(&out);
    }
    true
}

/// Identifies the datagrams of IPv6 that are cut here.
static FRAGMENT_ID: AtomicU32 = AtomicU32::new(1);

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn fix_network(bytes: &mut [u8], headers: &Headers, number: u16) {
    let (l3, len) = (usize::from(headers.l3), bytes.len());
    if headers.network == Network::Ipv4 {
        put(bytes, l3 + 2, (len - l3) as u16);
        let id = u16::from_be_bytes([bytes[l3 + 4], bytes[l3 + 5]]);
        put(bytes, l3 + 4, id.wrapping_add(number));
        put(bytes, l3 + 10, 0);
        let checksum = !fold(sum(&bytes[l3..headers.l4.into()]));
        put(bytes, l3 + 10, checksum);
    } else {
        put(bytes, l3 + 4, (len - l3 - 40) as u16);
    }
}

fn fix_transport(bytes: &mut [u8], headers: &Headers, offset: u32, first: bool, last: bool) {
    let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
    let len = bytes.len() - l4;
    let (proto, checksum_at) = if headers.transport == Transport::Tcp {
        let number = u32::from_be_bytes([bytes[l4 + 4], bytes[l4 + 5], bytes[l4 + 6], bytes[l4 + 7]]);
        bytes[l4 + 4..l4 + 8].copy_from_slice(&number.wrapping_add(offset).to_be_bytes());
        // FIN and PSH belong to the last segment, CWR to the first (RFC 3168 §6.1.2).
        bytes[l4 + 13] &= if last { 0xff } else { !0x09 };
        bytes[l4 + 13] &= if first { 0xff } else { !0x80 };
        (6, l4 + 16)
    } else {
        put(bytes, l4 + 4, len as u16);
        (17, l4 + 6)
    };
    put(bytes, checksum_at, 0);
    let addresses = if headers.network == Network::Ipv4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    let pseudo = sum(&bytes[addresses]) + proto + len as u32;
    let checksum = match !fold(pseudo + sum(&bytes[l4..])) {
        0 => 0xffff,
        other => other,
    };
    put(bytes, checksum_at, checksum);
}

#[cfg(test)]
mod tests {
    use etherparse::{NetHeaders, PacketBuilder, PacketHeaders, TransportHeader};

    use super::*;

    fn check(bytes: &[u8]) {
        let packet = PacketHeaders::from_ethernet_slice(bytes).unwrap();
        let payload = packet.payload.slice();
        let (wanted, found) = match (packet.net.unwrap(), packet.transport.unwrap()) {
            (NetHeaders::Ipv4(ip, _), TransportHeader::Tcp(h)) => {
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                (h.calc_checksum_ipv4(&ip, payload).unwrap(), h.checksum)
            }
            (NetHeaders::Ipv6(ip, _), TransportHeader::Tcp(h)) => {
                (h.calc_checksum_ipv6(&ip, payload).unwrap(), h.checksum)
            }
            (NetHeaders::Ipv4(ip, _), TransportHeader::Udp(h)) => {
                (h.calc_checksum_ipv4(&ip, payload).unwrap(), h.checksum)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(found, wanted);
    }

    fn tcp(v6: bool, payload: &[u8]) -> Vec<u8> {
        let eth = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let mut bytes = Vec::new();
        if v6 {
            eth.ipv6([1; 16], [2; 16], 9)
                .tcp(1, 2, 0xffff_ff00, 5)
                .fin()
                .psh()
                .ack(1)
                .write(&mut bytes, payload)
        } else {
            eth.ipv4([1; 4], [2; 4], 9)
                .tcp(1, 2, 0xffff_ff00, 5)
                .fin()
                .psh()
                .ack(1)
                .write(&mut bytes, payload)
        }
        .unwrap();
        bytes
    }

    #[test]
    fn what_is_left_to_do_is_read_as_it_is_written() {
        assert_eq!(Offload::read(&[0; VNET_HEADER]), None);
        assert_eq!(Offload::header(None), [0; VNET_HEADER]);
        let cut = Some(Cut { kind: 1 | GSO_ECN, size: 1448, headers: 66 });
        for left in [
            Offload { checksum: Some((34, 16)), cut },
            Offload { checksum: Some((34, 6)), cut: None },
            Offload { checksum: None, cut },
        ] {
            assert_eq!(Offload::read(&Offload::header(Some(left))), Some(left));
        }
        // UDP in fragments is cut here.
        let fragments = Some(Cut { kind: GSO_UDP_FRAGMENTS, size: 1480, headers: 42 });
        assert!(!Offload { checksum: Some((34, 6)), cut: fragments }.can_be_left());
        assert!(Offload { checksum: Some((34, 16)), cut }.can_be_left());
    }

    #[test]
    fn tcp_segments_are_sound_and_carry_the_whole_payload() {
        let payload: Vec<u8> = (0..5001u32).map(|i| (i * 7) as u8).collect();
        for v6 in [false, true] {
            let mut got = Vec::new();
            let mut segments = 0;
            assert!(segment(&tcp(v6, &payload), 1448, |bytes| {
                check(bytes);
                let packet = PacketHeaders::from_ethernet_slice(bytes).unwrap();
                let Some(TransportHeader::Tcp(h)) = packet.transport else { panic!("TCP") };
                assert_eq!(h.sequence_number, 0xffff_ff00u32.wrapping_add(got.len() as u32));
                got.extend_from_slice(packet.payload.slice());
                let last = got.len() == payload.len();
                assert_eq!((h.fin, h.psh, h.ack), (last, last, true));
                segments += 1;
            }));
            assert_eq!((got == payload, segments), (true, 4));
        }
    }

    #[test]
    fn udp_segments_and_unfit_frames() {
        let mut bytes = Vec::new();
        let udp = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([1; 4], [2; 4], 9).udp(1, 2);
        udp.write(&mut bytes, &[5; 1000]).unwrap();
        let mut lens = Vec::new();
        assert!(segment(&bytes, 400, |b| {
            check(b);
            lens.push(b.len());
        }));
        assert_eq!(lens, [442, 442, 242]);
        assert!(!segment(&bytes[..30], 400, |_| panic!("malformed")));
        assert!(!segment(&bytes, 0, |_| panic!("no size")));
    }

    #[test]
    fn fragments_are_one_datagram_again_when_they_are_put_together() {
        let payload: Vec<u8> = (0..3001u32).map(|i| (i * 7) as u8).collect();
        for v6 in [false, true] {
            let eth = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let mut whole = Vec::new();
            match v6 {
                true => eth.ipv6([1; 16], [2; 16], 9).udp(1, 2).write(&mut whole, &payload).unwrap(),
                false => eth.ipv4([1; 4], [2; 4], 9).udp(1, 2).write(&mut whole, &payload).unwrap(),
            }
            let (mut together, mut ids) = (Vec::new(), Vec::new());
            assert!(fragment(&whole, 1452, |bytes| {
                let packet = PacketHeaders::from_ethernet_slice(bytes).unwrap();
                let (offset, more, id) = match packet.net.unwrap() {
                    NetHeaders::Ipv4(ip, _) => {
                        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                        assert_eq!(usize::from(ip.total_len) + 14, bytes.len());
                        (ip.fragment_offset.value(), ip.more_fragments, ip.identification.into())
                    }
                    NetHeaders::Ipv6(ip, extensions) => {
                        let f = extensions.fragment.unwrap();
                        assert_eq!(usize::from(ip.payload_length) + 54, bytes.len());
                        (f.fragment_offset.value(), f.more_fragments, f.identification)
                    }
                    other => panic!("{other:?}"),
                };
                assert_eq!(usize::from(offset) * 8, together.len());
                let at = if v6 { 62 } else { 34 };
                together.extend_from_slice(&bytes[at..]);
                assert!(bytes.len() - at <= 1448 && more == (together.len() < payload.len() + 8));
                ids.push(id);
            }));
            assert_eq!(together, whole[if v6 { 54 } else { 34 }..]);
            assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
            assert!(!fragment(&whole, 7, |_| panic!("no room")));
            assert!(!fragment(&whole[..40], 1452, |_| panic!("malformed")));
        }
    }

    #[test]
    fn a_partial_checksum_is_completed() {
        let whole = tcp(false, b"hello");
        let mut partial = whole.clone();
        // What the kernel leaves there: the folded sum of the pseudo header.
        let pseudo = fold(sum(&partial[26..34]) + 6 + (partial.len() - 34) as u32);
        put(&mut partial, 50, pseudo);
        complete_checksum(&mut partial, 34, 16);
        assert_eq!(partial, whole);
        complete_checksum(&mut partial, 60, 16);
        complete_checksum(&mut partial, 600, 16);
    }
}
