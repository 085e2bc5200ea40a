//! The switch's tunnels: termination of received packets, and encapsulation of packets that leave.
//!
//! ```text
//! in    parsed burst ─ Decapsulator ─┬ terminated: outer headers go, the inner frame is parsed, tun_* and in_port set,
//!                                    │             congestion outside is marked inside (RFC 6040), or the packet dropped
//!                                    ├ for this node, but refused: dropped, counted by reason
//!                                    └ others' tunnels, no tunnel: go on as they are
//! out   `encap:N` ─ Encapsulator of tunnel N ─ what follows sees the outer headers
//! ```
//!
//! Without configured tunnels, the packets of every tunnel are terminated ([`Tunnels::of_anyone`]).
//!
//! Tunnels are no [`StatefulStage`](crate::stage::StatefulStage). Termination comes before the first table: it has no
//! verdict that rules name, and replaces the packet instead of judging it. Encapsulation is one primitive operation in
//! the middle of an action list, with the tunnel's number as its argument. Both take their arguments per call and keep only
//! counters as state.
//!
//! Tunnels that are ports ([`PortTunnel`]) are others: their packets come out of the tunnel and into the port, whatever is configured
//! here.

mod port_erspan;
mod port_spec;
mod port_tunnel;

pub use port_erspan::ErspanSpec;
pub use port_spec::{Local, PortTunnelError, PortTunnelSpec};
pub use port_tunnel::{PortTunnel, PortTunnels};

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::LazyLock;

use flowlane::cache::flow_hash::FlowHash;
use flowlane::packet::batch::LaneMask;
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::ether_type;
use flowlane::packet::tunnel::Inner;
use flowlane::packet::{Field, Headers, Network, Parser, Transport};
use flowlane::tunnel::{
    BATCH_MAX, Decapsulated, Decapsulator, Encapsulation, EncapsulationError, Encapsulator, Endpoint,
    EndpointConfig, EndpointError, EndpointId, EndpointTable, OptionArea, OptionMap, PerPacket, Policy,
    Refused, TunnelKind,
};

use crate::packet::length::ip_bytes;
use crate::packet::{Burst, Frame, Termination, decapsulate};

const ETHERNET_BYTES: usize = 14;

/// The configuration of a tunnel.
#[derive(Clone, Debug)]
pub struct TunnelSpec {
    /// The number in actions.
    pub number: u32,
    /// The name in reports.
    pub name: String,
    /// The endpoint whose packets are terminated, if any.
    pub endpoint: Option<Endpoint>,
    /// The headers of packets that leave; `None` if no packet leaves.
    pub encapsulation: Option<Encapsulation>,
    /// The `in_port` of decapsulated packets; `None` for the port that received them.
    pub in_port: Option<u32>,
}

/// A tunnel, with its counters.
#[derive(Debug)]
pub struct Tunnel {
    /// As it was configured.
    pub spec: TunnelSpec,
    /// Packets that came out of it.
    pub received_packets: u64,
    /// Bytes of the inner packets.
    pub received_bytes: u64,
    /// Packets that went into it.
    pub sent_packets: u64,
    /// Their bytes, outer headers included.
    pub sent_bytes: u64,
}

/// A tunnel that cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunnelError {
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    Encapsulation(#[from] EncapsulationError),
    /// The endpoint of another.
    #[error("its packets are those of tunnel {0} too; give them different ids, addresses or VRFs")]
    Twice(u32),
}

/// The reason why a packet was not encapsulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// It is longer than the tunnel's MTU allows.
    TooLong,
    /// The tunnel carries IP of one version, and the packet is none of that version.
    NotIp,
    /// There is no such tunnel, or nothing leaves through it.
    NoTunnel,
}

/// All tunnels of a worker.
pub struct Tunnels {
    tunnels: Vec<Tunnel>,
    encapsulators: Vec<Option<Encapsulator>>,
    /// Places of the tunnels by number.
    places: HashMap<u32, usize>,
    /// Kept because endpoints are looked up in it; the decapsulator reads it.
    endpoints: EndpointTable,
    decapsulator: Decapsulator,
    found: Box<Decapsulated>,
    /// The addresses at which tunnels end here.
    local: HashSet<IpAddr>,
    /// All tunnels end here, configured or not.
    of_anyone: bool,
    refused: Vec<u64>,
    flow_hash: FlowHash,
}

