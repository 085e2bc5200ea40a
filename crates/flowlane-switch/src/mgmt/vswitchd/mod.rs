//! The daemon in the place of `ovs-vswitchd`: a client of an OVSDB server, whose database says which bridges there are.
//!
//! ```text
//! ovsdb-server ⇄ session ─ replica ─► bridges that are asked for ─► running bridges: switch, agent, ports
//!       ▲                                                                │
//!       └──────────── status: ofport, error, link_state, cur_cfg ────────┘
//! ```
//!
//! A server that goes away changes nothing: bridges go on, and the next session brings what has changed meanwhile.

mod bfd;
mod bonds;
mod bridge;
mod commands;
mod control;
mod controllers;
mod database;
mod features;
mod figures;
mod forwarding;
mod log_levels;
mod mirrors;
mod model;
mod multicast;
mod numbers;
mod pid_file;
mod protocol_thread;
mod qos;
mod service;
mod settings;
mod spanning_tree;
mod statistics;
mod status;
mod take_over;
mod unsupported;

pub use log_levels::{LogDestination, LogLevel, LogLevels, MODULE};
pub use pid_file::PidFile;
pub use service::{DaemonObserver, Signs};

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowlane_ovsdb::{Event, Replica, Session, SessionError, Uuid};
use serde_json::Value;

use crate::mgmt::openflow::{Address, TlsFiles};
use crate::mgmt::rpc::ReloadEvent;
use crate::port::tap;
use bridge::{Bridge, BridgeEnd};
use control::Commands;
use database::{Connection, Servers};
use figures::Figures;
use forwarding::StateFiles;
use numbers::DatapathPorts;
use statistics::Statistics;
use status::Drivers;

/// The lock that all such daemons ask for, of which one has it.
const LOCK: &str = "ovs_vswitchd";
const DATABASE: &str = "Open_vSwitch";

/// A server that says nothing for this long is asked for a sign of life, and given up after as long again.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// How long to wait for bytes before the daemon looks after its bridges.
const WAIT: Duration = Duration::from_millis(50);
/// How often the daemon looks whether what it has written still holds, as Open vSwitch does: links and sessions change by themselves.
const DESCRIBED_AFTER: Duration = Duration::from_millis(100);

/// Pause between two attempts to open ports that could not be opened.
const RETRY: Duration = Duration::from_secs(1);

/// The settings of the daemon.
#[derive(Clone, Debug)]
pub struct Options {
    /// The addresses of the servers of the database, of which one is used at a time.
    pub database: Vec<Address>,
    /// The files of TLS, for servers, and for controllers where the database names none.
    pub tls: Option<TlsFiles>,
    /// The folder of the sockets of bridges and commands.
    pub folder: PathBuf,
    /// The socket of commands (`ovs-appctl`); none: it has none.
    pub control: Option<PathBuf>,
    /// Seeds the hashes.
    pub seed: u32,
    /// The socket of commands of a daemon that runs, whose place this one takes.
    pub take_over: Option<PathBuf>,
}

/// The daemon's ties to its process.
pub struct Hooks<'a> {
    /// Set when it is to end.
    pub stop: &'a AtomicBool,
    /// Called once, when the bridges are those that the database asks for.
    pub ready: &'a dyn Fn(),
    /// Set when the log is to be opened again.
    pub reopen: &'a AtomicBool,
    /// The log.
    pub log: &'a dyn DaemonLog,
    /// Follows the daemon's signs of life.
    pub observer: &'a dyn DaemonObserver,
}

/// The log of the daemon, as far as commands concern it.
pub trait DaemonLog {
    /// Opens the log file again.
    ///
    /// # Errors
    /// Why it cannot be opened; the former file stays in use.
    fn reopen(&self) -> Result<(), String>;

    /// Closes the log file until it is opened again.
    fn close(&self);

    /// The levels of its destinations.
    fn levels(&self) -> &LogLevels;
}

