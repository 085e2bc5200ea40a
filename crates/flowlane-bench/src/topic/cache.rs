//! The exact-match and the signature-match cache: lookups against the number of flows, by hit ratio, next to the
//! megaflow cache behind them.

use std::hint::black_box;

use flowlane::cache::{ExactMatchCache, FlowRef, MegaflowCache, MegaflowConfig, SignatureCache};
use flowlane::generate::Random;
use flowlane::packet::batch::LaneMask;
use flowlane::packet::{FlowKey, FlowMask};

use super::Context;
use crate::figure::Figure;
use crate::machine::bytes;
use crate::measure::{Contender, Meter};
use crate::packets::{self, BURST, Packet};

/// Hits in a hundred lookups.
const HITS: [u64; 3] = [100, 50, 0];
/// The number of masks of the megaflows.
const MASKS: usize = 20;

/// Returns numbers of flows, from those that fit L1 to those beyond L3.
fn working_sets(context: &Context<'_>) -> &'static [usize] {
    if context.quick() { &[128, 2048] } else { &[128, 512, 2048, 8192, 32_768, 131_072, 524_288] }
}

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    working_sets(context).len()
}

/// The caches of a working set, each with twice as many entries as flows.
struct Caches {
    exact: ExactMatchCache,
    signature: SignatureCache,
    megaflows: MegaflowCache,
    /// The flows that both caches hold. A flow has few possible slots and none is moved, so some flows have no slot.
    held: Vec<Packet>,
}

fn filled(flows: usize, random: &mut Random) -> Caches {
    let all: Vec<Packet> = (0..flows).map(|_| packets::random(random)).collect();
    let masks: Vec<FlowMask> = (0..MASKS).map(packets::mask).collect();
    let mut key = packets::key(&all[0]);
    let mut exact = ExactMatchCache::new(2 * flows, 1, 5);
    let mut signature = SignatureCache::new(2 * flows, 1, 5);
    let mut megaflows =
        MegaflowCache::new(MegaflowConfig { flows_max: flows, seed: 5, ..Default::default() });
    for (i, packet) in all.iter().enumerate() {
        packets::write(packet, &mut key);
        let flow = megaflows.insert(&key, &masks[i % MASKS], 1, 0, 0).expect("there is room");
        exact.insert(&key, flow);
        signature.insert(&key, flow);
    }
    let has = |packet: &Packet| {
        let key = [packets::key(packet)];
        let mut found = [FlowRef::NONE];
        exact.lookup_batch(&megaflows, &key, LaneMask(1), &mut found).is_empty()
            && signature.lookup_batch(&megaflows, &key, LaneMask(1), &mut found).is_empty()
    };
    let held = all.iter().filter(|packet| has(packet)).copied().collect();
    Caches { exact, signature, megaflows, held }
}

/// Draws packets, of which `hits` percent belong to the flows.
fn traffic(flows: &[Packet], hits: u64, random: &mut Random) -> Vec<Packet> {
    // Enough packets to touch even the largest working set and to keep branches from being learned.
    let count = (4 * flows.len()).clamp(1 << 14, 1 << 19).next_multiple_of(BURST);
    let one = |_| match random.below(100) < hits {
        true => flows[random.index(flows.len())],
        false => packets::random(random),
    };
    (0..count).map(one).collect()
}

/// Looks up packets burst by burst, and returns the number of hits.
#[inline(always)]
fn look_up(
    packets: &[Packet],
    mut lookup: impl FnMut(&[FlowKey], LaneMask, &mut [FlowRef]) -> LaneMask,
) -> usize {
    let mut keys: Vec<FlowKey> = packets[..BURST].iter().map(packets::key).collect();
    let mut hits = 0;
    for burst in packets.chunks_exact(BURST) {
        keys.iter_mut().zip(burst).for_each(|(key, packet)| packets::write(packet, key));
        let mut found = [FlowRef::NONE; BURST];
        hits += BURST - lookup(&keys, LaneMask::first(BURST), &mut found).len();
        black_box(&found);
    }
    hits
}

pub(super) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Vec<Figure> {
    let about = "Cycles per packet, hashing included, against the working set: the number of flows, in an exact-match cache of twice \
                 as many entries of 128 bytes (its size is named), and in a signature-match cache of twice as many of 8 bytes. \
                 Packets come in bursts of 64 and are of any flow, uniformly. The megaflows behind, 64 bytes each and under 20 \
                 masks, are the megaflow cache's own lookup: what the caches in front spare.";
    let sets = working_sets(context);
    let label = |flows: &usize| format!("{flows} ({})", bytes(256 * flows.next_power_of_two() as u64));
    let mut figure = Figure::new("cache", "Exact and signature match: working set", about)
        .over("flows (exact-match cache)", sets.iter().map(label))
        .cycles("packet");
    for (place, flows) in sets.iter().enumerate() {
        meter.say(&format!("filling caches of {flows} flows"));
        let mut random = Random::new(3);
        let Caches { exact, signature, megaflows, held } = filled(*flows, &mut random);
        let traffic = HITS.map(|hits| traffic(&held, hits, &mut random));
        let count = traffic[0].len() as u64;
        let megaflows = std::cell::RefCell::new(megaflows);
        let (exact, signature, megaflows) = (&exact, &signature, &megaflows);
        let mut contenders = Vec::new();
        for (hits, packets) in HITS.iter().zip(&traffic) {
            contenders.push(Contender::new(format!("exact-match, {hits} % hits"), move || {
                let megaflows = megaflows.borrow();
                look_up(packets, |keys, live, found| exact.lookup_batch(&megaflows, keys, live, found));
            }));
            contenders.push(Contender::new(format!("signature-match, {hits} % hits"), move || {
                let megaflows = megaflows.borrow();
                look_up(packets, |keys, live, found| signature.lookup_batch(&megaflows, keys, live, found));
            }));
        }
        let all = &traffic[0];
        contenders.push(Contender::new("megaflow, 20 masks, 100 % hits", move || {
            let mut megaflows = megaflows.borrow_mut();
            look_up(all, |keys, live, found| megaflows.lookup_batch(keys, live, found));
        }));
        let contenders = contenders.into_iter().map(Contender::warm).collect();
        for measured in meter.compare(&format!("{flows} flows"), count, contenders) {
            figure.add(&measured.name, place, &measured);
        }
    }
    // Hit ratios differ by colour, caches by line.
    figure.paint(|name| {
        let hits = HITS.iter().position(|hits| name.ends_with(&format!(", {hits} % hits")))?;
        match name.split_once('-')?.0 {
            "exact" => Some((hits, false)),
            "signature" => Some((hits, true)),
            _ => None,
        }
    });
    figure.gain("signature-match, 100 % hits", "exact-match, 100 % hits", None);
    figure.gain("signature-match, 100 % hits", "megaflow, 20 masks, 100 % hits", None);
    vec![figure]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_has_the_hits_that_it_is_made_for() {
        let mut random = Random::new(3);
        let Caches { exact, signature, megaflows, held } = filled(1000, &mut random);
        assert!(held.len() > 850, "{}", held.len());
        for (hits, tolerance) in [(100, 0), (50, 300), (0, 0)] {
            let packets = traffic(&held, hits, &mut random);
            let expected = packets.len() * hits as usize / 100;
            let exact = look_up(&packets, |k, live, f| exact.lookup_batch(&megaflows, k, live, f));
            let signature = look_up(&packets, |k, live, f| signature.lookup_batch(&megaflows, k, live, f));
            for found in [exact, signature] {
                assert!(found.abs_diff(expected) <= tolerance, "{hits} %: {found} of {}", packets.len());
            }
        }
    }
}
