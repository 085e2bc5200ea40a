//! Random packets of every class, put together byte by byte from the standards.
//!
//! Nothing here is shared with the product's parser or edits. A [`Class`] is something that a packet may
//! have or that may be wrong with it; [`Classes`] says which of them a packet may belong to, so that known
//! differences can be left out, or looked at one by one.

mod classes;
mod transport;

pub(crate) use classes::{Class, Classes};

/// Random numbers from a seed (SplitMix64), the same on every machine.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        (self.next() >> 32) as u32 % n
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }
}

/// A packet that belongs to none but the given classes (to how many of them is chance). Without any of
/// [`Class::Ipv4`], [`Class::Ipv6`] and the other payloads of Ethernet it is an IPv4 packet, without any
/// of the transport protocols UDP.
pub(crate) fn packet_of(r: &mut Random, classes: Classes) -> Vec<u8> {
    let mut maker = Maker { r, classes };
    let (ether_type, payload) = maker.network();
    let (ether_type, payload) = maker.labels(ether_type, payload);
    let mut frame = maker.ethernet(ether_type, payload);
    if maker.may(Class::Padding, 5) {
        let len = frame.len() + maker.r.pick(&[1, 4, 18]);
        frame.resize(len, maker.r.pick(&[0, 0xa5]));
    }
    if maker.may(Class::Truncated, 10) {
        let most = frame.len().saturating_sub(14).min(90) as u32;
        frame.truncate(14 + maker.r.below(most + 1) as usize);
    }
    if maker.may(Class::Runt, 150) {
        frame.truncate(maker.r.below(14) as usize);
    }
    frame
}

/// Puts a packet together from the inside out.
struct Maker<'a> {
    r: &'a mut Random,
    classes: Classes,
}

/// The addresses that a transport checksum goes over.
struct Pseudo {
    src: Vec<u8>,
    dst: Vec<u8>,
}

