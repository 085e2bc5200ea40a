//! Every backend against the definition of all engines, through all changes.

use super::winners::Cutoff;
use super::*;
use crate::classify::acl::testing::{generated, near, overlapping, published};
use crate::classify::acl::{Condition, RankKey, best};
use crate::generate::{Profile, Random};
use crate::isa::testing::for_each_variant;

const KINDS: [WordKind; 4] = [WordKind::Range16, WordKind::Ternary, WordKind::Ternary, WordKind::Ternary];

fn config(seed: u64, variant: Variant) -> DynamicConfig {
    DynamicConfig { variant: Some(variant), ..DynamicConfig::new(seed) }
}

fn agrees<const W: usize>(
    engine: &Dynamic<W>,
    kinds: &[WordKind; W],
    entries: &[Entry<W>],
    keys: &[[u32; W]],
) {
    let mut verdicts = vec![MatchId::NONE; keys.len()];
    engine.lookup_batch(keys, &mut verdicts);
    let categories = [1, 3, 16][keys.len() % 3];
    let mut several = vec![MatchId::NONE; keys.len() * categories];
    engine.lookup_categories(keys, categories, &mut several);
    few_keys_agree(engine, keys, &verdicts, (categories, &several));
    for (i, key) in keys.iter().enumerate() {
        for category in 0..categories {
            let expected = best(entries, kinds, key, category).map(|e| e.rule);
            let place = format!("{} key {i} {key:x?} category {category}: {engine:?}", engine.variant());
            assert_eq!(several[i * categories + category].rule(), expected, "{place}");
            if category == 0 {
                assert_eq!(verdicts[i].rule(), expected, "{place}");
            }
        }
    }
}

/// Compares lookups of one to five keys at a time, of which the fewer are looked up one by one, with those of a batch.
fn few_keys_agree<const W: usize>(
    engine: &Dynamic<W>,
    keys: &[[u32; W]],
    verdicts: &[MatchId],
    (categories, several): (usize, &[MatchId]),
) {
    // Some beat the rule that is found, some do not.
    let cutoff = |n: usize| Cutoff { rank: (n as u64 % 3) * (u64::MAX / 4), class: 0 };
    let cutoffs: Vec<Cutoff> = (0..keys.len()).map(cutoff).collect();
    let mut improved = vec![MatchId::NONE; keys.len()];
    engine.improve_batch(keys, &cutoffs, &mut improved);
    for count in 1..=5 {
        for from in (0..keys.len()).step_by(count) {
            let to = (from + count).min(keys.len());
            let mut found = vec![MatchId::NONE; to - from];
            engine.lookup_batch(&keys[from..to], &mut found);
            assert_eq!(found, verdicts[from..to], "{count} keys from {from}");
            let mut found = vec![MatchId::NONE; to - from];
            engine.improve_batch(&keys[from..to], &cutoffs[from..to], &mut found);
            assert_eq!(found, improved[from..to], "{count} keys from {from} above a cutoff");
            let mut found = vec![MatchId::NONE; (to - from) * categories];
            engine.lookup_categories(&keys[from..to], categories, &mut found);
            assert_eq!(found, several[from * categories..to * categories], "{count} keys from {from}");
        }
    }
}

fn interleaved<const W: usize>(kinds: [WordKind; W], rules: usize, seed: u64) {
    let (all, keys) = overlapping(&kinds, rules, 120, seed);
    let built = Dynamic::build(&kinds, &all[..rules / 2], config(seed, Variant::Scalar)).unwrap();
    for_each_variant(|variant| {
        let mut random = Random::new(seed);
        let mut present: Vec<Entry<W>> = all[..rules / 2].to_vec();
        let mut absent: Vec<Entry<W>> = all[rules / 2..].to_vec();
        let config = config(seed, variant);
        let mut engine = Dynamic {
            backend: AdaptiveDispatch::named(Backend::first_of(&[variant])),
            config,
            ..built.clone()
        };
        for step in 0..4 * rules {
            let insert = random.chance(0.5) && !absent.is_empty() || present.is_empty();
            if insert {
                let entry = absent.swap_remove(random.index(absent.len()));
                engine.insert(entry).unwrap();
                assert_eq!(engine.insert(entry), Err(BuildError::Duplicate(entry.rule)));
                present.push(entry);
            } else {
                let entry = present.swap_remove(random.index(present.len()));
                assert_eq!(engine.remove(entry.rule), Some(entry));
                assert_eq!(engine.remove(entry.rule), None);
                absent.push(entry);
            }
            assert_eq!(engine.len(), present.len());
            if step % (rules / 2) == 0 {
                let from = random.index(keys.len());
                agrees(&engine, &kinds, &present, &keys[from..][..random.index(keys.len() - from)]);
                agrees(&engine.clone(), &kinds, &present, &keys[from..]);
            }
            if step == 2 * rules {
                engine = engine.replan().unwrap();
                agrees(&engine, &kinds, &present, &keys);
            }
        }
        for entry in present {
            engine.remove(entry.rule);
        }
        agrees(&engine, &kinds, &[], &keys);
    });
}

