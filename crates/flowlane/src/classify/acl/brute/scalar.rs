//! The definition: compares rule after rule, best first.

use super::Brute;
use crate::classify::acl::MatchId;

pub(super) fn lookup<const W: usize>(
    table: &Brute<W>,
    keys: &[[u32; W]],
    categories: usize,
    verdicts: &mut [MatchId],
) {
    for (key, verdicts) in keys.iter().zip(verdicts.chunks_exact_mut(categories)) {
        let mut open = (1u32 << categories) - 1;
        verdicts.fill(MatchId::NONE);
        for entry in &table.entries {
            let new = open & u32::from(entry.categories);
            if new != 0 && entry.condition.matches(&table.kinds, key) {
                (0..categories)
                    .filter(|c| new >> c & 1 == 1)
                    .for_each(|c| verdicts[c] = MatchId::of(entry.rule));
                open &= !new;
                if open == 0 {
                    break;
                }
            }
        }
    }
}
