//! Encapsulation: outer headers in front of an inner packet.
//!
//! ```text
//! template   Ethernet │ IPv4 or IPv6 │ UDP │ VXLAN, GENEVE + options, or GTP-U      made once a tunnel
//! packet     .........│ length, TOS, │ source port,     │ (GTP-U: length; GENEVE:    patched
//!                     │ checksum     │ length, checksum │ options of its own)
//! ```
//! or, behind the IP header, GRE alone, of which checksum and sequence number are patched.
//!
//! The template's checksums are sums of the fixed parts: patched fields are added.

use std::net::IpAddr;

use super::TunnelKind;
use super::checksum::{add, field, fold, word_be};
use super::endpoint::VNI_MAX;
use super::sequence::Sequence;
use crate::packet::parse::{ether_type, ip_proto};
use crate::packet::tunnel::erspan::{self, Erspan};
use crate::packet::tunnel::{Inner, gre};

const ETHERNET_BYTES: usize = 14;
const UDP_BYTES: usize = 8;
const TUNNEL_BYTES: usize = 8;
/// The most bytes of GENEVE options: 63 words.
const OPTIONS_MAX: usize = 252;
/// The longest outer headers: IPv6 with all options.
const HEADERS_MAX: usize = ETHERNET_BYTES + 40 + UDP_BYTES + TUNNEL_BYTES + OPTIONS_MAX;

/// Bytes of GRE and ERSPAN of version 2.
const ERSPAN_2_BYTES: usize = 8 + 12;

/// The parts of outer headers that each packet has of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerPacket<'a> {
    /// The inner flow's hash.
    pub flow_hash: u32,
    /// Further GENEVE options: whole ones, behind those of the tunnel.
    pub options: &'a [u8],
    /// The time in units of 100 µs, for ERSPAN of version 2.
    pub time_100us: u32,
}

/// The outer type of service (traffic class).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tos {
    /// This DSCP (6 bits); the ECN bits are the inner packet's (RFC 6040), 0 where it is not IP.
    Dscp(u8),
    /// That of the inner packet; 0 where it is not IP.
    Inner,
}

/// The headers to put in front of an inner packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encapsulation {
    /// The tunnel's protocol.
    pub kind: TunnelKind,
    /// VNI (24 bits), TEID or key (32 bits), or session (10 bits).
    pub id: u32,
    /// If set, GRE has the id as its key; else it has none. Others have the id in any case.
    pub has_key: bool,
    /// The sequence numbers of packets; none: they have none, as of all but GRE. ERSPAN always has them.
    pub sequence: Option<Sequence>,
    /// Where ERSPAN's frames were seen; of others nothing.
    pub erspan: Erspan,
    /// The outer source: this node's address.
    pub source: IpAddr,
    /// The outer destination, of the same IP version.
    pub destination: IpAddr,
    /// MAC addresses of the outer frame: destination, source.
    pub macs: [[u8; 6]; 2],
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Type of service or traffic class.
    pub tos: Tos,
    /// UDP destination port; none: the protocol's own. GRE has none.
    pub port: Option<u16>,
    /// The first header of inner packets: GENEVE and GRE carry Ethernet or IP, VXLAN and ERSPAN Ethernet, GTP-U IP.
    pub inner: Inner,
    /// GENEVE options in wire format; at most 252 bytes.
    pub options: Vec<u8>,
    /// If set, the outer UDP checksum is computed, which reads the whole packet; else it is 0, which over IPv6
    /// the other end must allow (RFC 6935). GRE has a checksum then, and none else.
    pub checksum: bool,
    /// The longest outer IP packet that can be sent.
    pub mtu: u16,
}

