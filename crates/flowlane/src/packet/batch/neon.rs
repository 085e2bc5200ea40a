//! Four slots at a time, in portable code: AArch64 has no gathers.

use super::{Column, FlowKey, LANES_MAX, WORDS};

/// Slots that are filled together: a register of words.
pub(super) const TOGETHER: usize = 4;

pub(super) fn fill(keys: &[FlowKey], words: &[u8], lanes: &[u32], columns: &mut [Column]) {
    for (group, lanes) in lanes.as_chunks::<TOGETHER>().0.iter().enumerate() {
        let group = group % (LANES_MAX / TOGETHER);
        let keys = lanes.map(|lane| keys[lane as usize].words());
        for (column, &w) in columns.iter_mut().zip(words) {
            column.as_chunks_mut().0[group] = keys.map(|key| key[usize::from(w) % WORDS]);
        }
    }
}
