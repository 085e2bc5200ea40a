//! Builds a switch from its configuration.

mod engine;
mod few_rules;
mod firewall;
mod gpu;
mod groups;
mod interfaces;
mod limits;
mod lines;
mod links;
mod metrics;
mod mirrors;
mod numbers;
mod openflow;
mod ports;
mod prepared;
mod privileges;
mod qos;
mod reader;
mod reload;
mod router;
mod routes;
mod stateful_stages;
mod tunnels;
mod vlans;
mod warnings;
mod workers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::iter::once;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowlane::classify::InsertError;
use flowlane::classify::acl::AclEngine;
use flowlane::rule::action::PortNo;
use flowlane::rule::group::Group;
use flowlane::rule::{ReadErrors, Rule, flow_syntax};
use flowlane_gpu::Device;

pub(crate) use self::mirrors::LiveMirrors;
pub use self::openflow::OpenflowSetup;
pub use self::ports::PortSet;
pub(crate) use self::ports::{Asked, Opened};
pub use self::prepared::Prepared;
pub use self::privileges::Privileges;
pub(crate) use self::qos::interface_of as qos_interface;
pub use self::reload::Reload;
pub use self::routes::{LiveRoutes, Origin, RouteReport};
pub(crate) use self::tunnels::{read_host_mac, read_mac};
pub(crate) use self::vlans::of as vlan_of;

use self::reader::Reader;
use self::routes::RoutesSetup;
use self::stateful_stages::StageSetup;
use crate::control::{Control, MeterSpec};
use crate::datapath::{Clock, Switch, Worker};
use crate::datapath::{Engine, Given, NotAdded, Pipeline};
use crate::mgmt::config::{
    ClockSource, Config, ConfigError, KeyPath, MeterSection, Source, TableEngine, TableSection,
};
use crate::port::spec::check_captures;
use crate::port::{PortError, PortSpec};
use crate::stage::Shard;
use crate::state::conntrack::Connections;
use crate::state::meter::{Band, Excess, Meter, Unit};
use crate::state::mirror::MirrorSettings;
use crate::state::router::Interface;
use crate::tunnel::{PortTunnels, Tunnels};

/// An error of setting a switch up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// An error of a part of the configuration, or of what it needs from the environment.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Errors in lines of rules, routes or entries, in the configuration or in a file that it names.
    #[error("{errors}")]
    Lines {
        /// The text that the errors are in.
        text: String,
        errors: ReadErrors,
    },
}

/// A checked configuration with its rules read, before tables are built and ports are opened.
pub struct Setup {
    source: Source,
    /// The router's interfaces.
    interfaces: Vec<Interface>,
    config: Config,
    groups: Vec<Group>,
    rules: Vec<Rule>,
    routes: Vec<RoutesSetup>,
    stateful_stages: Vec<StageSetup>,
    /// The table of connections, in which translations have their sessions.
    connections: Arc<Connections>,
    mirrors: Vec<MirrorSettings>,
    /// Those in force, once the switch is open.
    live_mirrors: Arc<LiveMirrors>,
    specs: Vec<PortSpec>,
    /// Ports behind these are of clients of a switch whose place this one takes.
    configured_ports: usize,
    controller: Option<PortSpec>,
}

impl Setup {
    /// Reads and checks the configuration in `file`, and the rules that it names. Opens no port and builds no table:
    /// [`check`](Self::check) or [`open`](Self::open) do, and report rules that tables reject.
    ///
    /// # Errors
    /// The first error, with its place.
    pub fn read(file: &Path) -> Result<Self, SetupError> {
        Self::of(Config::read(file)?)
    }

    /// Checks a configuration whose text is not in a file, with paths relative to the current folder.
    pub(crate) fn parse(text: &str) -> Result<Self, SetupError> {
        Self::of(Config::parse(Source { file: PathBuf::new(), text: text.to_owned() })?)
    }