/// Why the daemon cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The address is none that a client connects to.
    #[error("`{0}` is no address of a database: take unix:PATH, tcp:ADDRESS[:PORT] or ssl:ADDRESS[:PORT]")]
    Database(Address),
    /// There is no address.
    #[error("there is no address of a database")]
    NoDatabase,
    /// A server with TLS, without the files that it needs.
    #[error("`{0}` needs --private-key, --certificate, and --ca-cert or --bootstrap-ca-cert")]
    NoTls(Address),
    /// The socket of commands cannot be opened.
    #[error("no socket for commands: {0}")]
    Control(String),
}

/// Why a session has ended.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("the server does not answer")]
    Silent,
}

/// The status on its way to the server: one transaction at a time.
#[derive(Default)]
struct Written {
    under_way: Option<u64>,
    /// The operations of the latest transaction, which are not made again at once: the server may keep another value.
    latest: Vec<Value>,
    has_failed: bool,
}

impl Written {
    fn write(&mut self, session: &mut Session, operations: Vec<Value>) {
        if self.under_way.is_none() && operations != self.latest {
            self.latest.clone_from(&operations);
            self.under_way = (!operations.is_empty()).then(|| session.transact(operations));
        }
    }

    fn answered(&mut self, id: u64, is_done: bool) {
        if self.under_way == Some(id) {
            (self.under_way, self.has_failed) = (None, !is_done);
        }
    }

    /// Lets a transaction that has failed be made again.
    fn retry(&mut self) {
        if std::mem::take(&mut self.has_failed) {
            self.latest.clear();
        }
    }
}

/// The daemon.
pub struct Daemon<'a> {
    options: Options,
    servers: Servers,
    /// Says something that its operator should know.
    say: &'a dyn Fn(&str),
    bridges: BTreeMap<Uuid, Bridge>,
    /// Bridges that cannot be started, which are not tried again until they are asked for otherwise.
    failed: BTreeMap<Uuid, model::BridgeSpec>,
    commands: Option<Commands>,
    retried: Instant,
    statistics: Statistics,
    /// The drivers of the bridges' interfaces.
    drivers: Drivers,
    figures: Figures,
    /// The ports of all bridges.
    ports: DatapathPorts,
    /// The bridges have been those of the database.
    is_ready: bool,
    /// Since another daemon has taken bridges of this one.
    yielding: Option<Instant>,
    /// Rounds of the daemon's loop.
    rounds: u64,
}

impl<'a> Daemon<'a> {
    /// Prepares the daemon: it listens for commands.
    ///
    /// # Errors
    /// Why it cannot run.
    pub fn new(options: Options, say: &'a dyn Fn(&str)) -> Result<Self, DaemonError> {
        let servers = Servers::new(options.database.clone(), options.tls.clone())?;
        let commands = options.control.as_deref().map(Commands::listen).transpose();
        let commands = commands.map_err(DaemonError::Control)?;
        let (bridges, failed, retried) = (BTreeMap::new(), BTreeMap::new(), Instant::now());
        let (statistics, is_ready, yielding) = (Statistics::default(), false, None);
        let (figures, ports) = (Figures::default(), DatapathPorts::default());
        let drivers = Drivers::default();
        Ok(Self {
            options,
            servers,
            say,
            bridges,
            failed,
            commands,
            retried,
            statistics,
            drivers,
            figures,
            ports,
            is_ready,
            yielding,
            rounds: 0,
        })
    }

    /// Runs until `stop` is set, or a command ends it. The state of the bridges is saved then for the next daemon, unless the command
    /// says otherwise.
    pub fn run(&mut self, hooks: &Hooks<'_>) {
        self.follow_database(hooks);
        hooks.observer.stopping();
        self.end_bridges();
    }

    fn end_bridges(&mut self) {
        let keeps_state = !self.commands.as_ref().is_some_and(Commands::is_cleanup);
        for bridge in std::mem::take(&mut self.bridges).into_values().filter(|_| keeps_state) {
            bridge.end_with_state().iter().for_each(|problem| (self.say)(problem));
        }
    }

