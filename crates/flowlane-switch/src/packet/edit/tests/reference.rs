//! Packets put together by plain code that shares nothing with `edit` or the parser: what a packet should look like
//! after a change is the changed description, put together again, with every checksum computed from scratch.

use flowlane::packet::fields::Field;

/// A sequence of random numbers.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// How a stored checksum relates to the right one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Stored {
    Right,
    /// None (UDP); in UDP-Lite wrong (RFC 3828 §3.1).
    Zero,
    /// Wrong by this much.
    Off(u16),
}

#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) macs: [u8; 12],
    /// TPID and TCI.
    pub(crate) tags: Vec<(u16, u16)>,
    pub(crate) snap: bool,
    pub(crate) labels: Vec<u32>,
    /// The innermost EtherType; without labels that of `body`.
    pub(crate) eth_type: u16,
    pub(crate) body: Body,
    pub(crate) padding: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Bytes(Vec<u8>),
    Arp([u8; 28]),
    Ip(Ip),
}

#[derive(Clone, Debug)]
pub(crate) struct Ip {
    pub(crate) v6: bool,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) flow: u32,
    /// IPv4 addresses are the first four bytes.
    pub(crate) src: [u8; 16],
    pub(crate) dst: [u8; 16],
    /// Where a Routing header with segments left says that the packet goes in the end.
    pub(crate) last: Option<[u8; 16]>,
    /// IPv4 options.
    pub(crate) options: Vec<u8>,
    /// IPv6 extension headers before the fragment header: number, and bytes (the first is overwritten).
    pub(crate) extensions: Vec<(u8, Vec<u8>)>,
    /// Offset in units of 8 bytes, and whether more follow.
    pub(crate) fragment: Option<(u16, bool)>,
    pub(crate) header_checksum: Stored,
    pub(crate) proto: u8,
    /// The whole datagram, of which a fragment has a part; the checksum in it does not matter.
    pub(crate) datagram: Vec<u8>,
    /// Where the part begins and ends.
    pub(crate) part: (usize, usize),
    pub(crate) checksum: Stored,
    /// Places of the addresses in the options of a neighbour discovery message, source and target.
    pub(crate) nd: Option<[Option<usize>; 2]>,
}

