//! Readers and writers for capture files: pcap (draft-ietf-opsawg-pcap) and pcapng
//! (draft-ietf-opsawg-pcapng).
//!
//! Own code, since the readers of other crates hold a whole file, or mistake the resolution of pcapng's
//! times. Everything is bounded: a length that a file claims is believed only up to [`BLOCK_MAX`], and each
//! call makes progress or fails.
//!
//! Frames come out as Ethernet: those of other links get an Ethernet header with the addresses
//! that are known, and the EtherType of what they carry, or 0xffff. Most captures are cut by a snap length: [`Packet::len`]
//! says how long a frame was, [`Packet::bytes`] has what is there of it.
//!
//! ```
//! use flowlane_capture::{CaptureReader, CaptureWriter, FileFormat};
//!
//! let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcapng)?;
//! writer.write(1_700_000_000_000_000_000, &[0xff; 60])?;
//! let file = writer.finish()?;
//! let mut reader = CaptureReader::new(&file[..])?;
//! while let Some(packet) = reader.next()? {
//!     assert_eq!((packet.bytes.len(), packet.is_cut()), (60, false));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod link;
mod pcap;
mod pcapng;
mod shared;
mod source;
mod split;
#[cfg(test)]
mod tests;
mod unpack;
mod write;

pub use batch::Batch;
pub use shared::SharedReader;
pub use split::{Split, splits};
pub use unpack::{TEXT_MAX, is_packed, read_text, unpack};
pub use write::{CaptureWriter, FileFormat};

use std::io::Read;

use source::Source;

/// The longest record or block that is read. Longer ones are taken for a damaged file.
pub const BLOCK_MAX: usize = 16 << 20;

/// The longest frame that is read: what libpcap captures at most. Longer ones are taken for a damaged file.
pub const FRAME_MAX: usize = 1 << 18;

/// What is wrong with a capture file, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// It could not be read.
    #[error("reading failed at byte {offset}: {source}")]
    Io {
        /// Bytes read before.
        offset: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is neither pcap nor pcapng.
    #[error("this is no pcap or pcapng file: it begins with {magic:02x?}")]
    Magic {
        /// Its first bytes.
        magic: Vec<u8>,
    },
    /// It ends within a record.
    #[error("the file ends within record {record} (byte {offset}); the records before it are whole")]
    Truncated {
        /// The record, from 0.
        record: u64,
        /// Where it begins.
        offset: u64,
    },
    /// A length or number in it cannot be right.
    #[error("record {record} (byte {offset}): {problem}")]
    Damaged {
        /// The record, from 0.
        record: u64,
        /// Where it begins.
        offset: u64,
        /// What is wrong.
        problem: String,
    },
    /// Its frames are of a kind that is not read.
    #[error("its frames have link type {0}; these are read: {LINKS}", LINKS = link::NAMES)]
    LinkType(u32),
}

/// A frame of a capture, as Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// When it was captured, nanoseconds since the epoch (UTC); 0 where the file does not say.
    pub time_ns: u64,
    /// Bytes that it had: more than [`bytes`](Self::bytes) where it was cut.
    pub len: u32,
    /// Its first bytes, as many as were captured.
    pub bytes: &'a [u8],
}

impl Packet<'_> {
    /// Whether some of its bytes were not captured.
    pub fn is_cut(&self) -> bool {
        (self.bytes.len() as u64) < u64::from(self.len)
    }
}

/// Reads frames from a capture, one after the other or many at once.
pub struct CaptureReader<R> {
    source: Source<R>,
    format: Reading,
    /// What is wrong behind the latest batch.
    failed: Option<CaptureError>,
    /// Something was wrong: where the next record would begin nobody knows.
    ended: bool,
    /// Frames that are still to be read.
    left: u64,
}

/// What a record was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A frame: the source's latest.
    Frame,
    /// Something else.
    Other,
    /// There was none: the file is at its end.
    End,
}

enum Reading {
    Pcap(pcap::Header),
    Pcapng(pcapng::Section),
}

