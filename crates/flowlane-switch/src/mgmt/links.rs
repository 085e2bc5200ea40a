//! The links of the system's interfaces, followed by netlink (rtnetlink(7)): which of them are up, and their addresses.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::netlink::{Netlink, messages};
use super::rpc::{ControlServer, Link};
use crate::port::device::link_mode;

/// The group of notices of links: RTNLGRP_LINK.
const GROUPS: [u32; 1] = [1];

/// How long the thread waits for a change before it looks whether the switch has ended.
const WAIT: Duration = Duration::from_millis(100);

/// Changes that come within this time of each other are taken over together.
const TOGETHER: Duration = Duration::from_millis(5);

/// Counters that the system keeps of an interface, and a port does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkCounters {
    pub(crate) collisions: u64,
    pub(crate) rx_errors: u64,
    pub(crate) rx_crc_errors: u64,
    pub(crate) rx_frame_errors: u64,
    pub(crate) rx_missed_errors: u64,
    pub(crate) rx_over_errors: u64,
    pub(crate) rx_multicast: u64,
    pub(crate) tx_errors: u64,
}

/// Reads the counters of all interfaces, by name.
///
/// # Errors
/// Where the system gives no socket, or no answer.
pub(crate) fn count_links() -> io::Result<HashMap<String, LinkCounters>> {
    let netlink = Netlink::of(&[])?;
    let mut all = HashMap::new();
    netlink.for_each(RouteNetlinkMessage::GetLink(LinkMessage::default()), |message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            all.extend(counters_of(&link));
        }
    })?;
    Ok(all)
}

fn counters_of(link: &LinkMessage) -> Option<(String, LinkCounters)> {
    let (mut name, mut counters) = (None, LinkCounters::default());
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(given) => name = Some(given.clone()),
            LinkAttribute::Stats64(stats) => {
                counters = LinkCounters {
                    collisions: stats.collisions,
                    rx_errors: stats.rx_errors,
                    rx_crc_errors: stats.rx_crc_errors,
                    rx_frame_errors: stats.rx_frame_errors,
                    rx_missed_errors: stats.rx_missed_errors,
                    rx_over_errors: stats.rx_over_errors,
                    rx_multicast: stats.multicast,
                    tx_errors: stats.tx_errors,
                };
            }
            _ => {}
        }
    }
    Some((name?, counters))
}

/// Follows the links; its thread ends when this is dropped.
pub struct KernelLinks {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KernelLinks {
    /// Follows the links for the ports of a switch. Those that there are have been taken over when this returns.
    ///
    /// # Errors
    /// Where the system gives no socket or thread.
    pub fn follow(server: Arc<ControlServer>) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let mut follower = Follower { netlink: Netlink::of(&GROUPS)?, links: HashMap::new() };
        follower.ask(&ended)?;
        server.set_links(follower.by_name());
        let over = ended.clone();
        let thread = std::thread::Builder::new().name("links".to_owned());
        let thread = thread.spawn(move || follower.run(&server, &over))?;
        Ok(Self { ended, thread: Some(thread) })
    }
}

impl Drop for KernelLinks {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

struct Follower {
    netlink: Netlink,
    /// By index: names change.
    links: HashMap<u32, (String, Link)>,
}

impl Follower {
    fn run(&mut self, server: &ControlServer, ended: &AtomicBool) {
        let mut is_whole = true;
        while !ended.load(Ordering::Relaxed) {
            let heard = match is_whole {
                true => self.hear(),
                false => self.ask(ended).map(|()| true),
            };
            is_whole = heard.is_ok();
            match heard {
                Ok(true) => server.set_links(self.by_name()),
                Ok(false) => {}
                Err(_) => {
                    // Notices are lost (ENOBUFS), or the system is short of something: all again, after a while.
                    std::thread::sleep(WAIT);
                    if let Ok(netlink) = Netlink::of(&GROUPS) {
                        self.netlink = netlink;
                    }
                }
            }
        }
    }

    fn by_name(&self) -> HashMap<String, Link> {
        self.links.values().cloned().collect()
    }

    /// Asks for all links, and takes them.
    fn ask(&mut self, ended: &AtomicBool) -> io::Result<()> {
        self.links.clear();
        self.netlink.ask_for_all(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        while !ended.load(Ordering::Relaxed) {
            if let Some(bytes) = self.netlink.receive(WAIT)?
                && self.take(&bytes)?.is_done
            {
                break;
            }
        }
        Ok(())
    }

    /// Takes the changes that come together; waits for the first. Returns whether there were any.
    fn hear(&mut self) -> io::Result<bool> {
        let (mut wait, mut has_changed) = (WAIT, false);
        while let Some(bytes) = self.netlink.receive(wait)? {
            has_changed |= self.take(&bytes)?.has_changed;
            wait = TOGETHER;
        }
        Ok(has_changed)
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<Heard> {
        let mut heard = Heard::default();
        for message in messages(bytes) {
            match message {
                Ok(NetlinkPayload::Done(_)) => heard.is_done = true,
                Ok(NetlinkPayload::Error(error)) if error.code.is_some() => {
                    return Err(io::Error::other(format!("{error:?}")));
                }
                Ok(NetlinkPayload::Overrun(_)) => return Err(io::Error::other("notices are lost")),
                // Notices of bridges are of their ports, not of interfaces that come and go.
                Ok(NetlinkPayload::InnerMessage(
                    RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link),
                )) if link.header.interface_family == AddressFamily::Bridge => {}
                Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link))) => {
                    if let Some(mut state) = state_of(&link) {
                        if let Some((_, before)) = self.links.get(&link.header.index) {
                            let is_other = before.is_up != state.1.is_up;
                            state.1.resets = before.resets + u32::from(is_other);
                        }
                        let before = self.links.insert(link.header.index, state.clone());
                        heard.has_changed |= before != Some(state);
                    }
                }
                Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link))) => {
                    heard.has_changed |= self.links.remove(&link.header.index).is_some();
                }
                // A link that is not understood keeps its state.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(heard)
    }
}

#[derive(Default)]
struct Heard {
    is_done: bool,
    has_changed: bool,
}

fn state_of(link: &LinkMessage) -> Option<(String, Link)> {
    let has = |flag| link.header.flags.contains(flag);
    let (mut name, mut mac, mut mtu) = (None, None, None);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(given) => name = Some(given.clone()),
            LinkAttribute::Mtu(bytes) => mtu = Some(*bytes),
            LinkAttribute::Address(bytes) => mac = bytes[..].try_into().ok(),
            _ => {}
        }
    }
    let name = name?;
    let is_enabled = has(LinkFlags::Up);
    let (is_up, index, mode) = (is_enabled && has(LinkFlags::LowerUp), link.header.index, link_mode(&name));
    Some((name, Link { is_up, is_enabled, mac, index, mtu, mode, resets: 0 }))
}
