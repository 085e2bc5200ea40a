//! A router's own part in its networks: what hosts expect of it beside forwarding (RFC 1812).
//!
//! It answers ARP and IPv6 neighbour discovery for the addresses of its interfaces, asks for its neighbours and lets packets wait
//! meanwhile, replies to pings, and tells senders why a packet cannot be forwarded. The routes themselves are a
//! [stage](crate::stage::route).
//!
//! | module | what |
//! |---|---|
//! | `neighbours` | Ethernet addresses of neighbours, and packets that wait for them |
//! | `resolution` | messages of ARP and neighbour discovery |
//! | `interface` | addresses, and their links |
//! | `icmp` | errors and echo replies |
//! | `cut` | fragments of IPv4 |
//! | `path_mtu` | how long packets may be on their way through a tunnel |
//! | `limit` | how often errors are sent |
//! | `wire` | frames and checksums |
//!
//! Workers share one router. Forwarding to a neighbour that is known takes no lock. Everything is decided by the packets and their
//! times: there is no thread, so that a replayed capture gives the same frames each time.
//!
//! An answer leaves through the interface that its packet came in through, to the station that sent it, whatever the routes say: so it
//! gets back where the packet came from even if nothing else would.

mod cut;
mod icmp;
mod interface;
mod limit;
mod neighbours;
mod path_mtu;
mod resolution;
mod too_long;
mod wire;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use flowlane::packet::{Headers, Network, Transport};

pub use self::cut::cut;
pub use self::icmp::{Reason, addresses};
pub use self::interface::{InPorts, Interface, Link, OWN_PACKETS, TunnelEnds};
pub use self::limit::Limit;
use self::neighbours::{Held, Neighbours};
pub use self::neighbours::{Listed, Name, State};
use self::path_mtu::PathMtus;
use self::resolution::{HOP_LIMIT, Said, announcement, answer, question, read_arp, read_discovery};
pub use self::too_long::TooLongFrame;
pub use self::wire::{Mac, is_host, link_local_of, text_of};
use self::wire::{fold_is_right, is_unicast_mac};
use crate::packet::edit::checksum::sum;
use crate::sync::{AtomicU64, Ordering};

/// A packet in front of the router.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    pub bytes: &'a [u8],
    pub headers: &'a Headers,
    /// The number of the interface that it came in through.
    pub in_port: u32,
    pub now_ns: u64,
}

/// Returns whether the header of a packet of IPv4 has the right checksum; others have none (RFC 1812, section 5.2.2).
pub fn has_right_header(bytes: &[u8], headers: &Headers) -> bool {
    let l3 = usize::from(headers.l3);
    let header = || bytes.get(l3..l3 + 4 * usize::from(bytes.get(l3)? & 0xf));
    headers.network != Network::Ipv4 || header().is_some_and(|header| fold_is_right(sum(header)))
}

/// Returns whether a packet's Ethernet source is another station, to which answers may go.
fn is_from_other_station(packet: &Arrived<'_>, interface: &Interface) -> bool {
    let source = packet.bytes.get(6..12).and_then(|bytes| <Mac>::try_from(bytes).ok());
    source.is_some_and(|source| is_unicast_mac(source) && source != interface.mac)
}

/// A packet that can wait for a neighbour.
pub trait Waiting {
    /// Returns the packet, as it came in.
    fn arrived(&self, now_ns: u64) -> Arrived<'_>;
}

/// The router's reaction to a packet, or to the time.
#[derive(Debug)]
pub struct Answers<H> {
    /// Frames to be sent, each with its interface.
    pub frames: Vec<(u16, Vec<u8>)>,
    /// Packets that need not wait any more.
    pub released: Vec<H>,
}

impl<H> Default for Answers<H> {
    fn default() -> Self {
        Self { frames: Vec::new(), released: Vec::new() }
    }
}

