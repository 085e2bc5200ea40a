//! Passive asset detection: finds hosts and services from their packets alone, as PRADS and p0f do.
//!
//! A *host* is an address in a VLAN with the MAC address that it is seen behind: the source of an IPv4 or IPv6 packet, or
//! the sender of an ARP message. A *service* is a port of such an address that answers: the source of a TCP segment with
//! SYN and ACK, or of a UDP datagram from a port below the ephemeral range. A host with another MAC address is another
//! asset: so moves, routers and forgeries show. An asset that a full table could not record stays new. The stage sends
//! nothing and changes no packet.

mod explain;

use flowlane::hash::murmur3;
use flowlane::packet::batch::LaneMask;
use flowlane::packet::fields::{VLAN_PRESENT, word};
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::{ether_type, ip_proto};
use flowlane::packet::{Headers, Network, Transport};
use flowlane::route::Prefix;

use super::ageing::{NEVER, PACKET_BUDGET, Ticks};
use super::flag;
use super::gathered::{Gathered, Lookups};
use super::shard::{Owner, Shard};
use super::table::{AgedTable, Found};
use super::{Explanation, StageCall, StagePacket, StatefulStage, Verdicts};
use crate::packet::Burst;

use std::net::IpAddr;

const KNOWN: u32 = 0;
const NEW: u32 = 1;

/// The words of a key: one of kind and VLAN, four of the address, two of MAC address or port.
const WORDS: usize = 7;

type Key = [u32; WORDS];

/// The VLAN of frames without a tag.
const UNTAGGED: u32 = 0xffff;

/// Flags of a key's first word, above the VLAN.
mod kind {
    pub(super) const HOST: u32 = 1 << 16;
    pub(super) const SERVICE: u32 = 2 << 16;
    pub(super) const IPV6: u32 = 4 << 16;
}

/// The TCP flags of a service that answers, in the position of word `FLAGS` of a flow key, and the mask of those tested.
const SYN_ACK: u32 = ((flag::SYN | flag::ACK) as u32) << 16;
const SYN_ACK_FIN_RST: u32 = SYN_ACK | ((flag::FIN | flag::RST) as u32) << 16;

/// The default for the largest UDP source port of a service: Linux's ephemeral ports begin at 32768, those of RFC 6335
/// at 49152.
pub const UDP_PORT_MAX: u16 = 32_767;

/// The settings of asset detection.
#[derive(Clone, Debug)]
pub struct AssetConfig {
    /// The maximum number of assets.
    pub entries_max: usize,
    /// The maximum number of assets that the packets of one port add; without it, as many as are free.
    pub port_max: Option<usize>,
    /// The ticks after which an unseen asset expires; [`NEVER`] if it stays.
    pub idle: u32,
    /// The networks of assets, as address and prefix length; all if the list is empty.
    pub networks: Vec<(IpAddr, u8)>,
    /// The largest UDP source port of a service.
    pub udp_port_max: u16,
    /// How keys are looked up.
    pub lookups: Lookups,
    /// The key of the hash.
    pub seed: u32,
    /// This worker's shard.
    pub shard: Shard,
}

impl AssetConfig {
    /// All hosts, and the services below the ephemeral ports, up to `entries_max` of both, which stay.
    pub fn new(entries_max: usize) -> Self {
        Self {
            entries_max,
            port_max: None,
            idle: NEVER,
            networks: Vec::new(),
            udp_port_max: UDP_PORT_MAX,
            lookups: Lookups::default(),
            seed: 0,
            shard: Shard::default(),
        }
    }
}

/// The counters of asset detection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AssetCounters {
    /// New hosts.
    pub hosts: u64,
    /// New services.
    pub services: u64,
    /// Assets that were not recorded since the table was full.
    pub refused: u64,
    /// Packets that show no asset.
    pub without: u64,
}

/// An asset's counters.
#[derive(Clone, Copy, Debug)]
struct Sight {
    packets: u64,
    first: u32,
}

/// Asset detection, with the assets it has seen.
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

/// The kind of an asset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Asset {
    /// A host, with the MAC address that it is seen behind.
    Host([u8; 6]),
    /// A service, with protocol and port.
    Service(u8, u16),
}

/// An asset, for reports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Listed {
    /// The VLAN of tagged frames.
    pub vlan: Option<u16>,
    pub address: IpAddr,
    pub asset: Asset,
    /// The time when it was first seen, in nanoseconds of the switch's clock.
    pub first_ns: u64,
    /// The time when it was last seen.
    pub last_ns: u64,
    /// Packets that showed it.
    pub packets: u64,
}

