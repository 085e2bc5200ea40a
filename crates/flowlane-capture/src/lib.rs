//! Readers and writers for capture files: pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng). snoop
//! (RFC 1761) and the modified pcap of old Linux programs are read, too.
//!
//! Written for this project, because existing crates read a whole file into memory, or misread the time resolution of
//! pcapng. Memory is bounded: a length field is trusted up to [`BLOCK_MAX`] only, and each call makes progress or fails.
//!
//! A record that cannot be read, but whose end is known, is skipped: a packet of an unsupported link type, say. The end of
//! the file is then the error [`CaptureError::Skipped`], with their number. Damage behind which no record can be found ends the
//! reading.
//!
//! Frames are delivered as Ethernet: those of other link types get an Ethernet header with the addresses that are known and
//! the EtherType of their payload, or 0xffff. Captures are often truncated by a snap length: [`Packet::len`] is the
//! original length of a frame, [`Packet::bytes`] its captured bytes.
//!
//! ```
//! use flowlane_capture::{CaptureReader, CaptureWriter, FileFormat};
//!
//! let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcapng)?;
//! writer.write(1_700_000_000_000_000_000, &[0xff; 60])?;
//! let file = writer.finish()?;
//! let mut reader = CaptureReader::new(&file[..])?;
//! while let Some(packet) = reader.next()? {
//!     assert_eq!((packet.bytes.len(), packet.is_truncated()), (60, false));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod decompress;
mod link;
mod order;
mod pcap;
mod pcapng;
mod recognise;
mod shared;
mod snoop;
mod source;
mod split;
#[cfg(test)]
mod tests;
mod text;
mod write;

pub use batch::Batch;
pub use decompress::{decompress, is_compressed};
pub use recognise::{MRT_TABLE, Recognised, recognise_binary, recognise_mrt};
pub use shared::SharedReader;
pub use split::{Split, splits};
pub use text::{TEXT_MAX, TextError, read_bytes, read_stream, read_text, text_of, unpacked_max};
pub use write::{CaptureWriter, FileFormat};

use std::io::Read;

use source::Source;

/// Maximum length of a record or block. A longer one is taken for a damaged file.
pub const BLOCK_MAX: usize = 16 << 20;

/// Maximum length of a frame, the maximum snap length of libpcap. A longer one is taken for a damaged file.
pub const FRAME_MAX: usize = 1 << 18;

/// An error in a capture file, with its position.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// Format failed.
    #[error("reading failed at byte {offset}: {source}")]
    Io {
        /// Number of bytes read before.
        offset: u64,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The file is no capture.
    #[error("not a pcap, pcapng or snoop file: it begins with {magic:02x?}")]
    Magic {
        /// First bytes of the file.
        magic: Vec<u8>,
    },
    /// The file ends within a record.
    #[error("the file ends within record {record} (byte {offset}); the records before it are complete")]
    Truncated {
        /// Number of the record, from 0.
        record: u64,
        /// File offset of the record.
        offset: u64,
    },
    /// A length or number is invalid.
    #[error("record {record} (byte {offset}): {problem}")]
    Damaged {
        /// Number of the record, from 0.
        record: u64,
        /// File offset of the record.
        offset: u64,
        /// Description of the error.
        problem: String,
    },
    /// The link type is not supported.
    #[error("link type {0} is not supported; supported are: {LINKS}", LINKS = link::NAMES)]
    LinkType(u32),
    /// The data link type of a snoop file is not supported.
    #[error(
        "snoop's data link type {0} is not supported; supported are: IEEE 802.3 (0), Ethernet (4), FDDI (8)"
    )]
    SnoopLinkType(u32),
    /// The version of the format is not supported.
    #[error("{format} version {major}.{minor} is not supported; supported is {supported}")]
    Version {
        /// Name of the format.
        format: &'static str,
        /// The number before the point.
        major: u32,
        /// The number behind it.
        minor: u32,
        /// The supported versions.
        supported: &'static str,
    },
    /// Records that could not be read were skipped. All frames that could be read precede this error.
    #[error("{records} unreadable {} skipped; the first: {first}{}", were(*records), and_then(end.as_deref()))]
    Skipped {
        /// Number of the records.
        records: u64,
        /// Problem of the first one.
        first: Box<CaptureError>,
        /// Damage that ended the reading before the end of the file.
        end: Option<Box<CaptureError>>,
    },
}

fn were(records: u64) -> &'static str {
    if records == 1 { "record was" } else { "records were" }
}

fn and_then(end: Option<&CaptureError>) -> String {
    end.map(|end| format!("; after them: {end}")).unwrap_or_default()
}

