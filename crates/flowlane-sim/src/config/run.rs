//! The configuration of runs: a machine, a workload and lookup approaches; and sweeps over any of their numbers.

use flowlane::named_enum::{self, Named, UnknownName};
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};
use toml::{Table, Value};

use super::{ConfigError, MachineConfig, Preset, hash_of};

/// A lookup approach.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize, Serialize, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Approach>)]
#[serde(rename_all = "kebab-case")]
pub enum Approach {
    /// Sequential software with the instructions of `rte_hash`: the paper's software.
    Software,
    /// Sequential software with the library's scalar kernel.
    Scalar,
    /// Software in batches with prefetches, across the tables of a packet if there are several.
    Bulk,
    /// Software in batches with prefetches and vectors.
    Avx512,
    /// The instruction LOOKUP_B.
    HaloBlocking,
    /// The instructions LOOKUP_NB and SNAPSHOT_READ.
    HaloNonBlocking,
    /// An engine next to the second-level cache, as in QEI.
    NearL2,
    /// A TCAM that holds all rules.
    Tcam,
    /// An SRAM-TCAM that holds all rules.
    SramTcam,
}

impl Named for Approach {
    const KIND: &'static str = "approach";
}

impl Approach {
    /// All approaches.
    pub const ALL: [Self; 9] = named_enum::all();

    /// Returns the name in configurations.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The table that has a packet's key, where there are several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatchingTable {
    /// Every table equally often.
    Uniform,
    /// The last table.
    Last,
}

/// The workload of a run.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkloadSection {
    /// The number of tables: 1 for an exact-match cache, several for tuple search.
    pub tables: u32,
    /// The slots of each table.
    pub entries: u64,
    /// The load in percent of the slots.
    pub load_percent: u64,
    /// The share of lookups that hit, in thousandths.
    pub hit_permille: u64,
    /// The table that has a packet's key, if there are several.
    pub matching: MatchingTable,
    /// The number of distinct keys looked up; 0 for all in the table.
    pub working_set: u64,
    /// Whether the tables are in the shared cache at the beginning.
    pub warm: bool,
    /// The number of changes by another core, one every `update_instructions`; 0 for none.
    pub updates: u64,
    /// Instructions between two changes.
    pub update_instructions: u32,
    /// Instructions of each packet in addition to the lookup.
    pub beside_instructions: u32,
    /// Lines of the packet that are read and written in addition to the lookup.
    pub beside_lines: u32,
}

impl Default for WorkloadSection {
    fn default() -> Self {
        Self {
            tables: 1,
            entries: 16_384,
            load_percent: 75,
            hit_permille: 1000,
            matching: MatchingTable::Uniform,
            working_set: 0,
            warm: true,
            updates: 0,
            update_instructions: 200,
            beside_instructions: 0,
            beside_lines: 0,
        }
    }
}

/// The execution of a run.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSection {
    /// The approaches.
    pub approaches: Vec<Approach>,
    /// The number of counted lookups, or of packets if there are several tables.
    pub lookups: u64,
    /// The number of lookups before the counted ones.
    pub warm_up_lookups: u64,
    /// The number of cores that look up the same tables independently.
    pub cores: u32,
    /// The seed of keys and packets.
    pub seed: u64,
    /// The number of repetitions, each with the next seed: other keys, tables and hashes.
    pub seeds: u32,
    /// The interval of statistics over time; 0 for none.
    pub interval_cycles: u64,
}

impl Default for RunSection {
    fn default() -> Self {
        let approaches =
            vec![Approach::Software, Approach::HaloBlocking, Approach::HaloNonBlocking, Approach::Tcam];
        let (lookups, warm_up_lookups, cores, seed) = (4000, 10_000, 1, 1);
        Self { approaches, lookups, warm_up_lookups, cores, seed, seeds: 1, interval_cycles: 0 }
    }
}

/// The complete configuration of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunConfig {
    /// The preset on which the machine is based.
    pub preset: Preset,
    /// The machine.
    pub machine: MachineConfig,
    /// The workload.
    pub workload: WorkloadSection,
    /// The execution.
    pub run: RunSection,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "paper")]
    preset: String,
    #[serde(default)]
    machine: Table,
    #[serde(default)]
    workload: WorkloadSection,
    #[serde(default)]
    run: RunSection,
    #[expect(
        dead_code,
        reason = "read by `Sweep`, which replaces it by single runs; here only its name must be known"
    )]
    sweep: Option<Value>,
}

fn paper() -> String {
    Preset::Paper.name().to_owned()
}

impl RunConfig {
    /// Returns a default run on a preset's machine.
    pub fn on(preset: Preset) -> Self {
        let (workload, run) = Default::default();
        Self { preset, machine: preset.machine(), workload, run }
    }

