//! The megaflow cache alone: S masks × R megaflows, packets that match one each, uniformly; each design and
//! variant in turn.
//!
//! `cargo bench -p flowlane --bench megaflow [S R] [DESIGN-VARIANT …]`; 1, 5, 10, 20 and 40 masks of
//! 2000 megaflows, and all of them, where none is given.

mod support;

use std::hint::black_box;

use flowlane::cache::{Design, FlowRef, MegaflowCache, MegaflowConfig};
use flowlane::generate::Random;
use flowlane::isa::Variant;
use flowlane::packet::batch::LaneMask;
use flowlane::packet::fields::word;
use flowlane::packet::{Field, FlowKey, FlowMask};

const PACKETS: usize = 1 << 14;
const BURST: usize = 64;

/// Source prefixes of 8 to 31 bits with the whole destination, and beyond 24 masks the destination port.
fn mask(i: usize) -> FlowMask {
    let mut mask = FlowMask::zero();
    mask.add_field(Field::EthType);
    mask.add_field(Field::NwProto);
    mask.add_field(Field::IpFrag);
    mask.add_field(Field::Ipv4Dst);
    mask.set_masked(Field::Ipv4Src, u128::MAX, u128::from(u32::MAX << (24 - i % 24)));
    if i >= 24 {
        mask.add_field(Field::TpDst);
    }
    mask
}

fn key(random: &mut Random) -> FlowKey {
    let mut key = FlowKey::zero();
    key.set(Field::InPort, 1);
    key.set(Field::EthSrc, 0x0202_0000_0001);
    key.set(Field::EthDst, 0x0200_0000_0002);
    key.set(Field::EthType, 0x0800);
    key.set(Field::NwProto, 17);
    key.set(Field::NwTtl, 64);
    key.set(Field::Ipv4Src, u128::from(random.bits() as u32));
    key.set(Field::Ipv4Dst, u128::from(random.bits() as u32));
    key.set(Field::TpSrc, u128::from(random.bits() as u16));
    key.set(Field::TpDst, u128::from(random.bits() as u16));
    key
}

fn measure(masks: usize, flows: usize, only: &[String]) {
    let mut random = Random::new(7);
    let masks: Vec<FlowMask> = (0..masks).map(mask).collect();
    let made: Vec<(FlowKey, usize)> =
        (0..masks.len() * flows).map(|i| (key(&mut random), i % masks.len())).collect();
    let packets: Vec<FlowKey> = (0..PACKETS)
        .map(|_| {
            let (flow, at) = &made[random.below(made.len() as u64) as usize];
            let mut packet = key(&mut random);
            for w in masks[*at].present_words() {
                packet.set_word(w, packet.word(w) & !masks[*at].word(w) | flow.word(w) & masks[*at].word(w));
            }
            packet
        })
        .collect();
    let mut names = Vec::new();
    let mut caches = Vec::new();
    let mut probes = 0.0;
    for design in [Design::Fixed, Design::Majority] {
        for variant in Variant::ALL.into_iter().filter(|v| v.available()) {
            let name = format!("{design}-{variant}");
            let unasked = !only.is_empty() && !only.contains(&name);
            if design == Design::Fixed && variant == Variant::Sse42 || unasked {
                continue;
            }
            let (design, variant) = (Some(design), Some(variant));
            let config = MegaflowConfig { design, variant, seed: 5, ..Default::default() };
            let mut cache = MegaflowCache::new(config);
            for (flow, at) in &made {
                cache.insert(flow, &masks[*at], *at as u32, 0, 0).expect("there is room");
            }
            names.push(name);
            caches.push(cache);
        }
    }
    for cache in &mut caches {
        lookup(cache, &packets);
        probes = cache.counters().probes as f64 / cache.counters().lookups as f64;
    }
    let mut bodies: Vec<support::Body<'_>> = Vec::new();
    for (name, cache) in names.iter().zip(&mut caches) {
        bodies.push((name, Box::new(|| lookup(cache, &packets))));
    }
    let title = format!("{} masks × {flows} megaflows, {probes:.1} probes a packet", masks.len());
    support::compare(&title, PACKETS as u64, 31, &mut bodies);
}

fn lookup(cache: &mut MegaflowCache, packets: &[FlowKey]) {
    let mut keys = packets[..BURST].to_vec();
    for burst in packets.chunks(BURST) {
        // What a parser would have written just before: a burst's keys are in the nearest cache.
        for (key, packet) in keys.iter_mut().zip(burst) {
            for w in [word::PORTS, word::IPV4_SRC, word::IPV4_DST] {
                key.set_word(w, packet.word(w));
            }
        }
        let mut found = [FlowRef::NONE; BURST];
        let left = cache.lookup_batch(&keys, LaneMask::first(burst.len()), &mut found);
        assert!(left.is_empty());
        black_box(&found);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let numbers: Vec<usize> = arguments.iter().filter_map(|a| a.parse().ok()).collect();
    let names: Vec<String> = arguments.into_iter().filter(|a| a.parse::<usize>().is_err()).collect();
    match numbers[..] {
        [masks, flows] => measure(masks, flows, &names),
        _ => [1, 5, 10, 20, 40].into_iter().for_each(|masks| measure(masks, 2000, &names)),
    }
}