    fn of((mut config, source): (Config, Source)) -> Result<Self, SetupError> {
        let interfaces = interfaces::read(&config, &source)?;
        interfaces::set_tunnels(&mut config, &interfaces);
        let plan = firewall::Plan::read(&config, &interfaces, &source)?;
        router::add_tables(&mut config, plan.as_ref(), &interfaces, &source)?;
        firewall::add_tables(&mut config, plan.as_ref(), &interfaces, &source)?;
        openflow::add_tables(&mut config);
        numbers::check(&config, &source)?;
        let mirrors = mirrors::read(&config, &source)?;
        let (specs, controller) = port_specs(&config, &source)?;
        let mut reader = Reader::new(&source, &config);
        let groups = groups::read(&mut reader, &config)?;
        let mut rules = Vec::new();
        for (n, table) in config.table.iter().enumerate() {
            rules.extend(reader.rules(table, &KeyPath::section("table", n))?);
        }
        // Sections and files may repeat a rule: a reload compares the rules in force.
        let rules = flow_syntax::in_force(rules);
        let mut routes = Vec::new();
        for (n, section) in config.route_table.iter().enumerate() {
            let is_routers = config.router.as_ref().is_some_and(|r| r.routes_table == section.number);
            let at = if is_routers { KeyPath::of("router") } else { KeyPath::section("route_table", n) };
            let links = routes::Links::of(&config, &interfaces);
            routes.push(RoutesSetup::read(section, at, &reader, links, is_routers)?);
        }
        let stateful_stages = stateful_stages::read(&config, &reader)?;
        gpu::check(&config.gpu, &source)?;
        let connections = workers::connections(&config);
        Ok(Self {
            interfaces,
            source,
            config,
            groups,
            rules,
            routes,
            stateful_stages,
            connections,
            mirrors,
            live_mirrors: Arc::default(),
            configured_ports: specs.len(),
            specs,
            controller,
        })
    }

    /// Checks that no port writes over a file that is read beside the configuration.
    ///
    /// # Errors
    /// Where one does: the file's content would be lost.
    pub fn check_input(&self, file: &Path) -> Result<(), SetupError> {
        let specs: Vec<PortSpec> = self.specs.iter().chain(&self.controller).cloned().collect();
        check_captures(&specs, &[file.to_owned()]).map_err(|(n, error)| {
            let controller = KeyPath::of("controller");
            let place = if n < self.specs.len() { KeyPath::section("port", n) } else { controller };
            port_failed(&error, &place, &self.source).into()
        })
    }

    /// Checks that all tables can be built: builds them, on the CPU, and drops them.
    ///
    /// # Errors
    /// The first error of a table or tunnel, or a size that exceeds this machine's memory.
    pub fn check(&self) -> Result<(), SetupError> {
        limits::room(&self.config, &self.source)?;
        self.tunnels(0)?;
        self.pipeline(self.rules.clone(), 0, None, None, Shard::default())?;
        Ok(())
    }

    /// Returns whether a port is an interface of the system, so that input does not end by itself.
    pub fn is_live(&self) -> bool {
        self.specs.iter().any(PortSpec::is_live)
    }

    /// Returns the controllers that drive the switch by OpenFlow, if any may.
    ///
    /// # Errors
    /// An address or a datapath identifier that is malformed.
    pub fn openflow(&self) -> Result<Option<OpenflowSetup>, ConfigError> {
        openflow::read(&self.config, &self.source)
    }

