use super::*;

/// A stream of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32) as u32
    }

    fn take(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.next()).collect()
    }
}

/// The survivors of a batch: (key, payload).
fn survivors(filter: &BloomFilter, keys: &[u32], payloads: &[u32]) -> Vec<(u32, u32)> {
    let (mut out_keys, mut out_payloads) = (vec![0; keys.len()], vec![0; keys.len()]);
    let n = filter.survivors(keys, payloads, &mut out_keys, &mut out_payloads);
    out_keys.into_iter().zip(out_payloads).take(n).collect()
}

/// Compares every kernel with the definition on this batch.
fn check(filter: &mut BloomFilter, kernels: &[BloomKernel], keys: &[u32], what: &str) {
    let payloads: Vec<u32> = (0..keys.len() as u32).map(|i| i ^ 0xa5a5_0000).collect();
    let mut expected: Vec<(u32, u32)> =
        keys.iter().copied().zip(payloads.iter().copied()).filter(|(k, _)| filter.contains(*k)).collect();
    let in_order = expected.clone();
    expected.sort_unstable();
    for kernel in kernels {
        filter.set_kernel(*kernel).unwrap();
        let mut found = survivors(filter, keys, &payloads);
        if kernel.algorithm.keeps_order() {
            assert_eq!(found, in_order, "{kernel}, {what}: order");
        }
        found.sort_unstable();
        assert_eq!(found, expected, "{kernel}, {what}");
    }
}

fn kernels() -> Vec<BloomKernel> {
    crate::isa::testing::for_each_variant(|_| ());
    BloomKernel::all()
}

#[test]
fn every_kernel_agrees_with_the_definition_on_all_short_lengths() {
    let kernels = kernels();
    let mut numbers = Numbers(1);
    for hashes in [1, 3, 11] {
        let mut filter = BloomFilter::with_bits(4096, hashes).unwrap();
        let members = numbers.take(4096 / 10 * 3 / hashes);
        members.iter().for_each(|k| filter.insert(*k));
        for len in 0..=200 {
            let random = numbers.take(len);
            check(&mut filter, &kernels, &random, &format!("{len} random keys, {hashes} hashes"));
            let mixed: Vec<u32> =
                random.iter().map(|r| if r % 2 == 0 { members[*r as usize % members.len()] } else { *r }).collect();
            check(&mut filter, &kernels, &mixed, &format!("{len} mixed keys, {hashes} hashes"));
        }
    }
}