#[test]
fn every_kernel_agrees_with_the_definition_through_changes_of_every_layout() {
    use WordKind::{Range16, Range32, Ternary};
    interleaved(KINDS, 120, 1);
    interleaved([Range32; 4], 60, 2);
    interleaved([Range16, Ternary, Ternary, Range16], 40, 3);
    interleaved([Ternary, Range32, Range16, Ternary], 60, 4);
    interleaved(std::array::from_fn::<_, 10, _>(|w| [Ternary, Ternary, Range16][w % 3]), 60, 5);
    interleaved(std::array::from_fn::<_, 10, _>(|w| [Ternary, Range16, Range32][w % 3]), 60, 6);
    interleaved([Ternary; 10], 60, 7);
    interleaved([Ternary; 16], 30, 8);
}

/// Records of which the vectors hold only a part: what lies beyond was not compared once.
#[test]
fn keys_wider_than_a_register_are_compared_in_all_words() {
    let mut kinds = [WordKind::Ternary; 64];
    (kinds[3], kinds[60]) = (WordKind::Range16, WordKind::Range32);
    let (entries, _) = overlapping(&kinds, 60, 0, 5);
    let keys = near(&entries, 5);
    for_each_variant(|variant| {
        let (built, inserted) = entries.split_at(30);
        let mut engine = Dynamic::build(&kinds, built, config(5, variant)).unwrap();
        agrees(&engine, &kinds, built, &keys);
        inserted.iter().for_each(|entry| engine.insert(*entry).unwrap());
        agrees(&engine, &kinds, &entries, &keys);
    });
}

#[test]
fn generated_and_published_sets_agree() {
    let sets = [Profile::Acl, Profile::Fw, Profile::Ipc].map(|p| generated(p, 400, 250, 3));
    let published = ["acl1_1k", "fw1_1k", "ipc1_1k"].into_iter().filter_map(|name| published(name, 250));
    for (entries, keys) in sets.into_iter().chain(published) {
        // The plan, which takes long, is the same for all.
        let built = Dynamic::build(&KINDS, &entries, config(9, Variant::Scalar)).unwrap();
        for_each_variant(|variant| {
            let mut engine =
                Dynamic { backend: AdaptiveDispatch::named(Backend::first_of(&[variant])), ..built.clone() };
            assert_eq!(engine.variant(), variant);
            agrees(&engine, &KINDS, &entries, &keys);
            let (gone, kept) = entries.split_at(entries.len() / 2);
            for entry in gone {
                engine.remove(entry.rule);
            }
            agrees(&engine, &KINDS, kept, &keys[..100]);
            for entry in gone {
                engine.insert(*entry).unwrap();
            }
            agrees(&engine, &KINDS, &entries, &keys[..100]);
        });
    }
}

/// Rules under one source and destination that differ in ranges of ports only: no mask tells them apart.
fn one_chain(rules: u32) -> Vec<Entry<4>> {
    let entry = |i: u32| {
        let mut condition = Condition::any(&KINDS);
        (condition.low[2], condition.high[2]) = (0x0a00_0001, u32::MAX);
        (condition.low[0], condition.high[0]) = (i * 13 % 30_000, 0xffff_0000 | (32_768 + i * 7 % 30_000));
        Entry { condition, rank: RankKey(u64::from(i * 7919 % 100_003)), rule: RuleId(i), categories: 1 }
    };
    (0..rules).map(entry).collect()
}

