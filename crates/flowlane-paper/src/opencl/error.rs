//! What can be wrong with an OpenCL, and with rules for it.

use flowlane_gpu::GpuError;

/// Why a CPU does not look up through OpenCL.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClError {
    /// There is no OpenCL.
    #[error(
        "no OpenCL: the library libOpenCL.so.1 cannot be loaded ({reason}); install its loader and a driver for the CPU (Debian: ocl-icd-libopencl1 and pocl-opencl-icd), or take another engine"
    )]
    NoOpenCl {
        /// What loading the library says.
        reason: String,
    },
    /// OpenCL has no driver.
    #[error(
        "no OpenCL platform: the library is there, and no driver; install one for the CPU (Debian: pocl-opencl-icd), or take another engine"
    )]
    NoPlatform,
    /// OpenCL has no CPU.
    #[error(
        "no OpenCL device that is a CPU: {reason}; install a driver for the CPU (Debian: pocl-opencl-icd), or take another engine"
    )]
    NoCpu {
        /// What there is instead.
        reason: String,
    },
    /// A device has not as many cores.
    #[error("{asked} cores were asked for, and the OpenCL device has 1 to {there}")]
    Cores {
        /// How many were asked for.
        asked: usize,
        /// How many there are.
        there: usize,
    },
    /// The driver does not compile a kernel.
    #[error("{device} does not compile a kernel:\n{log}")]
    Kernel {
        device: String,
        /// What its compiler says.
        log: String,
    },
    /// The device failed.
    #[error("the OpenCL device failed while {doing}: {reason}")]
    Device {
        /// What it was to do.
        doing: &'static str,
        /// What the driver says.
        reason: String,
    },
    /// The rules do not fit: what is wrong with them is what would be on a CUDA device.
    #[error(transparent)]
    Rules(#[from] GpuError),
}

impl ClError {
    /// Whether the machine lacks what is needed, so that another engine may do.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::NoOpenCl { .. } | Self::NoPlatform | Self::NoCpu { .. })
    }
}
