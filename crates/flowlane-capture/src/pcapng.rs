//! The pcapng format: section headers, interfaces, enhanced, simple and (obsolete) packet blocks. Other blocks are skipped.

use std::io::Read;

use super::link::LinkType;
use super::source::{Order, Source};
use super::{CaptureError, Step};

/// Limit of interfaces per section; more are taken for a damaged file.
const INTERFACES_MAX: usize = 65_536;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE: u32 = 3;
const ENHANCED: u32 = 6;

/// A section: its byte order and interfaces.
pub(super) struct Section {
    order: Order,
    interfaces: Vec<Interface>,
    has_frames: bool,
    has_late_interfaces: bool,
}

struct Interface {
    /// An unsupported link type is an error only when a packet has it.
    link: u32,
    snap_len: u32,
    resolution: Resolution,
    /// Offset of timestamps in seconds.
    offset_s: i64,
}

impl Interface {
    fn time_ns(&self, units: u64) -> u64 {
        let offset_ns = i128::from(self.offset_s) * 1_000_000_000;
        let ns = i128::from(self.resolution.to_ns(units)) + offset_ns;
        ns.clamp(0, u64::MAX.into()) as u64
    }
}

/// Unit of a timestamp.
#[derive(Clone, Copy)]
enum Resolution {
    /// 10^-n seconds.
    Decimal(u8),
    /// 2^-n seconds.
    Binary(u8),
}

impl Resolution {
    fn to_ns(self, units: u64) -> u64 {
        let ns = match self {
            Self::Decimal(n) if n <= 9 => u128::from(units) * 10u128.pow(u32::from(9 - n)),
            Self::Decimal(n) => u128::from(units) / 10u128.pow(u32::from(n - 9).min(28)),
            Self::Binary(n) => (u128::from(units) * 1_000_000_000) >> n,
        };
        ns.try_into().unwrap_or(u64::MAX)
    }
}

impl Section {
    /// Reads a section header, after its type.
    pub(super) fn begin<R: Read>(source: &mut Source<R>) -> Result<Self, CaptureError> {
        let mut section = Self {
            order: Order::Little,
            interfaces: Vec::new(),
            has_frames: false,
            has_late_interfaces: false,
        };
        section.restart(source)?;
        Ok(section)
    }

    /// Returns whether a section or an interface is described after the first frame.
    pub(super) fn has_late_interfaces(&self) -> bool {
        self.has_late_interfaces
    }

    /// Starts a new section, which resets byte order and interfaces.
    fn restart<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), CaptureError> {
        self.has_late_interfaces |= self.has_frames;
        source.rest(8)?;
        self.order = match source.block()[4..8] {
            [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
            [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
            _ => return Err(source.damaged("a section begins with the number 0x1a2b3c4d")),
        };
        self.interfaces.clear();
        let len = self.order.u32(source.block(), 0) as usize;
        if len < 28 || !len.is_multiple_of(4) {
            return Err(source.damaged(format!("a section header of {len} bytes")));
        }
        source.rest(len - 12)
    }

    /// Reads a block.
    #[inline]
    pub(super) fn next<R: Read>(&mut self, source: &mut Source<R>) -> Result<Step, CaptureError> {
        let Some(kind) = source.begin::<4>()? else { return Ok(Step::End) };
        // A section header reads the same in both byte orders.
        if kind == SECTION.to_be_bytes() {
            return self.restart(source).map(|()| Step::Other);
        }
        let kind = self.order.u32(&kind, 0);
        source.rest(4)?;
        let len = self.order.u32(source.block(), 0) as usize;
        if len < 12 || !len.is_multiple_of(4) {
            return Err(source.damaged(format!("a block of {len} bytes")));
        }
        source.rest(len - 8)?;
        self.has_frames |= [ENHANCED, PACKET, SIMPLE].contains(&kind);
        match kind {
            INTERFACE => self.interface(source, len - 12).map(|()| Step::Other),
            ENHANCED => self.packet(source, len - 12, 4).map(|()| Step::Frame),
            PACKET => self.packet(source, len - 12, 2).map(|()| Step::Frame),
            SIMPLE => self.simple(source, len - 12).map(|()| Step::Frame),
            _ => Ok(Step::Other),
        }
    }

    fn interface<R: Read>(&mut self, source: &Source<R>, len: usize) -> Result<(), CaptureError> {
        if len < 8 || self.interfaces.len() >= INTERFACES_MAX {
            return Err(source.damaged("an interface description that is too short, or too many of them"));
        }
        let block = &source.block()[..len];
        let (mut resolution, mut offset_s) = (Resolution::Decimal(6), 0);
        let mut options = &block[8..];
        while options.len() >= 4 {
            let (code, size) = (self.order.u16(options, 0), usize::from(self.order.u16(options, 2)));
            let value = options.get(4..4 + size);
            match (code, value) {
                (0, _) => break,
                (_, None) => return Err(source.damaged("an option is longer than its block")),
                // if_tsresol
                (9, Some(&[n])) if n & 0x80 == 0 => resolution = Resolution::Decimal(n),
                (9, Some(&[n])) => resolution = Resolution::Binary((n & 0x7f).min(127)),
                // if_tsoffset
                (14, Some(&[_, _, _, _, _, _, _, _])) => {
                    let halves = [self.order.u32(options, 4), self.order.u32(options, 8)];
                    let [high, low] =
                        if self.order == Order::Little { [halves[1], halves[0]] } else { halves };
                    offset_s = (u64::from(high) << 32 | u64::from(low)).cast_signed();
                }
                _ => {}
            }
            options = options.get(4 + size.next_multiple_of(4)..).unwrap_or(&[]);
        }
        self.has_late_interfaces |= self.has_frames;
        let link = self.order.u16(block, 0).into();
        let snap_len = self.order.u32(block, 4);
        self.interfaces.push(Interface { link, snap_len, resolution, offset_s });
        Ok(())
    }

    /// Reads an enhanced packet block (interface number of 4 bytes), or an obsolete packet block (2 bytes, then 2 bytes of
    /// drops).
    fn packet<R: Read>(
        &self,
        source: &mut Source<R>,
        len: usize,
        number_len: usize,
    ) -> Result<(), CaptureError> {
        if len < 20 {
            return Err(source.damaged("a packet block that is too short"));
        }
        let block = &source.block()[..len];
        let number = if number_len == 4 { self.order.u32(block, 0) } else { self.order.u16(block, 0).into() };
        let Some(interface) = self.interfaces.get(number as usize) else {
            return Err(source.damaged(format!("it names interface {number}, which is not described")));
        };
        let units = u64::from(self.order.u32(block, 4)) << 32 | u64::from(self.order.u32(block, 8));
        let captured = self.order.u32(block, 12) as usize;
        if captured > len - 20 {
            return Err(source.damaged(format!("{captured} captured bytes do not fit into its block")));
        }
        let (original, time_ns) = (self.order.u32(block, 16) as usize, interface.time_ns(units));
        source.deliver(LinkType::from_number(interface.link)?, 20, [captured, original], time_ns)
    }

    fn simple<R: Read>(&self, source: &mut Source<R>, len: usize) -> Result<(), CaptureError> {
        let Some(interface) = self.interfaces.first().filter(|_| len >= 4) else {
            return Err(source.damaged("a simple packet block without interface"));
        };
        let original = self.order.u32(source.block(), 0);
        let limit = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
        let captured = (original.min(limit) as usize).min(len - 4);
        source.deliver(LinkType::from_number(interface.link)?, 4, [captured, original as usize], 0)
    }
}