    /// Parses a run.
    ///
    /// # Errors
    /// Returns an error if the text is not TOML, has unknown keys, or is inconsistent.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::of(toml::from_str(text).map_err(|e| ConfigError::toml(&e))?, None)
    }

    /// Reads a run on a machine, or on that of its preset.
    fn of(table: Table, machine: Option<&MachineConfig>) -> Result<Self, ConfigError> {
        let file: File = table.try_into().map_err(|e| ConfigError::toml(&e))?;
        let preset: Preset = file.preset.parse()?;
        let machine = match machine {
            Some(machine) => machine.changed(&file.machine)?,
            None => MachineConfig::with(preset, &file.machine)?,
        };
        let config = Self { preset, machine, workload: file.workload, run: file.run };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let (w, r) = (&self.workload, &self.run);
        super::check_bounds([
            ("workload.tables", w.tables.into(), 1, 1024),
            ("workload.entries", w.entries, 1, 1 << 26),
            ("workload.load_percent", w.load_percent, 1, 95),
            ("workload.hit_permille", w.hit_permille, 0, 1000),
            ("run.lookups", r.lookups, 1, 1 << 32),
            ("run.warm_up_lookups", r.warm_up_lookups, 0, 1 << 32),
            ("run.cores", r.cores.into(), 1, self.machine.core.cores.into()),
            ("run.seeds", r.seeds.into(), 1, 1000),
            ("workload.tables times entries", u64::from(w.tables).saturating_mul(w.entries), 1, 1 << 27),
        ])?;
        if w.updates > 0 && r.cores >= self.machine.core.cores {
            let help = "leave a core for them: `run.cores` must be less than `core.cores`";
            return Err(ConfigError::new("`workload.updates` has no core to run on", help));
        }
        if r.approaches.is_empty() {
            return Err(ConfigError::new("`run.approaches` is empty", "name one, such as \"halo-blocking\""));
        }
        Ok(())
    }

    /// Returns all numbers as TOML that [`parse`](Self::parse) accepts.
    pub fn text(&self) -> String {
        #[derive(Serialize)]
        struct Whole<'a> {
            preset: &'a str,
            workload: &'a WorkloadSection,
            run: &'a RunSection,
            machine: &'a MachineConfig,
        }
        let Self { preset, machine, workload, run } = self;
        let whole = Whole { preset: preset.name(), workload, run, machine };
        toml::to_string(&whole).expect("numbers and names")
    }

    /// Returns a hash of all numbers.
    pub fn hash(&self) -> u64 {
        hash_of(&self.text())
    }
}

/// The most runs of a sweep.
const RUNS_MAX: usize = 10_000;

/// The runs of a text: one, or one for each combination of the values in a section `sweep` of lists
/// (`"workload.entries" = [1024, 4096]`). There may be several sections (`[[sweep]]`), each with a `name`.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The values of each run, after the section's name, and the run.
    pub runs: Vec<(Vec<String>, RunConfig)>,
}

impl Sweep {
    /// Parses the runs of a text.
    ///
    /// # Errors
    /// Returns the errors of [`RunConfig::parse`], and an error if a value of `sweep` is not a list or there are more
    /// than 10,000 combinations.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::on(None, text)
    }

    /// Parses the runs of a text whose changes apply to a machine instead of a preset.
    ///
    /// # Errors
    /// Returns the errors of [`parse`](Self::parse).
    pub fn on(machine: Option<&MachineConfig>, text: &str) -> Result<Self, ConfigError> {
        let mut table: Table = toml::from_str(text).map_err(|e| ConfigError::toml(&e))?;
        // Parsed as a whole first, so that errors are about the original text.
        RunConfig::of(table.clone(), machine)?;
        let sections = match table.remove("sweep") {
            None => vec![Value::Table(Table::new())],
            Some(Value::Array(sections)) => sections,
            Some(section) => vec![section],
        };
        let mut runs = Vec::new();
        for section in sections {
            let Value::Table(axes) = section else {
                return Err(ConfigError::new("`sweep` is no section", "begin it with [sweep] or [[sweep]]"));
            };
            for (values, table) in combinations(&table, axes)? {
                runs.push((values, RunConfig::of(table, machine)?));
            }
        }
        Ok(Self { runs })
    }
}

