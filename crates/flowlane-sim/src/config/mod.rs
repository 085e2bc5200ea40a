//! The simulated machine in numbers: TOML with units in the key names, presets, and a hash that identifies the
//! numbers of a result.

mod accelerator;
mod run;
mod work;

pub use accelerator::{
    AcceleratorConfig, Blocking, Buckets, Dispatch, KeyPlace, LockHold, NearL2Config, Remote, Translation,
};
pub use run::{Approach, MatchingTable, RunConfig, RunSection, Sweep, WorkloadSection};
pub(crate) use run::{number, set, value};
pub use work::{ByWork, Work};

use flowlane::named_enum::{self, Named, UnknownName};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::event::Ps;

/// The configuration of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MachineConfig {
    /// The cores.
    pub core: CoreConfig,
    /// Cycles from the beginning of an operation to its result, apart from loads.
    pub latency: ByWork,
    /// Micro-operations of an operation.
    pub micro_operations: ByWork,
    /// The first-level cache of each core.
    pub l1: PrivateCache,
    /// The second-level cache of each core, which includes the first level.
    pub l2: PrivateCache,
    /// The shared last-level cache.
    pub llc: LlcConfig,
    /// Coherence between private caches.
    pub snoop: SnoopConfig,
    /// The interconnect.
    pub mesh: MeshConfig,
    /// Memory.
    pub dram: DramConfig,
    /// The accelerator next to each slice.
    pub accelerator: AcceleratorConfig,
    /// An engine next to each core's second-level cache.
    pub near_l2: NearL2Config,
    /// Ternary content-addressable memories.
    pub tcam: TcamConfig,
    /// The network interface.
    pub nic: NicConfig,
    /// Instructions of a software lookup apart from reading the table.
    pub software: SoftwareConfig,
}

/// The configuration of the cores.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CoreConfig {
    /// The clock of everything but memory, in MHz.
    pub clock_mhz: u64,
    /// The number of cores, which are on the first tiles.
    pub cores: u32,
    /// The power of a core at work, in milliwatts: its share of the chip's nominal power.
    pub active_mw: u64,
    /// Instructions that enter and leave the window in a cycle.
    pub width: u32,
    /// Instructions in the window.
    pub rob_entries: u32,
    /// Instructions in the window that wait for operands.
    pub scheduler_entries: u32,
    /// Loads in the window.
    pub load_queue_entries: u32,
    /// Stores in the window.
    pub store_queue_entries: u32,
    /// Results in the window that a general register, and a vector register, has room for: registers without those of retired
    /// instructions. Threads share them.
    pub integer_registers: u32,
    pub vector_registers: u32,
    /// How two threads share the window and its queues.
    pub window_sharing: Sharing,
    /// How two threads share the scheduler.
    pub scheduler_sharing: Sharing,
    /// Outstanding misses to the shared cache.
    pub miss_registers: u32,
    /// Cycles from the end of a mispredicted branch to the next instruction.
    pub mispredict_cycles: u64,
    /// Cycles of an instruction without misses, in thousandths.
    pub base_cpi_milli: u64,
    /// The work of each port, which begins one operation a cycle; no limit without ports.
    pub ports: Vec<Vec<Work>>,
    /// Additional cycles of a load whose address has an index.
    pub indexed_load_cycles: u8,
    /// Additional cycles of a load to a vector register.
    pub vector_load_cycles: u8,
    /// Cycles from a store's data to a load of them before they are in the cache.
    pub forward_cycles: u8,
    /// Cycles from a store on the stack to a load of its data, which cores rename.
    pub stack_forward_cycles: u8,
    /// Cycles from the retirement of a store that has only a part of a load's data until the load begins.
    pub blocked_load_cycles: u8,
    /// Dependent instructions that finish in a cycle.
    pub alu_per_cycle: u64,
    /// Huge pages in the first-level TLB, four to a set.
    pub tlb_entries: u32,
    /// Pages of 4 KiB in the first-level TLB.
    pub small_tlb_entries: u32,
    /// The size of huge pages. Tables without a piece of this size are on pages of 4 KiB, as in the library.
    pub page_kib: u64,
    /// The additional latency of a first-level TLB miss that hits the second level.
    pub tlb_miss_cycles: u64,
    /// The cost of a page that the second-level TLB does not know.
    pub walks: Walks,
    /// Pages in the second-level TLB, four to a set.
    pub second_tlb_entries: u32,
    /// Page walks at a time.
    pub walkers: u32,
    /// Page tables below the root that walks may begin at.
    pub walk_cache_entries: u32,
    /// The size of the pages of a host below, if this is a virtual machine; else 0.
    pub nested_page_kib: u64,
}

