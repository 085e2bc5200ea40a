//! Batches of frames, in the buffer that they were read into.

use super::Packet;

/// Bytes per read: large enough to amortise system calls, small enough to stay in a core's L2 cache.
pub(super) const WINDOW_BYTES: usize = 1 << 18;

/// Usual maximum length of a record: space after a window for the rest of its last record.
const RECORD_TAIL_BYTES: usize = 1 << 14;

/// Buffers of frames.
#[derive(Default, Debug)]
pub(super) struct Store {
    /// A part of the file.
    pub(super) window: Vec<u8>,
    /// Frames that were given an Ethernet header, consecutively.
    pub(super) converted: Vec<u8>,
}

impl Store {
    /// Empties the buffers, and makes the window long enough for a usual last record.
    pub(super) fn make_room(&mut self) {
        self.converted.clear();
        // An exceptionally long block may have grown the window.
        if !(WINDOW_BYTES..=2 * WINDOW_BYTES).contains(&self.window.len()) {
            // Zeroed by the system on first access.
            self.window = vec![0; WINDOW_BYTES + RECORD_TAIL_BYTES];
        }
    }

    /// Grows the window to at least `len` bytes, keeping its contents.
    pub(super) fn grow(&mut self, len: usize) {
        if self.window.len() < len {
            self.window.resize(len, 0);
        }
    }

    #[inline]
    pub(super) fn packet(&self, span: &FrameSpan) -> Packet<'_> {
        let store = if span.is_converted { &self.converted } else { &self.window };
        let bytes = &store[span.begin as usize..span.end as usize];
        Packet { time_ns: span.time_ns, len: span.len, bytes }
    }
}

/// Position of a frame in a store.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct FrameSpan {
    pub(super) begin: u32,
    pub(super) end: u32,
    /// Original length.
    pub(super) len: u32,
    pub(super) is_converted: bool,
    pub(super) time_ns: u64,
}

/// Some thousands of frames of a capture: see [`CaptureReader::next_batch`](super::CaptureReader::next_batch). It can be
/// sent to another thread; its memory is reused for the next frames.
#[derive(Default, Debug)]
pub struct Batch {
    pub(super) store: Store,
    pub(super) spans: Vec<FrameSpan>,
    pub(super) first: u64,
}

impl Batch {
    /// Returns the frames.
    pub fn packets(&self) -> impl ExactSizeIterator<Item = Packet<'_>> {
        self.spans.iter().map(|span| self.store.packet(span))
    }

    /// Returns frame `i`.
    ///
    /// # Panics
    /// If there are not more than `i` frames.
    #[inline]
    pub fn packet(&self, i: usize) -> Packet<'_> {
        self.store.packet(&self.spans[i])
    }

    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the memory of the frames in bytes.
    pub fn bytes(&self) -> usize {
        self.store.window.len() + self.store.converted.len() + size_of_val(&self.spans[..])
    }

    /// Returns whether there are no frames, which means the end of the capture.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the number of the first frame in its capture, from 0.
    pub fn first(&self) -> u64 {
        self.first
    }
}
