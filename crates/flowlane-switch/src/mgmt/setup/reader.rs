//! Reads the rules and actions of a configuration, and checks that what they name is in it.

use std::collections::{BTreeSet, HashMap};

use flowlane::rule::action::{PortNo, Reference};
use flowlane::rule::flow_syntax::read_actions;
use flowlane::rule::{Action, Format, ReadOptions, Rule};

use super::lines::Lines;
use super::{SetupError, port_names, table_numbers};
use crate::mgmt::config::{Config, KeyPath, Source, TableSection};
use crate::ruleset::{RulesetError, compile_post_cache};

/// The ports, meters, tunnels and tables that rules of a configuration may name.
pub(super) struct Reader<'a> {
    pub(super) source: &'a Source,
    names: HashMap<String, PortNo>,
    ports: BTreeSet<u32>,
    meters: BTreeSet<u32>,
    /// Those that packets leave through.
    tunnels: BTreeSet<u32>,
    tables: BTreeSet<u8>,
    rule_tables: BTreeSet<u8>,
    /// The groups, when they have been read.
    groups: Option<BTreeSet<u32>>,
    /// Controllers may bring groups.
    has_controllers: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a Source, config: &Config) -> Self {
        let leaving = config.tunnel.iter().filter(|tunnel| tunnel.remote.is_some());
        Self {
            source,
            names: port_names(config),
            ports: config.port.iter().map(|port| port.number).collect(),
            meters: config.meter.iter().map(|meter| meter.number).collect(),
            tunnels: leaving.map(|tunnel| tunnel.number).collect(),
            tables: table_numbers(config).map(|(number, _)| number).collect(),
            rule_tables: config.table.iter().map(|table| table.number).collect(),
            groups: None,
            has_controllers: config.openflow.is_some(),
        }
    }

    /// Refuses actions that name other groups from now on, unless controllers may bring them.
    pub(super) fn set_groups(&mut self, groups: BTreeSet<u32>) {
        self.groups = Some(groups);
    }

    fn lacks_group(&self, group: u32) -> bool {
        !self.has_controllers && self.groups.as_ref().is_some_and(|groups| !groups.contains(&group))
    }

    /// Checks that what an action refers to is in the configuration. Controllers may bring groups.
    fn check_action(&self, action: &Action) -> Result<(), String> {
        action.references().into_iter().try_for_each(|reference| match reference {
            Reference::Port(PortNo::LOCAL) if !self.ports.contains(&PortNo::LOCAL.0) => {
                Err("Flowlane has no port of its own host; give a [[port]] the number 65534, or the name LOCAL".to_owned())
            }
            Reference::Port(PortNo(port)) if !self.ports.contains(&port) => {
                Err(format!("there is no port {port}; declare it with [[port]]"))
            }
            Reference::Meter(meter) if !self.meters.contains(&meter) => {
                Err(format!("there is no meter {meter}; declare it with [[meter]]"))
            }
            Reference::Tunnel(tunnel) if !self.tunnels.contains(&tunnel) => Err(format!(
                "there is no tunnel {tunnel} that packets leave through; declare it with [[tunnel]], with a remote address"
            )),
            Reference::Table(table) if !self.tables.contains(&table) => {
                Err(RulesetError::NoGotoTable(table).to_string())
            }
            Reference::Group(group) if self.lacks_group(group) => Err(format!(
                "there is no group {group}; add it to [groups], or a section [openflow] for controllers that bring groups"
            )),
            Reference::Port(_)
            | Reference::Meter(_)
            | Reference::Tunnel(_)
            | Reference::Table(_)
            | Reference::Group(_)
            | Reference::Option(_) => Ok(()),
        })
    }

    fn check_table(&self, table: u8) -> Result<(), String> {
        match self.rule_tables.contains(&table) {
            true => Ok(()),
            false => Err(format!("there is no table {table}; declare it with [[table]]")),
        }
    }

    /// Calls `read` with options for text of this table.
    pub(super) fn with_options<T>(
        &self,
        table: u8,
        rules_max: usize,
        read: impl FnOnce(&ReadOptions<'_>) -> T,
    ) -> T {
        read(&ReadOptions {
            ports: &|name| self.names.get(name).copied(),
            table_default: table,
            rules_max,
            check_action: &|action| self.check_action(action),
            check_table: &|table| self.check_table(table),
            ..ReadOptions::default()
        })
    }

    /// The rules of a table: those in the configuration, then those of its file.
    pub(super) fn rules(&self, table: &TableSection, at: &KeyPath) -> Result<Vec<Rule>, SetupError> {
        let read = |lines: &Lines<'_>, format| {
            self.with_options(table.number, table.rules_max, |options| {
                flowlane::rule::read(&lines.text, &lines.name(), format, options)
                    .map_err(|errors| lines.errors(errors))
            })
        };
        let mut rules = read(&Lines::list(self.source, at.key("rules"), &table.rules), Some(Format::Flows))?;
        if let Some(file) = &table.rules_file {
            rules.extend(read(&Lines::file(self.source, &at.key("rules_file"), file, "")?, None)?);
        }
        Ok(rules)
    }

    /// The actions of a verdict or next hop, which run behind the caches in a table of this number.
    pub(super) fn actions(&self, number: u8, text: &str, at: KeyPath) -> Result<Vec<Action>, SetupError> {
        let lines = Lines::string(self.source, at, text);
        let check = |action: &Action| {
            self.check_action(action)?;
            compile_post_cache(std::slice::from_ref(action), number)
                .map_or_else(|e| Err(e.to_string()), |_| Ok(()))
        };
        let read = self.with_options(number, usize::MAX, |options| {
            read_actions(&lines.text, &lines.name(), &ReadOptions { check_action: &check, ..*options })
        });
        read.map_err(|errors| lines.errors(errors))
    }
}
