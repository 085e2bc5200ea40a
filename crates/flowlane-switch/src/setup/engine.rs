//! The engines of rule tables: made of a table's rules at once.

use std::time::Instant;

use flowlane::classify::acl::{AclConfig, AclEngine, AclSearch};
use flowlane::classify::auto::{self, Question};
use flowlane::classify::{Classifier, InsertError, LinearSearch, TupleSearch};
use flowlane::generate::{Random, draw_key};

use crate::config::{EngineChoice, TableSection};
use crate::pipeline::Given;

/// Rules up to which `auto` takes linear search unseen: as many fit into the time of hashing one mask.
const LINEAR_RULES_MAX: usize = 8;
/// Rules up to which linear search may be faster than tuple search: where each has a mask of its own.
const CONTEST_RULES_MAX: usize = 64;
/// Packets of the contest: so few that it is over in a few milliseconds whatever the masks.
const SAMPLE: usize = 64;

/// The engine that a table asks for, with these rules.
pub(super) fn build(
    table: &TableSection,
    rules: &[Given<'_>],
    seed: u32,
) -> Result<Box<dyn Classifier>, InsertError> {
    if rules.len() > table.rules_max {
        return Err(InsertError::Full { rules_max: table.rules_max });
    }
    match table.engine {
        EngineChoice::Auto => auto(table, rules, seed),
        EngineChoice::Linear => linear(table, rules),
        EngineChoice::Tuple => tuple(table, rules, seed),
        EngineChoice::Acl | EngineChoice::Gpu => list(table, rules, AclEngine::Auto, seed),
        EngineChoice::Brute => list(table, rules, AclEngine::Brute, seed),
        EngineChoice::Tree => list(table, rules, AclEngine::Tree, seed),
        EngineChoice::Dynamic => list(table, rules, AclEngine::Dynamic, seed),
    }
}

/// The limits of an access list.
pub(super) fn list_config(table: &TableSection, engine: AclEngine, seed: u32) -> AclConfig {
    AclConfig {
        engine,
        rules_max: table.rules_max,
        memory_max: table.memory_mib.saturating_mul(1 << 20),
        seed: seed.into(),
        ..AclConfig::default()
    }
}

/// Linear or tuple search, whichever makes megaflows faster. Access lists do not take part: what their answers depend on
/// costs them a look at every better rule.
fn auto(table: &TableSection, rules: &[Given<'_>], seed: u32) -> Result<Box<dyn Classifier>, InsertError> {
    match rules.len() {
        ..=LINEAR_RULES_MAX => return linear(table, rules),
        len if len > CONTEST_RULES_MAX => return tuple(table, rules, seed),
        _ => {}
    }
    let mut engines = vec![tuple(table, rules, seed)?, linear(table, rules)?];
    let mut random = Random::for_purpose(seed.into(), "auto");
    let mut key = || draw_key(rules[random.below(rules.len() as u64) as usize].2, &mut random);
    let sample: Vec<_> = (0..SAMPLE).map(|_| key()).collect();
    let tables: Vec<&dyn Classifier> = engines.iter().map(|engine| &**engine).collect();
    let begun = Instant::now();
    let mut clock = || begun.elapsed().as_nanos() as u64;
    let contest = auto::fastest(&tables, Question::Wildcards, &sample, &mut clock);
    Ok(engines.swap_remove(contest.chosen))
}

fn linear(table: &TableSection, rules: &[Given<'_>]) -> Result<Box<dyn Classifier>, InsertError> {
    filled(Box::new(LinearSearch::new(table.rules_max)), rules)
}

fn tuple(table: &TableSection, rules: &[Given<'_>], seed: u32) -> Result<Box<dyn Classifier>, InsertError> {
    filled(Box::new(TupleSearch::new(table.rules_max, seed)), rules)
}

fn filled(mut engine: Box<dyn Classifier>, rules: &[Given<'_>]) -> Result<Box<dyn Classifier>, InsertError> {
    rules.iter().try_for_each(|(id, priority, matches)| engine.insert(*id, *priority, matches))?;
    Ok(engine)
}

fn list(
    table: &TableSection,
    rules: &[Given<'_>],
    engine: AclEngine,
    seed: u32,
) -> Result<Box<dyn Classifier>, InsertError> {
    Ok(Box::new(AclSearch::build(list_config(table, engine, seed), rules.iter().copied())?))
}

#[cfg(test)]
mod tests {
    use flowlane::packet::{Field, FlowMask};
    use flowlane::rule::{Match, Priority, RuleId};

    use super::*;

    fn rules(count: u32) -> Vec<(RuleId, Priority, Match)> {
        let rule = |n: u32| {
            let mut matches = Match::any();
            matches.set_masked(Field::Ipv4Dst, u128::from(n << 20), u128::from(u32::MAX << (n % 20)));
            (RuleId(n), Priority(count - n), matches)
        };
        (0..count).map(rule).collect()
    }

    fn table(engine: EngineChoice) -> TableSection {
        let section = toml::from_str::<TableSection>("number = 0").expect("a number is enough");
        TableSection { engine, ..section }
    }

    #[test]
    fn auto_takes_an_engine_that_suits_the_number_of_rules() {
        let name = |count: u32| {
            let rules = rules(count);
            let given: Vec<Given<'_>> = rules.iter().map(|(id, priority, m)| (*id, *priority, m)).collect();
            build(&table(EngineChoice::Auto), &given, 1).unwrap().name()
        };
        assert_eq!([0, 1, 8].map(name), ["linear"; 3]);
        assert!(["linear", "tuple"].contains(&name(9)) && ["linear", "tuple"].contains(&name(64)));
        assert_eq!(name(65), "tuple");
    }

    #[test]
    fn every_engine_has_all_rules_and_gives_the_answers_of_linear_search() {
        use EngineChoice::{Acl, Auto, Brute, Dynamic, Linear, Tree, Tuple};
        let rules = rules(40);
        let given: Vec<Given<'_>> = rules.iter().map(|(id, priority, m)| (*id, *priority, m)).collect();
        let linear = build(&table(Linear), &given, 1).unwrap();
        let mut random = Random::for_purpose(1, "test");
        for engine in [Auto, Tuple, Acl, Brute, Tree, Dynamic] {
            let built = build(&table(engine), &given, 1).unwrap();
            assert_eq!(built.len(), 40);
            for (_, _, matches) in &rules {
                let key = draw_key(matches, &mut random);
                let found = built.lookup_wildcards(&key, &mut FlowMask::zero());
                assert_eq!(found, linear.lookup(&key), "{engine:?}");
                assert!(found.is_some());
            }
        }
    }

    #[test]
    fn more_rules_than_there_may_be_are_refused() {
        let rules = rules(3);
        let given: Vec<Given<'_>> = rules.iter().map(|(id, priority, m)| (*id, *priority, m)).collect();
        let small = TableSection { rules_max: 2, ..table(EngineChoice::Acl) };
        assert_eq!(build(&small, &given, 1).err(), Some(InsertError::Full { rules_max: 2 }));
    }
}
