//! What lookups would read, counted: how `auto` chooses without a clock.

use super::AclConfig;
use super::auto::drawn;
use crate::classify::acl::{Engine, Entry, Tree, WordKind};

/// Keys that are counted with.
const KEYS: usize = 256;

/// A tree whose lookups cost fewer cycles than this is taken as it is: with most kinds of sets lookups read 15 to 60 rules.
const CYCLES_FEW: f64 = 100.0;

/// What they cost, in cycles (Zen 5, AVX-512): a tree's node below a root, and a rule of a leaf, near and in a table that does
/// not lie in nearby caches.
const NODE_CYCLES: f64 = 30.0;
const LEAF_RULE_CYCLES: f64 = 0.6;
const FAR_LEAF_RULE_CYCLES: f64 = 1.5;
const FAR_BYTES: usize = 16 << 20;

/// In the dynamic engine: a table, a rule by itself, and those beyond so many, which are compared in blocks.
const TABLE_CYCLES: f64 = 5.0;
const RULE_CYCLES: f64 = 5.5;
const BLOCK_RULE_CYCLES: f64 = 2.0;
const LONE_RULES: f64 = 16.0;

/// The dynamic engine is taken where it is likely to take so much less: the estimates are rough.
const LESS: f64 = 0.8;

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
        let (nodes, in_leaves) = read(tree, &keys);
        let leaf_rule = if tree.table_bytes() > FAR_BYTES { FAR_LEAF_RULE_CYCLES } else { LEAF_RULE_CYCLES };
        let cycles = (nodes - tree.parts() as f64) * NODE_CYCLES + in_leaves * leaf_rule;
        if cycles <= CYCLES_FEW {
            return false;
        }
        let Ok(dynamic) = self.dynamic(kinds, entries, memory_max) else { return false };
        let (tables, rules) = read(&dynamic, &keys);
        let in_blocks = (rules - LONE_RULES).max(0.0);
        let other = tables * TABLE_CYCLES + (rules - in_blocks) * RULE_CYCLES + in_blocks * BLOCK_RULE_CYCLES;
        other < LESS * cycles
    }
}
