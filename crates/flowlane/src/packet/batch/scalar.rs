//! The definition.

use super::{Column, FlowKey};

pub(super) fn fill(keys: &[FlowKey], words: &[u8], lanes: &[u32], columns: &mut [Column]) {
    for (column, &w) in columns.iter_mut().zip(words) {
        for (slot, &lane) in column.iter_mut().zip(lanes) {
            *slot = keys[lane as usize].word(w.into());
        }
    }
}

pub(super) fn keep(slots: u64, column: &mut Column) {
    let mut left = slots;
    for to in 0..slots.count_ones() as usize {
        column[to] = column[left.trailing_zeros() as usize];
        left &= left - 1;
    }
}
