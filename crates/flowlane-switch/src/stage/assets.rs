//! Asset detection: which hosts and services there are, from their packets alone, as PRADS and p0f do it.
//!
//! A *host* is an address in a VLAN with the MAC address that it is seen behind: the source of an IPv4 or IPv6 packet, or
//! the sender of an ARP message. A *service* is a port of such an address that answers: the source of a TCP segment with
//! SYN and ACK, or of a UDP datagram from a port below those that clients draw. A host that comes with another MAC address
//! is another asset: so moves, routers and forgeries show. What is not noted since the table is full stays new. Nothing is
//! sent, and no packet is changed.

mod explain;

use flowlane::hash::murmur3;
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::fields::{VLAN_PRESENT, word};
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::{ether_type, ip_proto};
use flowlane::packet::{Headers, Network, Transport};
use flowlane::route::Prefix;

use super::ageing::{NEVER, PACKET_BUDGET, Ticks};
use super::flag;
use super::gathered::{Gathered, Lookups};
use super::share::Share;
use super::table::AgedTable;
use crate::packet::Burst;

use std::net::IpAddr;

/// The verdicts, by number.
pub const VERDICTS: [&str; 2] = ["known", "new"];

const KNOWN: u8 = 0;
const NEW: u8 = 1;

/// Words of a key: what it is and its VLAN, four of the address, two of MAC address or port.
const WORDS: usize = 7;

type Key = [u32; WORDS];

/// The VLAN of frames without a tag.
const UNTAGGED: u32 = 0xffff;

/// What a key's first word says, beside the VLAN.
mod kind {
    pub(super) const HOST: u32 = 1 << 16;
    pub(super) const SERVICE: u32 = 2 << 16;
    pub(super) const IPV6: u32 = 4 << 16;
}

/// TCP flags of a service that answers, as they stand in word `FLAGS` of a flow key; and which are looked at.
const SYN_ACK: u32 = ((flag::SYN | flag::ACK) as u32) << 16;
const SYN_ACK_FIN_RST: u32 = SYN_ACK | ((flag::FIN | flag::RST) as u32) << 16;

/// The largest source port of a UDP datagram that makes a service, by default: Linux draws from 32768 on, RFC 6335 says
/// 49152.
pub const UDP_PORT_MAX: u16 = 32_767;

/// How assets are to be detected.
#[derive(Clone, Debug)]
pub struct AssetConfig {
    /// Most assets.
    pub entries_max: usize,
    /// Ticks after which one goes that has not been seen; [`NEVER`] where it stays.
    pub idle: u32,
    /// Networks whose addresses count: address and length of the prefix. All where there are none.
    pub networks: Vec<(IpAddr, u8)>,
    /// The largest source port of a UDP datagram that makes a service.
    pub udp_port_max: u16,
    /// How keys are looked up.
    pub lookups: Lookups,
    /// Keys the hash.
    pub seed: u32,
    /// Whose assets these are.
    pub share: Share,
}

impl AssetConfig {
    /// All hosts, and the services that are not on ports which clients draw, up to so many, which stay.
    pub fn new(entries_max: usize) -> Self {
        Self {
            entries_max,
            idle: NEVER,
            networks: Vec::new(),
            udp_port_max: UDP_PORT_MAX,
            lookups: Lookups::default(),
            seed: 0,
            share: Share::default(),
        }
    }
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AssetCounters {
    /// New hosts.
    pub hosts: u64,
    /// New services.
    pub services: u64,
    /// Assets that were not noted since the table was full.
    pub refused: u64,
    /// Packets that show no asset.
    pub without: u64,
}

/// What is known of an asset beside its key.
#[derive(Clone, Copy, Debug)]
struct Sight {
    packets: u64,
    first: u32,
}

#[derive(Debug)]
pub struct Assets {
    table: AgedTable<WORDS, Sight>,
    hosts: Box<Gathered<WORDS>>,
    services: Box<Gathered<WORDS>>,
    v4: Vec<Prefix<u32>>,
    v6: Vec<Prefix<u128>>,
    anywhere: bool,
    config: AssetConfig,
    counters: AssetCounters,
    ticks: Ticks,
}

/// What an asset is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Asset {
    /// A host, by the MAC address that it is seen behind.
    Host([u8; 6]),
    /// A service: protocol and port.
    Service(u8, u16),
}

/// An asset, for reports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Listed {
    /// The VLAN, where frames have a tag.
    pub vlan: Option<u16>,
    pub address: IpAddr,
    /// What it is.
    pub asset: Asset,
    /// When it was first seen, in nanoseconds of the switch's clock.
    pub first_ns: u64,
    /// When it was last seen.
    pub last_ns: u64,
    /// Packets that showed it.
    pub packets: u64,
}

