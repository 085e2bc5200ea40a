//! Bloom filters, classic and blocked.

use std::hint::black_box;

use super::contest::{Measuring, Workload};
use super::{Outcome, one_contest, table_bytes};
use crate::bloom::{Algorithm, BlockedBloomFilter, BlockedKernel, BloomFilter, BloomKernel, UNROLLS};
use crate::dispatch::{KernelSlot, SizeClass};
use crate::generate::Random;
use crate::isa::Variant;

/// Keys in a run: enough to show what a table of any class costs, few enough for many rounds.
const KEYS: usize = 1 << 14;
const HASHES: usize = 3;

struct Classic {
    filter: BloomFilter,
    random: Random,
    keys: Vec<u32>,
    payloads: Vec<u32>,
    out: (Vec<u32>, Vec<u32>),
}

impl Workload for Classic {
    type Entrant = BloomKernel;

    fn prepare(&mut self, kernel: &BloomKernel) {
        self.filter.set_kernel(*kernel).expect("is available");
        // Fresh ones: else the words of a large table would come from the cache.
        self.keys.iter_mut().for_each(|key| *key = self.random.bits() as u32);
    }

    fn run(&mut self, _: &BloomKernel) {
        let (keys, payloads) = &mut self.out;
        black_box(self.filter.survivors(&self.keys, &self.payloads, keys, payloads));
    }
}

/// Every algorithm; where several are as fast, the wider comes first.
fn kernels() -> Vec<BloomKernel> {
    let mut kernels = Vec::new();
    for algorithm in Algorithm::ALL.into_iter().rev() {
        for prefetch in [false, true] {
            for unroll in UNROLLS.into_iter().rev() {
                kernels.push(BloomKernel { algorithm, unroll, prefetch });
            }
        }
    }
    // The scalar kernel is unrolled for prefetching only.
    kernels.retain(|k| k.available() && (k.algorithm != Algorithm::Scalar || k.prefetch || k.unroll == 1));
    kernels
}

pub(super) fn classic(measuring: &mut Measuring<'_>, size: SizeClass) -> Outcome {
    let bytes = table_bytes(size, measuring.table_bytes_max);
    let mut random = Random::for_purpose(1, "tune: bloom");
    let mut filter = BloomFilter::with_bits(8 * bytes as u64, HASHES).expect("a size that there is");
    filter.fill_quarter(|| random.bits());
    let mut work = Classic {
        filter,
        random,
        keys: vec![0; KEYS],
        payloads: (0..KEYS as u32).collect(),
        out: (vec![0; KEYS], vec![0; KEYS]),
    };
    one_contest(measuring, KernelSlot::Bloom(size), Some(bytes as u64), KEYS as u64, &kernels(), &mut work)
}

struct Blocked {
    /// Taken out to be given another kernel, and put back.
    filter: Option<BlockedBloomFilter>,
    random: Random,
    keys: Vec<u64>,
    hits: Vec<u64>,
}

impl Workload for Blocked {
    type Entrant = BlockedKernel;

    fn prepare(&mut self, kernel: &BlockedKernel) {
        let filter = self.filter.take().and_then(|f| f.with_variant(kernel.variant));
        self.filter = filter.map(|f| f.with_prefetch(kernel.prefetch));
        self.keys.iter_mut().for_each(|key| *key = self.random.bits());
    }

    fn run(&mut self, _: &BlockedKernel) {
        self.filter.as_ref().expect("is available").contains_batch_u64(&self.keys, &mut self.hits);
        black_box(&self.hits);
    }
}

pub(super) fn blocked(measuring: &mut Measuring<'_>, size: SizeClass) -> Outcome {
    let bytes = table_bytes(size, measuring.table_bytes_max);
    let mut random = Random::for_purpose(1, "tune: blocked bloom");
    let filter = BlockedBloomFilter::with_bits(8 * bytes as u64).expect("a size that there is");
    filter.fill_half(|| random.bits());
    let of = |variant| [false, true].map(|prefetch| BlockedKernel { variant, prefetch });
    let mut kernels: Vec<BlockedKernel> = Variant::ALL.into_iter().flat_map(of).collect();
    // The scalar kernel never prefetches.
    kernels.retain(|k| k.available() && !(k.prefetch && k.variant == Variant::Scalar));
    let mut work = Blocked { filter: Some(filter), random, keys: vec![0; KEYS], hits: vec![0; KEYS / 64] };
    one_contest(
        measuring,
        KernelSlot::BlockedBloom(size),
        Some(bytes as u64),
        KEYS as u64,
        &kernels,
        &mut work,
    )
}
