//! Tests of limits, order and errors; [`check`](crate::check::acl) tests the answers.

use super::*;
use crate::classify::acl::{MatchId, testing};
use crate::generate::{Profile, Random};
use crate::isa::Variant;

const CATEGORY: u16 = 1;

fn filled(config: AclConfig, rules: usize) -> (Acl<4>, Vec<Entry<4>>, Vec<[u32; 4]>) {
    let (entries, keys) = testing::generated(Profile::Fw, rules, 500, 1);
    let given = entries.iter().map(|e| (e.rule, e.rank.priority(), e.condition, CATEGORY));
    (Acl::build(Layout::ipv4_five_tuple(), config, given).unwrap(), entries, keys)
}

fn verdicts<const W: usize>(acl: &Acl<W>, keys: &[[u32; W]]) -> Vec<MatchId> {
    let mut verdicts = vec![MatchId::NONE; keys.len()];
    acl.lookup_batch(keys, &mut verdicts);
    verdicts
}

fn agrees(acl: &Acl<4>, keys: &[[u32; 4]]) {
    let rules: Vec<Entry<4>> = acl.entries().copied().collect();
    for (key, found) in keys.iter().zip(verdicts(acl, keys)) {
        let wanted = super::super::best(&rules, acl.layout().kinds(), key, 0);
        assert_eq!(found.rule(), wanted.map(|e| e.rule));
        let hit = wanted.map(|e| Hit { rule: e.rule, priority: e.rank.priority() });
        assert_eq!(acl.lookup(key), hit);
    }
}

#[test]
fn earlier_rule_wins_on_equal_priority_and_replacement_keeps_its_place() {
    for engine in AclEngine::ALL {
        let mut acl = Acl::new(Layout::ipv4_five_tuple(), AclConfig::default().with_engine(engine));
        let any = Condition::any(acl.layout().kinds());
        for rule in [7, 3, 5] {
            acl.insert(RuleId(rule), Priority(1), any, CATEGORY).unwrap();
        }
        let wins = |acl: &Acl<4>| acl.lookup(&[0; 4]).unwrap().rule.0;
        assert_eq!(wins(&acl), 7, "{engine}");
        assert_eq!(acl.replace(RuleId(5), Priority(2), any, CATEGORY), Ok(true));
        assert_eq!(wins(&acl), 5);
        assert_eq!(acl.replace(RuleId(5), Priority(1), any, CATEGORY), Ok(true));
        assert_eq!(wins(&acl), 7);
        assert!(acl.remove(RuleId(7)));
        assert_eq!(wins(&acl), 3);
        assert_eq!(acl.explain(&[0; 4]).runner_up, Some(RuleId(5)));
        assert_eq!(acl.replace(RuleId(9), Priority(1), any, CATEGORY), Ok(false));
        assert!(!acl.remove(RuleId(7)));
    }
}

#[test]
fn refused_changes_leave_no_trace() {
    let config = AclConfig { rules_max: 300, ..AclConfig::default() };
    for engine in AclEngine::ALL {
        let (mut acl, _, keys) = filled(config.with_engine(engine), 300);
        let before = verdicts(&acl, &keys);
        let any = Condition::any(acl.layout().kinds());
        let refused = acl.insert(RuleId(1000), Priority(u32::MAX), any, CATEGORY).unwrap_err();
        assert_eq!(refused, BuildError::Rules { rules_max: 300 });
        assert!(acl.remove(RuleId(0)));
        let refused = acl.insert(RuleId(1), Priority(u32::MAX), any, CATEGORY).unwrap_err();
        assert_eq!(refused, BuildError::Duplicate(RuleId(1)));
        // Full to the last byte from now on.
        acl.config.memory_max = acl.table_bytes() / 2;
        for rule in [RuleId(1), RuleId(2)] {
            let refused = acl.replace(rule, Priority(u32::MAX), any, CATEGORY).unwrap_err();
            assert!(matches!(refused, BuildError::Memory { .. }), "{engine}: {refused}");
        }
        assert!(acl.insert(RuleId(0), Priority(u32::MAX), any, CATEGORY).is_err());
        agrees(&acl, &keys);
        for (before, after) in before.iter().zip(verdicts(&acl, &keys)) {
            assert!(*before == after || before.rule() == Some(RuleId(0)));
        }
    }
}

