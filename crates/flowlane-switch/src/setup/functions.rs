//! Functions, from their sections of the configuration.

mod nat;

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

use flowlane::packet::fields::{Field, VLAN_PRESENT, word};
use flowlane::packet::key::{FlowKey, WORDS};
use flowlane::rule::flow_syntax::read_actions;
use flowlane::rule::{Action, Format, Match, ReadOptions, Rule};

use super::SetupError;
use super::routes::Place;
use crate::config::{AssetTableSection, Config, ConfigError, FilterTableSection, LookupsChoice};
use crate::stage::ageing::{NEVER, idle_ticks};
use crate::stage::filter::KeyShape;
use crate::stage::nat::ports::Secret;
use crate::stage::{
    AssetConfig, Assets, Filter, FilterConfig, Function, Kind, Lookups, Nat, NatConfig, Share,
};

/// The most entries of a function's table.
const ENTRIES_MAX: usize = 1 << 26;

/// A section, checked, with what it names read.
pub(super) struct FunctionSetup {
    number: u8,
    name: String,
    /// The actions of its verdicts, by number.
    actions: Vec<Vec<Action>>,
    kind: KindSetup,
}

enum KindSetup {
    Filter { config: FilterConfig, entries: Vec<(FlowKey, u32)> },
    Assets(AssetConfig),
    Nat(NatConfig),
}

/// What a section asks for, and the actions of its verdicts.
type Made = (KindSetup, Vec<Vec<Action>>);

/// All functions of a configuration.
pub(super) fn read(
    config: &Config,
    folder: &Path,
    options: &ReadOptions<'_>,
    place: Place<'_>,
) -> Result<Vec<FunctionSetup>, SetupError> {
    let mut functions = Vec::new();
    let mut add = |number, name: &str, (kind, actions): Made| {
        functions.push(FunctionSetup { number, name: name.to_owned(), actions, kind });
    };
    for section in &config.filter_table {
        add(section.number, &section.name, filter(section, folder, options, place)?);
    }
    for section in &config.asset_table {
        add(section.number, &section.name, assets(section, options, place)?);
    }
    for section in &config.nat_table {
        // Ports that nobody can foretell need more of a secret than the seed of the hashes.
        let secret = config.switch.seed.map_or_else(Secret::random, |seed| Secret::seeded(seed.into()));
        add(section.number, &section.name, nat::read(section, secret, options, place)?);
    }
    Ok(functions)
}

impl FunctionSetup {
    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// Its verdicts' actions as rules, to be checked like rules.
    pub(super) fn as_rules(&self) -> impl Iterator<Item = Rule> {
        let number = self.number;
        let rule =
            move |actions: &Vec<Action>| Rule { table: number, ..Rule::new(Match::any(), actions.clone()) };
        self.actions.iter().map(rule)
    }

    /// How much is gained where packets come at once to whoever has their share of it.
    pub(super) fn weight(&self) -> u8 {
        match &self.kind {
            KindSetup::Nat(_) => 3,
            KindSetup::Assets(_) => 2,
            KindSetup::Filter { .. } => 1,
        }
    }

    /// Puts the function together.
    pub(super) fn open(&self, seed: u32, share: Share) -> Result<Function, String> {
        let seed = seed ^ u32::from(self.number);
        let kind = match &self.kind {
            KindSetup::Filter { config, entries } => {
                let mut config = FilterConfig { seed, share, ..config.clone() };
                if share.is_nobodys() {
                    config.entries_max = 1;
                } else if config.learn {
                    config.entries_max = share.part(config.entries_max).max(entries.len());
                }
                let mut filter = Filter::new(&config).map_err(|e| e.to_string())?;
                let ages = entries.iter().any(|(_, idle)| *idle != NEVER);
                filter.share_out(ages);
                for (key, idle) in entries.iter().filter(|_| !share.is_nobodys()) {
                    if filter.owner_of(key).is_some_and(|owner| owner != share.me) {
                        continue;
                    }
                    filter.insert(key, *idle).map_err(|e| format!("{e}; raise `entries_max`"))?;
                }
                Kind::Filter(filter)
            }
            KindSetup::Nat(config) => {
                let sessions_max = if share.is_nobodys() { 1 } else { config.sessions_max };
                let config = NatConfig { seed, share, sessions_max, ..config.clone() };
                Kind::Nat(Nat::new(config).map_err(|e| e.to_string())?)
            }
            KindSetup::Assets(config) => {
                let entries_max = if share.is_nobodys() { 1 } else { share.part(config.entries_max) };
                Kind::Assets(Assets::new(AssetConfig { seed, share, entries_max, ..config.clone() }))
            }
        };
        Function::new(self.number, &self.name, kind, self.actions.clone()).map_err(|e| e.to_string())
    }
}

