//! The routes of the system, followed by netlink (rtnetlink(7)): what a routing daemon or `ip route` changes, the router takes over.
//!
//! A thread asks for all routes, then hears of each change. Changes that come together are taken over together; if the system could
//! not deliver some, all routes are asked for again. So they are when a link goes up or down, or an address is removed: the system
//! then removes routes of IPv4, and next hops of groups, without a notice of each.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flowlane::route::read::{AnyPrefix, Gateway, NextHop};
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::link::LinkFlags;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHop, RouteNextHopFlags, RouteType,
    RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::netlink::{Netlink, messages};
use super::rpc::{ControlServer, RpcError};

/// Groups of notices: RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE and RTNLGRP_IPV6_ROUTE.
const GROUPS: [u32; 4] = [1, 5, 7, 11];

/// RTM_NEWLINK, RTM_DELLINK and RTM_DELADDR.
const LINKS_AND_ADDRESSES: [u16; 3] = [16, 17, 21];

/// How long the thread waits for a change before it looks whether the switch has ended.
const WAIT: Duration = Duration::from_millis(100);

/// Changes that come within this time of each other are taken over together, ...
const TOGETHER: Duration = Duration::from_millis(5);

/// ... but not more than this number of messages.
const TOGETHER_MAX: usize = 4096;

/// Follows a table of the system; its thread ends when this is dropped.
pub struct KernelRoutes {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KernelRoutes {
    /// Follows a table of the system into a table of routes.
    ///
    /// # Errors
    /// Where the system gives no socket or thread.
    pub fn follow(kernel_table: u32, number: u8, server: Arc<ControlServer>) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let mut follower = Follower {
            netlink: Netlink::of(&GROUPS)?,
            table: kernel_table,
            routes: BTreeMap::new(),
            published: None,
            devices: HashMap::new(),
            links: HashMap::new(),
        };
        let over = ended.clone();
        let thread = std::thread::Builder::new().name("routes".to_owned());
        let thread = thread.spawn(move || follower.run(number, &server, &over))?;
        Ok(Self { ended, thread: Some(thread) })
    }
}

impl Drop for KernelRoutes {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// A route's prefix and metric: of several routes for a prefix, the one with the least metric is in force.
type Name = (AnyPrefix, u32);

struct Follower {
    netlink: Netlink,
    table: u32,
    routes: BTreeMap<Name, NextHop>,
    /// The routes in force that the switch has been given.
    published: Option<BTreeMap<AnyPrefix, NextHop>>,
    /// Names of interfaces, by index.
    devices: HashMap<u32, Box<str>>,
    /// The links of which notices have come: whether they are up and have a carrier.
    links: HashMap<u32, (bool, bool)>,
}

/// A summary of the messages that have come together.
#[derive(Clone, Copy, Default)]
struct Heard {
    changes: usize,
    /// All routes that were asked for have come.
    is_done: bool,
    /// Routes may have changed without a notice.
    is_stale: bool,
}

impl Follower {
    fn run(&mut self, number: u8, server: &ControlServer, ended: &AtomicBool) {
        let mut is_whole = false;
        while !ended.load(Ordering::Relaxed) {
            let heard = match is_whole {
                true => self.hear(WAIT),
                false => self.dump(ended),
            };
            let Ok(heard) = heard else {
                // Notices are lost (ENOBUFS), or the system is short of something: all again, after a while.
                is_whole = false;
                std::thread::sleep(WAIT);
                // The rest of the former answer must not be taken for the next one.
                if let Ok(netlink) = Netlink::of(&GROUPS) {
                    self.netlink = netlink;
                }
                continue;
            };
            is_whole = !heard.is_stale;
            if heard.changes > 0 {
                self.publish(number, server, ended);
            }
        }
    }

