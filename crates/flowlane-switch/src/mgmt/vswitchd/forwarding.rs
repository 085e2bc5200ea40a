//! The switch of a bridge: how it is opened, with the state of the bridge before it, and the thread that forwards its packets.
//!
//! ```text
//! the file of state ─┐                           ┌─► the file of state: the daemon has ended
//! another process ───┴─► switch ─ forwards ──────┴─► another process: it takes the place of this one
//! ```

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::Uuid;
use serde_json::Value;

use super::bonds::BondSpec;
use crate::control::Control;
use crate::datapath::{Inlet, PacketIns, Switch, TreeView, Until};
use crate::mgmt::openflow::Agent;
use crate::mgmt::rpc::{ControlServer, HandOverError, TakeOver, Unconfirmed};
use crate::mgmt::saved::{SavedFile, StateFile, WaitingAddresses};
use crate::mgmt::setup::{Reload, Setup, SetupError};
use crate::port::runtime_folder::check_folder;
use crate::state::bond::BondView;
use crate::state::rstp::PortState;

/// The longest file of sessions that is read.
const SESSIONS_BYTES_MAX: u64 = 16 << 20;

/// Why clients of the control socket cannot change ports.
const OWNER: &str = "the database says which ports the bridge has (ovs-vsctl), and when it ends";

/// The path of a bridge's control socket.
pub(super) fn control_path(folder: &Path, bridge: &str) -> PathBuf {
    folder.join(format!("{bridge}.control"))
}

/// The files in which a bridge's state stays while no daemon runs. Another bridge of its name has others.
pub(super) struct StateFiles {
    /// Its rules, connections, and learned addresses.
    pub(super) packets: StateFile,
    /// Its sessions of BFD and LACP.
    sessions: PathBuf,
}

/// How the names of such files end.
const SUFFIXES: [&str; 2] = [".state", ".sessions"];

impl StateFiles {
    /// The files of a bridge in the folder of sockets.
    pub(super) fn of(folder: &Path, bridge: &str, row: &Uuid) -> Self {
        let [packets, sessions] = SUFFIXES.map(|suffix| folder.join(format!("{bridge}.{row}{suffix}")));
        // It is written once, at the end.
        Self { packets: StateFile { file: packets, every: Duration::MAX }, sessions }
    }

