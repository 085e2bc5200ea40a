use super::*;

/// A stream of numbers that look random.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32) as u32
    }

    pub(super) fn take(&mut self, n: usize) -> Vec<u32> {
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
    let expected: Vec<(u32, u32)> =
        keys.iter().copied().zip(payloads.iter().copied()).filter(|(k, _)| filter.contains(*k)).collect();
    for kernel in kernels {
        filter.set_kernel(*kernel).unwrap();
        assert_eq!(survivors(filter, keys, &payloads), expected, "{kernel}, {what}");
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
            let mixed: Vec<u32> = random
                .iter()
                .map(|r| if r % 2 == 0 { members[*r as usize % members.len()] } else { *r })
                .collect();
            check(&mut filter, &kernels, &mixed, &format!("{len} mixed keys, {hashes} hashes"));
        }
    }
}

#[test]
fn batches_of_keys_of_every_kind_agree_with_single_keys() {
    let kernels = [BloomKernel::SCALAR, BloomKernel::default_for(0), BloomKernel::default_for(1 << 30)];
    let mut numbers = Numbers(2);
    for hashes in [1, 4, 16] {
        let mut filter = BloomFilter::with_bits(8192, hashes).unwrap();
        let keys: Vec<u64> =
            (0..200).map(|_| u64::from(numbers.next()) << 32 | u64::from(numbers.next())).collect();
        let words: Vec<u32> = keys.iter().map(|k| *k as u32).collect();
        let strings: Vec<Vec<u8>> =
            keys.iter().map(|k| k.to_le_bytes()[..*k as usize % 9].to_vec()).collect();
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        for i in (0..200).filter(|i| i % 3 == 0) {
            filter.insert(words[i]);
            filter.insert_u64(keys[i]);
            filter.insert_bytes(strings[i]);
        }
        for len in 0..=200 {
            let expected = |single: &dyn Fn(usize) -> bool| {
                let mut hits = [0u64; 5];
                (0..len).filter(|i| single(*i)).for_each(|i| hits[i / 64] |= 1 << (i % 64));
                hits
            };
            for kernel in kernels {
                filter.set_kernel(kernel).unwrap();
                let mut hits = [0; 5];
                filter.contains_batch(&words[..len], &mut hits);
                assert_eq!(hits, expected(&|i| filter.contains(words[i])), "{kernel}, {len} words");
                let mut hits = [0; 5];
                filter.contains_batch_u64(&keys[..len], &mut hits);
                assert_eq!(hits, expected(&|i| filter.contains_u64(keys[i])), "{kernel}, {len} of 64 bits");
                let mut hits = [0; 5];
                filter.contains_batch_bytes(&strings[..len], &mut hits);
                assert_eq!(hits, expected(&|i| filter.contains_bytes(strings[i])), "{kernel}, {len} strings");
            }
        }
        assert!((0..200).step_by(3).all(|i| filter.contains(words[i]) && filter.contains_u64(keys[i])));
    }
}

#[test]
fn every_kernel_agrees_on_batches_longer_than_a_chunk() {
    let kernels = kernels();
    let mut numbers = Numbers(3);
    let mut filter = BloomFilter::with_bits(1 << 16, 3).unwrap();
    let members = numbers.take((1 << 16) / 10);
    members.iter().for_each(|k| filter.insert(*k));
    check(&mut filter, &kernels, &members, "all hit");
    check(&mut filter, &kernels, &numbers.take(10_001), "random");
    // One partition of survivors, the others of keys that go at once.
    let skewed: Vec<u32> = (0..10_000).map(|i| if i < 2500 { members[i] } else { numbers.next() }).collect();
    check(&mut filter, &kernels, &skewed, "skewed");
    filter.clear();
    check(&mut filter, &kernels, &members, "all miss");
    for lane in 0..16 {
        filter.clear();
        filter.insert(members[lane]);
        check(&mut filter, &kernels, &members[..64], &format!("lane {lane} only"));
    }
}

#[test]
fn false_positives_are_as_many_as_theory_says() {
    let mut numbers = Numbers(4);
    for (items, rate) in [(1000u64, 0.05), (6500, 0.01), (20_000, 0.001)] {
        let mut filter = BloomFilter::for_items(items, rate).unwrap();
        let mut digests = BloomFilter::for_items(items, rate).unwrap();
        for _ in 0..items {
            filter.insert(numbers.next());
            digests.insert_u64(u64::from(numbers.next()) << 20);
        }
        let theory = filter.false_positive_rate(items);
        assert!(theory <= rate && filter.hashes() <= 16);
        let n = 400_000;
        let passed = (0..n).filter(|_| filter.contains(numbers.next())).count() as f64 / f64::from(n);
        let of_digests = (0..n).filter(|_| digests.contains_u64(u64::from(numbers.next()) << 20)).count()
            as f64
            / f64::from(n);
        for measured in [passed, of_digests] {
            // Three standard deviations of the sample, and a tenth for the fill of this one filter.
            let slack = 3.0 * (theory / f64::from(n)).sqrt() + 0.1 * theory;
            assert!((measured - theory).abs() < slack, "{items} items: {measured}, not {theory}");
        }
    }
}

#[test]
fn sizes_follow_from_items_and_rate() {
    // 1000 · ln(100) / ln(2)² = 9585 bits, rounded up; then 5 of the 7 hashes suffice.
    let filter = BloomFilter::for_items(1000, 0.01).unwrap();
    assert_eq!((filter.bits(), filter.hashes()), (16384, 3));
    assert_eq!(BloomFilter::with_bits(1, 1).unwrap().bits(), 32);
    assert_eq!(BloomFilter::with_bits(33, 1).unwrap().bits(), 64);
    assert!(matches!(BloomFilter::with_bits(1 << 33, 1), Err(BloomError::TooManyBits { .. })));
    assert!(matches!(BloomFilter::with_bits(32, 0), Err(BloomError::Hashes { hashes: 0 })));
    assert!(matches!(BloomFilter::with_bits(32, 17), Err(BloomError::Hashes { hashes: 17 })));
    assert!(matches!(BloomFilter::for_items(1, 0.0), Err(BloomError::Rate { .. })));
    assert!(matches!(BloomFilter::for_items(1, f64::NAN), Err(BloomError::Rate { .. })));
    assert!(matches!(BloomFilter::for_items(1 << 40, 0.01), Err(BloomError::OutOfReach { .. })));
}

#[test]
fn kernel_names_are_read_back_and_an_explicit_choice_wins() {
    for kernel in BloomKernel::all() {
        assert_eq!(kernel.to_string().parse(), Ok(kernel));
        let filter = BloomFilter::with_bits(1024, 2).unwrap().with_kernel(kernel).unwrap();
        assert_eq!(filter.kernel(), kernel);
    }
    for wrong in
        ["", "scalar", "scalar/u0", "scalar/u3", "scalar/u9", "scalar/u01", "scalar/u1/prefetch/", "avx9/u1"]
    {
        assert!(matches!(wrong.parse::<BloomKernel>(), Err(BloomKernelError::Name(_))), "{wrong}");
    }
    let mut filter = BloomFilter::with_bits(1024, 2).unwrap();
    assert!(filter.set_kernel(BloomKernel { unroll: 3, ..BloomKernel::SCALAR }).is_err());
}

#[test]
fn a_filter_of_one_word_works() {
    let mut filter = BloomFilter::with_bits(32, 2).unwrap();
    filter.insert(7);
    let keys: Vec<u32> = (0..100).collect();
    check(&mut filter, &kernels(), &keys, "one word");
    assert!(filter.contains(7));
}
