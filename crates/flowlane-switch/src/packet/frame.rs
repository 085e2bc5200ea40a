//! A frame in memory, with room in front for headers that actions push.

use std::ops::{Deref, DerefMut, Range};

use flowlane::packet::Captured;

/// Bytes kept free in front of a received frame: the outer headers of a tunnel over IPv6 (70), and then some VLAN tags
/// and labels.
pub const HEADROOM: usize = 128;

/// Bytes of an Ethernet header, or of its place.
pub const ETHERNET_BYTES: usize = 14;

/// Offload metadata: work that a kernel has left to the sender of a frame, as to a network card (virtio 1.2 §5.1.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// Where a checksum is to be completed: where what it covers begins, and its place behind that, which holds the sum of the
    /// pseudo header.
    pub checksum: Option<(u16, u16)>,
    /// The frame is to be cut.
    pub cut: Option<Cut>,
}

/// Into what a frame is to be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// As virtio names it, the bit for ECN included.
    pub kind: u8,
    /// Bytes of payload of each frame.
    pub size: u16,
    /// Bytes of headers, which each of them gets.
    pub headers: u16,
}

/// The queue of a port that a frame is to be sent through: as the minor number of its class (tc(8)), so that no queue is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Queue(u16);

impl Queue {
    /// The port's default queue, as no action has chosen one.
    pub(crate) const NONE: Self = Self(0);

    /// The queue of this number; none beyond those that a port may have, as in Open vSwitch.
    pub(crate) fn of(number: u32) -> Option<Self> {
        (number < QUEUES_MAX).then(|| Self(number as u16 + 1))
    }

    /// The minor number of its class.
    pub(crate) fn class(self) -> u16 {
        self.0
    }
}

/// The most queues of a port: the minor numbers of classes beyond are for the classes that queues share.
pub(crate) const QUEUES_MAX: u32 = 0xf000;

/// A frame. Its buffer is reused from burst to burst and grows only when a longer frame comes.
#[derive(Debug)]
pub struct Frame {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Time of arrival, nanoseconds since the epoch; a capture's own time where the port replays one.
    pub time_ns: u64,
    /// How long it was when it came, out of its tunnel where it came in one: what rules count, whatever is pushed and popped.
    pub(crate) counted: u32,
    /// Work to be done before it goes over a wire; only while rules do nothing but forward.
    pub offload: Option<Offload>,
    /// Bytes at its end that a capture has not; they are zeros.
    missing: u32,
    /// The packet has no Ethernet header: the bytes in its place are zeros and the EtherType.
    is_bare: bool,
    /// The patch ports that it has passed.
    pub(crate) patches: u8,
    /// The queue that an action has chosen for it.
    pub(crate) queue: Queue,
}

impl Default for Frame {
    fn default() -> Self {
        // Not a power of two: the beginnings of a burst's frames must not all fall into the same few sets of
        // the cache.
        Self { buffer: vec![0; 2048 + 3 * 64], ..Self::empty() }
    }
}

impl Frame {
    /// An empty frame with room for `len` bytes. The system commits touched pages only.
    pub fn with_room(len: usize) -> Self {
        Self { buffer: vec![0; HEADROOM + len + 3 * 64], ..Self::empty() }
    }

    /// How many bytes it may have without a larger buffer.
    pub fn room(&self) -> usize {
        self.buffer.len().saturating_sub(HEADROOM)
    }

    /// Without a buffer.
    fn empty() -> Self {
        Self {
            buffer: Vec::new(),
            start: HEADROOM,
            end: HEADROOM,
            time_ns: 0,
            counted: 0,
            offload: None,
            missing: 0,
            is_bare: false,
            patches: 0,
            queue: Queue::NONE,
        }
    }

    /// The frame, from its Ethernet header on.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The frame, to be changed in place.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Returns whether the packet has no Ethernet header. The bytes in its place are zeros and the EtherType, so that the parser and
    /// all edits know one layout.
    #[inline]
    pub fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// Sets whether the packet has an Ethernet header.
    pub fn set_bare(&mut self, is_bare: bool) {
        self.is_bare = is_bare;
    }

