//! Ranks in classes: a lookup that has a winner asks of a whole bucket in seven bits whether it can have a better one.

/// Number of classes: what seven bits hold.
pub(super) const CLASSES: usize = 128;

/// Classes that share the ranks evenly; the others halve the highest share again and again, since most winners are
/// there.
const EVEN: usize = 112;

/// The map from ranks to classes. It never decreases, so that a rule of a lower class is of a lower rank.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    /// The lowest ranks of the classes 1 and above, ascending.
    lowest: [u64; CLASSES - 1],
}

impl Classes {
    /// Classes for these ranks, ascending; others will do, less well.
    pub(super) fn of_ranks(ranks: &[u64]) -> Self {
        let at = |i: usize| match i < EVEN {
            true => (i + 1) * ranks.len() / (EVEN + 1),
            false => ranks.len() - ((ranks.len() / (EVEN + 1)) >> (i + 1 - EVEN)).min(ranks.len()),
        };
        Self { lowest: std::array::from_fn(|i| ranks.get(at(i)).copied().unwrap_or(u64::MAX)) }
    }

    /// The class of a rank.
    #[inline]
    pub(super) fn of(&self, rank: u64) -> u8 {
        // A search of seven steps without branches: where ranks come in no order, they cannot be predicted.
        let mut class = 0;
        for step in [64, 32, 16, 8, 4, 2, 1] {
            class += if self.lowest[class + step - 1] <= rank { step } else { 0 };
        }
        class as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_never_decrease_with_the_rank_and_are_all_in_use() {
        for count in [0, 1, 5, 127, 1000, 100_000] {
            let ranks: Vec<u64> = (0..count).map(|r| r * 3 + 1).collect();
            let classes = Classes::of_ranks(&ranks);
            assert!(classes.lowest.is_sorted());
            let of: Vec<u8> = ranks.iter().map(|r| classes.of(*r)).collect();
            assert!(of.is_sorted());
            for (rank, class) in ranks.iter().zip(&of) {
                assert_eq!(usize::from(*class), classes.lowest.partition_point(|l| l <= rank));
            }
            let distinct = of.chunk_by(|a, b| a == b).count();
            assert!(count < 10_000 || distinct > 115, "{count}: {distinct}");
        }
    }
}