    /// Number of rules in all tables.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.specs.len()
    }

    /// Number of tables: of rules, of routes, and stateful stages.
    pub fn tables(&self) -> usize {
        self.config.table.len() + self.routes.len() + self.stateful_stages.len()
    }

    /// Number of routes in all tables.
    pub fn routes(&self) -> usize {
        self.routes.iter().map(RoutesSetup::len).sum()
    }

    /// Builds the tables, opens the ports and builds a single worker, regardless of the configured number. `random` seeds all
    /// hashes where the configuration has no seed.
    ///
    /// # Errors
    /// The first error of a table or tunnel, or the first port that cannot be opened.
    pub fn open(self, random: u32) -> Result<Worker, SetupError> {
        Ok(self.open_workers(random, 1)?.remove(0))
    }

    /// Builds the tables, opens the ports and builds all workers.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_all(self, random: u32) -> Result<Vec<Worker>, SetupError> {
        let workers = self.workers();
        self.open_workers(random, workers)
    }

    /// Returns the table of the system whose routes are followed, and the table of routes that they go to.
    pub fn kernel_table(&self) -> Option<(u32, u8)> {
        let section = self.config.router.as_ref()?;
        Some((router::kernel_table(section.kernel_table.as_deref()?)?, section.routes_table))
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        workers::number(&self.config)
    }

    /// Builds the switch with all its workers, and the control that changes its rules while it runs.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_controlled(self, random: u32) -> Result<(Switch, Control), SetupError> {
        self.prepare(random)?.open()
    }

    fn tunnels(&self, seed: u32) -> Result<Option<Tunnels>, ConfigError> {
        tunnels::open(&self.config, seed, &self.source, |tunnel| self.tunnel_mtu(tunnel))
    }

    fn port_tunnels(&self) -> Result<PortTunnels, ConfigError> {
        tunnels::policy_of(&self.config, &self.source).map(PortTunnels::new)
    }

    /// Builds the tables with these rules, each once. Without a device, its tables are on the CPU; without a clock, no engine
    /// is measured.
    fn pipeline(
        &self,
        mut rules: Vec<Rule>,
        seed: u32,
        device: Option<&Device>,
        mut clock: Option<&mut engine::Clock<'_>>,
        shard: Shard,
    ) -> Result<Pipeline, SetupError> {
        let mut pipeline = Pipeline::new();
        for routes in &self.routes {
            let table = routes.open(seed.rotate_left(19), clock.is_some(), &self.source)?;
            pipeline.add_routes(routes.number(), table);
        }
        for stage in &self.stateful_stages {
            pipeline.add_stage(stage.number(), self.stage(stage, seed, shard)?);
        }
        // Best first: what engines insert fastest.
        rules.sort_by_key(|rule| Reverse(rule.priority));
        let mut rules_of: BTreeMap<u8, Vec<Rule>> = BTreeMap::new();
        rules.into_iter().for_each(|rule| rules_of.entry(rule.table).or_default().push(rule));
        // A rule may learn into any table, whichever is built first.
        pipeline.expect_tables(self.config.table.iter().map(|table| table.number));
        // The last table first, since rules lead to later ones.
        let mut tables: Vec<(usize, &TableSection)> = self.config.table.iter().enumerate().collect();
        tables.sort_by_key(|(_, table)| Reverse(table.number));
        for (n, table) in tables {
            let at = KeyPath::section("table", n);
            let number = table.number;
            let seed = seed ^ u32::from(number);
            let rules = rules_of.remove(&number).unwrap_or_default();
            let engine =
                |rules: &[Given<'_>]| self.engine(table, &at, rules, seed, device, clock.as_deref_mut());
            pipeline.add_table_of(number, &table.name, rules, table.miss, engine).map_err(
                |error| match error {
                    NotAdded::Rule(rule, error) => {
                        self.source.error(&at, format!("rule `{rule}`: {error}"), "")
                    }
                    NotAdded::Engine(error) => error,
                },
            )?;
        }
        // Their buckets lead to tables.
        for group in &self.groups {
            let added = pipeline.add_group(group.clone());
            added.map_err(|refused| self.refused_group(group.id, refused))?;
        }
        Ok(pipeline)
    }

    /// The engine for these rules of a table.
    fn engine(
        &self,
        table: &TableSection,
        at: &KeyPath,
        rules: &[Given<'_>],
        seed: u32,
        device: Option<&Device>,
        clock: Option<&mut engine::Clock<'_>>,
    ) -> Result<Engine, ConfigError> {
        let number = table.number;
        if let (TableEngine::Gpu, Some(device)) = (table.engine, device) {
            let list = engine::list_config(table, AclEngine::Auto, seed);
            let made = gpu::table(device, &self.config.gpu, list, rules);
            return made
                .map(Engine::Later)
                .map_err(|error| gpu::failed(&error, &format!("table {number}"), at, &self.source));
        }
        let refused = |error: InsertError| {
            let key = match error {
                InsertError::Full { .. } => "rules_max",
                _ => "memory_mib",
            };
            self.source.error(&at.key(key), format!("table {number}: {error}"), "")
        };
        Ok(Engine::Now(engine::build(table, rules, seed, clock).map_err(refused)?))
    }

    fn clock(&self) -> Clock {
        let capture = |spec: &PortSpec| {
            !spec.is_live() && !matches!(spec, PortSpec::Gen { .. } | PortSpec::Patch { .. })
        };
        match self.config.switch.clock {
            ClockSource::Wall => Clock::Wall,
            ClockSource::Frames => Clock::Frames,
            // Others may come.
            ClockSource::Auto if self.config.switch.adds_ports => Clock::Wall,
            ClockSource::Auto if self.specs.iter().all(capture) => Clock::Frames,
            ClockSource::Auto => Clock::Wall,
        }
    }
}

/// The ports of a configuration, and the controller's.
fn port_specs(config: &Config, source: &Source) -> Result<(Vec<PortSpec>, Option<PortSpec>), ConfigError> {
    let read = |text: &str, at: KeyPath| {
        let spec: Result<PortSpec, _> = text.parse();
        let mut spec = spec.map_err(|error| port_failed(&error, &at, source))?;
        spec.relative_to(source.folder());
        Ok((spec, at))
    };
    let controller = config.controller.as_ref();
    let ports = config.port.iter().enumerate().map(|(n, p)| read(&p.open, KeyPath::section("port", n)));
    let controller = controller.map(|controller| read(&controller.open, KeyPath::of("controller")));
    let all = ports.chain(controller).collect::<Result<Vec<_>, ConfigError>>()?;
    let (mut specs, places): (Vec<PortSpec>, Vec<KeyPath>) = all.into_iter().unzip();
    check_captures(&specs, &inputs(config, source))
        .map_err(|(n, error)| port_failed(&error, &places[n], source))?;
    for (n, spec) in specs.iter().enumerate().filter(|(_, spec)| spec.interface().is_some()) {
        if let Some(first) = specs[..n].iter().find(|first| first.interface() == spec.interface()) {
            let message = format!("{first} is a port already, and would receive each frame twice");
            return Err(source.error(&places[n], message, "open each interface once"));
        }
    }
    let controller = if config.controller.is_some() { specs.pop() } else { None };
    Ok((specs, controller))
}

/// The configuration, and the files that it names.
fn inputs(config: &Config, source: &Source) -> Vec<PathBuf> {
    let rules = config.table.iter().filter_map(|table| table.rules_file.as_deref());
    let routes = config.route_table.iter().filter_map(|table| table.routes_file.as_deref());
    let entries = config.filter_table.iter().filter_map(|table| table.entries_file.as_deref());
    let groups = config.groups.groups_file.as_deref();
    let named = rules.chain(routes).chain(entries).chain(groups).map(|file| source.folder().join(file));
    once(source.file.clone()).chain(named).collect()
}

/// An error of the port that a section opens.
fn port_failed(error: &PortError, section: &KeyPath, source: &Source) -> ConfigError {
    let environment = matches!(error, PortError::Environment { .. });
    ConfigError { environment, ..source.error(&section.key("open"), error.to_string(), "") }
}

fn port_names(config: &Config) -> HashMap<String, PortNo> {
    let ports = config.port.iter();
    ports.map(|p| (p.name().into_owned(), PortNo(p.number))).collect()
}

fn meter(section: &MeterSection) -> Meter {
    let MeterSpec { unit, bands, .. } = meter_spec(section);
    Meter::of_bands(unit, bands)
}

/// A meter as control has it.
fn meter_spec(section: &MeterSection) -> MeterSpec {
    let (unit, rate) = match (section.rate_kbps, section.rate_pps) {
        (Some(kbps), _) => (Unit::Kilobits, kbps),
        (_, pps) => (Unit::Packets, pps.unwrap_or(0)),
    };
    let band = |rate: u64, burst: Option<u64>, remark: Option<NonZeroU8>| {
        let excess = remark.map_or(Excess::Drop, |levels| Excess::Remark(levels.get()));
        Band { rate, burst: burst.unwrap_or(rate / 10).max(1), excess }
    };
    let further = section.band.iter().map(|further| band(further.rate.get(), further.burst, further.remark));
    let bands = once(band(rate, section.burst, section.remark)).chain(further).collect();
    MeterSpec { number: section.number, unit, bands, has_bursts: true, keeps_statistics: true }
}

/// The numbers of all tables, by kind, and their sections.
fn table_numbers(config: &Config) -> impl Iterator<Item = (u8, KeyPath)> {
    fn of(list: &'static str, numbers: Vec<u8>) -> impl Iterator<Item = (u8, KeyPath)> {
        numbers.into_iter().enumerate().map(move |(n, number)| (number, KeyPath::section(list, n)))
    }
    let rules = of("table", config.table.iter().map(|t| t.number).collect());
    let routes = of("route_table", config.route_table.iter().map(|t| t.number).collect());
    let filters = of("filter_table", config.filter_table.iter().map(|t| t.number).collect());
    let assets = of("asset_table", config.asset_table.iter().map(|t| t.number).collect());
    let nats = of("nat_table", config.nat_table.iter().map(|t| t.number).collect());
    rules.chain(routes).chain(filters).chain(assets).chain(nats)
}
