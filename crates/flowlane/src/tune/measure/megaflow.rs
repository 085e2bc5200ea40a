//! The megaflow cache: which variant looks full bursts up, under how many masks at once a few packets are best
//! looked for one by one, and from how many packets on the variant does better.

use std::fmt;
use std::hint::black_box;

use super::Outcome;
use super::contest::{Contest, Measuring, Verdict, Workload};
use crate::cache::{FlowRef, MegaflowCache, MegaflowChoice, MegaflowConfig};
use crate::dispatch::KernelSlot;
use crate::generate::Random;
use crate::isa::Variant;
use crate::packet::batch::LaneMask;
use crate::packet::fields::word;
use crate::packet::{Field, FlowKey, FlowMask};

const MASKS: usize = 10;
const FLOWS: usize = 1000;
const PACKETS: usize = 1 << 11;
const BURST: usize = 32;
/// Bursts for which it is measured whether vectors pay.
const SMALL_BURSTS: [usize; 8] = [1, 2, 3, 4, 6, 8, 12, 16];
/// Masks at once that are tried, and the bursts that they are tried with.
const IN_FLIGHT: [usize; 4] = [1, 4, 8, 16];
const FEW: usize = 2;

/// A way of looking up, without threshold.
#[derive(Clone, Copy)]
struct Way {
    variant: Variant,
    /// One by one, under this number of masks at once; by the variant's batch where it is none.
    in_flight: Option<usize>,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.variant)?;
        self.in_flight.map_or(Ok(()), |masks| write!(f, "/x{masks}"))
    }
}

struct Looking {
    cache: MegaflowCache,
    masks: Vec<FlowMask>,
    flows: Vec<FlowKey>,
    random: Random,
    /// The words in which packets differ: [`VARYING`].
    packets: Vec<[u32; 3]>,
    keys: Vec<FlowKey>,
    burst: usize,
}

/// The words in which packets differ.
const VARYING: [usize; 3] = [word::IPV4_SRC, word::IPV4_DST, word::PORTS];

impl Looking {
    fn new() -> Self {
        let mut random = Random::for_purpose(1, "tune: megaflow");
        let masks: Vec<FlowMask> = (0..MASKS).map(mask).collect();
        let flows: Vec<FlowKey> = (0..MASKS * FLOWS).map(|_| key(&mut random)).collect();
        let mut cache = MegaflowCache::new(MegaflowConfig { seed: 5, ..MegaflowConfig::default() });
        for (i, flow) in flows.iter().enumerate() {
            cache.insert(flow, &masks[i % MASKS], 0, 0, 0).expect("there is room");
        }
        let keys = flows[..BURST].to_vec();
        Self { cache, masks, flows, random, packets: vec![[0; 3]; PACKETS], keys, burst: BURST }
    }
}

/// Source prefixes of 4 to 23 bits with the whole destination.
fn mask(i: usize) -> FlowMask {
    let mut mask = FlowMask::zero();
    for field in [Field::EthType, Field::NwProto, Field::IpFrag, Field::Ipv4Dst] {
        mask.add_field(field);
    }
    mask.set_masked(Field::Ipv4Src, u128::MAX, u128::from(u32::MAX << (28 - i)));
    mask
}

fn key(random: &mut Random) -> FlowKey {
    let mut key = FlowKey::zero();
    let same = [(Field::InPort, 1), (Field::EthSrc, 0x0202_0000_0001), (Field::EthDst, 0x0200_0000_0002)];
    let protocol = [(Field::EthType, 0x0800), (Field::NwProto, 17), (Field::NwTtl, 64)];
    same.into_iter().chain(protocol).for_each(|(field, value)| key.set(field, value));
    key.set(Field::Ipv4Src, u128::from(random.bits() as u32));
    key.set(Field::Ipv4Dst, u128::from(random.bits() as u32));
    key.set(Field::TpSrc, u128::from(random.bits() as u16));
    key.set(Field::TpDst, u128::from(random.bits() as u16));
    key
}

impl Workload for Looking {
    type Entrant = Way;

