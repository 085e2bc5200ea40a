//! Tests of flowlane-gpu on a machine without a GPU.

mod absence;
mod classifier;
mod faults;
mod host_device;
mod kernels;
mod manifest;
#[cfg(feature = "opencl")]
mod opencl;
