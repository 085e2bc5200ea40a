//! What a packet is, as far as known differences depend on it. Plain code that shares nothing with the switch;
//! it need not be right about more than that.

use super::packets::sum;

/// The part behind the EtherType, or behind the labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Network {
    Ipv4,
    Ipv6,
    Arp,
    Rarp,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fragment {
    No,
    First,
    Later,
    /// An IPv6 Fragment header of a packet that is whole (RFC 6946).
    Atomic,
}

/// An IP packet, perhaps under labels.
#[derive(Clone, Debug)]
pub(crate) struct Ip {
    pub(crate) v6: bool,
    /// The header is whole, its version is the EtherType's and its lengths fit the frame.
    pub(crate) sound: bool,
    pub(crate) version_fits: bool,
    pub(crate) ttl: u8,
    pub(crate) fragment: Fragment,
    /// The chain of extension headers is there to its end.
    pub(crate) chain_whole: bool,
    pub(crate) extensions: Vec<u8>,
    /// A Routing header has segments left.
    pub(crate) segments_left: bool,
    /// Payload length 0 and a hop-by-hop header.
    pub(crate) jumbogram: bool,
    pub(crate) protocol: u8,
    /// The checksum of ICMPv6 is right.
    pub(crate) icmp6_right: bool,
    /// The part behind the headers above, with the length of the IP header.
    pub(crate) transport: Vec<u8>,
}

/// A packet.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Tag control information, from the outermost tag on.
    pub(crate) tags: Vec<u16>,
    /// A length is in the place of the EtherType.
    pub(crate) llc: bool,
    pub(crate) labelled: bool,
    /// Label stack entries down to the bottom.
    pub(crate) labels: Vec<u32>,
    /// The stack ends with the bottom bit.
    pub(crate) bottom: bool,
    pub(crate) network: Network,
    /// The apparent packet under the labels, by its version.
    pub(crate) under: Network,
    pub(crate) ip: Option<Ip>,
    /// The bytes behind the EtherType where that is ARP's or RARP's.
    pub(crate) arp: Vec<u8>,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

impl Shape {
    pub(crate) fn of(frame: &[u8]) -> Self {
        let mut at = 12;
        let mut tags = Vec::new();
        while let (Some(0x8100 | 0x88a8), Some(tci)) = (be16(frame, at), be16(frame, at + 2)) {
            tags.push(tci);
            at += 4;
        }
        let mut kind = be16(frame, at).unwrap_or(0);
        at += 2;
        let llc = kind < 0x600;
        if llc {
            let snap = frame.get(at..at + 6) == Some(&[0xaa, 0xaa, 3, 0, 0, 0]);
            kind = if snap { be16(frame, at + 6).filter(|&k| k >= 0x600).unwrap_or(0) } else { 0 };
            at += 8;
        }
        let rest = frame.get(at..).unwrap_or_default();
        let network = match kind {
            0x0800 => Network::Ipv4,
            0x86dd => Network::Ipv6,
            0x0806 => Network::Arp,
            0x8035 => Network::Rarp,
            _ => Network::Other,
        };
        let labelled = matches!(kind, 0x8847 | 0x8848);
        let (labels, bottom) = if labelled { stack(rest) } else { (vec![], false) };
        let under = match rest.get(labels.len() * 4).map(|byte| byte >> 4) {
            Some(4) => Network::Ipv4,
            Some(6) => Network::Ipv6,
            _ => Network::Other,
        };
        let inner = if labelled && bottom { under } else { network };
        let ip = match inner {
            Network::Ipv4 => Some(ipv4(&rest[labels.len() * 4..])),
            Network::Ipv6 => Some(ipv6(&rest[labels.len() * 4..])),
            _ => None,
        };
        let is_arp = matches!(network, Network::Arp | Network::Rarp);
        let arp = if is_arp { rest.to_vec() } else { vec![] };
        Self { tags, llc, labelled, labels, bottom, network, under, ip, arp }
    }
}

