//! Readers beside a writer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::classify::acl::{AclConfig, AclEngine, Layout, testing};
use crate::generate::Profile;

fn any() -> Condition<4> {
    Condition::any(Layout::ipv4_five_tuple().kinds())
}

fn table(engine: AclEngine) -> Acl<4> {
    let (entries, _) = testing::generated(Profile::Acl, 100, 1, 1);
    let rules = entries.iter().map(|e| (e.rule, Priority(5), e.condition, 1));
    Acl::build(Layout::ipv4_five_tuple(), AclConfig::default().with_engine(engine), rules).unwrap()
}

#[test]
fn a_batch_sees_one_state_of_the_rules() {
    for engine in [AclEngine::Tree, AclEngine::Dynamic, AclEngine::Brute] {
        let mut shared = SharedAcl::new(table(engine));
        // Of these two rules, which match everything, always exactly one is there.
        let (one, other) = (RuleId(1000), RuleId(1001));
        shared.insert(one, Priority(9), any(), 1).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                let (mut reader, stop) = (shared.reader(), &stop);
                scope.spawn(move || {
                    let mut verdicts = [MatchId::NONE; 64];
                    while !stop.load(Ordering::Relaxed) {
                        reader.lookup_batch(&[[7; 4]; 64], &mut verdicts);
                        assert!(verdicts.iter().all(|v| *v == verdicts[0]), "{verdicts:?}");
                        assert!([Some(one), Some(other)].contains(&verdicts[0].rule()), "{verdicts:?}");
                    }
                });
            }
            for turn in 0..80 {
                let (goes, comes) = if turn % 2 == 0 { (one, other) } else { (other, one) };
                let swapped = shared.transaction(|t| {
                    assert!(t.remove(goes));
                    t.insert(comes, Priority(9), any(), 1)
                });
                assert_eq!(swapped, Ok(()));
                if turn % 20 == 8 {
                    shared.rebuild().unwrap();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_transaction_that_fails_changes_nothing() {
    let mut shared = SharedAcl::new(table(AclEngine::Auto));
    let mut reader = shared.reader();
    for _ in 0..3 {
        let failed = shared.transaction(|t| {
            t.insert(RuleId(1000), Priority(9), any(), 1)?;
            assert!(t.remove(RuleId(1)));
            t.insert(RuleId(2), Priority(9), any(), 1)
        });
        assert_eq!(failed, Err(BuildError::Duplicate(RuleId(2))));
        assert!(reader.look(|table| table.len() == 100 && table.get(RuleId(1)).is_some()));
        assert!(shared.look(|table| table.get(RuleId(1000)).is_none()));
    }
    assert!(shared.remove(RuleId(1)) && !shared.remove(RuleId(1)));
    assert_eq!(reader.look(Acl::len), 99);
}

#[test]
fn both_copies_end_up_the_same() {
    let (entries, keys) = testing::generated(Profile::Ipc, 300, 300, 4);
    let mut shared = SharedAcl::new(table(AclEngine::Auto));
    for (i, entry) in entries.iter().enumerate() {
        shared.replace(RuleId(entry.rule.0 % 100), Priority(5), entry.condition, 1).unwrap();
        if i % 3 == 0 {
            shared.insert(RuleId(1000 + i as u32), Priority(6), entry.condition, 1).unwrap();
        }
        match i {
            100 => _ = shared.choose(&keys, &mut || 0).unwrap(),
            200 => {
                let snapshot = shared.snapshot();
                shared.remove(RuleId(0));
                shared.adopt(Arc::new(snapshot.build().unwrap())).unwrap();
            }
            _ => {}
        }
    }
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut verdicts = vec![MatchId::NONE; keys.len()];
        shared.reader().lookup_batch(&keys, &mut verdicts);
        seen.push(verdicts);
        // The copies swap.
        shared.insert(RuleId(5000), Priority(0), any(), 0).unwrap();
        shared.remove(RuleId(5000));
        shared.replace(RuleId(5000), Priority(0), any(), 0).unwrap();
        shared.insert(RuleId(5000), Priority(0), any(), 0).unwrap();
        shared
            .transaction(|t| {
                assert!(t.remove(RuleId(5000)));
                Ok::<_, BuildError>(())
            })
            .unwrap();
        shared.insert(RuleId(6000 + seen.len() as u32), Priority(0), any(), 0).unwrap();
    }
    assert_eq!(seen[0], seen[1]);
}

/// What a table of these entries says, by going through them all.
fn expected(table: &Acl<4>, keys: &[[u32; 4]]) -> Vec<Option<RuleId>> {
    let entries: Vec<_> = table.entries().copied().collect();
    let best = |key| crate::classify::acl::best(&entries, table.layout().kinds(), key, 0);
    keys.iter().map(|key| best(key).map(|entry| entry.rule)).collect()
}

#[test]
fn a_table_that_renews_itself_is_right_at_any_moment_and_has_no_changes_left_soon() {
    for engine in [AclEngine::Tree, AclEngine::Dynamic, AclEngine::Auto] {
        let (entries, keys) = testing::generated(Profile::Fw, 600, 200, 4);
        let mut shared = RenewedAcl::new(table(engine));
        let mut reader = shared.reader();
        let mut verdicts = vec![MatchId::NONE; keys.len()];
        // Until it has been renewed at least twice while rules change, and all rules are others.
        let begun = std::time::Instant::now();
        for round in 0.. {
            for entry in entries.iter().skip(round % 7).step_by(7) {
                let rule = RuleId(entry.rule.0 % 300);
                if !shared.remove(rule) || round % 2 == 0 {
                    shared.insert(rule, Priority(entry.rule.0 % 5), entry.condition, 1).unwrap();
                }
            }
            reader.lookup_batch(&keys, &mut verdicts);
            let found: Vec<_> = verdicts.iter().map(|v| v.rule()).collect();
            assert_eq!(found, shared.look(|table| expected(table, &keys)), "{engine}, round {round}");
            let renewed = engine == AclEngine::Dynamic || shared.renewals() >= 2;
            if round >= 14 && renewed || begun.elapsed().as_secs() > 60 {
                break;
            }
        }
        while shared.look(Acl::needs_rebuild) && begun.elapsed().as_secs() < 60 {
            thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(!shared.look(Acl::needs_rebuild), "{engine}: {}", shared.look(Acl::changes));
        reader.lookup_batch(&keys, &mut verdicts);
        let found: Vec<_> = verdicts.iter().map(|v| v.rule()).collect();
        assert_eq!(found, shared.look(|table| expected(table, &keys)));
        assert!(shared.refused().is_none());
    }
}

#[test]
fn a_renewal_that_is_given_up_leaves_room_for_rules_that_come() {
    let mut shared = SharedAcl::new(table(AclEngine::Tree));
    let mut bytes = Vec::new();
    for _ in 0..3 {
        _ = shared.snapshot();
        for rule in 0..100 {
            shared.remove(RuleId(rule));
            shared.insert(RuleId(rule), Priority(5), any(), 1).unwrap();
        }
        shared.abandon();
        bytes.push(shared.look(Acl::table_bytes));
    }
    for _ in 0..20 {
        for rule in 0..100 {
            shared.remove(RuleId(rule));
            shared.insert(RuleId(rule), Priority(5), any(), 1).unwrap();
        }
    }
    assert!(shared.look(Acl::table_bytes) <= bytes[2], "{bytes:?}");
}