    /// The packet: the frame, or the bytes behind the place of an Ethernet header that the packet does not have.
    pub fn packet(&self) -> &[u8] {
        let placeholder = if self.is_bare { ETHERNET_BYTES } else { 0 };
        self.bytes().get(placeholder..).unwrap_or_default()
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// Replaces the content by a copy of `data`.
    #[inline]
    pub fn fill(&mut self, data: &[u8]) {
        self.space(data.len()).copy_from_slice(data);
    }

    /// Replaces the content by a packet of this EtherType without an Ethernet header.
    pub fn fill_bare(&mut self, eth_type: u16, packet: &[u8]) {
        let (placeholder, rest) = self.space(ETHERNET_BYTES + packet.len()).split_at_mut(ETHERNET_BYTES);
        placeholder.fill(0);
        placeholder[ETHERNET_BYTES - 2..].copy_from_slice(&eth_type.to_be_bytes());
        rest.copy_from_slice(packet);
        self.is_bare = true;
    }

    /// Becomes a copy of another frame, with all that is known of it.
    pub fn copy_from(&mut self, other: &Frame) {
        self.fill(other.bytes());
        (self.time_ns, self.counted) = (other.time_ns, other.counted);
        (self.offload, self.missing, self.is_bare) = (other.offload, other.missing, other.is_bare);
        (self.patches, self.queue) = (other.patches, other.queue);
    }

    /// Takes from another frame, of which this one is a changed copy, when it came, its counted length, the patch ports that it has
    /// passed and its queue.
    pub(crate) fn continue_as(&mut self, other: &Frame) {
        (self.time_ns, self.counted) = (other.time_ns, other.counted);
        (self.patches, self.queue) = (other.patches, other.queue);
    }

    /// Replaces the content by a frame of `len` bytes of which a capture has the first: zeros stand for the others.
    pub fn fill_captured(&mut self, captured: &[u8], len: usize) {
        let len = len.max(captured.len());
        let (first, rest) = self.space(len).split_at_mut(captured.len());
        first.copy_from_slice(captured);
        rest.fill(0);
        self.missing = rest.len() as u32;
    }

    /// Returns whether a copy of the bytes is not a copy of the frame: it has offloads, no Ethernet header, or a capture lacks its
    /// end.
    #[inline]
    pub fn has_metadata(&self) -> bool {
        self.offload.is_some() || self.missing > 0 || self.is_bare
    }

    /// Returns the frame as its capture has it: without the zeros at its end, and possibly from before a network card cut it
    /// into packets.
    pub fn captured(&self) -> Captured<'_> {
        let captured = self.len().saturating_sub(self.missing as usize);
        Captured::new(&self.bytes()[..captured], self.len()).uncut()
    }

    /// Makes the frame `len` bytes long and returns them, their content unspecified: for a port that
    /// reads into them.
    #[inline]
    pub fn space(&mut self, len: usize) -> &mut [u8] {
        self.start = HEADROOM;
        self.end = HEADROOM + len;
        (self.offload, self.missing, self.is_bare) = (None, 0, false);
        (self.patches, self.queue) = (0, Queue::NONE);
        if self.end > self.buffer.len() {
            self.buffer.resize(self.end.next_power_of_two(), 0);
        }
        &mut self.buffer[HEADROOM..HEADROOM + len]
    }

    /// Shortens the frame to its first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        let cut = self.len().saturating_sub(len);
        self.end -= cut;
        self.missing = self.missing.saturating_sub(cut as u32);
    }

    /// Replaces a part of the frame by other bytes, of which there may be more or fewer.
    ///
    /// # Panics
    /// If the part is not within the frame.
    pub fn replace(&mut self, part: Range<usize>, bytes: &[u8]) {
        let (from, to) = (self.start + part.start, self.start + part.end);
        assert!(to <= self.end, "a part of the frame");
        let end = self.end + bytes.len() - part.len();
        if end > self.buffer.len() {
            self.buffer.resize(end.next_power_of_two(), 0);
        }
        self.buffer.copy_within(to..self.end, from + bytes.len());
        self.buffer[from..from + bytes.len()].copy_from_slice(bytes);
        self.end = end;
    }

    /// Removes `n` bytes in front; all of them where there are fewer.
    pub fn pull(&mut self, n: usize) {
        self.start = self.end.min(self.start + n);
    }

    /// Adds `n` bytes in front, their content unspecified.
    pub fn push(&mut self, n: usize) {
        if n > self.start {
            let more = n - self.start + HEADROOM;
            self.buffer.splice(0..0, std::iter::repeat_n(0, more));
            self.start += more;
            self.end += more;
        }
        self.start -= n;
    }
}

/// Frames that came together. Their buffers stay with it.
#[derive(Debug, Default)]
pub struct Frames {
    frames: Vec<Frame>,
    len: usize,
    limit: usize,
}

impl Frames {
    /// Room for up to `capacity` frames.
    pub fn new(capacity: usize) -> Self {
        Self { frames: (0..capacity).map(|_| Frame::default()).collect(), len: 0, limit: capacity }
    }

    /// The most frames that it holds.
    pub fn capacity(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether no further frame fits.
    pub fn is_full(&self) -> bool {
        self.len == self.limit
    }

    /// Forgets the frames; their buffers stay.
    pub fn clear(&mut self) {
        self.clear_for(u64::MAX);
    }

    /// Removes all frames, and accepts at most `most` until it is cleared again.
    pub fn clear_for(&mut self, most: u64) {
        self.len = 0;
        self.limit = self.frames.len().min(usize::try_from(most).unwrap_or(usize::MAX));
    }

    /// A further frame to be filled; none where there is no room.
    #[inline]
    pub fn next_frame(&mut self) -> Option<&mut Frame> {
        if self.is_full() {
            return None;
        }
        self.len += 1;
        self.frames.get_mut(self.len - 1)
    }

    /// Forgets those behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Takes back the last frame: a port that got nothing to fill it with.
    pub fn unget(&mut self) {
        self.len = self.len.saturating_sub(1);
    }
}

impl Deref for Frames {
    type Target = [Frame];

    #[inline]
    fn deref(&self) -> &[Frame] {
        &self.frames[..self.len]
    }
}

impl DerefMut for Frames {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Frame] {
        &mut self.frames[..self.len]
    }
}
