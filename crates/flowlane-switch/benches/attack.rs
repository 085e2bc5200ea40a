//! The switch under attack: how much of its rate is left.
//!
//! `cargo bench -p flowlane-switch --bench attack`
//!
//! **Tuple-space explosion** (Csikor et al., *Tuple Space Explosion*, CoNEXT 2019): rules on nested prefixes
//! of two fields, and packets that part from them at every pair of bits, so that as many megaflow masks arise as
//! can. Defence: the mask budget (`masks_max`); masks that packets match come first; what finds no room goes
//! through the tables.
//!
//! **Hash flooding**: keys that collide under one seed, in a cache with that seed and in one with another.
//! Defence: the seed is secret, and no keys collide under all seeds (`hash::multilinear`).

use std::hint::black_box;

use flowlane::cache::{FlowRef, MegaflowCache, MegaflowConfig};
use flowlane::classify::TupleSearch;
use flowlane::generate::{Random, build_frame};
use flowlane::hash::multilinear::{self, Multilinear};
use flowlane::packet::batch::LaneMask;
use flowlane::packet::fields::word;
use flowlane::packet::{Field, FlowKey, FlowMask};
use flowlane::rule::action::PortNo;
use flowlane::rule::{Action, Match, Priority, Rule};
use flowlane_switch::datapath::Pipeline;
use flowlane_switch::datapath::{CacheConfig, Clock, Egress, Lookup, PortSlot, Worker};
use flowlane_switch::port::NullPort;
use flowlane_switch::ruleset::Miss;
use flowlane_switch::state::fdb::Fdb;

/// The addresses around which the rules are.
const SRC: u32 = 0x5a5a_5a5a;
const DST: u32 = 0xa5a5_a5a5;

/// A rule for every prefix length of either address, and one for everything.
fn pipeline() -> Pipeline {
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "nested", Box::new(TupleSearch::new(100, 7)), Miss::Drop);
    let mut add = |m: Match, priority| {
        let rule = Rule::new(m, vec![Action::Output(PortNo(2))]);
        pipeline.add_rule(Rule { priority: Priority(priority), ..rule }).expect("there is room");
    };
    for length in 1..=32u32 {
        for (field, address) in [(Field::Ipv4Src, SRC), (Field::Ipv4Dst, DST)] {
            let mut m = Match::any();
            m.set(Field::EthType, 0x0800);
            m.set_masked(field, address.into(), u128::from(u32::MAX << (32 - length)));
            add(m, length + 1);
        }
    }
    add(Match::any(), 0);
    pipeline
}

fn frame(src: u32, dst: u32, port: u16) -> Vec<u8> {
    let mut key = FlowKey::zero();
    key.set(Field::EthSrc, 0x0202_0000_0001);
    key.set(Field::EthDst, 0x0200_0000_0002);
    key.set(Field::EthType, 0x0800);
    key.set(Field::NwProto, 17);
    key.set(Field::NwTtl, 64);
    key.set(Field::Ipv4Src, src.into());
    key.set(Field::Ipv4Dst, dst.into());
    key.set(Field::TpDst, port.into());
    let mut frame = Vec::new();
    build_frame(&key, 60, &mut frame);
    frame
}

/// Packets of which one in `one_in` is hostile: parts from the rules' addresses at a random pair of bits.
fn traffic(one_in: Option<u64>, random: &mut Random) -> Vec<Vec<u8>> {
    (0..16_384)
        .map(|_| {
            if one_in.is_some_and(|n| random.below(n) == 0) {
                let part = |address: u32, random: &mut Random| {
                    let at = random.below(32) as u32;
                    (address ^ 1 << at) & u32::MAX << at | random.bits() as u32 & !(u32::MAX << at)
                };
                frame(part(SRC, random), part(DST, random), random.bits() as u16)
            } else {
                frame(SRC, DST ^ 1, random.below(1000) as u16)
            }
        })
        .collect()
}

fn explosion(one_in: Option<u64>, masks_max: usize) {
    let mut random = Random::new(1);
    let cache = CacheConfig { masks_max, idle_ns: u64::MAX, seed: 5, ..CacheConfig::default() };
    let mut egress = Egress::new(Fdb::new(16, 300, 1), 1);
    egress.ports.add(PortSlot::new(PortNo(1), "in", "", Box::new(NullPort)));
    egress.ports.add(PortSlot::new(PortNo(2), "out", "", Box::new(NullPort)));
    let mut worker = Worker::new(Lookup::new(pipeline(), cache), egress, 64, Clock::Wall);
    let frames = traffic(one_in, &mut random);
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let clock = quanta::Clock::new();
    let mut samples = Vec::new();
    for round in 0..24 {
        let begun = clock.raw();
        worker.inject(0, &frames).expect("no port fails");
        if round > 8 {
            samples.push((clock.raw() - begun) as f64 / frames.len() as f64);
        }
        worker.lookup.maintain(0, 4096, std::iter::empty);
    }
    samples.sort_by(f64::total_cmp);
    let hostile = one_in.map_or("none".to_owned(), |n| format!("1 in {n}"));
    println!(
        "hostile {hostile:<9} masks at most {masks_max:>5}: {:>7.1} cycles a packet; {} masks, {} megaflows, {:.2} % \
         brought a megaflow",
        samples[samples.len() / 2],
        worker.lookup.megaflows.masks().count(),
        worker.lookup.megaflows.len(),
        100.0 * worker.lookup.slow as f64 / (24.0 * frames.len() as f64),
    );
}

/// Keys whose hashes under `seed` agree in their 12 bits above the lowest: the bucket that they are in.
fn colliding(seed: u64, count: usize) -> Vec<FlowKey> {
    let hash = Multilinear::new(seed);
    let mut found = Vec::new();
    let mut candidate = 0u32;
    while found.len() < count {
        candidate += 1;
        let term = multilinear::term(hash.multiplier(word::IPV4_DST), candidate);
        if multilinear::finish(term) >> 1 & 0xfff == 0x123 {
            let mut key = FlowKey::zero();
            key.set(Field::Ipv4Dst, candidate.into());
            found.push(key);
        }
    }
    found
}

fn flooding() {
    let keys = colliding(1, 2048);
    let mut mask = FlowMask::zero();
    mask.add_field(Field::Ipv4Dst);
    for (name, seed) in [("the seed is known", 1), ("the seed is secret", 2)] {
        let mut cache = MegaflowCache::new(MegaflowConfig { seed, ..MegaflowConfig::default() });
        for key in &keys {
            cache.insert(key, &mask, 0, 0, 0).expect("there is room");
        }
        let clock = quanta::Clock::new();
        let mut samples: Vec<f64> = (0..9)
            .map(|_| {
                let begun = clock.raw();
                for burst in keys.chunks(64) {
                    let mut found = [FlowRef::NONE; 64];
                    cache.lookup_batch(burst, LaneMask::first(burst.len()), &mut found);
                    black_box(&found);
                }
                (clock.raw() - begun) as f64 / keys.len() as f64
            })
            .collect();
        samples.sort_by(f64::total_cmp);
        println!("{} colliding keys, {name}: {:.1} cycles a lookup", keys.len(), samples[4]);
    }
}

fn main() {
    for masks_max in [1024, 64] {
        for one_in in [None, Some(1000), Some(100), Some(10), Some(1)] {
            explosion(one_in, masks_max);
        }
    }
    flooding();
}