impl Encapsulation {
    /// Creates a tunnel with the defaults of RFC 7348: TTL 64, the inner packet's ECN, the protocol's port, no UDP
    /// checksum over IPv4, an MTU of 1600 bytes, that is 1500 inside. GRE has no checksum, and a key if the id is not 0.
    pub fn new(kind: TunnelKind, id: u32, source: IpAddr, destination: IpAddr) -> Self {
        let inner = if kind == TunnelKind::Gtpu { Inner::Ip(ether_type::IPV4) } else { Inner::Ethernet };
        Self {
            kind,
            id,
            has_key: id != 0,
            sequence: (kind == TunnelKind::Erspan).then(Sequence::default),
            erspan: Erspan::Version1 { index: 0 },
            source,
            destination,
            macs: [[0; 6]; 2],
            ttl: 64,
            tos: Tos::Dscp(0),
            port: None,
            inner,
            options: Vec::new(),
            checksum: source.is_ipv6() && kind.ip_protocol() == ip_proto::UDP,
            mtu: 1600,
        }
    }
}

/// A tunnel that cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncapsulationError {
    /// Source and destination are of different families.
    #[error(
        "the outer source {source_address} and destination {destination} are of different IP versions; give both of one"
    )]
    Families {
        /// The source.
        source_address: IpAddr,
        /// The destination.
        destination: IpAddr,
    },
    /// A VNI beyond 24 bits.
    #[error("the VNI {id} has more than 24 bits; the largest is {VNI_MAX}")]
    Vni {
        /// The VNI.
        id: u32,
    },
    /// A DSCP beyond 6 bits.
    #[error("the DSCP {dscp} has more than 6 bits; the largest is 63")]
    Dscp {
        /// The DSCP.
        dscp: u8,
    },
    /// A session of ERSPAN beyond 10 bits.
    #[error("the session {id} of ERSPAN has more than 10 bits; the largest is {max}", max = erspan::SESSION_MAX)]
    Session {
        /// The session.
        id: u32,
    },
    /// An index of ERSPAN beyond 20 bits, an identifier of hardware beyond 6, or no sequence numbers.
    #[error(
        "ERSPAN has indices up to {index}, hardware up to {hardware}, and sequence numbers",
        index = erspan::INDEX_MAX,
        hardware = erspan::HARDWARE_MAX
    )]
    Erspan,
    /// The protocol does not carry this.
    #[error("{kind} does not carry {inner:?}; VXLAN and ERSPAN carry Ethernet, GTP-U IP, GENEVE and GRE both", kind = kind.name())]
    Inner {
        /// The tunnel's protocol.
        kind: TunnelKind,
        /// The first header of the inner packet.
        inner: Inner,
    },
    /// Options where there can be none, too many of them, or malformed ones.
    #[error(
        "{bytes} bytes are no options of {kind}; only GENEVE has options: whole ones of class, type, length in words of 4 \
         bytes and data, of {OPTIONS_MAX} bytes at most",
        kind = kind.name()
    )]
    Options {
        /// The tunnel's protocol.
        kind: TunnelKind,
        /// Bytes given.
        bytes: usize,
    },
    /// An MTU that not even the outer headers fit.
    #[error(
        "the MTU {mtu} leaves nothing for inner packets behind {headers} bytes of outer headers; make it larger"
    )]
    Mtu {
        /// The MTU.
        mtu: u16,
        /// Bytes of the outer headers, without Ethernet.
        headers: usize,
    },
}

/// An inner packet that is too long for its tunnel, lies too far in front, or has too many options: it is to be dropped and counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Oversize {
    /// The outer packet would be longer than the MTU.
    #[error("the outer packet would exceed the tunnel's MTU; send shorter packets, or raise it")]
    Mtu,
    /// There is no room for the outer headers before the inner packet.
    #[error("there is no room for the outer headers before the inner packet; leave header_bytes() of it")]
    Headroom,
    /// The tunnel's protocol has no options, or not as many.
    #[error("the tunnel has no room for the packet's options; GENEVE has it for {OPTIONS_MAX} bytes in all")]
    Options,
}

/// A tunnel's outer headers, ready to be put in front of packets.
#[derive(Clone, Debug)]
pub struct Encapsulator {
    template: [u8; HEADERS_MAX],
    len: usize,
    /// Bytes of the network header.
    network_bytes: usize,
    /// Ones' complement sum of the IPv4 header, length and type of service left out.
    network_sum: u64,
    /// The sum of pseudo header, UDP and tunnel header, without length and source port; of GRE, of its header without sequence
    /// number.
    transport_sum: u64,
    checksum: bool,
    sequence: Option<Sequence>,
    kind: TunnelKind,
    inner: Inner,
    tos: Tos,
    mtu: usize,
}

