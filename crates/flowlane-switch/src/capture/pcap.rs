//! The pcap format.

use std::io::Read;

use super::link::LinkType;
use super::{CaptureError, Order, Record, Source};

/// What the file's header says.
pub(super) struct Header {
    order: Order,
    /// Nanoseconds per unit of the second number of a time.
    fraction_ns: u64,
    link: LinkType,
}

impl Header {
    pub(super) fn read<R: Read>(source: &mut Source<R>, magic: [u8; 4]) -> Result<Self, CaptureError> {
        let (order, fraction_ns) = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => (Order::Little, 1000),
            [0xa1, 0xb2, 0xc3, 0xd4] => (Order::Big, 1000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (Order::Little, 1),
            [0xa1, 0xb2, 0x3c, 0x4d] => (Order::Big, 1),
            _ => return Err(CaptureError::Magic { magic: magic.to_vec() }),
        };
        source.rest(20)?;
        let link = LinkType::from_number(order.u32(&source.block, 16))?;
        Ok(Self { order, fraction_ns, link })
    }

    pub(super) fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
        frame: &mut Vec<u8>,
    ) -> Result<Option<Record>, CaptureError> {
        let Some(header) = source.begin::<16>()? else { return Ok(None) };
        let number = |at| self.order.u32(&header, at);
        let (seconds, fraction, captured, original_len) = (number(0), number(4), number(8), number(12));
        source.rest(captured as usize)?;
        source.deliver(self.link, 0, captured as usize, frame)?;
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.fraction_ns;
        Ok(Some(Record { time_ns, original_len }))
    }
}
