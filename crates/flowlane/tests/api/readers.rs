//! Readers on other threads see publications whole.

use std::sync::atomic::{AtomicBool, Ordering};

use flowlane::{
    AclEngine, BloomFilter, Classifier, ClassifierBuilder, ClassifierSnapshot, CuckooMap, CuckooMapReader,
    Error, Field, FlowKey, Parser, Reader, RouteReader, RouteTable, Rule, Tuning, read_rules,
};

fn rules(text: &str) -> Vec<Rule> {
    read_rules(text, "rules").unwrap()
}

#[test]
fn readers_see_publications_and_outlive_the_classifier() {
    let any = FlowKey::zero();
    let mut acl = ClassifierBuilder::new().build(rules("priority=1,actions=drop")).unwrap();
    let mut first = acl.reader();
    acl.insert_all(rules("priority=2,actions=drop\npriority=3,actions=drop")).unwrap();
    let mut second = acl.reader();
    for reader in [&mut first, &mut second] {
        assert_eq!(reader.list().lookup(&any), Some(0), "before it is published");
    }
    acl.publish();
    let mut third = second.clone();
    acl.remove(2);
    for reader in [&mut first, &mut second, &mut third] {
        assert_eq!((reader.list().lookup(&any), reader.list().len()), (Some(2), 3));
    }
    acl.publish();
    assert_eq!(third.list().lookup(&any), Some(1));
    drop(acl);
    assert_eq!(first.list().lookup(&any), Some(1));
}

#[test]
fn changes_published_together_are_seen_together() {
    let mut acl =
        ClassifierBuilder::new().engine(AclEngine::Dynamic).build(rules("tcp,actions=drop")).unwrap();
    let stop = AtomicBool::new(false);
    let mut keys = [FlowKey::zero(), FlowKey::zero()];
    for (key, port) in keys.iter_mut().zip([1, 2]) {
        key.set(Field::EthType, 0x0800);
        key.set(Field::NwProto, 17);
        key.set(Field::TpDst, port);
    }
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (mut reader, keys, stop) = (acl.reader(), &keys, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut found = [None; 2];
                    let list = reader.list();
                    found.iter_mut().zip(keys).for_each(|(found, key)| *found = list.lookup(key));
                    assert_eq!(found[0].is_some(), found[1].is_some());
                }
            });
        }
        for _ in 0..300 {
            let numbers =
                acl.insert_all(rules("udp,tp_dst=1,actions=drop\nudp,tp_dst=2,actions=drop")).unwrap();
            acl.publish();
            numbers.for_each(|number| assert!(acl.remove(number).is_some()));
            acl.publish();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn public_types_are_send_and_tables_sync() {
    fn sends<T: Send>() {}
    fn shares<T: Send + Sync>() {}
    shares::<Classifier>();
    shares::<ClassifierSnapshot>();
    shares::<RouteTable>();
    shares::<CuckooMap>();
    shares::<BloomFilter>();
    shares::<Parser>();
    shares::<Error>();
    shares::<Tuning>();
    shares::<CuckooMapReader>();
    sends::<Reader>();
    sends::<RouteReader>();
}

/// Key `k` has values `k` modulo 64 only: small ones in the table, large ones beside it, whose places move from key to key.
#[test]
fn map_readers_see_values_of_their_keys_during_changes() {
    const KEYS: u64 = 64;
    let mut map = CuckooMap::new(8, 200).unwrap();
    let stop = AtomicBool::new(false);
    let row = |key: u64| key.to_le_bytes();
    // Half of the keys stay, so that readers always find them.
    (0..KEYS).step_by(2).for_each(|key| _ = map.insert(&row(key), key).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (reader, stop) = (map.reader(), &stop);
            scope.spawn(move || {
                let keys: Vec<u8> = (0..KEYS).flat_map(row).collect();
                let (mut large, mut rounds) = (0, 0);
                while !stop.load(Ordering::Relaxed) || large == 0 || rounds < 10 {
                    let (mut values, mut found) = ([7; KEYS as usize], [false; KEYS as usize]);
                    let count = reader.lookup_rows(&keys, &mut values, &mut found);
                    assert_eq!(count, found.iter().filter(|found| **found).count());
                    for (key, (value, found)) in (0..KEYS).zip(values.into_iter().zip(found)) {
                        assert!(found || key % 2 == 1, "key {key} is there");
                        assert_eq!(value % KEYS, if found { key } else { 7 }, "key {key}: {value}");
                        assert!(reader.get(&row(key)).is_none_or(|value| value % KEYS == key));
                        large += u64::from(value >= 1 << 31);
                    }
                    rounds += 1;
                }
            });
        }
        for round in 0..20_000u64 {
            let key = round * 7 % KEYS;
            let value = if round % 3 == 0 { key } else { (u64::MAX - round) / KEYS * KEYS + key };
            if key % 2 == 1 && round % 5 < 2 {
                map.remove(&row(key));
            } else {
                map.insert(&row(key), value).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let reader = map.reader();
    assert_eq!(reader.len(), map.len());
    map.clear();
    assert!(reader.is_empty() && reader.get(&row(0)).is_none());
    drop(map);
    assert_eq!((reader.get(&row(2)), reader.key_bytes()), (None, 8));
}
