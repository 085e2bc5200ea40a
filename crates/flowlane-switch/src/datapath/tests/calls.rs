//! Calls of tables: the packet comes back into the middle of a rule's actions.

use super::*;
use crate::ruleset::{Origin, compile};

type CallsByRule = BTreeMap<(u8, u32), (usize, u8)>;

/// Lets some rules call a later table before one of their actions.
fn add_calls(pipeline: &mut Pipeline, calls: &CallsByRule) {
    for (&(table, id), &(before, target)) in calls {
        let view = pipeline.table(table).unwrap();
        let (_, entry) = view.rules().find(|(rule, _)| rule.0 == id).unwrap();
        let mut actions = entry.rule.actions.clone();
        actions.insert(before.min(actions.len()), Action::call(target));
        let steps = compile(&actions, Origin::none(table));
        pipeline.replace_steps(table, flowlane::rule::RuleId(id), steps);
    }
}

fn random_calls(r: &mut Random, pipeline: &Pipeline, tables: u8) -> CallsByRule {
    let mut calls = CallsByRule::new();
    for (number, table) in pipeline.tables().filter(|(number, _)| *number < tables) {
        for (id, entry) in table.rules() {
            let leads_on = matches!(entry.rule.actions.last(), Some(Action::Goto(_)));
            let places = entry.rule.actions.len() + usize::from(!leads_on);
            if r.next(2) == 0 && places > 0 {
                let target = number + 1 + r.next(u32::from(tables - number)) as u8;
                calls.insert((number, id.0), (r.next(places as u32) as usize, target));
            }
        }
    }
    calls
}

#[test]
fn a_call_returns_into_the_middle_of_an_action_list_whichever_way_a_packet_takes() {
    let mut returned = 0;
    for seed in 0..40u64 {
        let r = &mut Random(seed ^ 0xca11);
        let tables = 2 + r.next(4) as u8;
        let rules = random_rules(r, tables);
        let caches = CacheConfig {
            adaptive: r.pick(&[false, true]),
            megaflows_max: r.pick(&[1, 20, 1000]),
            ..CacheConfig::default()
        };
        let (mut cached, cached_sent) = worker(&rules, tables, caches, By::Tuple);
        let (mut plain, plain_sent) = worker(&rules, tables, no_caches(), By::Tuple);
        let calls = random_calls(r, &plain.lookup.pipeline, tables);
        add_calls(&mut plain.lookup.pipeline, &calls);
        add_calls(&mut cached.lookup.pipeline, &calls);
        for round in 0..4 {
            let port = r.next(2) as usize;
            let frames: Vec<Vec<u8>> = (0..40).map(|_| packet(r)).collect();
            let borrowed: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let mut all = Vec::new();
            for (i, bytes) in borrowed.iter().enumerate() {
                let wanted = interpret_with(&plain.lookup.pipeline, &calls, port as u32 + 1, bytes);
                let without = interpret(&plain.lookup.pipeline, port as u32 + 1, bytes);
                returned += usize::from(wanted != without);
                let at = format!("seed {seed} round {round} packet {i} {bytes:02x?} {calls:?}\n{rules:#?}");
                assert_eq!(traced(&plain, port, bytes), Some(wanted.clone()), "traced: {at}");
                plain.inject(port, &[bytes]).unwrap();
                assert_eq!(std::mem::take(&mut *plain_sent.lock().unwrap()), wanted, "plain: {at}");
                cached.inject(port, &[bytes]).unwrap();
                assert_eq!(std::mem::take(&mut *cached_sent.lock().unwrap()), wanted, "cached: {at}");
                all.extend(wanted);
            }
            plain.inject(port, &borrowed).unwrap();
            cached.inject(port, &borrowed).unwrap();
            for sent in [&plain_sent, &cached_sent] {
                assert_eq!(std::mem::take(&mut *sent.lock().unwrap()), all, "seed {seed} round {round}");
            }
        }
        assert_eq!(counters(&mut cached), counters(&mut plain), "seed {seed}");
    }
    assert!(returned > 500, "calls make a difference to {returned} packets");
}

#[test]
fn calls_without_end_are_refused_and_counted() {
    let out = Action::Output(PortNo(2));
    let rule = Rule { table: 0, priority: Priority(1), cookie: 0, matches: Match::any(), actions: vec![out] };
    for caches in [no_caches(), CacheConfig { adaptive: false, ..CacheConfig::default() }] {
        let (mut worker, sent) = worker(std::slice::from_ref(&rule), 1, caches, By::Tuple);
        add_calls(&mut worker.lookup.pipeline, &CallsByRule::from([((0, 0), (0, 0))]));
        let frame = packet(&mut Random(1));
        worker.inject(0, &[&frame, &frame]).unwrap();
        assert_eq!(worker.egress.drops.call_depth, 2);
        assert!(sent.lock().unwrap().is_empty());
        assert_eq!(traced(&worker, 0, &frame), Some(Vec::new()));
    }
}

#[test]
fn a_call_in_the_last_place_is_a_jump() {
    // A table that calls itself at its end would exhaust the call stack, were anything left behind.
    let rule =
        |table, actions| Rule { table, priority: Priority(1), cookie: 0, matches: Match::any(), actions };
    let rules = [rule(0, vec![]), rule(1, vec![Action::Output(PortNo(2))])];
    let (mut worker, sent) = worker(&rules, 2, no_caches(), By::Tuple);
    add_calls(&mut worker.lookup.pipeline, &CallsByRule::from([((0, 0), (0, 1))]));
    let frame = packet(&mut Random(1));
    worker.inject(0, &[&frame]).unwrap();
    assert_eq!(sent.lock().unwrap().len(), 1);
    assert!((0..32).all(|lane| !worker.calls.are_open(lane)));
}
