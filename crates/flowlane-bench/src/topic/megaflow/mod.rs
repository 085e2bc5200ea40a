//! The megaflow cache, for figures 8 and 9 of *Leveraging SIMD Parallelism for Accelerating Network Applications*:
//! hashes of a batch against the packets that are left, and lookups against the number of subtables; and small bursts
//! ([`few`]).

mod few;

use std::hint::black_box;

use flowlane::cache::{FlowRef, MegaflowCache, MegaflowConfig};
use flowlane::generate::Random;
use flowlane::hash::crc32c::Crc32c;
use flowlane::hash::murmur3;
use flowlane::isa::Variant;
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::{FlowKey, FlowMask};
use flowlane_paper::megaflow::{MajorityCache, MaskHasher};

use super::Context;
use crate::figure::{Figure, Ratio};
use crate::measure::{Contender, Meter};
use crate::packets::{self, BURST, PACKET_WORDS, Packet};

/// Megaflows of each mask, as in the paper's profile (§2.2).
const FLOWS: usize = 2000;
const SEED: u32 = 5;

/// Ratios that the paper's text states for figure 9, end to end without the exact-match cache.
const OVER_MURMUR: f64 = 1.48;
const OVER_CRC: f64 = 1.17;

/// Packets of a batch in figure 8, as in the paper.
const BATCH: usize = 32;

/// Numbers of packets left, in figure 8.
const LEFT: [usize; 11] = [1, 2, 4, 6, 8, 10, 12, 16, 20, 26, 32];

fn masks(context: &Context<'_>) -> &'static [usize] {
    if context.quick() { &[1, 5] } else { &[1, 2, 5, 10, 15, 20, 30, 40] }
}

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    1 + masks(context).len() + few::comparisons(context)
}

pub(super) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Vec<Figure> {
    let mut figures = vec![figure_8(meter, context), figure_9(meter, context)];
    figures.extend(few::measure(meter, context));
    figures
}

/// A batch, and the lanes that are left for each of [`LEFT`].
struct Batch {
    keys: Vec<FlowKey>,
    left: [LaneMask; LEFT.len()],
}

fn batches(count: usize) -> Vec<Batch> {
    let mut random = Random::new(11);
    let batch = |_| {
        let keys = (0..BATCH).map(|_| packets::key(&packets::random(&mut random))).collect();
        let mut order: Vec<usize> = (0..BATCH).collect();
        random.shuffle(&mut order);
        let left = LEFT.map(|n| LaneMask(order[..n].iter().fold(0, |lanes, lane| lanes | 1 << lane)));
        Batch { keys, left }
    };
    (0..count).map(batch).collect()
}

/// Returns the words of a lane under the mask.
#[inline(always)]
fn masked<'a>(key: &'a FlowKey, terms: &'a [(usize, u32)]) -> impl Iterator<Item = u32> + 'a {
    terms.iter().map(|(w, mask)| key.word(*w) & mask)
}

fn murmur_serial(batch: &Batch, left: LaneMask, terms: &[(usize, u32)], out: &mut [u32; LANES_MAX]) {
    for lane in left.lanes() {
        let hash = masked(&batch.keys[lane], terms).fold(SEED, murmur3::mix);
        out[lane] = murmur3::finish(hash, 4 * terms.len() as u32);
    }
}

fn crc_serial(
    crc: Crc32c,
    batch: &Batch,
    left: LaneMask,
    terms: &[(usize, u32)],
    out: &mut [u32; LANES_MAX],
) {
    let mut words = [[0; 1]; LANES_MAX];
    let words = &mut words[..terms.len()];
    for lane in left.lanes() {
        for (to, word) in words.iter_mut().zip(masked(&batch.keys[lane], terms)) {
            to[0] = word;
        }
        let mut hash = [0];
        crc.hash_lanes(words, SEED, &mut hash);
        out[lane] = hash[0];
    }
}

