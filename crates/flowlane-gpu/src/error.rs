//! Errors of devices and of rule sets for them.

use cudarc::driver::DriverError;

/// An error of a device or of a rule set for it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// The CUDA driver is missing.
    #[error(
        "no CUDA driver: the library libcuda.so.1 cannot be loaded; install NVIDIA's driver, or take an engine for the CPU"
    )]
    NoDriver,
    /// The driver finds no device.
    #[error(
        "no CUDA device: the driver says {reason}; see that nvidia-smi lists one, or take an engine for the CPU"
    )]
    NoDevice {
        /// The driver's reason.
        reason: String,
    },
    /// The driver is older than the kernels.
    #[error(
        "the CUDA driver knows CUDA up to {}.{}, and the kernels need {}.{}; install a newer driver", .version / 1000, .version % 1000 / 10, .needed / 1000, .needed % 1000 / 10
    )]
    OldDriver {
        /// The newest CUDA version of the driver: 1000 × major + 10 × minor.
        version: i32,
        /// The required version, in the same notation.
        needed: i32,
    },
    /// The device is older than the kernels.
    #[error(
        "{name} has compute capability {}.{}, and the kernels need 8.0; take a newer device, or an engine for the CPU", .capability.0, .capability.1
    )]
    OldDevice {
        /// The name of the device.
        name: String,
        /// Its compute capability.
        capability: (i32, i32),
    },
    /// The device has too little memory.
    #[error(
        "{what} needs {needed_bytes} bytes of device memory, and {free_bytes} are free; take fewer rules, or another engine"
    )]
    Memory {
        /// The purpose of the memory.
        what: &'static str,
        /// The required size.
        needed_bytes: usize,
        /// The free size.
        free_bytes: usize,
    },
    /// The ranges expand to too many prefixes.
    #[error(
        "{rules} rules are more than {entries_max} entries once their ranges are prefixes; take an engine for the CPU, which keep ranges, or fewer ranges"
    )]
    Entries {
        /// The number of rules.
        rules: usize,
        /// The limit.
        entries_max: usize,
    },
    /// The rules match on more words of a flow key than the kernels support.
    #[error(
        "the rules look at {words} words of the flow key, and kernels at {words_max}; take an engine for the CPU, or fewer fields"
    )]
    Words {
        /// The number of words.
        words: usize,
        /// The limit.
        words_max: usize,
    },
    /// The rules do not fit their cuckoo tables.
    #[error(
        "rules found no places in cuckoo tables with {tries} sets of hash functions; try again, or another engine"
    )]
    Placement {
        /// The number of sets of hash functions that were tried.
        tries: usize,
    },
    /// The access list on the CPU failed.
    #[error("the rules do not fit the access list on the CPU: {reason}")]
    List {
        /// The error of the list.
        reason: String,
    },
    /// The thread for background rebuilds could not be started.
    #[error(
        "no thread could be started that makes tables for the device: {reason}; allow more threads, or publish changes"
    )]
    Thread {
        /// The system's reason.
        reason: String,
    },
    /// The thread for background rebuilds ended before it built a table.
    #[error(
        "the thread that makes tables for the device has stopped; this is a bug, and another takes its place"
    )]
    Stopped,
    /// The device failed.
    #[error("the device failed while {doing}: {reason}")]
    Device {
        /// The operation that failed.
        doing: &'static str,
        /// The driver's reason.
        reason: String,
    },
}

impl GpuError {
    /// Returns a conversion of the driver's errors for an operation.
    pub(crate) fn of(doing: &'static str) -> impl Fn(DriverError) -> Self {
        move |error| Self::Device { doing, reason: reason(error) }
    }

    /// Returns whether the machine lacks a device or a driver, so that another engine may be used instead.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::NoDriver | Self::NoDevice { .. } | Self::OldDriver { .. } | Self::OldDevice { .. }
        )
    }
}

/// Returns the driver's name of an error.
pub(crate) fn reason(error: DriverError) -> String {
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|_| format!("error {}", error.0 as u32))
}
