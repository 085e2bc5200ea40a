//! Transport headers, ICMP and neighbour discovery, with their checksums.

use super::{Class, Maker, Pseudo, crc32c, ipv6_address, mac, sum};

/// Where a header's checksum lies, and over what it goes.
struct Checksum {
    at: usize,
    /// The protocol in the pseudo header; none for ICMP over IPv4.
    protocol: Option<u8>,
    /// Bytes of the datagram that are covered.
    covered: usize,
}

impl Maker<'_> {
    /// A protocol and a datagram of it.
    pub(super) fn transport(&mut self, pseudo: &Pseudo, v6: bool) -> (u8, Vec<u8>) {
        use Class::{Icmp, Neighbour, OtherProtocol, Sctp, Tcp, Udp, UdpLite};
        let mut kinds = vec![Tcp, Tcp, Tcp, Udp, Udp, Udp, Udp, UdpLite, Sctp, Icmp, Icmp, OtherProtocol];
        if v6 {
            kinds.extend([Neighbour, Neighbour]);
        }
        match self.choose(&kinds, Udp) {
            Tcp => (6, self.tcp(pseudo)),
            UdpLite => (136, self.udp_lite(pseudo)),
            Sctp => (132, self.sctp()),
            Icmp if v6 => (58, self.icmp(&[(128, 0), (129, 0), (1, 4), (135, 1)], Some(pseudo))),
            Icmp => (1, self.icmp(&[(8, 0), (0, 0), (3, 1), (3, 4)], None)),
            Neighbour => (58, self.neighbour(pseudo)),
            OtherProtocol => {
                let len = self.r.below(24) as usize;
                (self.r.pick(&[47, 50, 59, 89, 255]), self.bytes(len))
            }
            _ => (17, self.udp(pseudo)),
        }
    }

    fn ports(&mut self) -> Vec<u8> {
        let (src, dst): (u16, u16) = (self.r.pick(&[80, 443, 40_000]), self.r.pick(&[53, 80, 443]));
        [src.to_be_bytes(), dst.to_be_bytes()].concat()
    }

    fn payload(&mut self) -> Vec<u8> {
        let len = self.r.pick(&[0, 1, 2, 7, 8, 18, 33]);
        self.bytes(len)
    }

    /// RFC 9293 §3.1.
    fn tcp(&mut self, pseudo: &Pseudo) -> Vec<u8> {
        let mut out = self.ports();
        out.extend(self.bytes(8));
        let options = self.r.pick(&[0u8, 0, 0, 1, 3, 10]);
        // A reserved bit, once in a while: tcp_flags has 12 bits.
        let flags: u16 = self.r.pick(&[0x002, 0x012, 0x010, 0x018, 0x004, 0x111, 0x8c2]);
        out.extend((u16::from(5 + options) << 12 | flags).to_be_bytes());
        out.extend([0x20, 0, 0, 0, 0, 0]);
        out.extend(vec![1; 4 * usize::from(options)]);
        if self.may(Class::TcpOffset, 25) {
            out[12] = out[12] & 15 | self.r.pick(&[0, 0x40, 0xf0]);
        }
        out.extend(self.payload());
        let covered = out.len();
        self.finish(&mut out, pseudo, Checksum { at: 16, protocol: Some(6), covered });
        out
    }

    /// RFC 768.
    fn udp(&mut self, pseudo: &Pseudo) -> Vec<u8> {
        let (ports, payload) = (self.ports(), self.payload());
        let mut length = 8 + payload.len() as u16;
        let covered = usize::from(length);
        if self.may(Class::UdpLength, 15) {
            length = self.r.pick(&[0, 7, 8, length - 1, length + 1, 0xffff]);
        }
        let mut out = [&ports[..], &length.to_be_bytes(), &[0, 0], &payload].concat();
        self.finish(&mut out, pseudo, Checksum { at: 6, protocol: Some(17), covered });
        out
    }

    /// RFC 3828 §3.1: the length field says how much the checksum covers, 0 standing for all.
    fn udp_lite(&mut self, pseudo: &Pseudo) -> Vec<u8> {
        let (ports, payload) = (self.ports(), self.payload());
        let whole = 8 + payload.len();
        let mut coverage = self.r.pick(&[0, whole as u16]);
        if self.may(Class::UdpLiteCoverage, 2) {
            coverage = 8 + self.r.below(payload.len() as u32 + 1) as u16;
        }
        let covered = if coverage == 0 { whole } else { usize::from(coverage) };
        if self.may(Class::UdpLiteLength, 12) {
            coverage = self.r.pick(&[1, 7, whole as u16 + 1, 0xffff]);
        }
        let mut out = [&ports[..], &coverage.to_be_bytes(), &[0, 0], &payload].concat();
        self.finish(&mut out, pseudo, Checksum { at: 6, protocol: Some(136), covered });
        out
    }

    /// RFC 9260 §3.1, with one DATA chunk.
    fn sctp(&mut self) -> Vec<u8> {
        let mut out = self.ports();
        out.extend(self.bytes(4));
        out.extend([0; 4]);
        out.extend([0, 3, 0, 20]);
        out.extend(self.bytes(16));
        let mut crc = crc32c(&out);
        if self.may(Class::WrongChecksum, 10) {
            crc ^= 0x10;
        } else if self.may(Class::ZeroChecksum, 10) {
            crc = 0;
        }
        // The CRC's bytes go in the order in which they leave the register.
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// RFC 792; RFC 4443 §2.1 over the pseudo header of IPv6.
    fn icmp(&mut self, kinds: &[(u8, u8)], pseudo: Option<&Pseudo>) -> Vec<u8> {
        let (kind, code) = self.r.pick(kinds);
        let mut out = vec![kind, code, 0, 0];
        // Four bytes follow the checksum in each message of RFC 792, and at least none in RFC 4443.
        out.extend(self.bytes(4));
        out.extend(self.payload());
        self.finish_icmp(&mut out, pseudo);
        out
    }

    /// RFC 4861 §4.3, §4.4 and §4.6.
    fn neighbour(&mut self, pseudo: &Pseudo) -> Vec<u8> {
        let (kind, option) = self.r.pick(&[(135, 1), (136, 2), (135, 2), (136, 0)]);
        // The flags of an advertisement.
        let mut out = vec![kind, 0, 0, 0, self.r.pick(&[0, 0x20, 0x60, 0xa0]), 0, 0, 0];
        out.extend(ipv6_address(self.r));
        let mut types = vec![];
        if option != 0 {
            types.push(option);
        }
        if self.may(Class::NeighbourOptions, 4) {
            types.extend([self.r.pick(&[1, 2, 5, 14]), self.r.pick(&[1, 2])]);
        }
        let long = self.may(Class::NeighbourOptions, 10);
        for kind in types {
            let address = mac(self.r);
            out.extend([kind, 1 + u8::from(long)]);
            out.extend(address);
            out.resize(out.len() + 8 * usize::from(long), 0);
        }
        if out.len() > 24 && self.may(Class::NeighbourLength, 8) {
            out[25] = self.r.pick(&[0, 3, 255]);
        }
        self.finish_icmp(&mut out, Some(pseudo));
        out
    }

    fn finish_icmp(&mut self, out: &mut [u8], pseudo: Option<&Pseudo>) {
        let none = Pseudo { src: vec![], dst: vec![] };
        let covered = out.len();
        let protocol = pseudo.map(|_| 58);
        self.finish(out, pseudo.unwrap_or(&none), Checksum { at: 2, protocol, covered });
    }

    /// Writes the checksum, a right one, a wrong one or none.
    fn finish(&mut self, out: &mut [u8], pseudo: &Pseudo, checksum: Checksum) {
        let Checksum { at, protocol, covered } = checksum;
        let lengths = match protocol {
            Some(protocol) => [&(out.len() as u32).to_be_bytes()[..], &[0, 0, 0, protocol]].concat(),
            None => vec![],
        };
        // By two bytes behind the header that are the checksum itself the sum becomes all ones.
        let edge = if protocol == Some(6) { usize::from(out[12] >> 4) * 4 } else { 8 };
        let edge = edge.max(20 * usize::from(protocol == Some(6)));
        if edge + 2 <= covered && edge.is_multiple_of(2) && self.may(Class::EdgeChecksum, 12) {
            out[edge..edge + 2].fill(0);
            let rest = !sum(&[&pseudo.src, &pseudo.dst, &lengths, &out[..covered]]);
            out[edge..edge + 2].copy_from_slice(&rest.to_be_bytes());
        }
        let mut value = !sum(&[&pseudo.src, &pseudo.dst, &lengths, &out[..covered]]);
        if matches!(protocol, Some(17 | 136)) && value == 0 {
            value = 0xffff;
        }
        let value = self.perhaps_wrong(value);
        out[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}