fn figure_8(meter: &mut Meter<'_>, context: &Context<'_>) -> Figure {
    let about = "Cycles for the hashes of one batch of 32 packets under one mask of 5 words (EtherType, protocol, fragments, \
                 addresses), against the packets that are still without a megaflow. One by one, the cost is proportional to the packets left; side by \
                 side (the paper's design, majority) always the same. The paper finds CRC one by one faster below 8 packets \
                 left, which it made its threshold.";
    let mut figure = Figure::new("figure-8", "Figure 8: hashing a batch under a mask", about)
        .over("packets left", LEFT.map(|n| n.to_string()))
        .cycles("batch");
    let batches = batches(if context.quick() { 8 } else { 64 });
    let mask = packets::mask(3);
    let terms: Vec<(usize, u32)> =
        mask.present_words().filter(|w| mask.word(*w) != 0).map(|w| (w, mask.word(w))).collect();
    let (batches, terms) = (&batches, terms.as_slice());
    let mut contenders = Vec::new();
    for (place, n) in LEFT.into_iter().enumerate() {
        let over = move |hash: &dyn Fn(&Batch, LaneMask, &mut [u32; LANES_MAX])| {
            let mut out = [0; LANES_MAX];
            for batch in batches {
                hash(black_box(batch), batch.left[place], &mut out);
                black_box(&out);
            }
        };
        let murmur = move || over(&|batch, left, out| murmur_serial(batch, left, terms, out));
        contenders.push(Contender::new(format!("murmur3, one by one|{n}"), murmur));
        let crc = Crc32c::new();
        let crc = move || over(&|batch, left, out| crc_serial(crc, batch, left, terms, out));
        contenders.push(Contender::new(format!("crc32c, one by one|{n}"), crc));
    }
    for variant in context.options.variants().into_iter().filter(|v| *v != Variant::Scalar) {
        let hasher = |batch: &Batch| MaskHasher::new(variant, &mask, SEED, &batch.keys);
        let hashers: Vec<MaskHasher> = batches.iter().filter_map(hasher).collect();
        contenders.push(Contender::new(format!("murmur3, side by side, {variant}|"), move || {
            let mut out = [0; LANES_MAX];
            for hasher in &hashers {
                black_box(hasher).hash_batch(&mut out);
                black_box(&out);
            }
        }));
    }
    for measured in meter.compare("hashing a batch", batches.len() as u64, contenders) {
        let (name, left) = measured.name.split_once('|').expect("written so above");
        match LEFT.iter().position(|n| n.to_string() == left) {
            Some(place) => figure.add(name, place, &measured),
            None => (0..LEFT.len()).for_each(|place| figure.add(name, place, &measured)),
        }
    }
    let widest = context.options.variants().last().copied().unwrap_or(Variant::Scalar);
    let side_by_side = format!("murmur3, side by side, {widest}");
    figure.gain(&side_by_side, "murmur3, one by one", None);
    figure.gain(&side_by_side, "crc32c, one by one", None);
    figure
}

/// Names of the designs in figure 9.
const LIBRARYS: &str = "fixed";
const PAPERS: &str = "majority";

/// A cache to measure.
enum Candidate {
    Library(Box<MegaflowCache>),
    Paper(Box<MajorityCache>),
}

impl Candidate {
    /// Looks up a burst in which every packet matches a megaflow.
    #[inline(always)]
    fn lookup(&mut self, keys: &[FlowKey], live: LaneMask) {
        let left = match self {
            Self::Library(cache) => {
                let mut found = [FlowRef::NONE; BURST];
                let left = cache.lookup_batch(keys, live, &mut found);
                black_box(&found);
                left
            }
            Self::Paper(cache) => {
                let mut found = [0; BURST];
                let left = cache.lookup_batch(keys, live, &mut found);
                black_box(&found);
                left
            }
        };
        assert!(left.is_empty());
    }
}

/// Draws megaflows: the packet from which each is made, and its mask.
fn flows(masks: usize, each: usize, random: &mut Random) -> Vec<(Packet, usize)> {
    (0..masks * each).map(|i| (packets::random(random), i % masks)).collect()
}

/// Draws packets that match one megaflow each, uniformly.
fn matching(flows: &[(Packet, usize)], masks: &[FlowMask], count: usize, random: &mut Random) -> Vec<Packet> {
    let one = |_| {
        let (flow, mask) = &flows[random.index(flows.len())];
        let mut packet = packets::random(random);
        for ((value, of_flow), w) in packet.iter_mut().zip(flow).zip(PACKET_WORDS) {
            let bits = masks[*mask].word(w);
            *value = *value & !bits | of_flow & bits;
        }
        packet
    };
    (0..count).map(one).collect()
}

