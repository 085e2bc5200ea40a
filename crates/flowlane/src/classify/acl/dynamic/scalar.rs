//! The definition: looks up one key after the other.

use super::Dynamic;
use super::rules::{Block, TO_BLOCK};
use super::table::{CLASS_BITS, CLASS_SHIFT, HEADS, OVERFLOWED, Place, TAGS, Table, head_of};
use super::winners::Winners;
use crate::classify::acl::{Condition, WordKind};

/// The first records of the chains in which rules for `key` can be, where the bucket has rules of this class.
#[inline]
pub(super) fn chains<const W: usize>(
    table: &Table<W>,
    key: &[u32; W],
    class: u8,
) -> impl Iterator<Item = u32> {
    let Place { bucket, tag } = table.place(table.hash(key));
    let front = table.front[bucket];
    let of_tag = head_of(front, tag);
    let overflowed = (front & OVERFLOWED != 0).then_some(TAGS);
    let ats = of_tag.into_iter().chain(overflowed).filter(move |_| front >> CLASS_SHIFT >= class.into());
    ats.map(move |at| table.heads[bucket * HEADS + at] >> CLASS_BITS)
}

/// Finds the best rules for one key, lane `lane` of the winners.
pub(super) fn lookup<const W: usize>(
    engine: &Dynamic<W>,
    key: &[u32; W],
    winners: &mut impl Winners,
    lane: usize,
) {
    for t in &engine.order {
        let table = &engine.tables[usize::from(*t)];
        if table.ceiling < winners.class(lane) {
            continue;
        }
        for head in chains(table, key, winners.class(lane)) {
            walk(engine, head, key, winners, lane);
        }
    }
}

/// Compares a key with a chain's rules, best first, as long as they are better than the winner.
pub(super) fn walk<const W: usize>(
    engine: &Dynamic<W>,
    mut link: u32,
    key: &[u32; W],
    winners: &mut impl Winners,
    lane: usize,
) {
    while link != 0 && link & TO_BLOCK == 0 {
        let record = &engine.rules.records[link as usize];
        if record.rank < winners.cutoff(lane) {
            return;
        }
        winners.offer(lane, record.matches(&engine.kinds, key), record.found());
        link = record.next;
    }
    while link != 0 {
        let block = &engine.rules.blocks[(link & !TO_BLOCK) as usize];
        for i in 0..block.len as usize {
            if block.ranks[i] < winners.cutoff(lane) {
                return;
            }
            winners.offer(lane, condition(block, i).matches(&engine.kinds, key), block.found(i));
        }
        link = block.next;
    }
}

/// The condition of a rule in a block.
pub(super) fn condition<const W: usize>(block: &Block<W>, i: usize) -> Condition<W> {
    Condition {
        low: std::array::from_fn(|w| block.low[w][i]),
        high: std::array::from_fn(|w| block.high[w][i]),
    }
}

/// Returns the halves of a word of this kind: shift, width in bits.
pub(super) fn parts(kind: WordKind) -> &'static [(u32, u32)] {
    match kind {
        WordKind::Range16 => &[(0, 16), (16, 16)],
        _ => &[(0, 32)],
    }
}
