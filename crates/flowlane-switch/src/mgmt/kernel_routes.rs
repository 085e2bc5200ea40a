//! The routes of the system, followed by netlink (rtnetlink(7)): what a routing daemon or `ip route` changes, the router takes over.
//!
//! A thread asks for all routes, then hears of each change. Changes that come together are taken over together; if the system could
//! not deliver some, all routes are asked for again.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flowlane::route::read::{AnyPrefix, Gateway, NextHop};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::rpc::ControlServer;

/// Groups of notices: RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR and RTNLGRP_IPV6_ROUTE. Links and
/// addresses that go take routes of IPv4 with them, of which the system then says nothing.
const GROUPS: [u32; 5] = [1, 5, 7, 9, 11];

/// RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR and RTM_DELADDR.
const LINKS_AND_ADDRESSES: [u16; 4] = [16, 17, 20, 21];

/// How long the thread waits for a change before it looks whether the switch has ended.
const WAIT: Duration = Duration::from_millis(100);

/// Changes that come within this time of each other are taken over together, ...
const TOGETHER: Duration = Duration::from_millis(5);

/// ... but not more than this number of messages.
const TOGETHER_MAX: usize = 4096;

/// The system's socket buffer for notices.
const BUFFER: usize = 8 << 20;

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
            socket: open()?,
            table: kernel_table,
            routes: BTreeMap::new(),
            published: None,
            devices: HashMap::new(),
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

fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    // A smaller one is no reason not to start.
    _ = socket.set_rx_buf_sz(BUFFER);
    for group in GROUPS {
        socket.add_membership(group)?;
    }
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// A route's prefix and metric: of several routes for a prefix, the one with the least metric is in force.
type Name = (AnyPrefix, u32);

struct Follower {
    socket: Socket,
    table: u32,
    routes: BTreeMap<Name, NextHop>,
    /// The routes in force that the switch has been given.
    published: Option<BTreeMap<AnyPrefix, NextHop>>,
    /// Names of interfaces, by index.
    devices: HashMap<u32, Box<str>>,
}

/// A summary of the messages that have come together.
#[derive(Clone, Copy, Default)]
struct Heard {
    changes: usize,
    /// All routes that were asked for have come.
    is_done: bool,
    /// A link or an address has changed, and with it perhaps routes.
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
        // It fails while the switch does not run yet.
        while server.set_kernel_routes(number, in_force.clone()).is_err() && !ended.load(Ordering::Relaxed) {
            std::thread::sleep(WAIT / 5);
        }
        self.published = Some(in_force);
    }

    /// Asks for all routes, one family after the other, and takes them.
    fn dump(&mut self, ended: &AtomicBool) -> io::Result<Heard> {
        let mut all = Heard { changes: 1, ..Heard::default() };
        self.routes.clear();
        self.devices = interfaces();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let mut header = NetlinkHeader::default();
            header.flags = NLM_F_REQUEST | NLM_F_DUMP;
            let payload = NetlinkPayload::from(RouteNetlinkMessage::GetRoute(message));
            let mut request = NetlinkMessage::new(header, payload);
            request.finalize();
            let mut bytes = vec![0; request.buffer_len()];
            request.serialize(&mut bytes);
            self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
            let mut is_done = false;
            while !is_done && !ended.load(Ordering::Relaxed) {
                let heard = self.hear(WAIT)?;
                is_done = heard.is_done;
                all.is_stale |= heard.is_stale;
            }
        }
        Ok(all)
    }

    /// Takes the changes that come together; waits for the first.
    fn hear(&mut self, wait: Duration) -> io::Result<Heard> {
        let mut heard = Heard::default();
        let mut wait = wait;
        while heard.changes < TOGETHER_MAX && is_readable(&self.socket, wait)? {
            let bytes = match self.socket.recv_from_full() {
                Ok((bytes, _)) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            self.take(&bytes, &mut heard)?;
            if heard.is_done {
                break;
            }
            wait = TOGETHER;
        }
        Ok(heard)
    }

    /// Takes the messages of a datagram. One that cannot be read is left out: the system is newer than this.
    fn take(&mut self, mut bytes: &[u8], heard: &mut Heard) -> io::Result<()> {
        while let Some(&[a, b, c, d, e, f, ..]) = bytes.first_chunk::<16>() {
            let (len, kind) = (u32::from_ne_bytes([a, b, c, d]) as usize, u16::from_ne_bytes([e, f]));
            let message = bytes.get(..len).filter(|_| len >= 16);
            let message = message.ok_or_else(|| io::Error::other("a message of netlink is cut off"))?;
            // Each begins at a multiple of 4 bytes.
            bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
            if LINKS_AND_ADDRESSES.contains(&kind) {
                heard.is_stale = true;
                continue;
            }
            let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message) else { continue };
            match message.payload {
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
        // Routes that depend on more than the destination are not followed.
        if table != self.table || route.header.tos != 0 || route.header.source_prefix_length != 0 {
            return false;
        }
        let prefix = AnyPrefix::truncated(destination.unwrap_or(all), route.header.destination_prefix_length);
        let hop = if is_new { self.next_hop(route) } else { None };
        match hop {
            Some(hop) => drop(self.routes.insert((prefix, metric), hop)),
            None => drop(self.routes.remove(&(prefix, metric))),
        }
        true
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
            let member = |hop: &RouteNextHop| {
                let gateway = self.gateway(&hop.attributes, Some(hop.interface_index))?;
                Some((gateway, u32::from(hop.hops) + 1))
            };
            return Some(NextHop::Group(several.iter().map(member).collect::<Option<_>>()?));
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

fn is_readable(socket: &Socket, wait: Duration) -> io::Result<bool> {
    let mut waited_for = [PollFd::new(socket, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
    match poll(&mut waited_for, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
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