    fn prepare(&mut self, way: &Way) {
        let cache = &mut self.cache;
        assert!(cache.set_variant(way.variant), "{} is available", way.variant);
        // All bursts by the variant, or none: what the threshold is to be is asked here.
        cache.set_threshold(if way.in_flight.is_some() { usize::MAX } else { 1 });
        way.in_flight.into_iter().for_each(|masks| cache.set_in_flight(masks));
        // Fresh ones, of one megaflow each: branch predictors learn thousands of packets by heart.
        for packet in &mut self.packets {
            let at = self.random.below(self.flows.len() as u64) as usize;
            let (flow, mask) = (&self.flows[at], &self.masks[at % MASKS]);
            *packet =
                VARYING.map(|w| self.random.bits() as u32 & !mask.word(w) | flow.word(w) & mask.word(w));
        }
    }

    fn run(&mut self, _: &Way) {
        let (cache, keys) = (&mut self.cache, &mut self.keys);
        for burst in self.packets.chunks(self.burst) {
            // What a parser would have written just before: a burst's keys are in the nearest cache.
            for (key, packet) in keys.iter_mut().zip(burst) {
                VARYING.iter().zip(packet).for_each(|(w, value)| key.set_word(*w, *value));
            }
            let mut found = [FlowRef::NONE; BURST];
            black_box(cache.lookup_batch(keys, LaneMask::first(burst.len()), &mut found));
            black_box(&found);
        }
    }
}

pub(super) fn measure(measuring: &mut Measuring<'_>) -> Outcome {
    let built_in = crate::tune::built_in(KernelSlot::Megaflow).choice;
    let default: MegaflowChoice = built_in.parse().expect("the built-in choice can be parsed");
    let mut looking = Looking::new();
    let ticks = measuring.ticks / (SMALL_BURSTS.len() as u64 + 6);
    // There is no kernel for SSE4.2: that would be the scalar one again.
    let is_there = |w: &Way| w.variant.available() && w.variant != Variant::Sse42;
    let ways = Variant::ALL.map(|variant| Way { variant, in_flight: None });
    let ways: Vec<Way> = ways.into_iter().filter(is_there).collect();
    let at = ways
        .iter()
        .position(|w| w.variant == default.variant)
        .expect("the built-in choice, if usable, is a candidate");
    let name = format!("bursts of {BURST}");
    let first = measuring.contest(name, 4 * ticks, PACKETS as u64, &ways, at, &mut looking);
    let way = ways[first.chosen];
    let mut contests = vec![first];

    looking.burst = FEW;
    let ways = IN_FLIGHT.map(|masks| Way { in_flight: Some(masks), ..way });
    let at = IN_FLIGHT.iter().rposition(|masks| *masks <= default.in_flight).expect("there is 1");
    let name = format!("bursts of {FEW}, one by one");
    let contest = measuring.contest(name, 2 * ticks, PACKETS as u64, &ways, at, &mut looking);
    let in_flight = IN_FLIGHT[contest.chosen];
    contests.push(contest);
    let mut threshold = default.threshold;
    if way.variant != Variant::Scalar {
        let ways = [Way { in_flight: Some(in_flight), ..way }, way];
        let duel = |burst| duel(measuring, &mut looking, &ways, burst, threshold, ticks);
        let duels: Vec<Contest> = SMALL_BURSTS.map(duel).into();
        threshold = threshold_of(&duels, threshold);
        contests.extend(duels);
    }
    let choice = MegaflowChoice { variant: way.variant, threshold, in_flight }.to_string();
    Outcome { slot: KernelSlot::Megaflow, choice, built_in, table_bytes: None, contests }
}

/// Returns whether bursts of this length are better looked up one by one (place 0) or by the variant (place 1).
fn duel(
    measuring: &mut Measuring<'_>,
    looking: &mut Looking,
    ways: &[Way; 2],
    burst: usize,
    threshold: usize,
    ticks: u64,
) -> Contest {
    looking.burst = burst;
    let default = usize::from(burst >= threshold);
    measuring.contest(format!("bursts of {burst}"), ticks, PACKETS as u64, ways, default, looking)
}

/// Returns the length from which on the variant is better, or not worse where the default has it. The default where
/// nothing speaks against it.
fn threshold_of(duels: &[Contest], default: usize) -> usize {
    if duels.iter().all(|duel| matches!(duel.verdict, Verdict::NoneFaster)) {
        return default;
    }
    let vectors = duels.iter().rev().take_while(|duel| duel.chosen == 1).count();
    SMALL_BURSTS.get(SMALL_BURSTS.len() - vectors).copied().unwrap_or(BURST)
}
