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
    sends::<Reader>();
    sends::<RouteReader>();
}
