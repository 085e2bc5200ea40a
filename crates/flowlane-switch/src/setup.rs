//! From configuration to worker.

mod engine;
mod functions;
mod gpu;
mod limits;
mod privileges;
mod reload;
mod routes;
mod tunnels;
mod workers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowlane::classify::acl::AclEngine;
use flowlane::isa::Variant;
use flowlane::rule::action::PortNo;
use flowlane::rule::{Action, Format, ReadErrors, ReadOptions, Rule};
use flowlane_gpu::{Device, GpuError};

pub use self::privileges::Privileges;
pub use self::reload::Reload;

use self::functions::FunctionSetup;
use self::routes::RoutesSetup;
use crate::config::{
    ClockChoice, Config, ConfigError, EngineChoice, MeterSection, MissChoice, TableSection, VariantChoice,
};
use crate::control::Control;
use crate::datapath::{Clock, Switch, Worker};
use crate::datapath::{Engine, Given, NotAdded, Pipeline};
use crate::port::spec::no_capture_is_lost;
use crate::port::{PortError, PortSpec};
use crate::ruleset::{Miss, RulesetError};
use crate::stage::Share;
use crate::state::meter::{Meter, Rate};
use crate::tunnel::Tunnels;

/// Why a switch cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The configuration's own content.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Rules in the configuration or a file.
    #[error("rules of table {table}")]
    Rules {
        table: u8,
        /// The text that was read.
        text: String,
        /// What is wrong with it.
        errors: ReadErrors,
    },
    #[error(transparent)]
    Port(#[from] PortError),
    /// The device that tables are on.
    #[error("engine = \"gpu\": {0}")]
    Device(#[from] GpuError),
    /// A table whose rules cannot be brought to where they are to be found.
    #[error("table {table}: {source}")]
    Table {
        table: u8,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A configuration that has been checked, with its rules read: what is left is to build the tables and to open the ports.
pub struct Setup {
    file: PathBuf,
    text: String,
    config: Config,
    rules: Vec<Rule>,
    routes: Vec<RoutesSetup>,
    functions: Vec<FunctionSetup>,
    specs: Vec<PortSpec>,
    controller: Option<PortSpec>,
}

impl Setup {
    /// Reads and checks the configuration in `file`, and the rules that it names. Opens no port and builds no table: whether
    /// the tables take the rules is seen by [`check`](Self::check), or by [`open`](Self::open), which builds them to stay.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn read(file: &Path) -> Result<Self, SetupError> {
        let (config, text) = Config::read(file)?;
        let checker = Checker { file, text: &text };
        let folder = file.parent().unwrap_or(Path::new("."));
        checker.numbers(&config)?;
        let names = port_names(&config);
        let specs: Vec<PortSpec> =
            config.port.iter().map(|p| spec(&p.open, folder)).collect::<Result<_, _>>()?;
        let controller = config.controller.as_ref().map(|c| spec(&c.open, folder)).transpose()?;
        no_capture_is_lost(specs.iter().chain(&controller))?;
        let mut rules = Vec::new();
        for table in &config.table {
            rules.extend(table_rules(table, file, folder, &names)?);
        }
        let place = |needle: &str, message, help| checker.error(needle, message, Some(help));
        let resolve = |name: &str| names.get(name).copied();
        let mut routes = Vec::new();
        for section in &config.route_table {
            let options =
                ReadOptions { ports: &resolve, table_default: section.number, ..Default::default() };
            routes.push(RoutesSetup::read(section, folder, &options, &place)?);
        }
        let options = ReadOptions { ports: &resolve, ..Default::default() };
        let functions = functions::read(&config, folder, &options, &place)?;
        let everywhere: BTreeSet<u8> = table_numbers(&config).collect();
        let rule_tables: BTreeSet<u8> = config.table.iter().map(|t| t.number).collect();
        checker.references(&config, &rules, &rule_tables)?;
        for table in &routes {
            let hops: Vec<Rule> = table.as_rules().collect();
            checker.references(&config, &hops, &BTreeSet::from([table.number()]))?;
            checker.leads_somewhere(&hops, &everywhere)?;
        }
        for function in &functions {
            let verdicts: Vec<Rule> = function.as_rules().collect();
            checker.references(&config, &verdicts, &BTreeSet::from([function.number()]))?;
            checker.leads_somewhere(&verdicts, &everywhere)?;
        }
        gpu::check(&config.gpu, &|needle, message, help| checker.error(needle, message, Some(help)))?;
        Ok(Self { file: file.to_owned(), text, config, rules, routes, functions, specs, controller })
    }

    /// Whether the tables take what they are to hold: builds them, on the CPU, and forgets them.
    ///
    /// # Errors
    /// The first thing that a table or tunnel refuses, or that this machine has no room for.
    pub fn check(&self) -> Result<(), SetupError> {
        limits::room(&self.config, &self.checker())?;
        self.tunnels(0)?;
        self.pipeline(self.rules.clone(), 0, None, None, Share::default())?;
        Ok(())
    }

    /// Whether it has ports that live on: interfaces of the system, and not only captures and generators.
    pub fn is_live(&self) -> bool {
        self.specs.iter().any(PortSpec::is_live)
    }

    /// Number of rules in all tables.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.specs.len()
    }

    /// Number of tables: of rules, of routes, and functions.
    pub fn tables(&self) -> usize {
        self.config.table.len() + self.routes.len() + self.functions.len()
    }

    /// Number of routes in all tables.
    pub fn routes(&self) -> usize {
        self.routes.iter().map(RoutesSetup::len).sum()
    }

    /// Builds the tables, opens the ports and puts one worker together, whatever the configuration says of their number.
    /// `random` is the seed of all hashes where the configuration gives none.
    ///
    /// # Errors
    /// The first thing that a table or tunnel refuses, or the first port that cannot be opened.
    pub fn open(self, random: u32) -> Result<Worker, SetupError> {
        Ok(self.open_workers(random, 1)?.remove(0))
    }

    /// The same with all workers.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_all(self, random: u32) -> Result<Vec<Worker>, SetupError> {
        let workers = self.workers();
        self.open_workers(random, workers)
    }

    /// How many workers there are to be.
    pub fn workers(&self) -> usize {
        workers::number(&self.config)
    }

    /// The switch with all its workers, and whoever changes its rules while it runs.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_controlled(self, random: u32) -> Result<(Switch, Control), SetupError> {
        let seed = self.config.switch.seed;
        let tables: Vec<TableSection> = self.config.table.clone();
        let mut workers = self.open_all(random)?;
        let mut control = Control::over_all(&mut workers).expect("the workers are new");
        for table in tables.into_iter().filter(|table| table.engine != EngineChoice::Gpu) {
            let (number, measured) = (table.number, seed.is_none());
            let secret = seed.unwrap_or(random) ^ u32::from(number);
            let build = move |rules: &[Given<'_>], expected| {
                engine::rebuild(&table, rules, secret, expected, measured)
            };
            control.renew_with(number, Arc::new(build));
        }
        Ok((Switch::new(workers), control))
    }

    fn checker(&self) -> Checker<'_> {
        Checker { file: &self.file, text: &self.text }
    }

    fn tunnels(&self, seed: u32) -> Result<Option<Tunnels>, ConfigError> {
        let checker = self.checker();
        tunnels::open(&self.config, seed, &|needle, message, help| checker.error(needle, message, Some(help)))
    }

    /// The tables with these rules, each built once. Without a device, its tables are on the CPU; without a clock, no engine
    /// is measured.
    fn pipeline(
        &self,
        mut rules: Vec<Rule>,
        seed: u32,
        device: Option<&Device>,
        mut clock: Option<&mut engine::Clock<'_>>,
        share: Share,
    ) -> Result<Pipeline, SetupError> {
        let refused = |message: String| self.checker().error("[[table]]", message, None);
        let mut pipeline = Pipeline::new();
        for routes in &self.routes {
            let table = routes.open(seed.rotate_left(19)).map_err(|e| refused(format!("routes: {e}")))?;
            pipeline.add_routes(routes.number(), table);
        }
        for function in &self.functions {
            pipeline.add_function(function.number(), self.function(function, seed, share)?);
        }
        // Best first: what engines insert fastest.
        rules.sort_by_key(|rule| Reverse(rule.priority));
        let mut rules_of: BTreeMap<u8, Vec<Rule>> = BTreeMap::new();
        rules.into_iter().for_each(|rule| rules_of.entry(rule.table).or_default().push(rule));
        // The last table first, since rules lead to later ones.
        let mut tables: Vec<&TableSection> = self.config.table.iter().collect();
        tables.sort_by_key(|table| Reverse(table.number));
        for table in tables {
            let number = table.number;
            let seed = seed ^ u32::from(number);
            let miss = match table.miss {
                MissChoice::Drop => Miss::Drop,
                MissChoice::Controller => Miss::Controller,
                MissChoice::Continue => Miss::Continue,
            };
            let rules = rules_of.remove(&number).unwrap_or_default();
            let engine = |rules: &[Given<'_>]| self.engine(table, rules, seed, device, clock.as_deref_mut());
            pipeline.add_table_of(number, &table.name, rules, miss, engine).map_err(|error| match error {
                NotAdded::Rule(rule, error) => refused(format!("rule `{rule}`: {error}")).into(),
                NotAdded::Engine(error) => error,
            })?;
        }
        Ok(pipeline)
    }

    /// What finds these rules of a table.
    fn engine(
        &self,
        table: &TableSection,
        rules: &[Given<'_>],
        seed: u32,
        device: Option<&Device>,
        clock: Option<&mut engine::Clock<'_>>,
    ) -> Result<Engine, SetupError> {
        let number = table.number;
        if let (EngineChoice::Gpu, Some(device)) = (table.engine, device) {
            let list = engine::list_config(table, AclEngine::Auto, seed);
            let made = gpu::table(device, &self.config.gpu, list, rules);
            return made
                .map(Engine::Later)
                .map_err(|error| SetupError::Table { table: number, source: error.into() });
        }
        let refused = |error| self.checker().error("[[table]]", format!("table {number}: {error}"), None);
        Ok(Engine::Now(engine::build(table, rules, seed, clock).map_err(refused)?))
    }

    fn clock(&self) -> Clock {
        let capture = |spec: &PortSpec| !spec.is_live() && !matches!(spec, PortSpec::Gen { .. });
        match self.config.switch.clock {
            ClockChoice::Wall => Clock::Wall,
            ClockChoice::Frames => Clock::Frames,
            ClockChoice::Auto if self.specs.iter().all(capture) => Clock::Frames,
            ClockChoice::Auto => Clock::Wall,
        }
    }
}

fn spec(text: &str, folder: &Path) -> Result<PortSpec, PortError> {
    let mut spec: PortSpec = text.parse()?;
    spec.relative_to(folder);
    Ok(spec)
}

fn variant_of(choice: VariantChoice) -> Variant {
    match choice {
        VariantChoice::Scalar => Variant::Scalar,
        VariantChoice::Sse42 => Variant::Sse42,
        VariantChoice::Avx2 => Variant::Avx2,
        VariantChoice::Avx512 => Variant::Avx512,
    }
}

fn port_name(number: u32, name: Option<&str>) -> String {
    name.map_or_else(|| format!("port{number}"), str::to_owned)
}

fn port_names(config: &Config) -> HashMap<String, PortNo> {
    let ports = config.port.iter();
    ports.map(|p| (port_name(p.number, p.name.as_deref()), PortNo(p.number))).collect()
}

fn meter(section: &MeterSection) -> Meter {
    let (rate, per_second) = match (section.rate_kbps, section.rate_pps) {
        (Some(kbps), _) => (Rate::Kbps(kbps), kbps),
        (_, pps) => (Rate::Pps(pps.unwrap_or(0)), pps.unwrap_or(0)),
    };
    Meter::new(rate, section.burst.unwrap_or(per_second / 10))
}

/// The rules of a table: those that stand in the configuration, then those of its file.
fn table_rules(
    table: &TableSection,
    file: &Path,
    folder: &Path,
    names: &HashMap<String, PortNo>,
) -> Result<Vec<Rule>, SetupError> {
    let resolve = |name: &str| names.get(name).copied();
    let options = ReadOptions {
        ports: &resolve,
        table_default: table.number,
        rules_max: table.rules_max,
        ..Default::default()
    };
    let read = |text: String, name: &str, format| {
        flowlane::rule::read(&text, name, format, &options).map_err(|errors| SetupError::Rules {
            table: table.number,
            text,
            errors,
        })
    };
    let inline = table.rules.join("\n");
    let place = format!("{} (rules of table {})", file.display(), table.number);
    let mut rules = read(inline, &place, Some(Format::Flows))?;
    if let Some(path) = &table.rules_file {
        let path: PathBuf = folder.join(path);
        let text = std::fs::read_to_string(&path).map_err(|e| ConfigError {
            file: path.clone(),
            text: String::new(),
            span: None,
            message: format!("the rules of table {} cannot be read: {e}", table.number),
            help: None,
            environment: false,
        })?;
        rules.extend(read(text, &path.display().to_string(), None)?);
    }
    Ok(rules)
}

/// The numbers of all tables, in the order in which they stand.
fn table_numbers(config: &Config) -> impl Iterator<Item = u8> {
    let rules = config.table.iter().map(|t| t.number);
    let routes = config.route_table.iter().map(|t| t.number);
    let filters = config.filter_table.iter().map(|t| t.number);
    let assets = config.asset_table.iter().map(|t| t.number);
    let nats = config.nat_table.iter().map(|t| t.number);
    rules.chain(routes).chain(filters).chain(assets).chain(nats)
}

/// Finds what is wrong with the numbers in a configuration, and where it stands in the text.
struct Checker<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Checker<'_> {
    /// An error at the first place of `needle` in the text; of none in particular where it is not there, or empty.
    fn error(&self, needle: &str, message: String, help: Option<String>) -> ConfigError {
        let at = self.text.find(needle).filter(|_| !needle.is_empty());
        let span = at.map(|at| at..at + needle.len());
        ConfigError {
            file: self.file.to_owned(),
            text: self.text.to_owned(),
            span,
            message,
            help,
            environment: false,
        }
    }

    fn numbers(&self, config: &Config) -> Result<(), ConfigError> {
        let fail = |needle: &str, message: String, help: &str| {
            Err(self.error(needle, message, Some(help.to_owned())))
        };
        if !(1..=64).contains(&config.switch.burst) {
            let message = format!("a burst of {} frames", config.switch.burst);
            return fail("burst", message, "take 1 to 64; 64 is the default");
        }
        if let Some(variant) = config.switch.variant.map(variant_of)
            && !variant.available()
        {
            let message =
                format!("variant {variant} cannot be used: this CPU lacks it, or --max-simd forbids it");
            let help = Some("`flowlane cpu` says which can; leave it out to take the fastest".to_owned());
            return Err(ConfigError { environment: true, ..self.error("variant", message, help) });
        }
        limits::check(config, self)?;
        workers::check(config, self)?;
        if table_numbers(config).next().is_none() {
            return fail("", "there is no table".to_owned(), "add a [[table]] with number = 0");
        }
        let (mut numbers, mut names, mut tables) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for port in &config.port {
            let name = port_name(port.number, port.name.as_deref());
            if port.number == 0 || port.number > PortNo::MAX.0 {
                let message = format!("port number {} is out of range", port.number);
                return fail(&format!("number = {}", port.number), message, "take 1 to 65279");
            }
            if !numbers.insert(port.number) {
                let message = format!("two ports have the number {}", port.number);
                return fail(&format!("number = {}", port.number), message, "give each its own");
            }
            if !names.insert(name.clone()) {
                return fail(&name, format!("two ports are called `{name}`"), "give each its own name");
            }
        }
        for number in table_numbers(config) {
            if !tables.insert(number) || number == u8::MAX {
                let message = format!("table number {number} is in use or out of range");
                return fail(&format!("number = {number}"), message, "take 0 to 254, each once");
            }
        }
        if !tables.contains(&0) {
            return fail(
                "[[table]]",
                "packets enter at table 0, which is not there".to_owned(),
                "number one 0",
            );
        }
        for meter in &config.meter {
            if meter.rate_kbps.is_some() == meter.rate_pps.is_some() {
                let message = format!("meter {} needs one rate", meter.number);
                return fail("[[meter]]", message, "give either rate_kbps or rate_pps");
            }
        }
        Ok(())
    }

    /// Whether every `goto_table` leads to one of these tables.
    fn leads_somewhere(&self, rules: &[Rule], tables: &BTreeSet<u8>) -> Result<(), ConfigError> {
        for action in rules.iter().flat_map(|rule| &rule.actions) {
            if let Action::Goto(to) = action
                && !tables.contains(to)
            {
                let message = RulesetError::NoGotoTable(*to).to_string();
                return Err(self.error(&format!("goto_table:{to}"), message, None));
            }
        }
        Ok(())
    }

    /// Whether what the rules name exists; they may stand in these tables.
    fn references(&self, config: &Config, rules: &[Rule], tables: &BTreeSet<u8>) -> Result<(), ConfigError> {
        let ports: BTreeSet<u32> = config.port.iter().map(|p| p.number).collect();
        let meters: BTreeSet<u32> = config.meter.iter().map(|m| m.number).collect();
        let leaving = config.tunnel.iter().filter(|t| t.remote.is_some());
        let leaving: BTreeSet<u32> = leaving.map(|t| t.number).collect();
        for rule in rules {
            // Where the rule stands in a file of its own, it is in the message.
            let fail = |needle: String, message: String, help: &str| {
                let message = format!("rule `{rule}`: {message}");
                Err(self.error(&needle, message, Some(help.to_owned())))
            };
            if !tables.contains(&rule.table) {
                let needle = format!("table={}", rule.table);
                return fail(
                    needle,
                    format!("there is no table {}", rule.table),
                    "declare it with [[table]]",
                );
            }
            for action in &rule.actions {
                match action {
                    Action::Output(port) if !ports.contains(&port.0) => {
                        let needle = format!("output:{}", port.0);
                        return fail(
                            needle,
                            format!("there is no port {}", port.0),
                            "declare it with [[port]]",
                        );
                    }
                    Action::Encapsulate(tunnel) if !leaving.contains(tunnel) => {
                        let message = format!("there is no tunnel {tunnel} that packets leave through");
                        return fail(
                            format!("encap:{tunnel}"),
                            message,
                            "declare it with [[tunnel]], with a remote address",
                        );
                    }
                    Action::Meter(meter) if !meters.contains(meter) => {
                        let needle = format!("meter:{meter}");
                        return fail(
                            needle,
                            format!("there is no meter {meter}"),
                            "declare it with [[meter]]",
                        );
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
