//! Frames of other links, made Ethernet.

use super::CaptureError;

/// Bytes by which a frame may grow.
pub(super) const HEADER_MAX: usize = 14;

/// What frames of a capture begin with (tcpdump.org's list of link types).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkType {
    Ethernet,
    /// An IP header.
    Raw,
    /// A Linux 'cooked' header, version 1.
    Cooked,
}

impl LinkType {
    pub(super) fn from_number(number: u32) -> Result<Self, CaptureError> {
        // The upper bits of pcap's field say how long the frame check sequence is.
        match number & 0xffff {
            1 => Ok(Self::Ethernet),
            101 | 228 | 229 => Ok(Self::Raw),
            113 => Ok(Self::Cooked),
            other => Err(CaptureError::LinkType(other)),
        }
    }

    /// Writes `bytes` into `frame` as an Ethernet frame.
    pub(super) fn to_ethernet(self, bytes: &[u8], frame: &mut Vec<u8>) {
        frame.clear();
        let payload = match self {
            Self::Ethernet => bytes,
            Self::Raw => {
                let version = bytes.first().map_or(0, |b| b >> 4);
                let eth_type: [u8; 2] = if version == 6 { [0x86, 0xdd] } else { [8, 0] };
                frame.extend([0; 12]);
                frame.extend(eth_type);
                bytes
            }
            Self::Cooked => {
                // Packet type, ARPHRD type, address length, address (8), protocol (2).
                let Some((header, payload)) = bytes.split_first_chunk::<16>() else { return };
                frame.extend([0; 6]);
                frame.extend(&header[6..12]);
                frame.extend(&header[14..16]);
                payload
            }
        };
        frame.extend_from_slice(payload);
    }
}