    /// Gives the routes to the switch, as soon as it runs.
    fn publish(&mut self, number: u8, server: &ControlServer, ended: &AtomicBool) {
        let mut in_force: BTreeMap<AnyPrefix, NextHop> = BTreeMap::new();
        for ((prefix, _), hop) in &self.routes {
            in_force.entry(*prefix).or_insert_with(|| hop.clone());
        }
        if self.published.as_ref() == Some(&in_force) {
            return;
        }
        while let Err(error) = server.set_kernel_routes(number, in_force.clone()) {
            // They do not fit: the former ones stay, until the system has fewer.
            if error.code != RpcError::STOPPED {
                return;
            }
            // The switch does not run yet.
            if ended.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(WAIT / 5);
        }
        self.published = Some(in_force);
    }

    /// Asks for all routes, one family after the other, and takes them.
    fn dump(&mut self, ended: &AtomicBool) -> io::Result<Heard> {
        let mut all = Heard { changes: 1, is_done: true, is_stale: false };
        self.routes.clear();
        self.devices = interfaces();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            self.netlink.ask_for_all(RouteNetlinkMessage::GetRoute(message))?;
            while !ended.load(Ordering::Relaxed) {
                let heard = self.hear(WAIT)?;
                all.is_stale |= heard.is_stale;
                if heard.is_done {
                    break;
                }
            }
        }
        Ok(all)
    }

    /// Takes the changes that come together; waits for the first.
    fn hear(&mut self, wait: Duration) -> io::Result<Heard> {
        let mut heard = Heard::default();
        let mut wait = wait;
        while heard.changes < TOGETHER_MAX
            && let Some(bytes) = self.netlink.receive(wait)?
        {
            self.take(&bytes, &mut heard)?;
            if heard.is_done {
                break;
            }
            wait = TOGETHER;
        }
        Ok(heard)
    }

