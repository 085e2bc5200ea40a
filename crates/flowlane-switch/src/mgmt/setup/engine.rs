//! Builds the engines of rule tables from all rules of a table.

use std::time::Instant;

use flowlane::classify::acl::{AclConfig, AclEngine, AclSearch};
use flowlane::classify::auto::{self, LINEAR_RULES_MAX, TUPLE_RULES_MAX};
use flowlane::classify::{InsertError, LinearSearch, ReplicatedEngine, RuleEngine, TupleSearch};
use flowlane::generate::{Random, draw_key};

use super::few_rules::FewRules;
use crate::control::ChurnClass;
use crate::datapath::Given;
use crate::mgmt::config::{TableEngine, TableSection};

/// Rules up to which `auto` takes linear search without measuring.
const LINEAR_UNSEEN_RULES_MAX: usize = 8;
/// Packets of the measurement: few, so that a switch starts quickly.
const SAMPLE: usize = 512;
/// Packets looked up in one batch.
const BATCH: usize = 32;
/// Rules up to which all engines of access lists are built and measured: with more, building takes too long.
const CONTEST_RULES_MAX: usize = 4096;

/// The clock of measurements.
pub(super) type Clock<'a> = dyn FnMut() -> u64 + 'a;

/// Builds the engine of a table. Without a clock, the choice of `auto` depends on the rules only.
pub(super) fn build(
    table: &TableSection,
    rules: &[Given<'_>],
    seed: u32,
    clock: Option<&mut Clock<'_>>,
) -> Result<Box<dyn ReplicatedEngine>, InsertError> {
    if rules.len() > table.rules_max {
        return Err(InsertError::Full { rules_max: table.rules_max });
    }
    match table.engine {
        TableEngine::Auto => auto(table, rules, seed, clock),
        TableEngine::Linear => linear(table, rules),
        TableEngine::Tuple => tuple(table, rules, seed),
        TableEngine::Acl | TableEngine::Gpu => list(table, rules, AclEngine::Auto, seed),
        TableEngine::Brute => list(table, rules, AclEngine::Brute, seed),
        TableEngine::Tree => list(table, rules, AclEngine::Tree, seed),
        TableEngine::Dynamic => list(table, rules, AclEngine::Dynamic, seed),
    }
}

/// Builds an engine for changed rules and their churn class; `None` where it would exceed its memory.
pub(super) fn rebuild(
    table: &TableSection,
    rules: &[Given<'_>],
    seed: u32,
    churn: ChurnClass,
    measured: bool,
) -> Option<Box<dyn ReplicatedEngine>> {
    if (table.engine, churn) == (TableEngine::Auto, ChurnClass::High) {
        return changing(table, rules, seed).ok();
    }
    if let (TableEngine::Auto, ChurnClass::LowWith(name)) = (table.engine, churn) {
        return match name {
            "linear" => few(table, rules, seed).ok(),
            "tuple" => tuple(table, rules, seed).ok(),
            name => {
                let config = list_config(table, AclEngine::Auto, seed);
                let mut list = AclSearch::build(config, rules.iter().copied()).ok()?;
                // Without memory for it, the present engine stays.
                _ = list.prefer(name.parse().unwrap_or_default());
                Some(Box::new(list))
            }
        };
    }
    let begun = Instant::now();
    let mut clock = || begun.elapsed().as_nanos() as u64;
    build(table, rules, seed, measured.then_some(&mut clock as &mut Clock<'_>)).ok()
}

/// Returns the limits of an access list.
pub(super) fn list_config(table: &TableSection, engine: AclEngine, seed: u32) -> AclConfig {
    AclConfig {
        engine,
        rules_max: table.rules_max,
        memory_max: table.memory_mib.saturating_mul(1 << 20),
        seed: seed.into(),
        ..AclConfig::default()
    }
}

/// Builds the engine that looks up bursts fastest: an access list, with the engine that suits these rules, or linear or tuple
/// search for few rules. The cost of megaflows does not count, since only recurring flows install one.
fn auto(
    table: &TableSection,
    rules: &[Given<'_>],
    seed: u32,
    clock: Option<&mut Clock<'_>>,
) -> Result<Box<dyn ReplicatedEngine>, InsertError> {
    if rules.len() <= LINEAR_UNSEEN_RULES_MAX {
        return few(table, rules, seed);
    }
    let built = AclSearch::build(list_config(table, AclEngine::Auto, seed), rules.iter().copied());
    // Tuple search needs least memory.
    let Ok(mut list) = built else { return tuple(table, rules, seed) };
    let Some(clock) = clock else { return Ok(Box::new(list)) };
    let mut random = Random::for_purpose(seed.into(), "auto");
    let mut key = || draw_key(rules[random.below(rules.len() as u64) as usize].2, &mut random);
    let sample: Vec<_> = (0..SAMPLE).map(|_| key()).collect();
    if rules.len() <= CONTEST_RULES_MAX {
        // Without memory for another engine, the present one stays.
        _ = list.choose(&sample, clock);
    }
    let mut engines: Vec<Box<dyn ReplicatedEngine>> = vec![Box::new(list)];
    if rules.len() <= LINEAR_RULES_MAX {
        engines.push(few(table, rules, seed)?);
    }
    if rules.len() <= TUPLE_RULES_MAX {
        engines.push(tuple(table, rules, seed)?);
    }
    let tables: Vec<&dyn RuleEngine> = engines.iter().map(|engine| &**engine as &dyn RuleEngine).collect();
    let chosen = auto::fastest(&tables, BATCH, &sample, clock);
    Ok(engines.swap_remove(chosen))
}

/// Builds the engine whose changes are fastest.
pub(super) fn changing(
    table: &TableSection,
    rules: &[Given<'_>],
    seed: u32,
) -> Result<Box<dyn ReplicatedEngine>, InsertError> {
    list(table, rules, AclEngine::Dynamic, seed)
}

fn few(
    table: &TableSection,
    rules: &[Given<'_>],
    seed: u32,
) -> Result<Box<dyn ReplicatedEngine>, InsertError> {
    Ok(Box::new(FewRules::new(table, rules, seed)?))
}

fn linear(table: &TableSection, rules: &[Given<'_>]) -> Result<Box<dyn ReplicatedEngine>, InsertError> {
    filled(Box::new(LinearSearch::new(table.rules_max)), rules)
}

fn tuple(
    table: &TableSection,
    rules: &[Given<'_>],
    seed: u32,
) -> Result<Box<dyn ReplicatedEngine>, InsertError> {
    filled(Box::new(TupleSearch::new(table.rules_max, seed)), rules)
}

fn filled(
    mut engine: Box<dyn ReplicatedEngine>,
    rules: &[Given<'_>],
) -> Result<Box<dyn ReplicatedEngine>, InsertError> {
    rules.iter().try_for_each(|(id, priority, matches)| engine.insert(*id, *priority, matches))?;
    Ok(engine)
}

fn list(
    table: &TableSection,
    rules: &[Given<'_>],
    engine: AclEngine,
    seed: u32,
) -> Result<Box<dyn ReplicatedEngine>, InsertError> {
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

    fn table(engine: TableEngine) -> TableSection {
        let section = toml::from_str::<TableSection>("number = 0").expect("a number is enough");
        TableSection { engine, ..section }
    }

    #[test]
    fn auto_selects_by_the_number_of_rules() {
        let name = |count: u32, clock: Option<&mut Clock<'_>>| {
            let rules = rules(count);
            let given: Vec<Given<'_>> = rules.iter().map(|(id, priority, m)| (*id, *priority, m)).collect();
            build(&table(TableEngine::Auto), &given, 1, clock).unwrap().name()
        };
        for count in [0, 1, 8] {
            assert_eq!(name(count, Some(&mut || unreachable!("too few for a contest"))), "linear");
        }
        for count in [9, 64, 65, 2000, 5000] {
            assert_eq!(name(count, Some(&mut || 0)), "acl", "equal, so the default");
        }
        // Without a clock, the rules alone decide.
        assert_eq!([8, 9, 64].map(|count| name(count, None)), ["linear", "acl", "acl"]);
    }

    /// Added one by one, as by a large change to a table of few rules.
    #[test]
    fn few_rules_that_become_many_leave_linear_search_and_win_as_there() {
        let rules = rules(200);
        let mut grown = build(&table(TableEngine::Auto), &[], 1, None).unwrap();
        let mut linear = LinearSearch::new(1000);
        let mut random = Random::for_purpose(2, "test");
        let mut copy = grown.clone_box();
        for (n, (id, priority, matches)) in rules.iter().enumerate() {
            // Few priorities, so that the order of rules counts.
            let priority = Priority(priority.0 % 3);
            for engine in [&mut *grown as &mut dyn RuleEngine, &mut *copy, &mut linear] {
                engine.insert(*id, priority, matches).unwrap();
                if n % 7 == 3 {
                    assert!(engine.remove(RuleId(n as u32 - 2)));
                    assert!(engine.replace(RuleId(n as u32 - 1), Priority(1), &rules[n / 2].2));
                }
            }
            assert_eq!(grown.name() == "linear", linear.len() <= LINEAR_RULES_MAX || n < 64, "{n}");
            if n == 100 {
                copy = grown.clone_box();
            }
            for _ in 0..20 {
                let key = draw_key(&rules[random.below(n as u64 + 1) as usize].2, &mut random);
                let wanted = linear.lookup(&key);
                assert_eq!(grown.lookup_wildcards(&key, &mut FlowMask::zero()), wanted, "{n}");
                assert_eq!(copy.lookup(&key), wanted, "{n}");
            }
        }
        assert_eq!(grown.len(), linear.len());
    }

    #[test]
    fn every_engine_agrees_with_linear_search() {
        use TableEngine::{Acl, Auto, Brute, Dynamic, Linear, Tree, Tuple};
        let rules = rules(40);
        let given: Vec<Given<'_>> = rules.iter().map(|(id, priority, m)| (*id, *priority, m)).collect();
        let linear = build(&table(Linear), &given, 1, None).unwrap();
        let mut random = Random::for_purpose(1, "test");
        for engine in [Auto, Tuple, Acl, Brute, Tree, Dynamic] {
            let built = build(&table(engine), &given, 1, None).unwrap();
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
    fn rules_beyond_the_limit_are_rejected() {
        let rules = rules(3);
        let given: Vec<Given<'_>> = rules.iter().map(|(id, priority, m)| (*id, *priority, m)).collect();
        let small = TableSection { rules_max: 2, ..table(TableEngine::Acl) };
        assert_eq!(build(&small, &given, 1, None).err(), Some(InsertError::Full { rules_max: 2 }));
    }
}