fn check(tunnel: &Encapsulation) -> Result<(), EncapsulationError> {
    let Encapsulation { kind, id, source, destination, inner, .. } = *tunnel;
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(EncapsulationError::Families { source_address: source, destination });
    }
    if kind == TunnelKind::Erspan {
        let is_right = match tunnel.erspan {
            Erspan::Version1 { index } => index <= erspan::INDEX_MAX,
            Erspan::Version2 { hardware, .. } => hardware <= erspan::HARDWARE_MAX,
        };
        if id > kind.id_max() {
            return Err(EncapsulationError::Session { id });
        }
        if !is_right || tunnel.sequence.is_none() {
            return Err(EncapsulationError::Erspan);
        }
    }
    if id > kind.id_max() {
        return Err(EncapsulationError::Vni { id });
    }
    if let Tos::Dscp(dscp @ 64..) = tunnel.tos {
        return Err(EncapsulationError::Dscp { dscp });
    }
    let carried = match (kind, inner) {
        (TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gre | TunnelKind::Erspan, Inner::Ethernet) => {
            true
        }
        (TunnelKind::Geneve | TunnelKind::Gre | TunnelKind::Gtpu, Inner::Ip(ip)) => {
            ip == ether_type::IPV4 || ip == ether_type::IPV6
        }
        _ => false,
    };
    if !carried {
        return Err(EncapsulationError::Inner { kind, inner });
    }
    let bytes = tunnel.options.len();
    let wrong = EncapsulationError::Options { kind, bytes };
    if bytes > OPTIONS_MAX || bytes > 0 && kind != TunnelKind::Geneve {
        return Err(wrong);
    }
    let mut options = &tunnel.options[..];
    while !options.is_empty() {
        let header: &[u8; 4] = options.first_chunk().ok_or_else(|| wrong.clone())?;
        options = options.get(4 + usize::from(header[3] & 0x1f) * 4..).ok_or_else(|| wrong.clone())?;
    }
    Ok(())
}

impl Encapsulator {
    /// Returns the outer headers of a tunnel.
    ///
    /// # Errors
    /// The problem of the tunnel.
    pub fn new(tunnel: &Encapsulation) -> Result<Self, EncapsulationError> {
        check(tunnel)?;
        let mut bytes = Vec::with_capacity(HEADERS_MAX);
        bytes.extend(tunnel.macs.as_flattened());
        let addresses = push_network(tunnel, &mut bytes);
        let network_bytes = bytes.len() - ETHERNET_BYTES;
        let network_sum = match tunnel.source {
            IpAddr::V4(_) => add(0, &bytes[ETHERNET_BYTES..]),
            IpAddr::V6(_) => 0,
        };
        let transport_at = bytes.len();
        let is_udp = tunnel.kind.ip_protocol() == ip_proto::UDP;
        let pseudo = if is_udp { add(word_be(ip_proto::UDP.into()), &addresses) } else { 0 };
        push_transport(tunnel, &mut bytes);
        let headers = bytes.len() - ETHERNET_BYTES;
        if usize::from(tunnel.mtu) <= headers {
            return Err(EncapsulationError::Mtu { mtu: tunnel.mtu, headers });
        }
        let mut template = [0; HEADERS_MAX];
        template[..bytes.len()].copy_from_slice(&bytes);
        Ok(Self {
            template,
            len: bytes.len(),
            network_bytes,
            network_sum,
            transport_sum: add(pseudo, &bytes[transport_at..]),
            checksum: tunnel.checksum,
            sequence: tunnel.sequence.clone().filter(|_| !is_udp),
            kind: tunnel.kind,
            inner: tunnel.inner,
            tos: tunnel.tos,
            mtu: tunnel.mtu.into(),
        })
    }

