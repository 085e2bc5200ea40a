//! Every kernel, in every width, against the definition.

use std::sync::Arc;

use flowlane::classify::Hit;
use flowlane::classify::acl::{Entry, RankKey, best};
use flowlane::generate::Random;
use flowlane::rule::Priority;
use flowlane_gpu::search::CLASS_RULES_MAX;
use flowlane_gpu::{Device, GpuError, GpuTable, Method, Session, SessionConfig};

use crate::host_device::on_host_device;
use crate::rules::{WRONG, entries, keys, kinds, one_class, ternary};

fn rule(hit: Option<Hit>) -> Option<u32> {
    hit.map(|hit| hit.rule.0)
}

fn check<const W: usize>(
    device: &Device,
    method: Method,
    entries: &[Entry<W>],
    keys: &[[u32; W]],
    what: &str,
) {
    let table = GpuTable::build(device, method, &kinds(), entries, 0x5eed, 3).expect("it fits");
    let mut session =
        Session::new(device, SessionConfig { batch_max: 300, slots: 3, graphs: false }).expect("it fits");
    let mut hits = vec![Some(WRONG); keys.len()];
    session.lookup_batch(&Arc::new(table), keys, &mut hits).expect("the device works");
    for (key, hit) in keys.iter().zip(hits) {
        let expected = best(entries, &kinds(), key, 0).map(Entry::hit);
        assert_eq!(hit, expected, "{method}, {W} words, {what}, {key:x?}");
    }
}

fn check_all_methods<const W: usize>(device: &Device, seed: u64) {
    let mut random = Random::new(seed);
    for (rules, masks, count) in [(0, 1, 3), (1, 1, 70), (40, 5, 257), (900, 9, 700)] {
        let entries = entries::<W>(&mut random, rules, masks);
        let keys = keys(&mut random, &entries, count);
        for method in Method::ALL {
            check(device, method, &entries, &keys, &format!("{rules} rules, seed {seed}"));
        }
    }
}

#[test]
fn every_kernel_agrees_with_the_definition() {
    on_host_device("every_kernel_agrees_with_the_definition", "", || {
        let device = Device::open(0).expect("the host device");
        check_all_methods::<4>(&device, 1);
        check_all_methods::<9>(&device, 2);
        check_all_methods::<10>(&device, 3);
        check_all_methods::<16>(&device, 4);
    });
}

#[test]
fn threads_in_another_order_give_the_same_answers() {
    on_host_device("threads_in_another_order_give_the_same_answers", "seed=99", || {
        check_all_methods::<4>(&Device::open(0).expect("the host device"), 5);
    });
}

#[test]
fn a_class_of_more_rules_than_a_table_holds_is_split() {
    on_host_device("a_class_of_more_rules_than_a_table_holds_is_split", "", || {
        let device = Device::open(0).expect("the host device");
        for (rules, classes) in [(CLASS_RULES_MAX, 1), (CLASS_RULES_MAX + 1, 2), (3 * CLASS_RULES_MAX, 3)] {
            let entries = one_class(rules);
            let keys: Vec<[u32; 4]> = (0..2 * rules as u32).map(|i| [i, i / 2 * 7 + i % 2, 1, 2]).collect();
            for method in [Method::Tuple, Method::Bloom] {
                let table = GpuTable::build(&device, method, &kinds(), &entries, 1, 0).expect("it fits");
                assert_eq!(table.classes(), Some(classes), "{rules} rules");
                check(&device, method, &entries, &keys, "one class");
            }
        }
    });
}

#[test]
fn a_table_goes_on_when_a_smaller_one_is_made() {
    on_host_device("a_table_goes_on_when_a_smaller_one_is_made", "", || {
        let device = Device::open(0).expect("the host device");
        let entries = one_class(20_000);
        let build =
            |count: usize| GpuTable::build(&device, Method::Filtered, &kinds(), &entries[..count], 1, 0);
        let (large, _small) = (Arc::new(build(20_000).expect("it fits")), build(10).expect("it fits"));
        let mut session = Session::new(&device, SessionConfig::default()).expect("it fits");
        let mut hits = [None];
        session.lookup_batch(&large, &[[0, 7 * 19_999, 0, 0]], &mut hits).expect("a launch");
        assert_eq!(rule(hits[0]), Some(19_999));
    });
}

#[test]
fn a_table_may_end_on_another_thread() {
    on_host_device("a_table_may_end_on_another_thread", "", || {
        let device = Device::open(0).expect("the host device");
        let build =
            || GpuTable::build(&device, Method::Filtered, &kinds(), &one_class(50), 1, 0).expect("it fits");
        let table = std::thread::scope(|scope| scope.spawn(build).join().expect("no panic"));
        std::thread::spawn(move || drop(table)).join().expect("no panic");
        check(&device, Method::Filtered, &one_class(50), &[[0, 7, 0, 0]], "after it");
    });
}

