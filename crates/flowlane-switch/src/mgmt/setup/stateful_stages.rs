//! Stateful stages, from their sections of the configuration.

mod entries;
mod nat;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use flowlane::packet::fields::Field;
use flowlane::packet::key::FlowKey;
use flowlane::rule::Action;

use self::entries::Entries;
use super::SetupError;
use super::lines::Lines;
use super::reader::Reader;
use crate::mgmt::config::{AssetTableSection, Config, ConfigError, FilterTableSection, KeyPath, Source};
use crate::stage::ageing::{NEVER, idle_ticks};
use crate::stage::filter::KeyShape;
use crate::stage::{AnyStage, AssetConfig, Assets, Filter, FilterConfig, Nat, NatConfig, Shard, StageTable};
use crate::state::conntrack::Connections;

/// The most entries of a stage's table.
const ENTRIES_MAX: usize = 1 << 26;

/// A section, checked, with what it names read.
pub(super) struct StageSetup {
    number: u8,
    name: String,
    at: KeyPath,
    /// The actions of its verdicts, by number.
    actions: Vec<Vec<Action>>,
    kind: KindSetup,
}

enum KindSetup {
    Filter { config: FilterConfig, entries: Vec<(FlowKey, u32)> },
    Assets(AssetConfig),
    Nat(NatConfig),
}

/// A stage that learns from packets.
pub(super) struct Learning {
    pub(super) kind: &'static str,
    /// The key of the configuration that makes it learn, or treat packets differently.
    pub(super) at: KeyPath,
    /// The verdicts of a packet with a new key, and of later ones.
    pub(super) first: &'static str,
    pub(super) later: &'static str,
}

/// The kind of a stateful stage, and the actions of its verdicts.
type Made = (KindSetup, Vec<Vec<Action>>);

/// Reads all stages of a configuration.
pub(super) fn read(config: &Config, reader: &Reader<'_>) -> Result<Vec<StageSetup>, SetupError> {
    let mut stages = Vec::new();
    let mut add = |number, name: &str, at, (kind, actions): Made| {
        stages.push(StageSetup { number, name: name.to_owned(), at, actions, kind });
    };
    for (n, section) in config.filter_table.iter().enumerate() {
        let at = KeyPath::section("filter_table", n);
        let made = filter(section, &at, reader)?;
        add(section.number, &section.name, at, made);
    }
    for (n, section) in config.asset_table.iter().enumerate() {
        let at = KeyPath::section("asset_table", n);
        let made = assets(section, &at, reader)?;
        add(section.number, &section.name, at, made);
    }
    let mut zones = BTreeMap::new();
    for (n, section) in config.nat_table.iter().enumerate() {
        let at = KeyPath::section("nat_table", n);
        if let Some(other) = zones.insert(nat::zone_of(section), section.number) {
            let message =
                format!("zone {} of nat {} is that of nat {other}", nat::zone_of(section), section.number);
            return Err(reader
                .source
                .error(&at.key("zone"), message, "give each table a zone of its own")
                .into());
        }
        let made = nat::read(section, &at, reader)?;
        add(section.number, &section.name, at, made);
    }
    Ok(stages)
}

impl StageSetup {
    /// The stage's number.
    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// The actions of its verdicts.
    pub(super) fn actions(&self) -> &[Vec<Action>] {
        &self.actions
    }

    /// The verdicts of a stage that learns from packets, where a packet with a learned key goes to where one with a new key does
    /// not.
    pub(super) fn learning(&self) -> Option<Learning> {
        let (kind, key, first, later) = match &self.kind {
            KindSetup::Filter { config, .. } if config.learn => ("filter", "learn", "miss", "hit"),
            KindSetup::Assets(_) => ("asset table", "new", "new", "known"),
            KindSetup::Filter { .. } | KindSetup::Nat(_) => return None,
        };
        let [known, new] = &self.actions[..] else { return None };
        let leads_on = |action: &Action| {
            matches!(
                action,
                Action::Output(_) | Action::Normal | Action::Flood | Action::InPort | Action::Goto(_)
            )
        };
        let opens = known.iter().any(|action| leads_on(action) && !new.contains(action));
        opens.then(|| Learning { kind, at: self.at.key(key), first, later })
    }

