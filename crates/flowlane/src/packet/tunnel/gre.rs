//! The GRE header (RFC 2784), with the key and the sequence number of RFC 2890.
//!
//! ```text
//! | C . K S  reserved  version | protocol | checksum, reserved | key | sequence number |
//!   2 bytes                      2          4, with C            4, with K  4, with S
//! ```

use super::super::headers::Malformed;
use super::super::parse::ether_type;
use super::{Inner, erspan, word_at};

/// The protocol of Ethernet frames: transparent Ethernet bridging.
pub const ETHERNET: u16 = 0x6558;
/// C: the header has a checksum, over itself and what follows.
pub const CHECKSUM: u16 = 0x8000;
/// K: the header has a key.
pub const KEY: u16 = 0x2000;
/// S: the header has a sequence number.
pub const SEQUENCE: u16 = 0x1000;

/// A GRE header of version 0 that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gre {
    /// The first two bytes: flags and version.
    pub flags: u16,
    /// The EtherType of what follows.
    pub protocol: u16,
    /// The key, if it has one.
    pub key: Option<u32>,
    /// Bytes of the header.
    pub bytes: usize,
}

impl Gre {
    /// Reads the header with which `body` begins.
    ///
    /// # Errors
    /// The reason for which it is malformed: it is cut off, or has another version or other flags than C, K and S (the routing of
    /// RFC 1701 among them, which RFC 2784 has receivers discard).
    pub fn read(body: &[u8]) -> Result<Self, Malformed> {
        let first = word_at(body, 0)?;
        let (flags, protocol) = ((first >> 16) as u16, first as u16);
        if flags & !(CHECKSUM | KEY | SEQUENCE) != 0 {
            return Err(Malformed::TunnelFormat);
        }
        let has = |flag: u16| usize::from(flags & flag != 0);
        let key_at = 4 + 4 * has(CHECKSUM);
        let bytes = key_at + 4 * has(KEY) + 4 * has(SEQUENCE);
        if body.len() < bytes {
            return Err(Malformed::TunnelTruncated);
        }
        let key = (flags & KEY != 0).then(|| word_at(body, key_at)).transpose()?;
        Ok(Self { flags, protocol, key, bytes })
    }

    /// Returns whether a header of ERSPAN follows.
    pub fn is_erspan(&self) -> bool {
        matches!(self.protocol, erspan::VERSION_1 | erspan::VERSION_2)
    }

    /// The first header of what follows; none where it is neither Ethernet nor IP.
    pub fn inner(&self) -> Option<Inner> {
        match self.protocol {
            ETHERNET => Some(Inner::Ethernet),
            ip @ (ether_type::IPV4 | ether_type::IPV6) => Some(Inner::Ip(ip)),
            _ => None,
        }
    }
}
