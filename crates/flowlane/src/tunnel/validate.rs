//! The definition of what may be terminated: one packet at a time, every header read.

use super::checksum::{add, fold, word_be};
use super::endpoint::{Key, V4Key, V6Key, tag, words};
use super::{OptionMap, Refused, TunnelKind};
use crate::packet::parse::{ether_type, ip_proto};
use crate::packet::tunnel::erspan::ErspanHeader;
use crate::packet::tunnel::gre::{self, Gre};
use crate::packet::tunnel::{GENEVE_PORT, GTPU_PORT, Inner, VXLAN_PORT};
use crate::packet::{Headers, Malformed, Network, Transport};

/// Bytes of a UDP header, and of each tunnel header's fixed part.
const UDP_BYTES: usize = 8;
const TUNNEL_BYTES: usize = 8;

/// The tunnels to terminate, and the checks of their packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// UDP destination port of VXLAN; none: VXLAN is not terminated.
    pub vxlan_port: Option<u16>,
    /// UDP destination port of GENEVE; none: GENEVE is not terminated.
    pub geneve_port: Option<u16>,
    /// UDP destination port of GTP-U; none: GTP-U is not terminated.
    pub gtpu_port: Option<u16>,
    /// If set, GRE is terminated, but for ERSPAN.
    pub gre: bool,
    /// If set, ERSPAN is terminated.
    pub erspan: bool,
    /// If set, IPv4 header checksums are verified; not needed where the network card has.
    pub verify_ipv4_checksum: bool,
    /// If set, UDP checksums are verified where there are any, which reads the whole packet; not needed where the network
    /// card has.
    pub verify_udp_checksum: bool,
    /// If set, UDP over IPv6 may have no checksum, as RFC 6935 allows tunnels that are configured so.
    pub ipv6_zero_checksum: bool,
    /// Class and type of the critical GENEVE options that the receiver of the packets understands.
    pub geneve_options: Vec<(u16, u8)>,
    /// The GENEVE options that have fields: these are understood, too.
    pub option_fields: OptionMap,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            vxlan_port: Some(VXLAN_PORT),
            geneve_port: Some(GENEVE_PORT),
            gtpu_port: Some(GTPU_PORT),
            gre: true,
            erspan: true,
            verify_ipv4_checksum: true,
            verify_udp_checksum: true,
            ipv6_zero_checksum: false,
            geneve_options: Vec::new(),
            option_fields: OptionMap::default(),
        }
    }
}

impl Policy {
    /// Returns the tunnel protocol of an outer frame: that of its UDP destination port, GRE or ERSPAN.
    pub fn kind_of(&self, frame: &[u8], headers: &Headers) -> Option<TunnelKind> {
        match headers.transport {
            Transport::Udp => {
                let at = usize::from(headers.l4) + 2;
                self.kind_of_port(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
            }
            Transport::Gre => {
                let header = Gre::read(frame.get(usize::from(headers.l4)..)?);
                match header.is_ok_and(|header| header.is_erspan()) {
                    true => self.erspan.then_some(TunnelKind::Erspan),
                    false => self.gre.then_some(TunnelKind::Gre),
                }
            }
            _ => None,
        }
    }

    /// Returns the tunnel protocol that uses this UDP destination port.
    fn kind_of_port(&self, port: u16) -> Option<TunnelKind> {
        let ports = [
            (self.vxlan_port, TunnelKind::Vxlan),
            (self.geneve_port, TunnelKind::Geneve),
            (self.gtpu_port, TunnelKind::Gtpu),
        ];
        ports.into_iter().find(|(own, _)| *own == Some(port)).map(|(_, kind)| kind)
    }

    /// Returns whether the receiver of the packets understands a GENEVE option.
    pub fn understands(&self, class: u16, kind: u8) -> bool {
        self.geneve_options.contains(&(class, kind)) || self.option_fields.find(class, kind).is_some()
    }
}

/// A tunnel packet whose outer headers are right; its endpoint is not known yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Valid {
    /// The tunnel's protocol.
    pub kind: TunnelKind,
    /// VNI, TEID, key or session.
    pub id: u32,
    /// Where the inner packet begins in the frame.
    pub inner_at: u16,
    /// How long it is.
    pub inner_len: u16,
    /// Its first header.
    pub inner: Inner,
    /// By which its endpoint is looked up.
    pub key: Key,
}

/// The tunnel header.
struct Header {
    id: u32,
    /// The id in network byte order, as in keys.
    id_wire: u32,
    /// Bytes before the inner packet, the tunnel header included.
    bytes: usize,
    inner: Inner,
}

