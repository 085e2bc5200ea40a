//! Lookups by every variant, for counting their instructions: `count-instructions.sh` runs this under an emulator that prints the
//! number of executed instructions at each call of `getpid`.
//!
//! ```text
//! crates/flowlane/count-instructions.sh [NAME]     # all whose name begins with NAME
//! ```
//!
//! The work is that of `flowlane tune`, in tables that fit the second-level cache.

use std::hint::black_box;
use std::io::Write;

use flowlane::bloom::{BlockedBloomFilter, BloomFilter, BloomKernel};
use flowlane::cache::{FlowRef, MegaflowCache, MegaflowConfig};
use flowlane::classify::acl::{
    Brute, BruteKernel, Dynamic, DynamicConfig, Engine, Entry, Layout, MatchId, RankKey, Tree, TreeConfig,
};
use flowlane::cuckoo::{CuckooConfig, CuckooWriter};
use flowlane::generate::packet::FRAME_MIN;
use flowlane::generate::{
    Internet, Locality, Profile, Random, RouteConfig, RuleConfig, Trace, TraceConfig, build_frame,
    generate_addresses, generate_routes, generate_rules,
};
use flowlane::hash::crc32c::Crc32c;
use flowlane::hash::murmur3::Murmur3;
use flowlane::isa::Variant;
use flowlane::packet::batch::LaneMask;
use flowlane::packet::{Field, FlowKey, FlowMask, Headers, Parser};
use flowlane::route::engine::{AnyFib, Family};
use flowlane::route::{Fib, FibConfig, HopSize, Rib};
use flowlane::rule::{Priority, Rule, RuleId};

const KEYS: usize = 1 << 11;
const BATCH: usize = 64;

/// Counts the instructions of work, by the names of the structure and the variant.
struct Count {
    /// Only structures whose name begins so.
    prefix: String,
}

impl Count {
    fn run(&self, name: &str, variant: Variant, lookups: usize, mut work: impl FnMut()) {
        if !name.starts_with(&self.prefix) {
            return;
        }
        // Once before, so that nothing is made or found out for the first time while instructions are counted.
        work();
        println!("{name} {variant} {lookups}");
        std::io::stdout().flush().expect("standard output takes lines");
        let _ = std::process::id();
        work();
        let _ = std::process::id();
    }
}

fn variants() -> impl Iterator<Item = Variant> {
    Variant::ALL.into_iter().filter(|variant| variant.available())
}

fn hashes(count: &Count) {
    let mut random = Random::new(1);
    let words: Vec<[[u32; 16]; 4]> =
        (0..KEYS / 16).map(|_| [(); 4].map(|()| [(); 16].map(|()| random.bits() as u32))).collect();
    for variant in variants() {
        let murmur3 = Murmur3::with_variant(variant).expect("is available");
        count.run("hash/murmur3", variant, KEYS, || {
            let mut out = [0; 16];
            words.iter().for_each(|words| murmur3.hash_lanes(black_box(words), 7, black_box(&mut out)));
        });
        let Some(crc32c) = Crc32c::with_variant(variant) else { continue };
        count.run("hash/crc32c", variant, KEYS, || {
            let mut out = [0; 16];
            words.iter().for_each(|words| crc32c.hash_lanes(black_box(words), 7, black_box(&mut out)));
        });
    }
}

/// A frame of `flowlane tune`: three of four IPv4, two of three TCP, one of four with a tag.
fn frame(random: &mut Random) -> Vec<u8> {
    let mut key = FlowKey::zero();
    key.set(Field::EthSrc, u128::from(random.bits() >> 18));
    key.set(Field::EthDst, u128::from(random.bits() >> 18));
    if random.below(4) == 0 {
        key.set(Field::VlanTci, u128::from(0x1000 | random.below(4096) as u16));
    }
    let is_v6 = random.below(4) == 0;
    key.set(Field::EthType, if is_v6 { 0x86dd } else { 0x0800 });
    for (v4, v6) in [(Field::Ipv4Src, Field::Ipv6Src), (Field::Ipv4Dst, Field::Ipv6Dst)] {
        let address = u128::from(random.bits()) << 64 | u128::from(random.bits());
        if is_v6 { key.set(v6, address) } else { key.set(v4, u128::from(address as u32)) }
    }
    key.set(Field::NwProto, if random.below(3) == 0 { 17 } else { 6 });
    key.set(Field::NwTtl, 64);
    key.set(Field::TpSrc, u128::from(random.bits() as u16));
    key.set(Field::TpDst, u128::from(random.bits() as u16));
    let mut frame = Vec::new();
    build_frame(&key, FRAME_MIN, &mut frame);
    frame
}

