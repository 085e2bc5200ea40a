//! Flowlane's cuckoo table against DPDK's `rte_hash`: a million keys of all sizes in both, the same batches
//! of 64, in turns. `cargo run --release --example cuckoo [entries]`; huge pages for DPDK must have been
//! reserved (`sysctl vm.nr_hugepages=300`), else it runs on small ones, which is said.

#[path = "../../flowlane/benches/support/mod.rs"]
mod support;

use std::hint::black_box;

use flowlane::cuckoo::{BATCH_MAX, CuckooConfig, CuckooWriter};
use flowlane::memory::prefetch;
use flowlane_peers::RteHash;

/// Keys per call of a body.
const KEYS: usize = 1 << 17;
const ROUNDS: usize = 11;

fn key<const W: usize>(n: u32) -> [u32; W] {
    // Odd factors: every word is a permutation of the numbers.
    std::array::from_fn(|w| n.wrapping_mul(0x9e37_79b9 + 2 * w as u32).rotate_left(w as u32))
}

/// Keys of which `percent` in a hundred are in the table.
fn keys<const W: usize>(entries: u32, percent: u32) -> Vec<[u32; W]> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    (0..KEYS)
        .map(|_| {
            let n = next() % entries;
            key(if next() % 100 < percent { n } else { n + entries })
        })
        .collect()
}

/// Brings the keys of the batch after `batch` into the cache, where a parser would have left them.
fn ask_for_next<const W: usize>(keys: &[[u32; W]], batch: usize) {
    let words = keys.as_flattened();
    let from = (batch + 1) * BATCH_MAX * W;
    (from..from + BATCH_MAX * W).step_by(16).for_each(|word| prefetch(words, word));
}

fn lookups<const W: usize>(ours: &CuckooWriter<W>, theirs: &RteHash<W>, percent: u32) {
    let keys = keys::<W>(ours.len() as u32, percent);
    let (mut values, mut data, mut at) = ([0; BATCH_MAX], [0; BATCH_MAX], [0; BATCH_MAX]);
    for batch in keys.chunks(BATCH_MAX) {
        assert_eq!(ours.lookup_batch(batch, &mut values), theirs.lookup_bulk_data(batch, &mut data));
    }
    // Two bodies only, so that each finds in the caches what one round of the other left there.
    let mut bodies: Vec<support::Body<'_>> = vec![
        (
            "flowlane",
            Box::new(|| {
                for (i, batch) in keys.chunks(BATCH_MAX).enumerate() {
                    ask_for_next(&keys, i);
                    black_box(ours.lookup_batch(black_box(batch), &mut values));
                    black_box(&values);
                }
            }),
        ),
        (
            "rte_hash_lookup_bulk",
            Box::new(|| {
                for (i, batch) in keys.chunks(BATCH_MAX).enumerate() {
                    ask_for_next(&keys, i);
                    theirs.lookup_bulk(black_box(batch), &mut at);
                    black_box(&at);
                }
            }),
        ),
    ];
    support::compare(&format!("{} bytes, {percent} % hits", 4 * W), KEYS as u64, ROUNDS, &mut bodies);
}

/// Fills both tables anew, in turns, after all memory was touched.
fn insertions<const W: usize>(ours: &mut CuckooWriter<W>, theirs: &mut RteHash<W>, entries: u32) {
    let clock = quanta::Clock::new();
    // Up to three quarters of the slots, as DPDK's own test has it, and all.
    for entries in [entries / 4 * 3, entries] {
        let mut cycles = [vec![], vec![]];
        for _ in 0..5 {
            ours.clear();
            let before = clock.raw();
            (0..entries).for_each(|n| assert!(ours.insert(&key(n), n.into()).is_ok()));
            cycles[0].push((clock.raw() - before) / u64::from(entries));
            theirs.clear();
            let before = clock.raw();
            (0..entries).for_each(|n| assert!(theirs.insert(&key(n), n.into())));
            cycles[1].push((clock.raw() - before) / u64::from(entries));
        }
        cycles.iter_mut().for_each(|c| c.sort_unstable());
        let [ours, theirs] = cycles.map(|c| c[2]);
        println!("{} bytes, cycles per insertion of {entries}: flowlane {ours}, rte_hash {theirs}", 4 * W);
    }
}

fn measure<const W: usize>(entries: u32) {
    let mut ours = CuckooWriter::<W>::new(&CuckooConfig::new(entries as usize, 0x5eed));
    let room = entries.next_power_of_two();
    let mut theirs = RteHash::<W>::new(room, false).expect("DPDK has memory");
    for n in 0..entries {
        ours.insert(&key(n), n.into()).expect("has room");
        assert!(theirs.insert(&key(n), n.into()));
    }
    for percent in [100, 50, 0] {
        lookups(&ours, &theirs, percent);
    }
    insertions(&mut ours, &mut theirs, entries);
}

fn main() {
    let huge = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").is_ok_and(|n| n.trim() != "0");
    assert!(flowlane_peers::start(huge), "DPDK does not start");
    let entries = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    println!("{entries} entries; DPDK on {} pages", if huge { "huge" } else { "small" });
    measure::<1>(entries);
    measure::<2>(entries);
    measure::<4>(entries);
    measure::<8>(entries);
    measure::<12>(entries);
    measure::<16>(entries);
}