#[test]
fn prefixes_at_both_ends_and_side_by_side_are_told_apart() {
    on_host_device("prefixes_at_both_ends_and_side_by_side_are_told_apart", "", || {
        let device = Device::open(0).expect("the host device");
        let prefixes: [(u32, u32); 10] = [
            (0, 32),
            (u32::MAX, 32),
            (0, 1),
            (0x8000_0000, 1),
            (0x0a00_0000, 8),
            (0x0a00_ff00, 24),
            (0x0a01_0000, 24),
            (0x0a00_0000, 15),
            (0x0a00_ffff, 32),
            (0x0a01_0000, 32),
        ];
        let mask = |length: u32| u32::MAX << (32 - length);
        // The longer, the better.
        let entry = |(i, (value, length)): (usize, &(u32, u32))| Entry {
            rank: RankKey::new(Priority(*length), i as u32),
            ..ternary(i as u32, [0, 0, *value, 0], [0, 0, mask(*length), 0])
        };
        let entries: Vec<Entry<4>> = prefixes.iter().enumerate().map(entry).collect();
        let beside = |(value, length): &(u32, u32)| {
            [value.wrapping_sub(1), *value, value | !mask(*length), (value | !mask(*length)).wrapping_add(1)]
        };
        let keys: Vec<[u32; 4]> = prefixes.iter().flat_map(beside).map(|v| [0, 1, v, 2]).collect();
        for method in Method::ALL {
            check(&device, method, &entries, &keys, "prefixes");
        }
    });
}

#[test]
fn sets_that_suit_no_method_get_right_answers() {
    on_host_device("sets_that_suit_no_method_get_right_answers", "", || {
        let device = Device::open(0).expect("the host device");
        let mut random = Random::new(3);
        let wild: Vec<Entry<4>> = (0..50).map(|i| ternary(i, [0; 4], [0; 4])).collect();
        // A mask for every rule, and most rules match most keys.
        let masks: Vec<Entry<4>> = (0..400)
            .map(|i| {
                let high =
                    std::array::from_fn(|_| (random.bits() & random.bits() & random.bits()) as u32 & 0xf0f);
                ternary(i, [0; 4], high)
            })
            .collect();
        // Equal rules, of which the best wins.
        let same: Vec<Entry<4>> = (0..300).map(|i| ternary(i, [0, 8, 8, 0], [0, 0xff, 0xf8, 0])).collect();
        // No prefixes: nothing for spans to tell apart.
        let odd: Vec<Entry<4>> = (0..64).map(|i| ternary(i, [0, i & 5, i & 10, 0], [0, 5, 10, 0])).collect();
        for (what, entries) in [("wild", wild), ("a mask each", masks), ("the same", same), ("odd", odd)] {
            let keys: Vec<[u32; 4]> = (0..200)
                .map(|i| std::array::from_fn(|w| random.bits() as u32 & if i % 2 == w { 0xf } else { 0 }))
                .collect();
            for method in Method::ALL {
                check(&device, method, &entries, &keys, what);
            }
        }
    });
}

#[test]
fn batches_come_back_in_order_with_the_epoch_of_their_table() {
    on_host_device("batches_come_back_in_order_with_the_epoch_of_their_table", "", || {
        let device = Device::open(0).expect("the host device");
        let mut session = Session::<4>::new(&device, SessionConfig { batch_max: 8, slots: 2, graphs: false })
            .expect("it fits");
        let table = |epoch: u64, rules: usize| {
            let build = GpuTable::build(&device, Method::Tuple, &kinds(), &one_class(rules), 1, epoch);
            Arc::new(build.expect("it fits"))
        };
        let (old, new) = (table(1, 1), table(2, 2));
        session.send(&old, &[[0, 0, 0, 0], [0, 7, 0, 0]]).expect("room");
        session.send(&new, &[[0, 7, 0, 0]]).expect("room");
        assert!(!session.has_room() && session.under_way() == 2);
        // The session keeps what looks up.
        drop((old, new));
        let mut hits = [None; 8];
        let first = session.receive(&mut hits).expect("sent").expect("works");
        assert_eq!((first.count, first.epoch), (2, 1));
        assert_eq!([rule(hits[0]), rule(hits[1])], [Some(0), None]);
        let second = session.receive(&mut hits).expect("sent").expect("works");
        assert_eq!((second.count, second.epoch, rule(hits[0])), (1, 2, Some(1)));
        assert!(session.receive(&mut hits).is_none());
    });
}

#[test]
fn a_table_too_large_for_the_device_is_refused_with_its_size() {
    on_host_device("a_table_too_large_for_the_device_is_refused_with_its_size", "memory=700000", || {
        let device = Device::open(0).expect("the host device");
        for method in Method::ALL {
            let refused = GpuTable::build(&device, method, &kinds(), &one_class(40_000), 1, 0);
            let Err(GpuError::Memory { needed_bytes, free_bytes, .. }) = refused else {
                panic!("{method}: {refused:?}");
            };
            assert!(needed_bytes > free_bytes && free_bytes <= 700_000, "{method}");
            check(&device, method, &one_class(100), &[[0, 7, 0, 0]], "after a refusal");
        }
    });
}

#[test]
fn a_device_that_disappears_is_an_error_and_no_verdict() {
    on_host_device("a_device_that_disappears_is_an_error_and_no_verdict", "vanish=1", || {
        let device = Device::open(0).expect("the host device");
        let table = GpuTable::build(&device, Method::Linear, &kinds(), &one_class(4), 1, 0).expect("it fits");
        let table = Arc::new(table);
        let mut session = Session::new(&device, SessionConfig::default()).expect("it fits");
        let mut hits = [None; 1];
        session.lookup_batch(&table, &[[0, 7, 0, 0]], &mut hits).expect("the first launch");
        for _ in 0..3 {
            let failed = session.lookup_batch(&table, &[[0, 7, 0, 0]], &mut hits);
            assert!(
                matches!(&failed, Err(GpuError::Device { reason, .. }) if reason == "CUDA_ERROR_LAUNCH_FAILED")
            );
            assert_eq!(session.under_way(), 0);
        }
    });
}
