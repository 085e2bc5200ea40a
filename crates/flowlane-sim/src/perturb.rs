//! Perturbations: machines that differ from another in one respect. Parts are made ideal, to find bottlenecks; numbers
//! are halved and doubled, and choices switched, to find the numbers on which a result depends.
//!
//! The lists are data: `perturbations.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use toml::{Table, Value};

use crate::config::{self, Approach, ConfigError, MachineConfig, set, value};

/// A part of the machine that can be made ideal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    pub name: String,
    /// The part in plain words.
    pub plain: String,
    /// The part of which this is a realisable setting.
    pub of: Option<String>,
    concerns: Vec<String>,
    ideal: BTreeMap<String, Value>,
    /// The observations of a run, with their names in braces.
    pub evidence: String,
}

/// Numbers that are halved and doubled together, or a choice that is switched.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    pub name: String,
    keys: Vec<String>,
    #[serde(default)]
    choices: Vec<Value>,
}

/// The lists of perturbations.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lists {
    #[serde(rename = "part")]
    pub parts: Vec<Part>,
    #[serde(rename = "parameter")]
    pub parameters: Vec<Parameter>,
}

/// The lists of `perturbations.toml`.
pub static LISTS: LazyLock<Lists> =
    LazyLock::new(|| toml::from_str(include_str!("../perturbations.toml")).expect("the lists are tested"));

/// The new value of a key.
#[derive(Clone, Debug)]
pub enum Change {
    /// A share of the old one in percent; no number above zero becomes zero.
    Percent(i64),
    /// A value; the name of a key is that key's value.
    To(Value),
}

/// Returns the number at a key (`section.key`) of a machine; `None` if there is none.
pub fn number(machine: &MachineConfig, path: &str) -> Option<u64> {
    config::number(&machine.table(), path)
}

/// Returns the machine with some keys (`section.key`) changed.
///
/// # Errors
/// Returns an error if a key is unknown, a value has the wrong type, or the machine is inconsistent.
pub fn changed<'a>(
    machine: &MachineConfig,
    changes: impl IntoIterator<Item = (&'a str, Change)>,
) -> Result<MachineConfig, ConfigError> {
    let old = machine.table();
    let mut new = Table::new();
    for (path, change) in changes {
        let to = match change {
            Change::To(Value::String(name)) => value(&old, &name).cloned().unwrap_or(Value::String(name)),
            Change::To(value) => value,
            Change::Percent(percent) => {
                let old = value(&old, path).and_then(Value::as_integer).unwrap_or(0);
                Value::Integer((old * percent / 100).max(old.min(1)))
            }
        };
        set(&mut new, path, to)?;
    }
    machine.changed(&new)
}

impl Part {
    /// Returns whether an approach uses the part.
    pub fn concerns(&self, approach: Approach) -> bool {
        use Approach::{Avx512, Bulk, HaloBlocking, HaloNonBlocking, Scalar, Software};
        self.concerns.iter().any(|name| match name.as_str() {
            "cores" => matches!(approach, Software | Scalar | Bulk | Avx512),
            "accelerators" => matches!(approach, HaloBlocking | HaloNonBlocking),
            name => name == approach.name(),
        })
    }

    /// Returns the machine with the part ideal; `None` if it is the same machine.
    pub fn idealised(&self, machine: &MachineConfig) -> Option<MachineConfig> {
        let changes = self.ideal.iter().map(|(key, value)| (key.as_str(), Change::To(value.clone())));
        changed(machine, changes).ok().filter(|ideal| ideal != machine)
    }
}

/// Returns the machine with keys that are changed together, for each of several named changes; those that are
/// impossible are left out.
pub fn varied<K: AsRef<str>>(
    machine: &MachineConfig,
    keys: &[K],
    settings: impl IntoIterator<Item = (String, Change)>,
) -> Vec<(String, MachineConfig)> {
    let one = |(name, change): (String, Change)| {
        let changes = keys.iter().map(|key| (key.as_ref(), change.clone()));
        Some((name, changed(machine, changes).ok()?))
    };
    settings.into_iter().filter_map(one).collect()
}

/// A machine with one parameter varied.
#[derive(Clone, Debug)]
pub struct Variation {
    pub parameter: &'static str,
    /// The new setting.
    pub setting: String,
    pub machine: MachineConfig,
}

/// Returns every machine with one parameter halved, doubled or switched.
pub fn variations(machine: &MachineConfig) -> Vec<Variation> {
    let of = |parameter: &'static Parameter| {
        let name = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut settings: Vec<(String, Change)> =
            parameter.choices.iter().map(|value| (name(value), Change::To(value.clone()))).collect();
        if settings.is_empty() {
            settings =
                [("half", 50), ("double", 200)].map(|(n, p)| (n.to_owned(), Change::Percent(p))).into();
        }
        let others = varied(machine, &parameter.keys, settings).into_iter().filter(|(_, m)| m != machine);
        others.map(|(setting, machine)| Variation { parameter: &parameter.name, setting, machine })
    };
    LISTS.parameters.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Preset;

    #[test]
    fn every_parameter_changes_the_machine_and_every_variation_can_be() {
        for preset in Preset::ALL {
            let machine = preset.machine();
            let all = variations(&machine);
            for Parameter { name, .. } in &LISTS.parameters {
                let of = all.iter().filter(|v| v.parameter == name);
                // The paper's core knows all pages, and twice zero is zero.
                let nothing = name.contains("tlb_miss") && machine.core.tlb_miss_cycles == 0;
                assert!(nothing || (1..=2).contains(&of.count()), "{preset}: {name}");
            }
            for (n, one) in all.iter().enumerate() {
                let same = |other: &Variation| other.machine == one.machine;
                assert!(!all[n + 1..].iter().any(same), "{} {}", one.parameter, one.setting);
            }
        }
    }

    #[test]
    fn every_part_can_be_ideal_and_concerns_an_approach() {
        let machine = Preset::SkylakeSp.machine();
        for part in &LISTS.parts {
            let concerned = Approach::ALL.iter().filter(|approach| part.concerns(**approach));
            assert!(concerned.count() >= part.concerns.len(), "{}", part.name);
            let of = |of: &String| LISTS.parts.iter().any(|whole| whole.name == *of);
            assert!(part.of.as_ref().is_none_or(of), "{}", part.name);
            let changes = part.ideal.iter().map(|(key, value)| (key.as_str(), Change::To(value.clone())));
            changed(&machine, changes).unwrap_or_else(|error| panic!("{}: {error}", part.name));
        }
    }

    #[test]
    fn a_change_is_a_value_a_share_or_another_key() {
        let machine = Preset::Paper.machine();
        let with = |change| changed(&machine, [("core.scheduler_entries", change)]);
        assert_eq!(with(Change::Percent(50)).unwrap().core.scheduler_entries, 96);
        assert_eq!(with(Change::To("core.load_queue_entries".into())).unwrap().core.scheduler_entries, 128);
        assert!(with(Change::To(1.into())).unwrap_err().message.contains("scheduler_entries = 1"));
        assert!(changed(&machine, [("core.widht", Change::To(1.into()))]).is_err());
        let ways = |percent| changed(&machine, [("accelerator.in_flight_queries", Change::Percent(percent))]);
        assert_eq!(ways(50).unwrap(), machine);
    }
}