impl Maker<'_> {
    /// Returns whether the packet belongs to `class`: once in `n` times, if it may.
    fn may(&mut self, class: Class, n: u32) -> bool {
        self.classes.has(class) && self.r.one_in(n)
    }

    /// One of those classes that are allowed, each as often as it is listed.
    fn choose(&mut self, from: &[Class], otherwise: Class) -> Class {
        let allowed: Vec<Class> = from.iter().copied().filter(|&c| self.classes.has(c)).collect();
        if allowed.is_empty() { otherwise } else { self.r.pick(&allowed) }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.r.next() as u8).collect()
    }

    fn ttl(&mut self) -> u8 {
        let low = self.may(Class::LowTtl, 3);
        if low { self.r.pick(&[0, 1, 1, 2]) } else { self.r.pick(&[64, 64, 3, 255]) }
    }

    /// An EtherType and its meaning.
    fn network(&mut self) -> (u16, Vec<u8>) {
        use Class::{Arp, Ipv4, Ipv6, OtherEtherType, Rarp};
        let kinds = [Ipv4, Ipv4, Ipv4, Ipv4, Ipv4, Ipv6, Ipv6, Ipv6, Ipv6, Arp, Rarp, OtherEtherType];
        match self.choose(&kinds, Ipv4) {
            Ipv6 => (0x86dd, self.ipv6()),
            Arp => (0x0806, self.arp()),
            Rarp => (0x8035, self.arp()),
            OtherEtherType => {
                let len = self.r.below(40) as usize;
                (self.r.pick(&[0x88cc, 0x9000, 0x0600, 0xffff, 0x22ea]), self.bytes(len))
            }
            _ => (0x0800, self.ipv4()),
        }
    }

    /// RFC 826 §Packet format.
    fn arp(&mut self) -> Vec<u8> {
        let mut out = vec![0, 1, 8, 0, 6, 4, 0];
        out.push(self.r.pick(&[1, 2]));
        if self.may(Class::ArpOperation, 5) {
            let operation: u16 = self.r.pick(&[0, 3, 255, 256, 0x0101]);
            out[6..8].copy_from_slice(&operation.to_be_bytes());
        }
        for _ in 0..2 {
            out.extend(mac(self.r));
            out.extend(ipv4_address(self.r));
        }
        if self.may(Class::ArpFormat, 6) {
            let at = self.r.below(6) as usize;
            out[at] ^= 1 << self.r.below(8);
        }
        out
    }

    /// RFC 3032 §2.1: label stack entries in front of the payload.
    fn labels(&mut self, ether_type: u16, payload: Vec<u8>) -> (u16, Vec<u8>) {
        let mut count = 0;
        if self.may(Class::Labels, 5) {
            count = 1 + self.r.below(3);
        }
        if self.may(Class::ManyLabels, 30) {
            count = 4 + self.r.below(2);
        }
        if count == 0 {
            return (ether_type, payload);
        }
        let no_bottom = self.may(Class::NoBottom, 12);
        let mut out = Vec::new();
        for i in 0..count {
            let bottom = i + 1 == count && !no_bottom;
            let label: u32 = self.r.pick(&[3, 7, 16, 0xf_ffff]);
            let ttl = u32::from(self.ttl());
            let mut entry = label << 12 | self.r.below(8) << 9 | u32::from(bottom) << 8 | ttl;
            if self.may(Class::ZeroLabel, 10) {
                entry = u32::from(bottom) << 8;
            }
            out.extend(entry.to_be_bytes());
        }
        out.extend(payload);
        (self.r.pick(&[0x8847, 0x8847, 0x8848]), out)
    }

    /// Addresses, tags and type; LLC and SNAP where it is 802.3.
    fn ethernet(&mut self, ether_type: u16, payload: Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(mac(self.r));
        out.extend(mac(self.r));
        let mut tags = 0;
        if self.may(Class::Tags, 3) {
            tags = 1 + self.r.below(2);
        }
        if self.may(Class::ManyTags, 20) {
            tags = 3 + self.r.below(2);
        }
        for _ in 0..tags {
            let tpid: u16 = self.r.pick(&[0x8100, 0x8100, 0x88a8]);
            let mut tci: u16 = self.r.pick(&[5, 6, 0xfff]) | self.r.pick(&[0, 3, 7]) << 13;
            if self.may(Class::ZeroTag, 8) {
                tci = 0;
            }
            if self.may(Class::Dei, 6) {
                tci |= 0x1000;
            }
            out.extend(tpid.to_be_bytes());
            out.extend(tci.to_be_bytes());
        }
        let llc = self.may(Class::Llc, 25).then(|| self.other_llc(ether_type));
        let llc = llc.or_else(|| self.may(Class::Snap, 12).then(|| snap([0; 3], ether_type)));
        match llc {
            Some(llc) => {
                out.extend(((llc.len() + payload.len()) as u16).to_be_bytes());
                out.extend(llc);
            }
            None => out.extend(ether_type.to_be_bytes()),
        }
        out.extend(payload);
        out
    }

    /// LLC headers without an EtherType behind them.
    fn other_llc(&mut self, ether_type: u16) -> Vec<u8> {
        match self.r.below(3) {
            0 => vec![0x42, 0x42, 3],
            1 => snap([0, 0, 0x0c], ether_type),
            _ => snap([0; 3], 0x05dc),
        }
    }

    /// RFC 791 §3.1.
    fn ipv4(&mut self) -> Vec<u8> {
        let (src, dst) = (ipv4_address(self.r), ipv4_address(self.r));
        let pseudo = Pseudo { src: src.to_vec(), dst: dst.to_vec() };
        let (mut protocol, transport) = self.transport(&pseudo, false);
        let (fields, payload) = match self.choose_rare(&[Class::Ipv4First, Class::Ipv4Later], 5) {
            Some(class) => self.fragment(class == Class::Ipv4Later, &transport, protocol),
            None => (self.r.pick(&[0, 0x4000]), transport),
        };
        if self.may(Class::ProtocolZero, 40) {
            protocol = 0;
        }
        let mut options = Vec::new();
        if self.may(Class::Ipv4Options, 6) {
            // Router alert (RFC 2113), or 40 bytes of no operation.
            options = self.r.pick(&[&[0x94, 4, 0, 0][..], &[1; 40]]).to_vec();
        }
        let header_len = 20 + options.len();
        let mut out = vec![0x40 | (header_len / 4) as u8, self.r.pick(&[0, 0x20, 0x21, 0xb9, 0x03])];
        out.extend(((header_len + payload.len()) as u16).to_be_bytes());
        out.extend(self.r.pick(&[0u16, 7, 0x1234]).to_be_bytes());
        out.extend(fields.to_be_bytes());
        out.extend([self.ttl(), protocol, 0, 0]);
        out.extend(src);
        out.extend(dst);
        out.extend(options);
        self.ipv4_lies(&mut out, payload.len());
        let checksum = !sum(&[&out]);
        let checksum = self.perhaps_wrong(checksum);
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
        out.extend(payload);
        out
    }

    fn ipv4_lies(&mut self, header: &mut [u8], payload_len: usize) {
        if self.may(Class::Ipv4Version, 40) {
            header[0] = header[0] & 15 | self.r.pick(&[0x00, 0x50, 0x60]);
        }
        if self.may(Class::Ipv4HeaderLength, 40) {
            header[0] = header[0] & 0xf0 | self.r.pick(&[0, 4, 6, 15]);
        }
        if self.may(Class::Ipv4TotalLength, 30) {
            let right = header.len() + payload_len;
            let total = self.r.pick(&[0, 19, 20, right - 1, right + 1, right + 100, 0xffff]);
            header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        }
    }

    /// A fragment's flags and offset as IPv4 has them, and what it carries of `datagram`.
    fn fragment(&mut self, later: bool, datagram: &[u8], protocol: u8) -> (u16, Vec<u8>) {
        const MORE: u16 = 0x2000;
        let header = match protocol {
            6 => usize::from(datagram[12] >> 4) * 4,
            132 => 12,
            58 => 4,
            _ => 8,
        };
        let mut cut = header.next_multiple_of(8).min(datagram.len() & !7).max(8);
        if !later && header > 8 && self.may(Class::TinyFragment, 8) {
            cut = 8;
        }
        let mut whole = datagram.to_vec();
        whole.resize(whole.len().max(cut + 1), 0);
        match later {
            false => (MORE, whole[..cut].to_vec()),
            true => ((cut / 8) as u16 | self.r.pick(&[0, MORE]), whole[cut..].to_vec()),
        }
    }

    /// None, or once in `n` times one of the classes that are allowed.
    fn choose_rare(&mut self, from: &[Class], n: u32) -> Option<Class> {
        let any = from.iter().any(|&c| self.classes.has(c));
        (any && self.r.one_in(n)).then(|| self.choose(from, from[0]))
    }

    /// RFC 8200 §3 and §4.
    fn ipv6(&mut self) -> Vec<u8> {
        let (src, dst) = (ipv6_address(self.r), ipv6_address(self.r));
        let routing = self.choose_rare(&[Class::Routing, Class::RoutingLeft], 6);
        let last = ipv6_address(self.r);
        let pseudo_dst = if routing == Some(Class::RoutingLeft) { last } else { dst };
        let pseudo = Pseudo { src: src.to_vec(), dst: pseudo_dst.to_vec() };
        let (mut next, mut payload) = self.transport(&pseudo, true);
        let protocol = next;
        let fragments = [Class::Ipv6First, Class::Ipv6Later, Class::Ipv6Atomic];
        let fragment = self.choose_rare(&fragments, 4);
        if fragment == Some(Class::Ipv6First) {
            payload = self.fragment(false, &payload, protocol).1;
        }
        if self.may(Class::Destination, 8) {
            (next, payload) = (60, self.extension(next, options(1), payload));
        }
        if self.may(Class::Authentication, 10) {
            // RFC 4302 §2: length in 32-bit words less 2; 12 bytes of integrity check value.
            let mut header = vec![next, 4, 0, 0];
            header.extend(self.bytes(20));
            (next, payload) = (51, [header, payload].concat());
        }
        if let Some(class) = fragment {
            (next, payload) = (44, self.fragment_header(class, next, payload));
        }
        if let Some(class) = routing {
            let left = u8::from(class == Class::RoutingLeft);
            // Types 0 and 2 (RFC 6275 §6.4): one address; type 4 (RFC 8754 §2): a list of one segment.
            let body = [&[self.r.pick(&[0, 2, 4]), left, 0, 0, 0, 0][..], &last].concat();
            (next, payload) = (43, self.extension(next, body, payload));
        }
        if self.may(Class::Mobility, 25) {
            (next, payload) = (135, self.extension(next, vec![0; 6], payload));
        }
        if self.may(Class::Destination, 12) {
            (next, payload) = (60, self.extension(next, options(2), payload));
        }
        if self.may(Class::LongChain, 60) {
            for _ in 0..self.r.pick(&[10, 17]) {
                (next, payload) = (60, self.extension(next, options(1), payload));
            }
        }
        let hop_by_hop = self.may(Class::HopByHop, 8);
        if hop_by_hop {
            (next, payload) = (0, self.extension(next, options(1), payload));
        }
        let length = self.payload_length(payload.len(), hop_by_hop);
        let version = if self.may(Class::Ipv6Version, 40) { self.r.pick(&[4, 0, 7]) } else { 6 };
        let class: u32 = self.r.pick(&[0, 0x20, 0x21, 0xb9, 0x03]);
        let label: u32 = self.r.pick(&[0, 5, 0xf_ffff]);
        let first: u32 = version << 28 | class << 20 | label;
        let hop_limit = if protocol == 58 && self.r.one_in(2) { 255 } else { self.ttl() };
        let lengths = [&first.to_be_bytes()[..], &length.to_be_bytes(), &[next, hop_limit]].concat();
        [&lengths[..], &src, &dst, &payload].concat()
    }

    /// RFC 8200 §4.5.
    fn fragment_header(&mut self, class: Class, next: u8, mut payload: Vec<u8>) -> Vec<u8> {
        let fields: u16 = match class {
            Class::Ipv6First => 1,
            Class::Ipv6Later => {
                payload.drain(..payload.len().min(8));
                let offset = 8 * (1 + self.r.below(3) as u16);
                offset | self.r.pick(&[0, 1])
            }
            _ => 0,
        };
        [&[next, 0][..], &fields.to_be_bytes(), &[0, 0, 0, 9], &payload].concat()
    }

    /// The payload length in an IPv6 header.
    fn payload_length(&mut self, right: usize, hop_by_hop: bool) -> u16 {
        let mut length = right;
        if hop_by_hop && self.may(Class::Jumbogram, 8) {
            length = 0;
        }
        if self.may(Class::Ipv6PayloadLength, 25) {
            length = self.r.pick(&[0, 7, length.saturating_sub(1), length + 1, 0xffff]);
        }
        length as u16
    }

    /// An extension header of 8-byte units (RFC 8200 §4.2, §4.4, §4.6), and the rest of the packet.
    fn extension(&mut self, next: u8, body: Vec<u8>, rest: Vec<u8>) -> Vec<u8> {
        let mut out = vec![next, 0];
        out.extend(body);
        out.resize(out.len().next_multiple_of(8), 0);
        out[1] = (out.len() / 8 - 1) as u8;
        if self.may(Class::ExtensionLength, 15) {
            out[1] = self.r.pick(&[0, 5, 255]);
        }
        out.extend(rest);
        out
    }

    fn perhaps_wrong(&mut self, checksum: u16) -> u16 {
        if self.may(Class::WrongChecksum, 10) {
            return checksum.wrapping_add(self.r.pick(&[1, 0x1234, 0xff00]));
        }
        if self.may(Class::ZeroChecksum, 10) { 0 } else { checksum }
    }
}