    /// Takes part in the sequence numbers of another encapsulator of the tunnel.
    pub fn share_sequence(&mut self, other: &Self) {
        self.sequence.clone_from(&other.sequence);
    }

    /// Returns the bytes that are put in front of an inner packet.
    pub fn header_bytes(&self) -> usize {
        self.len
    }

    /// Puts the outer headers in front of the inner packet that begins at `inner_at` of `buffer` and goes to its
    /// end. Returns where the outer frame begins. `flow_hash` is the inner flow's
    /// ([`FlowHash::of`](crate::cache::flow_hash::FlowHash::of)): it gives the UDP source port, by which the
    /// network spreads flows over its paths, and over IPv6 the flow label.
    ///
    /// # Errors
    /// Why the packet is to be dropped; nothing is written then.
    #[inline]
    pub fn encapsulate(&self, buffer: &mut [u8], inner_at: usize, flow_hash: u32) -> Result<usize, Oversize> {
        self.encapsulate_with(buffer, inner_at, &PerPacket { flow_hash, ..PerPacket::default() })
    }

    /// [Encapsulates](Self::encapsulate) a packet with what else its headers have of its own.
    ///
    /// # Errors
    /// Why the packet is to be dropped; nothing is written then.
    #[inline]
    pub fn encapsulate_with(
        &self,
        buffer: &mut [u8],
        inner_at: usize,
        packet: &PerPacket<'_>,
    ) -> Result<usize, Oversize> {
        let PerPacket { flow_hash, options, .. } = *packet;
        let len = self.len + options.len();
        let start = inner_at.checked_sub(len).ok_or(Oversize::Headroom)?;
        if inner_at > buffer.len() {
            return Err(Oversize::Headroom);
        }
        let (front, inner) = buffer.split_at_mut(inner_at);
        if len - ETHERNET_BYTES + inner.len() > self.mtu {
            return Err(Oversize::Mtu);
        }
        if !options.is_empty() && !self.has_room_for(options) {
            return Err(Oversize::Options);
        }
        let frame = &mut front[start..];
        frame[..self.len].copy_from_slice(&self.template[..self.len]);
        let (network, transport) = frame[ETHERNET_BYTES..].split_at_mut(self.network_bytes);
        let transport_len = (transport.len() + inner.len()) as u16;
        self.patch_network(network, transport_len, self.tos_of(inner), flow_hash);
        match self.kind.ip_protocol() {
            ip_proto::UDP => self.patch_udp(transport, inner, flow_hash, options),
            _ => self.patch_gre(transport, inner, packet.time_100us),
        }
        Ok(start)
    }

    /// Completes UDP and tunnel header.
    #[inline(always)]
    fn patch_udp(&self, transport: &mut [u8], inner: &[u8], flow_hash: u32, options: &[u8]) {
        let udp_len = (transport.len() + inner.len()) as u16;
        let port = source_port(flow_hash);
        transport[..2].copy_from_slice(&port.to_be_bytes());
        transport[4..6].copy_from_slice(&udp_len.to_be_bytes());
        let mut sum = self.transport_sum + word_be(port) + 2 * word_be(udp_len);
        if !options.is_empty() {
            sum += self.push_options(transport, options);
        }
        if self.kind == TunnelKind::Gtpu {
            let gtpu_len = udp_len - (UDP_BYTES + TUNNEL_BYTES) as u16;
            transport[10..12].copy_from_slice(&gtpu_len.to_be_bytes());
            sum += word_be(gtpu_len);
        }
        if self.checksum {
            let checksum = match fold(add(sum, inner)) {
                // 0 says that there is none (RFC 768); all ones is the same number.
                0xffff => [0xff; 2],
                sum => (!sum).to_ne_bytes(),
            };
            transport[6..8].copy_from_slice(&checksum);
        }
    }

