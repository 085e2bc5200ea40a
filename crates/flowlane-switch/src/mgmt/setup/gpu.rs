//! Tables on a device.

use flowlane::classify::AsyncEngine;
use flowlane::classify::acl::AclConfig;
use flowlane_gpu::{Changes, Device, GpuConfig, GpuError, GpuSearch, SessionConfig};

use crate::datapath::Given;
use crate::mgmt::config::{Config, ConfigError, GpuSection, KeyPath, Source, TableEngine};

/// Maximum packets of a batch: at 40 Gbit/s in frames of 64 bytes, what comes in 18 milliseconds.
const BATCH_MAX: usize = 1 << 20;
const SLOTS_MAX: usize = 64;

/// Checks the numbers of the section.
pub(super) fn check(section: &GpuSection, source: &Source) -> Result<(), ConfigError> {
    let between =
        |name: &'static str, value: usize, max: usize, default: usize| match (1..=max).contains(&value) {
            true => Ok(()),
            false => {
                let help = format!("take 1 to {max}; {default} is the default");
                Err(source.error(&KeyPath::of("gpu").key(name), format!("gpu.{name} is {value}"), help))
            }
        };
    let default = GpuSection::default();
    between("batch", section.batch, BATCH_MAX, default.batch)?;
    between("slots", section.slots, SLOTS_MAX, default.slots)
}

/// Opens the device, where a table is on it.
pub(super) fn open(config: &Config, source: &Source) -> Result<Option<Device>, ConfigError> {
    let Some(n) = config.table.iter().position(|table| table.engine == TableEngine::Gpu) else {
        return Ok(None);
    };
    let table = KeyPath::section("table", n);
    Device::open(config.gpu.device).map(Some).map_err(|e| failed(&e, "engine = \"gpu\"", &table, source))
}

/// An error of the device that `table` is on: its rules do not suit a device, or the machine lacks something.
pub(super) fn failed(error: &GpuError, what: &str, table: &KeyPath, source: &Source) -> ConfigError {
    let of_rules = matches!(error, GpuError::Entries { .. } | GpuError::Words { .. } | GpuError::List { .. });
    let error = source.error(&table.key("engine"), format!("{what}: {error}"), "");
    ConfigError { environment: !of_rules, ..error }
}

/// Builds a table of these rules on the device. `list` configures its copy on the CPU.
pub(super) fn table(
    device: &Device,
    section: &GpuSection,
    list: AclConfig,
    rules: &[Given<'_>],
) -> Result<Box<dyn AsyncEngine>, GpuError> {
    let device = device.clone().with_memory_max(list.memory_max);
    let session =
        SessionConfig { batch_max: section.batch, slots: section.slots, ..SessionConfig::default() };
    let config = GpuConfig { method: section.method.0, session, list, changes: Changes::default() };
    Ok(Box::new(GpuSearch::build(device, config, rules.iter().copied(), &[])?))
}
