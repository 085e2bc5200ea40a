//! Many frames at once, where they were read to.

use super::Packet;

/// Bytes of the file that are read at once: enough that asking the system is no cost, few enough to stay in a core's cache.
pub(super) const WINDOW: usize = 1 << 18;

/// Bytes that a record seldom exceeds: room behind a window for the rest of the last one.
const RECORD: usize = 1 << 14;

/// Bytes that frames lie in.
#[derive(Default, Debug)]
pub(super) struct Store {
    /// A part of a file.
    pub(super) window: Vec<u8>,
    /// Frames with an Ethernet header that they did not have, one behind the other.
    pub(super) made: Vec<u8>,
}

impl Store {
    /// Makes the window as long as one is that ends with a usual record, and forgets what is in it.
    pub(super) fn make_room(&mut self) {
        self.made.clear();
        // A block that was longer than all others may have left it longer.
        if !(WINDOW..=2 * WINDOW).contains(&self.window.len()) {
            // Zeroed by the system, as far as it is touched.
            self.window = vec![0; WINDOW + RECORD];
        }
    }

    /// Makes the window at least so long; what is in it stays.
    pub(super) fn grow(&mut self, len: usize) {
        if self.window.len() < len {
            self.window.resize(len, 0);
        }
    }

    #[inline]
    pub(super) fn packet(&self, place: &Place) -> Packet<'_> {
        let store = if place.is_made { &self.made } else { &self.window };
        let bytes = &store[place.begin as usize..place.end as usize];
        Packet { time_ns: place.time_ns, len: place.len, bytes }
    }
}

/// Where in a store a frame is.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Place {
    pub(super) begin: u32,
    pub(super) end: u32,
    /// Bytes that it had.
    pub(super) len: u32,
    pub(super) is_made: bool,
    pub(super) time_ns: u64,
}

/// Frames of a capture, some thousands: see [`CaptureReader::next_batch`](super::CaptureReader::next_batch). It can be given to
/// another thread, and its memory is used again for the next frames.
#[derive(Default, Debug)]
pub struct Batch {
    pub(super) store: Store,
    pub(super) places: Vec<Place>,
    pub(super) first: u64,
}

impl Batch {
    /// The frames.
    pub fn packets(&self) -> impl ExactSizeIterator<Item = Packet<'_>> {
        self.places.iter().map(|place| self.store.packet(place))
    }

    /// One of them.
    ///
    /// # Panics
    /// Where there are not so many.
    #[inline]
    pub fn packet(&self, i: usize) -> Packet<'_> {
        self.store.packet(&self.places[i])
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Bytes that they lie in.
    pub fn bytes(&self) -> usize {
        self.store.window.len() + self.store.made.len() + size_of_val(&self.places[..])
    }

    /// Whether there are none: the capture is at its end.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The number of the first one in its capture, from 0.
    pub fn first(&self) -> u64 {
        self.first
    }
}
