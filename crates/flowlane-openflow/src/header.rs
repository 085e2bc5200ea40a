//! The header of every message, and where messages end in a stream of bytes.

use crate::error::ErrorCode;

/// Bytes of a header (OpenFlow 1.3.5 7.1).
pub const HEADER_BYTES: usize = 8;

/// Bytes of the longest message: its length has 16 bits.
pub const MESSAGE_BYTES_MAX: usize = u16::MAX as usize;

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// The version's number, which need not be one of [`Version`](crate::Version).
    pub version: u8,
    /// The message's type, whose meaning depends on the version.
    pub kind: u8,
    /// Bytes of the message with this header.
    pub length: u16,
    /// The identifier by which replies name their request.
    pub xid: u32,
}

impl Header {
    /// Reads the header at the beginning of `bytes`; `None` if they are too few.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let [version, kind, l0, l1, x0, x1, x2, x3, ..] = *bytes else { return None };
        Some(Self {
            version,
            kind,
            length: u16::from_be_bytes([l0, l1]),
            xid: u32::from_be_bytes([x0, x1, x2, x3]),
        })
    }
}

/// A message, and the bytes behind it.
pub type Split<'a> = (&'a [u8], &'a [u8]);

/// Splits the first message off a stream: the message, and the bytes behind it. `Ok(None)` asks for more bytes.
///
/// ```
/// use flowlane_openflow::split;
///
/// let stream = [4, 2, 0, 8, 0, 0, 0, 1, 4, 2, 0];
/// let (echo, rest) = split(&stream)?.expect("one message is complete");
/// assert_eq!((echo.len(), rest.len()), (8, 3));
/// assert_eq!(split(rest)?, None);
/// # Ok::<(), flowlane_openflow::ErrorCode>(())
/// ```
///
/// # Errors
/// A length that is shorter than a header: no message can be found behind it, and the connection is to be closed.
pub fn split(bytes: &[u8]) -> Result<Option<Split<'_>>, ErrorCode> {
    let Some(header) = Header::read(bytes) else { return Ok(None) };
    let length = usize::from(header.length);
    if length < HEADER_BYTES {
        return Err(ErrorCode::RequestBadLen);
    }
    Ok(bytes.split_at_checked(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_their_length_says() {
        assert_eq!(split(&[1, 0, 0, 7, 0, 0, 0, 0]), Err(ErrorCode::RequestBadLen));
        assert_eq!(split(&[1, 0, 0, 9, 0, 0, 0, 0]), Ok(None));
        assert_eq!(split(&[1, 0]), Ok(None));
    }
}
