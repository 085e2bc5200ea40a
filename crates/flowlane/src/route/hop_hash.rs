//! How next hops are found in the writers' maps.

use std::hash::{BuildHasherDefault, Hasher};

/// A map's hash by one multiplication: next hops come from the operator, not from attackers.
pub(crate) type ByNextHop = BuildHasherDefault<Multiply>;

#[derive(Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}
