//! Rule sets on a device: one way to find a rule for each file.

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

/// How a device finds the best rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Method>)]
pub enum Method {
    /// Every rule, from shared memory (Varvello and others, Algorithm 1).
    #[strum(to_string = "gpu-linear")]
    Linear,
    /// A hash table for each mask, in shared memory (the same, Algorithm 4).
    #[strum(to_string = "gpu-tuple")]
    Tuple,
    /// The same behind a Bloom filter for each mask (the same, IV-C).
    #[strum(to_string = "gpu-bloom")]
    Bloom,
    /// Every rule, 1024 at a time, as bits of vectors; ours.
    #[strum(to_string = "gpu-vector")]
    Vector,
    /// One hash table behind one filter in shared memory; ours.
    #[strum(to_string = "gpu-filtered")]
    Filtered,
    /// The same table, asked for the classes that two words of a key leave; ours.
    #[strum(to_string = "gpu-pruned")]
    Pruned,
}

impl Named for Method {
    const KIND: &'static str = "GPU engine";
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 6] = named_enum::all();

    /// Its name as an engine.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Tuples on the device, and room for their winners.
pub(crate) struct Batch<'a> {
    /// The first words of all tuples, then the second, and so on.
    pub(crate) tuples: &'a CudaSlice<u32>,
    pub(crate) count: u32,
    /// The standing of the best rule for each tuple; holds zeros when the kernel begins.
    pub(crate) winners: CudaViewMut<'a, u32>,
}

/// Rules on a device, for one method.
pub(crate) trait Search: Send + Sync + fmt::Debug {
    /// Puts the kernel for a batch onto a stream.
    fn launch(&self, stream: &CudaStream, batch: Batch<'_>) -> Result<(), GpuError>;

    /// Device memory of the table.
    fn table_bytes(&self) -> usize;

    /// Masks, for methods to which they matter.
    fn classes(&self) -> Option<usize> {
        None
    }
}

/// Puts rules onto a device. `seed` is secret.
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