impl Tunnels {
    /// The tunnels of a configuration. The seed keys the hashes of endpoints and flows.
    ///
    /// # Errors
    /// The number of the first tunnel that cannot be made, and why.
    pub fn new(specs: &[TunnelSpec], policy: Policy, seed: u32) -> Result<Self, (u32, TunnelError)> {
        let config = EndpointConfig { endpoints_max: specs.len(), seed, ..EndpointConfig::default() };
        let mut endpoints = EndpointTable::new(&config);
        let (mut tunnels, mut encapsulators) = (Vec::new(), Vec::new());
        let mut local = HashSet::new();
        for (place, spec) in specs.iter().enumerate() {
            let failed = |error: TunnelError| (spec.number, error);
            if let Some(endpoint) = &spec.endpoint {
                local.insert(endpoint.destination);
                let inserted = endpoints.insert(endpoint, EndpointId(place as u32));
                if let Some(before) = inserted.map_err(|e| failed(e.into()))? {
                    return Err(failed(TunnelError::Twice(specs[before.0 as usize].number)));
                }
            }
            let encapsulator = spec.encapsulation.as_ref().map(Encapsulator::new).transpose();
            encapsulators.push(encapsulator.map_err(|e| failed(e.into()))?);
            tunnels.push(Tunnel {
                spec: spec.clone(),
                received_packets: 0,
                received_bytes: 0,
                sent_packets: 0,
                sent_bytes: 0,
            });
        }
        let decapsulator = Decapsulator::new(endpoints.reader(), policy);
        Ok(Self {
            tunnels,
            encapsulators,
            places: specs.iter().enumerate().map(|(place, spec)| (spec.number, place)).collect(),
            endpoints,
            decapsulator,
            found: Box::default(),
            local,
            of_anyone: false,
            refused: vec![0; Refused::ALL.len()],
            flow_hash: FlowHash::new(u64::from(seed) ^ 0x7455_6e31),
        })
    }

    /// Decapsulates every tunnel's packets, whatever their address; no tunnel is configured. Of the policy the GENEVE
    /// options count.
    pub fn of_anyone(policy: Policy) -> Self {
        let none = Self::new(&[], policy, 0);
        Self { of_anyone: true, ..none.expect("no tunnel is wrong where there is none") }
    }

    /// Takes part in the sequence numbers of another worker with the same tunnels.
    pub(crate) fn share_sequences(&mut self, other: &Self) {
        for (own, other) in self.encapsulators.iter_mut().zip(&other.encapsulators) {
            if let (Some(own), Some(other)) = (own, other) {
                own.share_sequence(other);
            }
        }
    }

    /// The tunnels, in order.
    pub fn tunnels(&self) -> &[Tunnel] {
        &self.tunnels
    }

    /// The numbers of those that packets may leave through.
    pub fn leaving(&self) -> impl Iterator<Item = u32> {
        let leaving = self.tunnels().iter().filter(|tunnel| tunnel.spec.encapsulation.is_some());
        leaving.map(|tunnel| tunnel.spec.number)
    }

    /// The longest IP packet that fits into a tunnel; none where nothing leaves through it.
    pub(crate) fn inner_max(&self, number: u32) -> Option<u16> {
        let place = *self.places.get(&number)?;
        let (wrap, out) =
            (self.encapsulators[place].as_ref()?, self.tunnels[place].spec.encapsulation.as_ref()?);
        let inner_ethernet = if out.inner == Inner::Ethernet { ETHERNET_BYTES } else { 0 };
        let headers = wrap.header_bytes() - ETHERNET_BYTES + inner_ethernet;
        Some(usize::from(out.mtu).saturating_sub(headers) as u16)
    }

    /// The checks of packets, and the fields of GENEVE options.
    pub(crate) fn policy(&self) -> &Policy {
        self.decapsulator.policy()
    }

    /// Gives GENEVE options other fields.
    pub(crate) fn set_option_fields(&mut self, fields: OptionMap) {
        self.decapsulator.set_option_fields(fields);
    }