    /// Completes a GRE header: its last word is the sequence number, its second the checksum (RFC 2784 §2.1). That of ERSPAN has no
    /// checksum; of version 2, the time is behind the session.
    #[inline(never)]
    fn patch_gre(&self, transport: &mut [u8], inner: &[u8], time_100us: u32) {
        let is_erspan = self.kind == TunnelKind::Erspan;
        let mut sum = self.transport_sum;
        if let Some(sequence) = &self.sequence {
            let at = if is_erspan { 4 } else { transport.len() - 4 };
            transport[at..at + 4].copy_from_slice(&sequence.take().to_be_bytes());
            sum = add(sum, &transport[at..at + 4]);
        }
        if is_erspan && transport.len() == ERSPAN_2_BYTES {
            transport[12..16].copy_from_slice(&time_100us.to_be_bytes());
        }
        if self.checksum && !is_erspan {
            transport[4..6].copy_from_slice(&field(add(sum, inner)));
        }
    }

    fn has_room_for(&self, options: &[u8]) -> bool {
        let fixed = ETHERNET_BYTES + self.network_bytes + UDP_BYTES + TUNNEL_BYTES;
        self.kind == TunnelKind::Geneve && self.len + options.len() <= fixed + OPTIONS_MAX
    }

    /// Writes options behind those of the template. Returns by how much the sum of the headers grows.
    fn push_options(&self, transport: &mut [u8], options: &[u8]) -> u64 {
        let at = transport.len() - options.len();
        transport[at..].copy_from_slice(options);
        let header = &mut transport[UDP_BYTES..][..2];
        let before = add(0, header);
        header[0] += (options.len() / 4) as u8;
        header[1] |= u8::from(has_critical(options)) << 6;
        // Subtracted as ones' complement.
        add(add(0xffff - before, header), options)
    }

    #[inline(always)]
    fn patch_network(&self, network: &mut [u8], transport_len: u16, tos: u8, flow_hash: u32) {
        if self.network_bytes == 20 {
            let total = 20 + transport_len;
            network[1] = tos;
            network[2..4].copy_from_slice(&total.to_be_bytes());
            network[10..12].copy_from_slice(&field(self.network_sum + word_be(tos.into()) + word_be(total)));
        } else {
            // RFC 6438: the flow label tells flows apart as the source port does.
            let first = 6 << 28 | u32::from(tos) << 20 | flow_hash & 0xf_ffff;
            network[..4].copy_from_slice(&first.to_be_bytes());
            network[4..6].copy_from_slice(&transport_len.to_be_bytes());
        }
    }

    #[inline(always)]
    fn tos_of(&self, inner: &[u8]) -> u8 {
        let own = inner_tos(inner, self.inner);
        match self.tos {
            Tos::Dscp(dscp) => dscp << 2 | own & 3,
            Tos::Inner => own,
        }
    }
}

/// Returns a UDP source port of the dynamic range (RFC 7348 §5: 49152 to 65535).
#[inline(always)]
fn source_port(flow_hash: u32) -> u16 {
    // The upper bits as well: tables may have used the lower ones to choose a path already.
    0xc000 | ((flow_hash ^ flow_hash >> 14 ^ flow_hash >> 28) as u16 & 0x3fff)
}

/// Returns the type of service of a packet; 0 where it is not IP.
#[inline(always)]
fn inner_tos(packet: &[u8], begins_with: Inner) -> u8 {
    let (kind, ip) = match begins_with {
        Inner::Ip(kind) => (kind, packet),
        Inner::Ethernet => {
            let mut at = 12;
            let type_at = |at: usize| packet.get(at..at + 2).map_or(0, |t| u16::from_be_bytes([t[0], t[1]]));
            while matches!(type_at(at), ether_type::VLAN | ether_type::QINQ) && at < 20 {
                at += 4;
            }
            (type_at(at), packet.get(at + 2..).unwrap_or_default())
        }
    };
    match (kind, ip) {
        (ether_type::IPV4, [_, tos, ..]) => *tos,
        (ether_type::IPV6, [first, second, ..]) => first << 4 | second >> 4,
        _ => 0,
    }
}

