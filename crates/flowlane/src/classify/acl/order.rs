//! Sorting by pairs of a number and an index, so that keys of all widths share one sort: the standard library's is long, and compiled
//! once for each closure and width.

/// Returns the indices of these numbers, the greatest first; of equal ones the earlier first.
pub(super) fn descending(numbers: impl Iterator<Item = u64>) -> Vec<u32> {
    places(numbers.map(|number| !number).zip(0..).collect())
}

/// Returns the indices of these numbers, the least first; of equal ones the earlier first.
pub(super) fn ascending(numbers: impl Iterator<Item = u64>) -> Vec<u32> {
    places(numbers.zip(0..).collect())
}

/// Sorts candidates by their cost.
pub(super) fn cheapest_first(candidates: &mut [(f64, u32)]) {
    candidates.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
}

fn places(mut pairs: Vec<(u64, u32)>) -> Vec<u32> {
    pairs.sort_unstable();
    pairs.into_iter().map(|(_, place)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_keep_their_order() {
        let numbers = [3, u64::MAX, 3, 0];
        assert_eq!(descending(numbers.into_iter()), [1, 0, 2, 3]);
        assert_eq!(ascending(numbers.into_iter()), [3, 0, 2, 1]);
    }
}