    /// Takes the messages of a datagram.
    fn take(&mut self, bytes: &[u8], heard: &mut Heard) -> io::Result<()> {
        for message in messages(bytes) {
            let message = match message {
                Ok(message) => message,
                // One that is not understood says nothing of other routes, but may of links.
                Err(kind) => {
                    heard.is_stale |= LINKS_AND_ADDRESSES.contains(&kind);
                    continue;
                }
            };
            match message {
                NetlinkPayload::Done(_) => heard.is_done = true,
                NetlinkPayload::Error(error) if error.code.is_some() => {
                    return Err(io::Error::other(format!("{error:?}")));
                }
                NetlinkPayload::Overrun(_) => return Err(io::Error::other("notices are lost")),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => {
                    heard.changes += usize::from(self.change(&route, true));
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelRoute(route)) => {
                    heard.changes += usize::from(self.change(&route, false));
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                    let has = |flag| link.header.flags.contains(flag);
                    let state = (has(LinkFlags::Up), has(LinkFlags::LowerUp));
                    heard.is_stale |= self.links.insert(link.header.index, state) != Some(state);
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => {
                    self.links.remove(&link.header.index);
                    heard.is_stale = true;
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelAddress(_)) => heard.is_stale = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds or removes a route. Returns whether it is one of the table.
    fn change(&mut self, route: &RouteMessage, is_new: bool) -> bool {
        let (mut table, mut metric, mut destination) = (u32::from(route.header.table), 0, None);
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Table(number) => table = *number,
                RouteAttribute::Priority(priority) => metric = *priority,
                RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                    destination = Some(IpAddr::V4(*address))
                }
                RouteAttribute::Destination(RouteAddress::Inet6(address)) => {
                    destination = Some(IpAddr::V6(*address))
                }
                _ => {}
            }
        }
        let all = match route.header.address_family {
            AddressFamily::Inet => IpAddr::from([0; 4]),
            AddressFamily::Inet6 => IpAddr::from([0; 16]),
            _ => return false,
        };
        // What the system has learned of a path (its MTU, a redirect) is listed as a route, and is none.
        let is_cached = route.header.flags.contains(RouteFlags::Cloned);
        // Routes that depend on more than the destination are not followed.
        if is_cached || table != self.table || route.header.tos != 0 || route.header.source_prefix_length != 0
        {
            return false;
        }
        let prefix = AnyPrefix::truncated(destination.unwrap_or(all), route.header.destination_prefix_length);
        let hop = if is_new { self.next_hop(route) } else { self.others_of_group(&(prefix, metric), route) };
        match hop {
            Some(hop) => drop(self.routes.insert((prefix, metric), hop)),
            None => drop(self.routes.remove(&(prefix, metric))),
        }
        true
    }

    /// The next hops that remain of a group when one of them is removed, which is how a route of IPv6 loses them one by one.
    fn others_of_group(&mut self, name: &Name, removed: &RouteMessage) -> Option<NextHop> {
        let Some(NextHop::Group(members)) = self.routes.get(name) else { return None };
        let mut members = members.clone();
        if removed.header.address_family != AddressFamily::Inet6 {
            return None;
        }
        let Some(NextHop::Via(gone)) = self.next_hop(removed) else { return None };
        members.retain(|(gateway, _)| *gateway != gone);
        match &members[..] {
            [] => None,
            [(last, _)] => Some(NextHop::Via(last.clone())),
            _ => Some(NextHop::Group(members)),
        }
    }

    /// The next hop of a route; none where it leads nowhere that a router knows.
    fn next_hop(&mut self, route: &RouteMessage) -> Option<NextHop> {
        match route.header.kind {
            RouteType::Unicast => {}
            RouteType::Local | RouteType::Broadcast | RouteType::Anycast => return Some(NextHop::Local),
            RouteType::BlackHole => return Some(NextHop::Blackhole),
            RouteType::Unreachable => return Some(NextHop::Unreachable),
            RouteType::Prohibit => return Some(NextHop::Prohibit),
            _ => return None,
        }
        let several = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::MultiPath(hops) => Some(hops),
            _ => None,
        });
        if let Some(several) = several {
            // Those whose link is down are still listed.
            let alive = several.iter().filter(|hop| !hop.flags.contains(RouteNextHopFlags::Dead));
            let member = |hop: &RouteNextHop| {
                let gateway = self.gateway(&hop.attributes, Some(hop.interface_index))?;
                Some((gateway, u32::from(hop.hops) + 1))
            };
            let members: Vec<_> = alive.map(member).collect::<Option<_>>()?;
            return (!members.is_empty()).then_some(NextHop::Group(members));
        }
        self.gateway(&route.attributes, None).map(NextHop::Via)
    }

    fn gateway(&mut self, attributes: &[RouteAttribute], index: Option<u32>) -> Option<Gateway> {
        let mut gateway = Gateway::default();
        let mut index = index;
        for attribute in attributes {
            match attribute {
                RouteAttribute::Gateway(RouteAddress::Inet(address))
                | RouteAttribute::Via(RouteVia::Inet(address)) => {
                    gateway.address = Some((*address).into());
                }
                RouteAttribute::Gateway(RouteAddress::Inet6(address))
                | RouteAttribute::Via(RouteVia::Inet6(address)) => {
                    gateway.address = Some((*address).into());
                }
                RouteAttribute::Oif(number) => index = Some(*number),
                // The router puts no header around packets.
                RouteAttribute::EncapType(_) => return None,
                _ => {}
            }
        }
        let index = index?;
        if !self.devices.contains_key(&index) {
            self.devices = interfaces();
        }
        gateway.device = Some(self.devices.get(&index)?.clone());
        Some(gateway)
    }
}

