//! Trees that change against the definition.

use super::super::leaf::{NODE, NONE, RANKS, RULES, goes_on};
use super::*;
use crate::classify::acl::tree::tests::{IPV4, MIXED, agrees_by, build};
use crate::classify::acl::{WordKind, testing};
use crate::generate::{Profile, Random};
use crate::isa::Variant;
use crate::rule::Priority;

/// A tree, and the entries that it has.
struct Changing<'a, const W: usize> {
    kinds: &'a [WordKind; W],
    tree: Tree<W>,
    entries: Vec<Entry<W>>,
    /// Rules that were not taken.
    refused: usize,
}

impl<'a, const W: usize> Changing<'a, W> {
    fn new(kinds: &'a [WordKind; W], entries: &[Entry<W>]) -> Self {
        let mut tree = build(kinds, entries, Variant::Scalar);
        tree.prepare_changes(|rule| entries.iter().find(|e| e.rule == rule).expect("it is there").rank);
        Self { kinds, tree, entries: entries.to_vec(), refused: 0 }
    }

    fn insert(&mut self, entry: Entry<W>) {
        match self.tree.insert(&entry, usize::MAX) {
            true => self.entries.push(entry),
            false => self.refused += 1,
        }
    }

    fn remove(&mut self, at: usize) {
        let entry = self.entries[at];
        if self.tree.remove(entry.rule) {
            self.entries.swap_remove(at);
        } else {
            self.refused += 1;
        }
    }

    /// Every variant, and what the tree promises itself.
    fn check(&self, keys: &[[u32; W]]) {
        assert_eq!(super::super::Engine::len(&self.tree), self.entries.len());
        for part in 0..self.tree.parts {
            self.check_node(part as u32);
        }
        agrees_by(&mut self.tree.clone(), self.kinds, &self.entries, keys);
    }

    /// Leaves of a node belong to neighbouring entries, and have their rules in order.
    fn check_node(&self, node: u32) {
        let tree = &self.tree;
        let of = &tree.nodes[node as usize];
        let entries = &tree.table[of.first as usize..][..1 << super::super::bits::count(&of.cut)];
        let mut seen = std::collections::HashSet::new();
        for run in entries.chunk_by(|a, b| a == b) {
            assert!(run[0] & NODE != 0 || seen.insert(run[0]), "two runs of leaf {}", run[0]);
            if run[0] & NODE != 0 {
                run.iter().for_each(|entry| self.check_node(entry & !NODE));
                continue;
            }
            let blocks = &tree.blocks[run[0] as usize..][..leaves::count(&tree.blocks, run[0])];
            let ranks: Vec<u32> = blocks.iter().flat_map(|block| block[RANKS..][..RULES].to_vec()).collect();
            let rules = ranks.iter().take_while(|rank| **rank != NONE).count();
            assert!(ranks[..rules].is_sorted_by(|a, b| a < b), "{ranks:?}");
            assert!(ranks[rules..].iter().all(|rank| *rank == NONE), "{ranks:?}");
            assert!(rules > RULES * (blocks.len() - 1) || blocks.len() == 1, "{ranks:?}");
            for pair in blocks.windows(2) {
                assert_eq!(goes_on(&pair[0]), Some(pair[1][RANKS]));
            }
        }
    }
}

/// Rules that come and go at random, until all have come again `times` times.
fn churn<const W: usize>(
    kinds: &[WordKind; W],
    entries: &[Entry<W>],
    keys: &[[u32; W]],
    times: usize,
) -> usize {
    let mut random = Random::for_purpose(entries.len() as u64, "churn");
    let half = entries.len() / 2;
    let mut changing = Changing::new(kinds, &entries[..half]);
    let mut waiting: Vec<Entry<W>> = entries[half..].to_vec();
    changing.check(keys);
    for step in 0..times * entries.len() {
        if random.chance(0.5) && !waiting.is_empty() {
            let entry = waiting.swap_remove(random.index(waiting.len()));
            changing.insert(entry);
        } else if !changing.entries.is_empty() {
            let at = random.index(changing.entries.len());
            waiting.push(changing.entries[at]);
            changing.remove(at);
        }
        if step % (times * entries.len()).div_ceil(4) == 0 {
            changing.check(keys);
        }
    }
    changing.check(keys);
    while !changing.entries.is_empty() {
        changing.remove(random.index(changing.entries.len()));
    }
    changing.check(keys);
    entries.iter().for_each(|entry| changing.insert(*entry));
    changing.check(keys);
    changing.refused
}

