//! What can be wrong with a device, and with rules for it.

use cudarc::driver::DriverError;

/// Why a device does not do what it should.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// There is no driver.
    #[error(
        "no CUDA driver: the library libcuda.so.1 cannot be loaded; install NVIDIA's driver, or take an engine for the CPU"
    )]
    NoDriver,
    /// The driver has no device.
    #[error(
        "no CUDA device: the driver says {reason}; see that nvidia-smi lists one, or take an engine for the CPU"
    )]
    NoDevice {
        /// What the driver says.
        reason: String,
    },
    /// The driver is older than the kernels.
    #[error(
        "the CUDA driver knows CUDA up to {}.{}, and the kernels need {}.{}; install a newer driver", .version / 1000, .version % 1000 / 10, .needed / 1000, .needed % 1000 / 10
    )]
    OldDriver {
        /// The newest CUDA that it knows: 1000 × major + 10 × minor.
        version: i32,
        /// What is needed, written alike.
        needed: i32,
    },
    /// The device is older than the kernels.
    #[error(
        "{name} has compute capability {}.{}, and the kernels need 8.0; take a newer device, or an engine for the CPU", .capability.0, .capability.1
    )]
    OldDevice {
        /// The device.
        name: String,
        /// Its compute capability.
        capability: (i32, i32),
    },
    /// Not enough memory on the device.
    #[error(
        "{what} needs {needed_bytes} bytes of device memory, and {free_bytes} are free; take fewer rules, or another engine"
    )]
    Memory {
        /// What it is for.
        what: &'static str,
        /// What it needs.
        needed_bytes: usize,
        /// What there is.
        free_bytes: usize,
    },
    /// Ranges become too many prefixes.
    #[error(
        "{rules} rules are more than {entries_max} entries once their ranges are prefixes; take an engine for the CPU, which keep ranges, or fewer ranges"
    )]
    Entries {
        /// How many rules there are.
        rules: usize,
        /// The limit.
        entries_max: usize,
    },
    /// The rules look at more of a packet than kernels do.
    #[error(
        "the rules look at {words} words of the flow key, and kernels at {words_max}; take an engine for the CPU, or fewer fields"
    )]
    Words {
        /// How many they look at.
        words: usize,
        /// The limit.
        words_max: usize,
    },
    /// Rules found no places in their class tables.
    #[error(
        "rules found no places in cuckoo tables with {tries} sets of hash functions; try again, or another engine"
    )]
    Placement {
        /// How many sets were tried.
        tries: usize,
    },
    /// The access list that stands in for the device.
    #[error("the rules do not fit the access list that stands in for the device: {reason}")]
    List {
        /// What it says.
        reason: String,
    },
    /// No thread could be had for tables that are made in the background.
    #[error(
        "no thread could be started that makes tables for the device: {reason}; allow more threads, or publish changes"
    )]
    Thread {
        /// What the system says.
        reason: String,
    },
    /// The thread that makes tables has ended before it made one.
    #[error(
        "the thread that makes tables for the device has stopped; this is a bug, and another takes its place"
    )]
    Stopped,
    /// The device failed.
    #[error("the device failed while {doing}: {reason}")]
    Device {
        /// What it was to do.
        doing: &'static str,
        /// What the driver says.
        reason: String,
    },
}

impl GpuError {
    /// What the driver says while doing something.
    pub(crate) fn of(doing: &'static str) -> impl Fn(DriverError) -> Self {
        move |error| Self::Device { doing, reason: reason(error) }
    }

    /// Whether the machine lacks what is needed, so that another engine may do.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::NoDriver | Self::NoDevice { .. } | Self::OldDriver { .. } | Self::OldDevice { .. }
        )
    }
}

/// The driver's name for an error.
pub(crate) fn reason(error: DriverError) -> String {
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|_| format!("error {}", error.0 as u32))
}
