//! Next hops that are a router's neighbours, and the routes that its ports' addresses make.

use std::net::IpAddr;

use flowlane::route::Prefix;
use flowlane::route::read::{AnyPrefix, Gateway, NextHop};
use flowlane::rule::Action;

use super::RoutesSetup;
use crate::mgmt::config::Config;
use crate::mgmt::setup::{interfaces, router};
use crate::ruleset::Routing;
use crate::stage::route::HopSpec;
use crate::state::router::{InPorts, Interface, Reason};

/// A router's interface as routes name it, and the actions that packets go on with which leave there.
#[derive(Clone)]
struct NamedInterface {
    interface: Interface,
    /// Its name, and that which the system has for it.
    names: Vec<String>,
    after: Vec<Action>,
}

/// The router's interfaces.
#[derive(Clone, Default)]
pub(in crate::mgmt::setup) struct Links(Vec<NamedInterface>);

impl Links {
    /// Those of a configuration.
    pub(in crate::mgmt::setup) fn of(config: &Config, all: &[Interface]) -> Self {
        let link = |(position, interface): (usize, &Interface)| {
            let of_kernel = interface.place().and_then(|place| interfaces::kernel_name(&config.port[place]));
            NamedInterface {
                names: std::iter::once(interface.name.clone()).chain(of_kernel).collect(),
                after: router::after_routing(config, interface, position),
                interface: interface.clone(),
            }
        };
        Self(all.iter().enumerate().map(link).collect())
    }

    pub(super) fn has_router(&self) -> bool {
        !self.0.is_empty()
    }

    /// The router's interfaces by the `in_port` of their packets.
    pub(super) fn in_ports(&self) -> InPorts {
        InPorts::of(self.0.iter().map(|link| &link.interface))
    }

    /// The port behind which a gateway is.
    fn position(&self, gateway: &Gateway) -> Result<usize, String> {
        if let Some(device) = gateway.device.as_deref() {
            let find =
                |name: fn(&NamedInterface, &str) -> bool| self.0.iter().position(|link| name(link, device));
            let known = find(|link, device| link.names[0] == device);
            let found = known.or_else(|| find(|link, device| link.names.iter().any(|name| name == device)));
            return found.ok_or_else(|| format!("the router has no interface `{device}` with addresses"));
        }
        let near = |address| self.0.iter().position(|link| link.interface.is_near(address));
        match gateway.address {
            Some(IpAddr::V6(address)) if address.is_unicast_link_local() => {
                Err(format!("{address} is on every network; say behind which port, as in `dev lan`"))
            }
            Some(address) => near(address)
                .ok_or_else(|| format!("{address} is on no network of a port, so it cannot be a next hop")),
            None => Err("a next hop needs an address or a port".to_owned()),
        }
    }
}

/// Groups, the hosts of a link, and addresses that never leave a host (RFC 1812, section 5.3.7; RFC 4291): prefixes that no packet is
/// forwarded to, and whether their packets are for the router.
const SPECIAL_V4: [(u32, u8, bool); 5] = [
    (0xe000_0000, 4, true),
    (u32::MAX, 32, true),
    (0x7f00_0000, 8, false),
    (0, 8, false),
    (0xf000_0000, 4, false),
];
const SPECIAL_V6: [(u128, u8, bool); 4] =
    [(0xff << 120, 8, true), (0xfe80 << 112, 10, true), (1, 128, false), (0, 128, false)];

/// Returns whether no packet for a prefix is forwarded, whatever a route says.
pub(super) fn is_special(prefix: AnyPrefix) -> bool {
    match prefix {
        AnyPrefix::V4(prefix) => {
            SPECIAL_V4.iter().any(|&(bits, len, _)| Prefix::truncated(bits, len).covers(prefix))
        }
        AnyPrefix::V6(prefix) => {
            SPECIAL_V6.iter().any(|&(bits, len, _)| Prefix::truncated(bits, len).covers(prefix))
        }
    }
}

impl RoutesSetup {
    pub(super) fn add_hop(&mut self, name: String, spec: HopSpec) -> usize {
        self.hops.push((name, spec));
        self.hops.len() - 1
    }

    /// The next hop of packets that a route refuses.
    pub(super) fn refusal(&self, hop: &NextHop) -> HopSpec {
        let reason = match hop {
            NextHop::Unreachable => Reason::NoRoute,
            NextHop::Prohibit => Reason::Prohibited,
            _ => return HopSpec::Actions(Vec::new()),
        };
        match self.links.has_router() {
            true => HopSpec::Router(Routing::Refuse(reason), Vec::new()),
            false => HopSpec::Actions(Vec::new()),
        }
    }

    /// The position of the next hop behind a gateway, if there is a router.
    pub(super) fn neighbour(&mut self, gateway: &Gateway) -> Option<Result<usize, String>> {
        if !self.links.has_router() {
            return None;
        }
        if gateway.encapsulation.is_some() {
            return Some(Err(format!("the router has no way to put packets into `{gateway}`")));
        }
        Some(self.links.position(gateway).map(|position| self.hop_of(position, gateway.address)))
    }

    /// The position of the next hop of packets for a neighbour at a port; without an address, it is their destination.
    fn hop_of(&mut self, position: usize, via: Option<IpAddr>) -> usize {
        let routing = Routing::Forward { interface: position as u16, via };
        let spec = HopSpec::Router(routing, self.links.0[position].after.clone());
        if let Some(known) = self.hops.iter().position(|(_, other)| *other == spec) {
            return known;
        }
        let device = &self.links.0[position].names[0];
        let name = via.map_or_else(|| format!("dev {device}"), |address| format!("{address} dev {device}"));
        self.add_hop(name, spec)
    }

    /// Adds the routes of the ports' own networks, and of addresses that are of no single host.
    pub(super) fn add_own(&mut self) {
        let own = self.add_hop("local".to_owned(), HopSpec::Router(Routing::Receive, Vec::new()));
        let nowhere = self.add_hop("blackhole".to_owned(), HopSpec::Actions(Vec::new()));
        let interfaces: Vec<Interface> = self.links.0.iter().map(|link| link.interface.clone()).collect();
        for (position, interface) in interfaces.iter().enumerate() {
            for &(address, len) in &interface.addresses {
                let near = self.hop_of(position, None);
                self.add_route(address, len, near);
                self.add_route(address, u8::MAX, own);
                if let (IpAddr::V4(address), 0..=30) = (address, len) {
                    let last = address.to_bits() | u32::MAX >> len;
                    self.v4.push((Prefix::truncated(last, 32), own));
                }
            }
        }
        for (bits, len, is_own) in SPECIAL_V4 {
            self.v4.push((Prefix::truncated(bits, len), if is_own { own } else { nowhere }));
        }
        for (bits, len, is_own) in SPECIAL_V6 {
            self.v6.push((Prefix::truncated(bits, len), if is_own { own } else { nowhere }));
        }
    }

    /// Adds a route to the network of an address; `len` may be larger than an address is.
    fn add_route(&mut self, address: IpAddr, len: u8, hop: usize) {
        match address {
            IpAddr::V4(address) => self.v4.push((Prefix::truncated(address.to_bits(), len.min(32)), hop)),
            IpAddr::V6(address) => self.v6.push((Prefix::truncated(address.to_bits(), len.min(128)), hop)),
        }
    }
}
