//! Every variant against the scalar definition and a standard map; what readers see beside a writer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use super::geometry::{Geometry, alternate_hash};
use super::slot_metadata::SlotMetadata;
use super::*;
use crate::isa::testing::for_each_variant;

/// A generator of numbers that is the same everywhere (Steele et al., SplitMix64).
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The key number `n`: distinct, and alike in all but a few bits.
fn key<const W: usize>(n: u32) -> [u32; W] {
    let mut key = [0x0a00_0001; W];
    key[W - 1] = n;
    key
}

/// Batches of every length give what single lookups give, in both forms.
fn assert_batches<const W: usize>(table: &CuckooTable<W>, keys: &[[u32; W]]) {
    for len in (0..=BATCH_MAX).filter(|len| *len <= keys.len()) {
        let at = len * 7 % (keys.len() - len + 1);
        let batch = &keys[at..at + len];
        let mut values = [u32::MAX; BATCH_MAX];
        let hits = table.lookup_batch(batch, &mut values);
        let hashes: Vec<u32> = batch.iter().map(|key| table.hash(key)).collect();
        let mut same = [u32::MAX; BATCH_MAX];
        assert_eq!(table.lookup_batch_with_hashes(batch, &hashes, &mut same), hits);
        assert_eq!(values, same);
        assert!(len == BATCH_MAX || hits >> len == 0, "{}: bits beyond {len} lanes", table.variant());
        for (lane, key) in batch.iter().enumerate() {
            let got = (hits >> lane & 1 != 0).then_some(values[lane]);
            assert_eq!(got, table.lookup(key), "{}, lane {lane} of {len}", table.variant());
            assert!(got.is_some() || values[lane] == u32::MAX, "the value of a miss was written");
        }
    }
}

/// Batches of insertions, with keys that are there, that come twice, and at last too many, against a map.
#[test]
fn batches_of_insertions_are_insertions_in_order() {
    for config in [CuckooConfig::new(3000, 5), CuckooConfig::new(3000, 5).growing_from(100)] {
        let mut writer = CuckooWriter::<3>::new(&config);
        let mut map = HashMap::new();
        let mut numbers = Numbers(11);
        for _ in 0..400 {
            let len = numbers.below(150) as usize;
            let batch: Vec<([u32; 3], u32)> =
                (0..len).map(|_| (key(numbers.below(4000) as u32), numbers.next() as u32)).collect();
            let (keys, values): (Vec<_>, Vec<_>) = batch.iter().copied().unzip();
            // As many as there is room for.
            let fits = |(key, value): &&([u32; 3], u32)| {
                let fits = map.len() < 3000 || map.contains_key(key);
                fits.then(|| map.insert(*key, *value));
                fits
            };
            let expected = batch.iter().take_while(fits).count();
            assert_eq!(writer.insert_batch(&keys, &values), expected);
            assert_eq!(writer.len(), map.len());
            for key in keys.iter().take(30) {
                assert_eq!(writer.lookup(key), map.get(key).copied());
                map.remove(key);
                writer.remove(key);
            }
        }
        assert_eq!(writer.iter().collect::<HashMap<_, _>>(), map);
        let all: Vec<[u32; 3]> = (0..4000).map(key).collect();
        let inserted = writer.insert_batch(&all, &vec![7; all.len()]);
        assert_eq!(writer.len(), 3000, "it is full");
        assert!(all[..inserted].iter().all(|key| writer.lookup(key) == Some(7)));
        assert_eq!(writer.lookup(&all[inserted]), None, "the first without a place");
        assert_eq!(writer.insert_batch(&[], &[]), 0);
    }
}

/// Any number of keys at once gives what single lookups give.
fn assert_many<const W: usize>(table: &CuckooTable<W>, keys: &[[u32; W]]) {
    for len in [0, 1, 63, 64, 65, 128, 129, 200, 1000].into_iter().filter(|len| *len <= keys.len()) {
        let mut values = vec![u32::MAX; len + 1];
        let mut hits = vec![u64::MAX; len.div_ceil(BATCH_MAX) + 1];
        table.lookup_many(&keys[..len], &mut values, &mut hits);
        for (i, key) in keys[..len].iter().enumerate() {
            let got = (hits[i / BATCH_MAX] >> (i % BATCH_MAX) & 1 != 0).then_some(values[i]);
            assert_eq!(got, table.lookup(key), "{}, key {i} of {len}", table.variant());
            assert!(got.is_some() || values[i] == u32::MAX, "the value of a miss was written");
        }
        let beyond = hits.pop().zip(values.pop());
        assert_eq!(beyond, Some((u64::MAX, u32::MAX)), "written behind {len}");
        let last = len % BATCH_MAX;
        assert!(last == 0 || hits[len / BATCH_MAX] >> last == 0, "bits beyond {len} keys");
    }
}

