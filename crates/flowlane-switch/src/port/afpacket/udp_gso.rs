//! UDP segmentation offload (GSO) on transmit: consecutive datagrams of one flow go to the kernel as one.
//!
//! A datagram costs a kernel more than its bytes do: memory, queues, routes and firewall for each. Where a virtual neighbour has left their
//! checksums to be completed, datagrams that differ in nothing but payload and consecutive identification are the segments of one large
//! one (UDP segmentation, Linux 6.2 for packet sockets): the kernel cuts it at the last moment, into the same frames.
//!
//! ```text
//! header │ Ethernet IP UDP payload │ header │ Ethernet IP UDP payload     become     header' │ Ethernet IP' UDP' payload payload
//! ```
//!
//! Only what comes one behind the other is put together, so nothing overtakes.

use flowlane::packet::parse::{ether_type, ip_proto};

use crate::packet::edit::checksum::{fold, sum};
use crate::packet::{Cut, Frame, Offload};
use crate::port::offload::{GSO_UDP_SEGMENTS, VNET_HEADER};

/// Ethernet's header.
const L3: usize = 14;
const UDP_HEADER: usize = 8;
/// The checksum's place in that.
const CHECKSUM: usize = 6;

/// Datagrams in one: as many as the kernel lets a program have cut.
const COUNT_MAX: usize = 64;
/// Bytes of one, headers of IP included.
const LEN_MAX: usize = 0xffff;

/// A batch of datagrams that the kernel segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct GsoBatch {
    /// Where its header of virtio's is.
    at: usize,
    l4: usize,
    /// Bytes of payload of each.
    size: usize,
    count: usize,
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Where the UDP header of a datagram is that may be part of one; none where it may not.
fn datagram(frame: &Frame) -> Option<usize> {
    let bytes = frame.bytes();
    let left = frame.offload?;
    let (start, offset) = left.checksum?;
    let l4 = usize::from(start);
    if left.cut.is_some() || usize::from(offset) != CHECKSUM || l4 < L3 || bytes.len() <= l4 + UDP_HEADER {
        return None;
    }
    let ip = &bytes[L3..l4];
    // Nothing behind the datagram, which would be taken for payload; no options, no fragments.
    let is_whole = match (word(bytes, L3 - 2), ip.len()) {
        (ether_type::IPV4, 20) => {
            ip[0] == 0x45
                && ip[9] == ip_proto::UDP
                && usize::from(word(ip, 2)) == bytes.len() - L3
                && word(ip, 6) & 0x3fff == 0
                && fold(sum(ip)) == 0xffff
        }
        (ether_type::IPV6, 40) => ip[6] == ip_proto::UDP && usize::from(word(ip, 4)) == bytes.len() - l4,
        _ => false,
    };
    (is_whole && usize::from(word(bytes, l4 + 4)) == bytes.len() - l4).then_some(l4)
}

impl GsoBatch {
    /// One of this frame, whose header of virtio's is at `at`; none where nothing can be appended to it.
    #[inline]
    pub(super) fn of(frame: &Frame, at: usize) -> Option<Self> {
        let l4 = datagram(frame)?;
        Some(Self { at, l4, size: frame.len() - l4 - UDP_HEADER, count: 1 })
    }

    /// Appends a frame's payload to `bytes`, which ends with this, where it is the next of the same. Says whether it was.
    #[inline]
    pub(super) fn append(&mut self, bytes: &mut Vec<u8>, frame: &Frame) -> bool {
        let (head, next) = (&bytes[self.at + VNET_HEADER..], frame.bytes());
        let payload = self.l4 + UDP_HEADER;
        let fits = self.count < COUNT_MAX && head.len() - L3 + self.size <= LEN_MAX;
        if !fits || next.len() != payload + self.size || datagram(frame) != Some(self.l4) {
            return false;
        }
        let alike = |from: usize, to: usize| head[from..to] == next[from..to];
        // Lengths and IP's checksum follow from the rest; identification is compared separately.
        let is_next = match self.l4 - L3 {
            20 => {
                let id = word(head, L3 + 4).wrapping_add(self.count as u16);
                alike(0, L3 + 4)
                    && id == word(next, L3 + 4)
                    && alike(L3 + 6, L3 + 10)
                    && alike(L3 + 12, payload)
            }
            _ => alike(0, payload),
        };
        if is_next {
            bytes.extend_from_slice(&next[payload..]);
            self.count += 1;
        }
        is_next
    }

