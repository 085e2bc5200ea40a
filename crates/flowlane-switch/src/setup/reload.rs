//! A configuration that is read again while the switch runs: its rules may be others.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use flowlane::rule::action::PortNo;
use flowlane::rule::{Command, FlowMod, Rule};

use super::{Checker, Setup, SetupError, port_names};
use crate::config::{Config, TableSection};
use crate::program::Program;

/// What a running switch remembers of its configuration.
pub struct Reload {
    file: PathBuf,
    sections: Vec<(&'static str, String)>,
    ports: HashMap<String, PortNo>,
}

/// All that is in a configuration but rules, by section.
fn but_rules(config: &Config) -> Vec<(&'static str, String)> {
    let table = |table: &TableSection| TableSection { rules: Vec::new(), rules_file: None, ..table.clone() };
    let tables: Vec<TableSection> = config.table.iter().map(table).collect();
    vec![
        ("[switch]", format!("{:?}", config.switch)),
        ("[cache]", format!("{:?}", config.cache)),
        ("[gpu]", format!("{:?}", config.gpu)),
        ("[macs]", format!("{:?}", config.macs)),
        ("[controller]", format!("{:?}", config.controller)),
        ("[[port]]", format!("{:?}", config.port)),
        ("[[table]]", format!("{tables:?}")),
        ("[[route_table]]", format!("{:?}", config.route_table)),
        ("[[filter_table]]", format!("{:?}", config.filter_table)),
        ("[[asset_table]]", format!("{:?}", config.asset_table)),
        ("[[nat_table]]", format!("{:?}", config.nat_table)),
        ("[[tunnel]]", format!("{:?}", config.tunnel)),
        ("[tunnel_policy]", format!("{:?}", config.tunnel_policy)),
        ("[[meter]]", format!("{:?}", config.meter)),
    ]
}

impl Reload {
    /// What to remember of the configuration that a switch is set up from.
    pub fn of(setup: &Setup) -> Self {
        Self {
            file: setup.file.clone(),
            sections: but_rules(&setup.config),
            ports: port_names(&setup.config),
        }
    }

    /// The port of this name.
    pub fn port(&self, name: &str) -> Option<PortNo> {
        self.ports.get(name).copied()
    }

    /// The rules of a configuration: of the one that the switch was started with, where none is named.
    ///
    /// # Errors
    /// Where it is wrong, or differs in more than rules.
    pub fn read(&self, file: Option<&Path>) -> Result<Vec<Rule>, SetupError> {
        let setup = Setup::read(file.unwrap_or(&self.file))?;
        let new = but_rules(&setup.config);
        let differs = self.sections.iter().zip(&new).find(|(old, new)| old.1 != new.1);
        if let Some(((section, _), _)) = differs {
            let message = format!(
                "{section} is not as it was when the switch was started: reloading changes rules only"
            );
            let help = Some("undo that, or stop the switch and start it again".to_owned());
            let checker = Checker { file: &setup.file, text: &setup.text };
            return Err(checker.error(section, message, help).into());
        }
        Ok(setup.rules)
    }

    /// What makes a program's rules these.
    pub fn changes(program: &Program, rules: Vec<Rule>) -> Vec<FlowMod> {
        let name = |rule: &Rule| (rule.table, rule.priority, rule.matches.clone());
        let wanted: HashSet<_> = rules.iter().map(name).collect();
        let there = || program.tables().flat_map(|(_, table)| table.rules()).map(|(_, entry)| &**entry);
        let gone = there().filter(|entry| !wanted.contains(&name(&entry.rule)));
        let gone = gone
            .map(|entry| flow_mod(Command::DeleteStrict, Rule { actions: Vec::new(), ..entry.rule.clone() }));
        let same: HashSet<_> = there()
            .filter(|entry| entry.idle_timeout_s == 0 && entry.hard_timeout_s == 0)
            .map(|entry| (name(&entry.rule), entry.rule.cookie, entry.rule.actions.clone()))
            .collect();
        let new =
            rules.into_iter().filter(|rule| !same.contains(&(name(rule), rule.cookie, rule.actions.clone())));
        gone.chain(new.map(|rule| flow_mod(Command::Add, rule))).collect()
    }
}

fn flow_mod(command: Command, rule: Rule) -> FlowMod {
    FlowMod {
        at: None,
        command,
        table: Some(rule.table),
        new_cookie: None,
        rule,
        cookie: None,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        out_port: None,
        line: 0,
    }
}
