//! Conjunctions against their definition, by sets and recursion, while rules change.

use std::collections::{BTreeMap, BTreeSet};

use super::super::tests::{Random, definition, engines, random_key, random_match};
use super::*;

/// An ordinary rule, or clauses.
#[derive(Clone, Debug)]
struct Drawn {
    id: RuleId,
    priority: Priority,
    matches: Match,
    clauses: Vec<Clause>,
}

fn drawn(r: &mut Random, id: u32) -> Drawn {
    let clause = |r: &mut Random| {
        let clauses = 2 + r.next(2) as u8;
        Clause { id: r.next(4), clauses, clause: r.next(clauses.into()) as u8 }
    };
    let is_part = !r.chance(3);
    let mut matches = if r.chance(2) { Match::any() } else { random_match(r) };
    if !is_part && r.chance(2) {
        matches.set(Field::ConjId, r.next(4).into());
    }
    let clauses = if is_part { (0..=r.next(4)).map(|_| clause(r)).collect() } else { Vec::new() };
    Drawn { id: RuleId(id), priority: Priority(r.next(4)), matches, clauses }
}

/// ovs-fields(7): by priority, the best first, an ordinary rule before conjunctions.
fn defined(rules: &[Drawn], key: &FlowKey) -> Option<Hit> {
    let is_ordinary = |rule: &&Drawn| rule.clauses.is_empty();
    let ordinary: Vec<_> =
        rules.iter().filter(is_ordinary).map(|rule| (rule.id, rule.priority, rule.matches.clone())).collect();
    let hard = definition(&ordinary, key);
    for priority in (0..4).rev().map(Priority) {
        if hard.is_some_and(|hit| hit.priority >= priority) {
            break;
        }
        let mut met: BTreeMap<u32, BTreeSet<(u8, u8)>> = BTreeMap::new();
        for rule in rules.iter().filter(|rule| rule.priority == priority && rule.matches.matches(key)) {
            rule.clauses
                .iter()
                .for_each(|one| _ = met.entry(one.id).or_default().insert((one.clauses, one.clause)));
        }
        for (id, clauses) in met {
            if [2, 3].iter().any(|&n| (0..n).all(|clause| clauses.contains(&(n, clause)))) {
                let mut again = key.clone();
                again.set(Field::ConjId, id.into());
                if let Some(hit) = definition(&ordinary, &again) {
                    return Some(hit);
                }
            }
        }
    }
    hard
}

#[test]
fn conjunctions_agree_with_their_definition_while_rules_change() {
    let (mut met, mut bits_changed) = (0, 0);
    for seed in 0..30 {
        let r = &mut Random(seed ^ 0xc04);
        for mut engine in engines() {
            let mut rules: Vec<Drawn> = Vec::new();
            let mut parts = Conjunctions::new(1000, 7);
            for id in 0..60 {
                let rule = drawn(r, id);
                match rule.clauses.is_empty() {
                    true => engine.insert(rule.id, rule.priority, &rule.matches),
                    false => parts.insert(rule.id, rule.priority, &rule.matches, &rule.clauses),
                }
                .unwrap();
                rules.push(rule);
                if r.chance(4) {
                    let gone = rules.remove(r.next(rules.len() as u32) as usize);
                    let removed =
                        if gone.clauses.is_empty() { engine.remove(gone.id) } else { parts.remove(gone.id) };
                    assert!(removed);
                }
                let key = random_key(r);
                let at = format!("seed {seed} {} {key:?} {rules:#?}", engine.name());
                let wanted = defined(&rules, &key);
                let hard = engine.lookup(&key);
                let plain = parts.winner(&key, hard, None, |key, _| engine.lookup(key));
                assert_eq!(plain, wanted, "{at}");
                met += usize::from(wanted != hard);
                let mut looked_at = FlowMask::zero();
                let wild = |key: &FlowKey, looked_at: &mut FlowMask| {
                    let hard = engine.lookup_wildcards(key, looked_at);
                    parts.winner(key, hard, Some(looked_at), |key, looked_at| {
                        engine.lookup_wildcards(key, looked_at.expect("given above"))
                    })
                };
                assert_eq!(wild(&key, &mut looked_at), wanted, "{at}");
                assert_eq!(looked_at.get(Field::ConjId), 0);
                // Keys that agree in the bits that were looked at get the same answer.
                let mut other = random_key(r);
                for w in looked_at.present_words() {
                    let bits = looked_at.word(w);
                    other.set_word(w, other.word(w) & !bits | key.word(w) & bits);
                }
                bits_changed += usize::from(other != key);
                assert_eq!(defined(&rules, &other), wanted, "{at} {other:?} {looked_at:?}");
            }
            assert_eq!(parts.len() + engine.len(), rules.len());
        }
    }
    assert!(met > 500 && bits_changed > 500, "{met} {bits_changed}");
}
