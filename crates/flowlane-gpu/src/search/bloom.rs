//! Bloom search: `kernels/bloom.cu`.

use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};
use flowlane::generate::Random;

use super::classes::{Class, ClassTables, Functions, words_of_class};
use super::tuple::block_a_class;
use super::{Batch, Search};
use crate::device::Device;
use crate::error::GpuError;
use crate::ternary::TernaryRules;

/// The filter of a class: 2 KiB as in the paper, less if all classes are small.
const BITS_MIN: u32 = 8;
const BITS_MAX: u32 = 14;
/// Bits for each rule of the largest class, if there is room.
const BITS_A_RULE: usize = 64;
/// The number of functions is the least with a lower false-positive rate, within `FUNCTIONS_MAX`.
const FALSE_POSITIVE_MAX: f64 = 0.001;
const FUNCTIONS_MAX: u32 = 4;

#[derive(Debug)]
pub(super) struct Bloom {
    kernel: CudaFunction,
    tables: CudaSlice<u32>,
    filters: CudaSlice<u32>,
    functions: CudaSlice<u64>,
    class_count: u32,
    filter_bits: u32,
    filter_functions: u32,
    shape: LaunchConfig,
}

/// Returns the logarithm of the filter size and the number of functions for classes of at most `rules_max` rules.
fn shape(rules_max: usize) -> (u32, u32) {
    let bits = (rules_max * BITS_A_RULE).next_power_of_two().ilog2().clamp(BITS_MIN, BITS_MAX);
    let load = rules_max as f64 / f64::from(1u32 << bits);
    let false_positives = |k: u32| (1.0 - (-f64::from(k) * load).exp()).powi(k as i32);
    let functions = (1..FUNCTIONS_MAX).find(|k| false_positives(*k) <= FALSE_POSITIVE_MAX);
    (bits, functions.unwrap_or(FUNCTIONS_MAX))
}

/// Fills the filter of a class.
fn filter<const W: usize>(
    class: &Class<W>,
    functions: &Functions<W>,
    pairs: &[(u32, u32)],
    bits: u32,
) -> Vec<u32> {
    let mut words = vec![0; 1 << (bits - 5)];
    for rule in &class.rules {
        let x = functions.hash(&rule.value);
        for (a, b) in pairs {
            let bit = a.wrapping_mul(x).wrapping_add(*b) >> (32 - bits);
            words[bit as usize / 32] |= 1 << (bit % 32);
        }
    }
    words
}

/// The filters of all classes in the layout of the kernels.
#[derive(Debug)]
pub struct Filters {
    /// The filter words: 2^bits bits for each class.
    pub words: Vec<u32>,
    /// The hash functions of the tables, followed by the pairs of the filters.
    pub functions: Vec<u64>,
    /// The logarithm of the bits of a class.
    pub bits: u32,
    /// The number of bits that each rule sets.
    pub function_count: u32,
}

impl Filters {
    /// Builds and fills filters of the size that the largest class needs.
    #[inline(never)]
    pub fn new<const W: usize>(tables: &ClassTables<W>, seed: u64) -> Self {
        let rules_max = tables.classes.iter().map(|class| class.rules.len()).max().unwrap_or(0);
        let (bits, function_count) = shape(rules_max);
        let mut random = Random::for_purpose(seed, "filters");
        let pair = |_| ((random.bits() as u32) | 1, random.bits() as u32);
        let pairs: Vec<(u32, u32)> = (0..function_count).map(pair).collect();
        let of_class = |class| filter(class, &tables.functions, &pairs, bits);
        let words = tables.classes.iter().flat_map(of_class).collect();
        let mut functions = tables.functions.words();
        functions.extend(pairs.iter().flat_map(|(a, b)| [u64::from(*a), u64::from(*b)]));
        Self { words, functions, bits, function_count }
    }

    /// Returns the filter size of a class.
    pub fn bytes_of_class(&self) -> usize {
        1 << (self.bits - 3)
    }
}

impl Bloom {
    pub(super) fn build<const W: usize>(
        device: &Device,
        rules: &TernaryRules<W>,
        seed: u64,
    ) -> Result<Self, GpuError> {
        let tables = ClassTables::new(rules, seed, |what, bytes| device.reserve(what, bytes))?;
        let filters = Filters::new(&tables, seed);
        let shared_bytes = 4 * words_of_class(W) + filters.bytes_of_class();
        Ok(Self {
            kernel: device.kernel(&format!("bloom_{W}"), shared_bytes)?,
            tables: device.upload("Bloom search", &tables.words)?,
            filters: device.upload("Bloom search", &filters.words)?,
            functions: device.upload("Bloom search", &filters.functions)?,
            class_count: tables.classes.len() as u32,
            filter_bits: filters.bits,
            filter_functions: filters.function_count,
            shape: block_a_class(device, tables.classes.len(), shared_bytes),
        })
    }
}

impl Search for Bloom {
    fn launch(&self, stream: &CudaStream, mut batch: Batch<'_>) -> Result<(), GpuError> {
        let mut launch = stream.launch_builder(&self.kernel);
        launch.arg(&self.tables).arg(&self.class_count).arg(&self.filters);
        launch.arg(&self.filter_bits).arg(&self.filter_functions).arg(&self.functions);
        launch.arg(batch.tuples).arg(&batch.count).arg(&mut batch.winners);
        // SAFETY: the arguments are those of `bloom_W` in their order; `tables` and `filters` hold `class_count` of them and
        // `functions` all functions (`build`), `tuples` and `winners` room for `count` tuples (`Batch`), shared memory
        // one table and one filter.
        unsafe { launch.launch(self.shape) }.map_err(GpuError::of("starting Bloom search"))?;
        Ok(())
    }

    fn table_bytes(&self) -> usize {
        self.tables.num_bytes() + self.filters.num_bytes() + self.functions.num_bytes()
    }

    fn classes(&self) -> Option<usize> {
        Some(self.class_count as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::shape;

    #[test]
    fn filters_follow_the_largest_class() {
        assert_eq!(shape(256), (14, 2), "the paper's: 2 KiB, two functions");
        assert_eq!(shape(1), (8, 2));
        assert_eq!(shape(0).0, 8);
    }
}
