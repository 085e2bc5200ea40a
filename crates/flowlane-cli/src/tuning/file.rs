//! The kernel selection file, in TOML.
//!
//! ```toml
//! version = 1
//! flowlane = "0.1.0"
//! date = "2026-11-21T18:20:00Z"
//! max_simd = 512
//!
//! [machine]
//! cpu = "AMD EPYC"
//! …
//!
//! [choices]
//! murmur3 = "avx512"
//! bloom-l1 = "avx512-staged/u8"
//! ```

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use flowlane::isa::{self, cpu::Cpu};
use flowlane::tune::{KernelOverrides, KernelSlot, is_usable};
use flowlane_switch::mgmt::config::ConfigError;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::super::failure::Failure;
use super::super::input::read_text;
use super::super::output::AtomicFile;

/// The version of the format.
const VERSION: u32 = 1;

const MEND: &str = "run `flowlane tune` to rewrite it";

/// Identity of a machine. It includes the microcode, which has slowed gathers down several times before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) vendor: String,
    pub(crate) family: u32,
    pub(crate) model: u32,
    pub(crate) stepping: u32,
    /// Revision from the kernel; empty if unknown.
    pub(crate) microcode: String,
    /// Sizes of the data caches, which determine the size classes.
    pub(crate) cache_bytes: [u64; 3],
}

impl Machine {
    /// Returns the current machine.
    pub(crate) fn this() -> Self {
        let Cpu { vendor, brand, family, model, stepping, cache_bytes } = Cpu::this().clone();
        Self { cpu: brand, vendor, family, model, stepping, microcode: microcode(), cache_bytes }
    }

    /// Describes the difference from the current machine, if any.
    pub(crate) fn differs(&self, this: &Self) -> Option<String> {
        let signature =
            |m: &Self| format!("{} (family {}, model {}, stepping {})", m.cpu, m.family, m.model, m.stepping);
        if signature(self) != signature(this) || self.vendor != this.vendor {
            Some(format!("it was measured on {}; this machine is {}", signature(self), signature(this)))
        } else if self.microcode != this.microcode {
            let (then, now) = (&self.microcode, &this.microcode);
            Some(format!("it was measured with microcode `{then}`; the current one is `{now}`"))
        } else if self.cache_bytes != this.cache_bytes {
            let (then, now) = (self.cache_bytes, this.cache_bytes);
            Some(format!("it was measured with caches of {then:?} bytes; this machine has {now:?}"))
        } else {
            None
        }
    }
}

/// Reads the microcode revision of the CPU.
fn microcode() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("microcode"));
    line.map_or(String::new(), |rest| rest.trim_start_matches(['\t', ' ', ':']).to_owned())
}

/// Contents of the file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Stored {
    version: u32,
    flowlane: String,
    /// Time of the measurement, UTC.
    pub(crate) date: String,
    /// SIMD width cap during the measurement.
    max_simd: u16,
    machine: Machine,
    choices: BTreeMap<String, String>,
}

/// The file as parsed, with spans for error messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    version: Spanned<u32>,
    flowlane: String,
    date: String,
    max_simd: u16,
    machine: Machine,
    choices: BTreeMap<Spanned<String>, Spanned<String>>,
}

impl Stored {
    /// Creates the contents from a measurement of this machine.
    pub(crate) fn new(choices: &KernelOverrides) -> Self {
        let choices = choices.iter().map(|(slot, choice)| (slot.to_string(), choice.to_owned()));
        Self {
            version: VERSION,
            flowlane: env!("CARGO_PKG_VERSION").to_owned(),
            date: flowlane_bench::machine::date(),
            max_simd: isa::max_simd().bits(),
            machine: Machine::this(),
            choices: choices.collect(),
        }
    }

    /// Reads a file; returns `None` if it is empty.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let text = read_text(path)?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        Self::parse(path, text).map(Some).map_err(Failure::from)
    }

    fn parse(path: &Path, text: String) -> Result<Self, ConfigError> {
        let failed = |text: &str, span, message: String| ConfigError {
            file: path.to_owned(),
            text: text.to_owned(),
            span,
            message,
            help: Some(MEND.to_owned()),
            environment: false,
        };
        let raw: Raw = toml::from_str(&text)
            .map_err(|e| failed(&text, e.span(), place(&text, e.span(), e.message())))?;
        if *raw.version.get_ref() != VERSION {
            let message = format!(
                "version {} is not supported; this flowlane reads version {VERSION}",
                raw.version.get_ref()
            );
            return Err(failed(
                &text,
                Some(raw.version.span()),
                place(&text, Some(raw.version.span()), &message),
            ));
        }
        let mut choices = BTreeMap::new();
        for (name, choice) in raw.choices {
            let wrong = |span: std::ops::Range<usize>, message: String| {
                failed(&text, Some(span.clone()), place(&text, Some(span), &message))
            };
            let slot = name.get_ref().parse::<KernelSlot>().map_err(|e| wrong(name.span(), e.to_string()))?;
            is_usable(slot, choice.get_ref()).map_err(|e| wrong(choice.span(), e.to_string()))?;
            choices.insert(name.into_inner(), choice.into_inner());
        }
        let Raw { flowlane, date, max_simd, machine, .. } = raw;
        Ok(Self { version: VERSION, flowlane, date, max_simd, machine, choices })
    }

    /// Returns the machine that was measured.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns the selection as overrides. The names were checked when reading.
    pub(crate) fn choices(&self) -> KernelOverrides {
        let mut choices = KernelOverrides::new();
        for (name, choice) in &self.choices {
            if let Ok(slot) = name.parse() {
                choices.set(slot, choice.as_str());
            }
        }
        choices
    }

    /// Describes the SIMD width cap of the measurement, if there was one.
    pub(crate) fn cap_note(&self) -> String {
        match self.max_simd {
            512 => String::new(),
            bits => format!(" under a cap of {bits} bits"),
        }
    }

    /// Writes the file atomically, creating its directory.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let body = toml::to_string(self).expect("the keys of tables are strings");
        let text =
            format!("# Written by `flowlane tune`: kernel selection measured on this machine.\n{body}");
        let failed = |e: &std::io::Error| Failure::written(path, e);
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|e| failed(&e))?;
        }
        let (file, mut writer) = AtomicFile::create(path)?;
        let written = writer.write_all(text.as_bytes()).and_then(|()| writer.flush());
        written.map_err(|e| failed(&e))?;
        file.commit()
    }
}

/// Prefixes a message with its line number.
fn place(text: &str, span: Option<std::ops::Range<usize>>, message: &str) -> String {
    match span {
        Some(span) => {
            let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
            format!("line {line}: {message}")
        }
        None => message.to_owned(),
    }
}
