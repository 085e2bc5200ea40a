//! Tables that are made with their rules.

use flowlane::classify::{InsertError, LinearSearch};
use flowlane::packet::{Field, FieldRef};
use flowlane::rule::Action;

use super::*;
use crate::ruleset::RulesetError;
use flowlane::classify::RuleEngine;
use flowlane::rule::RuleId;

mod drift;

fn rule(priority: u32, port: u128, actions: Vec<Action>) -> Rule {
    let mut matches = Match::any();
    matches.set(Field::InPort, port);
    Rule { priority: Priority(priority), ..Rule::new(matches, actions) }
}

fn linear(rules: &[Given<'_>]) -> Result<Engine, InsertError> {
    let mut engine = LinearSearch::new(10);
    rules.iter().try_for_each(|(id, priority, matches)| engine.insert(*id, *priority, matches))?;
    Ok(Engine::Now(Box::new(engine)))
}

#[test]
fn a_table_of_rules_is_as_if_they_had_been_added_one_by_one() {
    // The fourth replaces the second.
    let rules = [
        rule(9, 1, vec![]),
        rule(7, 2, vec![]),
        rule(7, 3, vec![]),
        rule(7, 2, vec![Action::Normal]),
        rule(1, 2, vec![]),
    ];
    let mut by_one = Pipeline::new();
    by_one.add_table(4, "t", Box::new(LinearSearch::new(10)), Miss::Drop);
    let in_table = |rule: &Rule| Rule { table: 4, ..rule.clone() };
    rules.iter().for_each(|rule| _ = by_one.add_rule(in_table(rule)).unwrap());
    let mut at_once = Pipeline::new();
    assert!(at_once.add_table_of(4, "t", rules.to_vec(), Miss::Drop, linear).is_ok());
    // A rule added later gets the next ID.
    for pipeline in [&mut by_one, &mut at_once] {
        assert_eq!(pipeline.add_rule(in_table(&rule(5, 9, vec![]))), Ok(RuleId(4)));
        assert_eq!(pipeline.find_rule(4, Priority(7), &rules[1].matches), Some(RuleId(1)));
    }
    let [one, other] = [&by_one, &at_once].map(|pipeline| pipeline.table(4).unwrap());
    let told =
        |table: &TableView<'_>| -> Vec<_> { table.rules().map(|(id, e)| (id, e.rule.clone())).collect() };
    assert_eq!(told(&one), told(&other));
    assert_eq!((one.classifier().len(), other.classifier().len()), (5, 5));
}

#[test]
fn an_action_that_does_not_fit_its_field_is_refused() {
    let set = |field, value, mask| Action::set_field(field, value, mask);
    let (ttl, part) = (Field::NwTtl, |bits| FieldRef::new(Field::Reg0, 0, bits).unwrap());
    for (action, problem) in [
        (
            set(ttl, 64, u128::MAX),
            "0x40/0xffffffffffffffffffffffffffffffff does not fit into the 8 bits of nw_ttl",
        ),
        (set(ttl, 256, 0xff), "0x100/0xff does not fit into the 8 bits of nw_ttl"),
        (set(Field::Reg0, 1, 1 << 32), "does not fit into the 32 bits of reg0"),
        (set(Field::EthType, 1, 1), "dl_type cannot be set"),
        (
            Action::Move { from: Field::Ipv4Src.into(), to: part(8) },
            "nw_src and reg0[0..7] are of different widths",
        ),
        (Action::Move { from: part(16), to: Field::EthType.into() }, "dl_type cannot be set"),
    ] {
        let mut pipeline = Pipeline::new();
        let rule = rule(0, 1, vec![action]);
        let built = pipeline.add_table_of(0, "", vec![rule.clone()], Miss::Drop, linear);
        let Err(NotAdded::Rule(_, error)) = built else { panic!("{rule} is accepted") };
        assert!(error.to_string().contains(problem), "{error}");
        pipeline.add_table(0, "", Box::new(LinearSearch::new(10)), Miss::Drop);
        assert_eq!(pipeline.add_rule(rule), Err(error));
    }
}

#[test]
fn a_table_that_is_refused_changes_nothing() {
    let mut pipeline = Pipeline::new();
    pipeline.add_table(1, "", Box::new(LinearSearch::new(10)), Miss::Drop);
    let before = pipeline.generation();
    let mut refused = |to, rules_max| {
        let rules = vec![rule(1, 1, vec![]), rule(1, 2, vec![Action::Goto(to)])];
        pipeline.add_table_of(0, "", rules, Miss::Drop, |rules| match rules.len() > rules_max {
            true => Err(InsertError::Full { rules_max }),
            false => linear(rules),
        })
    };
    let nowhere = refused(7, 2);
    assert!(matches!(nowhere, Err(NotAdded::Rule(_, RulesetError::NoGotoTable(7)))), "{nowhere:?}");
    let backwards = refused(0, 2);
    assert!(matches!(backwards, Err(NotAdded::Rule(_, RulesetError::GotoBackwards { from: 0, to: 0 }))));
    assert!(matches!(refused(1, 1), Err(NotAdded::Engine(InsertError::Full { rules_max: 1 }))));
    assert!(!pipeline.ruleset().has_table(0) && pipeline.generation() == before);
}