/// Validates a frame with these headers; none where it is no tunnel packet.
pub fn validate(
    frame: &[u8],
    headers: &Headers,
    vrf: u32,
    policy: &Policy,
) -> Option<Result<Valid, Refused>> {
    if headers.fragment != 0 || headers.malformed.is_some() {
        return None;
    }
    // It is on its way to another node, and its checksum is not over the addresses that it has now.
    if headers.segments_left {
        return None;
    }
    let kind = policy.kind_of(frame, headers)?;
    Some(outer(frame, headers, policy).and_then(|(body, at)| {
        let header = match kind {
            TunnelKind::Vxlan => vxlan(body),
            TunnelKind::Geneve => geneve(body, policy),
            TunnelKind::Gtpu => gtpu(body),
            TunnelKind::Gre => gre(body),
            TunnelKind::Erspan => erspan(body),
        }?;
        Ok(Valid {
            kind,
            id: header.id,
            inner_at: (at + header.bytes) as u16,
            inner_len: (body.len() - header.bytes) as u16,
            inner: header.inner,
            key: key(frame, headers, header.id_wire, tag(kind, vrf)),
        })
    }))
}

fn key(frame: &[u8], headers: &Headers, id: u32, tag: u32) -> Key {
    let packet = &frame[usize::from(headers.l3)..];
    if headers.network == Network::Ipv4 {
        let [from, to] = words(&packet[12..20]);
        let key: V4Key = [from, to, id, tag];
        Key::V4(key)
    } else {
        let mut key: V6Key = [0; 10];
        key[..8].copy_from_slice(&words::<8>(&packet[8..40]));
        key[8..].copy_from_slice(&[id, tag]);
        Key::V6(key)
    }
}

/// Checks the outer headers' checksums and the datagram's length; returns what begins with the tunnel header, and where that is. The
/// parser has checked that what the headers say lies within the frame.
fn outer<'a>(frame: &'a [u8], headers: &Headers, policy: &Policy) -> Result<(&'a [u8], usize), Refused> {
    let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
    let v4 = headers.network == Network::Ipv4;
    if v4 && policy.verify_ipv4_checksum {
        let header_len = usize::from(frame[l3] & 15) * 4;
        if fold(add(0, &frame[l3..l3 + header_len])) != 0xffff {
            return Err(Refused::Ipv4Checksum);
        }
    }
    let at = |place: usize| u16::from_be_bytes([frame[place], frame[place + 1]]);
    if headers.transport == Transport::Gre {
        // The rest of the frame is padding.
        let end = if v4 { l3 + usize::from(at(l3 + 2)) } else { l3 + 40 + usize::from(at(l3 + 4)) };
        return Ok((frame.get(l4..end).ok_or(Refused::Truncated)?, l4));
    }
    // 0: to the end of a jumbogram (RFC 2675), which no tunnel header is in.
    let datagram = frame.get(l4..l4 + usize::from(at(l4 + 4))).ok_or(Refused::Truncated)?;
    if datagram.len() < UDP_BYTES + TUNNEL_BYTES {
        return Err(Refused::Truncated);
    }
    match at(l4 + 6) {
        0 if !v4 && !policy.ipv6_zero_checksum => return Err(Refused::UdpChecksumMissing),
        0 => {}
        _ if policy.verify_udp_checksum => {
            let addresses = if v4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
            let pseudo = word_be(ip_proto::UDP.into()) + word_be(datagram.len() as u16);
            if fold(add(add(pseudo, &frame[addresses]), datagram)) != 0xffff {
                return Err(Refused::UdpChecksum);
            }
        }
        _ => {}
    }
    Ok((&datagram[UDP_BYTES..], l4 + UDP_BYTES))
}

/// Returns the first eight bytes, as two words in network order; there are that many.
fn first_words(body: &[u8]) -> Result<(u32, [u8; 4]), Refused> {
    let (first, rest) = body.split_first_chunk().ok_or(Refused::Truncated)?;
    Ok((u32::from_be_bytes(*first), *rest.first_chunk().ok_or(Refused::Truncated)?))
}

/// Returns a VNI as number and in keys.
fn vni([a, b, c, _]: [u8; 4]) -> (u32, u32) {
    (u32::from_be_bytes([0, a, b, c]), u32::from_ne_bytes([a, b, c, 0]))
}

/// RFC 7348 §5: all but the I flag is ignored on receipt.
fn vxlan(body: &[u8]) -> Result<Header, Refused> {
    let (first, second) = first_words(body)?;
    if first & 0x0800_0000 == 0 {
        return Err(Refused::VxlanFlags);
    }
    let (id, id_wire) = vni(second);
    Ok(Header { id, id_wire, bytes: TUNNEL_BYTES, inner: Inner::Ethernet })
}

/// Returns whether a GENEVE header (RFC 8926 §3.4, §3.5), with which `body` begins, may be terminated by a receiver that
/// understands the options of `policy`; its length with options.
///
/// # Errors
/// Why it may not.
pub fn geneve_header(body: &[u8], policy: &Policy) -> Result<usize, Refused> {
    let (first, _) = first_words(body)?;
    if first >> 30 != 0 {
        return Err(Refused::GeneveVersion);
    }
    let bytes = TUNNEL_BYTES + (first >> 24 & 0x3f) as usize * 4;
    let mut options = body.get(TUNNEL_BYTES..bytes).ok_or(Refused::GeneveOptionLength)?;
    if first & 0x0080_0000 != 0 {
        return Err(Refused::GeneveControl);
    }
    while let Some([class_high, class_low, kind, len]) = options.first_chunk() {
        let class = u16::from_be_bytes([*class_high, *class_low]);
        if kind & 0x80 != 0 && !policy.understands(class, *kind) {
            return Err(Refused::GeneveCriticalOption);
        }
        options = options.get(4 + usize::from(len & 0x1f) * 4..).ok_or(Refused::GeneveOptionLength)?;
    }
    Ok(bytes)
}

