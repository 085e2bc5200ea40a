//! Hashes of lanes.

use std::hint::black_box;

use super::contest::{Measuring, Workload};
use super::{Outcome, one_contest};
use crate::dispatch::KernelSlot;
use crate::generate::Random;
use crate::hash::crc32c::Crc32c;
use crate::hash::murmur3::Murmur3;
use crate::isa::Variant;

const LANES: usize = 16;
/// Words of most masks of a firewall.
const WORDS: usize = 10;
const BATCHES: usize = 64;

struct Hashing<F> {
    batches: Vec<[[u32; LANES]; WORDS]>,
    hash: F,
}

impl<F: Fn(Variant, &[[u32; LANES]], &mut [u32; LANES])> Workload for Hashing<F> {
    type Entrant = Variant;

    fn prepare(&mut self, _: &Variant) {}

    fn run(&mut self, variant: &Variant) {
        let mut out = [0; LANES];
        for words in &self.batches {
            (self.hash)(*variant, words, &mut out);
            black_box(&out);
        }
    }
}

fn measure(
    measuring: &mut Measuring<'_>,
    slot: KernelSlot,
    exists: impl Fn(Variant) -> bool,
    hash: impl Fn(Variant, &[[u32; LANES]], &mut [u32; LANES]),
) -> Outcome {
    let variants: Vec<Variant> = Variant::ALL.into_iter().filter(|v| exists(*v)).collect();
    let mut random = Random::for_purpose(1, "tune: hash");
    let batch = |_| [[0; LANES]; WORDS].map(|lanes| lanes.map(|_: u32| random.bits() as u32));
    let mut hashing = Hashing { batches: (0..BATCHES).map(batch).collect(), hash };
    one_contest(measuring, slot, None, (LANES * BATCHES) as u64, &variants, &mut hashing)
}

pub(super) fn murmur3(measuring: &mut Measuring<'_>) -> Outcome {
    measure(measuring, KernelSlot::Murmur3, Variant::available, |variant, words, out| {
        Murmur3::with_variant(variant).expect("is available").hash_lanes(words, 7, out);
    })
}

pub(super) fn crc32c(measuring: &mut Measuring<'_>) -> Outcome {
    let exists = |variant| Crc32c::with_variant(variant).is_some();
    measure(measuring, KernelSlot::Crc32c, exists, |variant, words, out| {
        Crc32c::with_variant(variant).expect("is available").hash_lanes(words, 7, out);
    })
}