/// An EtherType behind LLC and SNAP (RFC 1042; IEEE 802 §9.2).
fn snap(oui: [u8; 3], ether_type: u16) -> Vec<u8> {
    [&[0xaa, 0xaa, 3][..], &oui, &ether_type.to_be_bytes()].concat()
}

/// Padding options (RFC 8200 §4.2) that fill `units` units of 8 bytes less 2.
fn options(units: usize) -> Vec<u8> {
    let len = units * 8 - 2;
    let mut out = vec![0; len];
    out[0] = 1;
    out[1] = (len - 2) as u8;
    out
}

/// One of few Ethernet addresses.
pub(crate) fn mac(r: &mut Random) -> [u8; 6] {
    // Zero is a value like others, also of an option.
    r.pick(&[[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3], [0xff; 6], [0; 6]])
}

/// One of few IPv4 addresses.
pub(crate) fn ipv4_address(r: &mut Random) -> [u8; 4] {
    r.pick(&[[10, 0, 0, 1], [10, 0, 0, 2], [10, 1, 0, 1], [192, 0, 2, 7]])
}

/// One of few IPv6 addresses.
pub(crate) fn ipv6_address(r: &mut Random) -> [u8; 16] {
    let mut out = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    out[7] = r.pick(&[0, 1]);
    out[15] = r.pick(&[1, 2, 3]);
    out
}

