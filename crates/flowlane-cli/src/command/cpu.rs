//! `flowlane cpu`: prints the machine's CPU, devices and usable variants.

use std::path::Path;

use flowlane::isa::{self, Variant};
use flowlane_bench::machine::{self, Cache};
use flowlane_gpu::DeviceProperties;
use serde::Serialize;

use crate::arguments::CpuOptions;
use crate::command::tune::{InUse, choices_in_use, choices_text};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::tuning;

#[derive(Serialize)]
struct Machine {
    architecture: &'static str,
    cpu: String,
    cores: usize,
    max_simd_bits: u16,
    variants: Vec<VariantState>,
    extensions: Vec<&'static str>,
    caches: Vec<Cache>,
    devices: Vec<Gpu>,
    /// Reason why no CUDA device is usable.
    no_devices: Option<String>,
    /// CPUs available through OpenCL.
    opencl: Vec<ClCpu>,
    /// Reason why no OpenCL device is usable.
    no_opencl: Option<String>,
    choices_from: String,
    choices: Vec<InUse>,
}

#[derive(Clone, Serialize)]
struct VariantState {
    name: &'static str,
    width_bits: u16,
    /// Supported by the CPU.
    detected: bool,
    /// Supported, and allowed by the SIMD width cap.
    available: bool,
}

/// A CUDA device.
#[derive(Serialize)]
struct Gpu {
    ordinal: usize,
    name: String,
    compute_capability: String,
    multiprocessors: usize,
    clock_mhz: usize,
    memory_bytes: usize,
    l2_bytes: usize,
    shared_bytes_max: usize,
}

impl From<DeviceProperties> for Gpu {
    fn from(of: DeviceProperties) -> Self {
        Self {
            ordinal: of.ordinal,
            name: of.name,
            compute_capability: format!("{}.{}", of.capability.0, of.capability.1),
            multiprocessors: of.multiprocessors,
            clock_mhz: of.clock_khz / 1000,
            memory_bytes: of.memory_bytes,
            l2_bytes: of.l2_bytes,
            shared_bytes_max: of.shared_bytes_max,
        }
    }
}

/// A CPU available through OpenCL.
#[derive(Serialize)]
struct ClCpu {
    ordinal: usize,
    name: String,
    platform: String,
    cores: usize,
    memory_bytes: usize,
    local_bytes: usize,
}

#[cfg(feature = "opencl")]
fn opencl() -> Result<Vec<ClCpu>, String> {
    let cpus = flowlane_paper::opencl::all().map_err(|error| error.to_string())?;
    let cpu = |of: flowlane_paper::opencl::ClProperties| ClCpu {
        ordinal: of.ordinal,
        name: of.name,
        platform: of.platform,
        cores: of.cores,
        memory_bytes: of.memory_bytes,
        local_bytes: of.local_bytes,
    };
    Ok(cpus.into_iter().map(cpu).collect())
}

#[cfg(not(feature = "opencl"))]
fn opencl() -> Result<Vec<ClCpu>, String> {
    Err("this program is built without the feature `opencl`".to_owned())
}

/// Splits a result into the devices and the reason for their absence.
fn found<T>(devices: Result<Vec<T>, String>) -> (Vec<T>, Option<String>) {
    match devices {
        Ok(devices) => (devices, None),
        Err(why) => (Vec::new(), Some(why)),
    }
}

/// Runs the command. `tune` is the kernel selection file, if given.
pub(crate) fn run(options: &CpuOptions, tune: Option<&Path>) -> Result<(), Failure> {
    let origin = tuning::load(tune)?;
    let cuda = flowlane_gpu::device::all().map(|devices| devices.into_iter().map(Gpu::from).collect());
    let (devices, no_devices) = found(cuda.map_err(|error| error.to_string()));
    let (opencl, no_opencl) = found(opencl());
    let machine = Machine {
        devices,
        no_devices,
        opencl,
        no_opencl,
        architecture: std::env::consts::ARCH,
        cpu: machine::cpu(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        max_simd_bits: isa::max_simd().bits(),
        variants: Variant::ALL
            .map(|v| VariantState {
                name: v.name(),
                width_bits: v.width_bits(),
                detected: v.detected(),
                available: v.available(),
            })
            .to_vec(),
        extensions: extensions(),
        caches: machine::caches(),
        choices_from: origin.text(),
        choices: choices_in_use(),
    };
    if options.json {
        return output::json(&machine);
    }
    let mut out = Output::create(None)?;
    out.text(&machine.text())?;
    out.text(&choices_text(&machine.choices, &origin))?;
    out.finish()
}

impl Machine {
    fn text(&self) -> String {
        let mut rows = vec![
            vec!["CPU".to_owned(), self.cpu.clone()],
            vec!["architecture".to_owned(), self.architecture.to_owned()],
            vec!["cores".to_owned(), self.cores.to_string()],
            vec!["SIMD width cap".to_owned(), format!("{} bits", self.max_simd_bits)],
        ];
        for cache in &self.caches {
            rows.push(vec![format!("L{} {}", cache.level, cache.kind), output::bytes(cache.bytes as u64)]);
        }
        for gpu in &self.devices {
            let text = format!(
                "{}, capability {}, {} multiprocessors at {} MHz, {} (L2 {}, shared {} a block)",
                gpu.name,
                gpu.compute_capability,
                gpu.multiprocessors,
                gpu.clock_mhz,
                output::bytes(gpu.memory_bytes as u64),
                output::bytes(gpu.l2_bytes as u64),
                output::bytes(gpu.shared_bytes_max as u64)
            );
            rows.push(vec![format!("CUDA device {}", gpu.ordinal), text]);
        }
        for cpu in &self.opencl {
            let text = format!(
                "{}, {} cores, {} (local {} a group), by {}",
                cpu.name,
                cpu.cores,
                output::bytes(cpu.memory_bytes as u64),
                output::bytes(cpu.local_bytes as u64),
                cpu.platform
            );
            rows.push(vec![format!("OpenCL device {}", cpu.ordinal), text]);
        }
        for (what, why) in [("CUDA devices", &self.no_devices), ("OpenCL devices", &self.no_opencl)] {
            rows.extend(why.as_ref().map(|why| vec![what.to_owned(), format!("none: {why}")]));
        }
        rows.push(vec!["further extensions".to_owned(), self.extensions.join(" ")]);
        let variants: Vec<Vec<String>> = self
            .variants
            .iter()
            .map(|v| {
                let state = match (v.detected, v.available) {
                    (true, true) => "yes",
                    (true, false) => "capped",
                    _ => "no",
                };
                vec![v.name.to_owned(), v.width_bits.to_string(), state.to_owned()]
            })
            .collect();
        output::table("", &["machine", ""], &rows)
            + &output::table("", &["variant", "bits", "usable"], &variants)
    }
}

/// Returns extensions newer than the variants.
fn extensions() -> Vec<&'static str> {
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_mut, reason = "none of another machine's is looked for")
    )]
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! look {
            ($($name:tt)*) => { $(if is_x86_feature_detected!($name) { found.push($name); })* };
        }
        look!("bmi2" "avx512vbmi" "avx512vbmi2" "avx512vnni" "avx512bitalg" "avx512vpopcntdq" "gfni" "vaes"
            "vpclmulqdq");
    }
    found
}
