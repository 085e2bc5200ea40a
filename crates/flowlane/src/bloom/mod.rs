#![doc = include_str!("README.md")]

mod batch;
mod bits;
mod blocked;
mod error;
mod filter;
mod kernel;
mod scalar;

// What kernels are made of, here and in `flowlane-paper`.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
pub mod avx512;
#[cfg(target_arch = "x86_64")]
mod contains;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod staged;
#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use bits::{Bits, HASHES_MAX};
pub use blocked::{BlockedBloomFilter, BlockedKernel, BlockedKernelError};
pub use error::BloomError;
pub use filter::BloomFilter;
pub use kernel::{Algorithm, BloomKernel, BloomKernelError, UNROLLS};
