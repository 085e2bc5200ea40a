//! Asynchronous batches: in order, each answered by one rule set.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flowlane::classify::{AsyncEngine, RuleEngine};
use flowlane::generate::{Profile, Random};
use flowlane::packet::{Field, FlowKey};
use flowlane::rule::{Priority, RuleId};
use flowlane_gpu::{GpuError, Method};

use crate::history::{History, any_ipv4, config, matches};
use crate::host_device::on_host_device;

#[test]
fn batches_that_answer_later_get_the_answers_of_linear_search_by_every_method() {
    on_host_device("batches_that_answer_later_get_the_answers_of_linear_search_by_every_method", "", || {
        for (seed, method) in Method::ALL.into_iter().enumerate() {
            let mut history = History::new(config(Some(method)), &matches(Profile::Acl, 40, 1), seed as u64);
            let epoch = history.table.epoch();
            for _ in 0..8 {
                let count = 1 + history.random.index(48);
                history.gather_to(count);
                history.send();
                let wait = history.random.chance(0.3);
                assert!(history.receive(wait).is_none_or(|answered| answered == epoch));
            }
            history.receive_all();
            assert_eq!(history.table.failure(), None);
        }
    });
}

#[test]
fn a_batch_answers_after_some_questions_without_anybody_waiting() {
    on_host_device("a_batch_answers_after_some_questions_without_anybody_waiting", "", || {
        let mut history = History::new(config(Some(Method::Tuple)), &matches(Profile::Acl, 20, 2), 1);
        assert_eq!(history.receive(false), None);
        history.gather_to(5);
        assert!(history.send());
        assert_eq!(history.receive(false), None, "it has only been sent");
        while history.receive(false).is_none() {}
        assert_eq!(history.table.under_way(), 0);
    });
}

#[test]
fn as_many_batches_are_under_way_as_there_are_slots() {
    on_host_device("as_many_batches_are_under_way_as_there_are_slots", "", || {
        let mut history = History::new(config(Some(Method::Bloom)), &matches(Profile::Fw, 20, 3), 1);
        assert!(!history.send(), "nothing is gathered");
        for _ in 0..3 {
            history.gather_to(48);
            let full = AssertUnwindSafe(|| history.table.gather(&FlowKey::zero()));
            assert!(catch_unwind(full).is_err(), "a batch of 48 is full");
            assert!(history.send());
        }
        history.gather_to(7);
        assert!(!history.send());
        history.receive(true);
        assert!(history.send());
        assert_eq!(history.receive_all().len(), 3);
    });
}

#[test]
fn a_batch_of_which_nothing_passes_needs_no_device_and_keeps_its_place() {
    // The device would fail with the first launch.
    on_host_device("a_batch_of_which_nothing_passes_needs_no_device_and_keeps_its_place", "vanish=0", || {
        let mut history = History::new(config(Some(Method::Vector)), &matches(Profile::Acl, 20, 4), 1);
        // The sample would fail otherwise.
        assert_eq!(history.table.failure(), None);
        let mut arp = FlowKey::zero();
        arp.set(Field::EthType, 0x0806);
        for _ in 0..2 {
            history.gather(&arp);
            history.gather(&FlowKey::zero());
            assert!(history.send());
        }
        assert_eq!(history.receive_all().len(), 2);
        assert_eq!(history.table.failure(), None);
        history.gather_to(20);
        assert!(history.send());
        history.receive_all();
        assert!(matches!(history.table.failure(), Some(GpuError::Device { .. })));
    });
}

#[test]
fn a_batch_has_the_rules_with_which_it_was_sent() {
    on_host_device("a_batch_has_the_rules_with_which_it_was_sent", "", || {
        let mut history = History::new(config(Some(Method::Pruned)), &matches(Profile::Acl, 30, 5), 1);
        let first = history.table.epoch();
        history.gather_to(30);
        assert!(history.send());
        history.gather_to(10);
        history.insert(RuleId(900), Priority(9), &any_ipv4());
        let second = history.table.epoch();
        history.gather_to(20);
        assert!(history.send());
        history.remove(3);
        // The table is replaced while two batches are in flight and another is half gathered.
        history.gather_to(10);
        history.table.publish(&[]).expect("it fits");
        let third = history.table.epoch();
        history.gather_to(20);
        assert!(history.send());
        assert_eq!(history.receive_all(), [first, second, third]);
        assert_eq!(history.table.failure(), None);
    });
}

#[test]
fn a_device_that_disappears_under_a_batch_makes_it_one_of_now() {
    on_host_device("a_device_that_disappears_under_a_batch_makes_it_one_of_now", "vanish=1", || {
        let mut history = History::new(config(Some(Method::Filtered)), &matches(Profile::Fw, 30, 6), 1);
        let first = history.table.epoch();
        for _ in 0..3 {
            history.gather_to(30);
            assert!(history.send());
        }
        history.replace(2, Priority(7), &any_ipv4());
        assert_eq!(history.receive(true), Some(first), "the first launch is the last that works");
        let now = history.table.epoch();
        // A caller that does not wait must be notified, too.
        let without_waiting =
            |history: &mut History| std::iter::repeat_with(|| history.receive(false)).find_map(|epoch| epoch);
        assert_eq!([(); 2].map(|()| without_waiting(&mut history)), [Some(now); 2]);
        assert!(matches!(history.table.failure(), Some(GpuError::Device { .. })));
        history.gather_to(30);
        assert!(history.send());
        assert_eq!(history.receive(false), Some(now), "the list answers");
    });
}

#[test]
fn keys_that_agree_in_what_is_looked_at_get_the_same_answer() {
    on_host_device("keys_that_agree_in_what_is_looked_at_get_the_same_answer", "", || {
        let mut history = History::new(config(Some(Method::Tuple)), &matches(Profile::Ipc, 40, 7), 1);
        let mut random = Random::new(1);
        for round in 0..3 {
            for _ in 0..200 {
                let key = history.key();
                let looks_at = history.table.looks_at();
                let mut other = key.clone();
                for w in 0..64 {
                    let outside = random.bits() as u32 & !looks_at.word(w);
                    other.set_word(w, key.word(w) ^ outside);
                }
                assert_eq!(history.table.lookup(&key), history.table.lookup(&other));
            }
            let mut odd = any_ipv4();
            odd.set(Field::InPort, round).set_range(Field::TpSrc, 7, 900);
            history.insert(RuleId(800 + round as u32), Priority(8), &odd);
        }
        let looks_at = history.table.looks_at().clone();
        let last = history.rules.len() - 1;
        (0..3).for_each(|i| _ = history.remove(last - i));
        history.table.publish(&[]).expect("it fits");
        assert!(looks_at.covers(history.table.looks_at()) && looks_at != *history.table.looks_at());
    });
}
