//! The exact-match cache: lookups against the number of flows that the traffic has, by hit ratio.

use std::hint::black_box;

use flowlane::cache::{ExactMatchCache, FlowRef, MegaflowCache, MegaflowConfig};
use flowlane::generate::Random;
use flowlane::packet::batch::LaneMask;
use flowlane::packet::{FlowKey, FlowMask};

use super::Context;
use crate::figure::Figure;
use crate::machine::bytes;
use crate::measure::{Body, Meter};
use crate::packets::{self, BURST, Packet};

/// Hits in a hundred lookups.
const HITS: [u64; 3] = [100, 50, 0];

/// Numbers of flows: from what fits L1 to what is beyond L3.
fn working_sets(context: &Context<'_>) -> &'static [usize] {
    if context.quick() { &[128, 2048] } else { &[128, 512, 2048, 8192, 32_768, 131_072, 524_288] }
}

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    working_sets(context).len()
}

/// The caches of a working set.
struct Caches {
    /// With twice as many entries as flows.
    exact: ExactMatchCache,
    /// With the same flows under one mask of all words: what the exact-match cache spares.
    megaflows: MegaflowCache,
    /// The flows that the exact-match cache holds: a flow has two places there, and nobody moves, so that a few
    /// have none.
    held: Vec<Packet>,
}

fn filled(flows: usize, random: &mut Random) -> Caches {
    let all: Vec<Packet> = (0..flows).map(|_| packets::random(random)).collect();
    let mut key = packets::key(&all[0]);
    let mut mask = FlowMask::zero();
    key.present_words().for_each(|w| mask.or_word(w, u32::MAX));
    let mut exact = ExactMatchCache::new(2 * flows, 1, 5);
    let config = MegaflowConfig { flows_max: flows, seed: 5, ..Default::default() };
    let mut megaflows = MegaflowCache::new(config);
    for packet in &all {
        packets::write(packet, &mut key);
        let flow = megaflows.insert(&key, &mask, 1, 0, 0).expect("there is room");
        exact.offer(&key, exact.hash(&key), flow);
    }
    let has = |packet: &Packet| {
        packets::write(packet, &mut key);
        exact.lookup(&key, exact.hash(&key)).is_some()
    };
    let held = all.into_iter().filter(has).collect();
    Caches { exact, megaflows, held }
}

/// Packets of which so many in a hundred are of the flows.
fn traffic(flows: &[Packet], hits: u64, random: &mut Random) -> Vec<Packet> {
    // So many that even the largest working set is touched, and no branch is learnt.
    let count = (4 * flows.len()).clamp(1 << 14, 1 << 19).next_multiple_of(BURST);
    let one = |_| match random.below(100) < hits {
        true => flows[random.index(flows.len())],
        false => packets::random(random),
    };
    (0..count).map(one).collect()
}

fn lookup(cache: &ExactMatchCache, packets: &[Packet]) {
    let mut keys: Vec<FlowKey> = packets[..BURST].iter().map(packets::key).collect();
    for burst in packets.chunks(BURST) {
        for (key, packet) in keys.iter_mut().zip(burst) {
            packets::write(packet, key);
            black_box(cache.lookup(key, cache.hash(key)));
        }
    }
}

fn lookup_megaflows(cache: &mut MegaflowCache, packets: &[Packet]) {
    let mut keys: Vec<FlowKey> = packets[..BURST].iter().map(packets::key).collect();
    for burst in packets.chunks(BURST) {
        keys.iter_mut().zip(burst).for_each(|(key, packet)| packets::write(packet, key));
        let mut found = [FlowRef::NONE; BURST];
        black_box(cache.lookup_batch(&keys, LaneMask::first(burst.len()), &mut found));
        black_box(&found);
    }
}

pub(super) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Vec<Figure> {
    let about = "Cycles a packet, hashing included, against the working set: so many flows, in a cache of twice as many entries \
                 of 128 bytes. Packets come in bursts of 32 and are of any flow, uniformly. Beside it the megaflow cache with \
                 the same flows under a single mask of all words: the best that it can do without an exact-match cache in front.";
    let sets = working_sets(context);
    let label = |flows: &usize| format!("{flows} ({})", bytes(256 * flows.next_power_of_two() as u64));
    let mut figure = Figure::new("cache-exact", "Exact-match cache: working set", about)
        .over("flows (table)", sets.iter().map(label))
        .cycles("packet");
    for (place, flows) in sets.iter().enumerate() {
        meter.say(&format!("filling a cache of {flows} flows"));
        let mut random = Random::new(3);
        let Caches { exact, mut megaflows, held } = filled(*flows, &mut random);
        let traffic = HITS.map(|hits| traffic(&held, hits, &mut random));
        let mut bodies = Vec::new();
        for (hits, packets) in HITS.iter().zip(&traffic) {
            let exact = &exact;
            let name = format!("exact-match, {hits} % hits");
            bodies.push(Body::new(name, move || lookup(exact, packets)).warm());
        }
        let (all, megaflows) = (&traffic[0], &mut megaflows);
        let name = format!("megaflow {}-{}, 100 % hits", megaflows.design(), megaflows.variant());
        bodies.push(Body::new(name, move || lookup_megaflows(megaflows, all)).warm());
        for measured in meter.compare(&format!("{flows} flows"), traffic[0].len() as u64, bodies) {
            figure.add(&measured.name, place, &measured);
        }
    }
    vec![figure]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_has_the_hits_that_it_is_made_for() {
        let mut random = Random::new(3);
        let Caches { exact, held, .. } = filled(1000, &mut random);
        assert!(held.len() > 900, "{}", held.len());
        for (hits, tolerance) in [(100, 0), (50, 300), (0, 0)] {
            let packets = traffic(&held, hits, &mut random);
            let found = |packet: &&Packet| {
                let key = packets::key(packet);
                exact.lookup(&key, exact.hash(&key)).is_some()
            };
            let found = packets.iter().filter(found).count();
            let expected = packets.len() * hits as usize / 100;
            assert!(found.abs_diff(expected) <= tolerance, "{hits} %: {found} of {}", packets.len());
        }
    }
}
