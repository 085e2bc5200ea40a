//! The parser: from a frame's bytes to its flow key and header offsets.
//!
//! One pass, no allocation, nothing read beyond the frame. A frame that is malformed or cut off gets the
//! key of what came before the fault, the fault's [`Layer`] in the key's `malformed`, and its reason in
//! [`Headers::malformed`]; what to do with it is the caller's policy.
//!
//! The parser reads Ethernet II and 802.3 with LLC/SNAP; up to two 802.1Q/802.1ad tags; up to three MPLS
//! labels (nothing behind them, since nothing says what it is); NSH (nothing behind it, as in Open vSwitch); ARP
//! and RARP; IPv4 with options; IPv6
//! with up to [`IPV6_EXTENSIONS_MAX`] extension headers; first and later fragments; TCP, UDP, SCTP, ICMP,
//! ICMPv6 and neighbour discovery; UDP-Lite, which leaves nothing in the key. Sessions of PPPoE are read
//! where the caller [asks for it](Captured::with_pppoe).
//!
//! The transport header of a first fragment may go on in the next one (RFC 791 §3.2 has fragments of 8 bytes). Such a
//! fragment is not malformed: as of a truncated frame the key has the fields that are there, so that a rule for a port also
//! applies to fragments made to hide the rest (RFC 1858), and its `malformed` says that the layer is incomplete.
//!
//! Cost: about 20 cycles for an IPv4 UDP frame (`flowlane bench parse`). Words that the
//! slot's previous packet had and this one has not are cleared at the end, so that a stream of like
//! packets pays nothing for the words that it does not have.

mod nsh;
mod numbers;

pub use numbers::{ether_type, ip_proto};

use super::captured::Captured;
use super::fields::{FRAG_ANY, FRAG_LATER, ND_SLL_PRESENT, ND_TLL_PRESENT, VLAN_PRESENT, word};
use super::headers::{Headers, Layer, Malformed, Network, SNAP_BYTES, Transport};
use super::key::{FlowKey, WORDS};
use super::word_set::WordSet;

/// IPv6 extension headers that are followed before a packet counts as malformed.
pub const IPV6_EXTENSIONS_MAX: usize = 16;

/// Parses `frame`, which came in through `in_port`, into `key`, whatever `key` held before.
#[inline]
pub fn parse(frame: &[u8], in_port: u32, key: &mut FlowKey) -> Headers {
    parse_captured(frame.into(), in_port, key)
}

/// Parses a frame that may be truncated. Lengths are compared with the frame's own; a missing byte ends the key, as a malformed
/// header does, and is [`Malformed::NotCaptured`]. Of a transport header that is cut off, the key has the fields that are
/// captured: ports, say, without flags.
#[inline]
pub fn parse_captured(frame: Captured<'_>, in_port: u32, key: &mut FlowKey) -> Headers {
    let mut headers = Headers::default();
    let mut out = Words { words: key.words_mut(), present: 0, high: 0 };
    out.set(word::IN_PORT, in_port);
    if let Err(end) = ethernet(frame, &mut out, &mut headers) {
        headers.malformed = match end.captured {
            false => Some(Malformed::NotCaptured),
            true if end.goes_on(headers.fragment) => None,
            true => Some(end.reason),
        };
        // Labels before the one that is cut off are in the key.
        let layer = if headers.mpls_labels > 0 { Layer::Message } else { end.reason.layer() };
        out.set(word::RECIRC_ID, u32::from(layer as u8) << 24);
    }
    let present = WordSet::from_halves(out.present, out.high);
    key.finish(present);
    headers
}

/// The words under construction.
struct Words<'a> {
    words: &'a mut [u32; WORDS],
    /// Those of the first half: all that most packets have.
    present: u64,
    /// Those of the second half: NSH.
    high: u64,
}

impl Words<'_> {
    #[inline(always)]
    fn set(&mut self, w: usize, value: u32) {
        self.words[w] = value;
        self.present |= 1 << w;
    }

    /// Four words from 16 bytes.
    #[inline(always)]
    fn set4(&mut self, w: usize, bytes: &[u8; 16]) {
        for (i, chunk) in bytes.as_chunks::<4>().0.iter().enumerate() {
            self.set(w + i, u32::from_be_bytes(*chunk));
        }
    }
}