    /// Makes one datagram of all, which the kernel is to cut; `bytes` end with it.
    pub(super) fn close(self, bytes: &mut [u8]) {
        if self.count == 1 {
            return;
        }
        let (header, frame) = bytes[self.at..].split_at_mut(VNET_HEADER);
        let payload = (self.l4 + UDP_HEADER) as u16;
        let cut = Some(Cut { kind: GSO_UDP_SEGMENTS, size: self.size as u16, headers: payload });
        let checksum = Some((self.l4 as u16, CHECKSUM as u16));
        header.copy_from_slice(&Offload::header(Some(Offload { checksum, cut })));
        let len = frame.len() - self.l4;
        if self.l4 - L3 == 20 {
            put(frame, L3 + 2, (frame.len() - L3) as u16);
            put(frame, L3 + 10, 0);
            let of_header = !fold(sum(&frame[L3..self.l4]));
            put(frame, L3 + 10, of_header);
        } else {
            put(frame, L3 + 4, len as u16);
        }
        // The sum of the pseudo header has the length in it.
        let more = (len - UDP_HEADER - self.size) as u32;
        let pseudo = fold(u32::from(word(frame, self.l4 + CHECKSUM)) + more);
        put(frame, self.l4 + 4, len as u16);
        put(frame, self.l4 + CHECKSUM, pseudo);
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use flowlane::generate::Random;

    use super::*;
    use crate::port::offload::complete_checksum;

    /// A datagram as a virtual neighbour sends it: with the pseudo header's sum in the checksum's place.
    fn sent(v6: bool, id: u16, ports: (u16, u16), payload: &[u8]) -> Frame {
        let (eth, mut bytes) = (PacketBuilder::ethernet2([2; 6], [4; 6]), Vec::new());
        let len = UDP_HEADER + payload.len();
        let (l4, addresses) = match v6 {
            true => {
                eth.ipv6([1; 16], [2; 16], 9).udp(ports.0, ports.1).write(&mut bytes, payload).unwrap();
                (54, 22..54)
            }
            false => {
                eth.ipv4([1; 4], [2; 4], 9).udp(ports.0, ports.1).write(&mut bytes, payload).unwrap();
                put(&mut bytes, 18, id);
                put(&mut bytes, 24, 0);
                let checksum = !fold(sum(&bytes[14..34]));
                put(&mut bytes, 24, checksum);
                (34, 26..34)
            }
        };
        let pseudo = fold(sum(&bytes[addresses]) + u32::from(ip_proto::UDP) + len as u32);
        put(&mut bytes, l4 + CHECKSUM, pseudo);
        let mut frame = Frame::default();
        frame.fill(&bytes);
        frame.offload = Some(Offload { checksum: Some((l4 as u16, CHECKSUM as u16)), cut: None });
        frame
    }

    /// The bytes of a single frame on the wire.
    fn finished(frame: &Frame) -> Vec<u8> {
        let mut bytes = frame.bytes().to_vec();
        if let Some((start, offset)) = frame.offload.and_then(|left| left.checksum) {
            complete_checksum(&mut bytes, start.into(), offset.into());
        }
        bytes
    }

    /// Batches frames in order; returns the segments of the batches, and the number of messages to the kernel.
    fn through(frames: &[Frame]) -> (Vec<Vec<u8>>, usize) {
        let (mut cut, mut messages) = (Vec::new(), 0);
        let mut frames = frames.iter().peekable();
        while let Some(first) = frames.next() {
            let mut bytes = Offload::header(first.offload).to_vec();
            bytes.extend_from_slice(first.bytes());
            if let Some(mut batch) = GsoBatch::of(first, 0) {
                while frames.peek().is_some_and(|next| batch.append(&mut bytes, next)) {
                    frames.next();
                }
                batch.close(&mut bytes);
            }
            messages += 1;
            let (header, frame) = bytes.split_first_chunk_mut().unwrap();
            match Offload::read(header) {
                Some(left) => assert!(left.finish(frame, |piece| cut.push(piece.to_vec()))),
                None => cut.push(frame.to_vec()),
            }
        }
        (cut, messages)
    }

    #[test]
    fn batches_are_segmented_into_the_same_frames() {
        let mut random = Random::new(7);
        let mut below = |n: u64| random.below(n);
        let mut all = [0; 2];
        for _ in 0..300 {
            // Runs of one flow, now and then with another port, size, identification, or a checksum that is finished.
            let (v6, mut id, mut port, mut size) = (below(2) == 0, below(0x1_0000) as u16, 5, 18);
            let frames: Vec<Frame> = (0..200)
                .map(|_| {
                    match below(20) {
                        0 => port = below(3) as u16,
                        1 => size = 1 + below(1400) as usize,
                        2 => id = below(0x1_0000) as u16,
                        _ => {}
                    }
                    id = id.wrapping_add(1);
                    let payload: Vec<u8> = (0..size).map(|_| below(256) as u8).collect();
                    let mut frame = sent(v6, id, (port, 53), &payload);
                    if below(30) == 0 {
                        let bytes = finished(&frame);
                        frame.fill(&bytes);
                    }
                    frame
                })
                .collect();
            let (cut, messages) = through(&frames);
            assert!(cut == frames.iter().map(finished).collect::<Vec<_>>());
            all = [all[0] + frames.len(), all[1] + messages];
        }
        assert!(all[1] * 3 < all[0], "{all:?}");
    }

    #[test]
    fn frames_that_differ_in_other_fields_are_not_batched() {
        let first = sent(false, 1, (5, 53), &[7; 18]);
        let follows = |change: &dyn Fn(&mut Frame)| {
            let mut next = sent(false, 2, (5, 53), &[7; 18]);
            change(&mut next);
            let mut bytes = Offload::header(first.offload).to_vec();
            bytes.extend_from_slice(first.bytes());
            GsoBatch::of(&first, 0).expect("it may be part of one").append(&mut bytes, &next)
        };
        assert!(follows(&|_| {}));
        // Every byte of the headers counts.
        for at in 0..42 {
            assert!(!follows(&|next| next.bytes_mut()[at] ^= 1), "byte {at}");
        }
        assert!(follows(&|next| next.bytes_mut()[42] ^= 1));
        // Padding behind the datagram, another length, a finished checksum, a datagram that is to be cut already.
        assert!(!follows(
            &|next| next.fill_again(&[sent(false, 2, (5, 53), &[7; 17]).bytes(), &[0]].concat())
        ));
        assert!(!follows(&|next| next.offload = None));
        let cut = Some(Cut { kind: GSO_UDP_SEGMENTS, size: 9, headers: 42 });
        assert!(!follows(&|next| next.offload = next.offload.map(|left| Offload { cut, ..left })));
    }

    #[test]
    fn any_offload_metadata_of_a_neighbour_is_tolerated() {
        let whole = sent(false, 1, (5, 53), &[7; 18]);
        for (len, start) in
            (0..=60).flat_map(|len| [0, 9, 13, 14, 20, 34, 54, u16::MAX].map(|start| (len, start)))
        {
            let mut frame = Frame::default();
            frame.fill(&whole.bytes()[..len]);
            frame.offload = Some(Offload { checksum: Some((start, CHECKSUM as u16)), cut: None });
            assert_eq!(GsoBatch::of(&frame, 0).is_some(), (len, start) == (60, 34), "{len}, {start}");
        }
    }

    #[test]
    fn a_gso_batch_ends_before_a_length_or_a_number_that_a_kernel_refuses() {
        for (size, most) in [(18, 64), (1400, 46)] {
            let frames: Vec<Frame> = (0..200).map(|id| sent(false, id, (5, 53), &vec![7; size])).collect();
            let (cut, messages) = through(&frames);
            assert_eq!((cut.len(), messages), (200, 200usize.div_ceil(most)), "{size}");
        }
    }

    impl Frame {
        /// Other bytes, with the same left to do.
        fn fill_again(&mut self, bytes: &[u8]) {
            let left = self.offload;
            self.fill(bytes);
            self.offload = left;
        }
    }
}