fn agrees_with_a_map<const W: usize>(variant: Variant, config: CuckooConfig, steps: usize) {
    let mut writer = CuckooWriter::<W>::new(&config.with_variant(variant).expect("is available"));
    let mut map = HashMap::new();
    let mut numbers = Numbers(W as u64);
    let keys = (config.entries_max * 5 / 4) as u64;
    for step in 0..steps {
        let key = key::<W>(numbers.below(keys) as u32);
        match numbers.below(8) {
            0..4 if map.len() < config.entries_max || map.contains_key(&key) => {
                let value = numbers.next() as u32;
                assert_eq!(writer.insert(&key, value), Ok(map.insert(key, value)), "step {step}");
            }
            4..6 => assert_eq!(writer.remove(&key), map.remove(&key), "step {step}"),
            _ => assert_eq!(writer.lookup(&key), map.get(&key).copied(), "step {step}"),
        }
        assert_eq!(writer.len(), map.len());
    }
    let batch: Vec<[u32; W]> = (0..keys as u32).map(key).collect();
    assert_batches(&writer, &batch);
    assert_many(&writer, &batch);
    for key in &batch {
        assert_eq!(writer.lookup(key), map.get(key).copied());
    }
    assert_eq!(writer.iter().collect::<HashMap<_, _>>(), map);
    writer.clear();
    assert!(writer.is_empty() && batch.iter().all(|key| writer.lookup(key).is_none()));
    assert!(writer.buckets.iter().all(|bucket| bucket.filter() == 0));
}

#[test]
fn every_variant_agrees_with_a_map_for_every_key_size() {
    for_each_variant(|variant| {
        for entries in [1, 2, 61, 982, 7864] {
            let config = CuckooConfig::new(entries, 0x5eed);
            agrees_with_a_map::<1>(variant, config, 20 * entries.min(3000));
            agrees_with_a_map::<2>(variant, config, 20 * entries);
            agrees_with_a_map::<3>(variant, config, 20 * entries);
            agrees_with_a_map::<4>(variant, config, 20 * entries);
            agrees_with_a_map::<5>(variant, config, 20 * entries);
            agrees_with_a_map::<8>(variant, config, 20 * entries);
            agrees_with_a_map::<12>(variant, config, 20 * entries);
            agrees_with_a_map::<13>(variant, config, 20 * entries);
            agrees_with_a_map::<16>(variant, config, 20 * entries);
        }
    });
}

#[test]
fn a_growing_table_agrees_with_a_map() {
    for_each_variant(|variant| {
        for entries in [20, 982, 5000] {
            let config = CuckooConfig::new(entries, 7).growing_from(1);
            agrees_with_a_map::<4>(variant, config, 20 * entries);
            agrees_with_a_map::<16>(variant, config, 20 * entries);
        }
    });
}

#[test]
fn batches_of_hits_of_misses_and_of_one_hit_are_right() {
    for_each_variant(|variant| {
        let config = CuckooConfig::new(7800, 99).with_variant(variant).expect("is available");
        let mut writer = CuckooWriter::<4>::new(&config);
        for n in 0..7800 {
            assert_eq!(writer.insert(&key(n), n), Ok(None));
        }
        let hits: Vec<[u32; 4]> = (0..128).map(key).collect();
        let misses: Vec<[u32; 4]> = (10_000..10_128).map(key).collect();
        assert_batches(&writer, &hits);
        assert_batches(&writer, &misses);
        for lane in 0..BATCH_MAX {
            let mut batch = misses[..BATCH_MAX].to_vec();
            batch[lane] = hits[lane];
            assert_eq!(writer.lookup_batch(&batch, &mut [0; BATCH_MAX]), 1 << lane);
            let mut batch = hits[..BATCH_MAX].to_vec();
            batch[lane] = misses[lane];
            assert_eq!(writer.lookup_batch(&batch, &mut [0; BATCH_MAX]), !(1 << lane));
        }
    });
}

