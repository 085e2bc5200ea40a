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

fn drawn_clauses(r: &mut Random) -> Vec<Clause> {
    let clause = |r: &mut Random| {
        let clauses = 2 + r.next(2) as u8;
        Clause { id: r.next(4), clauses, clause: r.next(clauses.into()) as u8 }
    };
    (0..=r.next(4)).map(|_| clause(r)).collect()
}

fn drawn(r: &mut Random, id: u32) -> Drawn {
    let is_part = !r.chance(3);
    let mut matches = if r.chance(2) { Match::any() } else { random_match(r) };
    if !is_part && r.chance(2) {
        matches.set(Field::ConjId, r.next(4).into());
    }
    let clauses = if is_part { drawn_clauses(r) } else { Vec::new() };
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
    for seed in 0..40 {
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
                let at = r.next(rules.len().max(1) as u32) as usize;
                if let Some(rule) = rules.get_mut(at).filter(|rule| !rule.clauses.is_empty() && r.chance(3)) {
                    rule.clauses = drawn_clauses(r);
                    parts.set(rule.id, &rule.clauses);
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

/// Rules of one match are one entry, whatever their number, and come and go without looking at the others.
#[test]
fn many_rules_of_one_match_come_and_go() {
    const RULES: u32 = 100_000;
    let mut parts = Conjunctions::new(RULES as usize, 3);
    let both = |id| [0, 1].map(|clause| Clause { id, clauses: 2, clause });
    let last = |parts: &Conjunctions| {
        let found = |key: &FlowKey, _: Option<&mut FlowMask>| {
            Some(Hit { rule: RuleId(key.get(Field::ConjId) as u32), priority: Priority(9) })
        };
        parts.winner(&FlowKey::zero(), None, None, found).map(|hit| hit.rule.0)
    };
    for id in 0..RULES {
        parts.insert(RuleId(id), Priority(id), &Match::any(), &both(id)).unwrap();
    }
    let full = parts.insert(RuleId(RULES), Priority(1), Match::any().set(Field::TpSrc, 1), &both(1));
    assert_eq!(full, Err(InsertError::Full { rules_max: RULES as usize }));
    assert_eq!(
        parts.insert(RuleId(7), Priority(1), &Match::any(), &[]),
        Err(InsertError::Duplicate(RuleId(7)))
    );
    assert_eq!(last(&parts), Some(RULES - 1), "the highest priority");
    for id in (0..RULES).rev() {
        assert!(parts.remove(RuleId(id)) && !parts.remove(RuleId(id)));
        if id % 9_999 == 1 {
            assert_eq!(last(&parts), Some(id - 1));
        }
    }
    assert!(parts.is_empty() && last(&parts).is_none());
    parts.insert(RuleId(4), Priority(2), &Match::any(), &both(4)).unwrap();
    parts.set(
        RuleId(4),
        &[Clause { id: 4, clauses: 2, clause: 2 }, Clause { id: 4, clauses: 200, clause: 0 }],
    );
    assert_eq!(last(&parts), None, "clauses that no conjunction has");
}
