//! The pcapng format: section headers, interfaces, enhanced, simple and (obsolete) packet blocks. Other blocks are skipped.
//!
//! Each block has its length at its beginning and at its end. A fault within a block concerns this block alone, which is
//! counted as unreadable; reading ends only at a length that cannot be right.

use std::io::Read;

use super::link::LinkType;
use super::order::Order;
use super::source::Source;
use super::{CaptureError, FRAME_MAX, Step};

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
    /// Whether its version is supported. Else its blocks are skipped up to the next section.
    is_supported: bool,
    interfaces: Vec<Interface>,
    has_frames: bool,
    has_late_interfaces: bool,
}

struct Interface {
    /// `None` if the description is damaged. Packets of it and of unsupported link types are unreadable.
    link: Option<u32>,
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
            is_supported: true,
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
        source.rest(len - 12)?;
        let block = source.block();
        let version = (self.order.u16(block, 0), self.order.u16(block, 2));
        let last = self.order.u32(block, len - 16);
        // Some programs write 1.2, and mean 1.0 (draft-ietf-opsawg-pcapng §4.1).
        self.is_supported = matches!(version, (1, 0 | 2));
        if !self.is_supported {
            let (major, minor) = (version.0.into(), version.1.into());
            let (format, supported) = ("a section of pcapng", "1.0; it is skipped");
            source.reject(CaptureError::Version { format, major, minor, supported });
        } else if last as usize != len {
            source.reject(TwoLens(len, last));
        }
        Ok(())
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
        if !self.is_supported {
            return Ok(Step::Other);
        }
        let last = self.order.u32(source.block(), len - 12);
        if last as usize != len {
            source.reject(TwoLens(len, last));
            // Interfaces are numbered by their blocks.
            if kind != INTERFACE {
                return Ok(Step::Other);
            }
        }
        self.has_frames |= [ENHANCED, PACKET, SIMPLE].contains(&kind);
        Ok(match kind {
            INTERFACE => self.interface(source, len - 12),
            ENHANCED => self.packet(source, len - 12, 4),
            PACKET => self.packet(source, len - 12, 2),
            SIMPLE => self.simple(source, len - 12),
            _ => Step::Other,
        })
    }

    fn interface<R: Read>(&mut self, source: &mut Source<R>, len: usize) -> Step {
        self.has_late_interfaces |= self.has_frames;
        if self.interfaces.len() >= INTERFACES_MAX {
            return source.reject(format!("more than {INTERFACES_MAX} interfaces"));
        }
        let resolution = Resolution::Decimal(6);
        let mut interface = Interface { link: None, snap_len: 0, resolution, offset_s: 0 };
        let read = interface.read(&source.block()[..len], self.order);
        self.interfaces.push(interface);
        match read {
            Ok(()) => Step::Other,
            Err(problem) => source.reject(problem),
        }
    }

    /// Reads an enhanced packet block (interface number of 4 bytes), or an obsolete packet block (2 bytes, then 2 bytes of
    /// drops).
    fn packet<R: Read>(&self, source: &mut Source<R>, len: usize, number_len: usize) -> Step {
        if len < 20 {
            return source.reject("a packet block that is too short");
        }
        let block = &source.block()[..len];
        let number = if number_len == 4 { self.order.u32(block, 0) } else { self.order.u16(block, 0).into() };
        let units = u64::from(self.order.u32(block, 4)) << 32 | u64::from(self.order.u32(block, 8));
        let [captured, original] = [12, 16].map(|at| self.order.u32(block, at) as usize);
        if captured > (len - 20).min(FRAME_MAX) {
            return source.reject(format!(
                "{captured} captured bytes do not fit into its block of {} bytes",
                len + 12
            ));
        }
        match self.interface_of(number) {
            Ok((link, interface)) => source.deliver(link, 20, [captured, original], interface.time_ns(units)),
            Err(problem) => source.reject(problem),
        }
    }

    fn simple<R: Read>(&self, source: &mut Source<R>, len: usize) -> Step {
        if len < 4 {
            return source.reject("a packet block that is too short");
        }
        let (link, interface) = match self.interface_of(0) {
            Ok(found) => found,
            Err(problem) => return source.reject(problem),
        };
        let original = self.order.u32(source.block(), 0);
        let limit = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
        let captured = (original.min(limit) as usize).min(len - 4).min(FRAME_MAX);
        source.deliver(link, 4, [captured, original as usize], 0)
    }

    /// Returns an interface and its link type.
    fn interface_of(&self, number: u32) -> Result<(LinkType, &Interface), String> {
        let Some(interface) = self.interfaces.get(number as usize) else {
            return Err(format!("it names interface {number}, which is not described"));
        };
        let Some(link) = interface.link else {
            return Err(format!("the description of its interface {number} is damaged"));
        };
        let link = LinkType::from_number(link, self.order).map_err(|e| e.to_string())?;
        Ok((link, interface))
    }
}

impl Interface {
    /// Reads the body of an interface description. An option that is damaged, and those behind it, are left out.
    fn read(&mut self, block: &[u8], order: Order) -> Result<(), &'static str> {
        if block.len() < 8 {
            return Err("an interface description that is too short");
        }
        self.link = Some(order.u16(block, 0).into());
        self.snap_len = order.u32(block, 4);
        let mut options = &block[8..];
        while options.len() >= 4 {
            let (code, size) = (order.u16(options, 0), usize::from(order.u16(options, 2)));
            match (code, options.get(4..4 + size)) {
                (0, _) => break,
                (_, None) => return Err("an option is longer than its block"),
                // if_tsresol
                (9, Some(&[n])) if n & 0x80 == 0 => self.resolution = Resolution::Decimal(n),
                (9, Some(&[n])) => self.resolution = Resolution::Binary(n & 0x7f),
                // if_tsoffset
                (14, Some(&[_, _, _, _, _, _, _, _])) => {
                    let halves = [order.u32(options, 4), order.u32(options, 8)];
                    let [high, low] = if order == Order::Little { [halves[1], halves[0]] } else { halves };
                    self.offset_s = (u64::from(high) << 32 | u64::from(low)).cast_signed();
                }
                (9 | 14, _) => return Err("an option for timestamps has the wrong length"),
                _ => {}
            }
            options = options.get(4 + size.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(())
    }
}

/// The lengths at the beginning and at the end of a block that differ.
struct TwoLens(usize, u32);

impl std::fmt::Display for TwoLens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a block whose length is {} at its beginning and {} at its end", self.0, self.1)
    }
}
