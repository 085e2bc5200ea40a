//! The pcap format, and its modification by Alexey Kuznetsov, which old Linux distributions had.

use std::io::Read;

use super::link::LinkType;
use super::order::Order;
use super::source::Source;
use super::{CaptureError, FRAME_MAX, Step};

/// Bytes that the header of a record of modified pcap has more: interface (4), protocol (2), packet type (1), padding (1).
const MODIFIED_BYTES: usize = 8;

/// Returns byte order, nanoseconds per fractional time unit and additional bytes of a record's header for the file's magic
/// number.
fn of_magic(magic: [u8; 4]) -> Option<(Order, u64, usize)> {
    match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] => Some((Order::Little, 1000, 0)),
        [0xa1, 0xb2, 0xc3, 0xd4] => Some((Order::Big, 1000, 0)),
        [0x4d, 0x3c, 0xb2, 0xa1] => Some((Order::Little, 1, 0)),
        [0xa1, 0xb2, 0x3c, 0x4d] => Some((Order::Big, 1, 0)),
        [0x34, 0xcd, 0xb2, 0xa1] => Some((Order::Little, 1000, MODIFIED_BYTES)),
        [0xa1, 0xb2, 0xcd, 0x34] => Some((Order::Big, 1000, MODIFIED_BYTES)),
        _ => None,
    }
}

/// Returns whether the bytes are a magic number of pcap.
pub(super) fn is_magic(magic: [u8; 4]) -> bool {
    of_magic(magic).is_some()
}

/// The file header.
pub(super) struct Header {
    order: Order,
    /// Nanoseconds per unit of the fractional part of a timestamp.
    fraction_ns: u64,
    /// Bytes between the header of a record and its frame.
    more_bytes: usize,
    /// Before version 2.4 some programs wrote the two lengths of a record in the other order.
    may_swap_lens: bool,
    link: LinkType,
}

impl Header {
    pub(super) fn read<R: Read>(source: &mut Source<R>, magic: [u8; 4]) -> Result<Self, CaptureError> {
        let Some((order, fraction_ns, more_bytes)) = of_magic(magic) else {
            return Err(CaptureError::Magic { magic: magic.to_vec() });
        };
        source.rest(20)?;
        let block = source.block();
        let version = (order.u16(block, 0), order.u16(block, 2));
        // 543.0 was written by DG/UX.
        if !matches!(version, (2, ..=4) | (543, 0)) {
            let (major, minor) = (version.0.into(), version.1.into());
            return Err(CaptureError::Version { format: "pcap", major, minor, supported: "up to 2.4" });
        }
        let link = LinkType::from_number(order.u32(block, 16), order)?;
        Ok(Self { order, fraction_ns, more_bytes, may_swap_lens: version != (2, 4), link })
    }

    #[inline]
    pub(super) fn next<R: Read>(&mut self, source: &mut Source<R>) -> Result<Step, CaptureError> {
        let Some(header) = source.begin::<16>()? else { return Ok(Step::End) };
        let number = |at| self.order.u32(&header, at);
        let (seconds, fraction, mut captured, mut original) = (number(0), number(4), number(8), number(12));
        if self.may_swap_lens && captured > original {
            (captured, original) = (original, captured);
        }
        if captured as usize > FRAME_MAX {
            // A wrong length: the next record cannot be found.
            return Err(source.damaged(format!("a frame of {captured} bytes; the limit is {FRAME_MAX}")));
        }
        source.rest(self.more_bytes + captured as usize)?;
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.fraction_ns;
        Ok(source.deliver(self.link, self.more_bytes, [captured as usize, original as usize], time_ns))
    }
}
