//! Tunnel headers: VXLAN (RFC 7348, with the group policy bits of its GBP extension), GENEVE (RFC 8926) and GTP-U
//! (3GPP TS 29.281) behind UDP, GRE (RFC 2784) and ERSPAN in GRE, read into the tunnel fields of the key.
//!
//! [`read`] tells from a parsed outer frame where the inner packet begins and what the tunnel header
//! says. The caller removes the outer headers, parses the inner frame, and has [`Tunnel::fill`] complete
//! its key.

pub mod erspan;
pub mod gre;
#[cfg(test)]
mod tests;

use super::fields::{TUNNEL_ERSPAN, TUNNEL_GENEVE, TUNNEL_GRE, TUNNEL_GTPU, TUNNEL_VXLAN, word};
use super::headers::{Headers, Malformed, Network, Transport};
use super::key::FlowKey;
use super::parse::ether_type;
use erspan::{Erspan, ErspanHeader};
use gre::Gre;

/// UDP port of VXLAN.
pub const VXLAN_PORT: u16 = 4789;
/// UDP port of VXLAN in Linux, which is older than the assigned one; flannel has it, too.
pub const VXLAN_PORT_LINUX: u16 = 8472;
/// UDP port of GENEVE.
pub const GENEVE_PORT: u16 = 6081;
/// UDP port of GTP-U.
pub const GTPU_PORT: u16 = 2152;

/// The first header of the inner packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inner {
    /// An Ethernet header.
    Ethernet,
    /// An IP header; the EtherType it would have.
    Ip(u16),
}

/// A tunnel header that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tunnel {
    /// Offset of the inner packet in the outer frame.
    pub inner_at: usize,
    /// The first header there.
    pub inner: Inner,
    /// `tun_type`.
    pub kind: u8,
    /// VNI, TEID, key or session; 0 of GRE without a key.
    pub id: u32,
    /// The header's flag bits (`tun_flags`).
    pub flags: u16,
    /// VXLAN group policy: id and flags.
    pub group: (u16, u8),
    /// GTP-U flags and message type.
    pub gtpu: (u8, u8),
    /// First GENEVE option: class, type and length in one word, and its first 8 bytes.
    pub option: [u32; 3],
    /// Where ERSPAN's frame was seen.
    pub erspan: Option<Erspan>,
    /// Bytes of the GENEVE options, which end where the inner packet begins.
    pub option_bytes: usize,
}

/// The tunnel header of an outer frame; none where its tunnel is [unknown](kind_of), it goes on to somewhere else (a Routing header
/// has segments left), or carries no packet (GTP-U signalling).
///
/// # Errors
/// The reason for which the tunnel header is malformed.
pub fn read(frame: &[u8], headers: &Headers) -> Result<Option<Tunnel>, Malformed> {
    match kind_of(frame, headers) {
        Some(kind) => read_as(kind, frame, headers),
        None => Ok(None),
    }
}

/// The tunnel protocol (`tun_type`) of an outer frame: that of its UDP port, ERSPAN, or GRE that carries Ethernet or IP. Further GRE
/// is of protocols that are known to others: PPTP has version 1, keepalives of routers carry nothing.
pub fn kind_of(frame: &[u8], headers: &Headers) -> Option<u8> {
    let body = frame.get(usize::from(headers.l4)..)?;
    match headers.transport {
        Transport::Udp => kind_of_port(u16::from_be_bytes(*body.get(2..)?.first_chunk()?)),
        Transport::Gre => {
            let header = Gre::read(body).ok()?;
            header.inner().map(|_| TUNNEL_GRE).or(header.is_erspan().then_some(TUNNEL_ERSPAN))
        }
        _ => None,
    }
}

/// The protocol (`tun_type`) that a UDP port is of.
fn kind_of_port(port: u16) -> Option<u8> {
    match port {
        VXLAN_PORT | VXLAN_PORT_LINUX => Some(TUNNEL_VXLAN),
        GENEVE_PORT => Some(TUNNEL_GENEVE),
        GTPU_PORT => Some(TUNNEL_GTPU),
        _ => None,
    }
}

