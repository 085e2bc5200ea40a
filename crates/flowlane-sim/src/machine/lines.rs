//! Maps keyed by line. They are never iterated, so their order has no influence.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::cache::Line;

/// A multiplicative hash: lines are not secret and not chosen by an attacker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

pub(super) type LineMap<T> = HashMap<Line, T, BuildHasherDefault<LineHasher>>;