    fn follow_database(&mut self, hooks: &Hooks<'_>) {
        let mut replica = Replica::default();
        while !self.is_over(hooks) {
            // An attempt may take as long as the pauses.
            self.answer_commands(hooks);
            let mut session = Session::new(DATABASE, &model::WANTED, Some(LOCK), replica);
            let lost = match self.servers.connect(hooks.stop) {
                Ok(mut connection) => {
                    let followed = self.follow(&mut connection, &mut session, hooks);
                    if followed.is_ok() {
                        hooks.observer.stopping();
                        // Before the lock is let go of: the next daemon finds their state.
                        self.end_bridges();
                    }
                    followed.err()
                }
                Err(error) => Some(error.into()),
            };
            if session.is_synchronised() {
                self.servers.succeeded();
            }
            replica = session.into_replica();
            let Some(lost) = lost else { return };
            let (text, pause) = self.servers.lost(&lost);
            text.iter().for_each(|text| (self.say)(text));
            let ended = Instant::now();
            while ended.elapsed() < pause && !self.is_over(hooks) {
                self.answer_commands(hooks);
                std::thread::sleep(WAIT);
            }
        }
    }

    fn is_over(&self, hooks: &Hooks<'_>) -> bool {
        hooks.stop.load(Ordering::Relaxed) || self.commands.as_ref().is_some_and(Commands::is_over)
    }

    /// Follows the database until the end.
    fn follow(
        &mut self,
        connection: &mut Connection,
        session: &mut Session,
        hooks: &Hooks<'_>,
    ) -> Result<(), Lost> {
        let mut buffer = vec![0; 1 << 16];
        let (mut heard, mut is_asked, mut is_stale) = (Instant::now(), false, true);
        // The status as the server has it, and the configuration that the bridges follow.
        let (mut written, mut cur_cfg) = (Written::default(), None);
        let mut described = Instant::now();
        while !self.is_over(hooks) {
            connection.send(&session.take_outgoing())?;
            let bytes = connection.receive(&mut buffer)?;
            if !bytes.is_empty() {
                (heard, is_asked) = (Instant::now(), false);
            } else if heard.elapsed() > 2 * PROBE_AFTER {
                return Err(Lost::Silent);
            } else if heard.elapsed() > PROBE_AFTER && !is_asked {
                session.probe();
                is_asked = true;
            }
            let events = session.receive(bytes)?;
            let mut is_to_describe = !events.is_empty() || described.elapsed() >= DESCRIBED_AFTER;
            is_stale |= self.take(events, &mut written);
            self.answer_commands(hooks);
            if session.is_synchronised()
                && let Some(other) = self.options.take_over.take()
            {
                self.take_over(&other, session.replica());
            }
            is_stale |= self.remove_ended() || self.has_yielded_in_vain();
            if !(session.is_synchronised() && session.has_lock()) || self.yielding.is_some() {
                continue;
            }
            if self.retried.elapsed() > RETRY {
                self.retried = Instant::now();
                self.bridges.values_mut().for_each(Bridge::retry);
                self.say_problems();
                written.retry();
            }
            if std::mem::take(&mut is_stale) {
                is_to_describe = true;
                self.reconcile(session.replica());
                self.figures.count("bridge_reconfigure");
                self.ports.follow(&self.bridges);
                cur_cfg = model::root(session.replica()).map(|root| root.next_cfg);
                if !std::mem::replace(&mut self.is_ready, true) {
                    self.remove_stale(session.replica());
                    (hooks.ready)();
                }
            }
            if is_to_describe {
                described = Instant::now();
                let operations = self.describe(session, cur_cfg);
                written.write(session, operations);
            }
        }
        Ok(())
    }

    /// Takes events of a session. Returns whether the bridges are to be compared with the database.
    fn take(&self, events: Vec<Event>, written: &mut Written) -> bool {
        let mut is_stale = false;
        for event in events {
            match event {
                Event::Synchronised | Event::Changed | Event::Locked => is_stale = true,
                Event::LockLost => (self.say)("another daemon has the lock: this one waits for it"),
                Event::Answered(id, answer) => {
                    written.answered(id, answer.is_ok());
                    if let Err(error) = answer {
                        (self.say)(&format!("the status was not written: {error}"));
                    }
                }
            }
        }
        is_stale
    }