#[test]
fn keys_of_one_hash_fill_both_buckets_and_stay_distinct() {
    for_each_variant(|variant| {
        one_hash::<1>(variant);
        one_hash::<2>(variant);
        one_hash::<3>(variant);
        one_hash::<4>(variant);
        one_hash::<5>(variant);
    });
}

fn one_hash<const W: usize>(variant: Variant) {
    let slots = SLOTS;
    let config = CuckooConfig::new(1000, 1).with_variant(variant).expect("is available");
    let mut writer = CuckooWriter::<W>::new(&config);
    let taken = (0..40).take_while(|n| writer.insert_with_hash(&key(*n), 0xabcd_1234, *n).is_ok());
    assert_eq!(taken.count(), 2 * slots);
    let keys: Vec<[u32; W]> = (0..40).map(key).collect();
    let mut values = [0; BATCH_MAX];
    let hits = writer.lookup_batch_with_hashes(&keys, &[0xabcd_1234; 40], &mut values);
    assert_eq!(hits, (1 << (2 * slots)) - 1);
    assert!((0..2 * slots).all(|n| values[n] == n as u32));
    assert_eq!(writer.remove_with_hash(&keys[3], 0xabcd_1234), Some(3));
    assert_eq!(writer.lookup_with_hash(&keys[3], 0xabcd_1234), None);
    assert_eq!(writer.insert_with_hash(&keys[30], 0xabcd_1234, 30), Ok(None));
    assert_eq!(writer.lookup_with_hash(&keys[30], 0xabcd_1234), Some(30));
}

#[test]
fn at_least_95_percent_of_the_slots_fill_before_the_first_refusal() {
    fills::<1>();
    fills::<2>();
    fills::<3>();
    fills::<4>();
    fills::<8>();
}

fn fills<const W: usize>() {
    let slots = SLOTS;
    for (buckets, seed) in [(1 << 10, 1), (1 << 10, 2), (1 << 14, 3), (1 << 16, 4)] {
        let mut writer = CuckooWriter::<W>::new(&CuckooConfig::new(1, seed));
        // As many entries as slots, so that only a lack of places refuses.
        writer.metadata = SlotMetadata::new(buckets, buckets * slots);
        writer.table = Arc::new(CuckooTable {
            entries: Entries::zeroed(buckets),
            buckets: Memory::zeroed(buckets),
            geometry: AtomicU64::new(Geometry::new(buckets as u32).to_word()),
            len: AtomicU64::new(0),
            entries_max: buckets * slots,
            backend: writer.table.backend.clone(),
            hash: writer.table.hash.clone(),
        });
        let refused = (0..u32::MAX).find(|n| writer.insert(&key(*n), 0).is_err()).expect("is finite");
        let load = f64::from(refused) / (buckets * slots) as f64;
        println!("{W} words, {buckets} buckets, seed {seed}: first refusal at a load of {load:.4}");
        assert!(load >= 0.95, "{W} words, {buckets} buckets, seed {seed}: refused at {load}");
    }
}

#[test]
fn all_promised_entries_fit_and_one_more_is_refused() {
    for entries in [1, 5, 100, 1000, 7864, 31_457] {
        for growing_from in [entries, 1] {
            let config = CuckooConfig::new(entries, 17).growing_from(growing_from);
            fit::<1>(config);
            fit::<2>(config);
            fit::<4>(config);
            fit::<5>(config);
        }
    }
}

fn fit<const W: usize>(config: CuckooConfig) {
    let mut writer = CuckooWriter::<W>::new(&config);
    let entries = config.entries_max;
    for n in 0..entries as u32 {
        assert_eq!(writer.insert(&key(n), 1), Ok(None), "{n} of {config:?}");
    }
    let refusal = writer.insert(&key(u32::MAX), 1).expect_err("is full");
    assert_eq!(refusal.to_string(), format!("the table is full with {entries} keys"));
    assert_eq!(writer.insert(&key(0), 2), Ok(Some(1)));
    assert_eq!(writer.len(), entries);
}

#[test]
fn a_sweep_shows_every_key_and_removes_the_idle_ones() {
    for_each_variant(|variant| {
        sweeps::<1>(variant);
        sweeps::<4>(variant);
        sweeps::<8>(variant);
    });
}

