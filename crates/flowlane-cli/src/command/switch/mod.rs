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

use flowlane_switch::mgmt::config::Config;
use flowlane_switch::mgmt::setup::{Setup, SetupError};

use crate::arguments::SwitchVerb;
use crate::failure::{self, Failure};
use crate::output;

pub(crate) fn run(verb: &SwitchVerb) -> Result<(), Failure> {
    match verb {
        SwitchVerb::Run(options) => run::run_switch(options),
        SwitchVerb::Check { config, explain } => check(config, *explain),
        SwitchVerb::Schema => output::json(&schemars::schema_for!(Config)),
        running => client::run(running),
    }
}

fn check(config: &Path, explain: bool) -> Result<(), Failure> {
    let setup = Setup::read(config)?;
    setup.check()?;
    setup.openflow().map_err(SetupError::from)?;
    setup.state_file().map_err(SetupError::from)?;
    setup.warnings()?.into_iter().for_each(failure::warn);
    let groups = setup.groups();
    let groups = if groups > 0 { format!(", {groups} groups") } else { String::new() };
    let summary = format!(
        "{}: {} ports, {} tables, {} rules, {} routes{groups}: valid\n",
        config.display(),
        setup.ports(),
        setup.tables(),
        setup.rules(),
        setup.routes()
    );
    if !explain {
        return output::print(&summary);
    }
    let no_firewall = || {
        let help = "add one, as in examples/firewall.toml or examples/router.toml";
        let message = format!("{}: there is no section [firewall] or [router] to explain", config.display());
        Failure::input_help(message, help)
    };
    let rules = setup.explain()?.ok_or_else(no_firewall)?;
    output::print(&format!("# {summary}{rules}"))
}
