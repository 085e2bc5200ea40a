//! Reloading a configuration while the switch runs: its rules, groups, meters, ports but the router's, mirrors, and the settings of zones
//! of connections may differ.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use flowlane::rule::action::PortNo;
use flowlane::rule::group::Group;
use flowlane::rule::{Command, FlowMod, Rule};

use super::ports::{Asked, PortSet};
use super::{LiveMirrors, LiveRoutes, Setup, SetupError, firewall, meter_spec};
use crate::control::{Changes, Control, GroupMod, MeterMod, MeterSpec, VlanChange};
use crate::mgmt::config::{Config, ConnectionSection, KeyPath, PortSection, Source, TableSection};
use crate::ruleset::{PortVlans, Ruleset};
use crate::state::conntrack::ZoneSettings;
use crate::state::mirror::MirrorSettings;

/// The configuration of a running switch, to compare a reload with.
pub struct Reload {
    file: PathBuf,
    sections: Vec<Section>,
    ports: Mutex<PortSet>,
    /// The groups of the configuration that is in force.
    groups: Mutex<BTreeSet<u32>>,
    /// The tables of routes.
    routes: Mutex<Vec<LiveRoutes>>,
    mirrors: Arc<LiveMirrors>,
    /// The meters of the configuration that is in force.
    meters: Mutex<BTreeSet<u32>>,
}

/// The parts of a configuration that a reload takes over.
#[derive(Debug)]
pub struct Wanted {
    pub rules: Vec<Rule>,
    pub groups: Vec<Group>,
    /// The VLAN settings of ports.
    pub vlans: PortVlans,
    /// The settings of all zones of connections, and of those with their own.
    pub zones: (ZoneSettings, BTreeMap<u16, ZoneSettings>),
    pub(crate) ports: Vec<Asked>,
    pub(crate) mirrors: Vec<MirrorSettings>,
    pub(crate) meters: Vec<MeterSpec>,
    pub(crate) source: Source,
}

/// The changes that a reload makes.
#[derive(PartialEq, Debug)]
pub struct ReloadChanges {
    pub groups: Vec<GroupMod>,
    pub rules: Vec<FlowMod>,
    pub deleted_groups: Vec<u32>,
    pub vlans: Vec<VlanChange>,
    /// The settings of all zones of connections, and of those with their own.
    pub zones: (ZoneSettings, BTreeMap<u16, ZoneSettings>),
    /// All groups of the configuration.
    configured: BTreeSet<u32>,
}

impl ReloadChanges {
    /// Returns the changes as control takes them, all together.
    pub fn all(&self) -> Changes<'_> {
        let Self { groups, rules, deleted_groups, vlans, .. } = self;
        Changes { groups, rules, deleted_groups, vlans, ..Changes::default() }
    }
}

/// The content of a section but for rules, with that of the files that it names.
#[derive(PartialEq)]
struct Section {
    /// Its header.
    header: &'static str,
    key: &'static str,
    /// Its position among those of this key; none where there is only one.
    item: Option<usize>,
    content: String,
}

