//! Explanations: why a rule wins, and the bits that the answer depends on.

use super::{Tree, bits, leaf};
use crate::classify::acl::{Condition, Explanation, WordKind};

/// Returns the bits of one half or word that decide whether `key` lies within `low..=high`, both of `width` bits: the shortest
/// prefix of the key that lies wholly inside or wholly outside.
fn range_bits(low: u32, high: u32, key: u32, width: u32) -> u32 {
    let all = (u64::MAX >> (64 - width)) as u32;
    let mask_of = |len: u32| all & !(all.checked_shr(len).unwrap_or(0));
    let decides = |mask: &u32| {
        let (first, last) = (key & mask, key | all & !mask);
        let inside = low <= first && last <= high;
        inside || last < low || first > high
    };
    (0..=width).map(mask_of).find(decides).unwrap_or(all)
}

/// Returns the bits of word `w` that show whether it matches.
fn word_bits<const W: usize>(condition: &Condition<W>, kind: WordKind, w: usize, key: u32) -> u32 {
    let (low, high) = (condition.low[w], condition.high[w]);
    match kind {
        WordKind::Ternary => match (key & high) ^ low {
            0 => high,
            // Down to the first bit that differs, so that prefixes stay prefixes.
            differing => high & (u32::MAX << differing.ilog2()),
        },
        WordKind::Range32 => range_bits(low, high, key, 32),
        WordKind::Range16 => {
            let half = |shift: u32| {
                let of = |word: u32| word >> shift & 0xffff;
                let within = of(low) <= of(key) && of(key) <= of(high);
                (within, range_bits(of(low), of(high), of(key), 16) << shift)
            };
            match (half(16), half(0)) {
                ((false, reason), _) | (_, (false, reason)) => reason,
                ((_, upper), (_, lower)) => upper | lower,
            }
        }
    }
}

/// Adds the bits that show whether `key` matches; none where the bits that are there rule it out.
fn add_reason<const W: usize>(
    condition: &Condition<W>,
    kinds: &[WordKind; W],
    key: &[u32; W],
    looked_at: &mut [u32; W],
) -> bool {
    let reason = |w: usize| word_bits(condition, kinds[w], w, key[w]);
    let mut failing = (0..W).filter(|&w| !condition.word_matches(kinds[w], w, key[w])).peekable();
    let Some(&first) = failing.peek() else {
        (0..W).for_each(|w| looked_at[w] |= reason(w));
        return true;
    };
    if failing.all(|w| reason(w) & !looked_at[w] != 0) {
        looked_at[first] |= reason(first);
    }
    false
}

/// Explains the answer for `key` among the ranks that are `live`.
pub(super) fn explain<const W: usize>(
    tree: &Tree<W>,
    key: &[u32; W],
    live: impl Fn(u32) -> bool,
) -> Explanation<W> {
    let (mut nodes, mut looked_at) = (0, [0; W]);
    let (mut met, mut blocks) = (Vec::new(), Vec::new());
    for part in 0..tree.parts {
        let (_, first) = tree.descend(part, key, |node| {
            nodes += 1;
            looked_at.iter_mut().zip(&node.cut).for_each(|(bits, cut)| *bits |= cut);
        });
        let mut block = &tree.blocks[first];
        let mut at = first;
        loop {
            let before = met.len();
            met.extend((0..leaf::RULES).map(|i| leaf::rank(block, i)).filter(|rank| *rank != leaf::NONE));
            blocks.push((leaf::rank(block, 0), met.len() - before));
            if leaf::goes_on(block).is_none() {
                break;
            }
            at += 1;
            block = &tree.blocks[at];
        }
    }
    met.sort_unstable();
    let kinds = &tree.records.kinds;
    let counts = |rank: &&u32| tree.records.categories(**rank) & 1 == 1 && live(**rank);
    let mut winners = met.iter().filter(counts).filter(|rank| tree.records.matches(**rank, key));
    let (winner, runner_up) = (winners.next().copied(), winners.next().copied());
    for &rank in met.iter().filter(counts).take_while(|rank| **rank <= winner.unwrap_or(leaf::NONE)) {
        add_reason(&tree.records.condition(rank), kinds, key, &mut looked_at);
    }
    // Leaves are read block by block, as long as a better rule is possible.
    let read = blocks.iter().filter(|(best, _)| *best <= winner.unwrap_or(leaf::NONE));
    let rules = read.map(|(_, rules)| *rules as u32).sum();
    debug_assert!(tree.nodes.iter().all(|node| bits::count(&node.sign) <= 32));
    Explanation {
        winner: tree.verdict(winner).rule(),
        runner_up: tree.verdict(runner_up).rule(),
        nodes,
        rules,
        looked_at,
    }
}
