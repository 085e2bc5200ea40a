//! The paper's Bloom filter workload (§4.1): 1M uniformly random keys, 3 hashes, a filter of 10 bits an item, by
//! every kernel that there is here; the first line is the paper's baseline, to which the ratios are.
//!
//! Then, for filters of the same sizes, one bit of answer a key: the classic filter with one hash a seed and with
//! digests, and the blocked filter by its variants; ratios are to the classic filter's scalar code.
//!
//! `cargo bench --bench bloom -- [SIZE_KIB|PART_OF_A_KERNEL'S_NAME]..` measures only those.

mod support;

use std::hint::black_box;

use flowlane::bloom::{BlockedBloomFilter, BloomFilter, BloomKernel};
use flowlane::isa::Variant;

const KEYS: usize = 1 << 20;
const HASHES: usize = 3;

/// In L1, L2 and L3 of the machines measured so far, and beyond.
const SIZES_KIB: [u64; 4] = [16, 512, 8 << 10, 256 << 10];

fn numbers(mut state: u64) -> impl FnMut() -> u32 {
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let sizes: Vec<u64> = wanted.iter().filter_map(|w| w.parse().ok()).collect();
    let names: Vec<&String> = wanted.iter().filter(|w| w.parse::<u64>().is_err()).collect();
    let mut kernels = vec![BloomKernel::BASELINE];
    kernels.extend(BloomKernel::all().into_iter().filter(|k| {
        let name = k.to_string();
        *k == BloomKernel::SCALAR || names.is_empty() || names.iter().any(|part| name.contains(part.as_str()))
    }));
    kernels.retain(|k| k.available());
    for kib in if sizes.is_empty() { SIZES_KIB.to_vec() } else { sizes } {
        measure(kib, &kernels);
        answers(kib);
    }
}

fn measure(kib: u64, kernels: &[BloomKernel]) {
    let mut next = numbers(1);
    let keys: Vec<u32> = (0..KEYS).map(|_| next()).collect();
    let payloads: Vec<u32> = (0..KEYS as u32).collect();
    let mut filter = BloomFilter::with_bits(kib << 13, HASHES).expect("a size that there is");
    let mut next = numbers(2);
    (0..filter.bits() / 10).for_each(|_| filter.insert(next()));
    let filter = std::cell::RefCell::new(filter);
    let out = std::cell::RefCell::new((vec![0; KEYS], vec![0; KEYS]));

    let names: Vec<String> = kernels.iter().map(ToString::to_string).collect();
    let mut bodies: Vec<support::Body<'_>> = vec![];
    for (kernel, name) in kernels.iter().zip(&names) {
        let (keys, payloads, filter, out) = (&keys, &payloads, &filter, &out);
        bodies.push((
            name,
            Box::new(move || {
                let (mut filter, mut out) = (filter.borrow_mut(), out.borrow_mut());
                let (out_keys, out_payloads) = &mut *out;
                filter.set_kernel(*kernel).expect("is available");
                black_box(filter.survivors(keys, payloads, out_keys, out_payloads));
            }),
        ));
    }
    // A pass over the largest filter takes 20 times one over the smallest.
    let rounds = if kib > 4096 { 7 } else { 21 };
    support::compare(&format!("{kib} KiB, {HASHES} hashes"), KEYS as u64, rounds, &mut bodies);
}

fn answers(kib: u64) {
    let mut next = numbers(1);
    let keys: Vec<u32> = (0..KEYS).map(|_| next()).collect();
    let long: Vec<u64> = keys.iter().map(|k| u64::from(*k) << 20).collect();
    let mut classic = BloomFilter::with_bits(kib << 13, HASHES).expect("a size that there is");
    let blocked =
        |v| BlockedBloomFilter::with_bits(kib << 13).ok()?.with_variant(v).map(|f| (v.to_string(), f));
    let blocked: Vec<_> = Variant::ALL.into_iter().filter_map(blocked).collect();
    let mut next = numbers(2);
    for key in (0..classic.bits() / 10).map(|_| next()) {
        classic.insert(key);
        blocked.iter().for_each(|(_, filter)| filter.insert(key));
    }
    let hits = std::cell::RefCell::new(vec![0; KEYS / 64]);
    let (classic, keys, long, hits) = (&classic, &keys, &long, &hits);
    let one_by_one = move || {
        for (keys, hits) in keys.chunks(64).zip(hits.borrow_mut().iter_mut()) {
            *hits = keys.iter().fold(0, |word, key| word << 1 | u64::from(classic.contains(*key)));
        }
    };
    let names: Vec<String> =
        blocked.iter().map(|(variant, _)| format!("blocked, batch, {variant}")).collect();
    let mut bodies: Vec<support::Body<'_>> = vec![
        ("classic, one by one", Box::new(one_by_one)),
        ("classic, batch", Box::new(|| classic.contains_batch(keys, &mut hits.borrow_mut()))),
        ("classic, batch of 64 bits", Box::new(|| classic.contains_batch_u64(long, &mut hits.borrow_mut()))),
    ];
    for (name, (_, filter)) in names.iter().zip(&blocked) {
        bodies.push((name, Box::new(|| filter.contains_batch(keys, &mut hits.borrow_mut()))));
    }
    support::compare(&format!("{kib} KiB, one bit a key"), KEYS as u64, 7, &mut bodies);
}
