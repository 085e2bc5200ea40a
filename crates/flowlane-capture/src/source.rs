//! Buffered reading of a capture file.

use std::io::Read;
use std::ops::Range;

use super::batch::{FrameSpan, Store, WINDOW_BYTES};
use super::link::LinkType;
use super::shared::FileCursor;
use super::{BLOCK_MAX, CaptureError, Step};

/// The file, with the read position.
pub(super) struct Source<R> {
    input: R,
    /// Window on the file, which begins with a record and grows until its last record is complete, and converted frames.
    pub(super) store: Store,
    /// Unread part of the window.
    ahead: Range<usize>,
    /// File offset of `ahead`.
    pub(super) offset: u64,
    /// Number and file offset of the current record.
    pub(super) record: u64,
    start: u64,
    /// Body of the current record, in the window.
    block: Range<usize>,
    /// The latest frame.
    pub(super) span: FrameSpan,
    /// End of the current part of the file, if it is read in parts.
    part_end: Option<u64>,
    /// Number of unreadable records, and the problem of the first.
    skipped: (u64, Option<Box<CaptureError>>),
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
            span: FrameSpan::default(),
            part_end: None,
            skipped: (0, None),
        }
    }

    /// Returns whether the next record begins another window or part, which discards the frames in the store.
    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        match self.part_end {
            None => self.ahead.is_empty(),
            Some(end) => self.offset >= end,
        }
    }

    /// Returns whether the file is read in parts.
    #[inline]
    pub(super) fn is_in_parts(&self) -> bool {
        self.part_end.is_some()
    }

    /// Reads until `len` bytes are ahead or the file ends. The contents of the window keep their position.
    #[inline]
    fn look(&mut self, len: usize) -> Result<(), CaptureError> {
        if self.ahead.len() >= len { Ok(()) } else { self.complete(len) }
    }

    /// Reads the missing bytes of a record, and no more: the next window belongs to another batch, and possibly another
    /// core.
    #[cold]
    fn complete(&mut self, len: usize) -> Result<(), CaptureError> {
        let end = self.ahead.start + len;
        self.store.grow(end);
        while self.ahead.end < end && self.read(end)? > 0 {}
        Ok(())
    }

    /// Reads the next window, with a single read.
    #[cold]
    fn refill(&mut self) -> Result<(), CaptureError> {
        self.store.make_room();
        self.ahead = 0..0;
        self.read(WINDOW_BYTES).map(drop)
    }

    /// Reads into the window, up to `end`.
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

    /// Returns the unread bytes of the window.
    pub(super) fn ahead(&self) -> &[u8] {
        &self.store.window[self.ahead.clone()]
    }

    #[inline]
    fn skip(&mut self, len: usize) {
        self.ahead.start += len;
        self.offset += len as u64;
    }

    /// Reads the first `N` bytes of a record; returns `None` at the end of the file.
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

    /// Reads `len` further bytes of the record as its [`block`](Self::block).
    #[inline]
    pub(super) fn rest(&mut self, len: usize) -> Result<(), CaptureError> {
        if len > BLOCK_MAX {
            return Err(self.damaged(format!("its length is {len} bytes; the limit is {BLOCK_MAX}")));
        }
        self.look(len)?;
        if self.ahead.len() < len {
            return Err(self.truncated());
        }
        self.block = self.ahead.start..self.ahead.start + len;
        self.skip(len);
        Ok(())
    }

    /// Returns the bytes that [`rest`](Self::rest) has read.
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

    /// Counts the current record as unreadable. Reading continues behind it.
    #[cold]
    pub(super) fn reject(&mut self, problem: impl std::fmt::Display) -> Step {
        if self.skipped.0 == 0 {
            self.skipped.1 = Some(Box::new(self.damaged(problem.to_string())));
        }
        self.skipped.0 += 1;
        Step::Other
    }

    /// Adds the unreadable records to the end of reading, an error or not.
    #[cold]
    pub(super) fn end(&mut self, end: Result<Step, CaptureError>) -> Result<Step, CaptureError> {
        let (records, first) = std::mem::take(&mut self.skipped);
        match (first, end) {
            // What cannot be read from the disk may be sound.
            (None, end) | (_, end @ Err(CaptureError::Io { .. })) => end,
            (Some(first), end) => Err(CaptureError::Skipped { records, first, end: end.err().map(Box::new) }),
        }
    }

    /// Makes the captured bytes `block[from..from + captured]` the latest frame, as Ethernet, with the length `original`.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        link: LinkType,
        from: usize,
        [captured, original]: [usize; 2],
        time_ns: u64,
    ) -> Step {
        let begin = self.block.start + from;
        let here = begin..begin + captured;
        // Some programs write 0 or the captured length as the original length.
        let missing = original.saturating_sub(captured);
        let (range, is_converted) = match link {
            LinkType::Ethernet => (here, false),
            other => {
                let at = self.store.converted.len();
                if let Err(problem) = other.to_ethernet(&self.store.window[here], &mut self.store.converted) {
                    return self.reject(problem);
                }
                (at..self.store.converted.len(), true)
            }
        };
        let len = (range.len() + missing).min(u32::MAX as usize);
        self.span = FrameSpan {
            begin: range.start as u32,
            end: range.end as u32,
            len: len as u32,
            is_converted,
            time_ns,
        };
        Step::Frame
    }
}

impl Source<FileCursor> {
    /// Continues with the part of the file at `from`, of which the window holds `filled` bytes.
    pub(super) fn begin_part(&mut self, from: u64, filled: usize) {
        // A record may be longer than a part, and the file may have shrunk.
        let start = (self.offset - from) as usize;
        self.ahead = start..filled.max(start);
        self.input.position = from + self.ahead.end as u64;
        self.part_end = Some(from + WINDOW_BYTES as u64);
    }
}