/// The way to a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The Ethernet addresses of the port and the neighbour.
    pub source: Mac,
    pub destination: Mac,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a router.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        struct Counting {
            $($name: AtomicU64,)*
        }

        impl Counting {
            fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Questions of ARP and neighbour discovery answered.
    answered,
    /// Questions asked.
    asked,
    /// Echo requests replied to.
    echo_replies,
    /// ICMP errors sent.
    errors,
    /// ICMP errors not sent, since there were too many.
    errors_limited,
    /// Packets for the router that it has no use for.
    ignored,
    /// Packets whose TTL expired.
    expired,
    /// Packets without a route, or forbidden by one.
    unroutable,
    /// Packets from an address that the routes do not lead back to.
    reverse_path,
    /// Packets that were too long for their port and must not be cut.
    too_long,
    /// Packets cut into fragments.
    cut,
    /// Packets that have waited for a neighbour.
    waited,
    /// Packets dropped since too many waited, or the neighbour did not answer.
    unresolved,
    /// Others that claim an address of the router.
    conflicts,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The settings of a router.
#[derive(Clone, Debug)]
pub struct Config {
    pub interfaces: Vec<Interface>,
    pub neighbours_max: usize,
    /// The most ICMP errors a second.
    pub errors_per_s: u32,
    /// The system has the addresses, too, and answers for them: the router only listens.
    pub listens_only: bool,
    pub seed: u32,
}

/// A router, shared by all workers. `H` is a packet that waits.
pub struct Router<H> {
    interfaces: Vec<Interface>,
    in_ports: InPorts,
    path_mtus: PathMtus,
    neighbours: Neighbours<H>,
    limit: Limit,
    listens_only: bool,
    counting: Counting,
    next_tick_ns: AtomicU64,
}

/// The time between two looks at the neighbours.
const TICK_NS: u64 = 1_000_000_000;

fn seconds(now_ns: u64) -> u64 {
    now_ns / 1_000_000_000
}

impl<H: Waiting> Router<H> {
    /// A router with these ports.
    pub fn new(config: Config) -> Self {
        let Config { interfaces, neighbours_max, errors_per_s, listens_only, seed } = config;
        Self {
            in_ports: InPorts::of(&interfaces),
            path_mtus: PathMtus::of(&interfaces),
            interfaces,
            neighbours: Neighbours::new(neighbours_max, seed),
            limit: Limit::new(errors_per_s),
            listens_only,
            counting: Counting::default(),
            next_tick_ns: AtomicU64::new(0),
        }
    }

    /// Returns its ports.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Returns its counters.
    pub fn counters(&self) -> Counters {
        self.counting.read()
    }

    /// Returns its neighbours.
    pub fn neighbours(&self, now_ns: u64) -> Vec<Listed> {
        self.neighbours.list(seconds(now_ns))
    }

    /// Forgets neighbours that no packet waits for. Returns their number.
    pub fn flush(&self, is_gone: impl FnMut(Name) -> bool) -> usize {
        self.neighbours.flush(is_gone)
    }

    /// Counts a packet from an address that the routes do not lead back to.
    pub fn refuse_reverse_path(&self) {
        count(&self.counting.reverse_path);
    }

    /// Counts a packet that the router has no use for.
    pub fn ignore(&self) {
        count(&self.counting.ignored);
    }

    /// Returns the interface that packets with a number come in through.
    #[inline]
    pub fn interface_of(&self, in_port: u32) -> Option<(u16, &Interface)> {
        let n = self.in_ports.find(in_port)?;
        Some((n, &self.interfaces[usize::from(n)]))
    }

    /// Returns the length of the longest IP packet that may leave by an interface.
    #[inline]
    pub fn mtu(&self, interface: u16, now_ns: u64) -> u16 {
        let own = self.interfaces[usize::from(interface)].mtu;
        self.path_mtus.get(interface, seconds(now_ns)).map_or(own, |path| path.min(own))
    }

    /// Takes note that packets of this length from one address to another are too long for their way: those of tunnels leave shorter
    /// from then on, for ten minutes (RFC 1191, section 6.3; RFC 8201, section 4).
    pub fn note_path_mtu(&self, (from, to): (IpAddr, IpAddr), mtu: u16, now_ns: u64) {
        for (interface, n) in self.interfaces.iter().zip(0..) {
            if let Link::Tunnel(ends) = interface.link
                && (ends.local, ends.remote) == (from, to)
            {
                self.path_mtus.lower(n, path_mtu::inner(&ends, mtu, interface.has_ipv6()), seconds(now_ns));
            }
        }
    }

    /// Returns the way to a neighbour, if its Ethernet address is known. Takes no lock.
    #[inline]
    pub fn way(&self, name: Name) -> Option<Way> {
        let destination = self.neighbours.mac(name)?;
        Some(Way { source: self.interfaces[usize::from(name.interface)].mac, destination })
    }

    /// Returns the way to a neighbour, without counting that as a use.
    pub fn known_way(&self, name: Name) -> Option<Way> {
        let destination = self.neighbours.peek(name)?;
        Some(Way { source: self.interfaces[usize::from(name.interface)].mac, destination })
    }

    /// Lets a packet wait for a neighbour, which is asked for. A packet that need not wait is released at once.
    pub fn hold(&self, name: Name, packet: H, now_ns: u64, answers: &mut Answers<H>) {
        let unresolved = |packets: usize| {
            self.counting.unresolved.fetch_add(packets as u64, Ordering::Relaxed);
        };
        match self.neighbours.hold(name, packet, seconds(now_ns)) {
            Held::Ask { dropped } => {
                count(&self.counting.waited);
                unresolved(dropped);
                self.ask(name, None, answers);
            }
            Held::Waits { dropped } => {
                count(&self.counting.waited);
                unresolved(dropped);
            }
            Held::Known(packet) => answers.released.push(packet),
            Held::Full => unresolved(1),
        }
    }

    fn ask(&self, name: Name, known: Option<Mac>, answers: &mut Answers<H>) {
        let interface = &self.interfaces[usize::from(name.interface)];
        // Neighbours are asked from the link-local address: it is on every network of IPv6.
        let own = match name.address {
            IpAddr::V4(_) => interface.speaks_from(name.address),
            IpAddr::V6(_) => Some(IpAddr::V6(link_local_of(interface.mac))),
        };
        if let Some(frame) = own.and_then(|own| question(interface.mac, own, name.address, known)) {
            count(&self.counting.asked);
            answers.frames.push((name.interface, frame));
        }
    }

    /// Takes a packet that is for the router itself.
    pub fn receive(&self, packet: &Arrived<'_>, answers: &mut Answers<H>) {
        let Some((n, interface)) = self.interface_of(packet.in_port) else { return };
        let headers = packet.headers;
        if !is_from_other_station(packet, interface) {
            count(&self.counting.ignored);
            return;
        }
        match headers.network {
            Network::Arp => match read_arp(packet.bytes.get(headers.l3.into()..).unwrap_or_default()) {
                Some(said) => self.hear(said, (n, interface), packet, answers),
                None => count(&self.counting.ignored),
            },
            Network::Ipv4 | Network::Ipv6 => self.receive_ip((n, interface), packet, answers),
            Network::None | Network::Nsh => count(&self.counting.ignored),
        }
    }

    fn receive_ip(&self, (n, interface): (u16, &Interface), packet: &Arrived<'_>, answers: &mut Answers<H>) {
        let Some((source, destination)) = addresses(packet.bytes, packet.headers) else { return };
        let message = icmp::message(packet.bytes, packet.headers);
        if let (Some(message), IpAddr::V6(source)) = (&message, source)
            && matches!(message.bytes.first(), Some(&(resolution::SOLICITATION | resolution::ADVERTISEMENT)))
        {
            let hop_limit = packet.bytes.get(usize::from(packet.headers.l3) + 7);
            let said = read_discovery(source, message.bytes).filter(|_| hop_limit == Some(&HOP_LIMIT));
            match said {
                Some(said) => self.hear(said, (n, interface), packet, answers),
                None => count(&self.counting.ignored),
            }
            return;
        }
        // Own addresses of other ports, too: an address is the router's.
        if self.listens_only
            || !self.interfaces.iter().any(|interface| interface.has(destination))
            || !is_host(source)
        {
            count(&self.counting.ignored);
            return;
        }
        let reply =
            message.as_ref().and_then(|message| icmp::echo_reply(packet.bytes, message, interface.mac));
        match (reply, packet.headers.transport) {
            (Some(reply), _) => {
                count(&self.counting.echo_replies);
                answers.frames.push((n, reply));
            }
            (None, Transport::Icmpv4 | Transport::Icmpv6) => {
                match message.and_then(|message| path_mtu::read(message.bytes, packet.headers.network)) {
                    Some((ends, mtu)) => self.note_path_mtu(ends, mtu, packet.now_ns),
                    None => count(&self.counting.ignored),
                }
            }
            (None, Transport::Tcp | Transport::Udp | Transport::UdpLite | Transport::Sctp) => {
                count(&self.counting.ignored);
                self.tell(packet, Reason::NoPort, Some(destination), answers);
            }
            (None, Transport::Gre | Transport::None) => {
                count(&self.counting.ignored);
                // What it would be with its other fragments is not known.
                if packet.headers.fragment == 0 && packet.headers.malformed.is_none() {
                    self.tell(packet, Reason::NoProtocol, Some(destination), answers);
                }
            }
        }
    }

    /// Takes note of what a neighbour asks or says.
    fn hear(
        &self,
        said: Said,
        (n, interface): (u16, &Interface),
        packet: &Arrived<'_>,
        answers: &mut Answers<H>,
    ) {
        let now_s = seconds(packet.now_ns);
        // Only hosts of the port's networks are neighbours.
        let name = |address: IpAddr| {
            let is_other = interface.is_near(address) && !interface.has(address) && is_host(address);
            is_other.then_some(Name { interface: n, address })
        };
        match said {
            Said::Asks { target, by, asks_all } => {
                let is_own = interface.has(target);
                if let Some((address, mac)) = by {
                    self.counting.conflicts.fetch_add(interface.has(address).into(), Ordering::Relaxed);
                    if let Some(name) = name(address) {
                        let learned = self.neighbours.learn(name, Some(mac), (false, true, is_own), now_s);
                        answers.released.extend(learned);
                    }
                }
                let answers_it = is_own && !self.listens_only;
                let asker = packet.bytes.get(6..12).map(<Mac>::try_from).filter(|_| answers_it);
                let Some(Ok(asker)) = asker else { return };
                // A neighbour that says no Ethernet address of its own has sent the question from one.
                let source = addresses(packet.bytes, packet.headers).map(|(source, _)| source);
                let by = by.or(source.filter(|_| !asks_all).map(|source| (source, asker)));
                count(&self.counting.answered);
                answers.frames.push((n, answer(interface.mac, target, by, asker)));
            }
            Said::Says { address, mac, is_solicited, overrides } => {
                self.counting.conflicts.fetch_add(interface.has(address).into(), Ordering::Relaxed);
                if let Some(name) = name(address) {
                    let flags = (is_solicited, overrides, false);
                    answers.released.extend(self.neighbours.learn(name, mac, flags, now_s));
                }
            }
        }
    }

    /// Tells the sender of a packet why it is not forwarded, if that is allowed and has not been done too often.
    pub fn refuse(&self, packet: &Arrived<'_>, reason: Reason, answers: &mut Answers<H>) {
        count(match reason {
            Reason::Expired => &self.counting.expired,
            Reason::TooLong(_) => &self.counting.too_long,
            Reason::NoNeighbour => &self.counting.unresolved,
            Reason::NoRoute | Reason::Prohibited => &self.counting.unroutable,
            Reason::NoPort | Reason::NoProtocol => &self.counting.ignored,
        });
        self.tell(packet, reason, None, answers);
    }

    fn tell(&self, packet: &Arrived<'_>, reason: Reason, own: Option<IpAddr>, answers: &mut Answers<H>) {
        let Some((n, interface)) = self.interface_of(packet.in_port) else { return };
        let is_other = is_from_other_station(packet, interface);
        if !is_other || !icmp::may_be_answered(packet.bytes, packet.headers, reason) {
            return;
        }
        let Some((source, _)) = addresses(packet.bytes, packet.headers) else { return };
        if !self.limit.admits(source, packet.now_ns) {
            count(&self.counting.errors_limited);
            return;
        }
        let own = own.or_else(|| interface.speaks_from(source));
        let error = |own| icmp::error(packet.bytes, packet.headers, reason, (interface.mac, own));
        if let Some(error) = own.and_then(error) {
            count(&self.counting.errors);
            answers.frames.push((n, error));
        }
    }

    /// Counts a packet that was cut.
    pub fn note_cut(&self) {
        count(&self.counting.cut);
    }

    /// Returns whether time has passed that [`tick`](Self::tick) has not seen.
    #[inline]
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_tick_ns.load(Ordering::Relaxed)
    }

    /// Asks again for neighbours, and whether those that are used are still there. The first time it announces the router.
    pub fn tick(&self, now_ns: u64, answers: &mut Answers<H>) {
        let due_ns = self.next_tick_ns.load(Ordering::Relaxed);
        let next_ns = now_ns.saturating_add(TICK_NS);
        // One worker does it.
        let is_mine = now_ns >= due_ns
            && self
                .next_tick_ns
                .compare_exchange(due_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !is_mine {
            return;
        }
        if due_ns == 0 && !self.listens_only {
            self.announce(answers);
        }
        let due = self.neighbours.tick(seconds(now_ns));
        due.questions.iter().for_each(|question| self.ask(question.name, question.known, answers));
        for (_, packet) in due.given_up {
            self.refuse(&packet.arrived(now_ns), Reason::NoNeighbour, answers);
        }
    }

    fn announce(&self, answers: &mut Answers<H>) {
        for (interface, n) in self.interfaces.iter().zip(0..) {
            let announcements = interface.own().map(|own| announcement(interface.mac, own));
            answers.frames.extend(announcements.map(|frame| (n, frame)));
        }
    }
}

impl<H> std::fmt::Debug for Router<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("interfaces", &self.interfaces).finish_non_exhaustive()
    }
}
