//! The interfaces of a router: its addresses, and the links that they are on.

use std::net::IpAddr;

use flowlane::rule::Action;

use super::wire::{Mac, link_local_of};

/// An interface of the router: addresses, and their link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The number of its packets in `in_port`.
    pub number: u32,
    pub name: String,
    pub link: Link,
    /// The actions of a frame that leaves here.
    pub out: Vec<Action>,
    pub mac: Mac,
    /// The longest IP packet that leaves here.
    pub mtu: u16,
    /// Its addresses, each with the length of the network's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// The link of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// A port, by its place.
    Port(usize),
    /// A VLAN of the ports that are no interfaces themselves; 0 is that of frames without a tag.
    Vlan(u16),
    /// A tunnel.
    Tunnel(TunnelEnds),
}

/// A tunnel, as far as the length of its packets is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelEnds {
    /// Its number.
    pub number: u32,
    /// The outer source and destination of packets that leave.
    pub local: IpAddr,
    pub remote: IpAddr,
    /// Bytes between the beginnings of the outer and the inner IP packet.
    pub headers: u16,
}

/// Interfaces by the `in_port` of their packets, in order.
#[derive(Clone, Debug, Default)]
pub struct InPorts(Vec<(u32, u16)>);

impl InPorts {
    /// Those of these interfaces.
    pub fn of<'a>(interfaces: impl IntoIterator<Item = &'a Interface>) -> Self {
        let numbered = interfaces.into_iter().zip(0..).map(|(interface, n)| (interface.number, n));
        let mut in_ports: Vec<(u32, u16)> = numbered.collect();
        in_ports.sort_unstable();
        Self(in_ports)
    }

    /// Returns the position of the interface that packets come in through.
    #[inline]
    pub fn find(&self, in_port: u32) -> Option<u16> {
        let at = self.0.binary_search_by_key(&in_port, |(own, _)| *own).ok()?;
        Some(self.0[at].1)
    }
}

/// The `in_port` of packets that the router makes: no port's, and no interface's.
pub const OWN_PACKETS: u32 = 0;

impl Interface {
    /// Returns the place of its port, if it is one.
    pub fn place(&self) -> Option<usize> {
        match self.link {
            Link::Port(place) => Some(place),
            Link::Vlan(_) | Link::Tunnel(_) => None,
        }
    }

    /// Returns whether it has an address of IPv6.
    pub fn has_ipv6(&self) -> bool {
        self.addresses.iter().any(|(own, _)| own.is_ipv6())
    }

    /// Returns whether an address is one of its own.
    pub fn has(&self, address: IpAddr) -> bool {
        self.own().any(|own| own == address)
    }

    /// Its addresses, and the link-local one if it speaks IPv6.
    pub fn own(&self) -> impl Iterator<Item = IpAddr> {
        let link_local = self.has_ipv6().then(|| IpAddr::V6(link_local_of(self.mac)));
        self.addresses.iter().map(|(address, _)| *address).chain(link_local)
    }

    /// Returns whether an address is on one of its networks.
    pub fn is_near(&self, address: IpAddr) -> bool {
        if is_link_local(address) {
            return self.has_ipv6();
        }
        self.addresses.iter().any(|&(own, len)| contains(own, len, address))
    }

    /// The address that it speaks from to another: on the same network if there is one.
    pub(super) fn speaks_from(&self, to: IpAddr) -> Option<IpAddr> {
        if is_link_local(to) {
            return Some(IpAddr::V6(link_local_of(self.mac)));
        }
        let same = self.addresses.iter().find(|&&(own, len)| contains(own, len, to));
        let first = self.addresses.iter().find(|(own, _)| own.is_ipv4() == to.is_ipv4());
        same.or(first).map(|(own, _)| *own)
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Returns whether an address is in the network of another.
fn contains(own: IpAddr, len: u8, address: IpAddr) -> bool {
    match (own, address) {
        (IpAddr::V4(own), IpAddr::V4(address)) => {
            (own.to_bits() ^ address.to_bits()).checked_shr(32 - u32::from(len)).unwrap_or(0) == 0
        }
        (IpAddr::V6(own), IpAddr::V6(address)) => {
            (own.to_bits() ^ address.to_bits()).checked_shr(128 - u32::from(len)).unwrap_or(0) == 0
        }
        _ => false,
    }
}
