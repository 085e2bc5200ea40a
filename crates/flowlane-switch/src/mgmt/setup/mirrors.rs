//! The mirrors of a configuration.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::workers;
use crate::mgmt::config::{Config, ConfigError, KeyPath, MirrorSection, Source, TableEngine};
use crate::state::mirror::{
    MIRRORS_MAX, MirrorCounters, MirrorOutput, MirrorSettings, Mirrors, PortSelection,
};
use crate::state::vlan::Vlans;

/// The fewest bytes of a copy: Ethernet's header.
const BYTES_LEAST: u16 = 14;

/// The mirrors in force, and the packets that each has taken.
#[derive(Debug, Default)]
pub(crate) struct LiveMirrors(Mutex<Vec<(MirrorSettings, Arc<MirrorCounters>)>>);

impl LiveMirrors {
    /// Replaces all of them; those that keep their name keep what they have counted. Returns the mirrors for the workers (none where
    /// there are none), and how many are other than before.
    pub(crate) fn replace(&self, wanted: &[MirrorSettings]) -> (Option<Arc<Mirrors>>, usize) {
        let mut live = self.lock();
        let there = |settings: &MirrorSettings| live.iter().find(|(old, _)| old.name == settings.name);
        let counters = |settings: &MirrorSettings| there(settings).map(|(_, counters)| counters.clone());
        let new: Vec<_> = wanted
            .iter()
            .map(|settings| (settings.clone(), counters(settings).unwrap_or_default()))
            .collect();
        let is_same = |settings: &MirrorSettings| there(settings).is_some_and(|(old, _)| old == settings);
        let gone = live.iter().filter(|(old, _)| wanted.iter().all(|settings| settings.name != old.name));
        let changed = wanted.iter().filter(|settings| !is_same(settings)).count() + gone.count();
        *live = new;
        ((!live.is_empty()).then(|| Arc::new(Mirrors::new(live.iter().cloned()))), changed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(MirrorSettings, Arc<MirrorCounters>)>> {
        // It is whole between two changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the mirrors of a configuration.
pub(super) fn read(config: &Config, source: &Source) -> Result<Vec<MirrorSettings>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut mirrors = Vec::new();
    for (n, section) in config.mirror.iter().enumerate() {
        let at = KeyPath::section("mirror", n);
        if n == MIRRORS_MAX {
            let message = format!("there are more than {MIRRORS_MAX} mirrors");
            return Err(source.error(&at, message, "let one mirror take the packets of several ports"));
        }
        let name = section.name.clone().unwrap_or_else(|| format!("mirror{n}"));
        if !names.insert(name.clone()) {
            let message = format!("two mirrors are called `{name}`");
            return Err(source.error(&at.key("name"), message, "give each its own name"));
        }
        mirrors.push(one(name, section, config, &at, source)?);
    }
    if !mirrors.is_empty() {
        check_stages(config, source)?;
    }
    Ok(mirrors)
}

/// Checks that a packet stays with its worker: the mirrors that have a copy of it are noted there.
fn check_stages(config: &Config, source: &Source) -> Result<(), ConfigError> {
    let at = KeyPath::section("mirror", 0);
    if config.table.iter().any(|table| table.engine == TableEngine::Gpu) {
        let message = "mirrors do not work with tables on devices: packets wait for these together";
        return Err(source.error(&at, message, "take another `engine` for the tables, or no [[mirror]]"));
    }
    let has_stages =
        !(config.filter_table.is_empty() && config.asset_table.is_empty() && config.nat_table.is_empty());
    if has_stages && workers::number(config) > 1 {
        let message = "mirrors do not work with stateful stages and several workers, which hand packets over";
        return Err(source.error(&at, message, "take `workers = 1` in [switch], or no [[mirror]]"));
    }
    Ok(())
}

fn one(
    name: String,
    section: &MirrorSection,
    config: &Config,
    at: &KeyPath,
    source: &Source,
) -> Result<MirrorSettings, ConfigError> {
    let port = |port: &str, at: &KeyPath| match config.port.iter().find(|own| own.name() == *port) {
        Some(own) => Ok(own.number),
        None => {
            let names: Vec<_> = config.port.iter().map(|own| own.name()).collect();
            let help = format!("ports are called {}", names.join(", "));
            Err(source.error(at, format!("there is no port `{port}`"), &help))
        }
    };
    let ports = |names: &[String], key| -> Result<BTreeSet<u32>, ConfigError> {
        names.iter().enumerate().map(|(n, name)| port(name, &at.key(key).item(n))).collect()
    };
    let (received, sent) = (ports(&section.received, "received")?, ports(&section.sent, "sent")?);
    let output = match (&section.to, section.to_vlan) {
        (Some(to), None) => {
            let number = port(to, &at.key("to"))?;
            if received.contains(&number) || sent.contains(&number) {
                let message = format!("port `{to}` gets the copies of its own packets");
                let help = "name another port, or leave this one out of `received` and `sent`";
                return Err(source.error(&at.key("to"), message, help));
            }
            MirrorOutput::Port(flowlane::rule::action::PortNo(number))
        }
        (None, Some(vlan @ 1..=4095)) => MirrorOutput::Vlan(vlan),
        (None, Some(vlan)) => {
            let help = "take 1 to 4095";
            return Err(source.error(&at.key("to_vlan"), format!("VLAN {vlan} is out of range"), help));
        }
        (both, _) => {
            let message = match both {
                Some(_) => format!("mirror `{name}` has two destinations"),
                None => format!("mirror `{name}` has no destination"),
            };
            let help = "give it `to`, the name of a port, or `to_vlan`, the number of a VLAN";
            return Err(source.error(at, message, help));
        }
    };
    if let Some((n, vlan)) = section.vlans.iter().enumerate().find(|(_, vlan)| **vlan > 4095) {
        let at = at.key("vlans").item(n);
        return Err(source.error(&at, format!("VLAN {vlan} is out of range"), "take 0 to 4095"));
    }
    if let Some(bytes) = section.bytes_max.filter(|bytes| *bytes < BYTES_LEAST) {
        let message = format!("copies of {bytes} bytes have no whole Ethernet header");
        return Err(source.error(&at.key("bytes_max"), message, "take 14 to 65535, or leave it out"));
    }
    let is_all = received.is_empty() && sent.is_empty();
    let selection = |ports| if is_all { PortSelection::All } else { PortSelection::Ports(ports) };
    let vlans = (!section.vlans.is_empty()).then(|| Vlans::of(section.vlans.iter().copied()));
    let (received, sent, members) = (selection(received), selection(sent), BTreeSet::new());
    Ok(MirrorSettings { name, received, sent, vlans, output, members, bytes_max: section.bytes_max })
}
