//! The fields that a called table sees in place of the packet's own: `resubmit(PORT,TABLE,ct)`.
//!
//! As in Open vSwitch, `ct` swaps protocol, addresses and ports with those of the original direction of the packet's connection, for
//! that one lookup. A packet without such a tuple, or that is not IP, goes past the table.

use flowlane::packet::Field;
use flowlane::packet::key::{FlowKey, FlowMask};
use flowlane::packet::parse::{ether_type, ip_proto};
use flowlane::rule::action::PortNo;

/// The fields that a table sees in place of the packet's own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Shown {
    /// The input port.
    pub in_port: Option<PortNo>,
    /// The tuple of the connection's original direction.
    pub original: bool,
}

/// The fields of a key before others were shown.
pub(crate) enum Own {
    Nothing,
    InPort(u128),
    All(Box<FlowKey>),
}

impl Own {
    /// Gives a key its own fields back.
    pub(crate) fn restore(self, key: &mut FlowKey) {
        match self {
            Self::Nothing => {}
            Self::InPort(port) => key.set(Field::InPort, port),
            Self::All(own) => *key = *own,
        }
    }
}

/// The addresses of packets, with those of their connections: of IPv4, and of IPv6.
const ADDRESSES: [[(Field, Field); 2]; 2] = [
    [(Field::Ipv4Src, Field::CtIpv4Src), (Field::Ipv4Dst, Field::CtIpv4Dst)],
    [(Field::Ipv6Src, Field::CtIpv6Src), (Field::Ipv6Dst, Field::CtIpv6Dst)],
];

const OWN_PORTS: [Field; 4] = [Field::TpSrc, Field::TpDst, Field::IcmpType, Field::IcmpCode];

const CT_PORTS: [Field; 2] = [Field::CtTpSrc, Field::CtTpDst];

/// The fields in the place of ports.
fn ports(is_ipv6: bool, proto: u128) -> [Field; 2] {
    let icmp = if is_ipv6 { ip_proto::ICMPV6 } else { ip_proto::ICMP };
    match proto == u128::from(icmp) {
        true => [Field::IcmpType, Field::IcmpCode],
        false => [Field::TpSrc, Field::TpDst],
    }
}

fn is_ipv6(key: &FlowKey) -> bool {
    key.get(Field::EthType) == u128::from(ether_type::IPV6)
}

impl Shown {
    /// Returns whether the table sees the packet's own fields.
    #[inline]
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// Returns whether a packet reaches the table. `get` reads its fields.
    pub(crate) fn comes(self, mut get: impl FnMut(Field) -> u128) -> bool {
        let is_ip = |eth_type| [ether_type::IPV4, ether_type::IPV6].map(u128::from).contains(&eth_type);
        !self.original || get(Field::CtNwProto) != 0 && is_ip(get(Field::EthType))
    }

    /// Writes the fields into a key. Returns those that it had.
    pub(crate) fn show(self, key: &mut FlowKey) -> Own {
        let own = match self.original {
            true => Own::All(Box::new(key.clone())),
            false if self.in_port.is_some() => Own::InPort(key.get(Field::InPort)),
            false => Own::Nothing,
        };
        if let Some(port) = self.in_port {
            key.set(Field::InPort, port.0.into());
        }
        if self.original {
            show_original(key);
        }
        own
    }

    /// Turns the bits that a lookup of the shown fields depends on into those of a key's own fields.
    pub(crate) fn own_bits(self, own: &FlowKey, looked_at: &mut FlowMask) {
        if self.in_port.is_some() {
            // The rule says which port the table sees.
            looked_at.set(Field::InPort, 0);
        }
        if self.original {
            original_bits(own, looked_at);
        }
    }
}

/// Swaps the packet's tuple with that of its connection.
fn show_original(key: &mut FlowKey) {
    let is_ipv6 = is_ipv6(key);
    let [own, original] = [Field::NwProto, Field::CtNwProto].map(|field| key.get(field));
    let [own_ports, original_ports] =
        [ports(is_ipv6, own), CT_PORTS].map(|fields| fields.map(|field| key.get(field)));
    for (field, of_connection) in ADDRESSES[usize::from(is_ipv6)] {
        let (address, other) = (key.get(field), key.get(of_connection));
        key.set(field, other);
        key.set(of_connection, address);
    }
    key.set(Field::NwProto, original);
    key.set(Field::CtNwProto, own);
    // An error of ICMP has another protocol than its connection.
    OWN_PORTS.into_iter().for_each(|field| key.set(field, 0));
    let shown = ports(is_ipv6, original).into_iter().zip(original_ports);
    shown.chain(CT_PORTS.into_iter().zip(own_ports)).for_each(|(field, port)| key.set(field, port));
}

/// Swaps bits of a mask as [`show_original`] swaps fields. The fields that decide the swap count whole.
fn original_bits(own: &FlowKey, looked_at: &mut FlowMask) {
    let is_ipv6 = is_ipv6(own);
    let (ports_own, ports_original) =
        (ports(is_ipv6, own.get(Field::NwProto)), ports(is_ipv6, own.get(Field::CtNwProto)));
    let looked_at_ports = [ports_original, CT_PORTS].map(|fields| fields.map(|field| looked_at.get(field)));
    for (field, of_connection) in ADDRESSES[usize::from(is_ipv6)] {
        let (bits, other) = (looked_at.get(field), looked_at.get(of_connection));
        looked_at.set(field, other);
        looked_at.set(of_connection, bits);
    }
    OWN_PORTS.into_iter().for_each(|field| looked_at.set(field, 0));
    let [of_original, of_own] = looked_at_ports;
    let bits = CT_PORTS.into_iter().zip(of_original).chain(ports_own.into_iter().zip(of_own));
    bits.for_each(|(field, bits)| looked_at.set(field, bits & field.info().ones()));
    [Field::EthType, Field::NwProto, Field::CtNwProto]
        .into_iter()
        .for_each(|field| looked_at.add_field(field));
}
