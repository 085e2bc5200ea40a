//! Adversarial rule sets: a correct answer, or an error with the reason.

use std::fs;
use std::sync::Arc;

use flowlane::classify::acl::{Condition, Entry, RankKey, WordKind, best};
use flowlane::generate::{Profile, Random};
use flowlane::packet::FlowKey;
use flowlane::rule::{Match, Priority, RuleId};
use flowlane_gpu::{Device, GpuError, GpuSearch, GpuTable, Method, Rebuild, Session, SessionConfig};

use crate::history::{History, any_ipv4, config, matches, with_changes};
use crate::host_device::on_host_device;

#[test]
fn no_rule_one_rule_and_rules_for_everything_may_change() {
    on_host_device("no_rule_one_rule_and_rules_for_everything_may_change", "", || {
        let others = matches(Profile::Acl, 10, 20);
        let wild = vec![Match::any(); 40];
        for method in Method::ALL {
            for rules in [&[][..], &others[..1], &wild] {
                let mut history = History::new(with_changes(method, 6, Rebuild::Background), rules, 1);
                for step in 0..6 {
                    history.lookup(30);
                    history.gather_to(30);
                    history.send();
                    if step % 2 == 0 {
                        history.change(&others);
                    }
                    history.table.finish_rebuild();
                }
                while !history.rules.is_empty() {
                    history.remove(0);
                }
                history.lookup(10);
                history.table.finish_rebuild();
                history.lookup(10);
                history.receive_all();
                assert_eq!((history.table.failure(), history.table.refusal()), (None, None));
            }
        }
    });
}

/// Most memory that this process has ever had, in bytes.
fn peak_bytes() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<usize>().ok()? << 10)
}

#[test]
fn tens_of_millions_of_entries_are_refused_before_they_are_made() {
    let test = "tens_of_millions_of_entries_are_refused_before_they_are_made";
    on_host_device(test, "memory=300000000", || {
        let device = Device::open(0).expect("the host device");
        // 900 entries each, once their ranges are prefixes.
        let entry = |i: u32| Entry {
            condition: Condition { low: [0x0001_0001, i, 0, 0], high: [0xfffe_fffe, u32::MAX, 0, 0] },
            rank: RankKey::new(Priority(1), i),
            rule: RuleId(i),
            categories: 1,
        };
        let mut kinds = [WordKind::Ternary; 4];
        kinds[0] = WordKind::Range16;
        let entries: Vec<Entry<4>> = (0..75_000).map(entry).collect();
        let before = peak_bytes();
        for method in Method::ALL {
            let build = |count: usize| GpuTable::build(&device, method, &kinds, &entries[..count], 1, 0);
            let refused = build(12_000);
            let Err(GpuError::Memory { needed_bytes, .. }) = refused else { panic!("{method}: {refused:?}") };
            assert_eq!(needed_bytes, 12_000 * 900 * 36);
            assert!(matches!(build(75_000), Err(GpuError::Entries { rules: 75_000, .. })), "{method}");
        }
        let Some((before, after)) = before.zip(peak_bytes()) else {
            println!("skipped: how much memory was taken, since there is no /proc");
            return;
        };
        assert!(after - before < 32 << 20, "{} bytes", after - before);
    });
}

/// A class for each rule: any eleven bits of one word, and any length of prefixes of another.
fn classes(count: u32) -> Vec<Entry<4>> {
    let mut random = Random::new(21);
    let entry = |i: u32| {
        let high = [0, i / 33, u32::MAX.checked_shl(i % 33).unwrap_or(0), 0];
        let value = [0, random.bits() as u32, 0xa5a5_0000, 0];
        Entry {
            condition: Condition { low: std::array::from_fn(|w| value[w] & high[w]), high },
            rank: RankKey::new(Priority(i % 7), i),
            rule: RuleId(i),
            categories: 1,
        }
    };
    (0..count).map(entry).collect()
}

fn check(device: &Device, method: Method, entries: &[Entry<4>], keys: usize) {
    let kinds = [WordKind::Ternary; 4];
    let table = GpuTable::build(device, method, &kinds, entries, 1, 0).expect("it fits");
    assert!(table.classes().is_none_or(|classes| classes == entries.len()), "{method}");
    let config = SessionConfig { batch_max: 64, ..SessionConfig::default() };
    let mut session = Session::new(device, config).expect("it fits");
    let mut random = Random::new(22);
    let key = |_| {
        let condition = &entries[random.index(entries.len())].condition;
        std::array::from_fn(|w| condition.low[w] | random.bits() as u32 & !condition.high[w])
    };
    let keys: Vec<[u32; 4]> = (0..keys).map(key).collect();
    let mut hits = vec![None; keys.len()];
    session.lookup_batch(&Arc::new(table), &keys, &mut hits).expect("the device works");
    for (key, hit) in keys.iter().zip(hits) {
        assert_eq!(hit, best(entries, &kinds, key, 0).map(Entry::hit), "{method}, {key:x?}");
    }
}

#[test]
fn more_classes_than_blocks_and_filters_hold_are_looked_up() {
    on_host_device("more_classes_than_blocks_and_filters_hold_are_looked_up", "memory=200000000", || {
        let device = Device::open(0).expect("the host device");
        let entries = classes(67_000);
        // The filter has room for 53,504 words, of which 67,000 rules would take 134,000; classes are more than 65,535.
        for method in [Method::Filtered, Method::Pruned] {
            check(&device, method, &entries, 5);
        }
        for method in [Method::Tuple, Method::Bloom] {
            let refused = GpuTable::build(&device, method, &[WordKind::Ternary; 4], &entries, 1, 0);
            assert!(matches!(refused, Err(GpuError::Memory { .. })), "half a gigabyte: {refused:?}");
            // 32 blocks for each of four multiprocessors.
            check(&device, method, &entries[..4 * 32 + 5], 40);
        }
    });
}

#[test]
fn rules_over_more_words_than_kernels_take_are_refused_and_answered_by_the_list() {
    let test = "rules_over_more_words_than_kernels_take_are_refused_and_answered_by_the_list";
    on_host_device(test, "", || {
        let rules = matches(Profile::Acl, 10, 23);
        let mut wide = any_ipv4();
        (0..40).for_each(|w| _ = wide.set_word(w, 1, 1));
        let device = Device::open(0).expect("the host device");
        let refused = GpuSearch::build(
            device,
            config(Some(Method::Tuple)),
            [(RuleId(1), Priority(1), &wide), (RuleId(2), Priority(1), &rules[0])],
            &[FlowKey::zero()],
        );
        assert!(matches!(refused, Err(GpuError::Words { words: 41.., .. })), "{refused:?}");
        let mut history = History::new(with_changes(Method::Tuple, 4, Rebuild::Background), &rules, 1);
        history.insert(RuleId(100), Priority(5), &wide);
        history.lookup(20);
        assert!(history.table.finish_rebuild());
        history.lookup(20);
        assert!(matches!(history.table.refusal(), Some(GpuError::Words { .. })));
        assert_eq!((history.table.method(), history.table.failure()), (None, None));
        let place = history.rules.len() - 1;
        history.remove(place);
        assert_eq!(history.table.method(), Some(Method::Tuple), "the table before suits again");
        history.lookup(20);
    });
}