fn parser(count: &Count) {
    let mut random = Random::new(2);
    let frames: Vec<Vec<u8>> = (0..KEYS).map(|_| frame(&mut random)).collect();
    let (mut keys, mut headers) = (vec![FlowKey::zero(); BATCH], vec![Headers::default(); BATCH]);
    for parser in variants().filter_map(Parser::with_variant) {
        count.run("parser", parser.variant(), KEYS, || {
            for frames in frames.chunks(BATCH) {
                let frames = frames.iter().map(Vec::as_slice);
                parser.parse_all(frames, 1, &mut keys, &mut headers);
                black_box((&keys, &headers));
            }
        });
    }
}

/// A key of a table with `W` words; those below the number of entries are in.
fn key<const W: usize>(number: u64) -> [u32; W] {
    let mut random = Random::new(number);
    std::array::from_fn(|_| random.bits() as u32)
}

fn cuckoo<const W: usize>(count: &Count) {
    let mut random = Random::new(3);
    let entries = 1 << 12;
    let keys: Vec<[u32; W]> = (0..KEYS).map(|_| key(random.below(entries as u64 * 4 / 3))).collect();
    for variant in variants() {
        let config = CuckooConfig::new(entries, 7).with_variant(variant).expect("is available");
        let mut table = CuckooWriter::<W>::new(&config);
        for i in 0..entries as u64 {
            table.insert(&key(i), i as u32).expect("there is room");
        }
        count.run(&format!("cuckoo/{W}-words"), variant, KEYS, || {
            let mut values = [0; BATCH];
            for keys in keys.chunks(BATCH) {
                black_box(table.lookup_batch(black_box(keys), &mut values));
            }
        });
        count.run(&format!("cuckoo/{W}-words-hash"), variant, KEYS, || {
            let mut hashes = [0; BATCH];
            for keys in keys.chunks(BATCH) {
                table.hash_batch(black_box(keys), &mut hashes);
                black_box(&hashes);
            }
        });
    }
}

fn bloom(count: &Count) {
    let mut random = Random::new(4);
    let mut filter = BloomFilter::with_bits(1 << 18, 3).expect("a size that there is");
    (0..1 << 14).for_each(|_| filter.insert(random.bits() as u32));
    let keys: Vec<u32> = (0..KEYS).map(|_| random.bits() as u32).collect();
    let (mut out, mut payloads) = (vec![0; KEYS], vec![0; KEYS]);
    for kernel in BloomKernel::all()
        .into_iter()
        .filter(|k| k.unroll == 4 || k.algorithm.variant() == Variant::Scalar && k.unroll == 1)
    {
        filter.set_kernel(kernel).expect("is available");
        let name = if kernel.prefetch { "bloom/survivors-prefetch" } else { "bloom/survivors" };
        count.run(name, kernel.algorithm.variant(), KEYS, || {
            black_box(filter.survivors(&keys, &keys, &mut out, &mut payloads));
        });
    }
    let wide: Vec<u64> = (0..KEYS).map(|_| random.bits()).collect();
    let mut hits = vec![0; KEYS / 64];
    for variant in variants() {
        for prefetch in [false, true] {
            let filter = BlockedBloomFilter::with_bits(1 << 18).expect("a size that there is");
            (0..1 << 14).for_each(|_| filter.insert_u64(random.bits()));
            let Some(filter) = filter.with_variant(variant) else { continue };
            let filter = filter.with_prefetch(prefetch);
            let name = if prefetch { "bloom/blocked-prefetch" } else { "bloom/blocked" };
            count.run(name, variant, KEYS, || {
                filter.contains_batch_u64(black_box(&wide), &mut hits);
                black_box(&hits);
            });
        }
    }
}

/// Source prefixes of 4 bits and more with the whole destination.
fn mask(i: usize) -> FlowMask {
    let mut mask = FlowMask::zero();
    for field in [Field::EthType, Field::NwProto, Field::IpFrag, Field::Ipv4Dst] {
        mask.add_field(field);
    }
    mask.set_masked(Field::Ipv4Src, u128::MAX, u128::from(u32::MAX << (28 - i)));
    mask
}

fn megaflow(count: &Count, masks: usize) {
    let mut random = Random::new(5);
    let all: Vec<FlowMask> = (0..masks).map(mask).collect();
    let mut cache = MegaflowCache::new(MegaflowConfig { seed: 5, ..MegaflowConfig::default() });
    let flow = |random: &mut Random| {
        let mut key = FlowKey::zero();
        for (field, value) in [(Field::InPort, 1), (Field::EthType, 0x0800), (Field::NwProto, 17)] {
            key.set(field, value);
        }
        key.set(Field::Ipv4Src, u128::from(random.bits() as u32));
        key.set(Field::Ipv4Dst, u128::from(random.bits() as u32));
        key.set(Field::TpSrc, u128::from(random.bits() as u16));
        key
    };
    let keys: Vec<FlowKey> = (0..KEYS).map(|_| flow(&mut random)).collect();
    for (i, key) in keys.iter().enumerate() {
        cache.insert(key, &all[i % masks], 0, 0, 0).expect("there is room");
    }
    // One by one where there is no kernel: what the scalar variant does in any case.
    for variant in variants() {
        assert!(cache.set_variant(variant), "is available");
        for burst in [8, 32, 64] {
            cache.set_threshold(1);
            count.run(&format!("megaflow/{masks}-masks-bursts-of-{burst}"), variant, KEYS, || {
                let mut found = [FlowRef::NONE; BATCH];
                for keys in keys.chunks(burst) {
                    black_box(cache.lookup_batch(black_box(keys), LaneMask::first(keys.len()), &mut found));
                }
            });
        }
    }
}

