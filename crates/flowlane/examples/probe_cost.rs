//! The lookups that a probe may listen to, without one: what `check-probe.sh` disassembles and counts.
//!
//! ```text
//! cargo run --release -p flowlane --example probe_cost -- PART ROUNDS
//! ```

use std::hint::black_box;
use std::process::ExitCode;

use flowlane::cuckoo::{CuckooConfig, CuckooTable, CuckooWriter};
use flowlane::generate::Random;
use flowlane::isa::Variant;

/// Words of a key: a five-tuple of IPv4.
const W: usize = 4;
const KEYS: usize = 1 << 12;
const BATCH: usize = 32;

#[inline(never)]
fn find(table: &CuckooTable<W>, key: &[u32; W]) -> Option<u32> {
    table.lookup(key)
}

#[inline(never)]
fn find_batch(table: &CuckooTable<W>, keys: &[[u32; W]], values: &mut [u32]) -> u64 {
    table.lookup_batch(keys, values)
}

fn keys(seed: u64) -> Vec<[u32; W]> {
    let mut random = Random::new(seed);
    (0..KEYS).map(|_| [(); W].map(|()| random.bits() as u32)).collect()
}

fn cuckoo(variant: Variant) -> CuckooWriter<W> {
    let config = CuckooConfig::new(KEYS, 7).with_variant(variant).expect("every CPU has the scalar variant");
    let mut table = CuckooWriter::new(&config);
    for (i, key) in keys(1).iter().enumerate() {
        table.insert(key, i as u32).expect("there is room");
    }
    table
}

fn one_by_one(seed: u64, rounds: usize) -> u64 {
    let (table, keys) = (cuckoo(Variant::Scalar), keys(seed));
    let mut hits = 0;
    for _ in 0..rounds {
        hits += keys.iter().filter(|key| find(black_box(&table), key).is_some()).count() as u64;
    }
    hits
}

fn batches(rounds: usize) -> u64 {
    let (table, mut all) = (cuckoo(Variant::Scalar), keys(1));
    // Half of them misses.
    all.iter_mut().step_by(2).for_each(|key| key[0] ^= 1);
    let mut values = [0; BATCH];
    let mut hits = 0;
    for _ in 0..rounds {
        for batch in all.chunks(BATCH) {
            hits += u64::from(find_batch(black_box(&table), batch, &mut values).count_ones());
            black_box(&values);
        }
    }
    hits
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().unwrap_or_default();
    let rounds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let hits = match part.as_str() {
        "hit" => one_by_one(1, rounds),
        "miss" => one_by_one(2, rounds),
        "batch" => batches(rounds),
        _ => {
            eprintln!("`{part}` is no part; there are hit, miss and batch");
            return ExitCode::from(2);
        }
    };
    println!("{part}: {hits} found");
    ExitCode::SUCCESS
}