fn geneve(body: &[u8], policy: &Policy) -> Result<Header, Refused> {
    let bytes = geneve_header(body, policy)?;
    let (first, second) = first_words(body)?;
    let inner = match first as u16 {
        0x6558 => Inner::Ethernet,
        ip @ (ether_type::IPV4 | ether_type::IPV6) => Inner::Ip(ip),
        _ => return Err(Refused::InnerProtocol),
    };
    let (id, id_wire) = vni(second);
    Ok(Header { id, id_wire, bytes, inner })
}

/// Checks a GRE header and its checksum (RFC 2784 §2.1, §2.3), which is over all of `body`.
///
/// # Errors
/// Why the packet may not be terminated.
pub fn gre_header(body: &[u8]) -> Result<Gre, Refused> {
    let header = read_gre(body)?;
    if header.flags & gre::CHECKSUM != 0 && fold(add(0, body)) != 0xffff {
        return Err(Refused::GreChecksum);
    }
    Ok(header)
}

fn read_gre(body: &[u8]) -> Result<Gre, Refused> {
    Gre::read(body).map_err(|reason| match reason {
        Malformed::TunnelTruncated => Refused::Truncated,
        _ => Refused::GreFormat,
    })
}

/// Checks the headers of ERSPAN with which `body` begins.
///
/// # Errors
/// Why the packet may not be terminated.
pub fn erspan_header(body: &[u8]) -> Result<ErspanHeader, Refused> {
    read_gre(body)?;
    ErspanHeader::read(body).map_err(|reason| match reason {
        Malformed::TunnelTruncated => Refused::Truncated,
        _ => Refused::ErspanFormat,
    })
}

fn erspan(body: &[u8]) -> Result<Header, Refused> {
    let ErspanHeader { session: id, bytes, .. } = erspan_header(body)?;
    Ok(Header { id, id_wire: u32::from_ne_bytes(id.to_be_bytes()), bytes, inner: Inner::Ethernet })
}

fn gre(body: &[u8]) -> Result<Header, Refused> {
    let header = gre_header(body)?;
    let id = header.key.unwrap_or(0);
    let id_wire = u32::from_ne_bytes(id.to_be_bytes());
    Ok(Header { id, id_wire, bytes: header.bytes, inner: header.inner().ok_or(Refused::InnerProtocol)? })
}

/// GTP-U extension headers that do not change the inner packet: RAN and NR RAN containers, long PDCP number,
/// PDU session container, PDCP number (TS 29.281 §5.2.1).
const GTPU_EXTENSIONS: [u8; 6] = [0x81, 0x82, 0x83, 0x84, 0x85, 0xc0];

/// TS 29.281 §5.1 and §5.2.
fn gtpu(body: &[u8]) -> Result<Header, Refused> {
    let (first, teid) = first_words(body)?;
    let (flags, message) = ((first >> 24) as u8, (first >> 16) as u8);
    if flags & 0xf0 != 0x30 {
        return Err(Refused::GtpuVersion);
    }
    if usize::from(first as u16) != body.len() - TUNNEL_BYTES {
        return Err(Refused::GtpuLength);
    }
    if message != 255 {
        return Err(Refused::GtpuSignalling);
    }
    let mut bytes = TUNNEL_BYTES;
    if flags & 7 != 0 {
        let mut next = *body.get(11).ok_or(Refused::Truncated)?;
        bytes = 12;
        while flags & 4 != 0 && next != 0 {
            // The two upper bits: 10 and 11 demand that the receiver understands it.
            if next & 0x80 != 0 && !GTPU_EXTENSIONS.contains(&next) {
                return Err(Refused::GtpuExtension);
            }
            let len = usize::from(*body.get(bytes).ok_or(Refused::GtpuExtensionLength)?) * 4;
            if len == 0 {
                return Err(Refused::GtpuExtensionLength);
            }
            next = *body.get(bytes + len - 1).ok_or(Refused::GtpuExtensionLength)?;
            bytes += len;
        }
    }
    let inner = match body.get(bytes).ok_or(Refused::Truncated)? >> 4 {
        4 => Inner::Ip(ether_type::IPV4),
        6 => Inner::Ip(ether_type::IPV6),
        _ => return Err(Refused::InnerProtocol),
    };
    Ok(Header { id: u32::from_be_bytes(teid), id_wire: u32::from_ne_bytes(teid), bytes, inner })
}
