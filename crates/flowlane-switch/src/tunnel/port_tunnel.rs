//! Tunnels that are ports: packets that a port receives come out of the tunnel, and those that it sends go into it.
//!
//! The port itself carries outer frames, whole ones; their Ethernet addresses mean nothing, and the source is no address where the
//! system is to choose it.
//!
//! ```text
//! key (tun_dst, tun_id, tun_metadata …) ─┬─► outer headers ─► in front of the frame ─► port
//!                    PortTunnelSpec ─────┘        kept for further packets
//! ```

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use flowlane::cache::flow_hash::FlowHash;
use flowlane::packet::batch::LaneMask;
use flowlane::packet::key::FlowKey;
use flowlane::packet::tunnel::erspan::Erspan;
use flowlane::packet::{Field, Parser};
use flowlane::tunnel::{Encapsulation, Encapsulator, PerPacket, Policy, Refused, Tos, TunnelKind};

use super::{Local, PortTunnelSpec, Unsent, decapsulate_all};
use crate::packet::{Burst, Frame, Termination};

/// Outer headers that are kept for a port. They are made again where there are more.
const KEPT_MAX: usize = 1024;

/// The fields in which the outer headers of a port's packets differ, options and lengths apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Outer {
    source: IpAddr,
    destination: IpAddr,
    id: u32,
    ttl: u8,
    erspan: Erspan,
}

/// The tunnel of a port.
#[derive(Debug)]
pub struct PortTunnel {
    spec: PortTunnelSpec,
    /// By packets' fields, which others choose: the hash has a secret.
    kept: HashMap<Outer, Encapsulator>,
    flow_hash: FlowHash,
}

/// The checks of packets that come out of ports' tunnels, and how many were refused, by reason.
#[derive(Debug)]
pub struct PortTunnels {
    pub(crate) policy: Policy,
    refused: Vec<u64>,
}

impl Default for PortTunnels {
    fn default() -> Self {
        Self { policy: Policy::default(), refused: vec![0; Refused::ALL.len()] }
    }
}

impl PortTunnels {
    /// With these checks, and fields of options.
    pub fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Takes the packets of a burst out of the tunnel of their port. Returns the lanes that are to be dropped: no
    /// other packets come in there.
    pub(crate) fn terminate(
        &mut self,
        parser: &Parser,
        burst: &mut Burst,
        in_port: u32,
        kind: TunnelKind,
    ) -> LaneMask {
        let termination = Termination { kind: Some(kind), policy: &self.policy, takes_ip: false };
        let mut drop = decapsulate_all(parser, burst, in_port, termination, &mut self.refused);
        for (lane, key) in burst.keys[..burst.frames.len()].iter().enumerate() {
            if key.get(Field::TunType) != kind as u128 {
                drop.0 |= 1 << lane;
            }
        }
        drop
    }

    /// How many packets were refused, by reason.
    pub fn refused(&self) -> impl Iterator<Item = (Refused, u64)> {
        Refused::ALL.into_iter().zip(self.refused.iter().copied())
    }
}

impl PortTunnel {
    /// The tunnel of a specification.
    pub fn new(spec: PortTunnelSpec) -> Self {
        let kept = HashMap::new();
        let flow_hash = FlowHash::new(kept.hasher().hash_one(()));
        Self { spec, kept, flow_hash }
    }

    /// The protocol.
    pub fn kind(&self) -> TunnelKind {
        self.spec.kind
    }

    /// Makes `out` a frame behind the tunnel's headers.
    ///
    /// # Errors
    /// Why it cannot go into the tunnel; what `out` is then is unspecified.
    pub(crate) fn wrap(
        &mut self,
        frame: &Frame,
        key: &FlowKey,
        policy: &Policy,
        out: &mut Frame,
    ) -> Result<(), Unsent> {
        let outer = self.outer(key).ok_or(Unsent::NoTunnel)?;
        let has_options = self.spec.kind == TunnelKind::Geneve && key.get(Field::TunMetadataPresent) != 0;
        let options = has_options.then(|| policy.option_fields.write(key));
        let options = options.as_ref().map_or(&[][..], |options| options.bytes());
        let time_100us = if matches!(outer.erspan, Erspan::Version2 { .. }) { time_100us() } else { 0 };
        let packet = PerPacket { flow_hash: self.flow_hash.of(key), options, time_100us };
        if self.kept.len() >= KEPT_MAX && !self.kept.contains_key(&outer) {
            self.kept.clear();
        }
        let wrap = match self.kept.entry(outer) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(encapsulator(&self.spec, outer).ok_or(Unsent::NoTunnel)?)
            }
        };
        out.fill(frame.bytes());
        (out.time_ns, out.queue) = (frame.time_ns, frame.queue);
        let headers = wrap.header_bytes() + options.len();
        out.push(headers);
        match wrap.encapsulate_with(out.bytes_mut(), headers, &packet) {
            Ok(start) => out.pull(start),
            Err(_) => return Err(Unsent::TooLong),
        }
        Ok(())
    }

    /// The outer headers of a packet; none where neither it nor the port says where it goes.
    fn outer(&self, key: &FlowKey) -> Option<Outer> {
        let destination = self.spec.remote.or_else(|| address(key, Field::TunDst, Field::TunIpv6Dst))?;
        let source = match self.spec.local {
            Local::Any => None,
            Local::Address(address) => Some(address),
            Local::Flow => address(key, Field::TunSrc, Field::TunIpv6Src),
        };
        let source = source.filter(|source| source.is_ipv4() == destination.is_ipv4());
        let ttl = self.spec.ttl.or_else(|| Some(key.get(Field::NwTtl) as u8).filter(|ttl| *ttl > 0));
        Some(Outer {
            source: source.unwrap_or(PortTunnelSpec::unspecified(destination)),
            destination,
            id: self.spec.out_key.unwrap_or(key.get(Field::TunId) as u32 & self.spec.kind.id_max()),
            ttl: ttl.unwrap_or(64),
            erspan: self.spec.erspan.of(key)?,
        })
    }
}

/// The time of the system in units of 100 µs, which ERSPAN says to its receiver: its lower bits.
fn time_100us() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_micros() / 100) as u32
}

/// The address in one of two fields.
fn address(key: &FlowKey, v4: Field, v6: Field) -> Option<IpAddr> {
    match (key.get(v4), key.get(v6)) {
        (0, 0) => None,
        (0, v6) => Some(Ipv6Addr::from(v6).into()),
        (v4, _) => Some(Ipv4Addr::from(v4 as u32).into()),
    }
}

/// The headers; none where they are impossible.
fn encapsulator(spec: &PortTunnelSpec, outer: Outer) -> Option<Encapsulator> {
    let mut out = Encapsulation::new(spec.kind, outer.id, outer.source, outer.destination);
    (out.ttl, out.port, out.mtu) = (outer.ttl, spec.port, u16::MAX);
    out.tos = spec.tos.map_or(Tos::Inner, |tos| Tos::Dscp(tos >> 2));
    (out.has_key, out.sequence, out.erspan) = (spec.has_key, spec.sequence.clone(), outer.erspan);
    // The system computes that of UDP: the source may not be known here.
    out.checksum = spec.checksum && spec.port.is_none();
    Encapsulator::new(&out).ok()
}
