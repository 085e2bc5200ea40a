//! The file, as far as it has been read.

use std::io::Read;
use std::mem::{replace, take};
use std::ops::Range;

use super::batch::{Place, Store, WINDOW};
use super::link::LinkType;
use super::{BLOCK_MAX, CaptureError, FRAME_MAX};

/// The file, and where in it we are.
pub(super) struct Source<R> {
    input: R,
    /// A part of the file, and frames that were made from it.
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
    /// What takes the store's place where frames in it are still wanted; else it is used again.
    pub(super) spare: Option<Store>,
    /// Such a store.
    pub(super) left: Option<Store>,
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
            spare: None,
            left: None,
        }
    }

    /// Reads on until `len` bytes are ahead, or all that are left.
    #[inline]
    fn look(&mut self, len: usize) -> Result<(), CaptureError> {
        if self.ahead.len() >= len { Ok(()) } else { self.read(len) }
    }

    #[cold]
    fn read(&mut self, len: usize) -> Result<(), CaptureError> {
        self.make_room(len.max(WINDOW));
        while self.ahead.len() < len {
            match self.input.read(&mut self.store.window[self.ahead.end..]) {
                Ok(0) => break,
                Ok(n) => self.ahead.end += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let offset = self.offset + self.ahead.len() as u64;
                    return Err(CaptureError::Io { offset, source });
                }
            }
        }
        Ok(())
    }

    /// Moves what is ahead to the beginning of a window of so many bytes at least.
    fn make_room(&mut self, len: usize) {
        let kept = self.ahead.clone();
        self.ahead = 0..kept.len();
        let len = len.max(kept.len());
        if let Some(mut spare) = self.spare.take() {
            spare.make_room(len);
            spare.window[..kept.len()].copy_from_slice(&self.store.window[kept]);
            self.left = Some(replace(&mut self.store, spare));
        } else {
            self.store.made.clear();
            self.store.window.copy_within(kept, 0);
            self.store.resize(len);
        }
    }

    /// All frames so far, where they are still in the store; what is ahead goes on in `spare`.
    pub(super) fn leave(&mut self, spare: Store) -> Store {
        self.spare = Some(spare);
        self.make_room(WINDOW);
        take(&mut self.left).expect("it has just been left")
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