impl Assets {
    /// Nothing known yet.
    pub fn new(config: AssetConfig) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for &(address, length) in &config.networks {
            match address {
                IpAddr::V4(a) => v4.push(Prefix::truncated(a.into(), length)),
                IpAddr::V6(a) => v6.push(Prefix::truncated(a.into(), length)),
            }
        }
        Self {
            table: AgedTable::new(config.entries_max, config.seed),
            hosts: Box::default(),
            services: Box::default(),
            anywhere: config.networks.is_empty(),
            v4,
            v6,
            config,
            counters: AssetCounters::default(),
            ticks: Ticks::default(),
        }
    }

    pub(super) fn share(&self) -> Share {
        self.config.share
    }

    /// By VLAN and address: a service's are its host's.
    #[inline]
    pub(super) fn owner(&self, key: &FlowKey, headers: &Headers) -> Option<usize> {
        if !self.config.share.is_part() {
            return None;
        }
        let (host, _) = self.shown(key, headers);
        let hash = host?[..5].iter().fold(!self.config.seed, |hash, &word| murmur3::mix(hash, word));
        Some(self.config.share.owner(murmur3::finish(hash, 20)))
    }

    pub(super) fn process(&mut self, packets: &Burst, lanes: LaneMask, verdicts: &mut [u8; LANES_MAX]) {
        if self.config.lookups == Lookups::Scalar {
            for lane in lanes.lanes() {
                let (host, service) = self.shown(&packets.keys[lane], &packets.headers[lane]);
                self.counters.without += u64::from(host.is_none());
                let now = self.come_to(packets.times_ns[lane]);
                let mut new = false;
                for key in host.iter().chain(&service) {
                    let found = self.table.keys().lookup(key);
                    new |= self.settle(key, found, now);
                }
                verdicts[lane] = if new { NEW } else { KNOWN };
            }
            return;
        }
        self.hosts.clear();
        self.services.clear();
        for lane in lanes.lanes() {
            verdicts[lane] = KNOWN;
            let (host, service) = self.shown(&packets.keys[lane], &packets.headers[lane]);
            self.counters.without += u64::from(host.is_none());
            host.map(|key| self.hosts.push(lane, key));
            service.map(|key| self.services.push(lane, key));
        }
        self.hosts.look_up(self.table.keys());
        self.services.look_up(self.table.keys());
        self.hosts.values().chain(self.services.values()).for_each(|at| self.table.entries.prefetch(at));
        let changes = self.table.changes();
        let mut service = 0;
        // A service is one of a host: where there is the one, there is the other.
        for place in 0..self.hosts.len() {
            let (lane, &key) = self.hosts.get(place);
            let now = self.come_to(packets.times_ns[lane]);
            let found = self.table.since(changes, &key, self.hosts.found(place));
            let mut new = self.settle(&key, found, now);
            if service < self.services.len() && self.services.get(service).0 == lane {
                let (_, &key) = self.services.get(service);
                let found = self.table.since(changes, &key, self.services.found(service));
                new |= self.settle(&key, found, now);
                service += 1;
            }
            if new {
                verdicts[lane] = NEW;
            }
        }
    }

    /// Lets a packet's time come: some of what is due goes.
    #[inline]
    fn come_to(&mut self, now_ns: u64) -> u32 {
        let now = self.ticks.at(now_ns);
        self.table.age(now, PACKET_BUDGET);
        now
    }

    /// Notes that an asset has been seen, for whose key this was found; says whether it was not known.
    #[inline]
    fn settle(&mut self, key: &Key, found: Option<u32>, now: u32) -> bool {
        if let Some(at) = found.and_then(|at| self.table.unless_due(at, now)) {
            self.table.entries.touch(at, now);
            self.table.entries.get_mut(at).value.packets += 1;
            return false;
        }
        if self.table.insert(key, Sight { packets: 1, first: now }, self.config.idle, now).is_none() {
            // Nobody has known it. What is done with new ones is to hold when a flood has filled the table, too.
            self.counters.refused += 1;
            return true;
        }
        match key[0] & kind::SERVICE {
            0 => self.counters.hosts += 1,
            _ => self.counters.services += 1,
        }
        true
    }

    /// The keys of the host and of the service that a packet shows.
    #[inline]
    fn shown(&self, key: &FlowKey, headers: &Headers) -> (Option<Key>, Option<Key>) {
        let [vlan_tci, eth_type] = halves(key.word(word::VLAN_ETH_TYPE));
        let vlan = if vlan_tci & VLAN_PRESENT == 0 { UNTAGGED } else { u32::from(vlan_tci & 0xfff) };
        let mac =
            [key.word(word::ETH + 1) << 16 | key.word(word::ETH + 2) >> 16, key.word(word::ETH + 2) & 0xffff];
        let v4 = [0, 0, 0, key.word(word::IPV4_SRC)];
        let (address, mac, version) = match (headers.network, eth_type) {
            (Network::Ipv4, _) => (v4, mac, 0),
            (Network::Ipv6, _) => (std::array::from_fn(|i| key.word(word::IPV6_SRC + i)), mac, kind::IPV6),
            (Network::Arp, ether_type::ARP) => {
                let sender = [key.word(word::ARP_HA), key.word(word::ARP_HA + 1) >> 16];
                (v4, sender, 0)
            }
            _ => return (None, None),
        };
        if !self.counts(address, version) {
            return (None, None);
        }
        let [a, b, c, d] = address;
        let host = [kind::HOST | version | vlan, a, b, c, d, mac[0], mac[1]];
        let [port, _] = halves(key.word(word::PORTS));
        let protocol = match headers.transport {
            Transport::Tcp if key.word(word::FLAGS) & SYN_ACK_FIN_RST == SYN_ACK => ip_proto::TCP,
            Transport::Udp if port <= self.config.udp_port_max => ip_proto::UDP,
            _ => return (Some(host), None),
        };
        let service =
            [kind::SERVICE | version | vlan, a, b, c, d, u32::from(protocol) << 16 | u32::from(port), 0];
        (Some(host), Some(service))
    }

    /// Whether an address can be a host's, and is of the networks that count.
    #[inline]
    fn counts(&self, address: [u32; 4], version: u32) -> bool {
        if version == 0 {
            let v4 = address[3];
            // 0.0.0.0/8 and 127.0.0.0/8 are nobody's; from 224.0.0.0 on there are groups, broadcast and reserved ones.
            let unicast = !matches!(v4 >> 24, 0 | 127 | 224..);
            return unicast && (self.anywhere || self.v4.iter().any(|network| network.contains(v4)));
        }
        let v6 = address.iter().fold(0u128, |v6, &word| v6 << 32 | u128::from(word));
        let unicast = v6 > 1 && v6 >> 120 != 0xff;
        unicast && (self.anywhere || self.v6.iter().any(|network| network.contains(v6)))
    }

    pub(super) fn age(&mut self, now_ns: u64) {
        let now = self.ticks.at(now_ns);
        self.table.age(now, PACKET_BUDGET);
    }

    /// Number of assets.
    pub fn len(&self) -> usize {
        self.table.entries.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has happened.
    pub fn counters(&self) -> AssetCounters {
        self.counters
    }

    /// Assets that have gone by age.
    pub fn aged(&self) -> u64 {
        self.table.aged()
    }

    pub(super) fn table_bytes(&self) -> usize {
        self.table.table_bytes()
    }

    /// The assets, in order of VLAN and address.
    pub fn list(&self) -> Vec<Listed> {
        let entries = &self.table.entries;
        let listed = |at: u32| {
            let entry = entries.get(at);
            let (vlan, address, asset) = named(&entry.key);
            Listed {
                vlan,
                address,
                asset,
                first_ns: self.ticks.ns_of(entry.value.first),
                last_ns: self.ticks.ns_of(entries.used(at)),
                packets: entry.value.packets,
            }
        };
        let mut list: Vec<Listed> = entries.numbers().map(listed).collect();
        list.sort_unstable();
        list
    }
}

/// The asset that a key stands for: VLAN, address, and what it is.
fn named(&[first, a, b, c, d, e, f]: &Key) -> (Option<u16>, IpAddr, Asset) {
    let v6 = [a, b, c, d].iter().fold(0u128, |v6, &word| v6 << 32 | u128::from(word));
    let [_, _, m0, m1] = (e >> 16).to_be_bytes();
    let [_, _, m2, m3] = e.to_be_bytes();
    let [_, _, m4, m5] = f.to_be_bytes();
    let asset = match first & kind::SERVICE {
        0 => Asset::Host([m0, m1, m2, m3, m4, m5]),
        _ => Asset::Service((e >> 16) as u8, e as u16),
    };
    let address = if first & kind::IPV6 == 0 { IpAddr::V4(d.into()) } else { IpAddr::V6(v6.into()) };
    ((first & 0xffff != UNTAGGED).then_some(first as u16), address, asset)
}

/// The upper and the lower half of a word.
#[inline]
fn halves(word: u32) -> [u16; 2] {
    [(word >> 16) as u16, word as u16]
}