/// The names of the system's interfaces, by index.
fn interfaces() -> HashMap<u32, Box<str>> {
    let folder = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let named = folder.filter_map(|entry| {
        let index = std::fs::read_to_string(entry.path().join("ifindex")).ok()?.trim().parse().ok()?;
        Some((index, entry.file_name().to_string_lossy().into_owned().into()))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NetlinkHeader, NetlinkMessage};

    use super::*;

    fn follower() -> Follower {
        let devices = HashMap::from([(2, "wan".into())]);
        Follower {
            netlink: Netlink::of(&[]).unwrap(),
            table: 254,
            routes: BTreeMap::new(),
            devices,
            links: HashMap::new(),
            published: None,
        }
    }

    fn gateway(last: u16) -> RouteAttribute {
        RouteAttribute::Gateway(RouteAddress::Inet6([0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into()))
    }

    /// A route to 2001:db8:9::/48 with these attributes.
    fn route(attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header.address_family = AddressFamily::Inet6;
        (route.header.table, route.header.destination_prefix_length) = (254, 48);
        route.header.kind = RouteType::Unicast;
        let destination = RouteAddress::Inet6([0x2001, 0xdb8, 9, 0, 0, 0, 0, 0].into());
        route.attributes = vec![RouteAttribute::Destination(destination), RouteAttribute::Priority(1024)];
        route.attributes.extend(attributes);
        route
    }

    fn through(last: u16) -> RouteMessage {
        route(vec![gateway(last), RouteAttribute::Oif(2)])
    }

    fn group(members: &[(u16, RouteNextHopFlags)]) -> RouteMessage {
        let member = |&(last, flags): &(u16, RouteNextHopFlags)| {
            let mut hop = RouteNextHop::default();
            (hop.interface_index, hop.flags, hop.attributes) = (2, flags, vec![gateway(last)]);
            hop
        };
        route(vec![RouteAttribute::MultiPath(members.iter().map(member).collect())])
    }

    /// The last parts of the addresses of the only route's next hops.
    fn hops(follower: &Follower) -> Vec<u16> {
        let last = |gateway: &Gateway| match gateway.address {
            Some(IpAddr::V6(address)) => address.segments()[7],
            other => panic!("{other:?}"),
        };
        match follower.routes.values().next() {
            Some(NextHop::Group(members)) => members.iter().map(|(gateway, _)| last(gateway)).collect(),
            Some(NextHop::Via(gateway)) => vec![last(gateway)],
            _ => Vec::new(),
        }
    }

    /// As Linux tells of `ip -6 route del PREFIX via ADDRESS`: the others stay.
    #[test]
    fn a_group_of_ipv6_loses_its_next_hops_one_by_one() {
        let alive = RouteNextHopFlags::empty();
        let mut follower = follower();
        follower.change(&group(&[(1, alive), (2, alive), (3, alive)]), true);
        assert_eq!(hops(&follower), [1, 2, 3]);
        for (gone, rest) in [(2, &[1, 3][..]), (1, &[3])] {
            assert!(follower.change(&through(gone), false));
            assert_eq!(hops(&follower), rest);
        }
        follower.change(&through(3), false);
        assert!(follower.routes.is_empty());
        follower.change(&group(&[(1, alive), (2, alive)]), true);
        follower.change(&group(&[(1, alive), (2, alive)]), false);
        assert!(follower.routes.is_empty());
    }

    #[test]
    fn next_hops_whose_link_is_down_and_cached_paths_are_left_out() {
        let mut follower = follower();
        follower.change(&group(&[(1, RouteNextHopFlags::Dead), (2, RouteNextHopFlags::empty())]), true);
        assert_eq!(hops(&follower), [2]);
        follower.change(&group(&[(1, RouteNextHopFlags::Dead)]), true);
        assert!(follower.routes.is_empty());
        let mut cached = through(1);
        cached.header.flags = RouteFlags::Cloned;
        assert!(!follower.change(&cached, true));
        assert!(follower.routes.is_empty());
    }

    /// A message that is not understood, or cut off, does not keep others from being taken.
    #[test]
    fn one_message_says_nothing_of_others() {
        let payload = NetlinkPayload::from(RouteNetlinkMessage::NewRoute(through(1)));
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.finalize();
        let mut good = vec![0; message.buffer_len()];
        message.serialize(&mut good);
        let mut bad = good.clone();
        // The length of the first attribute.
        bad[28..30].copy_from_slice(&[2, 0]);
        let mut follower = follower();
        let mut heard = Heard::default();
        follower.take(&[&bad[..], &good].concat(), &mut heard).unwrap();
        assert_eq!((heard.changes, hops(&follower)), (1, vec![1]));
        for len in 0..good.len() {
            follower.take(&good[..len], &mut heard).unwrap();
        }
        follower.take(&[0; 40], &mut heard).unwrap();
    }
}
