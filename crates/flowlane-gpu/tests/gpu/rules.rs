//! Rules and keys for tables of any width. The tests of `flowlane-paper` take them from here, too.

use flowlane::classify::Hit;
use flowlane::classify::acl::{Condition, Entry, RankKey, WordKind};
use flowlane::generate::Random;
use flowlane::rule::{Priority, RuleId};

/// Rules over few bits, so that they overlap: masks from a handful, the first word a pair of ranges.
pub(crate) fn entries<const W: usize>(random: &mut Random, count: usize, masks: usize) -> Vec<Entry<W>> {
    let masks: Vec<[u32; W]> =
        (0..masks).map(|_| std::array::from_fn(|_| 0x0300_0301 * (random.below(3) as u32))).collect();
    let range = |random: &mut Random| {
        let ends = [random.below(20) as u32, random.below(20) as u32];
        if random.below(2) == 0 { (0, 0xffff) } else { (ends[0].min(ends[1]), ends[0].max(ends[1])) }
    };
    (0..count)
        .map(|i| {
            let mask = masks[random.below(masks.len() as u64) as usize];
            let (upper, lower) = (range(random), range(random));
            let mut condition =
                Condition { low: std::array::from_fn(|w| random.bits() as u32 & mask[w]), high: mask };
            condition.low[0] = upper.0 << 16 | lower.0;
            condition.high[0] = upper.1 << 16 | lower.1;
            let rank = RankKey::new(Priority(random.below(4) as u32), i as u32);
            Entry { condition, rank, rule: RuleId(1000 + i as u32), categories: 1 + random.below(2) as u16 }
        })
        .collect()
}

/// A hit that no table contains.
pub(crate) const WRONG: Hit = Hit { rule: RuleId(u32::MAX - 1), priority: Priority(0) };

pub(crate) fn kinds<const W: usize>() -> [WordKind; W] {
    std::array::from_fn(|w| if w == 0 { WordKind::Range16 } else { WordKind::Ternary })
}

/// Keys inside rules, and others.
pub(crate) fn keys<const W: usize>(random: &mut Random, entries: &[Entry<W>], count: usize) -> Vec<[u32; W]> {
    (0..count)
        .map(|_| {
            let any =
                std::array::from_fn(|w| if w == 0 { 0x000f_000f } else { u32::MAX } & random.bits() as u32);
            let Some(entry) = entries.get(random.below(entries.len() as u64 * 5 / 4) as usize) else {
                return any;
            };
            let inside = |w: usize| entry.condition.low[w] | any[w] & !entry.condition.high[w];
            std::array::from_fn(|w| if w == 0 { entry.condition.low[0] } else { inside(w) })
        })
        .collect()
}

/// Exact rules on one word.
pub(crate) fn one_class(count: usize) -> Vec<Entry<4>> {
    let entry = |i: u32| Entry {
        condition: Condition { low: [0, i * 7, 0, 0], high: [u32::MAX, u32::MAX, 0, 0] },
        rank: RankKey::new(Priority(i % 3), i),
        rule: RuleId(i),
        categories: 1,
    };
    (0..count as u32).map(entry).collect()
}

/// A rule for these values under these masks.
pub(crate) fn ternary(i: u32, low: [u32; 4], high: [u32; 4]) -> Entry<4> {
    let condition = Condition { low, high: [u32::MAX, high[1], high[2], high[3]] };
    Entry { condition, rank: RankKey::new(Priority(i % 5), i), rule: RuleId(i), categories: 1 }
}
