//! A cost model: the selection of `auto` without a clock, by counting what lookups would read.

use super::AclConfig;
use super::auto::drawn;
use crate::classify::acl::{Engine, Entry, Tree, WordKind};

/// Keys of the sample.
const KEYS: usize = 256;

/// A tree whose lookups cost fewer cycles than this is taken as it is: with most kinds of sets lookups read 15 to 60 rules.
const CYCLES_FEW: f64 = 100.0;

/// Costs in cycles (Zen 5, AVX-512): a tree's node below a root, and a rule of a leaf, in a table within nearby caches and in one
/// beyond.
const NODE_CYCLES: f64 = 30.0;
const LEAF_RULE_CYCLES: f64 = 0.6;
const FAR_LEAF_RULE_CYCLES: f64 = 1.5;
const FAR_BYTES: usize = 16 << 20;

/// Costs in the dynamic engine: a table, a rule by itself, and a rule beyond the first [`LONE_RULES`], which are compared in blocks.
const TABLE_CYCLES: f64 = 5.0;
const RULE_CYCLES: f64 = 5.5;
const BLOCK_RULE_CYCLES: f64 = 2.0;
const LONE_RULES: f64 = 16.0;

/// The dynamic engine is selected below this share of the tree's estimate: the estimates are rough.
const LESS: f64 = 0.8;

/// Returns the nodes and rules that lookups of some keys read, on average.
fn read<const W: usize>(engine: &dyn Engine<W>, keys: &[[u32; W]]) -> (f64, f64) {
    let add = |(nodes, rules): (f64, f64), key: &[u32; W]| {
        let explained = engine.explain(key);
        (nodes + f64::from(explained.nodes), rules + f64::from(explained.rules))
    };
    let (nodes, rules) = keys.iter().fold((0.0, 0.0), add);
    (nodes / keys.len() as f64, rules / keys.len() as f64)
}

impl AclConfig {
    /// Returns whether the dynamic engine reads so much less than a tree of the same rules that it is likely to be faster, as
    /// with rules that no cut suits.
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
