//! Cuckoo tables.

use std::hint::black_box;

use super::contest::{Measuring, Workload};
use super::{Outcome, one_contest, table_bytes};
use crate::cuckoo::{BATCH_MAX, CuckooConfig, CuckooWriter};
use crate::dispatch::{KernelSlot, SizeClass};
use crate::generate::Random;
use crate::isa::Variant;

/// IPv4 addresses, ports and protocol.
const WORDS: usize = 4;
const KEYS: usize = 1 << 12;
/// An entry of 4 words, its slot, and the empty slots: a little more than they take.
const ENTRY_BYTES: usize = 64;

struct Looking {
    table: CuckooWriter<WORDS>,
    entries: u64,
    random: Random,
    keys: Vec<[u32; WORDS]>,
}

/// Which key that is: of those below the number of entries all are in.
fn key(number: u64) -> [u32; WORDS] {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [number as u32, (mixed >> 32) as u32, mixed as u32, 6]
}

impl Workload for Looking {
    type Entrant = Variant;

    fn prepare(&mut self, variant: &Variant) {
        assert!(self.table.set_variant(*variant), "{variant} is available");
        for at in &mut self.keys {
            *at = key(self.random.below(self.entries * 4 / 3));
        }
    }

    fn run(&mut self, _: &Variant) {
        let mut values = [0; BATCH_MAX];
        for keys in self.keys.chunks(BATCH_MAX) {
            black_box(self.table.lookup_batch(keys, &mut values));
            black_box(&values);
        }
    }
}

pub(super) fn measure(measuring: &mut Measuring<'_>, size: SizeClass) -> Outcome {
    let entries = (table_bytes(size, measuring.table_bytes_max) / ENTRY_BYTES).max(16);
    let mut table = CuckooWriter::new(&CuckooConfig::new(entries, 0x5eed));
    for number in 0..entries as u64 {
        // Where a key finds no place it is looked up in vain, as some are to be.
        let _ = table.insert(&key(number), number as u32);
    }
    let variants: Vec<Variant> = Variant::ALL.into_iter().filter(|v| v.available()).collect();
    let bytes = table.table_bytes() as u64;
    let random = Random::for_purpose(1, "tune: cuckoo");
    let mut work = Looking { table, entries: entries as u64, random, keys: vec![[0; WORDS]; KEYS] };
    one_contest(measuring, KernelSlot::Cuckoo(size), Some(bytes), KEYS as u64, &variants, &mut work)
}
