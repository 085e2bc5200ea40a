//! The decision on range filters: a filter pays where signatures leave many wrong candidates; and its word.

use crate::classify::acl::tree::Tree;
use crate::classify::acl::tree::leaf::NONE;
use crate::classify::acl::tree::range_filter::{self, TESTS_MAX};

/// Packets that tell, drawn from as many rules; fewer where those show nothing.
const PACKETS: usize = 512;
const PACKETS_FIRST: usize = 64;

/// Packets for one wrong candidate below which the filter is worth two lines of each block: each costs a record and a comparison
/// that nothing overlaps with.
const WRONG_MIN: f64 = 0.125;

/// Wrong candidates that are looked at for a packet.
const LOOKED_AT_MAX: usize = 32;

/// The word that rules out most wrong candidates, where there are many.
pub(super) fn word<const W: usize>(tree: &Tree<W>) -> Option<usize> {
    if tree.range_filters.len() == TESTS_MAX {
        return None;
    }
    let packets = tree.records.len().min(PACKETS);
    let mut state = 0;
    let (mut wrong, mut ruled_out) = (0, [0usize; W]);
    for i in 0..packets {
        if i == PACKETS_FIRST && wrong == 0 {
            return None;
        }
        // From all over the list at any time.
        let rank = (i as u64 * 0x9e37_79b1 % tree.records.len() as u64) as u32;
        let key = tree.records.condition(rank).drawn(&tree.records.kinds, &mut state);
        let best = tree.best(&key, 0).unwrap_or(NONE);
        for part in 0..tree.parts {
            let candidates = tree.candidates(part, &key).take_while(|rank| *rank < best);
            for rank in candidates.take(LOOKED_AT_MAX) {
                wrong += 1;
                let condition = tree.records.condition(rank);
                for (w, ruled_out) in ruled_out.iter_mut().enumerate() {
                    *ruled_out += usize::from(!condition.word_matches(tree.records.kinds[w], w, key[w]));
                }
            }
        }
    }
    let many = WRONG_MIN * packets as f64;
    let is_tested = |w: &usize| tree.range_filters.iter().any(|test| test.word == *w);
    let testable = (0..W).filter(|w| range_filter::can_be_tested(tree.records.kinds[*w]) && !is_tested(w));
    let best = testable.max_by_key(|w| ruled_out[*w])?;
    (ruled_out[best] as f64 >= many).then_some(best)
}