    /// Returns the relative gain of steering packets to the worker that has their shard; 0 where workers share the state.
    pub(super) fn weight(&self) -> u8 {
        match &self.kind {
            KindSetup::Nat(_) => 0,
            KindSetup::Assets(_) => 2,
            KindSetup::Filter { .. } => 1,
        }
    }

    /// Builds the stage.
    pub(super) fn open(
        &self,
        (seed, shard): (u32, Shard),
        connections: &Arc<Connections>,
        source: &Source,
    ) -> Result<StageTable, ConfigError> {
        let failed = |key: &'static str, error: &dyn Display| {
            source.error(&self.at.key(key), format!("stage {}: {error}", self.number), "")
        };
        let seed = seed ^ u32::from(self.number);
        let kind = match &self.kind {
            KindSetup::Filter { config, entries } => {
                let mut config = FilterConfig { seed, shard, ..config.clone() };
                if shard.is_none() {
                    config.entries_max = 1;
                } else if config.learn {
                    config.entries_max = shard.part(config.entries_max).max(entries.len());
                    config.port_max = config.port_max.map(|most| shard.part(most));
                }
                let mut filter = Filter::new(&config).map_err(|e| failed("key", &e))?;
                let ages = entries.iter().any(|(_, idle)| *idle != NEVER);
                filter.set_ages(ages);
                for (key, idle) in entries.iter().filter(|_| !shard.is_none()) {
                    if filter.owner_of(key).is_some_and(|owner| owner != shard.me) {
                        continue;
                    }
                    let inserted = filter.insert(key, *idle);
                    inserted.map_err(|e| failed("entries_max", &format!("{e}; raise `entries_max`")))?;
                }
                AnyStage::Filter(filter)
            }
            KindSetup::Nat(config) => {
                let (connections, is_first) = (connections.clone(), shard.me == 0);
                let config = NatConfig { connections, is_first, ..config.clone() };
                AnyStage::Nat(Nat::new(config).map_err(|e| failed("forward", &e))?)
            }
            KindSetup::Assets(config) => {
                let entries_max = if shard.is_none() { 1 } else { shard.part(config.entries_max) };
                let port_max = config.port_max.map(|most| shard.part(most));
                let config = AssetConfig { seed, shard, entries_max, port_max, ..config.clone() };
                AnyStage::Assets(Assets::new(config))
            }
        };
        StageTable::new(self.number, &self.name, kind, self.actions.clone())
            .map_err(|e| failed(e.verdict, &e))
    }
}

fn entries_in_range(
    number: u8,
    entries_max: usize,
    at: &KeyPath,
    source: &Source,
) -> Result<(), ConfigError> {
    if (1..=ENTRIES_MAX).contains(&entries_max) {
        return Ok(());
    }
    let message = format!("{entries_max} entries in stage {number}");
    Err(source.error(at, message, format!("take 1 to {ENTRIES_MAX}")))
}

/// The limit of each port's entries; 0 is none.
fn port_max(configured: Option<usize>) -> Option<usize> {
    configured.map(|most| if most == 0 { usize::MAX } else { most })
}

fn filter(section: &FilterTableSection, at: &KeyPath, reader: &Reader<'_>) -> Result<Made, SetupError> {
    let (number, source) = (section.number, reader.source);
    entries_in_range(number, section.entries_max, &at.key("entries_max"), source)?;
    let fields = fields(section, &at.key("key"), source)?;
    let shape = KeyShape::new(&fields).map_err(|e| {
        let help = "as in key = [\"nw_src\"], or key = [\"nw_proto\", \"nw_dst\", \"tp_dst\"]";
        source.error(&at.key("key"), format!("filter {number}: {e}"), help)
    })?;
    let mut entries = Entries::default();
    entries.read(&Lines::list(source, at.key("entries"), &section.entries), &shape, reader)?;
    if let Some(file) = &section.entries_file {
        entries.read(&Lines::file(source, &at.key("entries_file"), file, "")?, &shape, reader)?;
    }
    let entries = entries.list;
    learning_matters(section, at, &entries, source)?;
    let config = FilterConfig {
        idle: idle_ticks(section.timeout_s),
        refresh: section.refresh,
        learn: section.learn,
        port_max: port_max(section.entries_per_port_max),
        count: section.count,
        lookups: section.lookups,
        ..FilterConfig::new(fields, section.entries_max)
    };
    let verdicts = [("hit", &section.hit), ("miss", &section.miss)];
    let verdicts = verdicts.map(|(name, text)| reader.actions(number, text, at.key(name)));
    let verdicts = verdicts.into_iter().collect::<Result<_, _>>()?;
    Ok((KindSetup::Filter { config, entries }, verdicts))
}

