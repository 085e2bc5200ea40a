use super::*;
use crate::bloom::tests::Numbers;

/// The filter by every variant in turn.
fn for_each_variant(mut filter: BlockedBloomFilter, mut property: impl FnMut(&BlockedBloomFilter)) {
    crate::isa::testing::for_each_variant(|variant| {
        if let Some(backend) = Backend::of(variant).filter(|_| variant != Variant::Sse42) {
            filter.chosen = AdaptiveDispatch::named((backend, filter.kernel().prefetch));
            property(&filter);
        }
    });
}

#[test]
fn batches_of_keys_of_every_kind_agree_with_single_keys() {
    let mut numbers = Numbers(1);
    // Without and with asking ahead.
    for bits in [1, 20_000, 16 << 20] {
        let filter = BlockedBloomFilter::with_bits(bits).unwrap();
        let keys: Vec<u64> =
            (0..200).map(|_| u64::from(numbers.next()) << 32 | u64::from(numbers.next())).collect();
        let words: Vec<u32> = keys.iter().map(|k| *k as u32).collect();
        let strings: Vec<Vec<u8>> =
            keys.iter().map(|k| k.to_le_bytes()[..*k as usize % 9].to_vec()).collect();
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        for i in (0..200).step_by(3) {
            filter.insert(words[i]);
            filter.insert_u64(keys[i]);
            filter.insert_bytes(strings[i]);
            assert!(
                filter.contains(words[i])
                    && filter.contains_u64(keys[i])
                    && filter.contains_bytes(strings[i])
            );
        }
        for_each_variant(filter, |filter| {
            for len in 0..=200 {
                let expected = |single: &dyn Fn(usize) -> bool| {
                    let mut hits = [0u64; 5];
                    (0..len).filter(|i| single(*i)).for_each(|i| hits[i / 64] |= 1 << (i % 64));
                    hits
                };
                let what = format!("{}, {bits} bits, {len} keys", filter.variant());
                let mut hits = [0; 5];
                filter.contains_batch(&words[..len], &mut hits);
                assert_eq!(hits, expected(&|i| filter.contains(words[i])), "{what}");
                let mut hits = [0; 5];
                filter.contains_batch_u64(&keys[..len], &mut hits);
                assert_eq!(hits, expected(&|i| filter.contains_u64(keys[i])), "{what} of 64 bits");
                let mut hits = [0; 5];
                filter.contains_batch_bytes(&strings[..len], &mut hits);
                assert_eq!(hits, expected(&|i| filter.contains_bytes(strings[i])), "{what}, strings");
            }
        });
    }
}

#[test]
fn survivors_keep_order_and_payloads() {
    let mut numbers = Numbers(2);
    let filter = BlockedBloomFilter::with_bits(40_000).unwrap();
    let keys = numbers.take(5000);
    keys.iter().step_by(3).for_each(|k| filter.insert(*k));
    let payloads: Vec<u32> = (0..5000).collect();
    for_each_variant(filter, |filter| {
        for len in (0..=200).chain([1023, 1024, 1025, 5000]) {
            let expected: Vec<(u32, u32)> = keys[..len]
                .iter()
                .zip(&payloads)
                .filter(|(k, _)| filter.contains(**k))
                .map(|(k, p)| (*k, *p))
                .collect();
            let (mut out_keys, mut out_payloads) = (vec![0; len], vec![0; len]);
            let n = filter.survivors(&keys[..len], &payloads[..len], &mut out_keys, &mut out_payloads);
            let found: Vec<(u32, u32)> = out_keys.into_iter().zip(out_payloads).take(n).collect();
            assert_eq!(found, expected, "{}, {len} keys", filter.variant());
        }
    });
}

#[test]
fn false_positives_are_as_many_as_theory_says() {
    let mut numbers = Numbers(3);
    for (items, rate) in [(5000u64, 0.05), (10_000, 0.01), (30_000, 0.001)] {
        let filter = BlockedBloomFilter::for_items(items, rate).unwrap();
        let of_digests = BlockedBloomFilter::for_items(items, rate).unwrap();
        for _ in 0..items {
            filter.insert(numbers.next());
            of_digests.insert_u64(u64::from(numbers.next()) << 20);
        }
        let theory = filter.false_positive_rate(items);
        assert!(theory <= rate && theory > 0.9 * rate);
        let n = 400_000;
        let words = (0..n).filter(|_| filter.contains(numbers.next())).count();
        let long = (0..n).filter(|_| of_digests.contains_u64(u64::from(numbers.next()) << 20)).count();
        for measured in [words, long].map(|passed| passed as f64 / f64::from(n)) {
            // Three standard deviations of the sample, and a sixth for the fill of this one filter.
            let slack = 3.0 * (theory / f64::from(n)).sqrt() + theory / 6.0;
            assert!((measured - theory).abs() < slack, "{items} items: {measured}, not {theory}");
        }
    }
}

#[test]
fn sizes_are_checked() {
    assert_eq!(BlockedBloomFilter::with_bits(0).unwrap().bits(), 256);
    assert_eq!(BlockedBloomFilter::with_bits(257).unwrap().bits(), 512);
    assert!(matches!(BlockedBloomFilter::with_bits(1 << 36), Err(BloomError::TooManyBits { .. })));
    assert!(matches!(BlockedBloomFilter::for_items(1, 1.0), Err(BloomError::Rate { .. })));
    assert!(matches!(BlockedBloomFilter::for_items(1 << 45, 0.01), Err(BloomError::OutOfReach { .. })));
    assert!((false_positive_rate(1, 0), false_positive_rate(1, 1_000_000)) == (0.0, 1.0));
}

#[test]
fn keys_put_in_by_other_threads_are_found() {
    let filter = BlockedBloomFilter::with_bits(1 << 20).unwrap();
    let keys = Numbers(5).take(20_000);
    std::thread::scope(|scope| {
        for part in keys.chunks(5000) {
            let filter = &filter;
            scope.spawn(move || {
                let mut hits = [0; 1];
                for keys in part.chunks(50) {
                    keys.iter().for_each(|k| filter.insert(*k));
                    filter.contains_batch(keys, &mut hits);
                    assert_eq!(hits[0].count_ones(), 50);
                }
            });
        }
    });
    assert!(keys.iter().all(|k| filter.contains(*k)));
}
