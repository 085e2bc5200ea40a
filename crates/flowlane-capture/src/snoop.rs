//! The snoop format of Solaris (RFC 1761).

use std::io::Read;

use super::link::LinkType;
use super::order::Order;
use super::source::Source;
use super::{CaptureError, FRAME_MAX, Step};

/// The first bytes of a file. Four more follow: `p` and zeros.
pub(super) const MAGIC: [u8; 4] = *b"snoo";

/// Bytes of a record before its frame.
const RECORD_BYTES: usize = 24;

/// The file header. All numbers are big-endian.
pub(super) struct Header {
    link: LinkType,
}

impl Header {
    /// Reads the header, after its first four bytes.
    pub(super) fn read<R: Read>(source: &mut Source<R>) -> Result<Self, CaptureError> {
        source.rest(12)?;
        let block = source.block();
        if block[..4] != *b"p\0\0\0" {
            return Err(CaptureError::Magic { magic: [&MAGIC[..], &block[..4]].concat() });
        }
        let [version, link] = [4, 8].map(|at| Order::Big.u32(block, at));
        if version != 2 {
            return Err(CaptureError::Version { format: "snoop", major: version, minor: 0, supported: "2" });
        }
        // RFC 1761 numbers the link types in its own way.
        let link = match link {
            0 | 4 => LinkType::Ethernet,
            8 => LinkType::Fddi,
            other => return Err(CaptureError::SnoopLinkType(other)),
        };
        Ok(Self { link })
    }

    pub(super) fn next<R: Read>(&mut self, source: &mut Source<R>) -> Result<Step, CaptureError> {
        let Some(header) = source.begin::<RECORD_BYTES>()? else { return Ok(Step::End) };
        let [original, captured, len, _drops, seconds, micros] =
            std::array::from_fn(|i| Order::Big.u32(&header, 4 * i));
        let (captured, len) = (captured as usize, len as usize);
        if len < RECORD_BYTES {
            return Err(source.damaged(format!("a record of {len} bytes")));
        }
        source.rest(len - RECORD_BYTES)?;
        if captured > (len - RECORD_BYTES).min(FRAME_MAX) {
            return Ok(source.reject(format!("{captured} captured bytes do not fit into its {len} bytes")));
        }
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(micros) * 1000;
        Ok(source.deliver(self.link, 0, [captured, original as usize], time_ns))
    }
}