fn entry((i, rule): (usize, &Rule)) -> Entry<4> {
    let matches = rule.matches.ipv4_five_tuple();
    Entry {
        condition: Layout::ipv4_five_tuple().flow_condition(&matches).expect("a 5-tuple"),
        rank: RankKey::new(Priority::DEFAULT, i as u32),
        rule: RuleId(i as u32),
        categories: 1,
    }
}

fn access_lists(count: &Count, profile: Profile, rules: usize) {
    let rules = generate_rules(&RuleConfig::new(profile, rules)).expect("a profile of 5-tuples");
    let entries: Vec<Entry<4>> = rules.iter().enumerate().map(entry).collect();
    let config = TraceConfig { locality: Locality::Uniform, ..TraceConfig::new(KEYS) };
    let trace = Trace::generate(&rules, &config).expect("there are rules");
    let layout = Layout::ipv4_five_tuple();
    let keys: Vec<[u32; 4]> = trace.keys().map(|key| layout.flow_key(key)).collect();
    let name = |engine: &str| format!("acl/{engine}-{}-{}", profile.name(), rules.len());
    let look_up = |name: &str, engine: &dyn Engine<4>| {
        for categories in [1, 2] {
            let name = if categories == 1 { name.to_owned() } else { format!("{name}-categories") };
            let mut verdicts = [MatchId::NONE; 2 * BATCH];
            count.run(&name, engine.variant(), KEYS, || {
                for keys in keys.chunks(BATCH) {
                    match categories {
                        1 => engine.lookup_batch(black_box(keys), &mut verdicts[..keys.len()]),
                        _ => engine.lookup_categories(black_box(keys), 2, &mut verdicts[..2 * keys.len()]),
                    }
                    black_box(&verdicts);
                }
            });
        }
    };
    for variant in variants() {
        if rules.len() <= 64 {
            for shape in ["rules", "packets"] {
                // The scalar variant has one shape.
                let shape_of = if variant == Variant::Scalar { "rules" } else { shape };
                let kernel: BruteKernel = format!("{shape_of}/{variant}").parse().expect("is a kernel");
                let brute = Brute::new(layout.kinds(), &entries).with_kernel(kernel).expect("is available");
                look_up(&name(&format!("brute-{shape}")), &brute);
            }
        }
        let config = TreeConfig { variant: Some(variant), ..TreeConfig::default() };
        let tree = Tree::build(layout.kinds(), &entries, &config).expect("there is memory enough");
        look_up(&name("tree"), &tree);
        let config = DynamicConfig { variant: Some(variant), ..DynamicConfig::new(0x5eed) };
        let dynamic = Dynamic::build(layout.kinds(), &entries, config).expect("there is memory enough");
        look_up(&name("dynamic"), &dynamic);
    }
}

fn routes<A: Family + Internet>(count: &Count, family: &str) {
    let routes = generate_routes::<A>(&RouteConfig { count: 20_000, next_hops: 100, seed: 1 });
    let mut rib = Rib::new(routes.len());
    for (prefix, next_hop) in &routes {
        rib.insert(*prefix, *next_hop).expect("there is room for all");
    }
    let addresses = generate_addresses(&routes, Locality::Uniform, 0.5, KEYS, 1);
    for variant in variants() {
        for engine in A::ENGINES {
            let config = FibConfig::new(HopSize::B4).with_variant(variant).expect("is available");
            let fib: Option<AnyFib<A>> = A::build(*engine, &rib, &config).and_then(Result::ok);
            let Some(fib) = fib.filter(|fib| fib.variant() == variant) else { continue };
            count.run(&format!("routes/{family}-{}", engine.name()), variant, KEYS, || {
                let mut next_hops = [0; BATCH];
                for addresses in addresses.chunks(BATCH) {
                    fib.lookup_batch(black_box(addresses), &mut next_hops);
                    black_box(&next_hops);
                }
            });
        }
    }
}

fn main() {
    let count = Count { prefix: std::env::args().nth(1).unwrap_or_default() };
    hashes(&count);
    parser(&count);
    cuckoo::<1>(&count);
    cuckoo::<4>(&count);
    cuckoo::<10>(&count);
    bloom(&count);
    for masks in [4, 10, 20] {
        megaflow(&count, masks);
    }
    for (profile, rules) in
        [(Profile::Acl, 10), (Profile::Acl, 32), (Profile::Acl, 1000), (Profile::Fw, 1000)]
    {
        access_lists(&count, profile, rules);
    }
    routes::<u32>(&count, "v4");
    routes::<u128>(&count, "v6");
}