    /// Removes the files of bridges that are not there. Files of other programs in the folder stay.
    pub(super) fn remove_stale(folder: &Path, bridges: &[(String, Uuid)]) {
        let is_kept = |stem: &str| {
            let row = stem.rsplit_once('.').and_then(|(_, row)| Uuid::read(row));
            row.is_none() || bridges.iter().any(|(bridge, row)| stem == format!("{bridge}.{row}"))
        };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let stem = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
            if stem.is_some_and(|stem| !is_kept(stem)) {
                _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Saves sessions of BFD and LACP.
    pub(super) fn save_sessions(&self, sessions: &Value) -> io::Result<()> {
        remove(&self.sessions)?;
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&self.sessions)?;
        file.write_all(sessions.to_string().as_bytes())
    }

    /// Reads the sessions that the last daemon has saved, and removes them; null where there are none.
    pub(super) fn take_sessions(&self) -> Value {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let folder = self.sessions.parent().unwrap_or(Path::new("."));
        let open = || File::options().read(true).custom_flags(flags).open(&self.sessions).ok();
        let mut text = String::new();
        let file = check_folder(folder).ok().and_then(|()| open());
        let read = file.map(|file| file.take(SESSIONS_BYTES_MAX).read_to_string(&mut text));
        _ = remove(&self.sessions);
        read.and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default()
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The agent of a bridge, which the forwarding thread closes before another process opens its own.
#[derive(Default)]
pub(super) struct AgentPlace {
    agent: Mutex<Option<Agent>>,
    /// It was closed for another process, which has not taken over.
    is_lost: AtomicBool,
}

impl AgentPlace {
    /// Closes the agent, if there is one, before the next is opened: that has the same addresses.
    pub(super) fn replace(&self, open: impl FnOnce() -> Option<Agent>) {
        let mut agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        drop(agent.take());
        *agent = open();
    }

    /// Returns once whether an agent has to be opened again.
    pub(super) fn take_lost(&self) -> bool {
        self.is_lost.swap(false, Ordering::SeqCst)
    }
}

/// The configuration of a bridge without ports, with one rule or none.
fn config_with(rule: &str) -> String {
    let rules = if rule.is_empty() { String::new() } else { format!("\"{rule}\"") };
    format!("[switch]\nadds_ports = true\n[openflow]\n[[table]]\nnumber = 0\nrules = [{rules}]\n")
}

/// How forwarding has ended.
pub(super) enum Ended {
    /// As it was asked to. The state of the switch may be saved.
    Stopped(Box<Switch>),
    Failed(String),
    /// Another process forwards the bridge's packets.
    HandedOver,
}

/// A switch that can run.
pub(super) struct Opened {
    switch: Switch,
    pub(super) served: Arc<ControlServer>,
    pub(super) packet_ins: Arc<PacketIns>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) waiting: WaitingAddresses,
}

impl Opened {
    /// Opens a switch without ports, with the state of a file if there is one, else with a rule or none. `say` gets problems of the
    /// file.
    pub(super) fn open(
        rule: &str,
        file: &StateFile,
        seed: u32,
        say: &mut Vec<String>,
    ) -> Result<Self, SetupError> {
        if let Some(saved) = take_file(file, say) {
            // The rules are those that the bridge had.
            let setup = Setup::parse(&config_with(""))?;
            let reload = Reload::of(&setup);
            let (mut switch, mut control) = setup.open_controlled(saved.header().seed)?;
            control.accept_any_port();
            match saved.restore(switch.workers_mut(), Some(&mut control)) {
                Ok((_, waiting)) => return Ok(Self::new(switch, control, reload, waiting)),
                Err(error) => say.push(format!("the saved state is not used: {error}")),
            }
        }
        let setup = Setup::parse(&config_with(rule))?;
        let reload = Reload::of(&setup);
        let (switch, control) = setup.open_controlled(seed)?;
        Ok(Self::new(switch, control, reload, WaitingAddresses::default()))
    }

    /// Takes the place of another process's switch, with its ports and its state. It goes on where this fails.
    pub(super) fn take_over(mut other: TakeOver) -> Result<(Self, Unconfirmed), String> {
        let process = other.process();
        let failed = |error: SetupError| error.to_string();
        // Its rules are taken over, too.
        let mut setup = Setup::parse(&config_with("")).map_err(|error| error.to_string())?;
        setup.add_ports(other.ports().to_vec());
        let reload = Reload::of(&setup);
        let prepared = setup.prepare(other.seed()).map_err(failed)?;
        other.begin().map_err(|error| format!("process {process} does not hand over: {error}"))?;
        let (mut switch, mut control) = prepared.open().map_err(failed)?;
        let restored = other.restore(switch.workers_mut(), &mut control, &reload);
        let (_, unconfirmed) =
            restored.map_err(|error| format!("the state of process {process} is not taken over: {error}"))?;
        Ok((Self::new(switch, control, reload, WaitingAddresses::default()), unconfirmed))
    }

    fn new(mut switch: Switch, mut control: Control, reload: Reload, waiting: WaitingAddresses) -> Self {
        control.accept_any_port();
        let packet_ins = Arc::new(PacketIns::default());
        switch.workers_mut().iter_mut().for_each(|w| w.egress.packet_ins = Some(packet_ins.clone()));
        let stop = Arc::new(AtomicBool::new(false));
        let mut served = ControlServer::new(control, reload, stop.clone());
        served.set_owner(OWNER);
        Self { switch, served: Arc::new(served), packet_ins, stop, waiting }
    }

    /// Lets bonds pass nothing, until they are followed: their members must not forward to each other.
    pub(super) fn close_bonds(&mut self, bonds: &[BondSpec]) {
        let sections = self.served.sections_of_clients();
        let port = |name: &str| sections.iter().find(|section| section.name() == name);
        let closed = bonds.iter().filter(|bond| bond.is_bond()).map(|bond| {
            let members = bond.members.iter().filter_map(|member| Some(PortNo(port(&member.name)?.number)));
            Arc::new(BondView::closed(&members.collect::<Vec<_>>()))
        });
        let closed: Vec<Arc<BondView>> = closed.collect();
        self.switch.workers_mut().iter_mut().for_each(|worker| worker.set_bonds(closed.clone(), &[]));
    }

    /// Lets all ports discard, until the spanning tree is followed: those of a loop must not forward.
    pub(super) fn close_ports(&mut self) {
        let inlet = Arc::new(Inlet::new(0, std::thread::current()));
        let sections = self.served.sections_of_clients();
        let closed =
            sections.iter().map(|port| (PortNo(port.number), (PortState::Discarding, inlet.clone())));
        let closed = Arc::new(TreeView(closed.collect()));
        self.switch.workers_mut().iter_mut().for_each(|worker| worker.set_tree(Some(closed.clone())));
    }

    /// Starts the thread that forwards packets. `say` gets what happens in it.
    pub(super) fn run(
        self,
        agent: Arc<AgentPlace>,
        say: impl Fn(String) + Send + 'static,
    ) -> io::Result<JoinHandle<Ended>> {
        let Self { mut switch, served, stop, .. } = self;
        let thread = std::thread::Builder::new().name("bridge".to_owned());
        thread.spawn(move || {
            loop {
                let result = switch.run(Until::default(), &stop, |_| {});
                let Some(request) = served.take_over_request() else {
                    return match result {
                        Ok(()) => Ended::Stopped(Box::new(switch)),
                        Err(error) => Ended::Failed(error.to_string()),
                    };
                };
                agent.replace(|| None);
                match request.hand_over(&mut switch, &served) {
                    Ok(()) => return Ended::HandedOver,
                    Err(HandOverError::NotTaken(error)) => say(format!("this process goes on: {error}")),
                    Err(error) => return Ended::Failed(error.to_string()),
                }
                if let Err(error) = result {
                    return Ended::Failed(error.to_string());
                }
                served.resume();
                agent.is_lost.store(true, Ordering::SeqCst);
            }
        })
    }
}

/// Reads the file of state, and removes it: what it says is true once.
fn take_file(file: &StateFile, say: &mut Vec<String>) -> Option<SavedFile> {
    let read = file.read().unwrap_or_else(|error| {
        say.push(format!("the saved state is not used: {error}"));
        None
    });
    // It is open still.
    _ = fs::remove_file(&file.file);
    read
}

/// Waits until a switch runs.
pub(super) fn wait_until_it_runs(served: &ControlServer, timeout: Duration) -> Result<(), &'static str> {
    let begun = Instant::now();
    while !served.runs() {
        if begun.elapsed() > timeout {
            return Err("its workers do not start");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