/// Reads the tunnel header of a protocol (`tun_type`), whatever the UDP port; else like [`read`].
///
/// # Errors
/// The reason for which the tunnel header is malformed.
pub fn read_as(kind: u8, frame: &[u8], headers: &Headers) -> Result<Option<Tunnel>, Malformed> {
    let (carrier, at) = match kind {
        TUNNEL_GRE | TUNNEL_ERSPAN => (Transport::Gre, headers.l4),
        _ => (Transport::Udp, headers.payload),
    };
    if headers.transport != carrier || headers.fragment != 0 || headers.segments_left {
        return Ok(None);
    }
    let at = usize::from(at);
    let body = &frame[at.min(frame.len())..];
    match kind {
        TUNNEL_VXLAN => vxlan(body, at).map(Some),
        TUNNEL_GENEVE => geneve(body, at).map(Some),
        TUNNEL_GTPU => gtpu(body, at),
        TUNNEL_GRE => read_gre(body, at).map(Some),
        TUNNEL_ERSPAN => read_erspan(body, at).map(Some),
        _ => Ok(None),
    }
}

fn word_at(body: &[u8], at: usize) -> Result<u32, Malformed> {
    let bytes = body.get(at..).and_then(|b| b.first_chunk()).ok_or(Malformed::TunnelTruncated)?;
    Ok(u32::from_be_bytes(*bytes))
}

fn vxlan(body: &[u8], at: usize) -> Result<Tunnel, Malformed> {
    let (flags, vni) = (word_at(body, 0)?, word_at(body, 4)?);
    // I: the VNI is valid. G: a group policy id is in the low half; D and A are its flags.
    if flags & 0x0800_0000 == 0 {
        return Err(Malformed::TunnelFormat);
    }
    let group = if flags & 0x8000_0000 != 0 { (flags as u16, (flags >> 16) as u8 & 0x48) } else { (0, 0) };
    Ok(Tunnel {
        inner_at: at + 8,
        inner: Inner::Ethernet,
        kind: TUNNEL_VXLAN,
        id: vni >> 8,
        flags: (flags >> 16) as u16,
        group,
        gtpu: (0, 0),
        option: [0; 3],
        erspan: None,
        option_bytes: 0,
    })
}

fn geneve(body: &[u8], at: usize) -> Result<Tunnel, Malformed> {
    let (first, vni) = (word_at(body, 0)?, word_at(body, 4)?);
    let options = (first >> 24 & 0x3f) as usize * 4;
    let inner = match first as u16 {
        0x6558 => Inner::Ethernet,
        proto @ (ether_type::IPV4 | ether_type::IPV6) => Inner::Ip(proto),
        _ => return Err(Malformed::TunnelFormat),
    };
    if first >> 30 != 0 {
        return Err(Malformed::TunnelFormat);
    }
    let area = body.get(8..8 + options).ok_or(Malformed::TunnelTruncated)?;
    let mut option = [0; 3];
    let mut rest = area;
    while !rest.is_empty() {
        let header = word_at(rest, 0)?;
        let len = 4 + (header & 0x1f) as usize * 4;
        let this = rest.get(..len).ok_or(Malformed::TunnelFormat)?;
        if rest.len() == area.len() {
            let data = |i: usize| word_at(this, i).unwrap_or(0);
            option = [header & 0xffff_ff1f, data(4), data(8)];
        }
        rest = &rest[len..];
    }
    Ok(Tunnel {
        inner_at: at + 8 + options,
        inner,
        kind: TUNNEL_GENEVE,
        id: vni >> 8,
        flags: (first >> 16) as u16 & 0xff,
        group: (0, 0),
        gtpu: (0, 0),
        option,
        erspan: None,
        option_bytes: options,
    })
}

