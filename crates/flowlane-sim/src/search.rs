//! Binary search.

use crate::machine::SimError;

/// Returns the least number from `low` to `high` for which the monotonic `enough` holds; `high` if it holds for none.
pub(crate) fn least(
    mut low: u64,
    mut high: u64,
    mut enough: impl FnMut(u64) -> Result<bool, SimError>,
) -> Result<u64, SimError> {
    while low < high {
        let middle = (low + high) / 2;
        if enough(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_that_is_enough_is_found() {
        for wanted in [0, 1, 7, 99, 100] {
            assert_eq!(least(0, 100, |n| Ok(n >= wanted)), Ok(wanted));
        }
        assert_eq!(least(0, 100, |_| Ok(false)), Ok(100));
    }
}