#[inline(always)]
fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Why nothing further is in the key.
#[derive(Clone, Copy)]
struct End {
    /// The fault, or the one that a frame would have if it ended there.
    reason: Malformed,
    /// Whether it is: else it is not known, since the bytes were not captured.
    captured: bool,
}

impl From<Malformed> for End {
    #[inline(always)]
    fn from(reason: Malformed) -> Self {
        Self { reason, captured: true }
    }
}

impl End {
    /// Returns whether this is a first fragment whose transport header goes on in the next fragment.
    fn goes_on(&self, fragment: u8) -> bool {
        use Malformed::{IcmpTruncated, Icmpv6Truncated, SctpTruncated, TcpTruncated, UdpTruncated};
        let header = [TcpTruncated, UdpTruncated, SctpTruncated, IcmpTruncated, Icmpv6Truncated];
        fragment == FRAG_ANY && header.contains(&self.reason)
    }

    /// Of a transport header that is not there to its end: ports, and TCP's flags.
    #[cold]
    fn ports(&self, packet: Captured<'_>, at: usize, fragment: u8, out: &mut Words<'_>) {
        let header = packet.from(at).bytes();
        if self.captured && !self.goes_on(fragment) || header.len() < 4 {
            return;
        }
        // A header that is malformed as far as it is captured has no ports, as in the whole frame.
        let is_tcp = self.reason == Malformed::TcpTruncated;
        if is_tcp && header.get(12).is_some_and(|offset| offset >> 4 < 5) {
            return;
        }
        out.set(word::PORTS, be32(header, 0));
        if self.reason == Malformed::TcpTruncated && header.len() >= 14 {
            out.set(word::FLAGS, u32::from(be16(header, 12) & 0xfff) << 16);
        }
    }

    /// Of ICMP: type and code.
    #[cold]
    fn kind(&self, packet: Captured<'_>, at: usize, fragment: u8, out: &mut Words<'_>) {
        let header = packet.from(at).bytes();
        if (!self.captured || self.goes_on(fragment)) && header.len() >= 2 {
            out.set(word::FLAGS, be16(header, 0).into());
        }
    }
}

/// `N` bytes from `at` on, or the given reason if the frame is shorter.
#[inline(always)]
fn take<'a, const N: usize>(frame: Captured<'a>, at: usize, reason: Malformed) -> Result<&'a [u8; N], End> {
    let bytes = frame.bytes().get(at..).and_then(|rest| rest.first_chunk());
    bytes.ok_or(End { reason, captured: at + N > frame.len() })
}

#[inline(always)]
fn ethernet(frame: Captured<'_>, out: &mut Words<'_>, headers: &mut Headers) -> Result<(), End> {
    let eth: &[u8; 14] = take(frame, 0, Malformed::EthernetTruncated)?;
    out.set(word::ETH, be32(eth, 0));
    out.set(word::ETH + 1, be32(eth, 4));
    out.set(word::ETH + 2, be32(eth, 8));
    let eth_type = be16(eth, 12);
    if eth_type == ether_type::IPV4 {
        out.set(word::VLAN_ETH_TYPE, u32::from(ether_type::IPV4));
        return ipv4(frame, 14, out, headers);
    }
    ethernet_other(frame, eth_type, out, headers)
}

