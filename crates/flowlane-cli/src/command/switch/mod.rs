//! `flowlane switch`: runs a switch, checks configurations, and controls a running switch.

mod changes;
mod client;
mod connections;
mod neighbours;
mod report;
mod routes;
mod run;
mod state;
mod workers;
mod zones;

use std::path::Path;

use flowlane_switch::mgmt::config::{Config, ConfigError};
use flowlane_switch::mgmt::setup::{Setup, SetupError};
use serde::Serialize;

use crate::arguments::SwitchVerb;
use crate::failure::{self, Diagnostic, Failure, Finding};
use crate::output;

pub(crate) fn run(verb: &SwitchVerb) -> Result<(), Failure> {
    match verb {
        SwitchVerb::Run(options) => run::run_switch(options),
        SwitchVerb::Check { config, json, explain } => check(config, *json, *explain),
        SwitchVerb::Schema => output::json(&schemars::schema_for!(Config)),
        running => client::run(running),
    }
}

/// Counts of a configuration that is valid, and warnings about it.
#[derive(Serialize)]
struct Checked {
    ports: usize,
    tables: usize,
    rules: usize,
    routes: usize,
    groups: usize,
    #[serde(skip)]
    setup: Setup,
    #[serde(skip)]
    warnings: Vec<ConfigError>,
}

impl Checked {
    fn of(config: &Path) -> Result<Self, Failure> {
        let setup = Setup::read(config)?;
        setup.check()?;
        setup.openflow().map_err(SetupError::from)?;
        setup.state_file().map_err(SetupError::from)?;
        setup.metrics().map_err(SetupError::from)?;
        Ok(Self {
            ports: setup.ports(),
            tables: setup.tables(),
            rules: setup.rules(),
            routes: setup.routes(),
            groups: setup.groups(),
            warnings: setup.warnings()?,
            setup,
        })
    }

    fn text(&self, config: &Path) -> String {
        let Self { ports, tables, rules, routes, groups, .. } = self;
        let groups = if *groups > 0 { format!(", {groups} groups") } else { String::new() };
        let config = config.display();
        format!("{config}: {ports} ports, {tables} tables, {rules} rules, {routes} routes{groups}: valid\n")
    }
}

/// Result of a check as a document.
#[derive(Serialize)]
struct CheckDocument<'a> {
    file: &'a Path,
    valid: bool,
    /// Counts, where it is valid.
    #[serde(flatten)]
    checked: Option<Checked>,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

fn check(config: &Path, json: bool, explain: bool) -> Result<(), Failure> {
    if json {
        return check_as_json(config);
    }
    let mut checked = Checked::of(config)?;
    std::mem::take(&mut checked.warnings).into_iter().for_each(failure::warn);
    let summary = checked.text(config);
    if !explain {
        return output::print(&summary);
    }
    let no_firewall = || {
        let help = "add one, as in examples/firewall.toml or examples/router.toml";
        let message = format!("{}: there is no section [firewall] or [router] to explain", config.display());
        Failure::input_help(message, help)
    };
    let rules = checked.setup.explain()?.ok_or_else(no_firewall)?;
    output::print(&format!("# {summary}{rules}"))
}

fn check_as_json(config: &Path) -> Result<(), Failure> {
    let mut document =
        CheckDocument { file: config, valid: true, checked: None, errors: Vec::new(), warnings: Vec::new() };
    match Checked::of(config) {
        Ok(mut checked) => {
            let warnings = std::mem::take(&mut checked.warnings);
            document.warnings =
                warnings.into_iter().map(|warning| Diagnostic::from(warning).finding()).collect();
            document.checked = Some(checked);
            output::json(&document)
        }
        Err(failure) => {
            document.valid = false;
            document.errors.push(failure.finding());
            output::json(&document)?;
            Err(Failure::Reported(Box::new(failure)))
        }
    }
}
