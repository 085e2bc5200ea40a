//! How frames lie in the buffers and rings of a socket.
//!
//! A frame lies in one buffer, or in several whose descriptors follow each other: all but the last say that the frame goes on
//! (`XDP_PKT_CONTD`, Linux 6.6). In front of a frame that leaves, its buffer may have metadata: where a checksum is to be completed
//! (`XDP_TX_METADATA`, Linux 6.8).
//!
//! ```text
//! buffer     ┊ 48 bytes ┊ metadata (16) ┊ frame, up to 4,032 bytes ┊      ┊ 64 bytes ┊ the rest of the frame ┊
//! descriptor                             ╰ length, CONTD | METADATA                   ╰ length
//! ```

use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::memory::{BUFFER, Buffers, Drained, Filled};
use crate::packet::{Frame, Frames};

/// Bytes of a buffer in front of a frame that leaves: a cache line, whose end is the metadata.
const FRONT: usize = 64;

/// Bytes of metadata in front of a frame that leaves: flags, and a request (`struct xsk_tx_metadata`).
pub(super) const METADATA: usize = 16;

/// Bytes of a frame in each buffer.
const PART: usize = BUFFER - FRONT;

/// Buffers of a frame that leaves, at most: the fragments of a packet of the kernel (`MAX_SKB_FRAGS`), which loses the buffers of
/// longer ones.
const PARTS_MAX: usize = 17;

/// The longest frame that is received: as long as those of packet sockets.
const FRAME_MAX: usize = 65_536 + 256;

const CONTINUED: XdpDescOptions = XdpDescOptions::XDP_PKT_CONTD;
const WITH_METADATA: XdpDescOptions = XdpDescOptions::from_bits_retain(libc::XDP_TX_METADATA);

/// Abilities of a socket beyond frames of one buffer, as the kernel has accepted them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// Frames may lie in several buffers.
    pub several_buffers: bool,
    /// The kernel completes checksums of frames that leave.
    pub checksums: bool,
}

/// The rings of a socket, and its buffers: some for frames that come, the others for those that go.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) fill: Filled<u64>,
    pub(super) received: Drained<XdpDesc>,
    pub(super) outgoing: Filled<XdpDesc>,
    pub(super) sent: Drained<u64>,
    pub(super) buffers: Buffers,
    pub(super) features: Features,
    /// Unused transmit buffers.
    free: Vec<u64>,
    /// A frame whose end has not come yet.
    assembly: Assembly,
    /// Frames that were received and dropped.
    pub(super) lost: u64,
}

/// The place of a buffer.
fn place(buffer: u32) -> u64 {
    u64::from(buffer) * BUFFER as u64
}

/// The place of the buffer that a frame lies in.
fn buffer_of(address: u64) -> u64 {
    address & !(BUFFER as u64 - 1)
}

impl Rings {
    /// Rings without frames, and `each` buffers either way.
    pub(super) fn new(
        (mut fill, received): (Filled<u64>, Drained<XdpDesc>),
        (outgoing, sent): (Filled<XdpDesc>, Drained<u64>),
        (buffers, each): (Buffers, u32),
        features: Features,
    ) -> Self {
        (0..each).for_each(|buffer| _ = fill.push(place(buffer)));
        fill.publish();
        let free = (each..2 * each).map(place).collect();
        let assembly = Assembly::default();
        Self { fill, received, outgoing, sent, buffers, features, free, assembly, lost: 0 }
    }

    /// Takes frames until there is no room or there are none; each is given to `finish`. Returns whether there may be more.
    #[inline]
    pub(super) fn receive(
        &mut self,
        frames: &mut Frames,
        time_ns: u64,
        mut finish: impl FnMut(&mut Frame),
    ) -> bool {
        let mut any = false;
        while !frames.is_full() {
            let Some(descriptor) = self.received.pop() else { break };
            any = true;
            let bytes = self.buffers.bytes_mut(descriptor.addr, descriptor.len as usize);
            let goes_on = descriptor.options.contains(CONTINUED);
            let whole = match goes_on || self.assembly.is_open {
                false => Some(&*bytes),
                true => self.assembly.add(bytes, goes_on, &mut self.lost),
            };
            if let Some(bytes) = whole {
                let frame = frames.next_frame().expect("it is not full");
                frame.fill(bytes);
                frame.time_ns = time_ns;
                finish(frame);
            }
            // There are no more buffers than the ring has places.
            self.fill.push(buffer_of(descriptor.addr));
        }
        if any {
            self.received.release();
            self.fill.publish();
        }
        frames.is_full()
    }