/// Everything but untagged IPv4.
fn ethernet_other(
    frame: Captured<'_>,
    mut eth_type: u16,
    out: &mut Words<'_>,
    headers: &mut Headers,
) -> Result<(), End> {
    let mut at = 14;
    let mut tci = [0u16; 2];
    let outer_tpid = eth_type;
    while (eth_type == ether_type::VLAN || eth_type == ether_type::QINQ) && headers.vlan_tags < 2 {
        let tag = take::<4>(frame, at, Malformed::VlanTruncated);
        let tag = tag.inspect_err(|end| {
            let eth_type = if end.captured { eth_type } else { 0 };
            set_tags(out, headers.vlan_tags, tci, outer_tpid, eth_type);
        })?;
        tci[usize::from(headers.vlan_tags)] = be16(tag, 0) | VLAN_PRESENT;
        eth_type = be16(tag, 2);
        headers.vlan_tags += 1;
        at += 4;
    }
    if eth_type < ether_type::MIN {
        eth_type = llc(frame, at).inspect_err(|_| set_tags(out, headers.vlan_tags, tci, outer_tpid, 0))?;
        headers.snap = eth_type != ether_type::NONE;
        at += if headers.snap { SNAP_BYTES } else { 0 };
    }
    if eth_type == ether_type::PPPOE_SESSION && frame.has_pppoe() {
        let session =
            session(frame, at).inspect_err(|_| set_tags(out, headers.vlan_tags, tci, outer_tpid, 0))?;
        (eth_type, at) = session.unwrap_or((eth_type, at));
    }
    set_tags(out, headers.vlan_tags, tci, outer_tpid, eth_type);
    match eth_type {
        ether_type::IPV4 => ipv4(frame, at, out, headers),
        ether_type::IPV6 => ipv6(frame, at, out, headers),
        ether_type::ARP | ether_type::RARP => arp(frame, at, out, headers),
        ether_type::MPLS | ether_type::MPLS_MULTICAST => mpls(frame, at, out, headers),
        ether_type::NSH => nsh::nsh(frame, at, out, headers),
        _ => {
            headers.l3 = at as u16;
            Ok(())
        }
    }
}

#[inline(always)]
fn set_tags(out: &mut Words<'_>, tags: u8, tci: [u16; 2], outer_tpid: u16, eth_type: u16) {
    out.set(word::VLAN_ETH_TYPE, u32::from(tci[0]) << 16 | u32::from(eth_type));
    if tags > 0 {
        out.set(word::VLAN_INNER, u32::from(outer_tpid) << 16 | u32::from(tci[1]));
    }
}

/// An 802.3 frame: the EtherType of its SNAP header (RFC 1042), where it has one.
fn llc(frame: Captured<'_>, at: usize) -> Result<u16, End> {
    match take::<SNAP_BYTES>(frame, at, Malformed::EthernetTruncated) {
        Ok(snap) if snap[..6] == [0xaa, 0xaa, 0x03, 0, 0, 0] && be16(snap, 6) >= ether_type::MIN => {
            Ok(be16(snap, 6))
        }
        Err(end) if !end.captured => Err(end),
        _ => Ok(ether_type::NONE),
    }
}

/// A PPPoE session (RFC 2516 §4) with the PPP protocol in one byte or two (RFC 1661 §2, §6.5): EtherType and place of the
/// packet in it, if that is of IP or MPLS.
#[cold]
fn session(frame: Captured<'_>, at: usize) -> Result<Option<(u16, usize)>, End> {
    // With two bytes of PPP; the packet in it is longer than one.
    let header = match take::<8>(frame, at, Malformed::EthernetTruncated) {
        Err(End { captured: true, .. }) => return Ok(None),
        header => header?,
    };
    let (protocol, len) = match header[6] & 1 {
        1 => (header[6].into(), 7),
        _ => (be16(header, 6), 8),
    };
    // Version 1, type 1, session data.
    Ok(match (header[..2] == [0x11, 0], protocol) {
        (true, 0x0021) => Some((ether_type::IPV4, at + len)),
        (true, 0x0057) => Some((ether_type::IPV6, at + len)),
        (true, 0x0281) => Some((ether_type::MPLS, at + len)),
        (true, 0x0283) => Some((ether_type::MPLS_MULTICAST, at + len)),
        _ => None,
    })
}

fn mpls(frame: Captured<'_>, at: usize, out: &mut Words<'_>, headers: &mut Headers) -> Result<(), End> {
    for i in 0..3 {
        let entry = be32(take::<4>(frame, at + 4 * i, Malformed::MplsTruncated)?, 0);
        out.set(word::MPLS + i, entry);
        headers.mpls_labels += 1;
        if entry & 0x100 != 0 {
            break;
        }
    }
    headers.l3 = (at + 4 * usize::from(headers.mpls_labels)) as u16;
    Ok(())
}

