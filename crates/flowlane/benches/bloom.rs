//! The paper's Bloom filter workload (§4.1): 1M uniformly random keys, 3 hashes, a filter of 10 bits an item, by
//! every kernel that there is here; the first line is the paper's baseline, to which the ratios are.
//!
//! `cargo bench --bench bloom -- [SIZE_KIB|PART_OF_A_KERNEL'S_NAME]..` measures only those.

mod support;

use std::hint::black_box;

use flowlane::bloom::{BloomFilter, BloomKernel};

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
