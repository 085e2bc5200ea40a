use flowlane::bloom::{BloomFilter, UNROLLS};
use flowlane::generate::Random;

use super::*;

fn kernels() -> Vec<Baseline> {
    flowlane::isa::testing::for_each_variant(|_| ());
    Kernel::all().into_iter().map(|kernel| Baseline::new(kernel).expect("is available")).collect()
}

fn numbers(random: &mut Random, n: usize) -> Vec<u32> {
    (0..n).map(|_| random.bits() as u32).collect()
}

/// Compares every kernel with the filter's definition on a batch.
fn check(filter: &BloomFilter, kernels: &[Baseline], keys: &[u32], what: &str) {
    let payloads: Vec<u32> = (0..keys.len() as u32).map(|i| i ^ 0xa5a5_0000).collect();
    let mut expected: Vec<(u32, u32)> =
        keys.iter().copied().zip(payloads.iter().copied()).filter(|(k, _)| filter.contains(*k)).collect();
    expected.sort_unstable();
    for baseline in kernels {
        let (mut out_keys, mut out_payloads) = (vec![0; keys.len()], vec![0; keys.len()]);
        let n = baseline.survivors(filter, keys, &payloads, &mut out_keys, &mut out_payloads);
        let mut found: Vec<(u32, u32)> = out_keys.into_iter().zip(out_payloads).take(n).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{}, {what}", baseline.kernel);
    }
}

#[test]
fn every_kernel_agrees_with_the_definition_on_all_short_lengths() {
    let kernels = kernels();
    let random = &mut Random::new(1);
    for hashes in [1, 3, 11] {
        let mut filter = BloomFilter::with_bits(4096, hashes).unwrap();
        let members = numbers(random, 4096 / 10 * 3 / hashes);
        members.iter().for_each(|k| filter.insert(*k));
        for len in 0..=200 {
            let keys = numbers(random, len);
            check(&filter, &kernels, &keys, &format!("{len} random keys, {hashes} hashes"));
            let mixed: Vec<u32> = keys
                .iter()
                .map(|r| if r % 2 == 0 { members[*r as usize % members.len()] } else { *r })
                .collect();
            check(&filter, &kernels, &mixed, &format!("{len} mixed keys, {hashes} hashes"));
        }
    }
}

#[test]
fn every_kernel_agrees_on_long_batches_of_every_kind() {
    let kernels = kernels();
    let random = &mut Random::new(3);
    let mut filter = BloomFilter::with_bits(1 << 16, 3).unwrap();
    let members = numbers(random, (1 << 16) / 10);
    members.iter().for_each(|k| filter.insert(*k));
    check(&filter, &kernels, &members, "all hit");
    check(&filter, &kernels, &numbers(random, 10_001), "random");
    // One part of survivors, the others of keys that fail at once.
    let skewed: Vec<u32> =
        (0..10_000).map(|i| if i < 2500 { members[i] } else { random.bits() as u32 }).collect();
    check(&filter, &kernels, &skewed, "skewed");
    filter.clear();
    check(&filter, &kernels, &members, "all miss");
    for lane in 0..16 {
        filter.clear();
        filter.insert(members[lane]);
        check(&filter, &kernels, &members[..64], &format!("lane {lane} only"));
    }
}

#[test]
fn a_filter_of_one_word_works() {
    let mut filter = BloomFilter::with_bits(32, 2).unwrap();
    filter.insert(7);
    check(&filter, &kernels(), &(0..100).collect::<Vec<u32>>(), "one word");
}

#[test]
fn there_are_kernels_of_the_factors_that_there_are_and_no_others() {
    for kernel in Kernel::all() {
        assert!(UNROLLS.contains(&kernel.unroll));
        assert!(Baseline::new(Kernel { unroll: 3, ..kernel }).is_none());
    }
}
