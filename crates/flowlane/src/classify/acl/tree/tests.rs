//! Every variant against the definition.

use super::*;
use crate::classify::acl::{Condition, RankKey, best, testing};
use crate::generate::{Profile, Random};
use crate::isa::testing::for_each_variant;
use crate::rule::{Priority, RuleId};

pub(super) const IPV4: [WordKind; 4] =
    [WordKind::Range16, WordKind::Ternary, WordKind::Ternary, WordKind::Ternary];
pub(super) const MIXED: [WordKind; 4] =
    [WordKind::Ternary, WordKind::Range32, WordKind::Range16, WordKind::Range32];

pub(super) fn build<const W: usize>(
    kinds: &[WordKind; W],
    entries: &[Entry<W>],
    variant: Variant,
) -> Tree<W> {
    let config = TreeConfig { variant: Some(variant), ..TreeConfig::default() };
    Tree::build(kinds, entries, &config).expect("a budget of 1 GiB")
}

/// All variants, batches of all sizes, all that a tree can be asked for.
fn agrees<const W: usize>(kinds: &[WordKind; W], entries: &[Entry<W>], keys: &[[u32; W]]) {
    // The same tree for all of them: how it is made does not depend on the variant.
    agrees_by(&mut build(kinds, entries, Variant::Scalar), kinds, entries, keys);
}

/// As [`agrees`], with a tree that has these entries.
pub(super) fn agrees_by<const W: usize>(
    tree: &mut Tree<W>,
    kinds: &[WordKind; W],
    entries: &[Entry<W>],
    keys: &[[u32; W]],
) {
    let oracle = |key: &[u32; W], category| {
        best(entries, kinds, key, category).map_or(MatchId::NONE, |e| MatchId::of(e.rule))
    };
    let plain: Vec<MatchId> = keys.iter().map(|key| oracle(key, 0)).collect();
    let few = &keys[..keys.len().min(200)];
    let all: Vec<MatchId> =
        few.iter().flat_map(|key| (0..CATEGORIES_MAX).map(move |c| oracle(key, c))).collect();
    for_each_variant(|variant| {
        tree.backend = AdaptiveDispatch::named(Backend::first_of(&[variant]));
        assert_eq!((tree.variant(), tree.len()), (variant, entries.len()));
        let mut verdicts = vec![MatchId::of(RuleId(7)); keys.len()];
        tree.lookup_batch(keys, &mut verdicts);
        for ((key, found), expected) in keys.iter().zip(&verdicts).zip(&plain) {
            assert_eq!(found, expected, "{variant}, {key:x?}");
        }
        for categories in [1, 5, CATEGORIES_MAX] {
            let mut verdicts = vec![MatchId::NONE; few.len() * categories];
            tree.lookup_categories(few, categories, &mut verdicts);
            for (i, found) in verdicts.iter().enumerate() {
                let (place, category) = (i / categories, i % categories);
                let expected = all[place * CATEGORIES_MAX + category];
                assert_eq!(*found, expected, "{variant}, category {category}, {:x?}", few[place]);
            }
        }
    });
}

#[test]
fn all_variants_agree_on_overlapping_rules_of_all_kinds() {
    for (seed, rules) in [0, 1, 2, 7, 8, 9, 15, 16, 17, 64, 300, 700].into_iter().enumerate() {
        let (entries, keys) = testing::overlapping(&MIXED, rules, 600, seed as u64);
        agrees(&MIXED, &entries, &keys);
        let (entries, keys) = testing::overlapping(&[WordKind::Ternary; 4], rules, 200, seed as u64);
        agrees(&[WordKind::Ternary; 4], &entries, &keys);
        let ports: [WordKind; 10] =
            std::array::from_fn(|w| if w == 8 { WordKind::Range16 } else { WordKind::Ternary });
        let (entries, keys) = testing::overlapping(&ports, rules, 200, seed as u64);
        agrees(&ports, &entries, &keys);
        let ranges: [WordKind; 16] = std::array::from_fn(|w| [WordKind::Range32, WordKind::Ternary][w % 2]);
        let (entries, mut keys) = testing::overlapping(&ranges, rules, 100, seed as u64);
        keys.extend(testing::near(&entries, seed as u64));
        agrees(&ranges, &entries, &keys);
    }
}