/// How the two threads of a core share entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Each has a half, whatever the other does.
    Halves,
    /// Each takes what the other leaves.
    Competitive,
}

/// Page walks of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Walks {
    /// The second-level TLB knows every page.
    Free,
    /// Entries of page tables are lines of L2, the shared cache and memory.
    Caches,
}

/// The configuration of a private cache.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PrivateCache {
    /// The size.
    pub size_kib: u64,
    /// The associativity.
    pub ways: u64,
    /// The load-to-use latency.
    pub latency_cycles: u64,
}

/// The configuration of the shared cache.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LlcConfig {
    /// The number of slices, one for each tile.
    pub slices: u32,
    /// The size of a slice.
    pub slice_kib: u64,
    /// The associativity.
    pub ways: u64,
    /// Cycles of a tag lookup.
    pub tag_cycles: u64,
    /// Additional cycles until the data are available.
    pub data_cycles: u64,
    /// Cycles between two requests of a slice.
    pub busy_cycles: u64,
    /// The fill policy.
    pub fill: Fill,
    /// Lines that may be on the way from memory, for cores and accelerators together.
    pub miss_registers: u32,
    /// The owner of that number of miss registers.
    pub miss_registers_per: MissRegisters,
}

impl LlcConfig {
    /// Returns the size of all slices.
    pub fn bytes(&self) -> u64 {
        u64::from(self.slices) * (self.slice_kib << 10)
    }
}

/// The owner of miss registers of the shared cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissRegisters {
    /// All slices together.
    Cache,
    /// Each slice.
    Slice,
    /// Nothing: any number of lines may be on the way.
    Unlimited,
}

/// The fill policy of the shared cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// Lines fetched from memory are allocated.
    Allocate,
    /// A victim cache: it receives the evictions of second-level caches and the lines that accelerators fetch.
    Victim,
}

/// The configuration of coherence.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SnoopConfig {
    /// Cycles until another core's caches respond, without the mesh.
    pub private_cycles: u64,
    /// Cycles until a request that met a locked line is retried.
    pub retry_cycles: u64,
}

/// The configuration of the mesh: tiles in rows and columns, with row-first routing.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MeshConfig {
    /// Tiles in a row.
    pub columns: u32,
    /// Rows.
    pub rows: u32,
    /// Cycles of a hop.
    pub hop_cycles: u64,
    /// Cycles that a flit of 32 bytes occupies a link.
    pub link_busy_cycles: u64,
}

/// The configuration of memory.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DramConfig {
    /// The number of channels.
    pub channels: u32,
    /// The number of banks of a channel.
    pub banks: u32,
    /// The size of a row of a bank.
    pub row_bytes: u64,
    /// Column access time.
    pub cas_ps: Ps,
    /// Row to column delay.
    pub rcd_ps: Ps,
    /// Row precharge time.
    pub rp_ps: Ps,
    /// Transfer time of a line.
    pub burst_ps: Ps,
    /// Latency of the controller.
    pub controller_ps: Ps,
}

/// The configuration of ternary content-addressable memories.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TcamConfig {
    pub lookup_cycles: u64,
    pub sram_lookup_cycles: u64,
    pub attach_cycles: u64,
    pub busy_cycles: u64,
}

/// The configuration of the network interface.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NicConfig {
    /// Ways of the shared cache into which it writes packets (Intel's DDIO); 0 if it writes to memory.
    pub ddio_ways: u64,
    /// Packets of its ring.
    pub ring_packets: u64,
    /// Lines of a packet, of which the first has its header.
    pub packet_lines: u64,
}

