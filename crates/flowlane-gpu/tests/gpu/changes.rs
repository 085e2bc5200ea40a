//! Rules that change while a device answers.

use std::sync::Arc;

use flowlane::classify::AsyncEngine;
use flowlane::classify::acl::{Condition, Entry, RankKey, WordKind, best};
use flowlane::generate::{Profile, Random};
use flowlane::packet::Field;
use flowlane::rule::{Match, Priority, RuleId};
use flowlane_gpu::{Device, GpuError, GpuTable, Method, Rebuild, Session, SessionConfig};

use crate::history::{History, any_ipv4, matches, with_changes};
use crate::host_device::on_host_device;

#[test]
fn changes_and_batches_in_any_order_never_mix_sets_of_rules() {
    on_host_device("changes_and_batches_in_any_order_never_mix_sets_of_rules", "", || {
        let others = matches(Profile::Ipc, 60, 8);
        for (seed, method) in Method::ALL.into_iter().enumerate() {
            for overlay_max in [0, 5, 1000] {
                let config = with_changes(method, overlay_max, Rebuild::Manual);
                let mut history = History::new(config, &others[..30], seed as u64);
                for _ in 0..60 {
                    history.step(&others);
                    if history.random.chance(0.05) {
                        history.table.publish(&[]).expect("it fits");
                        assert_eq!(history.table.method(), Some(method));
                    }
                }
                history.send();
                history.receive_all();
                assert_eq!(history.table.failure(), None);
            }
        }
    });
}

#[test]
fn tables_made_in_the_background_lose_no_change() {
    on_host_device("tables_made_in_the_background_lose_no_change", "", || {
        let others = matches(Profile::Acl, 80, 9);
        for (seed, method) in Method::ALL.into_iter().enumerate() {
            let config = with_changes(method, 8, Rebuild::Background);
            let mut history = History::new(config, &others[..40], 100 + seed as u64);
            let mut made = 0;
            for _ in 0..100 {
                history.step(&others);
                // Otherwise the table is adopted when the thread is ready.
                if history.random.chance(0.1) {
                    made += usize::from(history.table.finish_rebuild());
                }
            }
            assert!(made > 0, "{method}");
            history.send();
            history.receive_all();
            assert_eq!((history.table.failure(), history.table.refusal()), (None, None));
        }
    });
}

#[test]
fn a_device_that_disappears_among_changes_is_never_a_wrong_answer() {
    let test = "a_device_that_disappears_among_changes_is_never_a_wrong_answer";
    on_host_device(test, "vanish=23", || {
        let others = matches(Profile::Fw, 60, 10);
        let config = with_changes(Method::Tuple, 8, Rebuild::Background);
        let mut history = History::new(config, &others[..30], 7);
        while history.table.failure().is_none() {
            history.step(&others);
        }
        for _ in 0..50 {
            history.step(&others);
        }
        history.send();
        history.receive_all();
        assert!(matches!(history.table.failure(), Some(GpuError::Device { .. })));
        assert_eq!(history.table.method(), None);
    });
}

#[test]
fn a_rule_that_is_gone_may_have_won_everything() {
    on_host_device("a_rule_that_is_gone_may_have_won_everything", "", || {
        let mut rules = matches(Profile::Acl, 30, 11);
        rules.push(any_ipv4());
        // Its priority is above most.
        assert_eq!((rules.len() - 1) % 3, 0);
        for method in [Method::Linear, Method::Pruned] {
            let mut history = History::new(with_changes(method, 8, Rebuild::Manual), &rules, 3);
            history.replace(30, Priority(9), &any_ipv4());
            history.table.publish(&[]).expect("it fits");
            history.gather_to(40);
            assert!(history.send(), "with the rule");
            history.remove(30);
            let without = history.table.epoch();
            history.lookup(40);
            history.gather_to(40);
            assert!(history.send(), "without it");
            assert_eq!(history.receive_all(), [without - 1, without]);
            history.gather_to(40);
            assert!(history.send());
            history.insert(RuleId(500), Priority(0), &any_ipv4());
            // The list has other rules by now, so that it cannot help with single packets.
            assert_eq!(history.receive_all(), [without + 1]);
            assert_eq!(history.table.method(), Some(method), "it has not failed");
        }
    });
}

#[test]
fn a_table_whose_gone_rules_win_often_is_made_anew() {
    on_host_device("a_table_whose_gone_rules_win_often_is_made_anew", "", || {
        let mut rules = matches(Profile::Acl, 6, 11);
        rules.push(any_ipv4());
        let mut config = with_changes(Method::Linear, 1000, Rebuild::Background);
        config.session.batch_max = 8192;
        let mut history = History::new(config, &rules, 3);
        history.replace(6, Priority(9), &rules[5]);
        history.lookup(100);
        assert!(!history.table.finish_rebuild(), "a change is no reason");
        history.replace(0, Priority(9), &any_ipv4());
        history.table.publish(&[]).expect("it fits");
        history.remove(0);
        // One packet in twenty matches nothing.
        history.lookup(70_000);
        history.lookup(1);
        history.table.finish_rebuild();
        assert_eq!(history.table.table_epoch(), Some((history.table.epoch(), 0)));
        history.lookup(10);
    });
}

