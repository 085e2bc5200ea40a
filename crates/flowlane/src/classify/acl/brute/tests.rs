//! Every kernel against [`best`](super::super::best).

use super::*;
use crate::classify::acl::{best, testing};
use crate::generate::{Profile, Random};

fn kernels() -> Vec<BruteKernel> {
    let all: Vec<_> = BruteKernel::all().into_iter().filter(|k| k.available()).collect();
    println!("kernels: {}", all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    all
}

fn check<const W: usize>(kinds: &[WordKind; W], entries: &[Entry<W>], keys: &[[u32; W]], about: &str) {
    let wanted = |key: &[u32; W], category| {
        best(entries, kinds, key, category).map_or(MatchId::NONE, |e| MatchId::of(e.rule))
    };
    for kernel in kernels() {
        let table = Brute::new(kinds, entries).with_kernel(kernel).expect("is available");
        let mut verdicts = vec![MatchId::NONE; keys.len()];
        table.lookup_batch(keys, &mut verdicts);
        for (key, found) in keys.iter().zip(&verdicts) {
            assert_eq!(*found, wanted(key, 0), "{kernel} {about} {key:x?}");
        }
        for categories in [1, 3, 16] {
            let mut verdicts = vec![MatchId::NONE; keys.len() * categories];
            table.lookup_categories(keys, categories, &mut verdicts);
            for (i, found) in verdicts.iter().enumerate() {
                let key = &keys[i / categories];
                assert_eq!(*found, wanted(key, i % categories), "{kernel} {about} {key:x?} {i}");
            }
        }
    }
}

const KINDS: [WordKind; 4] = [WordKind::Ternary, WordKind::Range32, WordKind::Range16, WordKind::Ternary];

#[test]
fn every_kernel_finds_the_best_entry_of_every_category() {
    for rules in (0..=34).chain([63, 64, 65, 200]) {
        let (entries, keys) = testing::overlapping(&KINDS, rules, 130, rules as u64);
        check(&KINDS, &entries, &keys, &format!("{rules} rules"));
    }
}

#[test]
fn batches_of_every_length_keep_their_order() {
    let (entries, keys) = testing::overlapping(&KINDS, 40, 200, 7);
    for length in (0..=33).chain([63, 64, 65, 127, 128, 129]) {
        check(&KINDS, &entries, &keys[..length], &format!("{length} keys"));
    }
}

#[test]
fn five_tuples_of_every_profile_are_found() {
    for profile in [Profile::Acl, Profile::Fw, Profile::Ipc] {
        let (entries, keys) = testing::generated(profile, 100, 300, 3);
        check(crate::classify::acl::Layout::ipv4_five_tuple().kinds(), &entries, &keys, "generated");
    }
}

#[test]
fn wide_keys_are_compared_in_all_words() {
    let mut kinds = [WordKind::Ternary; 64];
    (kinds[3], kinds[60]) = (WordKind::Range16, WordKind::Range32);
    let (entries, _) = testing::overlapping(&kinds, 33, 0, 5);
    check(&kinds, &entries, &testing::near(&entries, 5), "wide");
}

#[test]
fn wildcarded_bits_do_not_change_the_answer() {
    let mut random = Random::new(1);
    for seed in 0..40 {
        let (entries, keys) = testing::overlapping(&KINDS, 1 + seed as usize, 60, seed);
        let table = Brute::new(&KINDS, &entries);
        for key in &keys {
            let explained = table.explain(key);
            let wanted = best(&entries, &KINDS, key, 0);
            assert_eq!(explained.winner, wanted.map(|e| e.rule));
            let next =
                best(entries.iter().filter(|e| wanted.is_none_or(|w| e.rank < w.rank)), &KINDS, key, 0);
            assert_eq!(explained.runner_up, next.map(|e| e.rule), "seed {seed}");
            for _ in 0..30 {
                let mut other = keys[random.index(keys.len())];
                for w in 0..KINDS.len() {
                    other[w] ^= (other[w] ^ key[w]) & explained.looked_at[w];
                }
                let found = best(&entries, &KINDS, &other, 0).map(|e| e.rule);
                assert_eq!(found, explained.winner, "seed {seed} {key:x?} {other:x?} {explained:x?}");
            }
        }
    }
}

#[test]
fn kernel_names_round_trip() {
    for kernel in BruteKernel::all() {
        assert_eq!(kernel.to_string().parse(), Ok(kernel));
    }
    assert!("rules/mmx".parse::<BruteKernel>().unwrap_err().to_string().contains("avx512 or neon"));
}

#[test]
fn a_small_budget_is_refused_with_the_bytes_needed() {
    let (entries, _) = testing::overlapping(&KINDS, 40, 1, 1);
    let refused = Brute::build(&KINDS, &entries, 100).unwrap_err();
    assert!(matches!(refused, BuildError::Memory { rules: 40, memory_max: 100, .. }), "{refused}");
    assert!(Brute::build(&KINDS, &entries, 1 << 20).is_ok_and(|table| table.table_bytes() <= 1 << 20));
}