fn gtpu(body: &[u8], at: usize) -> Result<Option<Tunnel>, Malformed> {
    let (first, teid) = (word_at(body, 0)?, word_at(body, 4)?);
    let (flags, message) = ((first >> 24) as u8, (first >> 16) as u8);
    // Version 1, protocol type GTP.
    if flags & 0xf0 != 0x30 {
        return Err(Malformed::TunnelFormat);
    }
    if message != 255 {
        return Ok(None); // Signalling: only a G-PDU carries a packet.
    }
    let mut inner = 8;
    if flags & 7 != 0 {
        // Sequence number, N-PDU number, and the type of the first extension header.
        let mut next = word_at(body, 8)? as u8;
        inner = 12;
        while flags & 4 != 0 && next != 0 {
            let len = usize::from(*body.get(inner).ok_or(Malformed::TunnelTruncated)?) * 4;
            if len == 0 {
                return Err(Malformed::TunnelFormat);
            }
            next = *body.get(inner + len - 1).ok_or(Malformed::TunnelTruncated)?;
            inner += len;
        }
    }
    let proto = match body.get(inner).ok_or(Malformed::TunnelTruncated)? >> 4 {
        4 => ether_type::IPV4,
        6 => ether_type::IPV6,
        _ => return Err(Malformed::TunnelFormat),
    };
    Ok(Some(Tunnel {
        inner_at: at + inner,
        inner: Inner::Ip(proto),
        kind: TUNNEL_GTPU,
        id: teid,
        flags: 0,
        group: (0, 0),
        gtpu: (flags, message),
        option: [0; 3],
        erspan: None,
        option_bytes: 0,
    }))
}

fn read_gre(body: &[u8], at: usize) -> Result<Tunnel, Malformed> {
    let gre = Gre::read(body)?;
    Ok(Tunnel {
        inner_at: at + gre.bytes,
        inner: gre.inner().ok_or(Malformed::TunnelFormat)?,
        kind: TUNNEL_GRE,
        id: gre.key.unwrap_or(0),
        flags: gre.flags,
        group: (0, 0),
        gtpu: (0, 0),
        option: [0; 3],
        erspan: None,
        option_bytes: 0,
    })
}

fn read_erspan(body: &[u8], at: usize) -> Result<Tunnel, Malformed> {
    let header = ErspanHeader::read(body)?;
    Ok(Tunnel {
        inner_at: at + header.bytes,
        inner: Inner::Ethernet,
        kind: TUNNEL_ERSPAN,
        id: header.session,
        flags: gre::SEQUENCE,
        group: (0, 0),
        gtpu: (0, 0),
        option: [0; 3],
        erspan: Some(header.erspan),
        option_bytes: 0,
    })
}

impl Tunnel {
    /// Sets the tunnel fields of the inner packet's key from this header and the outer packet's key.
    pub fn fill(&self, outer: &FlowKey, outer_headers: &Headers, inner: &mut FlowKey) {
        inner.set_word(word::TUN_ID, 0);
        inner.set_word(word::TUN_ID + 1, self.id);
        if outer_headers.network == Network::Ipv6 {
            for i in 0..4 {
                inner.set_word(word::TUN_IPV6_SRC + i, outer.word(word::IPV6_SRC + i));
                inner.set_word(word::TUN_IPV6_DST + i, outer.word(word::IPV6_DST + i));
            }
        } else {
            inner.set_word(word::TUN_SRC, outer.word(word::IPV4_SRC));
            inner.set_word(word::TUN_DST, outer.word(word::IPV4_DST));
        }
        let tos_ttl = outer.word(word::NW_PROTO) >> 8 & 0xffff;
        inner.set_word(word::TUN_FLAGS, u32::from(self.flags) << 16 | tos_ttl);
        let (id, flags) = self.group;
        inner.set_word(word::TUN_GBP, u32::from(id) << 16 | u32::from(flags) << 8 | u32::from(self.kind));
        let (flags, message) = self.gtpu;
        inner.set_word(word::TUN_GTPU, u32::from(flags) << 24 | u32::from(message) << 16);
        inner.set_word(word::TUN_ERSPAN, self.erspan.map_or(0, Erspan::word));
        for (i, &w) in self.option.iter().enumerate() {
            inner.set_word(word::TUN_OPTION + i, w);
        }
    }
}
