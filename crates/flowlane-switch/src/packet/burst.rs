//! Packets that are under way together.

use std::collections::BTreeMap;

use flowlane::packet::Headers;
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::key::FlowKey;
use flowlane::rule::action::PortNo;

use super::frame::Frames;

/// Packets that go through the switch together, a lane each: what one stage finds out of them the next ones use.
///
/// All came in through one port. Buffers are used again from burst to burst.
#[derive(Debug)]
pub struct Burst {
    pub frames: Frames,
    /// By lane, as all that follows. Of lanes that have a frame.
    pub keys: Vec<FlowKey>,
    /// Where headers are, or why the packet is malformed.
    pub headers: Vec<Headers>,
    /// When each came, in nanoseconds: not before those in front of it.
    pub times_ns: [u64; LANES_MAX],
    /// The place of the port that they came in through.
    pub port: usize,
    /// Lanes whose packet has been sent somewhere.
    pub sent: LaneMask,
    /// Lanes whose packet an action says came in through another port.
    pub sources: BTreeMap<usize, PortNo>,
    /// Another worker has given them to this one, for its share of the stage that they have come to.
    pub is_handed_over: bool,
}

impl Default for Burst {
    /// Without room for anything.
    fn default() -> Self {
        Self::new(0)
    }
}

impl Burst {
    /// A burst of up to `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        Self {
            frames: Frames::new(capacity),
            keys: vec![FlowKey::zero(); capacity],
            headers: vec![Headers::default(); capacity],
            times_ns: [0; LANES_MAX],
            port: 0,
            sent: LaneMask(0),
            sources: BTreeMap::new(),
            is_handed_over: false,
        }
    }

    /// The most packets that it holds.
    pub fn capacity(&self) -> usize {
        self.frames.capacity()
    }

    /// Number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether there are no packets.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// All lanes that have a packet.
    #[inline]
    pub fn lanes(&self) -> LaneMask {
        LaneMask::first(self.len())
    }

    /// Makes room for up to `most` packets that come in through the port at place `port`.
    pub fn clear_for(&mut self, port: usize, most: u64) {
        self.frames.clear_for(most);
        self.start(port);
    }

    /// The frames have come in through the port at place `port`, and nothing has been done with them.
    pub fn start(&mut self, port: usize) {
        (self.port, self.sent, self.is_handed_over) = (port, LaneMask(0), false);
        self.sources.clear();
    }

    /// Returns the port that a lane's packet came in through, if an action says that it is another one.
    #[inline]
    pub fn source(&self, lane: usize) -> Option<PortNo> {
        if self.sources.is_empty() { None } else { self.sources.get(&lane).copied() }
    }

    /// Takes a copy of one lane of another burst as its only packet.
    pub fn copy_lane(&mut self, other: &Burst, lane: usize) {
        self.clear_for(other.port, 1);
        self.frames.next_frame().expect("there is room").copy_from(&other.frames[lane]);
        self.keys[0].clone_from(&other.keys[lane]);
        (self.headers[0], self.times_ns[0]) = (other.headers[lane], other.times_ns[lane]);
        self.sources.extend(other.source(lane).map(|source| (0, source)));
    }

    /// Adds a packet that is parsed already, without the frame's own time.
    ///
    /// # Panics
    /// Where there is no room.
    pub fn push(&mut self, bytes: &[u8], key: &FlowKey, headers: Headers, time_ns: u64) {
        let lane = self.len();
        self.frames.next_frame().expect("there is room").fill(bytes);
        self.keys[lane].clone_from(key);
        (self.headers[lane], self.times_ns[lane]) = (headers, time_ns);
    }
}
