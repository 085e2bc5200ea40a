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
use std::str::FromStr;

use cudarc::driver::{CudaSlice, CudaStream, CudaViewMut};

pub use self::classes::CLASS_RULES_MAX;
use crate::device::Device;
use crate::error::GpuError;
use crate::ternary::TernaryRules;

/// How a device finds the best rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Method {
    /// Every rule, from shared memory (Varvello and others, Algorithm 1).
    Linear,
    /// A hash table for each mask, in shared memory (the same, Algorithm 4).
    Tuple,
    /// The same behind a Bloom filter for each mask (the same, IV-C).
    Bloom,
    /// Every rule, 1024 at a time, as bits of vectors; ours.
    Vector,
    /// One hash table behind one filter in shared memory; ours.
    Filtered,
    /// The same table, asked for the classes that two words of a key leave; ours.
    Pruned,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Linear, Self::Tuple, Self::Bloom, Self::Vector, Self::Filtered, Self::Pruned];

    /// Its name as an engine.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "gpu-linear",
            Self::Tuple => "gpu-tuple",
            Self::Bloom => "gpu-bloom",
            Self::Vector => "gpu-vector",
            Self::Filtered => "gpu-filtered",
            Self::Pruned => "gpu-pruned",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no method of this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no GPU engine `{name}`; there are {}", Method::ALL.map(Method::name).join(", "))]
pub struct UnknownMethod {
    /// What was asked for.
    pub name: String,
}

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        Self::ALL
            .into_iter()
            .find(|m| m.name() == name)
            .ok_or_else(|| UnknownMethod { name: name.to_owned() })
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
