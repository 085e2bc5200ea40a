//! Memory that drives a table out of the caches.

use std::hint::black_box;

use flowlane::memory::LINE_BYTES;

/// More than the last-level cache that a few cores share.
const BYTES: usize = 128 << 20;
/// Where little is measured.
const BYTES_QUICK: usize = 1 << 20;

/// Memory to be read.
#[derive(Debug)]
pub(super) struct Sweep(Vec<u8>);

impl Sweep {
    pub(super) fn new(quick: bool) -> Self {
        // Not zeros, which the system may have but one page of.
        Self(vec![1; if quick { BYTES_QUICK } else { BYTES }])
    }

    /// Reads a byte of each line.
    pub(super) fn run(&self) {
        black_box(self.0.iter().step_by(LINE_BYTES).map(|byte| u64::from(*black_box(byte))).sum::<u64>());
    }
}