/// The ones' complement sum of 16-bit words.
pub(crate) fn ones(bytes: &[u8], from: u16) -> u16 {
    bytes.chunks(2).fold(from, |sum, word| {
        let word = u16::from(word[0]) * 256 + word.get(1).map_or(0, |&low| low.into());
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

/// CRC32c bit by bit.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

impl Stored {
    fn of(self, right: u16) -> u16 {
        match self {
            Self::Right => right,
            Self::Zero => 0,
            // Of the two zeros the one that arithmetic on differences arrives at.
            Self::Off(by) => match ones(&by.to_be_bytes(), right) {
                0xffff => 0,
                wrong => wrong,
            },
        }
    }

    pub(crate) fn random(r: &mut Random, may_be_zero: bool) -> Self {
        match r.below(6) {
            0 if may_be_zero => Self::Zero,
            1 => Self::Off(1 + r.next() as u16 % 0xfffd),
            _ => Self::Right,
        }
    }
}

impl Ip {
    pub(crate) fn is_later(&self) -> bool {
        self.fragment.is_some_and(|(offset, _)| offset > 0)
    }

    pub(crate) fn is_fragment(&self) -> bool {
        self.fragment.is_some_and(|(offset, more)| offset > 0 || more)
    }

    /// Where the 16-bit checksum is in the datagram, and whether a pseudo header is part of it.
    pub(crate) fn checksum_at(&self) -> Option<(usize, bool)> {
        match (self.proto, self.v6) {
            (6, _) => Some((16, true)),
            (17 | 136, _) => Some((6, true)),
            (58, true) => Some((2, true)),
            (1, false) => Some((2, false)),
            _ => None,
        }
    }

    /// The datagram with its checksum.
    pub(crate) fn summed(&self) -> Vec<u8> {
        let mut datagram = self.datagram.clone();
        if self.proto == 132 {
            datagram[8..12].fill(0);
            let crc = crc32c(&datagram);
            datagram[8..12].copy_from_slice(&crc.to_le_bytes());
        }
        let Some((at, pseudo)) = self.checksum_at() else { return datagram };
        datagram[at..at + 2].fill(0);
        let n = if self.v6 { 16 } else { 4 };
        let mut sum = 0;
        if pseudo {
            sum = ones(&self.src[..n], sum);
            sum = ones(&self.last.unwrap_or(self.dst)[..n], sum);
            sum = ones(&(datagram.len() as u32).to_be_bytes(), sum);
            sum = ones(&[0, self.proto], sum);
        }
        let covered = match (self.proto, u16::from_be_bytes([datagram[4], datagram[5]])) {
            (136, coverage @ 8..) => usize::from(coverage),
            _ => datagram.len(),
        };
        let checksum = self.checksum.of(!ones(&datagram[..covered], sum));
        let never_zero = matches!(self.proto, 17 | 136) && self.checksum != Stored::Zero;
        let checksum = if never_zero && checksum == 0 { 0xffff } else { checksum };
        datagram[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        datagram
    }

    fn build(&self) -> Vec<u8> {
        let payload = match self.is_later() {
            true => self.datagram[self.part.0..self.part.1].to_vec(),
            false => self.summed()[self.part.0..self.part.1].to_vec(),
        };
        if self.v6 { self.build_v6(&payload) } else { self.build_v4(&payload) }
    }

    fn build_v4(&self, payload: &[u8]) -> Vec<u8> {
        let len = 20 + self.options.len();
        let (offset, more) = self.fragment.unwrap_or_default();
        let mut out = vec![0x40 | (len / 4) as u8, self.tos];
        out.extend(((len + payload.len()) as u16).to_be_bytes());
        out.extend([0xab, 0xcd]);
        out.extend((offset | u16::from(more) << 13).to_be_bytes());
        out.extend([self.ttl, self.proto, 0, 0]);
        out.extend(&self.src[..4]);
        out.extend(&self.dst[..4]);
        out.extend(&self.options);
        let checksum = self.header_checksum.of(!ones(&out, 0));
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
        out.extend(payload);
        out
    }

    fn build_v6(&self, payload: &[u8]) -> Vec<u8> {
        let mut chain = self.extensions.clone();
        if let Some((offset, more)) = self.fragment {
            let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
            chain.push((44, vec![0, 0, high, low, 1, 2, 3, 4]));
        }
        let numbers: Vec<u8> = chain.iter().map(|h| h.0).chain([self.proto]).collect();
        let headers: Vec<u8> = (chain.iter().zip(&numbers[1..]))
            .flat_map(|((_, bytes), &next)| [&[next], &bytes[1..]].concat())
            .collect();
        let mut out = (6 << 28 | u32::from(self.tos) << 20 | self.flow).to_be_bytes().to_vec();
        out.extend(((headers.len() + payload.len()) as u16).to_be_bytes());
        out.extend([numbers[0], self.ttl]);
        out.extend(self.src);
        out.extend(self.dst);
        out.extend(headers);
        out.extend(payload);
        out
    }
}

impl Packet {
    pub(crate) fn build(&self) -> Vec<u8> {
        let mut out = self.macs.to_vec();
        for (tpid, tci) in &self.tags {
            out.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        let labels: Vec<u8> = self.labels.iter().flat_map(|l| l.to_be_bytes()).collect();
        let body = match &self.body {
            Body::Bytes(bytes) => bytes.clone(),
            Body::Arp(bytes) => bytes.to_vec(),
            Body::Ip(ip) => ip.build(),
        };
        let inside = [&self.eth_type.to_be_bytes()[..], &labels, &body].concat();
        if self.snap {
            out.extend(((6 + inside.len()) as u16).to_be_bytes());
            out.extend([0xaa, 0xaa, 3, 0, 0, 0]);
        }
        out.extend(inside);
        out.extend(&self.padding);
        out
    }

    pub(crate) fn ip(&self) -> Option<&Ip> {
        if let Body::Ip(ip) = &self.body { Some(ip) } else { None }
    }

    /// Sets bits of a field; says whether the packet has it.
    pub(crate) fn set(&mut self, field: Field, value: u128, mask: u128) -> bool {
        match field {
            Field::EthDst => put(&mut self.macs[..6], value, mask),
            Field::EthSrc => put(&mut self.macs[6..], value, mask),
            Field::VlanTci | Field::VlanVid | Field::VlanPcp => {
                if self.tags.is_empty() {
                    self.tags.push((0x8100, 0));
                }
                let (by, no) = if field == Field::VlanPcp { (13, 0) } else { (0, 0x1000) };
                let (value, mask) = ((value << by) as u16, (mask << by) as u16 & !no);
                self.tags[0].1 = self.tags[0].1 & !mask | value & mask;
            }
            Field::MplsLabel | Field::MplsTc | Field::MplsTtl => {
                let by =
                    [12, 9, 0][usize::from(field != Field::MplsLabel) + usize::from(field == Field::MplsTtl)];
                let Some(first) = self.labels.first_mut() else { return false };
                *first = *first & !((mask as u32) << by) | ((value & mask) as u32) << by;
            }
            Field::ArpOp | Field::ArpSha | Field::ArpSpa | Field::ArpTha | Field::ArpTpa => {
                let Body::Arp(arp) = &mut self.body else { return false };
                let (at, len) = match field {
                    Field::ArpOp => (6, 2),
                    Field::ArpSha => (8, 6),
                    Field::ArpSpa => (14, 4),
                    Field::ArpTha => (18, 6),
                    _ => (24, 4),
                };
                put(&mut arp[at..at + len], value, mask);
            }
            _ => {
                let Body::Ip(ip) = &mut self.body else { return false };
                return ip.set(field, value, mask);
            }
        }
        true
    }
}

impl Ip {
    fn set(&mut self, field: Field, value: u128, mask: u128) -> bool {
        let whole = !self.is_fragment();
        let nd = self.nd.filter(|_| whole);
        let at = match field {
            Field::TpSrc | Field::TpDst
                if matches!(self.proto, 6 | 17) && !self.is_later() || self.proto == 132 && whole =>
            {
                if field == Field::TpSrc { 0..2 } else { 2..4 }
            }
            Field::IcmpType | Field::IcmpCode
                if self.proto == if self.v6 { 58 } else { 1 } && !self.is_later() =>
            {
                if field == Field::IcmpType { 0..1 } else { 1..2 }
            }
            Field::NdReserved if nd.is_some() => 4..8,
            Field::NdTarget if nd.is_some() => 8..24,
            Field::NdOptionsType => match nd.and_then(|nd| nd.into_iter().flatten().min()) {
                Some(address) => address - 2..address - 1,
                None => return false,
            },
            Field::NdSll | Field::NdTll => match nd.and_then(|nd| nd[usize::from(field == Field::NdTll)]) {
                Some(at) => at..at + 6,
                None => return false,
            },
            _ => return self.set_network(field, value, mask),
        };
        put(&mut self.datagram[at], value, mask);
        true
    }

    fn set_network(&mut self, field: Field, value: u128, mask: u128) -> bool {
        match field {
            Field::Ipv4Src if !self.v6 => put(&mut self.src[..4], value, mask),
            Field::Ipv4Dst if !self.v6 => put(&mut self.dst[..4], value, mask),
            Field::Ipv6Src if self.v6 => put(&mut self.src, value, mask),
            Field::Ipv6Dst if self.v6 => put(&mut self.dst, value, mask),
            Field::Ipv6Label if self.v6 => self.flow = self.flow & !(mask as u32) | (value & mask) as u32,
            Field::NwTtl => self.ttl = self.ttl & !(mask as u8) | (value & mask) as u8,
            Field::IpDscp => self.tos = self.tos & !((mask as u8) << 2) | ((value & mask) as u8) << 2,
            Field::IpEcn => self.tos = self.tos & !(mask as u8) | (value & mask) as u8,
            _ => return false,
        }
        true
    }
}

/// Bits of a field that fills whole bytes.
fn put(bytes: &mut [u8], value: u128, mask: u128) {
    let from = 16 - bytes.len();
    let (value, mask) = (value.to_be_bytes(), mask.to_be_bytes());
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = *byte & !mask[from + i] | value[from + i] & mask[from + i];
    }
}