/// The sum of 16-bit words of all parts but the last of which have an even length (RFC 1071).
pub(crate) fn sum(parts: &[&[u8]]) -> u16 {
    let mut total = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// CRC32c (RFC 9260 appendix A), bit by bit.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

/// etherparse takes sound packets apart, and finds their lengths and checksums right.
#[test]
fn packets_that_are_to_be_sound_are_sound() {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    // etherparse looks for extension headers behind the Fragment header of a later fragment, too.
    let classes = Classes::sound().without(Class::Ipv6Later);
    let r = &mut Random::new(1);
    let mut compared = [0; 4];
    for i in 0..20_000 {
        let bytes = packet_of(r, classes);
        let sliced = SlicedPacket::from_ethernet(&bytes);
        let sliced = sliced.unwrap_or_else(|e| panic!("packet {i}: {e}: {bytes:02x?}"));
        if sliced.is_ip_payload_fragmented() {
            continue;
        }
        match (&sliced.net, &sliced.transport) {
            (Some(NetSlice::Ipv4(ip)), transport) => {
                let ip = ip.header();
                assert_eq!(ip.to_header().calc_header_checksum(), ip.header_checksum(), "{bytes:02x?}");
                let (src, dst) = (ip.source(), ip.destination());
                let (which, right, found) = match transport {
                    Some(TransportSlice::Udp(udp)) => {
                        let right = udp.to_header().calc_checksum_ipv4_raw(src, dst, udp.payload());
                        (0, right.unwrap(), udp.checksum())
                    }
                    Some(TransportSlice::Tcp(tcp)) => {
                        (1, tcp.calc_checksum_ipv4(src, dst).unwrap(), tcp.checksum())
                    }
                    _ => continue,
                };
                assert_eq!(right, found, "packet {i}: {bytes:02x?}");
                compared[which] += 1;
            }
            (Some(NetSlice::Ipv6(ip)), Some(transport)) if !ip.extensions().is_empty() => {
                _ = transport; // Where segments are left the sum goes over another address.
            }
            (Some(NetSlice::Ipv6(ip)), Some(transport)) => {
                let ip = ip.header();
                let (src, dst) = (ip.source(), ip.destination());
                match transport {
                    TransportSlice::Tcp(tcp) => {
                        assert_eq!(tcp.calc_checksum_ipv6(src, dst).unwrap(), tcp.checksum());
                        compared[2] += 1;
                    }
                    TransportSlice::Icmpv6(icmp) => {
                        assert!(icmp.is_checksum_valid(src, dst), "packet {i}: {bytes:02x?}");
                        compared[3] += 1;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    assert!(compared.iter().all(|&n| n > 100), "{compared:?}");
}