fn candidates(
    context: &Context<'_>,
    flows: &[(Packet, usize)],
    masks: &[FlowMask],
) -> Vec<(String, Candidate)> {
    let mut all = Vec::new();
    // The library has no kernel of that width.
    for variant in context.options.variants().into_iter().filter(|v| *v != Variant::Sse42) {
        let (variant_of, flows_max) = (Some(variant), flows.len());
        let config =
            MegaflowConfig { variant: variant_of, seed: SEED.into(), flows_max, ..Default::default() };
        let mut cache = MegaflowCache::new(config);
        for (packet, mask) in flows {
            let made = cache.insert(&packets::key(packet), &masks[*mask], *mask as u32, 0, 0);
            made.expect("there is room");
        }
        all.push((format!("{LIBRARYS}-{variant}"), Candidate::Library(Box::new(cache))));
    }
    for variant in context.options.variants() {
        let mut cache = MajorityCache::with_variant(flows.len(), SEED, variant).expect("is available");
        for (packet, mask) in flows {
            cache.insert(&packets::key(packet), &masks[*mask], *mask as u32);
        }
        all.push((format!("{PAPERS}-{variant}"), Candidate::Paper(Box::new(cache))));
    }
    all
}

fn lookup(cache: &mut Candidate, packets: &[Packet]) {
    let mut keys: Vec<FlowKey> = packets[..BURST].iter().map(packets::key).collect();
    for burst in packets.chunks(BURST) {
        keys.iter_mut().zip(burst).for_each(|(key, packet)| packets::write(packet, key));
        cache.lookup(&keys, LaneMask::first(burst.len()));
    }
}

fn figure_9(meter: &mut Meter<'_>, context: &Context<'_>) -> Figure {
    let about = "Lookups against the number of subtables of 2000 megaflows each; every packet matches one megaflow, uniformly, \
                 so that half of the subtables are probed on average; in bursts of 64. Of both designs, by variant: majority is the paper's, \
                 fixed the library's own. The paper's figure, and what it states, is the throughput of the whole switch; this \
                 is the cache alone. Tables hashed by CRC, to which it states +17 %, are not in the library.";
    let masks = masks(context);
    let mut figure = Figure::new("figure-9", "Figure 9: megaflow lookups", about)
        .over("subtables", masks.iter().map(ToString::to_string));
    let (each, count) = if context.quick() { (200, 1 << 11) } else { (FLOWS, 1 << 14) };
    for (place, n) in masks.iter().enumerate() {
        meter.say(&format!("filling {n} subtables"));
        let mut random = Random::new(7);
        let masks: Vec<FlowMask> = (0..*n).map(packets::mask).collect();
        let flows = flows(*n, each, &mut random);
        let packets = matching(&flows, &masks, count, &mut random);
        let mut candidates = candidates(context, &flows, &masks);
        let packets = &packets;
        let contenders = candidates
            .iter_mut()
            .map(|(name, cache)| Contender::new(name.as_str(), move || lookup(cache, packets)).warm());
        for measured in meter.compare(&format!("{n} subtables"), count as u64, contenders.collect()) {
            figure.add(&measured.name, place, &measured);
        }
    }
    figure.gain("majority-avx512", "majority-scalar", Some(OVER_MURMUR));
    figure.ratios.push(Ratio {
        what: "majority-avx512 over serial CRC".into(),
        most: None,
        least: None,
        mean: None,
        stated: Some(OVER_CRC),
    });
    figure.gain("fixed-avx512", "majority-scalar", None);
    figure.gain("fixed-avx512", "majority-avx512", None);
    figure.gain("fixed-avx2", "majority-avx2", None);
    // Designs differ by line, variants by colour.
    figure.paint(|name| {
        let (design, variant) = name.split_once('-')?;
        let colour = Variant::ALL.iter().position(|v| v.name() == variant)?;
        Some((colour, design == PAPERS))
    });
    figure.guide("paper: up to +48 % over majority-scalar", "majority-scalar", OVER_MURMUR);
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashing_side_by_side_is_hashing_one_by_one() {
        let mask = packets::mask(3);
        let terms: Vec<(usize, u32)> = mask.present_words().map(|w| (w, mask.word(w))).collect();
        for variant in Variant::ALL.into_iter().filter(|v| v.available()) {
            for batch in batches(4) {
                let (mut one, mut all) = ([0; LANES_MAX], [0; LANES_MAX]);
                murmur_serial(&batch, LaneMask::first(BATCH), &terms, &mut one);
                MaskHasher::new(variant, &mask, SEED, &batch.keys).unwrap().hash_batch(&mut all);
                assert_eq!(one[..BATCH], all[..BATCH], "{variant}");
            }
        }
    }
}
