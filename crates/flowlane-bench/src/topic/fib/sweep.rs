//! A memory sweep that evicts a table from the caches.

use std::hint::black_box;

use flowlane::memory::LINE_BYTES;

/// More than the last-level cache that a few cores share.
const BYTES: usize = 128 << 20;
/// The size for quick runs.
const BYTES_QUICK: usize = 1 << 20;

/// The memory to read.
#[derive(Debug)]
pub(super) struct Sweep(Vec<u8>);

impl Sweep {
    pub(super) fn new(quick: bool) -> Self {
        // Not zeros, for which the system may map a single page.
        Self(vec![1; if quick { BYTES_QUICK } else { BYTES }])
    }

    /// Reads a byte of each line.
    pub(super) fn run(&self) {
        black_box(self.0.iter().step_by(LINE_BYTES).map(|byte| u64::from(*black_box(byte))).sum::<u64>());
    }
}
