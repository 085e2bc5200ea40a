//! Blocks of records with their checksums: writing and reading.

use std::io::{self, Read, Write};

use flowlane::hash::crc32c;

use super::record::Record;
use crate::stage::route::RouteTableError;
use crate::state::bytes::Bytes;

/// The first bytes of saved state.
pub(super) const MAGIC: &[u8; 8] = b"FLOWLANE";

/// The version of the format.
pub const VERSION: u32 = 3;

/// The length at which a block is written.
const BLOCK: usize = 64 << 10;

/// The longest content of a block: a rule may be long.
const BLOCK_MAX: usize = 8 << 20;

/// The reason for which saved state is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The first bytes are others.
    #[error("it is no saved state of Flowlane")]
    Foreign,
    #[error("its format has version {0}, and this program reads version {VERSION}")]
    Version(u32),
    /// A block is cut off, or changed.
    #[error("block {block}, which begins at byte {at}, {problem}")]
    Block { block: u64, at: u64, problem: &'static str },
    /// Records that cannot be in this order.
    #[error("block {block}, which begins at byte {at}, has a record that {problem}")]
    Record { block: u64, at: u64, problem: &'static str },
    /// It is the state of a switch that this one cannot follow.
    #[error("it is of a switch with {theirs}; this one has {ours}")]
    Other { theirs: String, ours: String },
    /// A rule, group or meter does not fit.
    #[error(transparent)]
    Control(#[from] crate::control::NotRestored),
    /// The routes do not fit the table.
    #[error("table {table}: {problem}")]
    Routes { table: u8, problem: RouteTableError },
    /// A text of a rule or group cannot be read.
    #[error("`{text}`: {problem}")]
    Text { text: String, problem: String },
}

fn checksum(number: u64, content: &[u8]) -> u32 {
    !crc32c::update(crc32c::update(!0, &number.to_le_bytes()), content)
}

/// Writes records.
pub struct Writer<W> {
    out: W,
    content: Vec<u8>,
    blocks: u64,
    records: u64,
}

impl<W: Write> Writer<W> {
    /// Begins with the version.
    ///
    /// # Errors
    /// As the output's.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        Ok(Self { out, content: Vec::with_capacity(2 * BLOCK), blocks: 0, records: 0 })
    }

    /// Writes a record.
    ///
    /// # Errors
    /// As the output's, or if the record is longer than a block may be.
    pub(super) fn put(&mut self, record: &Record) -> io::Result<()> {
        let before = self.content.len();
        record.write(&mut self.content);
        self.records += 1;
        if self.content.len() - before > BLOCK_MAX - BLOCK {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a rule or group is too long to be saved",
            ));
        }
        if self.content.len() >= BLOCK { self.write_block() } else { Ok(()) }
    }

    fn write_block(&mut self) -> io::Result<()> {
        self.out.write_all(&(self.content.len() as u32).to_le_bytes())?;
        self.out.write_all(&checksum(self.blocks, &self.content).to_le_bytes())?;
        self.out.write_all(&self.content)?;
        self.content.clear();
        self.blocks += 1;
        Ok(())
    }

    /// Writes the end. Returns the output.
    ///
    /// # Errors
    /// As the output's.
    pub fn finish(mut self) -> io::Result<W> {
        let records = self.records;
        self.put(&Record::End { records })?;
        self.write_block()?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads records, and checks all that is around them.
pub struct Reader<R> {
    input: R,
    content: Vec<u8>,
    /// Bytes of the content that have been read.
    read: usize,
    /// The number of the block, and the byte that it begins at.
    block: u64,
    at: u64,
    next_at: u64,
    records: u64,
    has_ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the version.
    ///
    /// # Errors
    /// Where this is no state, or of another version.
    pub fn new(mut input: R) -> Result<Self, StateError> {
        let (mut magic, mut version) = ([0; MAGIC.len()], [0; 4]);
        let foreign = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => StateError::Foreign,
            _ => StateError::Io(error),
        };
        input.read_exact(&mut magic).map_err(foreign)?;
        if magic != *MAGIC {
            return Err(StateError::Foreign);
        }
        input.read_exact(&mut version).map_err(foreign)?;
        match u32::from_le_bytes(version) {
            VERSION => {}
            other => return Err(StateError::Version(other)),
        }
        let next_at = (magic.len() + version.len()) as u64;
        Ok(Self {
            input,
            content: Vec::new(),
            read: 0,
            block: 0,
            at: 0,
            next_at,
            records: 0,
            has_ended: false,
        })
    }

    /// Returns the next record; none behind the end.
    ///
    /// # Errors
    /// Where a block is cut off or changed, or a record is none.
    pub(super) fn next(&mut self) -> Result<Option<Record>, StateError> {
        if self.has_ended {
            return Ok(None);
        }
        if self.read == self.content.len() {
            self.read_block()?;
        }
        let mut bytes = Bytes(&self.content[self.read..]);
        let record = Record::read(&mut bytes).ok_or_else(|| self.wrong("cannot be read"))?;
        self.read = self.content.len() - bytes.0.len();
        if let Record::End { records } = record {
            if records != self.records || self.read != self.content.len() {
                return Err(self.wrong("ends the state too early"));
            }
            self.has_ended = true;
            return Ok(None);
        }
        self.records += 1;
        Ok(Some(record))
    }

    /// Returns the error of the record that has been read last.
    pub(super) fn wrong(&self, problem: &'static str) -> StateError {
        StateError::Record { block: self.block - 1, at: self.at, problem }
    }

    fn read_block(&mut self) -> Result<(), StateError> {
        self.at = self.next_at;
        let (block, at) = (self.block, self.at);
        let wrong = |problem| StateError::Block { block, at, problem };
        let cut = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => wrong("is cut off"),
            _ => StateError::Io(error),
        };
        let mut head = [0; 8];
        self.input.read_exact(&mut head).map_err(cut)?;
        let [len, sum] = [0, 4].map(|at| u32::from_le_bytes(std::array::from_fn(|byte| head[at + byte])));
        let len = len as usize;
        if len == 0 || len > BLOCK_MAX {
            return Err(wrong("has a length that no block has"));
        }
        self.content.clear();
        // Memory as bytes come: the length may be wrong.
        let got = (&mut self.input).take(len as u64).read_to_end(&mut self.content)?;
        if got < len {
            return Err(wrong("is cut off"));
        }
        if checksum(block, &self.content) != sum {
            return Err(wrong("has been changed: its checksum is another"));
        }
        (self.read, self.block, self.next_at) = (0, block + 1, at + 8 + len as u64);
        Ok(())
    }
}

impl<R> Reader<R> {
    /// Returns the input, behind the end of the state.
    pub fn into_input(self) -> R {
        self.input
    }
}
