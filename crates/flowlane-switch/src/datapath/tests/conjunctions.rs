//! Conjunctions, against the interpreter, while rules change.

use super::*;

/// Rules of a table of which some are parts of conjunctions, and some match a conjunction's number.
fn rules_of(r: &mut Random, table: u8, count: u32) -> Vec<Rule> {
    let clause = |r: &mut Random| {
        let clauses = 2 + r.next(2) as u8;
        Action::Conjunction { id: 1 + r.next(3), clause: r.next(clauses.into()) as u8, clauses }
    };
    let rule = |r: &mut Random| {
        let mut matches = if r.next(3) == 0 { Match::any() } else { random_match(r) };
        let mut actions = vec![set(Field::Reg0, r.next(3).into()), Action::Output(PortNo(1 + r.next(4)))];
        match r.next(4) {
            0 | 1 => actions = (0..1 + r.next(4)).map(|_| clause(r)).collect(),
            2 => _ = matches.set(Field::ConjId, (1 + r.next(3)).into()),
            _ => {}
        }
        if let (Some(Action::Output(_)), true) = (actions.last(), r.next(2) == 0) {
            actions.push(Action::Goto(table + 1));
        }
        Rule { table, priority: Priority(r.next(4)), cookie: 0, matches, actions }
    };
    (0..count).map(|_| rule(r)).collect()
}

#[test]
fn conjunctions_hold_in_caches_and_bursts_while_rules_change() {
    let mut conjunctive = 0;
    for seed in 0..40u64 {
        let r = &mut Random(seed ^ 0xc0417);
        let mut rules: Vec<Rule> = (0..2).flat_map(|table| rules_of(r, table, 16)).collect();
        let caches = CacheConfig { adaptive: r.pick(&[false, true]), ..CacheConfig::default() };
        let (mut cached, cached_sent) = worker(&rules, 3, caches, By::pick(seed));
        let (mut plain, plain_sent) = worker(&rules, 3, no_caches(), By::pick(seed / 5));
        for step in 0..25 {
            // Also of the same match and priority: an ordinary rule turns into a part, and back.
            let table = r.pick(&[0, 1]);
            let mut rule = rules_of(r, table, 1).remove(0);
            let other = &rules[r.next(rules.len() as u32) as usize];
            if r.next(2) == 0 {
                rule = Rule {
                    table: other.table,
                    priority: other.priority,
                    matches: other.matches.clone(),
                    ..rule
                };
            }
            if matches!(rule.actions.last(), Some(Action::Goto(_))) && rule.table > 0 {
                rule.actions.pop();
            }
            let gone = (r.next(3) == 0).then(|| rules.swap_remove(r.next(rules.len() as u32) as usize));
            for pipeline in [&mut cached.lookup.pipeline, &mut plain.lookup.pipeline] {
                if let Some(gone) = &gone
                    && let Some(id) = pipeline.find_rule(gone.table, gone.priority, &gone.matches)
                {
                    pipeline.remove_rule(gone.table, id);
                }
                pipeline.add_rule(rule.clone()).unwrap();
            }
            rules.push(rule);
            let frames: Vec<Vec<u8>> = (0..20).map(|_| packet(r)).collect();
            let borrowed: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let mut all = Vec::new();
            for bytes in &borrowed {
                let wanted = interpret(&plain.lookup.pipeline, 1, bytes);
                let at = format!("seed {seed} step {step} {bytes:02x?} {rules:#?}");
                assert_eq!(traced(&plain, 0, bytes), Some(wanted.clone()), "traced: {at}");
                cached.inject(0, &[bytes]).unwrap();
                assert_eq!(std::mem::take(&mut *cached_sent.lock().unwrap()), wanted, "cached: {at}");
                all.extend(wanted);
            }
            plain.inject(0, &borrowed).unwrap();
            assert_eq!(std::mem::take(&mut *plain_sent.lock().unwrap()), all, "seed {seed} step {step}");
        }
        let counted = plain.lookup.pipeline.tables().flat_map(|(_, table)| table.rules().collect::<Vec<_>>());
        for (_, entry) in counted {
            conjunctive += if entry.rule.matches.mask().get(Field::ConjId) != 0 { entry.packets } else { 0 };
        }
    }
    assert!(conjunctive > 200, "{conjunctive}");
}

#[test]
fn conjunctions_stand_alone_and_not_on_devices() {
    let part = |clause| Action::Conjunction { id: 1, clause, clauses: 2 };
    let rule = |actions| Rule::new(Match::any(), actions);
    let (mut worker, _) = worker(&[], 2, no_caches(), By::Later(4));
    let pipeline = &mut worker.lookup.pipeline;
    assert_eq!(pipeline.add_rule(rule(vec![part(0)])), Err(RulesetError::ConjunctionOnDevice));
    for actions in [
        vec![part(0), Action::Output(PortNo(1))],
        vec![Action::Clone(vec![part(0), Action::Output(PortNo(1))])],
        vec![Action::WriteActions(vec![part(0)])],
        vec![Action::Conjunction { id: 1, clause: 2, clauses: 2 }],
        vec![Action::Conjunction { id: 1, clause: 0, clauses: 65 }],
    ] {
        assert_eq!(pipeline.add_rule(rule(actions)), Err(RulesetError::Conjunction));
    }
    // In a copy it does nothing, so that a device need not have it.
    assert!(pipeline.add_rule(rule(vec![Action::Clone(vec![part(0)])])).is_ok());
}