#[test]
fn renumbering_keeps_the_answers() {
    for engine in [AclEngine::Tree, AclEngine::Dynamic] {
        let (mut acl, entries, keys) = filled(AclConfig::default().with_engine(engine), 200);
        (0..100).for_each(|rule| assert!(acl.remove(RuleId(2 * rule))));
        for entry in entries.iter().filter(|e| e.rule.0 % 4 == 0) {
            acl.insert(entry.rule, entry.rank.priority(), entry.condition, CATEGORY).unwrap();
        }
        let before = verdicts(&acl, &keys);
        acl.sequence = u32::MAX;
        acl.insert(RuleId(1000), Priority(0), Condition::any(acl.layout().kinds()), CATEGORY).unwrap();
        assert!(acl.sequence < 1000);
        agrees(&acl, &keys);
        for (before, after) in before.iter().zip(verdicts(&acl, &keys)) {
            assert!(before.rule().is_none() || *before == after);
        }
        acl.rebuild().unwrap();
        agrees(&acl, &keys);
    }
}

#[test]
fn the_fastest_engine_by_the_clock_is_chosen() {
    let (mut acl, _, keys) = filled(AclConfig::default(), 300);
    let mut time = 0;
    // Every second reading ends a candidate's turn; of three, the last takes least.
    let (mut readings, turns) = (0u64, 3u64);
    let mut clock = || {
        if readings % 2 == 1 {
            let candidate = (readings / 2 % turns + readings / 2 / turns) % turns;
            time += 10 - candidate;
        }
        readings += 1;
        time
    };
    let contest = acl.choose(&keys, &mut clock).unwrap();
    assert_eq!((contest.chosen, acl.engine_name()), (AclEngine::Dynamic, "dynamic"));
    assert_eq!(contest.candidates.len(), 3);
    agrees(&acl, &keys);
    // It stays, until another is chosen.
    acl.rebuild().unwrap();
    assert_eq!(acl.engine_name(), "dynamic");
    let mut still = || 0;
    assert_eq!(acl.choose(&[], &mut still).unwrap().chosen, AclEngine::Tree);
    agrees(&acl, &keys);
    // With too many rules for brute force.
    let (mut large, ..) = filled(AclConfig::default(), 600);
    let contest = large.choose(&[], &mut still).unwrap();
    assert_eq!((contest.chosen, contest.candidates.len()), (AclEngine::Tree, 2));
}

#[test]
fn small_tables_are_brute_force_and_large_ones_trees() {
    let (mut acl, entries, _) = filled(AclConfig::default(), 100);
    assert_eq!(acl.engine_name(), "tree");
    let small = acl.config().brute_rules_max() as u32;
    (small..100).for_each(|rule| assert!(acl.remove(RuleId(rule))));
    assert_eq!((acl.engine_name(), acl.changes()), ("brute", 0));
    for entry in &entries[small as usize..] {
        acl.insert(entry.rule, entry.rank.priority(), entry.condition, CATEGORY).unwrap();
    }
    assert!(acl.changes() > 0);
    acl.rebuild().unwrap();
    assert_eq!((acl.engine_name(), acl.changes()), ("tree", 0));
}

const SOURCE_PORT: usize = 0;
const DESTINATION_PORT: usize = 1;
const SOURCE: usize = 2;
const DESTINATION: usize = 3;

/// Returns a rule that looks at one field: the port `value` and `more` behind it, or an address under a mask.
fn one_field(field: usize, value: u32, more: u32, mask: u32) -> Condition<4> {
    let mut out = Condition::any(Layout::ipv4_five_tuple().kinds());
    if field >= SOURCE {
        (out.low[field], out.high[field]) = (value & mask, mask);
        return out;
    }
    let shift = if field == SOURCE_PORT { 16 } else { 0 };
    let (first, last) = (value & 0xffff, (value & 0xffff).saturating_add(more).min(0xffff));
    out.low[0] = first << shift;
    out.high[0] = last << shift | 0xffff << (16 - shift);
    out
}

