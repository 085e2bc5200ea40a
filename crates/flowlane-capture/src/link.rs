//! Conversion of other link types to Ethernet.

use super::CaptureError;
use super::order::Order;

/// A link type (tcpdump.org's list), which determines what a frame begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkType {
    Ethernet,
    /// An IP header.
    Raw,
    /// The address family in four bytes, in either byte order.
    Loopback,
    /// PPP, optionally with address and control bytes (RFC 1662).
    Ppp,
    /// PPP over Ethernet, from the PPPoE session header on (RFC 2516).
    Pppoe,
    /// Cisco HDLC: address, control, EtherType.
    Hdlc,
    /// Linux 'cooked' header, version 1.
    LinuxCooked,
    /// Linux 'cooked' header, version 2.
    LinuxCooked2,
    /// FDDI: frame control, addresses, LLC.
    Fddi,
    /// IEEE 802.11.
    Wireless,
    /// IEEE 802.11 after a radiotap header.
    Radiotap,
    /// Per-Packet Information, which names the link type of what follows.
    Ppi,
    /// Messages of Linux's NFLOG; their attributes are in the byte order of the file.
    Nflog(Order),
}

/// Supported link types, for error messages.
pub(super) const NAMES: &str = "Ethernet (1), raw IP (12, 14, 101, 228, 229), loopback (0, 108), PPP (9, 50), PPPoE (51), \
     Cisco HDLC (104), Linux cooked (113, 276), FDDI (10), IEEE 802.11 (105, 127), PPI (192), NFLOG (239)";

/// An Ethernet header, and the number of bytes that it replaces.
type Header = ([u8; 14], usize);

/// EtherType of unknown payloads: a reserved value, because 0 would be a length.
const UNKNOWN: [u8; 2] = [0xff; 2];

/// Type of Cisco keepalives; elsewhere the EtherType of RARP.
const KEEPALIVE: [u8; 2] = [0x80, 0x35];

const IPV4: [u8; 2] = [8, 0];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// LLC and SNAP header before an EtherType (RFC 1042).
const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];

impl LinkType {
    /// Returns the link type of this number in a file of this byte order.
    pub(super) fn from_number(number: u32, order: Order) -> Result<Self, CaptureError> {
        // The upper bits of pcap's field give the length of the frame check sequence.
        match number & 0xffff {
            0 | 108 => Ok(Self::Loopback),
            1 => Ok(Self::Ethernet),
            9 | 50 => Ok(Self::Ppp),
            10 => Ok(Self::Fddi),
            // 12 and 14: raw IP in files of some systems.
            12 | 14 | 101 | 228 | 229 => Ok(Self::Raw),
            51 => Ok(Self::Pppoe),
            104 => Ok(Self::Hdlc),
            105 => Ok(Self::Wireless),
            113 => Ok(Self::LinuxCooked),
            127 => Ok(Self::Radiotap),
            192 => Ok(Self::Ppi),
            239 => Ok(Self::Nflog(order)),
            276 => Ok(Self::LinuxCooked2),
            other => Err(CaptureError::LinkType(other)),
        }
    }

    /// Appends `bytes` to `frame` as an Ethernet frame; appends nothing if they end within the link header.
    ///
    /// # Errors
    /// If they are of an unsupported link type.
    pub(super) fn to_ethernet(self, mut bytes: &[u8], frame: &mut Vec<u8>) -> Result<(), CaptureError> {
        let mut link = self;
        while link == Self::Ppi {
            let Some((number, rest)) = ppi(bytes) else { return Ok(()) };
            (link, bytes) = (Self::from_number(number, Order::Little)?, rest);
        }
        let converted = match link {
            Self::Nflog(order) => nflog(bytes, order),
            other => other.header(bytes).map(|(header, replaced)| (header, &bytes[replaced..])),
        };
        if let Some((header, payload)) = converted {
            frame.extend(header);
            frame.extend_from_slice(payload);
        }
        Ok(())
    }