impl<R: Read> CaptureReader<R> {
    /// Reads the file's header and finds out what it is. `input` need not be buffered.
    ///
    /// # Errors
    /// Where it is no capture, or one of another link type.
    pub fn new(input: R) -> Result<Self, CaptureError> {
        let mut source = Source::new(input);
        let magic = match source.begin::<4>() {
            Ok(Some(magic)) => magic,
            Ok(None) => return Err(CaptureError::Magic { magic: Vec::new() }),
            Err(CaptureError::Truncated { .. }) => {
                return Err(CaptureError::Magic { magic: source.ahead().to_vec() });
            }
            Err(other) => return Err(other),
        };
        let format = match magic {
            [0x0a, 0x0d, 0x0d, 0x0a] => Reading::Pcapng(pcapng::Section::begin(&mut source)?),
            _ => Reading::Pcap(pcap::Header::read(&mut source, magic)?),
        };
        Ok(Self { source, format, failed: None, ended: false, left: u64::MAX })
    }

    /// Whether a file begins like a capture.
    pub fn is_capture(beginning: &[u8]) -> bool {
        let Some(magic) = beginning.first_chunk::<4>() else { return false };
        *magic == [0x0a, 0x0d, 0x0d, 0x0a] || pcap::is_magic(*magic)
    }

    /// Reads a record, and its frame where it has one.
    #[inline]
    fn read(&mut self) -> Result<Step, CaptureError> {
        if self.ended || self.left == 0 {
            return Ok(Step::End);
        }
        let step = match &mut self.format {
            Reading::Pcap(header) => header.next(&mut self.source),
            Reading::Pcapng(section) => section.next(&mut self.source),
        };
        let step = step.inspect_err(|_| self.ended = true)?;
        self.source.record += u64::from(step == Step::Frame);
        self.left -= u64::from(step == Step::Frame);
        Ok(step)
    }

    /// The next frame. None at the end of the file.
    ///
    /// # Errors
    /// Where the file is damaged or cut off; frames before that have been delivered, and none comes after it.
    #[expect(clippy::should_implement_trait, reason = "frames are lent")]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.source.store.made.clear();
        loop {
            match self.read()? {
                Step::Frame => return Ok(Some(self.source.store.packet(&self.source.place))),
                Step::Other => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// The next frames, as many as are read from the file at once: in the place of those that `batch` had, where they lie, without
    /// a copy of each. None at the end of the file.
    ///
    /// # Errors
    /// Where the file is damaged or cut off; frames before that have been delivered.
    pub fn next_batch(&mut self, batch: &mut Batch) -> Result<(), CaptureError> {
        batch.places.clear();
        batch.first = self.source.record;
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.source.store.made.clear();
        // Into the batch's own memory, which is near the core that has it.
        if self.source.is_at_end() {
            std::mem::swap(&mut self.source.store, &mut batch.store);
        }
        self.fill(batch).map(drop)
    }

    /// Reads frames into `batch`, and keeps for later what is wrong behind them.
    fn fill(&mut self, batch: &mut Batch) -> Result<Step, CaptureError> {
        let end = loop {
            if self.source.is_at_end() && (self.source.is_in_parts() || !batch.is_empty()) {
                break Ok(Step::Other);
            }
            match self.read() {
                Ok(Step::Frame) => batch.places.push(self.source.place),
                Ok(Step::Other) => {}
                other => break other,
            }
        };
        std::mem::swap(&mut self.source.store, &mut batch.store);
        match end {
            Err(error) if !batch.is_empty() => {
                self.failed = Some(error);
                Ok(Step::Other)
            }
            end => end,
        }
    }

    /// Bytes of the file that have been read.
    pub fn offset(&self) -> u64 {
        self.source.offset
    }
}

impl CaptureReader<shared::At> {
    /// Finds the frames whose records begin in a part of the file, the one at `from`: so many bytes of it are in the batch's window.
    /// Says whether the file is at its end.
    fn next_part(
        &mut self,
        batch: &mut Batch,
        from: u64,
        filled: std::io::Result<usize>,
    ) -> Result<bool, CaptureError> {
        batch.first = self.source.record;
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        // The part before this one was not read to its end.
        self.ended |= self.source.offset < from;
        if self.ended {
            return Ok(true);
        }
        let filled = filled.map_err(|source| {
            self.ended = true;
            CaptureError::Io { offset: from, source }
        })?;
        std::mem::swap(&mut self.source.store, &mut batch.store);
        self.source.begin_part(from, filled);
        let step = self.fill(batch)?;
        self.ended |= step == Step::End;
        Ok(self.ended)
    }
}