#[test]
fn a_chain_of_thousands_agrees_while_it_grows_and_shrinks() {
    let entries = one_chain(1500);
    let mut random = Random::new(1);
    let keys: Vec<_> = (0..40).map(|_| [random.bits() as u32, 0, 0x0a00_0001, 0]).collect();
    for_each_variant(|variant| {
        let mut engine = Dynamic::build(&KINDS, &[], config(1, variant)).unwrap();
        let mut order: Vec<_> = entries.clone();
        Random::new(2).shuffle(&mut order);
        for (i, entry) in order.iter().enumerate() {
            engine.insert(*entry).unwrap();
            if i.is_multiple_of(400) {
                agrees(&engine, &KINDS, &order[..=i], &keys);
            }
        }
        assert!(
            engine.rules.counts.blocks_len <= entries.len() / 7,
            "{} blocks",
            engine.rules.counts.blocks_len
        );
        Random::new(3).shuffle(&mut order);
        while let Some(entry) = order.pop() {
            assert_eq!(engine.remove(entry.rule), Some(entry));
            if order.len().is_multiple_of(400) {
                agrees(&engine, &KINDS, &order, &keys);
            }
        }
        assert_eq!(
            (engine.rules.counts.blocks_len, engine.rules.counts.in_blocks, engine.directory.len()),
            (0, 0, 0)
        );
    });
}

#[test]
fn equal_conditions_win_by_rank() {
    let condition = Condition { low: [7, 7, 7, 7], high: [7, u32::MAX, u32::MAX, u32::MAX] };
    let entry = |i: u32| Entry { condition, rank: RankKey(u64::from(i)), rule: RuleId(i), categories: 1 };
    for_each_variant(|variant| {
        let mut engine = Dynamic::build(&KINDS, &[entry(0)], config(4, variant)).unwrap();
        (1..40).for_each(|i| engine.insert(entry(i)).unwrap());
        for i in (0..40).rev() {
            let mut verdicts = [MatchId::NONE];
            engine.lookup_batch(&[[7; 4]], &mut verdicts);
            assert_eq!(verdicts[0].rule(), Some(RuleId(i)));
            assert!(engine.remove(RuleId(i)).is_some());
        }
        assert!(engine.is_empty());
    });
}

#[test]
fn rules_with_equal_ranks_are_found_and_removed() {
    let entries: Vec<Entry<4>> =
        one_chain(200).into_iter().map(|e| Entry { rank: RankKey(e.rank.0 / 40_000), ..e }).collect();
    let key = [0, 0, 0x0a00_0001, 0];
    for_each_variant(|variant| {
        let mut engine = Dynamic::build(&KINDS, &entries[..150], config(1, variant)).unwrap();
        entries[150..].iter().for_each(|e| engine.insert(*e).unwrap());
        let mut order = entries.clone();
        Random::new(4).shuffle(&mut order);
        while let Some(entry) = order.pop() {
            assert_eq!(engine.remove(entry.rule), Some(entry));
            let mut verdicts = [MatchId::NONE];
            engine.lookup_batch(&[key], &mut verdicts);
            let winner = verdicts[0].rule().map(|rule| entries[rule.0 as usize]);
            assert!(winner.is_none_or(|w| order.contains(&w)));
            assert_eq!(winner.map(|w| w.rank), best(&order, &KINDS, &key, 0).map(|e| e.rank));
        }
        assert!(engine.is_empty() && engine.directory.is_empty());
    });
}

#[test]
fn wildcarded_bits_do_not_change_the_winner() {
    let (generated, generated_keys) = generated(Profile::Ipc, 500, 150, 5);
    let (small, small_keys) = overlapping(&KINDS, 200, 150, 6);
    for (entries, keys) in
        [(generated, generated_keys), (small, small_keys), (one_chain(300), vec![[9, 0, 0x0a00_0001, 0]])]
    {
        let engine = Dynamic::build(&KINDS, &entries, DynamicConfig::new(6)).unwrap();
        let mut random = Random::new(7);
        for key in &keys {
            let explained = engine.explain(key);
            let winner = best(&entries, &KINDS, key, 0).map(|e| e.rule);
            assert_eq!(explained.winner, winner);
            for _ in 0..60 {
                let other: [u32; 4] = std::array::from_fn(|w| {
                    key[w] ^ random.bits() as u32 & random.bits() as u32 & !explained.looked_at[w]
                });
                assert_eq!(
                    best(&entries, &KINDS, &other, 0).map(|e| e.rule),
                    winner,
                    "{key:x?} {other:x?} {explained:x?}"
                );
            }
            if let Some(next) = explained.runner_up {
                let next = entries.iter().find(|e| e.rule == next).unwrap();
                assert!(next.condition.matches(&KINDS, key) && Some(next.rule) != winner);
            }
        }
    }
}