    /// Returns the header that replaces the link header; `None` if `bytes` end within it.
    fn header(self, bytes: &[u8]) -> Option<Header> {
        let no_addresses = [[0; 6]; 2];
        match self {
            Self::Ethernet => Some((*bytes.first_chunk()?, 14)),
            Self::Raw => {
                let eth_type = if bytes.first()? >> 4 == 6 { IPV6 } else { IPV4 };
                Some((ethernet(no_addresses, eth_type), 0))
            }
            Self::Loopback => Some((ethernet(no_addresses, family(*bytes.first_chunk()?)), 4)),
            Self::Ppp if matches!(bytes, [0x0f | 0x8f, 0, ..]) => Self::Hdlc.header(bytes),
            Self::Ppp => ppp(bytes, if bytes.starts_with(&[0xff, 3]) { 2 } else { 0 }),
            Self::Pppoe => ppp(bytes, 6),
            Self::Hdlc => {
                let &[_, _, a, b] = bytes.first_chunk()?;
                let eth_type = if [a, b] == KEEPALIVE { UNKNOWN } else { [a, b] };
                Some((ethernet(no_addresses, eth_type), 4))
            }
            Self::LinuxCooked => {
                // Packet type, ARPHRD type, address length, address (8), protocol (2).
                let header: &[u8; 16] = bytes.first_chunk()?;
                Some((ethernet([[0; 6], address(header, 6)], [header[14], header[15]]), 16))
            }
            Self::LinuxCooked2 => {
                // Protocol (2), reserved (2), interface (4), ARPHRD type (2), packet type, address length, address (8).
                let header: &[u8; 20] = bytes.first_chunk()?;
                Some((ethernet([[0; 6], address(header, 12)], [header[0], header[1]]), 20))
            }
            Self::Fddi => {
                let header: &[u8; 13] = bytes.first_chunk()?;
                Some(llc(bytes, [address(header, 1), address(header, 7)], 13))
            }
            Self::Wireless => wireless(bytes, 0),
            Self::Radiotap => {
                let &[_, _, low, high] = bytes.first_chunk()?;
                wireless(bytes, u16::from_le_bytes([low, high]).into())
            }
            // See `to_ethernet`.
            Self::Ppi | Self::Nflog(_) => None,
        }
    }
}

/// Returns the link type and the bytes of the packet behind a PPI header: version, flags, length (2), link type (4), all
/// little-endian (CACE Technologies, PPI header format 1.0.7).
fn ppi(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let &[_, _, low, high, a, b, c, d] = bytes.first_chunk()?;
    // Less than this header is no length.
    let len = usize::from(u16::from_le_bytes([low, high])).max(8);
    Some((u32::from_le_bytes([a, b, c, d]), bytes.get(len..)?))
}