/// A captured frame, as Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Capture time in nanoseconds since the epoch (UTC); 0 if unknown.
    pub time_ns: u64,
    /// Original length; larger than [`bytes`](Self::bytes) if the frame is truncated.
    pub len: u32,
    /// Captured bytes.
    pub bytes: &'a [u8],
}

impl Packet<'_> {
    /// Returns whether the capture truncated the frame.
    pub fn is_truncated(&self) -> bool {
        (self.bytes.len() as u64) < u64::from(self.len)
    }
}

/// Reads frames from a capture, one at a time or in batches.
pub struct CaptureReader<R> {
    source: Source<R>,
    format: Format,
    /// Error after the latest batch, which the next call returns.
    failed: Option<CaptureError>,
    /// After an error the position of the next record is unknown.
    ended: bool,
    /// Number of frames still to be read.
    left: u64,
}

/// Kind of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A frame, which is the source's latest.
    Frame,
    /// Any other record.
    Other,
    /// End of the file.
    End,
}

enum Format {
    Pcap(pcap::Header),
    Pcapng(pcapng::Section),
    Snoop(snoop::Header),
}

impl<R: Read> CaptureReader<R> {
    /// Reads the file's header and detects the format. `input` need not be buffered.
    ///
    /// # Errors
    /// If the input is not a capture, or has an unsupported link type.
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
            [0x0a, 0x0d, 0x0d, 0x0a] => Format::Pcapng(pcapng::Section::begin(&mut source)?),
            snoop::MAGIC => Format::Snoop(snoop::Header::read(&mut source)?),
            _ => Format::Pcap(pcap::Header::read(&mut source, magic)?),
        };
        Ok(Self { source, format, failed: None, ended: false, left: u64::MAX })
    }

    /// Returns whether a file that begins with these bytes is a capture.
    pub fn is_capture(beginning: &[u8]) -> bool {
        let Some(magic) = beginning.first_chunk::<4>() else { return false };
        matches!(*magic, [0x0a, 0x0d, 0x0d, 0x0a] | snoop::MAGIC) || pcap::is_magic(*magic)
    }

    /// Reads a record, and its frame if it has one.
    #[inline]
    fn read(&mut self) -> Result<Step, CaptureError> {
        if self.ended {
            return Ok(Step::End);
        }
        let step = match &mut self.format {
            _ if self.left == 0 => Ok(Step::End),
            Format::Pcap(header) => header.next(&mut self.source),
            Format::Pcapng(section) => section.next(&mut self.source),
            Format::Snoop(header) => header.next(&mut self.source),
        };
        if !matches!(step, Ok(Step::Frame | Step::Other)) {
            self.ended = true;
            return self.source.end(step);
        }
        let step = step?;
        self.source.record += u64::from(step == Step::Frame);
        self.left -= u64::from(step == Step::Frame);
        Ok(step)
    }

    /// Reads the next frame; returns `None` at the end of the file.
    ///
    /// # Errors
    /// If the file is damaged or truncated, or had unreadable records. All frames have been returned, and none follows.
    #[expect(clippy::should_implement_trait, reason = "frames borrow from the reader")]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.source.store.converted.clear();
        loop {
            match self.read()? {
                Step::Frame => return Ok(Some(self.source.store.packet(&self.source.span))),
                Step::Other => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Reads the next frames, as many as one read of the file contains, into `batch`, replacing its frames; without copying
    /// them. The batch is empty at the end of the file.
    ///
    /// # Errors
    /// If the file is damaged or truncated, or had unreadable records. All frames have been returned.
    pub fn next_batch(&mut self, batch: &mut Batch) -> Result<(), CaptureError> {
        batch.spans.clear();
        batch.first = self.source.record;
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.source.store.converted.clear();
        // Read into the batch's own memory, which is in the cache of the core that uses the batch.
        if self.source.is_at_end() {
            std::mem::swap(&mut self.source.store, &mut batch.store);
        }
        self.fill(batch).map(drop)
    }

    /// Reads frames into `batch`, deferring an error that follows them.
    fn fill(&mut self, batch: &mut Batch) -> Result<Step, CaptureError> {
        let end = loop {
            if self.source.is_at_end() && (self.source.is_in_parts() || !batch.is_empty()) {
                break Ok(Step::Other);
            }
            match self.read() {
                Ok(Step::Frame) => batch.spans.push(self.source.span),
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

    /// Returns the number of bytes read.
    pub fn offset(&self) -> u64 {
        self.source.offset
    }
}

impl CaptureReader<shared::FileCursor> {
    /// Finds the frames whose records begin in the part of the file at `from`, of which the batch's window holds `filled`
    /// bytes. Returns whether the file ends.
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
        // The previous part was not read to its end.
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