#[test]
fn overlapping_rules_of_all_kinds_come_and_go() {
    for (seed, rules) in [2, 15, 40, 300, 900].into_iter().enumerate() {
        let (entries, keys) = testing::overlapping(&MIXED, rules, 300, seed as u64);
        churn(&MIXED, &entries, &keys, 2);
    }
    let ports: [WordKind; 10] =
        std::array::from_fn(|w| if w == 8 { WordKind::Range16 } else { WordKind::Ternary });
    let (entries, keys) = testing::overlapping(&ports, 300, 200, 1);
    churn(&ports, &entries, &keys, 2);
}

#[test]
fn generated_rules_come_and_go() {
    for profile in [Profile::Acl, Profile::Fw, Profile::Ipc, Profile::Ranges, Profile::Overlap] {
        for rules in [100, 2000] {
            let (mut entries, keys) = testing::generated(profile, rules, 300, rules as u64);
            let refused = churn(&IPV4, &entries, &keys, 2);
            // Many rules of one kind have leaves of many blocks.
            assert!(
                profile == Profile::Overlap || refused <= rules / 5,
                "{profile} {rules}: {refused} refused"
            );
            // Each with a priority of its own.
            for entry in &mut entries {
                entry.rank = RankKey::new(Priority(entry.rule.0.wrapping_mul(0x9e37_79b1)), 0);
            }
            churn(&IPV4, &entries, &keys, 1);
        }
    }
}

#[test]
fn rules_that_are_in_many_leaves_are_refused_where_many_come() {
    let (entries, keys) = testing::generated(Profile::Acl, 3000, 200, 2);
    let mut changing = Changing::new(&IPV4, &entries);
    let any = crate::classify::acl::Condition::any(&IPV4);
    for rule in 10_000..10_100 {
        let rank = RankKey::new(Priority(0), rule);
        changing.insert(Entry { condition: any, rank, rule: RuleId(rule), categories: 1 });
    }
    assert!((50..100).contains(&changing.refused), "{} refused", changing.refused);
    changing.check(&keys);
}

#[test]
fn a_rule_that_comes_and_goes_takes_no_more_and_more_blocks() {
    let (entries, keys) = testing::generated(Profile::Acl, 600, 200, 5);
    let mut changing = Changing::new(&IPV4, &entries);
    // Fifteen more of one rule fill its leaves, and one above makes them longer.
    for rule in 1000..1015 {
        changing.insert(Entry { rule: RuleId(rule), rank: RankKey::new(Priority(3), rule), ..entries[5] });
    }
    let blocks = |changing: &Changing<'_, 4>| changing.tree.changes.as_ref().unwrap().blocks.end;
    let before = blocks(&changing);
    for rule in 2000..3000 {
        changing.insert(Entry { rule: RuleId(rule), rank: RankKey::new(Priority(3), rule), ..entries[5] });
        let at = changing.entries.iter().position(|entry| entry.rule.0 == rule).expect("it was taken");
        changing.remove(at);
    }
    assert!(blocks(&changing) <= before + 8, "{} after {before}", blocks(&changing));
    changing.check(&keys);
}

#[test]
fn a_tree_without_room_to_grow_refuses_rules_and_stays_as_it_is() {
    let (entries, keys) = testing::generated(Profile::Fw, 800, 200, 6);
    let mut changing = Changing::new(&IPV4, &entries[..500]);
    let bytes = super::super::Engine::table_bytes(&changing.tree);
    for entry in &entries[500..] {
        if changing.tree.insert(entry, 0) {
            changing.entries.push(*entry);
        }
    }
    assert!((501..800).contains(&changing.entries.len()), "{}", changing.entries.len());
    assert!(super::super::Engine::table_bytes(&changing.tree) <= bytes + 4096);
    changing.check(&keys);
}

#[test]
fn a_tree_that_grows_says_so() {
    let (entries, _) = testing::generated(Profile::Acl, 3000, 0, 3);
    let mut changing = Changing::new(&IPV4, &entries[..1000]);
    for entry in &entries[1000..1200] {
        changing.insert(*entry);
    }
    assert!(!changing.tree.is_outgrown());
    for entry in &entries[1200..] {
        changing.insert(*entry);
    }
    assert!(changing.tree.is_outgrown());
}

#[test]
fn rules_keep_their_order_when_their_keys_are_renamed() {
    let (entries, keys) = testing::generated(Profile::Fw, 600, 300, 4);
    let mut changing = Changing::new(&IPV4, &entries[..400]);
    let key = |rule: RuleId| RankKey::new(Priority::DEFAULT, 2 * rule.0);
    changing.entries.iter_mut().for_each(|entry| entry.rank = key(entry.rule));
    changing.tree.rename_keys(key);
    for entry in &entries[400..] {
        changing
            .insert(Entry { rank: RankKey::new(Priority::DEFAULT, 2 * (entry.rule.0 - 400) + 1), ..*entry });
    }
    changing.check(&keys);
}