fn arp(frame: Captured<'_>, at: usize, out: &mut Words<'_>, headers: &mut Headers) -> Result<(), End> {
    let arp: &[u8; 28] = take(frame, at, Malformed::ArpTruncated)?;
    // Ethernet (1), IPv4, lengths 6 and 4.
    if arp[..6] != [0, 1, 8, 0, 6, 4] {
        return Err(Malformed::ArpFormat.into());
    }
    headers.l3 = at as u16;
    headers.network = Network::Arp;
    out.set(word::ARP_OP, u32::from(be16(arp, 6)) << 16);
    out.set(word::ARP_HA, be32(arp, 8));
    out.set(word::ARP_HA + 1, u32::from(be16(arp, 12)) << 16 | u32::from(be16(arp, 18)));
    out.set(word::ARP_HA + 2, be32(arp, 20));
    out.set(word::IPV4_SRC, be32(arp, 14));
    out.set(word::IPV4_DST, be32(arp, 24));
    Ok(())
}

#[inline(always)]
fn ipv4(frame: Captured<'_>, at: usize, out: &mut Words<'_>, headers: &mut Headers) -> Result<(), End> {
    let ip: &[u8; 20] = take(frame, at, Malformed::Ipv4Truncated)?;
    if ip[0] >> 4 != 4 {
        return Err(Malformed::Ipv4Version.into());
    }
    let header_len = usize::from(ip[0] & 15) * 4;
    let mut total_len = usize::from(be16(ip, 2));
    if total_len == 0 && frame.is_uncut() {
        total_len = frame.len() - at;
    }
    if header_len < 20 || header_len > total_len {
        return Err(Malformed::Ipv4HeaderLength.into());
    }
    if total_len > frame.len() - at {
        return Err(Malformed::Ipv4TotalLength.into());
    }
    let fragment = be16(ip, 6) & 0x3fff;
    if fragment != 0 {
        headers.fragment = if fragment & 0x1fff != 0 { FRAG_ANY | FRAG_LATER } else { FRAG_ANY };
    }
    headers.l3 = at as u16;
    headers.l4 = (at + header_len) as u16;
    headers.network = Network::Ipv4;
    let proto = ip[9];
    out.set(
        word::NW_PROTO,
        // ip_frag is two bits wide, at the top of its byte: see the table of fields.
        u32::from(proto) << 24
            | u32::from(ip[1]) << 16
            | u32::from(ip[8]) << 8
            | u32::from(headers.fragment) << 6,
    );
    out.set(word::IPV4_SRC, be32(ip, 12));
    out.set(word::IPV4_DST, be32(ip, 16));
    transport(frame.to(at + total_len), at + header_len, proto, false, out, headers)
}

fn ipv6(frame: Captured<'_>, at: usize, out: &mut Words<'_>, headers: &mut Headers) -> Result<(), End> {
    let ip: &[u8; 40] = take(frame, at, Malformed::Ipv6Truncated)?;
    let first = be32(ip, 0);
    if first >> 28 != 6 {
        return Err(Malformed::Ipv6Version.into());
    }
    let payload_len = usize::from(be16(ip, 4));
    let mut end = at + 40 + payload_len;
    if payload_len == 0 && (ip[6] == ip_proto::HOP_BY_HOP || frame.is_uncut()) {
        end = frame.len(); // A jumbogram (RFC 2675): its length is in an option. Or a segment that is still to be cut.
    }
    if end > frame.len() {
        return Err(Malformed::Ipv6PayloadLength.into());
    }
    let packet = frame.to(end);
    headers.l3 = at as u16;
    headers.network = Network::Ipv6;
    out.set4(word::IPV6_SRC, ip[8..24].first_chunk().expect("16 of 40 bytes"));
    out.set4(word::IPV6_DST, ip[24..40].first_chunk().expect("16 of 40 bytes"));
    out.set(word::IPV6_LABEL, first & 0xf_ffff);
    let mut chain = Chain { proto: ip[6], at: at + 40, fragment: 0, segments_left: false };
    let followed = extensions(packet, &mut chain);
    headers.fragment = chain.fragment;
    headers.segments_left = chain.segments_left;
    headers.l4 = chain.at as u16;
    // The protocol behind headers that were not captured is unknown.
    let proto = if matches!(followed, Err(End { captured: false, .. })) { 0 } else { chain.proto };
    out.set(
        word::NW_PROTO,
        u32::from(proto) << 24
            | (first >> 20 & 0xff) << 16
            | u32::from(ip[7]) << 8
            | u32::from(chain.fragment) << 6,
    );
    followed?;
    transport(packet, chain.at, chain.proto, true, out, headers)
}