    /// Puts a frame into the ring, whole; returns whether there was room.
    #[inline]
    pub(super) fn put(&mut self, frame: &Frame) -> bool {
        let (bytes, parts) = (frame.bytes(), frame.len().div_ceil(PART));
        let parts_max = if self.features.several_buffers { PARTS_MAX } else { 1 };
        let checksum = frame.offload.and_then(|offload| offload.checksum);
        if !(1..=parts_max).contains(&parts) || checksum.is_some() && !self.features.checksums {
            return false;
        }
        if self.free.len() < parts {
            self.take_back();
        }
        // There are no more buffers than the ring has places.
        let Some(rest) = self.free.len().checked_sub(parts) else { return false };
        for (n, (part, place)) in bytes.chunks(PART).zip(self.free.drain(rest..)).enumerate() {
            let addr = place + FRONT as u64;
            self.buffers.bytes_mut(addr, part.len()).copy_from_slice(part);
            let mut options = XdpDescOptions::empty();
            options.set(CONTINUED, n + 1 < parts);
            if let Some(checksum) = checksum.filter(|_| n == 0) {
                options |= WITH_METADATA;
                let metadata = self.buffers.bytes_mut(addr - METADATA as u64, METADATA);
                metadata.copy_from_slice(&request(checksum));
            }
            self.outgoing.push(XdpDesc { addr, len: part.len() as u32, options });
        }
        true
    }

    /// Takes buffers back whose frames have been sent.
    pub(super) fn take_back(&mut self) {
        let before = self.free.len();
        while let Some(address) = self.sent.pop() {
            self.free.push(buffer_of(address));
        }
        if self.free.len() > before {
            self.sent.release();
        }
    }

    /// Returns the number of frames that the kernel has not consumed: those whose last buffer is left.
    pub(super) fn unsent(&self) -> usize {
        self.outgoing.untaken_values().filter(|descriptor| !descriptor.options.contains(CONTINUED)).count()
    }

    /// Drops the frames that have been received and not taken, and returns their number.
    pub(super) fn discard(&mut self) -> u64 {
        let mut discarded = 0;
        while let Some(descriptor) = self.received.pop() {
            self.assembly.is_open = descriptor.options.contains(CONTINUED);
            discarded += u64::from(!self.assembly.is_open);
        }
        discarded + u64::from(std::mem::take(&mut self.assembly).is_open)
    }
}

/// The metadata that asks for a checksum to be completed: where what it covers begins, and its place behind that.
fn request((start, offset): (u16, u16)) -> [u8; METADATA] {
    let mut metadata = [0; METADATA];
    metadata[..8].copy_from_slice(&u64::from(libc::XDP_TXMD_FLAGS_CHECKSUM).to_ne_bytes());
    metadata[8..10].copy_from_slice(&start.to_ne_bytes());
    metadata[10..12].copy_from_slice(&offset.to_ne_bytes());
    metadata
}

/// A frame of which some buffers have come.
#[derive(Debug, Default)]
struct Assembly {
    bytes: Vec<u8>,
    /// Its end has not come yet.
    is_open: bool,
    /// It is longer than any frame may be, and is dropped.
    is_too_long: bool,
}