#[test]
fn all_variants_agree_on_keys_wider_than_a_register() {
    let mut kinds = [WordKind::Ternary; 64];
    (kinds[3], kinds[60]) = (WordKind::Range16, WordKind::Range32);
    let (entries, _) = testing::overlapping(&kinds, 60, 0, 5);
    agrees(&kinds, &entries, &testing::near(&entries, 5));
}

#[test]
fn all_variants_agree_on_generated_rules() {
    for profile in [Profile::Acl, Profile::Fw, Profile::Ipc] {
        for rules in [100, 1000, 4000] {
            let (entries, keys) = testing::generated(profile, rules, 1000, rules as u64);
            agrees(&IPV4, &entries, &keys);
        }
    }
}

/// Wrong candidates of a packet, on average over packets that the rules match.
fn wrong_candidates<const W: usize>(tree: &Tree<W>, keys: &[[u32; W]]) -> f64 {
    let wrong = |key: &[u32; W]| {
        let best = tree.best(key, 0).unwrap_or(leaf::NONE);
        (0..tree.parts)
            .map(|part| tree.candidates(part, key).filter(|rank| *rank < best).count())
            .sum::<usize>()
    };
    keys.iter().map(wrong).sum::<usize>() as f64 / keys.len() as f64
}

#[test]
fn weak_signatures_get_range_filters() {
    let tests = [
        (Profile::Acl, 0),
        (Profile::Ranges, 1),
        (Profile::Chains, 1),
        (Profile::Overlap, 1),
        (Profile::Nested, 2),
    ];
    for (profile, expected) in tests {
        let (entries, keys) = testing::generated(profile, 1500, 600, 9);
        let config = TreeConfig { grid: false, ..TreeConfig::default() };
        let mut tree = Tree::build(&IPV4, &entries, &config).unwrap();
        assert_eq!((tree.range_filters.len(), tree.grid.is_some()), (expected, false), "{profile}");
        agrees_by(&mut tree, &IPV4, &entries, &keys);
        let matched = keys.iter().filter(|key| tree.best(key, 0).is_some()).copied().collect::<Vec<_>>();
        let with = wrong_candidates(&tree, &matched);
        assert!(with < 0.3, "{profile}: {with}");
        tree.range_filters.clear();
        let without = wrong_candidates(&tree, &matched);
        assert!(expected == 0 || without > 1.0, "{profile}: {without}");
    }
}

#[test]
fn a_small_budget_leaves_out_range_filters() {
    let (entries, keys) = testing::generated(Profile::Ranges, 1500, 600, 9);
    let sharp = build(&IPV4, &entries, Variant::Scalar);
    let ends: usize = sharp.range_filters.iter().map(|test| test.ends.size_bytes()).sum();
    let config = TreeConfig { memory_max: sharp.table_bytes() - ends / 2, ..TreeConfig::default() };
    let tree = Tree::build(&IPV4, &entries, &config).unwrap();
    assert!(tree.range_filters.is_empty() && tree.table_bytes() <= config.memory_max);
    assert!(keys.iter().all(|key| tree.best(key, 0) == sharp.best(key, 0)));
}

#[test]
fn rule_numbers_may_differ_from_ranks() {
    let (mut entries, keys) = testing::generated(Profile::Acl, 300, 400, 5);
    agrees(&IPV4, &entries, &keys);
    entries.iter_mut().for_each(|entry| entry.rule.0 = 7 * entry.rule.0 + 3);
    agrees(&IPV4, &entries, &keys);
}

#[test]
fn all_variants_agree_on_published_rules() {
    for name in ["acl1_1k", "fw1_1k", "ipc1_1k", "acl2_1k", "fw4_1k", "fw1_10k"] {
        let Some((entries, keys)) = testing::published(name, 300) else { return };
        agrees(&IPV4, &entries, &keys);
    }
}

#[test]
fn batches_of_every_size_keep_their_order() {
    let (entries, keys) = testing::generated(Profile::Ipc, 500, 300, 3);
    for_each_variant(|variant| {
        let tree = build(&IPV4, &entries, variant);
        let mut all = vec![MatchId::NONE; keys.len()];
        tree.lookup_batch(&keys, &mut all);
        for size in (0..=70).chain([127, 128, 129, 255, 256, 257]) {
            let mut verdicts = vec![MatchId::of(RuleId(7)); size];
            tree.lookup_batch(&keys[3..3 + size], &mut verdicts);
            assert_eq!(verdicts, all[3..3 + size], "{variant}, {size} keys");
        }
    });
}

