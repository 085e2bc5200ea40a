//! The pcap format.

use std::io::Read;

use super::link::LinkType;
use super::source::{Order, Source};
use super::{CaptureError, Step};

/// Returns byte order and nanoseconds per fractional time unit for the file's magic number.
fn of_magic(magic: [u8; 4]) -> Option<(Order, u64)> {
    match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] => Some((Order::Little, 1000)),
        [0xa1, 0xb2, 0xc3, 0xd4] => Some((Order::Big, 1000)),
        [0x4d, 0x3c, 0xb2, 0xa1] => Some((Order::Little, 1)),
        [0xa1, 0xb2, 0x3c, 0x4d] => Some((Order::Big, 1)),
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
    link: LinkType,
}

impl Header {
    pub(super) fn read<R: Read>(source: &mut Source<R>, magic: [u8; 4]) -> Result<Self, CaptureError> {
        let Some((order, fraction_ns)) = of_magic(magic) else {
            return Err(CaptureError::Magic { magic: magic.to_vec() });
        };
        source.rest(20)?;
        let link = LinkType::from_number(order.u32(source.block(), 16))?;
        Ok(Self { order, fraction_ns, link })
    }

    #[inline]
    pub(super) fn next<R: Read>(&mut self, source: &mut Source<R>) -> Result<Step, CaptureError> {
        let Some(header) = source.begin::<16>()? else { return Ok(Step::End) };
        let number = |at| self.order.u32(&header, at);
        let (seconds, fraction, captured, original) = (number(0), number(4), number(8), number(12));
        source.rest(captured as usize)?;
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.fraction_ns;
        source.deliver(self.link, 0, [captured as usize, original as usize], time_ns)?;
        Ok(Step::Frame)
    }
}
