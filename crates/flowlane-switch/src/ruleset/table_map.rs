//! Tables by their numbers, found without a search; sets of numbers.

/// The position of absent items.
const NONE: u16 = u16::MAX;

/// A map from numbers to items, in their order.
#[derive(Debug)]
pub(crate) struct TableMap<T> {
    /// Number → position.
    places: [u16; 256],
    items: Vec<(u8, T)>,
}

impl<T> Default for TableMap<T> {
    fn default() -> Self {
        Self { places: [NONE; 256], items: Vec::new() }
    }
}

impl<T> TableMap<T> {
    /// Inserts `item`, or replaces the one with this number.
    pub(crate) fn insert(&mut self, number: u8, item: T) {
        if let Some(before) = self.get_mut(number) {
            *before = item;
            return;
        }
        let place = self.items.partition_point(|(n, _)| *n < number);
        self.items.insert(place, (number, item));
        for (place, (number, _)) in (0..).zip(&self.items).skip(place) {
            self.places[usize::from(*number)] = place;
        }
    }

    #[inline]
    pub(crate) fn get(&self, number: u8) -> Option<&T> {
        Some(&self.items.get(usize::from(self.places[usize::from(number)]))?.1)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u8) -> Option<&mut T> {
        Some(&mut self.items.get_mut(usize::from(self.places[usize::from(number)]))?.1)
    }

    pub(crate) fn remove(&mut self, number: u8) {
        self.items.retain(|(n, _)| *n != number);
        self.places = [NONE; 256];
        for (place, (number, _)) in (0..).zip(&self.items) {
            self.places[usize::from(*number)] = place;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Maps the items, keeping the numbers.
    pub(crate) fn map<U>(&self, mut other: impl FnMut(&T) -> U) -> TableMap<U> {
        let items = self.items.iter().map(|(number, item)| (*number, other(item))).collect();
        TableMap { places: self.places, items }
    }

    pub(crate) fn contains(&self, number: u8) -> bool {
        self.get(number).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, &T)> {
        self.items.iter().map(|(number, item)| (*number, item))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u8, &mut T)> {
        self.items.iter_mut().map(|(number, item)| (*number, item))
    }
}

/// A set of tables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableSet([u64; 4]);

impl TableSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    pub(crate) fn add(&mut self, number: u8) {
        self.0[usize::from(number) / 64] |= 1 << (number % 64);
    }

    #[inline]
    pub(crate) fn has(&self, number: u8) -> bool {
        self.0[usize::from(number) / 64] >> (number % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_number_is_found_by_it_and_all_of_it_in_order() {
        let mut things = TableMap::default();
        let mut set = TableSet::default();
        let (mut numbers, mut state) = (Vec::new(), 1u32);
        for round in 0..3000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (state >> 24) as u8;
            things.insert(number, round);
            set.add(number);
            numbers.retain(|n| *n != number);
            numbers.push(number);
            assert_eq!(things.get(number), Some(&round));
        }
        numbers.sort_unstable();
        assert!(things.iter().map(|(n, _)| n).eq(numbers.iter().copied()));
        for number in 0..=255 {
            let there = numbers.contains(&number);
            assert_eq!((things.contains(number), set.has(number)), (there, there));
        }
    }
}