/// Converts a message of NFLOG (Linux's `nfnetlink_log.h`): address family, version, resource (2), and attributes, each with its
/// length and type (2 and 2) and padded to 4 bytes. Returns the header, and the attribute with the packet.
fn nflog(bytes: &[u8], order: Order) -> Option<([u8; 14], &[u8])> {
    /// `NFULA_PACKET_HDR`: EtherType, hook, padding.
    const PACKET_HEADER: u16 = 1;
    /// `NFULA_HWADDR`: length (2), padding (2), source address (8).
    const SOURCE: u16 = 8;
    /// `NFULA_PAYLOAD`.
    const PAYLOAD: u16 = 9;
    let (&[family, ..], mut rest) = bytes.split_first_chunk::<4>()?;
    let (mut source, mut eth_type) = ([0; 6], self::family([family, 0, 0, 0]));
    loop {
        let head: &[u8; 4] = rest.first_chunk()?;
        let (len, kind) = (usize::from(order.u16(head, 0)), order.u16(head, 2));
        let value = rest.get(4..len.min(rest.len()))?;
        match (kind, value) {
            // Packets that leave the host have none in old kernels.
            (PACKET_HEADER, &[a, b, ..]) if eth_type == UNKNOWN => eth_type = [a, b],
            (SOURCE, &[0, 6, _, _, a, b, c, d, e, f, ..]) => source = [a, b, c, d, e, f],
            (PAYLOAD, packet) => return Some((ethernet([[0; 6], source], eth_type), packet)),
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

fn ethernet([destination, source]: [[u8; 6]; 2], eth_type: [u8; 2]) -> [u8; 14] {
    let mut header = [0; 14];
    header[..6].copy_from_slice(&destination);
    header[6..12].copy_from_slice(&source);
    header[12..].copy_from_slice(&eth_type);
    header
}

fn address(bytes: &[u8], at: usize) -> [u8; 6] {
    *bytes[at..].first_chunk().expect("the caller has looked")
}

/// Maps an address family, as the systems number them, to an EtherType.
fn family(number: [u8; 4]) -> [u8; 2] {
    // Written in the byte order of the capturing machine: families are small numbers.
    match u32::from_le_bytes(number).min(u32::from_be_bytes(number)) {
        2 => IPV4,
        // Linux, NetBSD and OpenBSD, FreeBSD, macOS.
        10 | 24 | 28 | 30 => IPV6,
        _ => UNKNOWN,
    }
}

/// Converts PPP with its protocol field at `at`, which is one byte if odd (RFC 1661 §2, §6.5).
fn ppp(bytes: &[u8], at: usize) -> Option<Header> {
    let first = *bytes.get(at)?;
    let (protocol, len) = match first & 1 {
        1 => (first.into(), 1),
        _ => (u16::from_be_bytes([first, *bytes.get(at + 1)?]), 2),
    };
    let eth_type = match protocol {
        0x0021 => IPV4,
        0x0057 => IPV6,
        0x0281 => [0x88, 0x47],
        0x0283 => [0x88, 0x48],
        _ => UNKNOWN,
    };
    Some((ethernet([[0; 6]; 2], eth_type), at + len))
}

/// Converts LLC at `at`: the EtherType of a SNAP header, else an unknown payload.
fn llc(bytes: &[u8], addresses: [[u8; 6]; 2], at: usize) -> Header {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        // Smaller values are lengths.
        Some(snap) if snap[..6] == SNAP && snap[6] >= 6 => (ethernet(addresses, [snap[6], snap[7]]), at + 8),
        _ => (ethernet(addresses, UNKNOWN), at.min(bytes.len())),
    }
}

/// Converts an IEEE 802.11 frame at `at` (IEEE 802.11-2020 §9.2, §9.3.2). Frames without readable data get the EtherType of
/// unknown payloads.
fn wireless(bytes: &[u8], at: usize) -> Option<Header> {
    let frame = bytes.get(at..)?;
    let header: &[u8; 24] = match frame.first_chunk() {
        Some(header) => header,
        // Acknowledgements and similar control frames are shorter.
        None => return (frame.len() >= 10).then(|| (ethernet([[0; 6]; 2], UNKNOWN), bytes.len())),
    };
    let [control, flags, ..] = *header;
    let is_data = control & 0x0c == 0x08 && control & 0x40 == 0;
    let [first, second, third] = [4, 10, 16].map(|at| address(header, at));
    if !is_data {
        return Some((ethernet([first, second], UNKNOWN), at + 24));
    }
    let mut len = 24;
    // To a distribution system, from one, or between two.
    let addresses = match flags & 3 {
        0 => [first, second],
        1 => [third, second],
        2 => [first, third],
        _ => {
            len += 6;
            [third, *frame.get(24..)?.first_chunk()?]
        }
    };
    let mut is_plain = flags & 0x40 == 0;
    if control & 0x80 != 0 {
        // Aggregates (A-MSDU) are not split.
        is_plain &= frame.get(len)? & 0x80 == 0;
        len += if flags & 0x80 != 0 { 6 } else { 2 };
    }
    match is_plain {
        true => Some(llc(bytes, addresses, at + len)),
        false => Some((ethernet(addresses, UNKNOWN), (at + len).min(bytes.len()))),
    }
}
