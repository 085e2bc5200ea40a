//! The file, as far as it has been read.

use std::io::Read;
use std::ops::Range;

use super::batch::{Place, Store, WINDOW};
use super::link::LinkType;
use super::shared::At;
use super::{BLOCK_MAX, CaptureError, FRAME_MAX};

/// The file, and where in it we are.
pub(super) struct Source<R> {
    input: R,
    /// A part of the file, which begins with a record and grows until it ends with one, and frames that were made from it.
    pub(super) store: Store,
    /// What of the store's window is yet to be read.
    ahead: Range<usize>,
    /// Where in the file that begins.
    pub(super) offset: u64,
    /// The number of the record that is being read, and where it began.
    pub(super) record: u64,
    start: u64,
    /// Where in the window the rest of the record is.
    block: Range<usize>,
    /// The latest frame.
    pub(super) place: Place,
    /// Where the part of the file ends that is being read, where it is read in parts.
    part_end: Option<u64>,
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            store: Store::default(),
            ahead: 0..0,
            offset: 0,
            record: 0,
            start: 0,
            block: 0..0,
            place: Place::default(),
            part_end: None,
        }
    }

    /// Whether the next record begins another window, or part: frames in the store are forgotten then.
    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        match self.part_end {
            None => self.ahead.is_empty(),
            Some(end) => self.offset >= end,
        }
    }

    /// Whether the file is read in parts.
    #[inline]
    pub(super) fn is_in_parts(&self) -> bool {
        self.part_end.is_some()
    }

    /// Reads on until `len` bytes are ahead, or all that are left. What is in the window stays there.
    #[inline]
    fn look(&mut self, len: usize) -> Result<(), CaptureError> {
        if self.ahead.len() >= len { Ok(()) } else { self.complete(len) }
    }

    /// Reads what is missing of a record, and nothing else: the next window is for another batch, and perhaps another core.
    #[cold]
    fn complete(&mut self, len: usize) -> Result<(), CaptureError> {
        let end = self.ahead.start + len;
        self.store.grow(end);
        while self.ahead.end < end && self.read(end)? > 0 {}
        Ok(())
    }

    /// Reads the next window, as much of it as the system gives at once.
    #[cold]
    fn refill(&mut self) -> Result<(), CaptureError> {
        self.store.make_room();
        self.ahead = 0..0;
        self.read(WINDOW).map(drop)
    }

    /// Reads into the window, up to there.
    fn read(&mut self, end: usize) -> Result<usize, CaptureError> {
        loop {
            match self.input.read(&mut self.store.window[self.ahead.end..end]) {
                Ok(n) => {
                    self.ahead.end += n;
                    break Ok(n);
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let offset = self.offset + self.ahead.len() as u64;
                    break Err(CaptureError::Io { offset, source });
                }
            }
        }
    }

    /// What is ahead.
    pub(super) fn ahead(&self) -> &[u8] {
        &self.store.window[self.ahead.clone()]
    }

    #[inline]
    fn skip(&mut self, len: usize) {
        self.ahead.start += len;
        self.offset += len as u64;
    }

    /// `N` bytes at the beginning of a record; none at the end of the file.
    #[inline]
    pub(super) fn begin<const N: usize>(&mut self) -> Result<Option<[u8; N]>, CaptureError> {
        self.start = self.offset;
        if self.ahead.is_empty() && !self.is_in_parts() {
            self.refill()?;
        }
        self.look(N)?;
        if self.ahead.is_empty() {
            return Ok(None);
        }
        let bytes = *self.ahead().first_chunk::<N>().ok_or_else(|| self.truncated())?;
        self.skip(N);
        Ok(Some(bytes))
    }

    /// Reads `len` further bytes of the record: its [`block`](Self::block).
    #[inline]
    pub(super) fn rest(&mut self, len: usize) -> Result<(), CaptureError> {
        if len > BLOCK_MAX {
            return Err(
                self.damaged(format!("it claims to be {len} bytes long; at most {BLOCK_MAX} are read"))
            );
        }
        self.look(len)?;
        if self.ahead.len() < len {
            return Err(self.truncated());
        }
        self.block = self.ahead.start..self.ahead.start + len;
        self.skip(len);
        Ok(())
    }

    /// What [`rest`](Self::rest) has read.
    #[inline]
    pub(super) fn block(&self) -> &[u8] {
        &self.store.window[self.block.clone()]
    }

    fn truncated(&self) -> CaptureError {
        CaptureError::Truncated { record: self.record, offset: self.start }
    }

    pub(super) fn damaged(&self, problem: impl Into<String>) -> CaptureError {
        CaptureError::Damaged { record: self.record, offset: self.start, problem: problem.into() }
    }

    /// Makes the captured bytes `block[from..from + captured]` the frame, as Ethernet; it had `original` bytes.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        link: LinkType,
        from: usize,
        [captured, original]: [usize; 2],
        time_ns: u64,
    ) -> Result<(), CaptureError> {
        let begin = self.block.start + from;
        if begin + captured > self.block.end {
            return Err(self.damaged("its length is wrong"));
        }
        if captured > FRAME_MAX {
            return Err(self.damaged(format!("a frame of {captured} bytes; at most {FRAME_MAX} are read")));
        }
        let here = begin..begin + captured;
        // Some programs write 0 as the original length, or what they captured.
        let missing = original.saturating_sub(captured);
        let (range, is_made) = match link {
            LinkType::Ethernet => (here, false),
            other => {
                let at = self.store.made.len();
                other.to_ethernet(&self.store.window[here], &mut self.store.made);
                (at..self.store.made.len(), true)
            }
        };
        let len = (range.len() + missing).min(u32::MAX as usize);
        self.place =
            Place { begin: range.start as u32, end: range.end as u32, len: len as u32, is_made, time_ns };
        Ok(())
    }
}

impl Source<At> {
    /// Goes on with the part of the file at `from`, of which so many bytes are in the window.
    pub(super) fn begin_part(&mut self, from: u64, filled: usize) {
        // A record may have been longer than a part, or the file than it was.
        let start = (self.offset - from) as usize;
        self.ahead = start..filled.max(start);
        self.input.position = from + self.ahead.end as u64;
        self.part_end = Some(from + WINDOW as u64);
    }
}

/// The numbers of a file, in its byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    #[inline]
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        if self == Order::Little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    #[inline]
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self == Order::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }
}