/// The sections of a configuration, whose files are relative to a folder.
fn sections_of(config: &Config, folder: &Path) -> Vec<Section> {
    // A missing file has no content.
    let content = |file: &Option<PathBuf>| {
        let bytes = file.as_ref().and_then(|file| std::fs::read(folder.join(file)).ok());
        BuildHasherDefault::<DefaultHasher>::new().hash_one(bytes)
    };
    let table = |table: &TableSection| TableSection { rules: Vec::new(), rules_file: None, ..table.clone() };
    // Ports are taken over, but for the router's, of which VLANs are.
    let port = |port: &PortSection| PortSection {
        vlan_mode: None,
        tag: None,
        trunks: Vec::new(),
        cvlans: Vec::new(),
        protected: false,
        ..port.clone()
    };
    let routed = |section: &PortSection| match section.addresses.is_empty() {
        true => String::new(),
        false => format!("{:?}", port(section)),
    };
    let one = |header, key, content| vec![Section { header, key, item: None, content }];
    let each = |header, key, contents: Vec<String>| {
        let sections = contents.into_iter().enumerate();
        sections.map(|(n, content)| Section { header, key, item: Some(n), content }).collect::<Vec<_>>()
    };
    let connections =
        |section: &ConnectionSection| format!("{} {:?}", section.connections_max, section.fragment_min);
    fn of<T>(list: &[T], content: impl FnMut(&T) -> String) -> Vec<String> {
        list.iter().map(content).collect()
    }
    let ports = each("[[port]]", "port", of(&config.port, routed));
    let ports: Vec<Section> = ports.into_iter().filter(|section| !section.content.is_empty()).collect();
    let token_file = config.metrics.as_ref().and_then(|metrics| metrics.token_file.clone());
    let routes_of_router = config.router.as_ref().and_then(|router| router.routes_file.clone());
    let routes = of(&config.route_table, |table| format!("{table:?} {}", content(&table.routes_file)));
    let entries = of(&config.filter_table, |table| format!("{table:?} {}", content(&table.entries_file)));
    [
        one("[switch]", "switch", format!("{:?}", config.switch)),
        one("[cache]", "cache", format!("{:?}", config.cache)),
        one("[gpu]", "gpu", format!("{:?}", config.gpu)),
        one("[macs]", "macs", format!("{:?}", config.macs)),
        // Settings of zones are taken over.
        one("[connections]", "connections", connections(&config.connections)),
        one("[router]", "router", format!("{:?} {}", config.router, content(&routes_of_router))),
        // Its rules are taken over, but not its tables.
        one("[firewall]", "firewall", format!("{:?}", firewall::table(config))),
        one("[state]", "state", format!("{:?}", config.state)),
        one("[metrics]", "metrics", format!("{:?} {}", config.metrics, content(&token_file))),
        // Not the content of the files of TLS, which new connections use as it is.
        one("[openflow]", "openflow", format!("{:?}", config.openflow)),
        one("[controller]", "controller", format!("{:?}", config.controller)),
        ports,
        each("[[table]]", "table", of(&config.table, |section| format!("{:?}", table(section)))),
        each("[[route_table]]", "route_table", routes),
        each("[[filter_table]]", "filter_table", entries),
        each("[[asset_table]]", "asset_table", of(&config.asset_table, |table| format!("{table:?}"))),
        each("[[nat_table]]", "nat_table", of(&config.nat_table, |table| format!("{table:?}"))),
        each("[[tunnel]]", "tunnel", of(&config.tunnel, |tunnel| format!("{tunnel:?}"))),
        one("[tunnel_policy]", "tunnel_policy", format!("{:?}", config.tunnel_policy)),
        each("[[tunnel_option]]", "tunnel_option", of(&config.tunnel_option, |option| format!("{option:?}"))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl Reload {
    /// Records the configuration that a switch is set up from.
    pub fn of(setup: &Setup) -> Self {
        let groups = setup.groups.iter().map(|group| group.id).collect();
        Self {
            file: setup.source.file.clone(),
            sections: sections_of(&setup.config, setup.source.folder()),
            ports: Mutex::new(PortSet::of(setup)),
            groups: Mutex::new(groups),
            routes: Mutex::new(setup.routes.iter().cloned().map(LiveRoutes::of).collect()),
            mirrors: setup.live_mirrors.clone(),
            meters: Mutex::new(setup.config.meter.iter().map(|meter| meter.number).collect()),
        }
    }

    /// Returns the tables of routes, which one thread at a time changes.
    pub fn routes(&self) -> MutexGuard<'_, Vec<LiveRoutes>> {
        // A change of a table is made to a copy.
        self.routes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the port of this name.
    pub fn port(&self, name: &str) -> Option<PortNo> {
        self.ports().find(name)
    }

    /// Returns the ports, which one thread at a time changes.
    pub(crate) fn ports(&self) -> MutexGuard<'_, PortSet> {
        // It is whole between two of its methods.
        self.ports.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the number of ports; `None` while a thread changes them.
    pub(crate) fn ports_count(&self) -> Option<usize> {
        match self.ports.try_lock() {
            Ok(ports) => Some(ports.len()),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner().len()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Reads what a configuration asks for: by default, the one that the switch was started with.
    ///
    /// # Errors
    /// Where the configuration is wrong, or differs in more than rules, groups, meters, ports, mirrors and settings of zones.
    pub fn read(&self, file: Option<&Path>) -> Result<Wanted, SetupError> {
        let setup = Setup::read(file.unwrap_or(&self.file))?;
        let (old, new) = (&self.sections, sections_of(&setup.config, setup.source.folder()));
        // A section that is gone, new or other: at its place, or where it would be.
        let longest = old.len().max(new.len());
        if let Some(n) = (0..longest).find(|&n| old.get(n) != new.get(n)) {
            let is_gone = new.get(n).is_none_or(|new| old.get(n).is_some_and(|old| old.key != new.key));
            let section = if is_gone { old.get(n).or(new.get(n)) } else { new.get(n) };
            let Section { header, key, item, .. } = section.expect("one of the two has it");
            let message = format!(
                "{header} is not as it was when the switch was started (its text, or a file that it names): \
                 reloading changes rules, groups, meters, ports without addresses, mirrors and settings of zones only"
            );
            let at = item.map_or_else(|| KeyPath::of(key), |item| KeyPath::section(key, item));
            let help = "undo that, or stop the switch and start it again";
            return Err(setup.source.error(&at, message, help).into());
        }
        let connections = &setup.config.connections;
        let zones = (connections.of_all_zones(), connections.of_zones());
        let (vlans, ports) = (setup.vlans(), setup.asked());
        let meters = setup.config.meter.iter().map(meter_spec).collect();
        let Setup { rules, groups, mirrors, source, .. } = setup;
        Ok(Wanted { vlans, ports, rules, groups, zones, mirrors, meters, source })
    }

    /// Returns the changes of a running switch to what a configuration asks for, but for new ports. Groups and ports that clients have
    /// added stay.
    pub fn changes(&self, control: &Control, wanted: Wanted, own: &PortSet) -> ReloadChanges {
        let Wanted { rules, groups, vlans, zones, ports: asked, .. } = wanted;
        let ruleset = control.ruleset();
        let ids: BTreeSet<u32> = groups.iter().map(|group| group.id).collect();
        let is_new = |group: &Group| ruleset.groups().get(group.id).is_none_or(|now| now.group != *group);
        let mut deleted_groups: Vec<u32> = self.groups().difference(&ids).copied().collect();
        deleted_groups.retain(|id| ruleset.groups().get(*id).is_some());
        let now = control.vlans();
        let ports: BTreeSet<u32> = now.keys().chain(vlans.keys()).copied().collect();
        let is_asked = |port: u32| asked.iter().any(|asked| asked.section.number == port);
        let is_left = |port: &u32| own.is_of_client(*port) && !is_asked(*port);
        let changed = ports.into_iter().filter(|port| now.get(port) != vlans.get(port) && !is_left(port));
        let vlans = changed.map(|port| VlanChange { port: PortNo(port), vlan: vlans.get(&port).cloned() });
        ReloadChanges {
            groups: groups.into_iter().filter(is_new).map(GroupMod::AddOrModify).collect(),
            rules: rule_changes(&ruleset, rules),
            deleted_groups,
            vlans: vlans.collect(),
            zones,
            configured: ids,
        }
    }

    /// The mirrors in force.
    pub(crate) fn mirrors(&self) -> &LiveMirrors {
        &self.mirrors
    }

    /// Returns the changes of meters to those that a configuration asks for: new ones, and then those with other settings and those that
    /// are gone. Meters of controllers stay.
    pub(crate) fn meter_changes(&self, control: &Control, wanted: &[MeterSpec]) -> [Vec<MeterMod>; 2] {
        let (mut new, mut other) = (Vec::new(), Vec::new());
        for spec in wanted {
            match control.meters().get(&spec.number) {
                None => new.push(MeterMod::Add(spec.clone())),
                Some(there) if there.spec != *spec => other.push(MeterMod::Modify(spec.clone())),
                Some(_) => {}
            }
        }
        let wanted: BTreeSet<u32> = wanted.iter().map(|spec| spec.number).collect();
        other.extend(self.meters().difference(&wanted).map(|number| MeterMod::Delete(Some(*number))));
        [new, other]
    }

    /// Notes that changes have been made.
    pub fn made(&self, changes: ReloadChanges, meters: BTreeSet<u32>) {
        *self.groups() = changes.configured;
        *self.meters() = meters;
    }

    fn meters(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // As that of groups.
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn groups(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // The set is whole at any time.
        self.groups.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns the flow-mods that make the rules of a ruleset equal to `rules`.
fn rule_changes(ruleset: &Ruleset, rules: Vec<Rule>) -> Vec<FlowMod> {
    let name = |rule: &Rule| (rule.table, rule.priority, rule.matches.clone());
    let wanted: HashSet<_> = rules.iter().map(name).collect();
    let there = || ruleset.tables().flat_map(|(_, table)| table.rules()).map(|(_, entry)| &**entry);
    let gone = there().filter(|entry| !wanted.contains(&name(&entry.rule)));
    let gone = gone
        .map(|entry| FlowMod::new(Command::DeleteStrict, Rule { actions: Vec::new(), ..entry.rule.clone() }));
    let same: HashSet<_> = there()
        .filter(|entry| entry.timeouts.idle_s() == 0 && entry.timeouts.hard_s() == 0)
        .map(|entry| (name(&entry.rule), entry.rule.cookie, entry.rule.actions.clone()))
        .collect();
    let new =
        rules.into_iter().filter(|rule| !same.contains(&(name(rule), rule.cookie, rule.actions.clone())));
    gone.chain(new.map(|rule| FlowMod::new(Command::Add, rule))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "[[port]]\nnumber = 1\nopen = \"null\"\n[[table]]\nnumber = 0\n\
        [[route_table]]\nnumber = 1\nroutes_file = \"routes.txt\"\n\
        [[route_table.next_hop]]\nname = \"192.0.2.1\"\nactions = \"output:1\"\n";

    #[test]
    fn a_changed_file_of_routes_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let [config, routes] = ["switch.toml", "routes.txt"].map(|name| folder.path().join(name));
        std::fs::write(&config, CONFIG).unwrap();
        std::fs::write(&routes, "10.0.0.0/8 192.0.2.1\n").unwrap();
        let reload = Reload::of(&Setup::read(&config).unwrap());
        assert_eq!(reload.read(None).unwrap().rules, []);
        std::fs::write(&routes, "10.0.0.0/9 192.0.2.1\n").unwrap();
        let refused = reload.read(None).unwrap_err().to_string();
        assert!(refused.contains("[[route_table]] is not as it was"), "{refused}");
    }

    /// A new section is compared, or taken over, or its changes would be ignored.
    #[test]
    fn every_section_is_compared_or_taken_over() {
        let whole = "[openflow]\n[metrics]\n[state]\nfile = \"state\"\n[controller]\nopen = \"null\"\n[[port]]\nnumber = 1\nopen = \"null\"\n[[table]]\nnumber = 0\n\
            [[route_table]]\nnumber = 1\nroutes_file = \"routes.txt\"\n\
            [[route_table.next_hop]]\nname = \"192.0.2.1\"\nactions = \"output:1\"\n\
            [[filter_table]]\nnumber = 2\nkey = [\"nw_src\"]\n[[asset_table]]\nnumber = 3\nknown = \"drop\"\n\
            [[nat_table]]\nnumber = 4\ninside = []\npool = []\noutbound = \"drop\"\ninbound = \"drop\"\n\
            [[tunnel]]\nnumber = 1\nkind = \"vxlan\"\nlocal = \"192.0.2.1\"\nid = 1\n\
            [[tunnel_option]]\nnumber = 0\nclass = 1\ntype = 2\n[[meter]]\nnumber = 1\nrate_pps = 1\n";
        let source = Source { file: PathBuf::from("switch.toml"), text: whole.to_owned() };
        let (config, source) = Config::parse(source).unwrap_or_else(|error| panic!("{error}"));
        let compared: BTreeSet<&str> =
            sections_of(&config, source.folder()).iter().map(|section| section.key).collect();
        let schema = schemars::schema_for!(Config).to_value();
        let all: BTreeSet<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        // Of ports, those with addresses are compared.
        assert_eq!(all.difference(&compared).collect::<Vec<_>>(), [&"groups", &"meter", &"mirror", &"port"]);
        assert_eq!(compared.difference(&all).count(), 0);
    }

    #[test]
    fn a_rule_that_the_file_replaces_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("switch.toml");
        let text = "[[port]]\nnumber = 1\nopen = \"null\"\n[[table]]\nnumber = 0\n\
            rules = [\"tcp,actions=drop\"]\nrules_file = \"rules.flows\"\n";
        std::fs::write(&config, text).unwrap();
        std::fs::write(folder.path().join("rules.flows"), "tcp,actions=1\nudp,actions=1\n").unwrap();
        let (_, control) = Setup::read(&config).unwrap().open_controlled(1).unwrap();
        let again = Setup::read(&config).unwrap();
        assert_eq!(again.rules(), 2);
        assert_eq!(rule_changes(&control.ruleset(), again.rules), []);
    }
}