fn sweeps<const W: usize>(variant: Variant) {
    let config = CuckooConfig::new(1000, 3).growing_from(100).with_variant(variant).expect("is available");
    let mut writer = CuckooWriter::<W>::new(&config);
    writer.set_now(1);
    // Half of them before the table grew: the time of use moves along.
    (0..100).for_each(|n| assert_eq!(writer.insert(&key(n), n), Ok(None)));
    let used: Vec<[u32; W]> = (0..64).map(key).collect();
    let hashes: Vec<u32> = used.iter().map(|key| writer.hash(key)).collect();
    assert_eq!(writer.use_batch(&used, &hashes, 9, &mut [0; 64]), u64::MAX);
    (100..900).for_each(|n| assert_eq!(writer.insert(&key(n), n), Ok(None)));
    let mut seen = 0;
    let mut removed = 0;
    let buckets = writer.geometry().buckets() as usize;
    for _ in 0..buckets.div_ceil(4) {
        removed += writer.sweep(4, |key, value, used| {
            seen += 1;
            assert_eq!(key[W - 1], value);
            used == 9
        });
    }
    assert_eq!((seen, removed, writer.len()), (900, 836, 64));
    assert!(used.iter().all(|key| writer.lookup(key).is_some()));
}

/// HALO (Yuan et al., ISCA 2019), figure 7a: a reader that looks into the primary bucket, then, after the
/// writer moved the key there, into the alternate one, must not call it a miss.
#[test]
fn a_key_that_moves_between_its_buckets_is_never_missed() {
    moves::<1>();
    if cfg!(miri) {
        return;
    }
    moves::<2>();
    moves::<4>();
    moves::<8>();
}

fn moves<const W: usize>() {
    let mut writer = CuckooWriter::<W>::new(&CuckooConfig::new(1000, 5));
    let keys: Vec<[u32; W]> = (0..8).map(key).collect();
    keys.iter().for_each(|key| assert_eq!(writer.insert(key, 77), Ok(None)));
    let stop = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let reader = writer.reader();
        let (stopped, keys_read) = (Arc::clone(&stop), keys.clone());
        let batches = scope.spawn(move || {
            while !stopped.load(Relaxed) {
                assert_eq!(reader.lookup_batch(&keys_read, &mut [0; 8]), 0xff);
            }
        });
        let reader = writer.reader();
        let (stopped, keys_read) = (Arc::clone(&stop), keys.clone());
        let singles = scope.spawn(move || {
            while !stopped.load(Relaxed) {
                keys_read.iter().for_each(|key| assert_eq!(reader.lookup(key), Some(77)));
            }
        });
        // Miri is some thousand times slower.
        for round in 0..if cfg!(miri) { 3 } else { 30_000 } {
            for key in &keys {
                let hash = writer.hash(key);
                let geometry = writer.geometry();
                let both = [geometry.bucket(hash), geometry.bucket(alternate_hash(hash))];
                let (from, to) = if round % 2 == 0 { (both[0], both[1]) } else { (both[1], both[0]) };
                let slot = writer.slot_of(from, key, geometry::signature(hash));
                assert!(writer.move_slot(from, slot.expect("is there"), to));
            }
        }
        stop.store(true, Relaxed);
        batches.join().expect("batches find all keys");
        singles.join().expect("single lookups find all keys");
    });
}

/// One writer inserts, removes, displaces and grows; permanent keys are always found with their value, and
/// a key that comes and goes never has another's.
#[test]
fn readers_never_miss_a_key_while_the_table_is_full_and_grows() {
    for_each_variant(|variant| {
        for growing_from in [1, 60_000] {
            let config = CuckooConfig::new(60_000, 11).growing_from(growing_from);
            let config = config.with_variant(variant).expect("is available");
            churn::<4>(config);
            churn::<8>(config);
        }
    });
}

