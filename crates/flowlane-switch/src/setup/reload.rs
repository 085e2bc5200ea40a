//! A configuration that is read again while the switch runs: its rules may be others.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::{Path, PathBuf};

use flowlane::rule::action::PortNo;
use flowlane::rule::{Command, FlowMod, Rule};

use super::{Checker, Setup, SetupError, port_names};
use crate::config::{Config, TableSection};
use crate::ruleset::Ruleset;

/// What a running switch remembers of its configuration.
pub struct Reload {
    file: PathBuf,
    sections: Vec<(&'static str, String)>,
    ports: HashMap<String, PortNo>,
}

/// All that is in a configuration but rules, by section, and in the files that these name.
fn but_rules(setup: &Setup) -> Vec<(&'static str, String)> {
    let config: &Config = &setup.config;
    let folder = setup.file.parent().unwrap_or(Path::new(""));
    // Of a file that is not there any more, nothing is left.
    let content = |file: &Option<PathBuf>| {
        let bytes = file.as_ref().and_then(|file| std::fs::read(folder.join(file)).ok());
        BuildHasherDefault::<DefaultHasher>::new().hash_one(bytes)
    };
    let routes: Vec<u64> = config.route_table.iter().map(|table| content(&table.routes_file)).collect();
    let entries: Vec<u64> = config.filter_table.iter().map(|table| content(&table.entries_file)).collect();
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
        ("[[route_table]]", format!("{:?} {routes:?}", config.route_table)),
        ("[[filter_table]]", format!("{:?} {entries:?}", config.filter_table)),
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
        Self { file: setup.file.clone(), sections: but_rules(setup), ports: port_names(&setup.config) }
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
        let new = but_rules(&setup);
        let differs = self.sections.iter().zip(&new).find(|(old, new)| old.1 != new.1);
        if let Some(((section, _), _)) = differs {
            let message = format!(
                "{section} is not as it was when the switch was started (its text, or a file that it names): \
                 reloading changes rules only"
            );
            let help = Some("undo that, or stop the switch and start it again".to_owned());
            let checker = Checker { file: &setup.file, text: &setup.text };
            return Err(checker.error(section, message, help).into());
        }
        Ok(setup.rules)
    }

    /// What makes a program's rules these.
    pub fn changes(ruleset: &Ruleset, rules: Vec<Rule>) -> Vec<FlowMod> {
        let name = |rule: &Rule| (rule.table, rule.priority, rule.matches.clone());
        let wanted: HashSet<_> = rules.iter().map(name).collect();
        let there = || ruleset.tables().flat_map(|(_, table)| table.rules()).map(|(_, entry)| &**entry);
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

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "[[port]]\nnumber = 1\nopen = \"null\"\n[[table]]\nnumber = 0\n\
        [[route_table]]\nnumber = 1\nroutes_file = \"routes.txt\"\n\
        [[route_table.next_hop]]\nname = \"192.0.2.1\"\nactions = \"output:1\"\n";

    #[test]
    fn a_file_of_routes_that_has_changed_is_not_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let [config, routes] = ["switch.toml", "routes.txt"].map(|name| folder.path().join(name));
        std::fs::write(&config, CONFIG).unwrap();
        std::fs::write(&routes, "10.0.0.0/8 192.0.2.1\n").unwrap();
        let reload = Reload::of(&Setup::read(&config).unwrap());
        assert_eq!(reload.read(None).unwrap(), []);
        std::fs::write(&routes, "10.0.0.0/9 192.0.2.1\n").unwrap();
        let refused = reload.read(None).unwrap_err().to_string();
        assert!(refused.contains("[[route_table]] is not as it was"), "{refused}");
    }
}
