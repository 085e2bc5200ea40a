//! Exact match and membership against the standard library's map and set.

use std::collections::{HashMap, HashSet};

use flowlane::{BloomFilter, CuckooMap, ErrorKind};

use crate::random::Random;

/// Keys that differ in few places, so that they come again.
fn rows(r: &mut Random, count: usize, key_bytes: usize) -> Vec<u8> {
    (0..count * key_bytes).map(|_| [0, 1, 255][r.below(3) as usize]).collect()
}

fn value(r: &mut Random) -> u64 {
    match r.below(4) {
        0 => u64::from(r.bits()) << 32 | u64::from(r.bits()),
        1 => u64::from(r.bits()),
        2 => (1 << 31) + u64::from(r.below(2)) - 1,
        _ => r.below(100).into(),
    }
}

#[test]
fn map_agrees_with_std_hash_map() {
    for key_bytes in 1..=64 {
        let r = &mut Random::new(key_bytes as u64);
        let (mut map, mut wanted) = (CuckooMap::new(key_bytes, 4000).unwrap(), HashMap::new());
        for round in 0..6 {
            let keys = rows(r, [700, 0, 1, 64, 257, 300][round], key_bytes);
            // Rounds of small values only go another way.
            let values: Vec<u64> = keys.chunks(key_bytes).map(|_| value(r) >> (40 * (round % 2))).collect();
            map.insert_rows(&keys, &values).unwrap();
            wanted.extend(keys.chunks(key_bytes).map(<[u8]>::to_vec).zip(values));
            for key in rows(r, 20, key_bytes).chunks(key_bytes) {
                let value = value(r);
                assert_eq!(map.insert(key, value), Ok(wanted.insert(key.to_vec(), value)));
            }
            let gone = rows(r, 50, key_bytes);
            let was_there: Vec<bool> =
                gone.chunks(key_bytes).map(|key| wanted.remove(key).is_some()).collect();
            let mut found = vec![true; 50];
            let count = map.remove_rows(&gone, &mut found);
            assert_eq!((&found, count), (&was_there, was_there.iter().filter(|there| **there).count()));
            let asked = [keys, gone, rows(r, 100, key_bytes)].concat();
            let each = asked.chunks(key_bytes);
            let (mut values, mut found) = (vec![4711; each.len()], vec![false; each.len()]);
            let count = map.lookup_rows(&asked, &mut values, &mut found);
            assert_eq!(count, found.iter().filter(|there| **there).count());
            for (key, (value, there)) in each.zip(values.into_iter().zip(found)) {
                assert_eq!(there.then_some(value), wanted.get(key).copied(), "{key:?}");
                assert!(there || value == 4711, "a missing key leaves its value");
                assert_eq!(map.get(key), wanted.get(key).copied());
            }
            assert_eq!(map.len(), wanted.len());
        }
        assert_eq!(map.iter().collect::<HashMap<_, _>>(), wanted);
        map.clear();
        assert!(map.is_empty() && map.iter().next().is_none());
        map.insert(&vec![7; key_bytes], u64::MAX).unwrap();
        assert_eq!(map.remove(&vec![7; key_bytes]), Some(u64::MAX));
    }
}

#[test]
fn full_map_reports_the_first_row_that_failed() {
    for large in [0, 1 << 40] {
        let mut map = CuckooMap::with_seed(4, 100, 5).unwrap();
        let keys: Vec<u8> = (0..5000u32).flat_map(u32::to_le_bytes).collect();
        let values: Vec<u64> = (0..5000).map(|value| value + large).collect();
        let error = map.insert_rows(&keys, &values).unwrap_err();
        let done = error.row().unwrap();
        assert_eq!((error.kind(), map.len()), (ErrorKind::Limit, done));
        assert!(error.to_string().starts_with(&format!("the map is full: {done} of 5000 keys")), "{error}");
        assert!(done >= 100 || map.len() == done);
        for (row, value) in values.iter().enumerate() {
            assert_eq!(map.get(&keys[4 * row..][..4]), (row < done).then_some(*value));
        }
        let error = map.insert(&keys[4 * done..][..4], u64::MAX).unwrap_err();
        assert_eq!((error.kind(), error.row()), (ErrorKind::Limit, None));
        // A key that is there gets another value all the same.
        assert_eq!(map.insert(&keys[..4], u64::MAX), Ok(Some(large)));
    }
    for (key_bytes, entries) in [(0, 1), (65, 1), (4, 0), (4, (1 << 30) + 1)] {
        assert_eq!(CuckooMap::new(key_bytes, entries).unwrap_err().kind(), ErrorKind::Input);
    }
}

#[test]
fn filter_has_no_false_negatives() {
    let r = &mut Random::new(9);
    let mut seen = BloomFilter::new(20_000, 0.001).unwrap();
    let numbers: HashSet<u64> =
        (0..10_000).map(|_| u64::from(r.bits()) << 32 | u64::from(r.bits())).collect();
    let numbers: Vec<u64> = numbers.into_iter().collect();
    seen.insert_u64(&numbers);
    let keys: Vec<u8> = (0..10_000 * 13).map(|_| r.bits() as u8).collect();
    seen.insert_rows(&keys, 13);
    seen.insert(b"once");
    for len in [10_000, 0, 1, 63, 255, 256, 257] {
        let mut found = vec![false; len];
        seen.contains_u64(&numbers[..len], &mut found);
        assert!(found.iter().all(|there| *there), "{len} numbers");
        found.fill(false);
        seen.contains_rows(&keys[..len * 13], 13, &mut found);
        assert!(found.iter().all(|there| *there), "{len} rows");
    }
    assert!(seen.contains(b"once") && keys.chunks(13).all(|key| seen.contains(key)));
    // Batches agree with single lookups.
    let others: Vec<u8> = (0..50_000 * 13).map(|_| r.bits() as u8).collect();
    let mut found = vec![false; 50_000];
    seen.contains_rows(&others, 13, &mut found);
    assert!(others.chunks(13).zip(&found).all(|(key, found)| seen.contains(key) == *found));
    let wrong = found.iter().filter(|there| **there).count();
    let expected = 50_000.0 * seen.false_positive_rate(20_001);
    assert!(expected <= 51.0 && (wrong as f64) < 3.0 * expected.max(10.0), "{wrong} of {expected}");
    assert!((20_000..100_000).contains(&seen.table_bytes()));
    seen.clear();
    assert!(!seen.contains(b"once"));
    assert_eq!(BloomFilter::new(10, 2.0).unwrap_err().kind(), ErrorKind::Input);
    assert_eq!(BloomFilter::new(u64::MAX, 0.001).unwrap_err().kind(), ErrorKind::Limit);
}