/// Entries of these conditions, the last best.
fn last_best<const W: usize>(conditions: impl IntoIterator<Item = Condition<W>>) -> Vec<Entry<W>> {
    let mut entries = testing::entries(conditions);
    for entry in &mut entries {
        entry.rank = RankKey::new(Priority(entry.rule.0), 0);
    }
    entries
}

#[test]
fn the_best_of_identical_rules_wins() {
    let mut same = Condition::any(&IPV4);
    (same.low[2], same.high[2]) = (0x0a00_0000, 0xff00_0000);
    for count in [2, 8, 9, 40, 500] {
        let keys = [[0, 0, 0x0a01_0203, 9], [0, 0, 0x0b01_0203, 9]];
        agrees(&IPV4, &last_best(vec![same; count]), &keys);
        agrees(&IPV4, &last_best(vec![Condition::any(&IPV4); count]), &keys);
    }
}

/// Rules that look at one field each, all others wild: every cut copies most of them.
fn one_field_each(rules: usize, seed: u64) -> (Vec<Entry<4>>, Vec<[u32; 4]>) {
    let mut random = Random::new(seed);
    let conditions: Vec<_> = (0..rules)
        .map(|i| {
            let mut condition = Condition::any(&IPV4);
            let value = random.bits() as u32;
            match i % 4 {
                0 => {
                    let (low, high) = (value & 0xffff, 0xffff - (random.below(100) as u32));
                    (condition.low[0], condition.high[0]) = (low.min(high), 0xffff_0000 | low.max(high));
                }
                w => (condition.low[w], condition.high[w]) = (value, u32::MAX),
            }
            condition
        })
        .collect();
    let keys = (0..500).map(|_| {
        let hit = |random: &mut Random| conditions[random.index(rules)].low;
        let (a, b) = (hit(&mut random), hit(&mut random));
        std::array::from_fn(|w| if random.chance(0.5) { a[w] } else { b[w] })
    });
    let keys = keys.collect();
    (last_best(conditions), keys)
}

#[test]
fn rules_that_every_cut_copies_stay_within_memory() {
    let (entries, keys) = one_field_each(4000, 1);
    agrees(&IPV4, &entries, &keys);
    let tree = build(&IPV4, &entries, Variant::Scalar);
    assert!(tree.table_bytes() < 4000 * 400, "{}", tree.table_bytes());
}

#[test]
fn a_tree_stays_within_its_budget_or_is_refused() {
    for (entries, keys) in [testing::generated(Profile::Fw, 2000, 200, 1), one_field_each(2000, 2)] {
        let mut built = 0;
        for memory_max in (0..28).map(|i| 1000 << (i / 2)).map(|b| b + b / 3) {
            let config = TreeConfig { memory_max, ..TreeConfig::default() };
            match Tree::build(&IPV4, &entries, &config) {
                Ok(tree) => {
                    assert!(tree.table_bytes() <= memory_max, "{} > {memory_max}", tree.table_bytes());
                    let mut verdicts = vec![MatchId::NONE; keys.len()];
                    tree.lookup_batch(&keys, &mut verdicts);
                    for (key, found) in keys.iter().zip(verdicts) {
                        assert_eq!(found.rule(), best(&entries, &IPV4, key, 0).map(|e| e.rule));
                    }
                    built += 1;
                }
                Err(error) => {
                    assert_eq!(built, 0, "{error}");
                    assert!(matches!(error, BuildError::Memory { rules: 2000, .. }), "{error}");
                    assert!(error.to_string().contains("raise the memory limit"), "{error}");
                }
            }
        }
        assert!((5..28).contains(&built), "{built}");
    }
}

#[test]
fn a_duplicate_rule_number_is_refused() {
    let mut entries = testing::entries([Condition::any(&IPV4); 3]);
    entries[2].rule = RuleId(0);
    let refused = Tree::build(&IPV4, &entries, &TreeConfig::default()).unwrap_err();
    assert_eq!(refused, BuildError::Duplicate(RuleId(0)));
}