/// Returns a table with every combination of values, and the values as text.
fn combinations(table: &Table, mut axes: Table) -> Result<Vec<(Vec<String>, Table)>, ConfigError> {
    let name = axes.remove("name").map(|name| name.as_str().map_or_else(|| name.to_string(), str::to_owned));
    let mut runs = vec![(name.into_iter().collect::<Vec<_>>(), table.clone())];
    for (path, values) in &axes {
        let Some(values) = values.as_array().filter(|values| !values.is_empty()) else {
            let help = format!("write \"{path}\" = [.., ..]");
            return Err(ConfigError::new(format!("`sweep.\"{path}\"` is no list of values"), help));
        };
        if runs.len() * values.len() > RUNS_MAX {
            return Err(ConfigError::new("the sweep has more than 10,000 runs", "leave values out"));
        }
        let mut next = Vec::with_capacity(runs.len() * values.len());
        for (names, run) in &runs {
            for value in values {
                let (mut names, mut run) = (names.clone(), run.clone());
                // Results name their approaches, and a single value is that of all runs.
                if path != "run.approaches" && values.len() > 1 {
                    names.push(format!("{path} = {value}"));
                }
                set(&mut run, path, value.clone())?;
                next.push((names, run));
            }
        }
        runs = next;
    }
    Ok(runs)
}

/// Returns the value at a key (`section.key`).
pub(crate) fn value<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    let (section, key) = path.split_once('.')?;
    table.get(section)?.get(key)
}

/// Returns the number at a key (`section.key`).
pub(crate) fn number(table: &Table, path: &str) -> Option<u64> {
    value(table, path)?.as_integer().and_then(|n| n.try_into().ok())
}

/// Sets a value by its path.
pub(crate) fn set(table: &mut Table, path: &str, value: Value) -> Result<(), ConfigError> {
    let (sections, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut at = table;
    for section in sections.split('.').filter(|s| !s.is_empty()) {
        let next = at.entry(section).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(next) = next else {
            let help = "paths are such as \"workload.entries\" or \"machine.accelerator.remote\"";
            return Err(ConfigError::new(format!("`{path}`: `{section}` is no section"), help));
        };
        at = next;
    }
    at.insert(key.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_reads_back_as_it_was_written() {
        let run =
            RunConfig::parse("[machine.accelerator]\nremote = \"mesh\"\n[workload]\ntables = 5\n").unwrap();
        assert_eq!(run.workload.tables, 5);
        let again = RunConfig::parse(&run.text()).unwrap();
        assert_eq!((again.hash(), &again), (run.hash(), &run));
        assert_ne!(run.hash(), RunConfig::on(Preset::Paper).hash());
    }

    #[test]
    fn a_sweep_is_every_combination() {
        let text = "[sweep]\n\"workload.entries\" = [64, 128]\n\"machine.core.width\" = [2, 4, 6]\n";
        let runs = Sweep::parse(text).unwrap().runs;
        assert_eq!(runs.len(), 6);
        let seen: Vec<(u64, u32)> =
            runs.iter().map(|(_, r)| (r.workload.entries, r.machine.core.width)).collect();
        assert!(seen.contains(&(128, 4)) && seen.contains(&(64, 6)), "{seen:?}");
        assert!(runs[0].0.iter().any(|name| name.starts_with("workload.entries = ")));
        assert_eq!(Sweep::parse("").unwrap().runs.len(), 1);
        let several =
            "[[sweep]]\nname = \"a\"\n\"workload.entries\" = [64]\n[[sweep]]\n\"run.cores\" = [1, 2]\n";
        let runs = Sweep::parse(several).unwrap().runs;
        assert_eq!(
            runs.iter().map(|(names, _)| names.concat()).collect::<Vec<_>>(),
            ["a", "run.cores = 1", "run.cores = 2"]
        );
        // On another machine than the preset's.
        let mut machine = Preset::SkylakeSp.machine();
        machine.core.rob_entries = 100;
        let runs = Sweep::on(Some(&machine), text).unwrap().runs;
        assert!(
            runs.iter().all(|(_, run)| run.machine.core.rob_entries == 100 && run.machine.core.width < 7)
        );
    }

    #[test]
    fn errors_suggest_the_correct_value() {
        let help = |text: &str| Sweep::parse(text).unwrap_err().help.unwrap();
        assert_eq!(help("[workload]\nentires = 4\n"), "did you mean `entries`?");
        assert_eq!(help("[run]\napproaches = [\"halo-bloking\"]\n"), "did you mean `halo-blocking`?");
        assert_eq!(help("[sweep]\n\"workload.entires\" = [4]\n"), "did you mean `entries`?");
        assert!(Sweep::parse("preset = \"zen\"\n").unwrap_err().message.contains("skylake-sp"));
        assert!(help("[sweep]\n\"run.seed\" = 4\n").contains("[.., ..]"));
        assert!(help("[workload]\nload_percent = 100\n").contains("95"));
    }
}