#[test]
fn apply_equals_single_changes() {
    let (entries, keys) = generated(Profile::Fw, 600, 100, 8);
    let mut random = Random::new(8);
    let mut engine = Dynamic::build(&KINDS, &entries[..300], DynamicConfig::new(8)).unwrap();
    let mut present: Vec<Entry<4>> = entries[..300].to_vec();
    let changes: Vec<Change<4>> = (0..2000)
        .map(|_| {
            let entry = entries[random.index(entries.len())];
            match present.iter().position(|e| e.rule == entry.rule) {
                Some(at) => Change::Remove(present.swap_remove(at).rule),
                None => {
                    present.push(entry);
                    Change::Insert(entry)
                }
            }
        })
        .collect();
    engine.apply(&changes).unwrap();
    agrees(&engine, &KINDS, &present, &keys);
    let twice = [Change::Remove(RuleId(9999)), Change::Insert(present[0]), Change::Remove(present[1].rule)];
    let refused = engine.apply(&twice).unwrap_err();
    assert_eq!(refused, ChangeError { at: 1, error: BuildError::Duplicate(present[0].rule) });
    agrees(&engine, &KINDS, &present, &keys);
}

#[test]
fn removal_returns_memory() {
    let (entries, _) = generated(Profile::Fw, 4000, 0, 2);
    let empty = Dynamic::build(&KINDS, &[], DynamicConfig::new(2)).unwrap().table_bytes();
    let mut engine = Dynamic::build(&KINDS, &entries, DynamicConfig::new(2)).unwrap();
    let full = engine.table_bytes();
    let mut random = Random::new(3);
    let mut gone: Vec<Entry<4>> = Vec::new();
    let mut most = 0;
    for _ in 0..20_000 {
        if gone.len() < 500 && random.chance(0.5) || gone.is_empty() {
            gone.extend(engine.remove(entries[random.index(entries.len())].rule));
        } else {
            engine.insert(gone.swap_remove(random.index(gone.len()))).unwrap();
        }
        most = most.max(engine.table_bytes());
    }
    assert!(most <= 2 * full, "{most} bytes after {full}");
    for entry in &entries {
        engine.remove(entry.rule);
    }
    assert!(
        engine.table_bytes() < empty + full / 4,
        "{} bytes of {full}, {empty} at first",
        engine.table_bytes()
    );
    assert_eq!(engine.order.len(), 0);
}

#[test]
fn limits_hold_and_refusals_leave_no_trace() {
    let (entries, keys) = generated(Profile::Acl, 2000, 200, 4);
    let bytes = Dynamic::build(&KINDS, &entries[..1000], DynamicConfig::new(2)).unwrap().table_bytes();
    let limited = DynamicConfig { memory_max: bytes * 5 / 4, ..DynamicConfig::new(2) };
    let refused = Dynamic::build(&KINDS, &entries, limited.clone()).unwrap_err();
    assert!(matches!(refused, BuildError::Memory { needed_bytes, .. } if needed_bytes > bytes), "{refused}");
    assert!(refused.to_string().contains("raise the memory limit"));
    let mut engine = Dynamic::build(&KINDS, &entries[..1000], limited).unwrap();
    let mut len = 1000;
    let refused = loop {
        match engine.insert(entries[len]) {
            Ok(()) => len += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, BuildError::Memory { rules, .. } if rules >= len), "{refused}");
    assert!(engine.table_bytes() <= bytes * 5 / 4);
    assert_eq!(engine.len(), len);
    agrees(&engine, &KINDS, &entries[..len], &keys);
    engine.remove(entries[0].rule);
    engine.insert(entries[len]).unwrap();
    let few = DynamicConfig { rules_max: 10, ..DynamicConfig::new(2) };
    let refused = Dynamic::build(&KINDS, &entries, few.clone()).unwrap_err();
    assert_eq!(refused, BuildError::Rules { rules_max: 10 });
    let mut engine = Dynamic::build(&KINDS, &entries[..10], few).unwrap();
    assert_eq!(engine.insert(entries[10]), Err(BuildError::Rules { rules_max: 10 }));
    let twice = Dynamic::build(&KINDS, &[entries[0], entries[0]], DynamicConfig::new(1)).unwrap_err();
    assert_eq!(twice, BuildError::Duplicate(entries[0].rule));
}

/// Enough rules of one chain that the lanes of a whole batch wait for its blocks.
#[test]
fn full_batches_defer_blocks() {
    let entries = one_chain(40);
    let mut random = Random::new(9);
    let keys: Vec<_> = (0..256).map(|_| [random.bits() as u32, 0, 0x0a00_0001, 0]).collect();
    for_each_variant(|variant| {
        let mut engine = Dynamic::build(&KINDS, &[], config(1, variant)).unwrap();
        entries.iter().for_each(|e| engine.insert(*e).unwrap());
        agrees(&engine, &KINDS, &entries, &keys);
        agrees(&engine, &KINDS, &entries, &keys[..255]);
    });
}
