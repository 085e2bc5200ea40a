//! The designs against the library's node, which has tests of its own against the definition.

use std::net::IpAddr;

use flowlane::generate::Random;
use flowlane::isa::testing::for_each_variant;
use flowlane::packet::tunnel::Inner;
use flowlane::packet::{FlowKey, parse};
use flowlane::tunnel::{
    self, Encapsulation, Encapsulator, Endpoint, EndpointConfig, EndpointId, EndpointTable, TunnelKind,
};

use super::*;

/// Tunnel `i`: all kinds, both IP versions.
fn encapsulation(i: u32) -> Encapsulation {
    let address = |last: u32| match i % 6 {
        5 => IpAddr::V6(((0x2001_0db8 << 96) + u128::from(last)).into()),
        _ => IpAddr::V4((0x0a00_0000 + last).into()),
    };
    let kind = TunnelKind::ALL[i as usize % TunnelKind::ALL.len()];
    Encapsulation::new(kind, (100 + i / 2) & kind.id_max(), address(2 + i), address(1))
}

fn endpoint(i: u32) -> Endpoint {
    let Encapsulation { kind, id, source, destination, .. } = encapsulation(i);
    Endpoint { kind, id, vrf: 3, source: Some(source), destination }
}

/// A packet of a tunnel, sometimes damaged, tagged, or with a checksum.
fn frame(i: u32, random: &mut Random) -> Vec<u8> {
    let mut encapsulation = encapsulation(i);
    encapsulation.checksum |= random.chance(0.1);
    let wrap = Encapsulator::new(&encapsulation).expect("the tunnel is right");
    let front = wrap.header_bytes();
    let mut buffer = vec![0; front];
    buffer.extend((0..60 + random.index(60)).map(|_| random.bits() as u8));
    buffer[front] = 0x45;
    let start = wrap.encapsulate(&mut buffer, front, random.bits() as u32).expect("it is short");
    let mut frame = buffer.split_off(start);
    if random.chance(0.1) {
        let at = random.index(frame.len());
        frame[at] ^= 1 << random.index(8);
    }
    if random.chance(0.05) {
        frame.splice(12..12, [0x81, 0, 0, 7]);
    }
    frame
}

/// Endpoint, id, offsets, kind and contents of a terminated tunnel.
type Found = (u32, u32, u16, u16, TunnelKind, Inner);

/// The comparable outcome of a batch.
fn outcome(out: &Decapsulated) -> Vec<Option<Result<Found, Refused>>> {
    let lane = |lane: usize| {
        if out.refused.0 >> lane & 1 == 1 {
            return Some(Err(out.reasons[lane]));
        }
        let place = (out.inner_at[lane], out.inner_len[lane]);
        let valid = (out.endpoints[lane], out.ids[lane], place.0, place.1, out.kinds[lane], out.inner[lane]);
        (out.terminated.0 >> lane & 1 == 1).then_some(Ok(valid))
    };
    (0..BATCH_MAX).map(lane).collect()
}

#[test]
fn every_design_and_variant_does_what_the_librarys_node_does_while_endpoints_come_and_go() {
    for_each_variant(|variant| {
        for (design, tunnels) in Design::ALL.into_iter().flat_map(|d| [1, 2, 8, 9, 200].map(|n| (d, n))) {
            let random = &mut Random::new(17);
            let mut table = EndpointTable::new(&EndpointConfig::default());
            let policy = Policy::default();
            let mut library = tunnel::Decapsulator::new(table.reader(), policy.clone());
            let node = Decapsulator::with_variant(table.reader(), policy, design, variant);
            let mut node = node.expect("is available");
            for step in 0..100 {
                let i = random.below(tunnels) as u32;
                if random.chance(0.3) {
                    table.remove(&endpoint(i));
                } else {
                    // A new number for the same endpoint invalidates the old one.
                    table.insert(&endpoint(i), EndpointId(step)).expect("there is room");
                }
                let count = random.index(BATCH_MAX + 1);
                let frames: Vec<Vec<u8>> =
                    (0..count).map(|_| frame(random.below(tunnels) as u32, random)).collect();
                let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
                let headers: Vec<Headers> =
                    frames.iter().map(|frame| parse(frame, 1, &mut FlowKey::zero())).collect();
                let live = LaneMask(random.bits() | random.bits());
                let (mut found, mut wanted) = (Decapsulated::new(), Decapsulated::new());
                node.decapsulate(&frames, &headers, 3, live, &mut found);
                library.decapsulate(&frames, &headers, 3, live, &mut wanted);
                let what = format!("{} {variant}, {tunnels} tunnels, step {step}", design.name());
                assert_eq!(outcome(&found), outcome(&wanted), "{what}");
                assert_eq!(node.refused(), library.refused(), "{what}");
            }
        }
    });
}

#[test]
fn keys_alone_are_found_as_in_the_table() {
    let mut table = EndpointTable::new(&EndpointConfig::default());
    let address = |last: u32| IpAddr::V4((0x0a00_0000 + last).into());
    let endpoint = |i: u32| Endpoint {
        kind: TunnelKind::Vxlan,
        id: i,
        vrf: 0,
        source: Some(address(i)),
        destination: address(1),
    };
    for i in (0..900).step_by(3) {
        table.insert(&endpoint(i), EndpointId(i)).expect("there is room");
    }
    let random = &mut Random::new(8);
    for_each_variant(|variant| {
        for design in Design::ALL {
            let mut cache =
                EndpointCache::with_variant(table.reader(), design, variant).expect("is available");
            for range in [900, 12, 2].into_iter().cycle().take(300) {
                let numbers: Vec<u32> = (0..random.index(65)).map(|_| random.below(range) as u32).collect();
                let keys: Vec<V4Key> = numbers.iter().filter_map(|i| endpoint(*i).v4_key()).collect();
                let mut found = vec![u32::MAX; keys.len()];
                let hits = cache.lookup_batch(&keys, &mut found);
                for (lane, number) in numbers.iter().enumerate() {
                    let hit = hits.0 >> lane & 1 != 0;
                    assert_eq!(hit, number % 3 == 0, "{} {variant} {number}", design.name());
                    assert!(!hit || found[lane] == *number);
                }
            }
        }
    });
}

/// Passes `frames` empty frames from a VRF to a node.
fn decapsulate(frames: usize, vrf: u32) {
    let table = EndpointTable::new(&EndpointConfig::default());
    let (reader, policy) = (table.reader(), Policy::default());
    let node = Decapsulator::with_variant(reader, policy, Design::OneEntry, Variant::Scalar);
    let headers = vec![parse(&[], 1, &mut FlowKey::zero()); frames];
    let (frames, mut out) = (vec![&b""[..]; frames], Decapsulated::new());
    node.expect("is always available").decapsulate(&frames, &headers, vrf, LaneMask(!0), &mut out);
}

#[test]
fn a_whole_batch_of_the_last_vrf_is_taken() {
    decapsulate(BATCH_MAX, VRF_MAX);
}

#[test]
#[should_panic(expected = "a batch of 65 frames is longer than 64")]
fn a_batch_beyond_the_longest_panics() {
    decapsulate(BATCH_MAX + 1, 0);
}

#[test]
#[should_panic(expected = "the VRF 16777216 is larger than 16777215")]
fn a_vrf_beyond_the_last_panics() {
    decapsulate(1, VRF_MAX + 1);
}