/// Reads the actions of a function's verdict.
fn actions(
    number: u8,
    verdict: &str,
    text: &str,
    options: &ReadOptions<'_>,
) -> Result<Vec<Action>, SetupError> {
    let options = ReadOptions { table_default: number, ..*options };
    let name = format!("`{verdict}` of function {number}");
    read_actions(text, &name, &options).map_err(|errors| SetupError::Rules {
        table: number,
        text: text.to_owned(),
        errors,
    })
}

fn entries_in_range(number: u8, entries_max: usize, place: Place<'_>) -> Result<(), ConfigError> {
    if (1..=ENTRIES_MAX).contains(&entries_max) {
        return Ok(());
    }
    let message = format!("{entries_max} entries in function {number}");
    Err(place("_max", message, format!("take 1 to {ENTRIES_MAX}")))
}

fn lookups(choice: LookupsChoice) -> Lookups {
    match choice {
        LookupsChoice::Batch => Lookups::Batch,
        LookupsChoice::Scalar => Lookups::Scalar,
    }
}

fn filter(
    section: &FilterTableSection,
    folder: &Path,
    options: &ReadOptions<'_>,
    place: Place<'_>,
) -> Result<Made, SetupError> {
    let number = section.number;
    entries_in_range(number, section.entries_max, place)?;
    let mut fields = Vec::new();
    for name in &section.key {
        let field = Field::by_name(name).ok_or_else(|| {
            let known = Field::all().iter().map(|f| f.name);
            let help = match flowlane::named_enum::nearest(name, known) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => "take fields by the names that they have in rules".to_owned(),
            };
            place(name, format!("there is no field `{name}`"), help)
        })?;
        fields.push(field);
    }
    let shape = KeyShape::new(&fields).map_err(|e| {
        let help = "as in key = [\"nw_src\"], or key = [\"nw_proto\", \"nw_dst\", \"tp_dst\"]".to_owned();
        place("key =", format!("filter {number}: {e}"), help)
    })?;
    let mut entries = Entries::default();
    let inline = section.entries.join("\n");
    entries.read(&inline, &format!("entries of filter {number}"), &shape, options, place)?;
    if let Some(file) = &section.entries_file {
        let path = folder.join(file);
        let text = std::fs::read_to_string(&path).map_err(|e| ConfigError {
            file: path.clone(),
            text: String::new(),
            span: None,
            message: format!("the entries of filter {number} cannot be read: {e}"),
            help: None,
            environment: false,
        })?;
        entries.read(&text, &path.display().to_string(), &shape, options, place)?;
    }
    let entries = entries.list;
    timeouts_matter(section, &entries, place)?;
    let config = FilterConfig {
        idle: idle_ticks(section.timeout_s),
        refresh: section.refresh,
        learn: section.learn,
        count: section.count,
        lookups: lookups(section.lookups),
        ..FilterConfig::new(fields, section.entries_max)
    };
    let verdicts = [("hit", &section.hit), ("miss", &section.miss)];
    let verdicts = verdicts.map(|(name, text)| actions(number, name, text, options));
    let verdicts = verdicts.into_iter().collect::<Result<_, _>>()?;
    Ok((KindSetup::Filter { config, entries }, verdicts))
}

/// Whether what a filter says of timeouts is about any entry.
fn timeouts_matter(
    section: &FilterTableSection,
    entries: &[(FlowKey, u32)],
    place: Place<'_>,
) -> Result<(), ConfigError> {
    let number = section.number;
    if section.timeout_s > 0 && !section.learn {
        let message =
            format!("`timeout_s` of filter {number} is for entries that packets add, and none does");
        let help = "set learn = true, or write timeout=SECONDS behind the entries that are to go".to_owned();
        return Err(place("timeout_s", message, help));
    }
    if section.refresh && section.timeout_s == 0 && entries.iter().all(|(_, idle)| *idle == NEVER) {
        let message =
            format!("`refresh` of filter {number} is about entries with a timeout, and none has one");
        let help = "set learn and timeout_s, or write timeout=SECONDS behind entries".to_owned();
        return Err(place("refresh", message, help));
    }
    Ok(())
}

fn assets(
    section: &AssetTableSection,
    options: &ReadOptions<'_>,
    place: Place<'_>,
) -> Result<Made, SetupError> {
    let number = section.number;
    entries_in_range(number, section.entries_max, place)?;
    let config = AssetConfig {
        idle: idle_ticks(section.idle_s),
        networks: section.networks.iter().map(|text| network(text, place)).collect::<Result<_, _>>()?,
        udp_port_max: section.udp_port_max,
        lookups: lookups(section.lookups),
        ..AssetConfig::new(section.entries_max)
    };
    let known = actions(number, "known", &section.known, options)?;
    let new = match &section.new {
        Some(text) => actions(number, "new", text, options)?,
        None => known.clone(),
    };
    Ok((KindSetup::Assets(config), vec![known, new]))
}