fn churn<const W: usize>(config: CuckooConfig) {
    const PERMANENT: u32 = 1000;
    let mut writer = CuckooWriter::<W>::new(&config);
    (0..PERMANENT).for_each(|n| assert_eq!(writer.insert(&key(n), n << 13), Ok(None)));
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..2 {
            let (reader, stop, rounds) = (writer.reader(), Arc::clone(&stop), Arc::clone(&rounds));
            scope.spawn(move || {
                let mut numbers = Numbers(thread);
                while !stop.load(Relaxed) {
                    // One batch, or several that are under way at once.
                    let lanes = if numbers.below(2) == 0 { BATCH_MAX } else { 5 * BATCH_MAX - 7 };
                    let keys: Vec<[u32; W]> = (0..lanes)
                        .map(|lane| {
                            let below = if lane % 2 == 0 { PERMANENT } else { 70_000 };
                            key(numbers.below(below.into()) as u32)
                        })
                        .collect();
                    let (mut values, mut hits) = (vec![0; lanes], vec![0; lanes.div_ceil(BATCH_MAX)]);
                    if lanes == BATCH_MAX {
                        hits[0] = reader.lookup_batch(&keys, &mut values);
                    } else {
                        reader.lookup_many(&keys, &mut values, &mut hits);
                    }
                    for (lane, key) in keys.iter().enumerate() {
                        let hit = hits[lane / BATCH_MAX] >> (lane % BATCH_MAX) & 1 != 0;
                        assert!(hit || key[W - 1] >= PERMANENT, "permanent key {} is missed", key[W - 1]);
                        assert!(!hit || values[lane] >> 13 == key[W - 1], "another key's value");
                    }
                    rounds.fetch_add(1, Relaxed);
                }
            });
        }
        let mut numbers = Numbers(5);
        let mut refused = 0;
        let mut step = 0u64;
        // On a busy machine a reader may come late; where one failed, the count does not advance.
        while step < 150_000 || (rounds.load(Relaxed) < 100 && step < 50_000_000) {
            step += 1;
            let n = PERMANENT + numbers.below(70_000 - u64::from(PERMANENT)) as u32;
            if step > 70_000 && numbers.below(3) == 0 {
                writer.remove(&key(n));
            } else if step.is_multiple_of(64) {
                let keys: Vec<[u32; W]> =
                    (0..80).map(|i| key(PERMANENT + (n + i) % (70_000 - PERMANENT))).collect();
                let values: Vec<u32> = keys.iter().map(|key| key[W - 1] << 13).collect();
                refused += keys.len() - writer.insert_batch(&keys, &values);
            } else if writer.insert(&key(n), n << 13 | (step & 0x1fff) as u32).is_err() {
                refused += 1;
            }
        }
        stop.store(true, Relaxed);
        println!("{}: {} keys, {refused} refused", writer.variant(), writer.len());
    });
    assert!(rounds.load(Relaxed) >= 100);
}

/// Of every key the writer knows whether it is displaced, and a filter has the bits of the keys away from its bucket, and no others: while
/// a table grows, when it grows no more, and with keys of which the hash is not noted.
#[test]
fn displaced_keys_and_filters_are_known_exactly() {
    for growing_from in [1, 6000] {
        let mut writer = CuckooWriter::<2>::new(&CuckooConfig::new(6000, 3).growing_from(growing_from));
        let mut numbers = Numbers(5);
        for round in 0..12 {
            let most = [700, 3000, 6000][round % 3];
            while writer.len() < most {
                writer.insert(&key(numbers.below(12_000) as u32), 1).expect("there is room");
            }
            check_displaced(&writer);
            for _ in 0..8000 {
                writer.remove(&key(numbers.below(12_000) as u32));
            }
            check_displaced(&writer);
        }
        assert_eq!(writer.slots(), writer.buckets.len() * SLOTS);
    }
}

fn check_displaced(writer: &CuckooWriter<2>) {
    let geometry = writer.geometry();
    let mut filters = vec![0; writer.buckets.len()];
    for (at, bucket) in (0..).zip(writer.buckets.iter()) {
        assert_eq!(bucket.displaced() & !bucket.taken(), 0, "a free slot is noted as displaced");
        for slot in (0..SLOTS).filter(|slot| bucket.taken() >> slot & 1 != 0) {
            let hash = writer.hash(&writer.table.key(at, slot));
            let (primary, displaced) = (geometry.bucket(hash), bucket.displaced() >> slot & 1 != 0);
            assert_eq!(displaced, primary != at);
            assert_eq!(at, geometry.bucket(if displaced { alternate_hash(hash) } else { hash }));
            if displaced {
                filters[primary as usize] |= Bucket::filter_bit(geometry::signature(hash));
            }
        }
    }
    assert!(writer.buckets.iter().zip(filters).all(|(bucket, filter)| bucket.filter() == filter));
}