#[test]
fn a_table_goes_on_for_so_many_changes_and_then_the_list_answers() {
    on_host_device("a_table_goes_on_for_so_many_changes_and_then_the_list_answers", "", || {
        let rules = matches(Profile::Acl, 30, 12);
        let mut history = History::new(with_changes(Method::Bloom, 4, Rebuild::Manual), &rules[..20], 4);
        // Changing the same rules repeatedly adds no changes; nor does inserting and removing a rule.
        for i in 0..20 {
            history.replace(i % 3, Priority(i as u32 % 4), &rules[20 + i % 10]);
            let place = history.rules.len();
            history.insert(RuleId(700 + i as u32), Priority(2), &rules[i]);
            history.remove(place);
            history.lookup(10);
        }
        assert_eq!(history.table.table_epoch(), Some((1, 3)));
        history.remove(10);
        assert_eq!(history.table.method(), Some(Method::Bloom));
        history.remove(10);
        assert_eq!((history.table.method(), history.table.table_epoch()), (None, None));
        history.lookup(20);
        history.table.publish(&[]).expect("it fits");
        assert_eq!(history.table.table_epoch(), Some((history.table.epoch(), 0)));
        history.lookup(20);
    });
}

#[test]
fn rules_that_look_at_other_fields_wait_for_another_table() {
    on_host_device("rules_that_look_at_other_fields_wait_for_another_table", "", || {
        let rules = matches(Profile::Acl, 20, 13);
        for rebuild in [Rebuild::Manual, Rebuild::Background] {
            let mut history = History::new(with_changes(Method::Filtered, 100, rebuild), &rules, 5);
            let mut other = any_ipv4();
            other.set(Field::InPort, 3);
            history.insert(RuleId(99), Priority(3), &other);
            history.lookup(20);
            let (first, now) = (history.table.epoch() - 1, history.table.epoch());
            if rebuild == Rebuild::Background {
                // The lookup requested the rebuild.
                assert!(history.table.finish_rebuild() || history.table.table_epoch() == Some((now, 0)));
                assert_eq!(history.table.table_epoch(), Some((now, 0)));
                assert_eq!(history.table.method(), Some(Method::Filtered));
            } else {
                assert_eq!((history.table.method(), history.table.table_epoch()), (None, Some((first, 1))));
                // Without the rule the table suits again.
                history.remove(20);
                assert_eq!(history.table.method(), Some(Method::Filtered));
            }
            history.lookup(20);
        }
    });
}

/// 900 entries once the ranges are prefixes.
fn pairs_of_ranges(i: u32) -> Match {
    let mut m = any_ipv4();
    m.set(Field::NwProto, 6).set(Field::Ipv4Src, i.into());
    m.set_range(Field::TpSrc, 1, 65_534).set_range(Field::TpDst, 1, 65_534);
    m
}

#[test]
fn rules_that_the_device_refuses_are_trouble_and_answered_by_the_list() {
    on_host_device(
        "rules_that_the_device_refuses_are_trouble_and_answered_by_the_list",
        "memory=400000",
        || {
            let rules = matches(Profile::Acl, 40, 15);
            let mut history = History::new(with_changes(Method::Linear, 40, Rebuild::Manual), &rules, 7);
            assert_eq!(history.table.trouble(), None);
            (0..20).for_each(|i| history.insert(RuleId(800 + i), Priority(1), &pairs_of_ranges(i)));
            assert!(history.table.prepare().is_err());
            assert!(history.table.trouble().is_some_and(|why| why.contains("device memory")));
            history.lookup(5);
            history.gather_to(5);
            assert!(history.send());
            history.receive_all();
            while let Some(place) = history.rules.iter().position(|rule| rule.id.0 >= 800) {
                history.remove(place);
            }
            history.table.prepare().expect("it fits again");
            assert_eq!(history.table.trouble(), None);
            history.lookup(5);
        },
    );
}

#[test]
fn a_table_that_is_refused_in_the_background_leaves_the_one_before() {
    on_host_device(
        "a_table_that_is_refused_in_the_background_leaves_the_one_before",
        "memory=400000",
        || {
            let rules = matches(Profile::Acl, 40, 14);
            let mut history = History::new(with_changes(Method::Linear, 40, Rebuild::Background), &rules, 6);
            for i in 0..10 {
                history.insert(RuleId(800 + i), Priority(1), &pairs_of_ranges(i));
                history.lookup(5);
            }
            history.table.finish_rebuild();
            history.lookup(5);
            assert!(
                matches!(history.table.refusal(), Some(GpuError::Memory { .. })),
                "{:?}",
                history.table.refusal()
            );
            assert_eq!((history.table.failure(), history.table.table_epoch().map(|t| t.0)), (None, Some(1)));
            while let Some(place) = history.rules.iter().position(|rule| rule.id.0 >= 800) {
                history.remove(place);
            }
            history.lookup(5);
            assert_eq!(history.table.method(), Some(Method::Linear), "it goes on");
        },
    );
}