/// Instructions of a software lookup apart from reading the table.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SoftwareConfig {
    pub instructions: u32,
    pub loads_permille: u32,
    pub stores_permille: u32,
    pub lock_instructions: u32,
    pub lookups_overlap: bool,
    pub scalar_instructions: u32,
    pub scalar_miss_saves_instructions: u32,
    pub bulk_instructions: u32,
    pub bulk_miss_saves_instructions: u32,
    pub vector_instructions: u32,
    pub vector_miss_saves_instructions: u32,
}

/// An error in a configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    /// The problem.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
}

impl ConfigError {
    pub(crate) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: Some(help.into()) }
    }

    pub(crate) fn toml(error: &toml::de::Error) -> Self {
        let message = error.message().to_owned();
        Self { help: suggest(&message), message }
    }
}

/// Returns the closest of the expected names in serde's "unknown field `a`, expected one of `b`, `c`" (or variant).
fn suggest(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let (unknown, known) = (quoted.next()?, quoted);
    if !message.starts_with("unknown") {
        return None;
    }
    named_enum::nearest(unknown, known).map(|name| format!("did you mean `{name}`?"))
}

/// A built-in machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Preset>)]
pub enum Preset {
    /// The machine of the paper's simulations: gem5, full-system.
    Paper,
    /// The machine of the paper's measurements: a Xeon Platinum 8160, Skylake-SP.
    SkylakeSp,
    /// A complex of eight cores of an EPYC 7003, Zen 3.
    Zen3,
    /// A complex of eight cores of an EPYC 9004, Zen 4.
    Zen4,
    /// A Xeon of the fourth generation, Golden Cove.
    SapphireRapids,
}

impl Named for Preset {
    const KIND: &'static str = "preset";
}

impl From<UnknownName> for ConfigError {
    fn from(error: UnknownName) -> Self {
        Self { message: error.to_string(), help: None }
    }
}

impl Preset {
    /// All presets.
    pub const ALL: [Self; 5] = named_enum::all();

    /// Returns the name on the command line and in configurations.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the preset whose cores are built most like this host's.
    pub fn nearest() -> Self {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        match (cpus.contains("AuthenticAMD"), cpus.contains("avx512f")) {
            (true, true) => Self::Zen4,
            (true, false) => Self::Zen3,
            // What all later cores of Intel's servers have, and none before.
            (false, _) if cpus.contains("amx_tile") || cpus.contains("avx_vnni") => Self::SapphireRapids,
            _ => Self::SkylakeSp,
        }
    }

    /// Returns the preset's file, which states the origin of every number.
    pub fn text(self) -> &'static str {
        match self {
            Self::Paper => include_str!("../../presets/paper.toml"),
            Self::SkylakeSp => include_str!("../../presets/skylake-sp.toml"),
            Self::Zen3 => include_str!("../../presets/zen3.toml"),
            Self::Zen4 => include_str!("../../presets/zen4.toml"),
            Self::SapphireRapids => include_str!("../../presets/sapphire-rapids.toml"),
        }
    }

    /// Returns the machine.
    pub fn machine(self) -> MachineConfig {
        MachineConfig::with(self, &toml::Table::new()).expect("the presets are tested")
    }
}

impl MachineConfig {
    /// Returns a preset with some numbers replaced.
    ///
    /// # Errors
    /// Returns an error if a key is unknown, a value has the wrong type, or the machine is inconsistent.
    pub fn with(preset: Preset, changes: &toml::Table) -> Result<Self, ConfigError> {
        Self::overlaid(toml::from_str(preset.text()).expect("the presets are tested"), changes)
    }

    /// Returns the machine with some numbers replaced.
    ///
    /// # Errors
    /// Returns the errors of [`with`](Self::with).
    pub fn changed(&self, changes: &toml::Table) -> Result<Self, ConfigError> {
        Self::overlaid(self.table(), changes)
    }

    /// Returns all numbers as a table.
    pub(crate) fn table(&self) -> toml::Table {
        toml::Table::try_from(self).expect("numbers and names")
    }