impl Assets {
    /// Asset detection that has seen nothing.
    pub fn new(config: AssetConfig) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for &(address, length) in &config.networks {
            match address {
                IpAddr::V4(a) => v4.push(Prefix::truncated(a.into(), length)),
                IpAddr::V6(a) => v6.push(Prefix::truncated(a.into(), length)),
            }
        }
        Self {
            table: AgedTable::shared(config.entries_max, config.port_max, config.seed),
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

    /// Removes assets that are due at a packet's time.
    #[inline]
    fn age_at(&mut self, now_ns: u64) -> u32 {
        let now = self.ticks.at(now_ns);
        self.table.age(now, PACKET_BUDGET);
        now
    }

    /// Records that an asset has been seen, for whose key `found` was decided.
    #[inline]
    fn commit(&mut self, key: &Key, found: Found, now: u32, port: u32) {
        if let Some(at) = self.table.commit(found) {
            self.table.entries.touch(at, now);
            self.table.entries.get_mut(at).value.packets += 1;
            return;
        }
        let sight = Sight { packets: 1, first: now };
        if self.table.learn(key, sight, self.config.idle, now, port).is_none() {
            // The asset is new all the same, so that the actions for new assets hold when a flood has filled the table.
            self.counters.refused += 1;
            return;
        }
        match key[0] & kind::SERVICE {
            0 => self.counters.hosts += 1,
            _ => self.counters.services += 1,
        }
    }

    /// Returns the keys of the host and of the service that a packet shows.
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

    /// Returns whether an address can be a host's and is in the configured networks.
    #[inline]
    fn counts(&self, address: [u32; 4], version: u32) -> bool {
        if version == 0 {
            let v4 = address[3];
            // No host has an address of 0.0.0.0/8 or 127.0.0.0/8; from 224.0.0.0 on there are groups, broadcast and
            // reserved addresses.
            let unicast = !matches!(v4 >> 24, 0 | 127 | 224..);
            return unicast && (self.anywhere || self.v4.iter().any(|network| network.contains(v4)));
        }
        let v6 = address.iter().fold(0u128, |v6, &word| v6 << 32 | u128::from(word));
        let unicast = v6 > 1 && v6 >> 120 != 0xff;
        unicast && (self.anywhere || self.v6.iter().any(|network| network.contains(v6)))
    }

    /// Returns the number of assets.
    pub fn len(&self) -> usize {
        self.table.entries.len()
    }

    /// Returns whether there is no asset.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counters.
    pub fn counters(&self) -> AssetCounters {
        self.counters
    }

    /// Returns the number of assets that have expired.
    pub fn aged(&self) -> u64 {
        self.table.aged()
    }

    /// Returns the assets in order of VLAN and address.
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

/// A decision on a packet: the state of the host and the service that it shows.
#[derive(Clone, Copy, Debug)]
pub struct AssetDecision {
    shown: [Option<(Key, Found)>; 2],
}

impl AssetDecision {
    fn shown(&self) -> impl Iterator<Item = &(Key, Found)> {
        self.shown.iter().flatten()
    }

    fn verdict(&self) -> u32 {
        verdict(self.shown().any(|(_, found)| is_new(*found)))
    }
}

/// Returns whether an asset is new.
#[inline]
fn is_new(found: Found) -> bool {
    found.live().is_none()
}

/// Returns the verdict of a packet.
#[inline]
fn verdict(shows_new: bool) -> u32 {
    if shows_new { NEW } else { KNOWN }
}

impl StatefulStage for Assets {
    const KIND: &'static str = "assets";
    const VERDICTS: &'static [&'static str] = &["known", "new"];
    type Decision = AssetDecision;

    fn process(&mut self, _: StageCall, packets: &mut Burst, lanes: LaneMask, verdicts: &mut Verdicts) {
        if self.config.lookups == Lookups::Scalar {
            for lane in lanes.lanes() {
                let (host, service) = self.shown(&packets.keys[lane], &packets.headers[lane]);
                self.counters.without += u64::from(host.is_none());
                let now = self.age_at(packets.times_ns[lane]);
                let mut new = false;
                for key in host.iter().chain(&service) {
                    let found = self.table.find(key, now);
                    new |= is_new(found);
                    self.commit(key, found, now, packets.keys[lane].word(word::IN_PORT));
                }
                verdicts[lane] = verdict(new);
            }
            return;
        }
        self.hosts.clear();
        self.services.clear();
        for lane in lanes.lanes() {
            verdicts[lane] = verdict(false);
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
        // A packet that shows a service shows its host, too.
        for host in 0..self.hosts.len() {
            let (lane, &key) = self.hosts.get(host);
            let port = packets.keys[lane].word(word::IN_PORT);
            let now = self.age_at(packets.times_ns[lane]);
            let found = self.table.decide(self.table.since(changes, &key, self.hosts.found(host)), now);
            let mut new = is_new(found);
            self.commit(&key, found, now, port);
            if service < self.services.len() && self.services.get(service).0 == lane {
                let (_, &key) = self.services.get(service);
                let found = self.table.since(changes, &key, self.services.found(service));
                let found = self.table.decide(found, now);
                new |= is_new(found);
                self.commit(&key, found, now, port);
                service += 1;
            }
            if new {
                verdicts[lane] = verdict(new);
            }
        }
    }

    fn decide(&self, _: StageCall, packet: StagePacket<'_>) -> AssetDecision {
        let (host, service) = self.shown(packet.key, packet.headers);
        let now = self.ticks.peek(packet.now_ns);
        AssetDecision { shown: [host, service].map(|key| key.map(|key| (key, self.table.find(&key, now)))) }
    }

    fn explain(&self, _: StageCall, packet: StagePacket<'_>, decision: &AssetDecision) -> Explanation {
        Explanation::unchanged(decision.verdict(), format!("assets: {}", self.reason(packet, decision)))
    }

    fn shard(&self) -> Shard {
        self.config.shard
    }

    /// By VLAN and address: a service is in the shard of its host.
    #[inline]
    fn decide_owner(&self, packet: StagePacket<'_>) -> Owner {
        if !self.config.shard.is_part() {
            return Owner::Any;
        }
        let (Some(host), _) = self.shown(packet.key, packet.headers) else { return Owner::Any };
        let hash = host[..5].iter().fold(!self.config.seed, |hash, &word| murmur3::mix(hash, word));
        Owner::Worker(self.config.shard.owner(murmur3::finish(hash, 20)))
    }

    fn age(&mut self, now_ns: u64) {
        self.age_at(now_ns);
    }

    fn table_bytes(&self) -> usize {
        self.table.table_bytes()
    }
}

/// Decodes a key into VLAN, address and kind.
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

/// Returns the upper and the lower half of a word.
#[inline]
fn halves(word: u32) -> [u16; 2] {
    [(word >> 16) as u16, word as u16]
}