/// Builds a table of these rules under `auto`, and draws keys of which most match a rule.
fn automatic(conditions: &[Condition<4>], memory_max: usize) -> (Result<Acl<4>, BuildError>, Vec<[u32; 4]>) {
    let layout = Layout::ipv4_five_tuple();
    let keys = auto::drawn(layout.kinds(), conditions, 200, 3);
    let rules = conditions.iter().enumerate();
    let rules = rules.map(|(i, condition)| (RuleId(i as u32), Priority(1), *condition, CATEGORY));
    (Acl::build(layout, AclConfig { memory_max, ..AclConfig::default() }, rules), keys)
}

#[test]
fn lookups_read_few_of_the_rules_that_look_at_one_field_each() {
    type Draw = fn(u32, &mut Random) -> Condition<4>;
    let sets: [(&str, Draw); 8] = [
        ("ports", |_, r| one_field(DESTINATION_PORT, r.bits() as u32, 0, 0)),
        ("ranges of ports", |_, r| one_field(DESTINATION_PORT, r.bits() as u32, r.below(100) as u32, 0)),
        ("hosts", |_, r| one_field(DESTINATION, r.bits() as u32, 0, u32::MAX)),
        ("hosts in a row", |i, _| one_field(SOURCE, 0x0a00_0000 + i, 0, u32::MAX)),
        ("prefixes", |_, r| one_field(SOURCE, r.bits() as u32, 0, u32::MAX << r.below(16))),
        ("sources, destinations in turn", |i, r| {
            one_field(SOURCE + i as usize % 2, r.bits() as u32, 0, u32::MAX << r.below(8))
        }),
        ("sources, then destinations", |i, r| {
            one_field(if i < 1000 { SOURCE } else { DESTINATION }, r.bits() as u32, 0, u32::MAX)
        }),
        ("four fields in turn", |i, r| one_field(i as usize % 4, r.bits() as u32, 0, u32::MAX)),
    ];
    for (name, draw) in sets {
        let mut random = Random::new(8);
        let conditions: Vec<_> = (0..2000).map(|i| draw(i, &mut random)).collect();
        let (acl, keys) = automatic(&conditions, 1 << 30);
        let acl = acl.unwrap();
        agrees(&acl, &keys);
        let read = |key: &[u32; 4]| acl.depends(key);
        let explained: Vec<_> = keys.iter().map(read).collect();
        let rules: u32 = explained.iter().map(|t| t.rules + t.nodes).sum();
        assert!(
            rules as usize <= 100 * keys.len(),
            "{name}: {rules} for {} keys, {}",
            keys.len(),
            acl.engine_name()
        );
    }
}

#[test]
fn auto_takes_the_dynamic_engine_where_a_tree_would_read_most_rules() {
    // Each rule has every sixth bit of the addresses: any bit that a tree cuts by is wild in five rules of six.
    let mut random = Random::new(4);
    let every_sixth = |i: u32| {
        let mask = (0..32).filter(|bit| bit % 6 == i % 6).fold(0, |mask, bit| mask | 1 << bit);
        let mut out = Condition::any(Layout::ipv4_five_tuple().kinds());
        for word in [SOURCE, DESTINATION] {
            (out.low[word], out.high[word]) = (random.bits() as u32 & mask, mask);
        }
        out
    };
    let conditions: Vec<_> = (0..1800).map(every_sixth).collect();
    let (acl, keys) = automatic(&conditions, 1 << 30);
    let acl = acl.unwrap();
    agrees(&acl, &keys);
    assert_eq!(acl.engine_name(), "dynamic");
    let read: u32 =
        keys.iter().map(|key| acl.depends(key)).map(|explained| explained.rules + explained.nodes).sum();
    assert!(read as usize <= 50 * keys.len(), "{read} for {} keys", keys.len());
}

