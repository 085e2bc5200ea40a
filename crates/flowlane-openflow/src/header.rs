//! The header of every message, and where messages end in a stream of bytes.

use crate::error::ErrorCode;

/// Bytes of a header (OpenFlow 1.3.5 7.1).
pub const HEADER_BYTES: usize = 8;

/// Bytes of the longest message: its length has 16 bits.
pub const MESSAGE_BYTES_MAX: usize = u16::MAX as usize;

/// A version of OpenFlow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// OpenFlow 1.0, with Nicira's extensions.
    OpenFlow10,
    /// OpenFlow 1.3.
    OpenFlow13,
    /// OpenFlow 1.4.
    OpenFlow14,
    /// OpenFlow 1.5.
    OpenFlow15,
}

impl Version {
    /// All of them, ascending.
    pub const ALL: [Self; 4] = [Self::OpenFlow10, Self::OpenFlow13, Self::OpenFlow14, Self::OpenFlow15];

    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::OpenFlow10 => 1,
            Self::OpenFlow13 => 4,
            Self::OpenFlow14 => 5,
            Self::OpenFlow15 => 6,
        }
    }

    /// Returns the version of this number on the wire.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }

    /// The bit in a bitmap of versions ([`Hello::versions`](crate::message::Hello::versions)).
    pub const fn bit(self) -> u32 {
        1 << self.number()
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// The version's number, which need not be one of [`Version`].
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
pub fn split(bytes: &[u8]) -> Result<Option<(&[u8], &[u8])>, ErrorCode> {
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
        for version in Version::ALL {
            assert_eq!(Version::of_number(version.number()), Some(version));
        }
        assert_eq!(Version::of_number(2), None);
    }
}
