//! Numbers in network order, read with checks of lengths and written to a vector.

use crate::error::ErrorCode;

/// Bytes that are still to be read. Where bytes are missing, the error is the one that the reader was made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    missing: ErrorCode,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], missing: ErrorCode) -> Self {
        Self { bytes, missing }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The error for a wrong length.
    pub(crate) fn bad_length(&self) -> ErrorCode {
        self.missing
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], ErrorCode> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(self.missing)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// The next `count` bytes as a reader of their own.
    pub(crate) fn part(&mut self, count: usize) -> Result<Self, ErrorCode> {
        Ok(Self { bytes: self.take(count)?, missing: self.missing })
    }

    pub(crate) fn skip(&mut self, count: usize) -> Result<(), ErrorCode> {
        self.take(count).map(|_| ())
    }

    /// Skips bytes that have to be 0.
    pub(crate) fn zeros(&mut self, count: usize, otherwise: ErrorCode) -> Result<(), ErrorCode> {
        match self.take(count)?.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => Err(otherwise),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ErrorCode> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| self.missing)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ErrorCode> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ErrorCode> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ErrorCode> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ErrorCode> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// All bytes that are left.
    pub(crate) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Text of at most `count - 1` bytes that a 0 ends. Where it is no UTF-8, `?` is in place of the bytes that are no ASCII.
    pub(crate) fn text(&mut self, count: usize) -> Result<String, ErrorCode> {
        let bytes = &self.take(count)?[..count - 1];
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Ok(match std::str::from_utf8(&bytes[..end]) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes[..end]
                .iter()
                .map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' })
                .collect(),
        })
    }

    /// Fails if bytes are left.
    pub(crate) fn end(&self) -> Result<(), ErrorCode> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.missing) }
    }
}

/// Bytes that are written, without a limit of their own: the length of a whole message is checked at its end.
#[derive(Clone, Default, Debug)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn zeros(&mut self, count: usize) -> &mut Self {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.put(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    /// Text of `count` bytes, cut so that a 0 ends it.
    pub(crate) fn text(&mut self, text: &str, count: usize) -> &mut Self {
        let mut end = text.len().min(count - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.put(&text.as_bytes()[..end]).zeros(count - end)
    }

    /// Zeros until the bytes since `start` are a multiple of `multiple`.
    pub(crate) fn pad(&mut self, start: usize, multiple: usize) -> &mut Self {
        let count = (self.len() - start).next_multiple_of(multiple) - (self.len() - start);
        self.zeros(count)
    }

    /// Writes a number of 16 bits at a place that was left for it.
    pub(crate) fn set_u16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    /// Writes the number of bytes since `start` at `at`.
    pub(crate) fn set_length(&mut self, at: usize, start: usize) {
        // A length that does not fit is refused when the message ends: it is longer then, too.
        self.set_u16(at, u16::try_from(self.len() - start).unwrap_or(u16::MAX));
    }
}

/// A version, or OpenFlow as a whole, has no bytes for something that a message has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failed;