#[test]
fn overlapping_rules_stay_within_the_budget_or_are_refused_by_name() {
    let nested = |i: u32| one_field(DESTINATION_PORT, 2000 - i, 61_535 + 2 * i, 0);
    let any = |_: u32| Condition::any(Layout::ipv4_five_tuple().kinds());
    let wide = |i: u32| one_field(DESTINATION_PORT, i, 40_000 + 7 * i, 0);
    for draw in [&nested as &dyn Fn(u32) -> Condition<4>, &any, &wide] {
        let conditions: Vec<_> = (0..2000).map(draw).collect();
        let mut built = 0;
        for memory_max in (14..30).map(|bits| 1 << bits) {
            match automatic(&conditions, memory_max) {
                (Ok(acl), keys) => {
                    assert!(
                        acl.table_bytes() <= memory_max + 4096,
                        "{} of {memory_max} bytes",
                        acl.table_bytes()
                    );
                    agrees(&acl, &keys);
                    built += 1;
                }
                (Err(error), _) => {
                    assert!(built == 0 && matches!(error, BuildError::Memory { .. }), "{error}");
                    assert!(error.to_string().contains("raise the memory limit"), "{error}");
                }
            }
        }
        assert!((1..16).contains(&built), "{built}");
    }
}

#[test]
fn removed_rules_never_win_in_any_variant() {
    for variant in Variant::ALL.into_iter().filter(|v| v.available()) {
        for (engine, in_place) in
            [(AclEngine::Tree, true), (AclEngine::Tree, false), (AclEngine::Brute, true)]
        {
            let config = AclConfig::default().with_engine(engine).with_variant(variant);
            let (mut acl, entries, keys) = filled(config, 400);
            if !in_place {
                // Changes that must not take long leave a tree that is not prepared for them as it is.
                acl.defer_rebuilds();
            }
            for step in [10, 3, 2] {
                for entry in entries.iter().step_by(step) {
                    acl.remove(entry.rule);
                }
                agrees(&acl, &keys);
                let mut found = vec![MatchId::NONE; 2 * keys.len()];
                acl.lookup_categories(&keys, 2, &mut found);
                let single = verdicts(&acl, &keys);
                assert!(found.chunks(2).zip(single).all(|(two, one)| two == [one, MatchId::NONE]));
            }
        }
    }
}

#[test]
fn rules_that_come_beat_those_before_them_only_by_rank() {
    // In the tree, in the overlay, and in both.
    for (deferred, prepared) in [(false, false), (true, false), (true, true)] {
        let (mut acl, entries, keys) = filled(AclConfig::default().with_engine(AclEngine::Tree), 1500);
        if deferred {
            acl.defer_rebuilds();
        }
        if prepared {
            acl.prepare_changes();
        }
        come_and_go(acl, &entries, &keys);
    }
}

fn come_and_go(mut acl: Acl<4>, entries: &[Entry<4>], keys: &[[u32; 4]]) {
    let mut random = Random::new(6);
    // The conditions of the bulk once more, with higher and lower priorities.
    for entry in entries {
        let priority = Priority(entry.rank.priority().0 - 1 + random.below(3) as u32);
        acl.insert(RuleId(10_000 + entry.rule.0), priority, entry.condition, CATEGORY).unwrap();
    }
    agrees(&acl, keys);
    for (i, entry) in entries.iter().enumerate() {
        if i % 10 != 0 {
            assert!(acl.remove(RuleId(10_000 + entry.rule.0)));
        }
        if i % 4 == 0 {
            assert!(acl.remove(entry.rule));
        }
    }
    agrees(&acl, keys);
    acl.sequence = u32::MAX;
    acl.insert(RuleId(20_000), Priority(0), Condition::any(acl.layout().kinds()), CATEGORY).unwrap();
    agrees(&acl, keys);
}

/// With deferred rebuilds the overlay's plan keeps lookups from scanning all of its rules.
#[test]
fn deferred_rebuilds_keep_the_overlay_planned() {
    let (mut acl, entries, keys) = filled(AclConfig::default().with_engine(AclEngine::Tree), 2000);
    acl.defer_rebuilds();
    for entry in &entries {
        assert!(acl.remove(entry.rule));
        acl.insert(entry.rule, entry.rank.priority(), entry.condition, CATEGORY).unwrap();
    }
    assert_eq!(acl.changes(), 4000);
    agrees(&acl, &keys);
    let read: u32 = keys.iter().map(|key| acl.overlay.explain(key).rules).sum();
    let each = f64::from(read) / keys.len() as f64;
    assert!(each < 100.0, "{each} of 2000 rules");
}