/// The position of the walk along the extension headers.
struct Chain {
    proto: u8,
    at: usize,
    fragment: u8,
    segments_left: bool,
}

/// Follows the extension headers (RFC 8200 §4) of `packet` to the first that is none.
fn extensions(packet: Captured<'_>, chain: &mut Chain) -> Result<(), End> {
    for followed in 0..=IPV6_EXTENSIONS_MAX {
        let unit = match chain.proto {
            ip_proto::HOP_BY_HOP
            | ip_proto::ROUTING
            | ip_proto::DESTINATION
            | ip_proto::MOBILITY
            | ip_proto::FRAGMENT => 8,
            ip_proto::AUTHENTICATION => 4,
            _ => return Ok(()),
        };
        if followed == IPV6_EXTENSIONS_MAX {
            break;
        }
        let header: &[u8; 8] = take(packet, chain.at, Malformed::Ipv6ExtensionTruncated)?;
        // In the fourth byte, whatever the type (RFC 8200 §4.4).
        chain.segments_left |= chain.proto == ip_proto::ROUTING && header[3] > 0;
        let len = match chain.proto {
            ip_proto::FRAGMENT => {
                let offset_and_more = be16(header, 2) & !6;
                if offset_and_more != 0 {
                    chain.fragment |= FRAG_ANY;
                }
                if offset_and_more & !1 != 0 {
                    chain.fragment |= FRAG_LATER;
                }
                8
            }
            // AH counts 4-byte units less 2 (RFC 4302 §2.2), the others 8-byte units less 1.
            ip_proto::AUTHENTICATION => (usize::from(header[1]) + 2) * unit,
            _ => (usize::from(header[1]) + 1) * unit,
        };
        if len > packet.len() - chain.at {
            return Err(Malformed::Ipv6ExtensionTruncated.into());
        }
        chain.at += len;
        if chain.fragment & FRAG_LATER != 0 {
            // What follows is the middle of something: its protocol is the fragment header's, as in Open vSwitch
            // (its Documentation/topics/design.rst, "Fragments").
            return Ok(());
        }
        chain.proto = header[0];
    }
    Err(Malformed::Ipv6ExtensionLimit.into())
}

/// The transport header at `at` of `packet`, which ends where the IP packet does.
#[inline(always)]
fn transport(
    packet: Captured<'_>,
    at: usize,
    proto: u8,
    v6: bool,
    out: &mut Words<'_>,
    headers: &mut Headers,
) -> Result<(), End> {
    if headers.fragment & FRAG_LATER != 0 {
        return Ok(());
    }
    match proto {
        ip_proto::UDP => {
            let udp: &[u8; 8] = take(packet, at, Malformed::UdpTruncated)
                .inspect_err(|end| end.ports(packet, at, headers.fragment, out))?;
            let len = usize::from(be16(udp, 4));
            // A first fragment's datagram goes on in the others; 0 means 'to the end' (RFC 2675 §4).
            if len != 0 && (len < 8 || (len > packet.len() - at && headers.fragment == 0)) {
                return Err(Malformed::UdpLength.into());
            }
            headers.transport = Transport::Udp;
            headers.payload = (at + 8) as u16;
            out.set(word::PORTS, be32(udp, 0));
            Ok(())
        }
        ip_proto::TCP => {
            let tcp: &[u8; 20] = take(packet, at, Malformed::TcpTruncated)
                .inspect_err(|end| end.ports(packet, at, headers.fragment, out))?;
            let mut header_len = usize::from(tcp[12] >> 4) * 4;
            if header_len < 20 || header_len > packet.len() - at {
                if header_len < 20 || headers.fragment == 0 {
                    return Err(Malformed::TcpHeaderLength.into());
                }
                header_len = packet.len() - at; // The other options are in the next fragment.
            }
            headers.transport = Transport::Tcp;
            headers.payload = (at + header_len) as u16;
            out.set(word::PORTS, be32(tcp, 0));
            out.set(word::FLAGS, u32::from(be16(tcp, 12) & 0xfff) << 16);
            Ok(())
        }
        _ => transport_other(packet, at, proto, v6, out, headers),
    }
}

