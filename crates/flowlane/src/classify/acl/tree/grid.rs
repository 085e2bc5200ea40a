//! Grids: a root that cuts by the bounds of two fields instead of by bits.
//!
//! Bits of a key tell ranges that overlap all around little, and a cut has too few of them for prefixes of all lengths. A grid divides
//! two fields by the bounds of the rules' own ranges, so that each rule is in a rectangle of cells. A rule that covers a cell whole
//! ends its list: no worse rule wins there.

use std::ops::RangeInclusive;

use super::field::Field;
use crate::memory::Memory;

/// A field and the bounds that divide it into classes.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) field: Field,
    /// The binary logarithm of the number of classes.
    pub(super) bits: u32,
    /// The first value of each class, from 0 on. Those behind the last class begin with the highest value of 32 bits.
    pub(super) bounds: Memory<u32>,
}

impl Axis {
    /// Divides a field at these values, ascending: as many classes as that makes, and empty ones up to a power of two.
    pub(super) fn new(field: Field, firsts: &[u32]) -> Self {
        let bits = (firsts.len() + 1).next_power_of_two().ilog2();
        let mut bounds = Memory::zeroed(1 << bits);
        bounds[1..].fill(u32::MAX);
        bounds[1..][..firsts.len()].copy_from_slice(firsts);
        Self { field, bits, bounds }
    }

    /// Returns the class of a value of the field: the definition.
    #[inline(always)]
    pub(super) fn class(&self, value: u32) -> u32 {
        (0..self.bits).rev().fold(0, |at, step| {
            let next = at + (1 << step);
            if self.bounds[next as usize] <= value { next } else { at }
        })
    }

    /// Returns the values of a class.
    pub(super) fn values(&self, class: u32) -> RangeInclusive<u32> {
        let next = self.bounds.get(class as usize + 1);
        self.bounds[class as usize]
            ..=next.map_or(self.field.max, |next| next.wrapping_sub(1).min(self.field.max))
    }

    #[inline(always)]
    pub(super) fn value<const W: usize>(&self, key: &[u32; W]) -> u32 {
        self.field.value(key)
    }
}

/// Cells of two fields.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) axes: [Axis; 2],
}

impl Grid {
    /// Returns the cell of a key.
    #[inline(always)]
    pub(super) fn index<const W: usize>(&self, key: &[u32; W]) -> u32 {
        let [rows, columns] = &self.axes;
        rows.class(rows.value(key)) << columns.bits | columns.class(columns.value(key))
    }

    pub(super) fn cells(&self) -> usize {
        1 << (self.axes[0].bits + self.axes[1].bits)
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.axes.iter().map(|axis| axis.bounds.size_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_a_search_from_the_first_bound_on() {
        let field = Field { word: 0, shift: 0, max: u32::MAX };
        for firsts in
            [vec![], vec![1], vec![5, 9, 0x8000_0000], (1..200).map(|i| 1000 * i).collect(), vec![u32::MAX]]
        {
            let axis = Axis::new(field, &firsts);
            let near = firsts.iter().flat_map(|first| [first - 1, *first, first.saturating_add(1)]);
            for value in near.chain([0, u32::MAX]) {
                let class = axis.class(value);
                assert!(axis.values(class).contains(&value), "{value} in class {class} of {firsts:?}");
                let searched = firsts.partition_point(|first| *first <= value);
                assert!(class as usize == searched || value == u32::MAX, "{value} of {firsts:?}");
            }
        }
    }
}