impl Assembly {
    /// Adds a buffer's part. Returns the frame at its end, unless it is too long, which counts as lost.
    #[cold]
    fn add(&mut self, part: &[u8], goes_on: bool, lost: &mut u64) -> Option<&[u8]> {
        if !std::mem::replace(&mut self.is_open, goes_on) {
            self.bytes.clear();
            self.is_too_long = false;
        }
        self.is_too_long |= self.bytes.len() + part.len() > FRAME_MAX;
        if !self.is_too_long {
            self.bytes.extend_from_slice(part);
        }
        let is_lost = !goes_on && self.is_too_long;
        *lost += u64::from(is_lost);
        (!goes_on && !is_lost).then_some(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use flowlane::generate::Random;

    use super::super::memory::ends;
    use super::*;
    use crate::packet::Offload;

    /// Buffers each way, and places of each ring.
    const EACH: u32 = 64;

    /// The kernel's ends of the rings of a socket.
    struct Kernel {
        fill: ManuallyDrop<Drained<u64>>,
        received: ManuallyDrop<Filled<XdpDesc>>,
        outgoing: ManuallyDrop<Drained<XdpDesc>>,
        sent: ManuallyDrop<Filled<u64>>,
    }

    fn rings(features: Features) -> (Rings, Kernel) {
        let (fill, fill_end) = ends(EACH);
        let (received_end, received) = ends(EACH);
        let (outgoing, outgoing_end) = ends(EACH);
        let (sent_end, sent) = ends(EACH);
        // Both ends of a ring are of one mapping.
        let kernel = Kernel {
            fill: ManuallyDrop::new(fill_end),
            received: ManuallyDrop::new(received_end),
            outgoing: ManuallyDrop::new(outgoing_end),
            sent: ManuallyDrop::new(sent_end),
        };
        let buffers = (Buffers::new(2 * EACH as usize).unwrap(), EACH);
        (Rings::new((fill, received), (outgoing, sent), buffers, features), kernel)
    }

    const ALL: Features = Features { several_buffers: true, checksums: true };

    fn bytes(len: usize, seed: u64) -> Vec<u8> {
        let mut random = Random::new(seed);
        (0..len).map(|_| random.below(256) as u8).collect()
    }

    fn frame(bytes: &[u8]) -> Frame {
        let mut frame = Frame::default();
        frame.fill(bytes);
        frame
    }

    impl Kernel {
        /// Hands over parts of a frame; `ends` says whether the last is its end.
        fn give(&mut self, rings: &mut Rings, parts: &[&[u8]], ends: bool) {
            for (n, part) in parts.iter().enumerate() {
                let addr = self.fill.pop().expect("a buffer is free") + 256;
                rings.buffers.bytes_mut(addr, part.len()).copy_from_slice(part);
                let mut options = XdpDescOptions::empty();
                options.set(CONTINUED, !ends || n + 1 < parts.len());
                assert!(self.received.push(XdpDesc { addr, len: part.len() as u32, options }));
            }
            self.fill.release();
            self.received.publish();
        }

        /// Sends up to `most` frames, and returns them with their metadata.
        fn take(&mut self, rings: &mut Rings, most: usize) -> Vec<(Vec<u8>, Option<[u8; METADATA]>)> {
            let (mut all, mut whole, mut metadata) = (Vec::new(), Vec::new(), None);
            while all.len() < most {
                let Some(descriptor) = self.outgoing.pop() else { break };
                if descriptor.options.contains(WITH_METADATA) {
                    assert!(whole.is_empty(), "metadata is in front of the first part");
                    let at = descriptor.addr - METADATA as u64;
                    metadata = rings.buffers.bytes_mut(at, METADATA).first_chunk().copied();
                }
                assert!(
                    buffer_of(descriptor.addr) == buffer_of(descriptor.addr + u64::from(descriptor.len) - 1)
                );
                whole.extend_from_slice(rings.buffers.bytes_mut(descriptor.addr, descriptor.len as usize));
                assert!(self.sent.push(descriptor.addr));
                if !descriptor.options.contains(CONTINUED) {
                    all.push((std::mem::take(&mut whole), metadata.take()));
                }
            }
            assert!(whole.is_empty(), "a frame in the ring has its end");
            self.outgoing.release();
            self.sent.publish();
            all
        }

        /// Buffers that the kernel may receive into.
        fn to_fill(&self) -> u32 {
            self.fill.ready()
        }
    }

    /// Receives all that is ready.
    fn received(rings: &mut Rings) -> Vec<Vec<u8>> {
        let mut frames = Frames::new(200);
        assert!(!rings.receive(&mut frames, 7, |_| {}));
        assert!(frames.iter().all(|frame| frame.time_ns == 7));
        frames.iter().map(|frame| frame.bytes().to_vec()).collect()
    }

    #[test]
    fn frames_of_several_buffers_come_whole_however_their_buffers_come() {
        let (mut rings, mut kernel) = rings(ALL);
        let (short, long) = (bytes(60, 1), bytes(9000, 2));
        let parts: Vec<&[u8]> = long.chunks(3840).collect();
        for _ in 0..50 {
            kernel.give(&mut rings, &[&short], true);
            kernel.give(&mut rings, &parts, true);
            kernel.give(&mut rings, &[&short], true);
            assert!(received(&mut rings) == [&short, &long, &short].map(Clone::clone));
            // The end comes later.
            kernel.give(&mut rings, &[&short], true);
            kernel.give(&mut rings, &parts[..2], false);
            assert!(received(&mut rings) == [&*short]);
            assert!(received(&mut rings).is_empty());
            kernel.give(&mut rings, &parts[2..], true);
            assert!(received(&mut rings) == [&*long]);
            assert_eq!((kernel.to_fill(), rings.lost), (EACH, 0));
        }
        // No room in the burst is left for the frame behind a long one.
        kernel.give(&mut rings, &parts, true);
        kernel.give(&mut rings, &[&short], true);
        let mut one = Frames::new(1);
        for expected in [&long, &short] {
            one.clear();
            assert!(rings.receive(&mut one, 7, |_| {}));
            assert!(one[0].bytes() == &**expected);
        }
        assert_eq!(kernel.to_fill(), EACH);
    }

    #[test]
    fn frames_that_are_too_long_or_empty_are_dropped_and_no_buffer_is_lost() {
        let (mut rings, mut kernel) = rings(ALL);
        let part = bytes(3840, 3);
        for lost in 1..20 {
            // 69,120 bytes in two goes.
            kernel.give(&mut rings, &[&*part; 9], false);
            assert!(received(&mut rings).is_empty());
            kernel.give(&mut rings, &[&*part; 9], true);
            kernel.give(&mut rings, &[&[]], true);
            kernel.give(&mut rings, &[&part, &[], &part], true);
            let came: Vec<usize> = received(&mut rings).iter().map(Vec::len).collect();
            assert_eq!(came, [0, 7680]);
            assert_eq!((kernel.to_fill(), rings.lost), (EACH, lost));
        }
        // Descriptors that stay when the interface goes: two frames, and one without its end.
        kernel.give(&mut rings, &[&part, &part], true);
        kernel.give(&mut rings, &[&part], true);
        kernel.give(&mut rings, &[&part, &part], false);
        assert_eq!(rings.discard(), 3);
        assert_eq!(rings.discard(), 0);
    }

    #[test]
    fn frames_leave_whole_or_not_at_all_and_all_buffers_come_back() {
        let (mut rings, mut kernel) = rings(ALL);
        let mut random = Random::new(9);
        let (mut in_ring, mut refused) = (Vec::new(), 0);
        for round in 0..2000 {
            let len = match random.below(4) {
                0 => 1 + random.below(100),
                1 => 4030 + random.below(5),
                2 => 1 + random.below(9000),
                _ => 1 + random.below(17 * PART as u64),
            };
            let (sent, free) = (bytes(len as usize, round), rings.free.len());
            match rings.put(&frame(&sent)) {
                true => in_ring.push(sent),
                false => {
                    assert!(free < sent.len().div_ceil(PART), "{free} free for {len}");
                    refused += 1;
                }
            }
            rings.outgoing.publish();
            assert_eq!(rings.unsent(), in_ring.len());
            if random.below(3) == 0 {
                let most = random.below(5) as usize;
                for (came, metadata) in kernel.take(&mut rings, most) {
                    assert!(came == in_ring.remove(0) && metadata.is_none());
                }
            }
        }
        assert!(refused > 100, "{refused}");
        assert_eq!(kernel.take(&mut rings, usize::MAX).len(), in_ring.len());
        assert_eq!(rings.unsent(), 0);
        rings.take_back();
        assert_eq!(rings.free.len(), EACH as usize);
        let mut places = rings.free.clone();
        places.sort_unstable();
        assert!(places == (EACH..2 * EACH).map(place).collect::<Vec<_>>());
    }

    #[test]
    fn what_the_kernel_has_not_accepted_is_refused_and_nothing_is_taken() {
        let short = bytes(60, 1);
        for features in [Features::default(), Features { checksums: true, several_buffers: false }, ALL] {
            let (mut rings, mut kernel) = rings(features);
            let mut left = frame(&short);
            left.offload = Some(Offload { checksum: Some((34, 16)), cut: None });
            assert_eq!(rings.put(&left), features.checksums);
            assert_eq!(rings.put(&frame(&bytes(PART + 1, 2))), features.several_buffers);
            assert!(rings.put(&frame(&bytes(PART, 3))));
            for len in [0, PARTS_MAX * PART + 1] {
                assert!(!rings.put(&frame(&bytes(len, 4))), "{len}");
            }
            rings.outgoing.publish();
            let sent = kernel.take(&mut rings, usize::MAX);
            assert_eq!(sent.last().unwrap().0.len(), PART);
            if features.checksums {
                let metadata = sent[0].1.unwrap();
                assert_eq!(metadata[..8], 2u64.to_ne_bytes());
                assert_eq!(metadata[8..12], [34u16.to_ne_bytes(), 16u16.to_ne_bytes()].concat());
            }
            assert!(sent.iter().filter(|(_, metadata)| metadata.is_some()).count() <= 1);
            rings.take_back();
            assert_eq!(rings.free.len(), EACH as usize);
        }
    }
}
