//! Errors of OpenCL and of rule sets for it.

use flowlane_gpu::GpuError;

/// An error of an OpenCL device or of a rule set for it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClError {
    /// The OpenCL library is missing.
    #[error(
        "no OpenCL: the library libOpenCL.so.1 cannot be loaded ({reason}); install its loader and a driver for the CPU (Debian: ocl-icd-libopencl1 and pocl-opencl-icd), or take another engine"
    )]
    NoOpenCl {
        /// The loader's reason.
        reason: String,
    },
    /// OpenCL has no driver.
    #[error(
        "no OpenCL platform: the library is there, and no driver; install one for the CPU (Debian: pocl-opencl-icd), or take another engine"
    )]
    NoPlatform,
    /// OpenCL has no CPU device.
    #[error(
        "no OpenCL device that is a CPU: {reason}; install a driver for the CPU (Debian: pocl-opencl-icd), or take another engine"
    )]
    NoCpu {
        /// The devices found instead.
        reason: String,
    },
    /// The device has fewer cores than requested.
    #[error("{asked} cores were asked for, and the OpenCL device has 1 to {there}")]
    Cores {
        /// The requested number of cores.
        asked: usize,
        /// The available number of cores.
        there: usize,
    },
    /// A kernel does not compile.
    #[error("{device} does not compile a kernel:\n{log}")]
    Kernel {
        device: String,
        /// The log of the compiler.
        log: String,
    },
    /// The device failed.
    #[error("the OpenCL device failed while {doing}: {reason}")]
    Device {
        /// The operation that failed.
        doing: &'static str,
        /// The driver's reason.
        reason: String,
    },
    /// The rules do not fit, for the same reason as on a CUDA device.
    #[error(transparent)]
    Rules(#[from] GpuError),
}

impl ClError {
    /// Returns whether the machine lacks OpenCL or a CPU driver, so that another engine may be used instead.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::NoOpenCl { .. } | Self::NoPlatform | Self::NoCpu { .. })
    }
}