/// The fields of a filter's key.
fn fields(section: &FilterTableSection, at: &KeyPath, source: &Source) -> Result<Vec<Field>, ConfigError> {
    let field = |(n, name): (usize, &String)| {
        Field::by_name(name).ok_or_else(|| {
            let known = Field::all().iter().map(|f| f.name);
            let help = match flowlane::named_enum::nearest(name, known) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => "take fields by the names that they have in rules".to_owned(),
            };
            source.error(&at.item(n), format!("there is no field `{name}`"), help)
        })
    };
    section.key.iter().enumerate().map(field).collect()
}

/// Checks that what a filter says of learned entries and of timeouts is about any entry.
fn learning_matters(
    section: &FilterTableSection,
    at: &KeyPath,
    entries: &[(FlowKey, u32)],
    source: &Source,
) -> Result<(), ConfigError> {
    let number = section.number;
    if section.timeout_s > 0 && !section.learn {
        let message =
            format!("`timeout_s` of filter {number} is for entries that packets add, and none does");
        let help = "set learn = true, or write timeout=SECONDS behind the entries that are to go";
        return Err(source.error(&at.key("timeout_s"), message, help));
    }
    if section.entries_per_port_max.is_some() && !section.learn {
        let message = format!(
            "`entries_per_port_max` of filter {number} is for entries that packets add, and none does"
        );
        return Err(source.error(
            &at.key("entries_per_port_max"),
            message,
            "set learn = true, or leave it out",
        ));
    }
    if section.refresh && section.timeout_s == 0 && entries.iter().all(|(_, idle)| *idle == NEVER) {
        let message =
            format!("`refresh` of filter {number} is about entries with a timeout, and none has one");
        let help = "set learn and timeout_s, or write timeout=SECONDS behind entries";
        return Err(source.error(&at.key("refresh"), message, help));
    }
    Ok(())
}

fn assets(section: &AssetTableSection, at: &KeyPath, reader: &Reader<'_>) -> Result<Made, SetupError> {
    let (number, source) = (section.number, reader.source);
    entries_in_range(number, section.entries_max, &at.key("entries_max"), source)?;
    let networks = section.networks.iter().enumerate();
    let networks = networks.map(|(n, text)| network(text, &at.key("networks").item(n), source));
    let config = AssetConfig {
        idle: idle_ticks(section.idle_s),
        networks: networks.collect::<Result<_, _>>()?,
        udp_port_max: section.udp_port_max,
        port_max: port_max(section.entries_per_port_max),
        lookups: section.lookups,
        ..AssetConfig::new(section.entries_max)
    };
    let known = reader.actions(number, &section.known, at.key("known"))?;
    let new = match &section.new {
        Some(text) => reader.actions(number, text, at.key("new"))?,
        None => known.clone(),
    };
    Ok((KindSetup::Assets(config), vec![known, new]))
}

/// Reads a network, as in `192.0.2.0/24`; an address alone is one of its own.
fn network(text: &str, at: &KeyPath, source: &Source) -> Result<(IpAddr, u8), ConfigError> {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
    let read = || {
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Some(most), |l| l.parse().ok())?;
        (length <= most).then_some((address, length))
    };
    read().ok_or_else(|| {
        let help = "write an address and the length of its prefix, as in 192.0.2.0/24";
        source.error(at, format!("`{text}` is no network"), help)
    })
}
