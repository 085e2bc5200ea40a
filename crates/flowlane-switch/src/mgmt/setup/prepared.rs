//! A switch whose tables are built, before its ports are opened: all that can take long, or be wrong in a configuration, is behind it
//! when another switch is asked to stop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{Setup, SetupError, engine};
use crate::control::Control;
use crate::datapath::{Given, Pipeline, Switch};
use crate::mgmt::config::{ConfigError, KeyPath, TableEngine, TableSection};
use crate::mgmt::saved::StateFile;
use crate::port::PortSpec;

/// The longest time between two copies of state: a day.
const EVERY_MAX_S: u32 = 86_400;

/// A switch with tables and without ports.
pub struct Prepared {
    setup: Setup,
    seed: u32,
    pipelines: Vec<Pipeline>,
}

impl Setup {
    /// Builds the tables for all workers. `random` seeds all hashes where the configuration has no seed.
    ///
    /// # Errors
    /// The first error of a table or tunnel.
    pub fn prepare(mut self, random: u32) -> Result<Prepared, SetupError> {
        let workers = self.workers();
        let (seed, pipelines) = self.prepare_pipelines(random, workers)?;
        Ok(Prepared { setup: self, seed, pipelines })
    }

    /// Returns where state is saved, if it is.
    ///
    /// # Errors
    /// Where the interval is out of range.
    pub fn state_file(&self) -> Result<Option<StateFile>, ConfigError> {
        let Some(section) = &self.config.state else { return Ok(None) };
        if !(1..=EVERY_MAX_S).contains(&section.every_s) {
            let at = KeyPath::of("state").key("every_s");
            let help = "give it the seconds between two copies, from 1 to 86400";
            return Err(self.source.error(&at, format!("every_s = {}", section.every_s), help));
        }
        let every = Duration::from_secs(section.every_s.into());
        Ok(Some(StateFile { file: self.source.folder().join(&section.file), every }))
    }

    /// Checks that the switch writes no capture that another may have begun: opening it would lose its content.
    ///
    /// # Errors
    /// Where it does.
    pub fn check_take_over(&self) -> Result<(), ConfigError> {
        let written = |spec: &PortSpec| -> Option<PathBuf> {
            match spec {
                PortSpec::PcapOut(config) => Some(config.file.clone()),
                PortSpec::Pcap(config) => config.out.clone(),
                _ => None,
            }
        };
        for (n, spec) in self.specs.iter().enumerate() {
            // Devices lose nothing.
            if let Some(file) = written(spec).filter(|file| file.is_file()) {
                let message = format!("{} is there, and the switch that runs may write it", file.display());
                let at = KeyPath::section("port", n).key("open");
                return Err(self.source.error(&at, message, "give the port another file"));
            }
        }
        Ok(())
    }
}

impl Prepared {
    /// Opens the ports. Returns the switch with all its workers, and the control that changes its rules while it runs.
    ///
    /// # Errors
    /// The first port that cannot be opened.
    pub fn open(self) -> Result<(Switch, Control), SetupError> {
        let Self { setup, seed, pipelines } = self;
        let mut workers = setup.open_ports(seed, pipelines)?;
        let mut control = Control::attach_all(&mut workers).expect("the workers are new");
        if let (mirrors @ Some(_), _) = setup.live_mirrors.replace(&setup.mirrors) {
            control.set_mirrors(mirrors);
        }
        let is_measured = setup.config.switch.seed.is_none();
        let tables: Vec<TableSection> = setup.config.table;
        for table in tables.into_iter().filter(|table| table.engine != TableEngine::Gpu) {
            let number = table.number;
            let secret = seed ^ u32::from(number);
            let build =
                move |rules: &[Given<'_>], churn| engine::rebuild(&table, rules, secret, churn, is_measured);
            control.rebuild_with(number, Arc::new(build));
        }
        Ok((Switch::new(workers), control))
    }
}
