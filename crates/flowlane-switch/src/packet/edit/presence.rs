//! Presence of a field in the headers of a packet, determined by the key alone.
//!
//! Rules are translated without the packet: what [`set_field`](super::set_field) will do to it must be known from its
//! key, or key and packet drift apart.

use flowlane::packet::Layer;
use flowlane::packet::fields::{
    FRAG_LATER, Field, ND_SLL_PRESENT, ND_TLL_PRESENT, Prerequisite, VLAN_PRESENT,
};
use flowlane::packet::parse::{ether_type, ip_proto};

/// Returns whether [`set_field`](super::set_field) changes `field` of a packet of this key. `look` gives the named bits of a field
/// of the key, and may note that the answer depends on them. Fields that are in no header every packet has.
pub fn has(field: Field, mut look: impl FnMut(Field, u128) -> u128) -> bool {
    use Field::*;
    let look = &mut look;
    match field.info().prerequisite {
        // One of them that is not there is pushed.
        _ if matches!(field, VlanTci | VlanVid | VlanPcp) => ethernet(look),
        Prerequisite::None => !matches!(field, EthDst | EthSrc) || ethernet(look),
        Prerequisite::Tunnel => true,
        Prerequisite::Nsh => {
            network(&[ether_type::NSH], look)
                // Metadata of type 2 is in no field.
                && (!matches!(field, NshC1 | NshC2 | NshC3 | NshC4) || look(NshMdtype, u128::MAX) == 1)
        }
        Prerequisite::Vlan => look(VlanTci, VLAN_PRESENT.into()) != 0,
        Prerequisite::Mpls => network(&[ether_type::MPLS, ether_type::MPLS_MULTICAST], look),
        Prerequisite::Arp => network(&[ether_type::ARP, ether_type::RARP], look),
        Prerequisite::Ip => network(&[ether_type::IPV4, ether_type::IPV6], look),
        Prerequisite::Ipv4 => network(&[ether_type::IPV4], look),
        Prerequisite::Ipv6 => network(&[ether_type::IPV6], look),
        Prerequisite::Ports => {
            transport(&[ip_proto::TCP, ip_proto::UDP], look)
                // SCTP's CRC cannot be had from a fragment.
                || transport(&[ip_proto::SCTP], look) && look(IpFrag, u128::MAX) == 0
        }
        Prerequisite::Tcp => transport(&[ip_proto::TCP], look),
        Prerequisite::Icmp => icmp(look),
        Prerequisite::NeighbourDiscovery => {
            is_neighbour_discovery(&mut *look)
                && found(Layer::Message, look)
                && match field {
                    // The addresses are in options.
                    NdSll => look(NdOptions, ND_SLL_PRESENT.into()) != 0,
                    NdTll => look(NdOptions, ND_TLL_PRESENT.into()) != 0,
                    // It is 0 in messages without such an option, and in no others.
                    NdOptionsType => look(NdOptionsType, u128::MAX) != 0,
                    _ => true,
                }
        }
    }
}

/// Returns whether a packet of this key is neighbour discovery (RFC 4861 §4.3, §4.4), be it complete or not. In fragments it is
/// ignored (RFC 6980).
pub fn is_neighbour_discovery(mut look: impl FnMut(Field, u128) -> u128) -> bool {
    let look = &mut look;
    is_type(&[ether_type::IPV6], look)
        && icmp(look)
        && look(Field::IpFrag, u128::MAX) == 0
        && matches!(look(Field::IcmpType, u128::MAX), 135 | 136)
        && look(Field::IcmpCode, u128::MAX) == 0
}

/// Returns whether the parser found the headers of this layer.
fn found(layer: Layer, look: &mut impl FnMut(Field, u128) -> u128) -> bool {
    match look(Field::Malformed, u128::MAX) {
        0 => true,
        first_missing => first_missing > layer as u128,
    }
}

fn ethernet(look: &mut impl FnMut(Field, u128) -> u128) -> bool {
    found(Layer::Ethernet, look) && look(Field::PacketType, u128::MAX) == 0
}

fn is_type(types: &[u16], look: &mut impl FnMut(Field, u128) -> u128) -> bool {
    let eth_type = look(Field::EthType, u128::MAX);
    types.iter().any(|&wanted| eth_type == wanted.into())
}

fn network(types: &[u16], look: &mut impl FnMut(Field, u128) -> u128) -> bool {
    is_type(types, look) && found(Layer::Network, look)
}

fn transport(protocols: &[u8], look: &mut impl FnMut(Field, u128) -> u128) -> bool {
    if !is_type(&[ether_type::IPV4, ether_type::IPV6], look) {
        return false;
    }
    let protocol = look(Field::NwProto, u128::MAX);
    protocols.iter().any(|&wanted| protocol == wanted.into())
        && look(Field::IpFrag, FRAG_LATER.into()) == 0
        && found(Layer::Transport, look)
}

/// ICMP over IPv4, or ICMPv6 over IPv6.
fn icmp(look: &mut impl FnMut(Field, u128) -> u128) -> bool {
    is_type(&[ether_type::IPV4], look) && transport(&[ip_proto::ICMP], look)
        || is_type(&[ether_type::IPV6], look) && transport(&[ip_proto::ICMPV6], look)
}