#[test]
fn a_prepared_table_takes_changes_in_place_and_its_copies_do_not_notice() {
    let (mut acl, entries, keys) = filled(AclConfig::default().with_engine(AclEngine::Tree), 2000);
    acl.defer_rebuilds();
    acl.prepare_changes();
    for entry in entries.iter().step_by(3) {
        assert!(acl.remove(entry.rule));
    }
    let copy = acl.clone();
    let before = verdicts(&copy, &keys);
    // It shares its tree: changes wait outside of it, until it has one of its own again.
    assert!(acl.remove(entries[1].rule));
    assert_eq!((acl.changes(), copy.changes()), (1, 0));
    acl.prepare_changes();
    for entry in entries.iter().step_by(3) {
        acl.insert(entry.rule, entry.rank.priority(), entry.condition, CATEGORY).unwrap();
    }
    assert_eq!((acl.changes(), acl.is_outgrown()), (1, false));
    agrees(&acl, &keys);
    assert_eq!(verdicts(&copy, &keys), before);
    assert_eq!(copy.clone().len(), 1333);
}

#[test]
fn a_table_that_grows_in_place_asks_for_another_build() {
    let (entries, keys) = testing::generated(Profile::Fw, 3000, 500, 1);
    let (mut acl, ..) = filled(AclConfig::default().with_engine(AclEngine::Tree), 600);
    (0..600).for_each(|rule| assert!(acl.remove(RuleId(rule))));
    for entry in &entries {
        acl.insert(entry.rule, entry.rank.priority(), entry.condition, CATEGORY).unwrap();
    }
    assert!(acl.is_outgrown());
    agrees(&acl, &keys);
    acl.rebuild().unwrap();
    assert!(!acl.is_outgrown());
    agrees(&acl, &keys);
}

#[test]
fn a_table_with_a_grid_that_loses_a_rule_gets_a_tree_that_takes_changes() {
    let (entries, keys) = testing::generated(Profile::Nested, 1500, 300, 2);
    let given = entries.iter().map(|e| (e.rule, e.rank.priority(), e.condition, CATEGORY));
    let build = || Acl::build(Layout::ipv4_five_tuple(), AclConfig::default(), given.clone()).unwrap();
    let mut acl = build();
    assert!(acl.tree().is_some_and(Tree::has_grid));
    assert!(acl.remove(entries[3].rule));
    assert_eq!((acl.changes(), acl.tree().is_some_and(Tree::has_grid)), (0, false));
    agrees(&acl, &keys);
    // Another thread does it where changes must not take long.
    let mut acl = build();
    acl.defer_rebuilds();
    assert!(acl.remove(entries[3].rule));
    assert!(acl.tree().is_some_and(Tree::has_grid) && acl.is_outgrown());
    agrees(&acl, &keys);
    acl.prepare_changes();
    assert!(acl.takes_changes() && !acl.is_outgrown());
    agrees(&acl, &keys);
}

#[test]
fn a_budget_without_room_for_changes_in_place_leaves_the_tree_as_it_is() {
    let (mut acl, entries, keys) = filled(AclConfig::default().with_engine(AclEngine::Tree), 1000);
    acl.config.memory_max = acl.table_bytes() + 40_000;
    for entry in entries.iter().take(50) {
        assert!(acl.remove(entry.rule));
        let back = acl.insert(entry.rule, entry.rank.priority(), entry.condition, CATEGORY);
        assert!(matches!(back, Ok(()) | Err(BuildError::Memory { .. })), "{back:?}");
    }
    assert!(!acl.takes_changes() && acl.changes() > 0);
    agrees(&acl, &keys);
}

#[test]
fn engine_names_round_trip() {
    for engine in AclEngine::ALL {
        assert_eq!(engine.to_string().parse(), Ok(engine));
    }
    assert!("tre".parse::<AclEngine>().unwrap_err().to_string().contains("tree"));
}
