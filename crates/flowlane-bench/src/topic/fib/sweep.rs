//! A memory sweep that evicts a table from the caches.

use std::hint::black_box;

use flowlane::memory::LINE_BYTES;

use crate::topic::Context;

/// At least so much, and at most; between them twice the last-level cache: of half of it much would stay, most of the table that was
/// read last, or by several contenders.
const BYTES: [usize; 2] = [128 << 20, 1 << 30];
/// The size for quick runs.
const BYTES_QUICK: usize = 1 << 20;

/// The memory to read.
#[derive(Debug)]
pub(super) struct Sweep(Vec<u8>);

impl Sweep {
    pub(super) fn new(context: &Context<'_>) -> Self {
        let [least, most] = BYTES;
        let bytes = (2 * context.machine.cache_bytes(3)).clamp(least, most);
        // Not zeros, for which the system may map a single page.
        Self(vec![1; if context.quick() { BYTES_QUICK } else { bytes }])
    }

    /// Reads a byte of each line.
    pub(super) fn run(&self) {
        black_box(self.0.iter().step_by(LINE_BYTES).map(|byte| u64::from(*black_box(byte))).sum::<u64>());
    }
}
