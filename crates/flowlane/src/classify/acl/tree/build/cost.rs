//! What lookups in a tree cost, by what packets drawn from its rules read.

use crate::classify::acl::Engine;
use crate::classify::acl::tree::leaf::{self, MORE, NONE, RANKS, RULES};
use crate::classify::acl::tree::{Tree, bits};

/// Packets that are looked up.
const PACKETS: usize = 256;

/// A tree whose lookups cost more is worth another try.
pub(super) const SLOW_CYCLES: f64 = 28.0;

/// A grid is selected below this share of the estimate for cuts by bits.
pub(super) const GRID_BELOW: f64 = 0.8;

/// The cost of a part, of each further test of its leaf's first block, of a node below a root, of a block behind the first, of each further
/// test there, of a first candidate that does not match, and of a grid's search for classes, in cycles.
const PART: f64 = 8.0;
const TEST_FIRST: f64 = 5.0;
const NODE_BELOW: f64 = 30.0;
const BLOCK: f64 = 8.0;
const TEST: f64 = 1.0;
const WRONG: f64 = 50.0;
const CLASS_BIT: f64 = 0.8;

/// The cost of each doubling of a table beyond what the second-level cache of most CPUs holds, in cycles.
const DOUBLING: f64 = 4.0;
const NEAR_BYTES: f64 = (1 << 20) as f64;

/// Estimates the cycles of a lookup.
pub(super) fn cycles<const W: usize>(tree: &Tree<W>) -> f64 {
    let rules = tree.records.len();
    let packets = rules.min(PACKETS);
    let tests = tree.range_filters.len() as f64;
    let block = BLOCK + TEST * tests;
    let bits = tree.grid.as_ref().map_or(0, |grid| grid.axes[0].bits + grid.axes[1].bits);
    let always = (PART + TEST_FIRST * tests) * tree.parts as f64
        + CLASS_BIT * f64::from(bits)
        + DOUBLING * (tree.table_bytes() as f64 / NEAR_BYTES).log2().max(0.0);
    let (mut state, mut sum) = (0, 0.0);
    for i in 0..packets {
        let rank = (i as u64 * 0x9e37_79b1 % rules as u64) as u32;
        let key = tree.records.condition(rank).drawn(&tree.records.kinds, &mut state);
        let (mut best, mut blocks, mut nodes) = (NONE, 0, 0);
        for part in 0..tree.parts {
            let (node, first) = tree.descend(part, &key, |_| nodes += 1);
            let signature = bits::gather(&node.sign, &key);
            for at in first.. {
                blocks += 1;
                let found =
                    leaf::candidates(&tree.blocks[at], signature) & tree.passing(at, &key) | 1 << RULES;
                let found = tree.blocks[at][RANKS + found.trailing_zeros() as usize];
                best = best.min(found);
                if found & MORE == 0 || best < found & !MORE {
                    break;
                }
            }
        }
        let is_wrong = best != NONE && !tree.records.matches(best, &key);
        sum += NODE_BELOW * f64::from(nodes - tree.parts as i32)
            + block * f64::from(blocks - tree.parts as i32)
            + if is_wrong { WRONG } else { 0.0 };
    }
    always + if packets == 0 { 0.0 } else { sum / packets as f64 }
}
