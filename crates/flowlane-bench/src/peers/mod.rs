//! Other implementations of Flowlane's structures, measured in the same run.

#[cfg(feature = "peers")]
mod allocator;
#[cfg(feature = "peers")]
pub(crate) mod bloom;
#[cfg(feature = "peers-dpdk")]
pub(crate) mod dpdk;
#[cfg(feature = "peers-dpdk")]
pub(crate) mod dpdk_fib;
#[cfg(feature = "peers-dpdk")]
pub(crate) mod rte_acl;
