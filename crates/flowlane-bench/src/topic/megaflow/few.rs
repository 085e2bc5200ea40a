//! Small bursts: queries to all masks in flight together, as HALO's non-blocking lookups, against one mask after the
//! other, by the location of the megaflows.

use std::cell::RefCell;
use std::hint::black_box;

use flowlane::cache::{FlowRef, MegaflowCache, MegaflowConfig};
use flowlane::generate::Random;
use flowlane::isa::cpu::Cpu;
use flowlane::packet::batch::LaneMask;
use flowlane::packet::{FlowKey, FlowMask};

use super::{Context, flows, matching};
use crate::figure::Figure;
use crate::measure::{Contender, Meter};
use crate::packets::{self, Packet};

/// Packets of a burst.
const BURSTS: [usize; 5] = [1, 2, 4, 8, 32];
/// Masks in flight.
const IN_FLIGHT: usize = 16;
/// The approximate size of a megaflow with its slot and filter.
const FLOW_BYTES: usize = 92;
/// 184 MB, more than the share of any machine's cache that one core has.
const FLOWS_MAX: usize = 2_000_000;
const SEED: u64 = 5;

/// Lookup methods: the name, and the threshold and masks in flight that select it.
const METHODS: [(&str, usize, usize); 3] = [
    ("one after the other", usize::MAX, 1),
    ("interleaved", usize::MAX, IN_FLIGHT),
    ("side by side", 1, IN_FLIGHT),
];

/// Returns the locations of megaflows, and their numbers.
fn sizes(context: &Context<'_>) -> Vec<(&'static str, usize)> {
    let [_, second, third] = Cpu::this().cache_bytes.map(|bytes| bytes as usize / FLOW_BYTES);
    if context.quick() {
        return vec![("L2", second.min(1000))];
    }
    vec![("L2", second / 2), ("L3", third / 2), ("memory", (4 * third).min(FLOWS_MAX))]
}

fn masks(context: &Context<'_>) -> &'static [usize] {
    if context.quick() { &[5, 100] } else { &[5, 10, 20, 100] }
}

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    sizes(context).len() * masks(context).len()
}

pub(super) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Vec<Figure> {
    sizes(context).into_iter().map(|(place, megaflows)| figure(meter, context, place, megaflows)).collect()
}

fn figure(meter: &mut Meter<'_>, context: &Context<'_>, place: &str, megaflows: usize) -> Figure {
    let about = format!(
        "Cycles for a packet against the packets of a burst, with {megaflows} megaflows ({place}), shared among the masks; \
         every packet matches one, uniformly. One after the other: each mask's filter is tested before the next mask is \
         hashed. Interleaved: a packet is hashed under up to {IN_FLIGHT} masks, with their filters in flight together. Side \
         by side: the variant that is in use, whatever the burst."
    );
    let id = format!("few-{}", place.to_lowercase());
    let title = format!("Few packets, megaflows in {place}");
    let mut figure =
        Figure::new(id, title, about).over("packets a burst", BURSTS.map(|n| n.to_string())).cycles("packet");
    let count = if context.quick() { 1 << 9 } else { 1 << 13 };
    for &n in masks(context) {
        meter.say(&format!("filling {n} masks, {place}"));
        let mut random = Random::new(7);
        let masks: Vec<FlowMask> = (0..n).map(packets::mask).collect();
        let flows = flows(n, megaflows / n, &mut random);
        let cache = RefCell::new(filled(&flows, &masks));
        let packets = RefCell::new(Vec::new());
        let random = RefCell::new(random);
        let mut contenders = Vec::new();
        for burst in BURSTS {
            for (name, threshold, in_flight) in METHODS {
                let (cache, packets, random) = (&cache, &packets, &random);
                let (flows, masks) = (&flows, &masks);
                let prepare = move || {
                    // Fresh packets: branch predictors would memorise thousands of packets, and caches their
                    // megaflows.
                    *packets.borrow_mut() = matching(flows, masks, count, &mut random.borrow_mut());
                    cache.borrow_mut().set_threshold(threshold);
                    cache.borrow_mut().set_in_flight(in_flight);
                };
                let run = move || look_up(&mut cache.borrow_mut(), &packets.borrow(), burst);
                contenders.push(Contender::new(format!("{n} masks, {name}|{burst}"), run).after(prepare));
            }
        }
        for measured in meter.compare(&format!("{n} masks, {place}"), count as u64, contenders) {
            let (name, burst) = measured.name.split_once('|').expect("written so above");
            let at = BURSTS.iter().position(|b| b.to_string() == burst).expect("one of them");
            figure.add(name, at, &measured);
        }
        figure.gain(&format!("{n} masks, interleaved"), &format!("{n} masks, one after the other"), None);
    }
    figure
}

fn filled(flows: &[(Packet, usize)], masks: &[FlowMask]) -> MegaflowCache {
    // Each flow is to be found by its own mask, however many there are.
    let config = MegaflowConfig {
        seed: SEED,
        flows_max: flows.len(),
        join_from: usize::MAX,
        ..MegaflowConfig::default()
    };
    let mut cache = MegaflowCache::new(config);
    let mut key = packets::key(&flows[0].0);
    for (packet, mask) in flows {
        packets::write(packet, &mut key);
        cache.insert(&key, &masks[*mask], 0, 0, 0).expect("there is room");
    }
    cache
}

fn look_up(cache: &mut MegaflowCache, packets: &[Packet], burst: usize) {
    let mut keys: Vec<FlowKey> = packets[..burst].iter().map(packets::key).collect();
    for packets in packets.chunks(burst) {
        keys.iter_mut().zip(packets).for_each(|(key, packet)| packets::write(packet, key));
        let mut found = [FlowRef::NONE; 32];
        let left = cache.lookup_batch(&keys, LaneMask::first(packets.len()), &mut found);
        assert!(left.is_empty());
        black_box(&found);
    }
}
