#![doc = include_str!("README.md")]

mod batch;
mod blocked;
mod error;
mod filter;
mod kernel;
mod scalar;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod contains;
#[cfg(target_arch = "x86_64")]
mod staged;
#[cfg(test)]
mod tests;

pub use blocked::{BlockedBloomFilter, BlockedKernel, BlockedKernelError};
pub use error::BloomError;
pub use filter::BloomFilter;
pub use kernel::{Algorithm, BloomKernel, BloomKernelError, UNROLLS};