#[test]
fn parallel_builds_agree() {
    let (entries, keys) = testing::generated(Profile::Acl, 5000, 500, 9);
    let of = |threads| {
        let config = TreeConfig { threads, ..TreeConfig::default() };
        let tree = Tree::build(&IPV4, &entries, &config).unwrap();
        let mut verdicts = vec![MatchId::NONE; keys.len()];
        tree.lookup_batch(&keys, &mut verdicts);
        verdicts
    };
    assert_eq!(of(1), of(2));
    assert_eq!(of(1), of(7));
}

/// The explanation's winner is right, and whatever else changes, the winner stays.
fn explains<const W: usize>(kinds: &[WordKind; W], entries: &[Entry<W>], keys: &[[u32; W]]) {
    let tree = build(kinds, entries, Variant::Scalar);
    let mut random = Random::new(5);
    for key in keys {
        let explanation = tree.explain(key);
        let winner = best(entries, kinds, key, 0).map(|e| e.rule);
        assert_eq!(explanation.winner, winner);
        assert!(explanation.nodes as usize >= tree.parts());
        for _ in 0..20 {
            let mut other = *key;
            for (word, looked_at) in other.iter_mut().zip(explanation.looked_at) {
                *word ^= random.bits() as u32 & !looked_at;
            }
            let found = best(entries, kinds, &other, 0).map(|e| e.rule);
            assert_eq!(found, winner, "{key:x?} and {other:x?} agree in {:x?}", explanation.looked_at);
        }
    }
}

#[test]
fn wildcarded_bits_do_not_change_the_winner() {
    for rules in [1, 20, 400] {
        let (entries, keys) = testing::overlapping(&MIXED, rules, 100, rules as u64);
        explains(&MIXED, &entries, &keys);
    }
    for profile in [Profile::Acl, Profile::Fw, Profile::Ipc] {
        let (entries, keys) = testing::generated(profile, 800, 100, 4);
        explains(&IPV4, &entries, &keys);
    }
}

#[test]
fn rules_that_bits_do_not_tell_apart_get_a_grid() {
    let tests =
        [(Profile::Chains, true), (Profile::Nested, true), (Profile::Acl, false), (Profile::Fw, false)];
    for (profile, expected) in tests {
        for rules in [3000, 6000] {
            let (mut entries, keys) = testing::generated(profile, rules, 600, 9);
            let tree = build(&IPV4, &entries, Variant::Scalar);
            assert_eq!(tree.grid.is_some(), expected, "{profile} {rules}");
            agrees(&IPV4, &entries, &keys);
            explains(&IPV4, &entries, &keys[..100]);
            // Rules that count in some categories only end no list.
            let mut random = Random::new(3);
            entries.iter_mut().for_each(|entry| entry.categories = random.below(8) as u16);
            agrees(&IPV4, &entries, &keys);
        }
    }
}

#[test]
fn removed_rules_of_a_grid_uncover_those_behind_them() {
    for profile in [Profile::Chains, Profile::Nested] {
        let (entries, keys) = testing::generated(profile, 6000, 200, 2);
        let mut tree = build(&IPV4, &entries, Variant::Scalar);
        assert!(tree.grid.is_some());
        // The winner of every second key, again and again.
        let mut dead = vec![0u32; entries.len().div_ceil(32)];
        for round in 0..5 {
            let bits = dead.clone();
            let is_live = |e: &&Entry<4>| bits[e.rule.0 as usize / 32] >> (e.rule.0 % 32) & 1 == 0;
            let left: Vec<Entry<4>> = entries.iter().filter(is_live).copied().collect();
            for_each_variant(|variant| {
                tree.backend = AdaptiveDispatch::named(Backend::first_of(&[variant]));
                let mut verdicts = vec![MatchId::NONE; keys.len()];
                tree.lookup_live(&keys, 1, &mut verdicts, Tombstones(&dead));
                for (key, found) in keys.iter().zip(&verdicts) {
                    let wanted = best(&left, &IPV4, key, 0).map(|e| e.rule);
                    assert_eq!(found.rule(), wanted, "{variant}, {profile}, round {round}");
                }
            });
            for key in keys.iter().take(50) {
                let wanted = best(&left, &IPV4, key, 0).map(|e| e.rule);
                assert_eq!(tree.explain_live(key, Tombstones(&dead)).winner, wanted);
            }
            for key in keys.iter().step_by(2) {
                let winner = best(&left, &IPV4, key, 0).map_or(0, |e| e.rule.0);
                dead[winner as usize / 32] |= 1 << (winner % 32);
            }
        }
    }
}
