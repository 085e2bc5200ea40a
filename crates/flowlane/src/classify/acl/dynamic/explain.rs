//! Explanations: why a rule wins, and the bits of the key that the answer depends on.

use super::Dynamic;
use super::rules::TO_BLOCK;
use super::scalar::{chains, condition, parts};
use crate::classify::acl::{Condition, Explanation, WordKind};
use crate::rule::RuleId;

/// A rule that matches: rank, rule number, class.
type Found = Option<(u64, u32, u8)>;

struct Search<'a, const W: usize> {
    engine: &'a Dynamic<W>,
    key: &'a [u32; W],
    winner: Found,
    runner_up: Found,
    out: Explanation<W>,
}

/// The search of the scalar kernel, with an account of its reads.
pub(super) fn explain<const W: usize>(engine: &Dynamic<W>, key: &[u32; W]) -> Explanation<W> {
    let out = Explanation { winner: None, runner_up: None, nodes: 0, rules: 0, looked_at: [0; W] };
    let mut search = Search { engine, key, winner: None, runner_up: None, out };
    for t in &engine.order {
        let table = &engine.tables[usize::from(*t)];
        let class = search.winner.map_or(0, |w| w.2);
        if table.ceiling < class {
            continue;
        }
        search.out.nodes += 1;
        for w in 0..W {
            search.out.looked_at[w] |= table.mask[w];
        }
        for head in chains(table, key, class) {
            search.walk(head);
        }
    }
    search.out.winner = search.winner.map(|w| RuleId(w.1));
    search.out.runner_up = search.runner_up.map(|w| RuleId(w.1));
    search.out
}

impl<const W: usize> Search<'_, W> {
    fn walk(&mut self, mut link: u32) {
        while link != 0 && link & TO_BLOCK == 0 {
            let record = &self.engine.rules.records[link as usize];
            let found = (record.rank, record.rule, record.class);
            if !self.compare(found, record.categories, &record.entry().condition) {
                return;
            }
            link = record.next;
        }
        while link != 0 {
            let block = &self.engine.rules.blocks[(link & !TO_BLOCK) as usize];
            self.out.nodes += 1;
            for i in 0..block.len as usize {
                let found = (block.ranks[i], block.rules[i], block.classes[i]);
                if !self.compare(found, block.categories[i], &condition(block, i)) {
                    return;
                }
            }
            link = block.next;
        }
    }

    /// Compares the key with a rule. Returns whether the search of its chain goes on.
    fn compare(&mut self, found: (u64, u32, u8), categories: u16, condition: &Condition<W>) -> bool {
        if self.winner.is_some_and(|w| w.0 > found.0) {
            // It cannot win, but it may be the runner-up.
            let next = self.runner_up.is_none_or(|r| r.0 < found.0);
            if next && categories & 1 == 1 && condition.matches(&self.engine.kinds, self.key) {
                self.runner_up = Some(found);
            }
            return false;
        }
        self.out.rules += 1;
        if categories & 1 == 0 {
            return true;
        }
        let kinds = &self.engine.kinds;
        let mismatch = (0..W).find(|w| !condition.word_matches(kinds[*w], *w, self.key[*w]));
        match mismatch {
            Some(w) => {
                let bits = reason(kinds[w], condition.low[w], condition.high[w], self.key[w]);
                self.out.looked_at[w] |= bits;
            }
            None => {
                for (w, kind) in kinds.iter().enumerate() {
                    self.out.looked_at[w] |= proof(*kind, condition.low[w], condition.high[w], self.key[w]);
                }
                if self.winner.is_some() {
                    self.runner_up = self.winner;
                }
                self.winner = Some(found);
            }
        }
        true
    }
}

/// Returns bits of a word that show that it does not match.
fn reason(kind: WordKind, low: u32, high: u32, key: u32) -> u32 {
    if kind == WordKind::Ternary {
        return 1 << ((key & high) ^ low).ilog2();
    }
    let of_part = |&(shift, bits): &(u32, u32)| {
        let ones = u32::MAX >> (32 - bits);
        let [low, high, key] = [low, high, key].map(|of| of >> shift & ones);
        let end = if key < low { low } else { high };
        // From the top down to the first bit in which the key is less than the low end, or more than the high one.
        (key < low || key > high).then(|| (ones & !((1 << (key ^ end).ilog2()) - 1)) << shift)
    };
    parts(kind).iter().find_map(of_part).unwrap_or(u32::MAX)
}

/// Returns bits of a word that show that it matches.
fn proof(kind: WordKind, low: u32, high: u32, key: u32) -> u32 {
    if kind == WordKind::Ternary {
        return high;
    }
    let of_part = |&(shift, bits): &(u32, u32)| {
        let ones = u32::MAX >> (32 - bits);
        let [low, high, key] = [low, high, key].map(|of| of >> shift & ones);
        // The largest block around the key that lies within.
        let within = |free: u32| {
            let block = (1u64 << free) as u32;
            let below = block.wrapping_sub(1) & ones;
            key & !below >= low && key | below <= high
        };
        let free = (0..=bits).rev().find(|free| within(*free)).unwrap_or(0);
        (ones & !((1u64 << free) - 1) as u32) << shift
    };
    parts(kind).iter().map(of_part).fold(0, |all, bits| all | bits)
}