    /// Returns the operations that make the database say how the bridges are.
    fn describe(&mut self, session: &Session, cur_cfg: Option<i64>) -> Vec<Value> {
        let replica = session.replica();
        self.statistics.refresh(replica, &self.bridges);
        self.figures.refresh(&self.bridges);
        self.drivers.refresh(&self.bridges);
        let by_time = (&self.statistics, &self.drivers);
        status::operations(replica, session.schema(), &self.bridges, by_time, cur_cfg)
    }

    /// Removes bridges that have ended by themselves, which are started again. Returns whether there were any.
    fn remove_ended(&mut self) -> bool {
        let before = self.bridges.len();
        self.bridges.retain(|_, bridge| match bridge.end() {
            None => true,
            Some(BridgeEnd::Problem(problem)) => {
                (self.say)(&format!("bridge {}: {problem}", bridge.name()));
                false
            }
            Some(BridgeEnd::HandedOver) => {
                self.yielding = Some(Instant::now());
                false
            }
        });
        self.bridges.len() < before
    }

    fn answer_commands(&mut self, hooks: &Hooks<'_>) {
        self.rounds += 1;
        hooks.observer.follow(&self.signs());
        if hooks.reopen.swap(false, Ordering::Relaxed) {
            hooks.observer.reload(ReloadEvent::Began);
            hooks.log.reopen().err().iter().for_each(|problem| (self.say)(problem));
            hooks.observer.reload(ReloadEvent::Ended);
        }
        if let Some(commands) = &mut self.commands {
            commands.answer(&self.bridges, hooks.log, &mut self.figures, &self.ports);
        }
    }

    /// Makes the bridges those that the database asks for.
    fn reconcile(&mut self, replica: &Replica) {
        let wanted: BTreeMap<Uuid, model::BridgeSpec> =
            self.wanted(replica).into_iter().map(|spec| (spec.uuid, spec)).collect();
        let is_wanted = |uuid: &Uuid, name: Option<&str>| {
            wanted.get(uuid).is_some_and(|spec| name.is_none_or(|name| spec.name == name))
        };
        let gone = self.bridges.extract_if(.., |uuid, bridge| !is_wanted(uuid, Some(bridge.name())));
        // Its ports leave it; a daemon that ends leaves their queues as they are.
        gone.for_each(|(_, bridge)| bridge.served().remove_all_qos());
        self.failed.retain(|uuid, _| is_wanted(uuid, None));
        // Before others get what one of them has.
        self.bridges.iter_mut().for_each(|(uuid, bridge)| bridge.remove_gone(&wanted[uuid]));
        for (uuid, spec) in wanted {
            match self.bridges.get_mut(&uuid) {
                Some(bridge) => bridge.follow(&spec),
                None if self.failed.get(&uuid) == Some(&spec) => continue,
                None => match Bridge::start(&spec, &self.options.folder, self.options.seed) {
                    Ok(bridge) => _ = self.bridges.insert(uuid, bridge),
                    Err(error) => {
                        (self.say)(&error);
                        self.failed.insert(uuid, spec);
                        continue;
                    }
                },
            }
        }
        self.say_problems();
    }

    /// The bridges that the database asks for.
    fn wanted(&self, replica: &Replica) -> Vec<model::BridgeSpec> {
        let mut wanted = model::bridges(replica);
        for spec in &mut wanted {
            spec.tls = spec.tls.take().or_else(|| self.options.tls.clone());
        }
        wanted
    }

    /// Removes what former daemons have kept of bridges and interfaces that are not asked for any more.
    fn remove_stale(&self, replica: &Replica) {
        let wanted = model::bridges(replica);
        tap::remove_stale(|name| {
            let mut interfaces = wanted.iter().flat_map(|bridge| &bridge.interfaces);
            interfaces.any(|interface| interface.name == name)
        });
        let names: Vec<_> = wanted.into_iter().map(|bridge| (bridge.name, bridge.uuid)).collect();
        StateFiles::remove_stale(&self.options.folder, &names);
    }

    fn say_problems(&mut self) {
        for bridge in self.bridges.values_mut() {
            for problem in bridge.take_problems() {
                (self.say)(&format!("bridge {}: {problem}", bridge.name()));
            }
        }
    }
}