    fn overlaid(mut table: toml::Table, changes: &toml::Table) -> Result<Self, ConfigError> {
        for (section, values) in changes {
            match (table.get_mut(section), values) {
                (Some(toml::Value::Table(known)), toml::Value::Table(new)) => {
                    known.extend(new.iter().map(|(k, v)| (k.clone(), v.clone())));
                }
                _ => {
                    table.insert(section.clone(), values.clone());
                }
            }
        }
        let machine: Self = table.try_into().map_err(|e| ConfigError::toml(&e))?;
        machine.check()?;
        Ok(machine)
    }

    /// Returns all numbers as TOML.
    pub fn text(&self) -> String {
        toml::to_string(self).expect("numbers and names")
    }

    /// Returns a hash of all numbers (FNV-1a of [`text`](Self::text)).
    pub fn hash(&self) -> u64 {
        hash_of(&self.text())
    }

    /// Returns the share of a ring's packets that are still in the shared cache when they are read: the interface goes on to
    /// write the whole ring into its ways.
    pub fn arrives_in_cache(&self) -> f64 {
        let ways = self.llc.bytes() as f64 * self.nic.ddio_ways as f64 / self.llc.ways as f64;
        (ways / (self.nic.ring_packets * self.nic.packet_lines * 64) as f64).min(1.0)
    }

    /// Returns the picoseconds of a cycle.
    pub fn cycle_ps(&self) -> Ps {
        (1_000_000 + self.core.clock_mhz / 2) / self.core.clock_mhz
    }

    /// Returns the machine with the page size of tables whose largest allocation has this many bytes.
    pub fn with_pieces_of(&self, bytes: u64) -> Self {
        let mut machine = self.clone();
        let core = &mut machine.core;
        if bytes < core.page_kib << 10 {
            (core.page_kib, core.tlb_entries) = (4, core.small_tlb_entries);
        }
        machine
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns an error if the machine is inconsistent.
    pub fn check(&self) -> Result<(), ConfigError> {
        let table = self.table();
        let number = |key| number(&table, key).expect("the keys are tested");
        let fixed = BOUNDS.iter().flat_map(|(low, high, keys)| keys.iter().map(|key| (*key, *low, *high)));
        check_bounds(fixed.map(|(key, low, high)| (key, number(key), low, high)))?;
        // No host, or pages of at least 4 KiB.
        let least = if self.core.nested_page_kib == 0 { 0 } else { 4 };
        check_bounds([("core.nested_page_kib", self.core.nested_page_kib, least, 1 << 20)])?;
        let tiles = u64::from((self.mesh.columns * self.mesh.rows).min(64));
        let ways = |kib: u64| (kib * 16).min(64);
        let dependent = [
            ("core.cores", tiles),
            ("llc.slices", tiles),
            ("l1.ways", ways(self.l1.size_kib)),
            ("l2.ways", ways(self.l2.size_kib)),
            ("llc.ways", ways(self.llc.slice_kib)),
            ("accelerator.in_flight_queries", self.accelerator.scoreboard_queries.into()),
        ];
        check_bounds(dependent.map(|(key, high)| (key, number(key), 1, high)))?;
        let most = [
            ("software.lock_instructions", self.software.instructions.into()),
            ("nic.ddio_ways", self.llc.ways),
        ];
        check_bounds(most.map(|(key, high)| (key, number(key), 0, high)))
    }
}

/// The least and the most of numbers that depend on no others, by their keys.
const BOUNDS: [(u64, u64, &[&str]); 24] = [
    (100, 10_000, &["core.clock_mhz"]),
    (1, 16, &["mesh.columns", "mesh.rows"]),
    (1, 32, &["core.width", "core.alu_per_cycle"]),
    (32, 4096, &["core.rob_entries", "core.integer_registers", "core.vector_registers"]),
    (4, 4096, &["core.scheduler_entries", "core.load_queue_entries", "core.store_queue_entries"]),
    (1, 256, &["core.miss_registers"]),
    (0, 1_000_000, &["core.active_mw"]),
    (1, 100_000, &["core.base_cpi_milli", "software.instructions"]),
    (4, 65_536, &["core.tlb_entries", "core.small_tlb_entries"]),
    (4, 1 << 20, &["core.page_kib", "core.second_tlb_entries"]),
    (0, 10_000, &["core.tlb_miss_cycles"]),
    (1, 64, &["core.walkers", "dram.channels"]),
    (1, 1024, &["core.walk_cache_entries", "dram.banks", "accelerator.scoreboard_queries"]),
    (1, 1024, &["accelerator.metadata_tables", "near_l2.in_flight_queries"]),
    (1, 65_536, &["l1.size_kib", "l2.size_kib", "accelerator.tlb_entries"]),
    (1, 1 << 20, &["llc.slice_kib"]),
    (1, 4096, &["llc.miss_registers", "accelerator.flow_register_bits"]),
    (64, 1 << 20, &["dram.row_bytes"]),
    (0, 64, &["accelerator.packets_ahead"]),
    (1, 8, &["accelerator.packets_at_once"]),
    (1, 65_536, &["nic.ring_packets", "nic.packet_lines"]),
    (0, 100_000, &["software.scalar_instructions", "software.scalar_miss_saves_instructions"]),
    (0, 100_000, &["software.bulk_instructions", "software.bulk_miss_saves_instructions"]),
    (0, 100_000, &["software.vector_instructions", "software.vector_miss_saves_instructions"]),
];

/// Returns an error for the first number (name, value, least, most) that is out of range.
fn check_bounds<'a>(rows: impl IntoIterator<Item = (&'a str, u64, u64, u64)>) -> Result<(), ConfigError> {
    match rows.into_iter().find(|(_, value, low, high)| !(low..=high).contains(&value)) {
        None => Ok(()),
        Some((name, value, low, high)) => Err(ConfigError::new(
            format!("`{name} = {value}` is out of range"),
            format!("give a number from {low} to {high}"),
        )),
    }
}