/// A network, as in `192.0.2.0/24`; an address alone is one of its own.
fn network(text: &str, place: Place<'_>) -> Result<(IpAddr, u8), ConfigError> {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
    let read = || {
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Some(most), |l| l.parse().ok())?;
        (length <= most).then_some((address, length))
    };
    read().ok_or_else(|| {
        let help = "write an address and the length of its prefix, as in 192.0.2.0/24".to_owned();
        place(text, format!("`{text}` is no network"), help)
    })
}

/// What the reader of rules reads about rules, and not about packets: an entry has nothing of it.
const OF_RULES: [&str; 8] =
    ["table", "priority", "cookie", "duration", "n_packets", "n_bytes", "idle_age", "hard_age"];

/// A filter's entries as they are read.
#[derive(Default)]
struct Entries {
    /// Keys, and ticks after which they go.
    list: Vec<(FlowKey, u32)>,
    known: HashSet<[u32; WORDS]>,
}

impl Entries {
    /// Reads entries, one in a line: matches as in rules, and perhaps a timeout.
    fn read(
        &mut self,
        text: &str,
        file: &str,
        shape: &KeyShape,
        options: &ReadOptions<'_>,
        place: Place<'_>,
    ) -> Result<(), SetupError> {
        // The reader of rules reads the matches; lines stay where they are, so that errors name them.
        let (mut rules, mut lines) = (String::new(), Vec::new());
        for (line, number) in text.lines().zip(1..) {
            let says = line.trim_start();
            if says.is_empty() || says.starts_with('#') {
                rules.push('\n');
                continue;
            }
            let (matches, seconds) = entry_parts(line).map_err(|(part, message, help)| {
                place(part, format!("{file}:{number}: {message}"), help.to_owned())
            })?;
            rules.push_str(&matches);
            rules.push_str(" actions=drop\n");
            lines.push((number, line, idle_ticks(seconds)));
        }
        let read = match flowlane::rule::read(&rules, file, Some(Format::Flows), options) {
            Ok(read) => read,
            Err(errors) => return Err(SetupError::Rules { table: 0, text: rules, errors }),
        };
        for (rule, (number, line, idle)) in read.iter().zip(lines) {
            let fail = |problem, help: &str| {
                let message = format!("{file}:{number}: entry `{}` {problem}", line.trim());
                place(line, message, help.to_owned())
            };
            let key = entry_key(&rule.matches, shape)
                .map_err(|problem| fail(problem, "give every field of the key a value, and nothing else"))?;
            if !self.known.insert(*key.words()) {
                return Err(fail("has the key of one before it", "leave one of them out").into());
            }
            self.list.push((key, idle));
        }
        Ok(())
    }
}

/// The matches of an entry, as rules have them, and its timeout in seconds; or a part, what is wrong with it, and what
/// helps.
fn entry_parts(line: &str) -> Result<(String, u64), (&str, String, &'static str)> {
    let (mut matches, mut seconds) = (String::new(), 0);
    for part in line.split([',', ' ', '\t']) {
        match part.split_once('=') {
            Some(("timeout", value)) => {
                let fault = |_| (part, format!("`{part}` is no timeout"), "write seconds, as in timeout=60");
                seconds = value.parse().map_err(fault)?;
            }
            Some((name, _)) if OF_RULES.contains(&name) => {
                let message = format!("`{name}` is for rules; an entry has a key, and perhaps a timeout");
                return Err((part, message, "leave it out"));
            }
            _ => matches.extend([part, ","]),
        }
    }
    Ok((matches, seconds))
}

/// The key that an entry describes, as a flow key; or what is wrong with it.
fn entry_key(matches: &Match, shape: &KeyShape) -> Result<FlowKey, &'static str> {
    let mask = shape.mask();
    let mut key = FlowKey::zero();
    let mut given = flowlane::packet::key::FlowMask::zero();
    for part in matches.words() {
        let w = usize::from(part.word);
        key.set_word(w, part.value & mask.word(w));
        given.or_word(w, part.mask);
        let mut beyond = part.mask & !mask.word(w);
        if w == word::VLAN_ETH_TYPE {
            // What a packet must be to have the key's fields may be said.
            beyond &= !(u32::from(VLAN_PRESENT) << 16);
            if part.mask & 0xffff == 0xffff && shape.is_only(part.value as u16) {
                beyond &= !0xffff;
            }
        }
        if beyond != 0 {
            return Err(
                "says something that is not in the key (where it names a protocol, `dl_type` and `nw_proto` must be in it)",
            );
        }
    }
    if matches.tp_src_range().is_some() || matches.tp_dst_range().is_some() || !given.covers(mask) {
        return Err("does not fix all of the key");
    }
    Ok(key)
}