fn transport_other(
    packet: Captured<'_>,
    at: usize,
    proto: u8,
    v6: bool,
    out: &mut Words<'_>,
    headers: &mut Headers,
) -> Result<(), End> {
    match proto {
        ip_proto::SCTP => {
            let sctp: &[u8; 12] = take(packet, at, Malformed::SctpTruncated)
                .inspect_err(|end| end.ports(packet, at, headers.fragment, out))?;
            headers.transport = Transport::Sctp;
            headers.payload = (at + 12) as u16;
            out.set(word::PORTS, be32(sctp, 0));
        }
        // One that is cut off is not malformed: nothing of it is matched.
        ip_proto::UDP_LITE if packet.bytes().len() >= at + 8 => {
            headers.transport = Transport::UdpLite;
            headers.payload = (at + 8) as u16;
        }
        ip_proto::GRE if packet.bytes().len() >= at + 4 => {
            headers.transport = Transport::Gre;
            headers.payload = (at + 4) as u16;
        }
        ip_proto::ICMP if !v6 => {
            let icmp: &[u8; 8] = take(packet, at, Malformed::IcmpTruncated)
                .inspect_err(|end| end.kind(packet, at, headers.fragment, out))?;
            headers.transport = Transport::Icmpv4;
            headers.payload = (at + 8) as u16;
            out.set(word::FLAGS, be16(icmp, 0).into());
        }
        ip_proto::ICMPV6 if v6 => {
            let icmp: &[u8; 4] = take(packet, at, Malformed::Icmpv6Truncated)
                .inspect_err(|end| end.kind(packet, at, headers.fragment, out))?;
            headers.transport = Transport::Icmpv6;
            headers.payload = (at + 4) as u16;
            out.set(word::FLAGS, be16(icmp, 0).into());
            if (icmp[0] == 135 || icmp[0] == 136) && icmp[1] == 0 && headers.fragment == 0 {
                return neighbour_discovery(packet.from(at), out);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Neighbour solicitation and advertisement (RFC 4861 §4.3, §4.4): flags, target and link-layer addresses. Of
/// several options of one type the first counts.
fn neighbour_discovery(message: Captured<'_>, out: &mut Words<'_>) -> Result<(), End> {
    out.set(word::ND_RESERVED, be32(take::<4>(message, 4, Malformed::NeighbourDiscovery)?, 0));
    out.set4(word::ND_TARGET, take(message, 8, Malformed::NeighbourDiscovery)?);
    let (mut source, mut target, mut first) = (None, None, None);
    let mut options = message.from(24);
    let mut fault = Ok(());
    // A single byte behind them is nothing.
    while options.len() >= 2 {
        let reason = Malformed::NeighbourDiscovery;
        let option = take::<2>(options, 0, reason).and_then(|&[kind, units]| {
            let len = usize::from(units) * 8;
            if len == 0 || len > options.len() {
                return Err(reason.into());
            }
            Ok((kind, len, take::<8>(options, 0, reason)?))
        });
        match option {
            Ok((kind, len, &[_, _, ref address @ ..])) => {
                match kind {
                    1 => _ = source.get_or_insert(*address),
                    2 => _ = target.get_or_insert(*address),
                    _ => {}
                }
                if matches!(kind, 1 | 2) {
                    first.get_or_insert(kind);
                }
                options = options.from(len);
            }
            Err(end) => {
                fault = Err(end);
                break;
            }
        }
    }
    if let Some(first) = first {
        let (s, t) = (source.unwrap_or_default(), target.unwrap_or_default());
        out.set(word::ARP_HA, be32(&s, 0));
        out.set(word::ARP_HA + 1, u32::from(be16(&s, 4)) << 16 | u32::from(be16(&t, 0)));
        out.set(word::ARP_HA + 2, be32(&t, 2));
        let present = |option: Option<[u8; 6]>, bit| if option.is_some() { bit } else { 0 };
        let options = present(source, ND_SLL_PRESENT) | present(target, ND_TLL_PRESENT);
        // Behind `arp_op`, which these messages have not.
        out.set(word::ARP_OP, u32::from(options) << 14 | u32::from(first));
    }
    fault
}
