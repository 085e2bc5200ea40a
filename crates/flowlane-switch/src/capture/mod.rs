//! Readers and writers for capture files: pcap (draft-ietf-opsawg-pcap) and pcapng
//! (draft-ietf-opsawg-pcapng).
//!
//! Own code, since the readers of other crates hold a whole file, or mistake the resolution of pcapng's
//! times. Everything is bounded: a length that a file claims is believed only up to [`BLOCK_MAX`], and each
//! call makes progress or fails.
//!
//! Frames come out as Ethernet: raw IP and Linux cooked captures get an Ethernet header with the addresses
//! that are known.

mod link;
mod pcap;
mod pcapng;
#[cfg(test)]
mod tests;
mod write;

pub use write::{CaptureWriter, FileFormat};

use std::io::Read;

use link::LinkType;

/// The longest record or block that is read. Longer ones are taken for a damaged file.
pub const BLOCK_MAX: usize = 16 << 20;

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
    /// Its frames are of a kind that is not switched.
    #[error(
        "its frames have link type {0}; Ethernet (1), raw IP (101, 228, 229) and Linux cooked (113) are read"
    )]
    LinkType(u32),
}

/// One frame of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When it was captured, nanoseconds since the epoch.
    pub time_ns: u64,
    /// Its length on the wire; more than was captured where the capture was cut off.
    pub original_len: u32,
}

/// Reads frames from a capture, one after the other.
pub struct CaptureReader<R> {
    source: Source<R>,
    format: Reading,
}

enum Reading {
    Pcap(pcap::Header),
    Pcapng(pcapng::Section),
}

impl<R: Read> CaptureReader<R> {
    /// Reads the file's header and finds out what it is. `input` should be buffered.
    ///
    /// # Errors
    /// Where it is no capture, or one of another link type.
    pub fn new(input: R) -> Result<Self, CaptureError> {
        let mut source = Source { input, offset: 0, record: 0, start: 0, block: Vec::new() };
        let mut magic = [0; 4];
        let got = source.fill(&mut magic)?;
        if got < 4 {
            return Err(CaptureError::Magic { magic: magic[..got].to_vec() });
        }
        let format = match magic {
            [0x0a, 0x0d, 0x0d, 0x0a] => Reading::Pcapng(pcapng::Section::begin(&mut source)?),
            _ => Reading::Pcap(pcap::Header::read(&mut source, magic)?),
        };
        Ok(Self { source, format })
    }

    /// The next frame: its bytes are put into `frame`. None at the end of the file.
    ///
    /// # Errors
    /// Where the file is damaged or cut off; frames before that have been delivered.
    pub fn next(&mut self, frame: &mut Vec<u8>) -> Result<Option<Record>, CaptureError> {
        let next = match &mut self.format {
            Reading::Pcap(header) => header.next(&mut self.source, frame),
            Reading::Pcapng(section) => section.next(&mut self.source, frame),
        }?;
        self.source.record += u64::from(next.is_some());
        Ok(next)
    }
}

/// The file, and where in it we are.
struct Source<R> {
    input: R,
    offset: u64,
    record: u64,
    /// Where the record that is being read began.
    start: u64,
    block: Vec<u8>,
}

impl<R: Read> Source<R> {
    /// Reads until `buffer` is full or the file ends; says how many bytes that were.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, CaptureError> {
        let mut got = 0;
        while got < buffer.len() {
            match self.input.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(CaptureError::Io { offset: self.offset + got as u64, source }),
            }
        }
        self.offset += got as u64;
        Ok(got)
    }

    /// `N` bytes at the beginning of a record; none at the end of the file.
    fn begin<const N: usize>(&mut self) -> Result<Option<[u8; N]>, CaptureError> {
        self.start = self.offset;
        let mut bytes = [0; N];
        match self.fill(&mut bytes)? {
            0 => Ok(None),
            n if n == N => Ok(Some(bytes)),
            _ => Err(self.truncated()),
        }
    }

    /// Reads `len` further bytes of the record into [`block`](Self::block).
    fn rest(&mut self, len: usize) -> Result<(), CaptureError> {
        if len > BLOCK_MAX {
            return Err(
                self.damaged(format!("it claims to be {len} bytes long; at most {BLOCK_MAX} are read"))
            );
        }
        let mut block = std::mem::take(&mut self.block);
        block.resize(len, 0);
        let got = self.fill(&mut block);
        self.block = block;
        if got? < len {
            return Err(self.truncated());
        }
        Ok(())
    }

    fn truncated(&self) -> CaptureError {
        CaptureError::Truncated { record: self.record, offset: self.start }
    }

    fn damaged(&self, problem: impl Into<String>) -> CaptureError {
        CaptureError::Damaged { record: self.record, offset: self.start, problem: problem.into() }
    }

    /// Puts the captured bytes `block[from..from + len]` into `frame`, as Ethernet.
    fn deliver(
        &self,
        link: LinkType,
        from: usize,
        len: usize,
        frame: &mut Vec<u8>,
    ) -> Result<(), CaptureError> {
        let bytes = self.block.get(from..from + len).ok_or_else(|| self.damaged("its length is wrong"))?;
        if len > crate::packet::frame::FRAME_MAX - link::HEADER_MAX {
            return Err(self.damaged(format!("a frame of {len} bytes is too long")));
        }
        link.to_ethernet(bytes, frame);
        Ok(())
    }
}

/// The numbers of a file, in its byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        if self == Order::Little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self == Order::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }
}
