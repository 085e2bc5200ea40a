//! Whether the routes lead back to where packets come from (RFC 3704).

use flowlane::packet::Field;
use flowlane::packet::batch::LaneMask;
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::ether_type;
use flowlane::route::Fib;

use super::{HopSpec, NextHop, ReversePath, RouteTable, Verdicts};
use crate::ruleset::Routing;
use crate::state::router::OWN_PACKETS;

/// Returns the router's ports that each number of a forwarding table leads through: those of next hops, then those of groups.
pub(super) fn links(hops: &[NextHop]) -> Vec<Vec<u16>> {
    let of = |hop: &NextHop| match hop.spec {
        HopSpec::Router(Routing::Forward { interface, .. }, _) => vec![interface],
        _ => Vec::new(),
    };
    let of_group = |hop: &NextHop| match &hop.spec {
        HopSpec::Group(members) => Some(members.iter().flat_map(|&(at, _)| of(&hops[at])).collect()),
        _ => None,
    };
    hops.iter().map(of).chain(hops.iter().filter_map(of_group)).collect()
}

impl RouteTable {
    /// Refuses lanes to whose sources the routes do not lead back: through the interface that they have come in through.
    pub(super) fn check_sources(&self, keys: &[FlowKey], lanes: LaneMask, verdicts: &mut Verdicts) {
        for lane in lanes.lanes() {
            let in_port = keys[lane].word(word::IN_PORT);
            // The router itself sends it.
            if in_port == OWN_PACKETS {
                continue;
            }
            let came_in = self.routes.config.interfaces.find(in_port);
            let number = match keys[lane].word(word::VLAN_ETH_TYPE) as u16 {
                ether_type::IPV4 => match keys[lane].word(word::IPV4_SRC) {
                    // A host that has no address yet.
                    0 => continue,
                    source => self.routes.v4.fib.lookup(source),
                },
                ether_type::IPV6 => match keys[lane].get(Field::Ipv6Src) {
                    0 => continue,
                    // A host of the network itself.
                    source if source >> 118 == 0xfe80 >> 6 => continue,
                    source => self.routes.v6.fib.lookup(source),
                },
                _ => continue,
            };
            let links = (number as usize).checked_sub(1).and_then(|at| self.routes.links.get(at));
            let leads_back = links.is_some_and(|links| match (self.routes.config.reverse_path, came_in) {
                (ReversePath::Strict, Some(came_in)) => links.contains(&came_in),
                _ => !links.is_empty(),
            });
            if !leads_back {
                verdicts[lane] = self.refused();
            }
        }
    }
}
