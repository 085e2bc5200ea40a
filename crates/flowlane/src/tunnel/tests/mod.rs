//! Decapsulation, lookup and encapsulation, compared with definitions that share no code with them.

mod caches;
mod captures;
mod encapsulation;
mod validation;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::one_by_one::{Key, Plain, validate};
use super::*;
use crate::generate::Random;
use crate::packet::tunnel::Inner;
use crate::packet::{FlowKey, Headers, LaneMask, parse};

fn parsed(frame: &[u8]) -> Headers {
    parse(frame, 1, &mut FlowKey::zero())
}

fn v4(last: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + last))
}

fn v6(last: u32) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from((0x2001_0db8 << 96) + u128::from(last)))
}

/// Nodes of every variant.
fn nodes(table: &EndpointTable, policy: &Policy) -> Vec<Decapsulator> {
    let mut nodes = Vec::new();
    crate::isa::testing::for_each_variant(|variant| {
        let node = Decapsulator::with_variant(table.reader(), policy.clone(), variant);
        nodes.push(node.expect("the variant is available"));
    });
    nodes
}

/// The result of a node for a frame: none, a reason, or endpoint, id, kind and inner bytes.
type Outcome = Option<Result<(EndpointId, u32, TunnelKind, Vec<u8>), Refused>>;

fn outcome(out: &Decapsulated, lane: usize, frame: &[u8]) -> Outcome {
    let is = |mask: LaneMask| mask.0 >> lane & 1 != 0;
    assert!(!(is(out.terminated) && is(out.refused)), "lane {lane} is both terminated and refused");
    if is(out.refused) {
        return Some(Err(out.reasons[lane]));
    }
    is(out.terminated).then(|| {
        let at = usize::from(out.inner_at[lane]);
        let inner = frame[at..at + usize::from(out.inner_len[lane])].to_vec();
        Ok((out.endpoint(lane), out.ids[lane], out.kinds[lane], inner))
    })
}

/// The definition: what a frame is by itself, with the table asked for its endpoint.
fn one(table: &EndpointReader, policy: &Policy, frame: &[u8], vrf: u32) -> Outcome {
    let valid = match validate(frame, &parsed(frame), vrf, policy)? {
        Ok(valid) => valid,
        Err(reason) => return Some(Err(reason)),
    };
    let endpoint = match &valid.key {
        Key::V4(key) => table.lookup_v4(key),
        Key::V6(key) => table.lookup_v6(key),
    };
    let Some(endpoint) = endpoint else { return Some(Err(Refused::UnknownEndpoint)) };
    let at = usize::from(valid.inner_at);
    let inner = frame[at..at + usize::from(valid.inner_len)].to_vec();
    Some(Ok((endpoint, valid.id, valid.kind, inner)))
}

fn terminate(node: &mut Decapsulator, frames: &[Vec<u8>], vrf: u32) -> Vec<Outcome> {
    let headers: Vec<Headers> = frames.iter().map(|frame| parsed(frame)).collect();
    let mut outcomes = Vec::new();
    let mut out = Decapsulated::new();
    for (frames, headers) in frames.chunks(BATCH_MAX).zip(headers.chunks(BATCH_MAX)) {
        let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        node.decapsulate(&slices, headers, vrf, LaneMask::first(frames.len()), &mut out);
        outcomes.extend(frames.iter().enumerate().map(|(lane, frame)| outcome(&out, lane, frame)));
    }
    outcomes
}

/// An inner frame of Ethernet and IPv4, with random bytes behind.
fn inner_frame(len: usize, random: &mut Random) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len.max(34)).map(|_| random.bits() as u8).collect();
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame
}

/// The outer frame of an inner one.
fn encapsulated(tunnel: &Encapsulation, inner: &[u8]) -> Vec<u8> {
    let encapsulator = Encapsulator::new(tunnel).expect("the tunnel is right");
    let headroom = encapsulator.header_bytes();
    let mut buffer = [&vec![0; headroom], inner].concat();
    assert_eq!(encapsulator.encapsulate(&mut buffer, headroom, 0x1234_5678), Ok(0));
    buffer
}

fn endpoint_of(tunnel: &Encapsulation, vrf: u32) -> Endpoint {
    Endpoint {
        kind: tunnel.kind,
        id: tunnel.id,
        vrf,
        source: Some(tunnel.source),
        destination: tunnel.destination,
    }
}

/// A tunnel, number `i` of many: all kinds, both IP versions.
fn tunnel(i: u32) -> Encapsulation {
    let kind = TunnelKind::ALL[i as usize % TunnelKind::ALL.len()];
    let (from, to) = if i % 6 == 5 { (v6(2 + i), v6(1)) } else { (v4(2 + i), v4(1)) };
    Encapsulation::new(kind, (100 + i / 2) & kind.id_max(), from, to)
}

/// An inner frame that a tunnel may carry: IP for GTP-U.
fn inner_for(tunnel: &Encapsulation, len: usize, random: &mut Random) -> Vec<u8> {
    let frame = inner_frame(len + 14, random);
    match tunnel.inner {
        Inner::Ethernet => frame,
        Inner::Ip(_) => frame[14..].to_vec(),
    }
}
