//! Tunnels: every variant decapsulates each encapsulated packet, and only while its endpoint exists.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Difference;
use crate::generate::Random;
use crate::isa::Variant;
use crate::packet::batch::LaneMask;
use crate::packet::key::FlowKey;
use crate::packet::tunnel::Inner;
use crate::packet::{Headers, parse};
use crate::tunnel::{
    BATCH_MAX, Decapsulated, Decapsulator, Encapsulation, Encapsulator, Endpoint, EndpointConfig, EndpointId,
    EndpointTable, Policy, Sequence, TunnelKind,
};

/// Rounds of changes and a batch.
const ROUNDS: usize = 40;

/// A tunnel, its headers, and the endpoint at its other end.
struct Tunnel {
    wrap: Encapsulator,
    endpoint: Endpoint,
}

/// Checks all variants with up to `size` tunnels. Gives the number of answers compared.
///
/// # Errors
/// The first difference.
pub fn check(seed: u64, size: usize) -> Result<u64, Box<Difference>> {
    let mut random = Random::for_purpose(seed, "check: tunnel");
    let tunnels: Vec<Tunnel> =
        (0..1 + random.index(size.max(1))).map(|i| tunnel(i as u32, &mut random)).collect();
    let config =
        EndpointConfig { endpoints_max: tunnels.len(), seed: seed as u32, ..EndpointConfig::default() };
    let mut table = EndpointTable::new(&config);
    let node = |variant| Decapsulator::with_variant(table.reader(), Policy::default(), variant);
    let mut nodes: Vec<Decapsulator> = Variant::ALL.into_iter().filter_map(node).collect();
    let mut there: HashMap<usize, EndpointId> = HashMap::new();
    let mut compared = 0;
    for round in 0..ROUNDS {
        for _ in 0..1 + tunnels.len() / 8 {
            change(&tunnels, &mut table, &mut there, &mut random);
        }
        let batch: Vec<usize> =
            (0..random.index(BATCH_MAX + 1)).map(|_| random.index(tunnels.len())).collect();
        let frames: Vec<(Vec<u8>, usize)> = batch.iter().map(|t| frame(&tunnels[*t], &mut random)).collect();
        for node in &mut nodes {
            let engine = node.variant().to_string();
            let found = terminate(node, &frames);
            for (lane, tunnel) in batch.iter().enumerate() {
                let wanted = there.get(tunnel).map(|id| (*id, frames[lane].1));
                compared += 1;
                if found[lane] != wanted {
                    return Err(Box::new(Difference {
                        part: "tunnel",
                        seed,
                        size,
                        engine,
                        step: format!("in round {round}"),
                        input: format!("lane {lane}, a packet of {:?}", tunnels[*tunnel].endpoint),
                        wanted: format!("{wanted:?}"),
                        found: format!("{:?}", found[lane]),
                    }));
                }
            }
        }
    }
    Ok(compared)
}

/// Tunnel `i`: of any kind, over either IP version, to one of few nodes.
fn tunnel(i: u32, random: &mut Random) -> Tunnel {
    let kind = TunnelKind::ALL[random.index(TunnelKind::ALL.len())];
    let far = 1 + i / 7;
    let (near, far) = match random.chance(0.7) {
        true => (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4((0xc633_6400 + far).into())),
        false => {
            let address = |n: u32| IpAddr::V6(Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(n)));
            (address(0), address(far))
        }
    };
    let id = i & kind.id_max();
    let mut encapsulation = Encapsulation::new(kind, id, far, near);
    encapsulation.checksum |= random.chance(0.2);
    if random.chance(0.2) {
        encapsulation.sequence = Some(Sequence::default());
    }
    if kind == TunnelKind::Geneve && random.chance(0.3) {
        // An option that need not be understood.
        encapsulation.options = vec![1, 2, 3, 1, 9, 9, 9, 9];
    }
    if kind == TunnelKind::Gtpu {
        encapsulation.inner = Inner::Ip(0x0800);
    }
    let endpoint = Endpoint { kind, id, vrf: 1, source: Some(far), destination: near };
    Tunnel { wrap: Encapsulator::new(&encapsulation).expect("a tunnel that can be"), endpoint }
}

/// An endpoint goes, comes, or gets another number.
fn change(
    tunnels: &[Tunnel],
    table: &mut EndpointTable,
    there: &mut HashMap<usize, EndpointId>,
    random: &mut Random,
) {
    let i = random.index(tunnels.len());
    if there.contains_key(&i) && random.chance(0.5) {
        table.remove(&tunnels[i].endpoint);
        there.remove(&i);
    } else {
        let id = EndpointId(random.bits() as u32 >> 1);
        table.insert(&tunnels[i].endpoint, id).expect("there is room for all");
        there.insert(i, id);
    }
}

/// Returns a packet of a tunnel, and where the inner one begins.
fn frame(tunnel: &Tunnel, random: &mut Random) -> (Vec<u8>, usize) {
    let front = tunnel.wrap.header_bytes();
    let mut bytes = vec![0; front];
    // An Ethernet frame or an IPv4 packet, of which only the first bytes are looked at.
    let mut inner: Vec<u8> = (0..60 + random.index(60)).map(|_| random.bits() as u8).collect();
    inner[0] = 0x45;
    bytes.extend(inner);
    let start = tunnel.wrap.encapsulate(&mut bytes, front, random.bits() as u32).expect("it is short");
    (bytes.split_off(start), front)
}

/// Returns the endpoint and the beginning of the inner packet, of each frame that is terminated.
fn terminate(node: &mut Decapsulator, frames: &[(Vec<u8>, usize)]) -> Vec<Option<(EndpointId, usize)>> {
    let bytes: Vec<&[u8]> = frames.iter().map(|(bytes, _)| bytes.as_slice()).collect();
    let headers: Vec<Headers> = bytes.iter().map(|b| parse(b, 0, &mut FlowKey::zero())).collect();
    let mut out = Decapsulated::new();
    node.decapsulate(&bytes, &headers, 1, LaneMask::first(bytes.len()), &mut out);
    let terminated = |lane: usize| out.terminated.0 >> lane & 1 == 1;
    (0..bytes.len())
        .map(|lane| terminated(lane).then(|| (out.endpoint(lane), usize::from(out.inner_at[lane]))))
        .collect()
}
