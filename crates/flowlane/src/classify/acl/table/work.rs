//! What lookups would read, counted: how `auto` chooses without a clock.

use super::AclConfig;
use super::auto::drawn;
use crate::classify::acl::{Engine, Entry, Tree, WordKind};

/// Keys that are counted with.
const KEYS: usize = 256;

/// A tree that reads fewer rules a lookup is taken as it is: with sets of 10,000 rules of all kinds, lookups read 15 to 90.
const RULES_FEW: f64 = 400.0;

/// What they cost, in cycles, in long lists (Zen 5, AVX-512): a rule of a tree's leaf; a table of the dynamic engine, and a
/// rule there.
const LEAF_RULE_CYCLES: f64 = 0.7;
const TABLE_CYCLES: f64 = 5.0;
const RULE_CYCLES: f64 = 2.6;

/// What lookups of some keys read, on average: nodes, rules.
fn read<const W: usize>(engine: &dyn Engine<W>, keys: &[[u32; W]]) -> (f64, f64) {
    let add = |(nodes, rules): (f64, f64), key: &[u32; W]| {
        let told = engine.explain(key);
        (nodes + f64::from(told.nodes), rules + f64::from(told.rules))
    };
    let (nodes, rules) = keys.iter().fold((0.0, 0.0), add);
    (nodes / keys.len() as f64, rules / keys.len() as f64)
}

impl AclConfig {
    /// Whether the dynamic engine reads so much less than a tree of the same rules that it is likely to be faster: no cut
    /// suits them.
    pub(super) fn dynamic_is_better<const W: usize>(
        &self,
        tree: &Tree<W>,
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
        memory_max: usize,
    ) -> bool {
        let rules: Vec<_> = entries.iter().map(|e| e.condition).collect();
        let keys = drawn(kinds, &rules, KEYS, self.seed);
        let (_, in_leaves) = read(tree, &keys);
        if in_leaves <= RULES_FEW {
            return false;
        }
        let Ok(dynamic) = self.dynamic(kinds, entries, memory_max) else { return false };
        let (tables, rules) = read(&dynamic, &keys);
        tables * TABLE_CYCLES + rules * RULE_CYCLES < in_leaves * LEAF_RULE_CYCLES
    }
}