    /// The headers that are removed of a packet, whatever its endpoints; `tunnels` are those of the switch.
    pub(crate) fn termination<'a>(
        tunnels: Option<&'a Self>,
        frame: &[u8],
        headers: &Headers,
    ) -> Termination<'a> {
        static OF_ANYONE: LazyLock<Policy> = LazyLock::new(Policy::default);
        let policy = tunnels.map_or(&*OF_ANYONE, Self::policy);
        let is_configured = tunnels.is_some_and(|tunnels| !tunnels.of_anyone);
        let kind = policy.kind_of(frame, headers).filter(|_| is_configured);
        Termination { kind, policy, takes_ip: true }
    }

    /// Bytes of the table of endpoints.
    pub fn table_bytes(&self) -> usize {
        self.endpoints.table_bytes()
    }

    /// How many packets for this node were refused, by reason.
    pub fn refused(&self) -> impl Iterator<Item = (Refused, u64)> {
        Refused::ALL.into_iter().zip(self.refused.iter().copied())
    }

    /// Terminates the tunnels among a burst's frames, which came in through a port of `vrf`; returns the lanes that
    /// are to be dropped.
    pub fn terminate(&mut self, parser: &Parser, burst: &mut Burst, (in_port, vrf): (u32, u32)) -> LaneMask {
        if self.of_anyone {
            let termination = Termination { kind: None, policy: self.decapsulator.policy(), takes_ip: true };
            return decapsulate_all(parser, burst, in_port, termination, &mut self.refused);
        }
        let len = burst.len();
        let Burst { frames, keys, headers, .. } = burst;
        let (frames, keys, headers) = (&mut frames[..], &mut keys[..len], &mut headers[..len]);
        let mut bytes: [&[u8]; BATCH_MAX] = [&[]; BATCH_MAX];
        let mut sound = LaneMask(0);
        for (lane, frame) in frames.iter().enumerate() {
            bytes[lane] = frame.bytes();
            sound.0 |= u64::from(headers[lane].malformed.is_none()) << lane;
        }
        self.decapsulator.decapsulate(&bytes[..frames.len()], headers, vrf, sound, &mut self.found);
        let policy = self.decapsulator.policy();
        let mut drop = LaneMask(0);
        for lane in self.found.terminated.lanes() {
            let tunnel = &mut self.tunnels[self.found.endpoint(lane).0 as usize];
            let (at, len) = (self.found.inner_at[lane], self.found.inner_len[lane]);
            let (frame, key) = (&mut frames[lane], &mut keys[lane]);
            frame.truncate(usize::from(at) + usize::from(len));
            let port = tunnel.spec.in_port.unwrap_or(in_port);
            let termination = Termination { kind: Some(self.found.kinds[lane]), policy, takes_ip: true };
            match decapsulate(parser, frame, port, headers[lane], key, termination, 0) {
                Ok(inner) => headers[lane] = inner,
                Err(reason) => {
                    self.refused[reason as usize] += 1;
                    drop.0 |= 1 << lane;
                    continue;
                }
            }
            tunnel.received_packets += 1;
            tunnel.received_bytes += u64::from(len);
        }
        for lane in self.found.refused.lanes() {
            // What others' tunnels look like is not this node's to judge.
            if self.local.contains(&destination(&keys[lane])) {
                self.refused[self.found.reasons[lane] as usize] += 1;
                drop.0 |= 1 << lane;
            }
        }
        drop
    }

    /// Puts a tunnel's headers in front of a packet whose key was `key`, and counts it. After an error the packet is unchanged.
    ///
    /// # Errors
    /// Why it cannot go into the tunnel.
    pub fn encapsulate(
        &mut self,
        number: u32,
        frame: &mut Frame,
        headers: &mut Headers,
        key: &FlowKey,
    ) -> Result<(), Unsent> {
        let place = self.wrap(number, frame, headers, key)?;
        let tunnel = &mut self.tunnels[place];
        tunnel.sent_packets += 1;
        tunnel.sent_bytes += frame.len() as u64;
        Ok(())
    }

    /// Puts a tunnel's headers in front of a packet without counting it, as a dry run does. Returns the tunnel's position.
    pub(crate) fn wrap(
        &self,
        number: u32,
        frame: &mut Frame,
        headers: &mut Headers,
        key: &FlowKey,
    ) -> Result<usize, Unsent> {
        let place = *self.places.get(&number).ok_or(Unsent::NoTunnel)?;
        let wrap = self.encapsulators[place].as_ref().ok_or(Unsent::NoTunnel)?;
        let tunnel = &self.tunnels[place];
        let is_geneve = tunnel.spec.encapsulation.as_ref().is_some_and(|out| out.kind == TunnelKind::Geneve);
        let has_options = is_geneve && key.get(Field::TunMetadataPresent) != 0;
        let options = if has_options { self.policy().option_fields.write(key) } else { OptionArea::NONE };
        let packet = PerPacket { flow_hash: self.flow_hash.of(key), options: options.bytes(), time_100us: 0 };
        tunnel.push(wrap, frame, headers, &packet)?;
        Ok(place)
    }
}

