//! Tuples: the ends of a connection as one direction of it has them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane::packet::parse::ip_proto;

/// The 64-bit words of a tuple in a table.
pub(super) const WORDS: usize = 5;

/// An end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct End {
    /// The address; one of IPv4 is in the low 32 bits.
    pub address: u128,
    /// The port; of ICMP, the identifier at both ends.
    pub port: u16,
    /// The type of the ICMP messages that this end sends.
    pub icmp_type: u8,
}

/// The zone, protocol and ends of packets in one direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tuple {
    pub source: End,
    pub destination: End,
    /// Connections of different zones are different ones.
    pub zone: u16,
    /// The IP protocol.
    pub proto: u8,
    /// The addresses are of IPv6.
    pub is_ipv6: bool,
}

impl Tuple {
    /// Returns the tuple of packets that go back.
    pub fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source, ..self }
    }

    /// Returns whether the zone, the protocol and the version of IP are those of another tuple.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        (self.zone, self.proto, self.is_ipv6) == (other.zone, other.proto, other.is_ipv6)
    }

    /// Returns whether the protocol is ICMP or ICMPv6.
    pub fn is_icmp(&self) -> bool {
        matches!(self.proto, ip_proto::ICMP | ip_proto::ICMPV6)
    }

    /// Returns an address as an IP address.
    pub fn ip(&self, end: End) -> IpAddr {
        match self.is_ipv6 {
            true => IpAddr::V6(Ipv6Addr::from(end.address)),
            false => IpAddr::V4(Ipv4Addr::from(end.address as u32)),
        }
    }

    /// Packs the tuple. The ends of ICMP have one identifier, whose second place is for the types.
    pub(super) fn words(&self) -> [u64; WORDS] {
        let (source, destination) = (self.source, self.destination);
        let second = match self.is_icmp() {
            true => u16::from_be_bytes([source.icmp_type, destination.icmp_type]),
            false => destination.port,
        };
        let ports = u64::from(source.port) | u64::from(second) << 16;
        let rest = u64::from(self.zone) << 32 | u64::from(self.proto) << 48 | u64::from(self.is_ipv6) << 56;
        let halves = |address: u128| [(address >> 64) as u64, address as u64];
        let ([a, b], [c, d]) = (halves(source.address), halves(destination.address));
        [a, b, c, d, ports | rest]
    }

    /// Unpacks a tuple.
    pub(super) fn of_words([a, b, c, d, last]: [u64; WORDS]) -> Self {
        let address = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let (first, second) = (last as u16, (last >> 16) as u16);
        let proto = (last >> 48) as u8;
        let mut tuple = Self {
            source: End { address: address(a, b), port: first, icmp_type: 0 },
            destination: End { address: address(c, d), port: second, icmp_type: 0 },
            zone: (last >> 32) as u16,
            proto,
            is_ipv6: last >> 56 != 0,
        };
        if tuple.is_icmp() {
            tuple.destination.port = first;
            [tuple.source.icmp_type, tuple.destination.icmp_type] = second.to_be_bytes();
        }
        tuple
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_a_tuple() {
        let end = |address, port, icmp_type| End { address, port, icmp_type };
        let of = |source, destination, proto, is_ipv6| Tuple { source, destination, zone: 7, proto, is_ipv6 };
        let tuples = [
            of(end(0xc000_0201, 1234, 0), end(0xc633_6401, 80, 0), ip_proto::TCP, false),
            of(end(u128::MAX, 9, 0), end(1 << 127, 0xffff, 0), ip_proto::UDP, true),
            of(end(1, 77, 8), end(2, 77, 0), ip_proto::ICMP, false),
            of(end(1, 77, 128), end(2, 77, 129), ip_proto::ICMPV6, true),
            of(end(1, 0, 0), end(2, 0, 0), 47, false),
        ];
        for tuple in tuples.into_iter().flat_map(|tuple| [tuple, tuple.reversed()]) {
            assert_eq!(Tuple::of_words(tuple.words()), tuple);
            assert_ne!(tuple.words(), tuple.reversed().words());
        }
    }
}
