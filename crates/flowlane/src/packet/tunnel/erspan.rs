//! The header of ERSPAN behind GRE with a sequence number (draft-foschiano-erspan-03), of type II, which Open vSwitch calls version 1,
//! and of type III, version 2.
//!
//! ```text
//! | version, VLAN | class, flags, session | version 1: index of 20 bits                       |
//!   2 bytes         2                       version 2: timestamp | group | hardware, direction
//! ```

use super::super::headers::Malformed;
use super::gre::{self, Gre};
use super::word_at;

/// The protocol in GRE of version 1.
pub const VERSION_1: u16 = 0x88be;
/// The protocol in GRE of version 2.
pub const VERSION_2: u16 = 0x22eb;
/// The largest session.
pub const SESSION_MAX: u32 = 0x3ff;
/// The largest index.
pub const INDEX_MAX: u32 = 0xf_ffff;
/// The largest hardware identifier.
pub const HARDWARE_MAX: u8 = 0x3f;

/// Where the mirrored frame was seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Erspan {
    /// Version 1.
    Version1 {
        /// The port, by a number that its switch chose (`tun_erspan_idx`).
        index: u32,
    },
    /// Version 2.
    Version2 {
        /// The frame left there (`tun_erspan_dir`); else it came in.
        is_egress: bool,
        /// The engine of the switch (`tun_erspan_hwid`).
        hardware: u8,
    },
}

impl Erspan {
    /// Returns the fields of ERSPAN, as the flow key has them.
    pub(super) fn word(self) -> u32 {
        match self {
            Self::Version1 { index } => index << 12 | 1 << 8,
            Self::Version2 { is_egress, hardware } => {
                2 << 8 | u32::from(is_egress) << 7 | u32::from(hardware) << 1
            }
        }
    }
}

/// A header that was read, that of GRE included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErspanHeader {
    /// The session.
    pub session: u32,
    /// Where the frame was seen.
    pub erspan: Erspan,
    /// Bytes of both headers.
    pub bytes: usize,
}

impl ErspanHeader {
    /// Reads the headers with which `body` begins, the first of which is GRE's.
    ///
    /// # Errors
    /// The reason for which they are malformed.
    pub fn read(body: &[u8]) -> Result<Self, Malformed> {
        let gre = Gre::read(body)?;
        // Type I is without sequence number, and has no header of its own.
        if gre.flags != gre::SEQUENCE {
            return Err(Malformed::TunnelFormat);
        }
        let first = word_at(body, gre.bytes)?;
        let second = word_at(body, gre.bytes + 4)?;
        let session = first & SESSION_MAX;
        match (gre.protocol, first >> 28) {
            (VERSION_1, 1) => {
                let erspan = Erspan::Version1 { index: second & INDEX_MAX };
                Ok(Self { session, erspan, bytes: gre.bytes + 8 })
            }
            (VERSION_2, 2) => {
                let last = word_at(body, gre.bytes + 8)?;
                // Frames of Ethernet, with all of a header for the platform or without.
                if last >> 10 & 0x1f != 0 {
                    return Err(Malformed::TunnelFormat);
                }
                let bytes = gre.bytes + 12 + 8 * (last & 1) as usize;
                if body.len() < bytes {
                    return Err(Malformed::TunnelTruncated);
                }
                let erspan = Erspan::Version2 {
                    is_egress: last >> 3 & 1 == 1,
                    hardware: (last >> 4) as u8 & HARDWARE_MAX,
                };
                Ok(Self { session, erspan, bytes })
            }
            _ => Err(Malformed::TunnelFormat),
        }
    }
}