/// Hashes a text with FNV-1a.
pub(crate) fn hash_of(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> toml::Table {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_host_below_has_pages_of_at_least_4_kib() {
        let mut machine = Preset::SkylakeSp.machine();
        for (kib, good) in
            [(0, true), (1, false), (3, false), (4, true), (2048, true), ((1 << 20) + 1, false)]
        {
            machine.core.nested_page_kib = kib;
            assert_eq!(machine.check().is_ok(), good, "{kib}");
        }
    }

    #[test]
    fn presets_are_machines_and_every_number_says_where_it_comes_from() {
        for preset in Preset::ALL {
            preset.machine().check().unwrap();
            for line in preset.text().lines().filter(|l| l.contains(" = ") && !l.starts_with('#')) {
                let origin = line.split_once('#').map_or("", |(_, origin)| origin);
                assert!(
                    ["[P]", "[S]", "[C]", "[H]", "[O]", "[M]"].iter().any(|o| origin.contains(o)),
                    "{preset}: {line}"
                );
            }
            assert_eq!(preset.name().parse(), Ok(preset));
        }
        assert_ne!(Preset::Paper.machine().hash(), Preset::SkylakeSp.machine().hash());
    }

    #[test]
    fn the_effective_configuration_reads_back() {
        let machine = MachineConfig::with(Preset::Paper, &changes("[core]\nwidth = 6\n")).unwrap();
        assert_eq!(machine.core.width, 6);
        let again: MachineConfig = toml::from_str(&machine.text()).unwrap();
        assert_eq!((again.hash(), &again), (machine.hash(), &machine));
        assert_ne!(machine.hash(), Preset::Paper.machine().hash());
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let error = MachineConfig::with(Preset::Paper, &changes("[core]\nwidht = 6\n")).unwrap_err();
        assert_eq!(error.help.as_deref(), Some("did you mean `width`?"));
        let error = MachineConfig::with(Preset::Paper, &changes("[acelerator]\nkey = \"llc\"")).unwrap_err();
        assert_eq!(error.help.as_deref(), Some("did you mean `accelerator`?"));
        let error = MachineConfig::with(Preset::Paper, &changes("[mesh]\nrows = 0\n")).unwrap_err();
        assert!(error.message.contains("mesh.rows = 0"), "{error}");
        let error =
            MachineConfig::with(Preset::Paper, &changes("[accelerator]\nremote = \"msh\"\n")).unwrap_err();
        assert_eq!(error.help.as_deref(), Some("did you mean `mesh`?"));
    }
}
