//! The machine of a measurement: CPU, caches, date.

use std::time::SystemTime;

use flowlane::isa::{self, Variant};
use serde::Serialize;

/// A cache of the CPU.
#[derive(Clone, Debug, Serialize)]
pub struct Cache {
    /// The level; 1 is nearest to the core.
    pub level: u8,
    /// The contents: data, instructions, or both (`cache`).
    pub kind: &'static str,
    /// The size.
    pub bytes: usize,
}

/// The machine of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The CPU's brand, family, model and stepping.
    pub cpu: String,
    /// The architecture of the binary.
    pub architecture: &'static str,
    /// The number of cores that this process may use.
    pub cores: usize,
    /// The CPU's caches.
    pub caches: Vec<Cache>,
    /// The available SIMD variants.
    pub variants: Vec<&'static str>,
    /// The width cap.
    pub max_simd_bits: u16,
    /// The operating system and its version, if known.
    pub system: String,
}

impl Machine {
    /// Describes the current machine.
    pub fn here() -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: cpu(),
            architecture: std::env::consts::ARCH,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            caches: caches(),
            variants: Variant::ALL.into_iter().filter(|v| v.available()).map(Variant::name).collect(),
            max_simd_bits: isa::max_simd().bits(),
            system: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
        }
    }

    /// Returns the size of the data cache of a level, or a usual size if the CPU does not report it.
    pub fn cache_bytes(&self, level: u8) -> usize {
        let found = self.caches.iter().find(|c| c.level == level && c.kind != "instructions");
        found.map_or([32 << 10, 1 << 20, 32 << 20][usize::from(level.clamp(1, 3)) - 1], |c| c.bytes)
    }

    /// Describes the machine in one line.
    pub fn line(&self) -> String {
        let caches = self.caches.iter().filter(|c| c.kind != "instructions");
        let caches: Vec<String> = caches.map(|c| format!("L{} {}", c.level, bytes(c.bytes as u64))).collect();
        let cpu = if self.cpu.is_empty() { self.architecture } else { &self.cpu };
        format!(
            "{cpu}; {}; {} cores; {}; {}",
            caches.join(", "),
            self.cores,
            self.variants.join(" "),
            self.system
        )
    }
}

/// Returns the CPU's brand; empty if unknown.
#[cfg(target_arch = "x86_64")]
pub fn cpu() -> String {
    let id = raw_cpuid::CpuId::new();
    let brand = id.get_processor_brand_string().map_or(String::new(), |b| b.as_str().trim().to_owned());
    let model = id.get_feature_info().map_or(String::new(), |f| {
        format!(" (family {}, model {}, stepping {})", f.family_id(), f.model_id(), f.stepping_id())
    });
    brand + &model
}

/// Returns the CPU's caches; empty if unknown.
#[cfg(target_arch = "x86_64")]
pub fn caches() -> Vec<Cache> {
    use raw_cpuid::{CacheType, CpuId};
    let caches = CpuId::new().get_cache_parameters().into_iter().flatten().map(|c| Cache {
        level: c.level(),
        kind: match c.cache_type() {
            CacheType::Data => "data",
            CacheType::Instruction => "instructions",
            _ => "cache",
        },
        bytes: c.sets() * c.associativity() * c.physical_line_partitions() * c.coherency_line_size(),
    });
    caches.collect()
}

/// Returns the CPU's brand; empty if unknown.
#[cfg(not(target_arch = "x86_64"))]
pub fn cpu() -> String {
    String::new()
}

/// Returns the CPU's caches; empty if unknown.
#[cfg(not(target_arch = "x86_64"))]
pub fn caches() -> Vec<Cache> {
    Vec::new()
}

/// Formats a size in the largest unit that leaves a number of at least 1.
pub fn bytes(n: u64) -> String {
    let scaled = |unit: u64, name: &str| {
        let value = n as f64 / unit as f64;
        if n.is_multiple_of(unit) { format!("{value:.0} {name}") } else { format!("{value:.1} {name}") }
    };
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => scaled(1024, "KiB"),
        _ => scaled(1_048_576, "MiB"),
    }
}

/// Returns the current time in UTC in the format of RFC 3339.
pub fn date() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_short_where_they_are_round() {
        assert_eq!([bytes(512), bytes(16 << 10), bytes(48 << 20)], ["512 B", "16 KiB", "48 MiB"]);
        assert_eq!(bytes(1536), "1.5 KiB");
    }
}