/// Takes a burst's packets out of their tunnels, whatever their endpoints. Returns the lanes that are refused, which it counts by reason.
fn decapsulate_all(
    parser: &Parser,
    burst: &mut Burst,
    in_port: u32,
    termination: Termination<'_>,
    refused: &mut [u64],
) -> LaneMask {
    let Burst { frames, keys, headers, .. } = burst;
    let mut drop = LaneMask(0);
    for (lane, ((frame, key), headers)) in
        frames.iter_mut().zip(keys.iter_mut()).zip(headers.iter_mut()).enumerate()
    {
        match decapsulate(parser, frame, in_port, *headers, key, termination, 0) {
            Ok(inner) => *headers = inner,
            Err(reason) => {
                refused[reason as usize] += 1;
                drop.0 |= 1 << lane;
            }
        }
    }
    drop
}

impl Tunnel {
    fn push(
        &self,
        wrap: &Encapsulator,
        frame: &mut Frame,
        headers: &mut Headers,
        packet: &PerPacket<'_>,
    ) -> Result<(), Unsent> {
        let Some(encapsulation) = &self.spec.encapsulation else { return Err(Unsent::NoTunnel) };
        let inner_at = match encapsulation.inner {
            Inner::Ethernet => 0,
            Inner::Ip(kind) => match headers.network {
                Network::Ipv4 if kind == ether_type::IPV4 => usize::from(headers.l3),
                Network::Ipv6 if kind == ether_type::IPV6 => usize::from(headers.l3),
                _ => return Err(Unsent::NotIp),
            },
        };
        if inner_at > 0 {
            // The padding of a short Ethernet frame is no part of the IP packet.
            frame.truncate(inner_at + ip_bytes(&frame.bytes()[inner_at..]));
        }
        // Bytes in front of the IP header are overwritten.
        let more = (wrap.header_bytes() + packet.options.len()).saturating_sub(inner_at);
        frame.push(more);
        match wrap.encapsulate_with(frame.bytes_mut(), inner_at + more, packet) {
            Ok(start) => frame.pull(start),
            Err(_) => {
                frame.pull(more);
                return Err(Unsent::TooLong);
            }
        }
        *headers = outer_headers(encapsulation);
        Ok(())
    }
}

/// Returns the header offsets of an outer frame.
fn outer_headers(encapsulation: &Encapsulation) -> Headers {
    let (network, l4) = match encapsulation.destination {
        IpAddr::V4(_) => (Network::Ipv4, 14 + 20),
        IpAddr::V6(_) => (Network::Ipv6, 14 + 40),
    };
    let (transport, len) = match encapsulation.kind {
        TunnelKind::Gre | TunnelKind::Erspan => (Transport::Gre, 4),
        TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gtpu => (Transport::Udp, 8),
    };
    Headers { l3: 14, l4, payload: l4 + len, network, transport, ..Headers::default() }
}

/// Returns an IP packet's destination.
fn destination(key: &FlowKey) -> IpAddr {
    match key.word(word::VLAN_ETH_TYPE) as u16 {
        ether_type::IPV6 => IpAddr::V6((key.get(Field::Ipv6Dst)).into()),
        _ => IpAddr::V4(key.word(word::IPV4_DST).into()),
    }
}