/// The label stack, and whether it has a bottom.
fn stack(bytes: &[u8]) -> (Vec<u32>, bool) {
    let mut labels = Vec::new();
    for entry in bytes.chunks_exact(4) {
        let entry = u32::from_be_bytes(entry.try_into().expect("four bytes"));
        labels.push(entry);
        if entry & 0x100 != 0 {
            return (labels, true);
        }
    }
    (labels, false)
}

/// RFC 791 §3.1, as far as it is there.
fn ipv4(bytes: &[u8]) -> Ip {
    let first = bytes.first().copied().unwrap_or(0x40);
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let header = usize::from(first & 15) * 4;
    let total = usize::from(be16(bytes, 2).unwrap_or(0));
    let fields = be16(bytes, 6).unwrap_or(0);
    let whole = header >= 20 && bytes.len() >= header && total >= header && total <= bytes.len();
    let fragment = match (fields & 0x1fff, fields & 0x2000) {
        (0, 0) => Fragment::No,
        (0, _) => Fragment::First,
        _ => Fragment::Later,
    };
    Ip {
        v6: false,
        sound: whole && first >> 4 == 4,
        version_fits: first >> 4 == 4,
        ttl: byte(8),
        fragment,
        chain_whole: true,
        extensions: vec![],
        segments_left: false,
        jumbogram: false,
        protocol: byte(9),
        icmp6_right: false,
        transport: bytes.get(header..total.min(bytes.len())).unwrap_or_default().to_vec(),
    }
}

/// RFC 8200 §3 and §4, as far as it is there.
fn ipv6(bytes: &[u8]) -> Ip {
    let first = bytes.first().copied().unwrap_or(0x60);
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let length = usize::from(be16(bytes, 4).unwrap_or(0));
    let whole = bytes.len() >= 40 && 40 + length <= bytes.len();
    let mut ip = Ip {
        v6: true,
        sound: whole && first >> 4 == 6,
        version_fits: first >> 4 == 6,
        ttl: byte(7),
        fragment: Fragment::No,
        chain_whole: true,
        extensions: vec![],
        segments_left: false,
        jumbogram: length == 0 && byte(6) == 0,
        protocol: byte(6),
        icmp6_right: false,
        transport: vec![],
    };
    let payload = bytes.get(40..(40 + length).min(bytes.len())).unwrap_or_default();
    let mut at = 0;
    while matches!(ip.protocol, 0 | 43 | 44 | 51 | 60 | 135) {
        let (Some(&next), Some(&units)) = (payload.get(at), payload.get(at + 1)) else {
            ip.chain_whole = false;
            break;
        };
        let len = match ip.protocol {
            44 => 8,
            51 => 4 * (usize::from(units) + 2),
            _ => 8 * (usize::from(units) + 1),
        };
        if at + len > payload.len() {
            ip.chain_whole = false;
            break;
        }
        ip.extensions.push(ip.protocol);
        if ip.protocol == 44 {
            let fields = be16(payload, at + 2).unwrap_or(0);
            ip.fragment = match (fields & !7, fields & 1) {
                (0, 0) => Fragment::Atomic,
                (0, _) => Fragment::First,
                _ => Fragment::Later,
            };
        }
        ip.segments_left |= ip.protocol == 43 && payload.get(at + 3).is_some_and(|&left| left > 0);
        (ip.protocol, at) = (next, at + len);
        if ip.fragment == Fragment::Later {
            break;
        }
    }
    ip.transport = payload.get(at..).unwrap_or_default().to_vec();
    // RFC 4443 §2.3: with the addresses, the length and the protocol.
    let length = (ip.transport.len() as u32).to_be_bytes();
    let addresses = bytes.get(8..40).unwrap_or_default();
    ip.icmp6_right = sum(&[addresses, &length, &[0, 0, 0, 58], &ip.transport]) == 0xffff;
    ip
}