/// Appends EtherType and network header, without patched fields; returns the addresses.
fn push_network(tunnel: &Encapsulation, bytes: &mut Vec<u8>) -> Vec<u8> {
    let addresses = match (tunnel.source, tunnel.destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes.extend(ether_type::IPV4.to_be_bytes());
            // Do not fragment: RFC 7348 §4.3; so the identification may be 0 (RFC 6864).
            bytes.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, tunnel.ttl, tunnel.kind.ip_protocol(), 0, 0]);
            [from.octets(), to.octets()].concat()
        }
        (from, to) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            bytes.extend(ether_type::IPV6.to_be_bytes());
            bytes.extend([0x60, 0, 0, 0, 0, 0, tunnel.kind.ip_protocol(), tunnel.ttl]);
            [octets(from), octets(to)].concat()
        }
    };
    bytes.extend(&addresses);
    addresses
}

/// Appends a GRE header, without patched fields.
fn push_gre(tunnel: &Encapsulation, bytes: &mut Vec<u8>) {
    if tunnel.kind == TunnelKind::Erspan {
        return push_erspan(tunnel, bytes);
    }
    let flag = |flag: u16, is_set: bool| if is_set { flag } else { 0 };
    let flags = flag(gre::CHECKSUM, tunnel.checksum)
        | flag(gre::KEY, tunnel.has_key)
        | flag(gre::SEQUENCE, tunnel.sequence.is_some());
    bytes.extend(flags.to_be_bytes());
    let protocol = if let Inner::Ip(ip) = tunnel.inner { ip } else { gre::ETHERNET };
    bytes.extend(protocol.to_be_bytes());
    if tunnel.checksum {
        bytes.extend([0; 4]);
    }
    if tunnel.has_key {
        bytes.extend(tunnel.id.to_be_bytes());
    }
    if tunnel.sequence.is_some() {
        bytes.extend([0; 4]);
    }
}

/// Appends GRE and ERSPAN, without patched fields.
fn push_erspan(tunnel: &Encapsulation, bytes: &mut Vec<u8>) {
    let (protocol, version, rest) = match tunnel.erspan {
        Erspan::Version1 { index } => (erspan::VERSION_1, 1, vec![index]),
        Erspan::Version2 { is_egress, hardware } => {
            (erspan::VERSION_2, 2, vec![0, u32::from(hardware) << 4 | u32::from(is_egress) << 3])
        }
    };
    bytes.extend(gre::SEQUENCE.to_be_bytes());
    bytes.extend(protocol.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend((version << 28 | tunnel.id).to_be_bytes());
    bytes.extend(rest.into_iter().flat_map(u32::to_be_bytes));
}

/// Appends UDP, where the tunnel is behind it, and tunnel header, without patched fields.
fn push_transport(tunnel: &Encapsulation, bytes: &mut Vec<u8>) {
    if let Some(own) = tunnel.kind.own_port() {
        bytes.extend([0, 0]);
        bytes.extend(tunnel.port.unwrap_or(own).to_be_bytes());
        bytes.extend([0; 4]);
    }
    match tunnel.kind {
        TunnelKind::Vxlan => {
            bytes.extend([8, 0, 0, 0]);
            bytes.extend((tunnel.id << 8).to_be_bytes());
        }
        TunnelKind::Geneve => {
            let critical = has_critical(&tunnel.options);
            bytes.extend([(tunnel.options.len() / 4) as u8, u8::from(critical) << 6]);
            let protocol = if let Inner::Ip(ip) = tunnel.inner { ip } else { 0x6558 };
            bytes.extend(protocol.to_be_bytes());
            bytes.extend((tunnel.id << 8).to_be_bytes());
            bytes.extend(&tunnel.options);
        }
        TunnelKind::Gtpu => {
            bytes.extend([0x30, 255, 0, 0]);
            bytes.extend(tunnel.id.to_be_bytes());
        }
        TunnelKind::Gre | TunnelKind::Erspan => push_gre(tunnel, bytes),
    }
}

/// Returns whether one of these options is critical; they are whole.
fn has_critical(mut options: &[u8]) -> bool {
    while let Some(header) = options.first_chunk::<4>() {
        if header[2] & 0x80 != 0 {
            return true;
        }
        options = options.get(4 + usize::from(header[3] & 0x1f) * 4..).unwrap_or_default();
    }
    false
}