/// Rules over few bits of two words.
fn entry(random: &mut Random, number: u32) -> Entry<4> {
    let mask: [u32; 4] = std::array::from_fn(|w| if w < 2 { random.below(16) as u32 } else { 0 });
    Entry {
        condition: Condition { low: mask.map(|m| m & random.bits() as u32), high: mask },
        rank: RankKey::new(Priority(random.below(3) as u32), number),
        rule: RuleId(number),
        categories: 1,
    }
}

#[test]
fn tables_with_changes_answer_or_say_that_they_cannot() {
    on_host_device("tables_with_changes_answer_or_say_that_they_cannot", "", || {
        let device = Device::open(0).expect("the host device");
        let kinds = [WordKind::Ternary; 4];
        let mut random = Random::new(15);
        let mut session =
            Session::new(&device, SessionConfig { batch_max: 20, slots: 2, graphs: false }).expect("it fits");
        let keys: Vec<[u32; 4]> =
            (0..100).map(|_| std::array::from_fn(|_| random.below(16) as u32)).collect();
        for method in Method::ALL {
            let all: Vec<Entry<4>> = (0..40).map(|i| entry(&mut random, i)).collect();
            let bulk = GpuTable::build(&device, method, &kinds, &all, 1, 1).expect("it fits");
            for (gone, new) in [(0, 0), (0, 9), (7, 0), (10, 10), (40, 3)] {
                let mut now = all.clone();
                random.shuffle(&mut now);
                let gone: Vec<RuleId> = now.drain(..gone).map(|entry| entry.rule).collect();
                // Some deleted rules are inserted again with other matches.
                let number = |i: usize| gone.get(i).map_or(100 + i as u32, |rule| rule.0);
                let added: Vec<Entry<4>> = (0..new).map(|i| entry(&mut random, number(i))).collect();
                let table = bulk.with_changes(gone.iter().copied().chain([RuleId(7777)]), &added, 2);
                let table = Arc::new(table.expect("it fits"));
                now.extend(&added);
                assert_eq!((table.len(), table.epoch()), (now.len(), 2));
                let mut hits = vec![None; keys.len()];
                session.lookup_batch(&table, &keys, &mut hits).expect("the device works");
                let unanswered = session.unanswered().to_vec();
                assert!(unanswered.is_sorted() && (!gone.is_empty() || unanswered.is_empty()));
                for (place, key) in keys.iter().enumerate() {
                    let of_bulk = best(&all, &kinds, key, 0).filter(|best| gone.contains(&best.rule));
                    let of_now = best(&now, &kinds, key, 0);
                    let unknown = of_bulk.is_some_and(|gone| of_now.is_none_or(|now| now.rank < gone.rank));
                    assert_eq!(unanswered.contains(&(place as u32)), unknown, "{method}");
                    assert!(unknown || hits[place] == of_now.map(Entry::hit), "{method}");
                }
            }
        }
    });
}

#[test]
fn more_than_may_be_compared_with_every_key_is_not_added() {
    on_host_device("more_than_may_be_compared_with_every_key_is_not_added", "", || {
        let device = Device::open(0).expect("the host device");
        let table = GpuTable::<4>::build(&device, Method::Tuple, &[WordKind::Range16; 4], &[], 1, 1);
        let table = table.expect("it fits");
        let ranges = Entry {
            condition: Condition {
                low: [0x0001_0001, 0x0001_0001, 0, 0],
                high: [0xfffe_fffe, 0xfffe_fffe, u32::MAX, u32::MAX],
            },
            rank: RankKey::new(Priority(1), 1),
            rule: RuleId(1),
            categories: 1,
        };
        let refused = table.with_changes([], &[ranges], 2);
        assert!(matches!(refused, Err(GpuError::Entries { .. })), "810,000 entries: {refused:?}");
    });
}

#[test]
fn dropped_tables_free_their_memory() {
    on_host_device("dropped_tables_free_their_memory", "", || {
        let context = cudarc::driver::CudaContext::new(0).expect("the host device");
        let free = || context.mem_get_info().expect("it says").0;
        let before = free();
        let others: Vec<Match> = matches(Profile::Acl, 60, 16);
        for rebuild in [Rebuild::Manual, Rebuild::Background] {
            let mut history = History::new(with_changes(Method::Pruned, 6, rebuild), &others[..30], 8);
            for _ in 0..80 {
                history.step(&others);
            }
            // Also with batches in flight and a table in construction.
            drop(history);
            assert_eq!(free(), before, "{rebuild:?}");
        }
    });
}
