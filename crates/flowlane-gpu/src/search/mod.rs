//! Search methods on a device: one file for each kernel.

pub(crate) mod bloom;
pub(crate) mod classes;
mod filtered;
pub(crate) mod linear;
mod pruned;
mod tuple;
mod tuple_table;
mod vector;

use std::fmt;

use cudarc::driver::{CudaSlice, CudaStream, CudaViewMut};
use flowlane::named_enum::{self, Named, UnknownName};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

pub use self::classes::CLASS_RULES_MAX;
use crate::device::Device;
use crate::error::GpuError;
use crate::ternary::TernaryRules;

/// A method to find the best rule on a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Method>)]
pub enum Method {
    /// Linear search over all rules in shared memory (Varvello and others, Algorithm 1).
    #[strum(to_string = "gpu-linear")]
    Linear,
    /// Tuple search: a hash table for each mask, in shared memory (Varvello and others, Algorithm 4).
    #[strum(to_string = "gpu-tuple")]
    Tuple,
    /// Tuple search behind a Bloom filter for each mask (Varvello and others, IV-C).
    #[strum(to_string = "gpu-bloom")]
    Bloom,
    /// Linear search over bit vectors of 1024 rules; ours.
    #[strum(to_string = "gpu-vector")]
    Vector,
    /// Tuple search in one hash table behind one filter in shared memory; ours.
    #[strum(to_string = "gpu-filtered")]
    Filtered,
    /// Tuple search in one hash table, restricted to the classes that two words of a key allow; ours.
    #[strum(to_string = "gpu-pruned")]
    Pruned,
}

impl Named for Method {
    const KIND: &'static str = "GPU engine";
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 6] = named_enum::all();

    /// Returns the name of the engine.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Tuples on the device, and a buffer for their winners.
pub(crate) struct Batch<'a> {
    /// The first words of all tuples, then the second words, and so on.
    pub(crate) tuples: &'a CudaSlice<u32>,
    pub(crate) count: u32,
    /// The standing of the best rule for each tuple; zero before the kernel runs.
    pub(crate) winners: CudaViewMut<'a, u32>,
}

/// Rules on a device, for one method.
pub(crate) trait Search: Send + Sync + fmt::Debug {
    /// Enqueues the kernel for a batch on a stream.
    fn launch(&self, stream: &CudaStream, batch: Batch<'_>) -> Result<(), GpuError>;

    /// Returns the device memory of the table.
    fn table_bytes(&self) -> usize;

    /// Returns the number of masks, for methods that use masks.
    fn classes(&self) -> Option<usize> {
        None
    }
}

/// Builds a table on a device. `seed` is secret.
#[inline(never)]
pub(crate) fn build<const W: usize>(
    device: &Device,
    method: Method,
    rules: &TernaryRules<W>,
    seed: u64,
) -> Result<Box<dyn Search>, GpuError> {
    Ok(match method {
        Method::Linear => Box::new(linear::Linear::build(device, rules)?),
        Method::Tuple => Box::new(tuple::Tuple::build(device, rules, seed)?),
        Method::Bloom => Box::new(bloom::Bloom::build(device, rules, seed)?),
        Method::Vector => Box::new(vector::Vector::build(device, rules)?),
        Method::Filtered => Box::new(filtered::Filtered::build(device, rules, seed)?),
        Method::Pruned => Box::new(pruned::Pruned::build(device, rules, seed)?),
    })
}
