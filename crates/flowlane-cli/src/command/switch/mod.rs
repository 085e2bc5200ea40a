//! `flowlane switch`: runs a switch, checks configurations, and controls a running switch.

mod changes;
mod client;
mod connections;
mod neighbours;
mod report;
mod routes;
mod workers;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowlane_switch::datapath::{PacketIns, RunError, Switch, Until, Worker};
use flowlane_switch::mgmt::config::Config;
#[cfg(target_os = "linux")]
use flowlane_switch::mgmt::kernel_routes::KernelRoutes;
use flowlane_switch::mgmt::openflow::{Agent, Service};
use flowlane_switch::mgmt::report::Report;
use flowlane_switch::mgmt::rpc::{ControlServer, Socket, SocketError, default_path};
use flowlane_switch::mgmt::setup::{OpenflowSetup, Reload, Setup, SetupError};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::arguments::{SwitchOptions, SwitchVerb};
use crate::failure::{self, Failure};
use crate::output::{self, Output, count};
use crate::stderr::note;
use changes::{Replay, Replayed};

pub(crate) fn run(verb: &SwitchVerb) -> Result<(), Failure> {
    match verb {
        SwitchVerb::Run(options) => run_switch(options),
        SwitchVerb::Check { config, explain } => check(config, *explain),
        SwitchVerb::Schema => output::json(&schemars::schema_for!(Config)),
        running => client::run(running),
    }
}

fn check(config: &Path, explain: bool) -> Result<(), Failure> {
    let setup = Setup::read(config)?;
    setup.check()?;
    setup.openflow().map_err(SetupError::from)?;
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

#[derive(Serialize)]
struct Document {
    seconds: f64,
    #[serde(flatten)]
    report: Report,
    /// Result of `--changes`.
    changes: Option<Replayed>,
}

/// Interval of periodic control work (expiry, rebuilds, publication).
const TICK: Duration = Duration::from_millis(50);

/// Signals the end of the switch to other threads when dropped.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Follows the routes of the system.
#[cfg(target_os = "linux")]
fn follow_kernel(table: u32, number: u8, served: &Arc<ControlServer>) -> Result<KernelRoutes, Failure> {
    KernelRoutes::follow(table, number, served.clone())
        .map_err(|error| Failure::Environment(format!("cannot follow the routes of the system: {error}")))
}

fn run_switch(options: &SwitchOptions) -> Result<(), Failure> {
    let duration = options.duration.map(Duration::try_from_secs_f64).transpose();
    let duration = duration.map_err(|e| Failure::input(format!("--duration: {e}")))?;
    let until = Until { duration, packets: options.packets };
    let setup = Setup::read(&options.config)?;
    options.changes.as_deref().map(|file| setup.check_input(file)).transpose()?;
    let reload = Reload::of(&setup);
    let replay = options.changes.as_deref().map(|file| Replay::read(file, &reload)).transpose()?;
    let openflow = setup.openflow().map_err(SetupError::from)?;
    let (live, privileges, kernel_table) = (setup.is_live(), setup.privileges(), setup.kernel_table());
    let (mut switch, control) = setup.open_controlled(rand::random())?;
    // Drop privileges before packets from untrusted sources arrive, and before threads exist: each thread has its own set.
    if let Err(error) = privileges.give_up_others() {
        note!("flowlane: cannot drop unneeded privileges: {error}");
    }
    switch.workers_mut().iter_mut().for_each(|worker| adjust(worker, options));
    let packet_ins = Arc::new(PacketIns::default());
    if openflow.is_some() {
        switch.workers_mut().iter_mut().for_each(|w| w.egress.packet_ins = Some(packet_ins.clone()));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(ControlServer::new(control, reload, stop.clone()));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|e| Failure::Environment(format!("cannot install a signal handler: {e}")))?;
    let signal_handle = signals.handle();
    let signal_thread = {
        let (served, stop) = (served.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("signals".to_owned());
        let thread = thread.spawn(move || handle_signals(&mut signals, &served, &stop));
        thread.map_err(|e| Failure::thread(&e))?
    };
    let socket = open_socket(options.socket.as_deref(), live, &served)?;
    let kernel_routes =
        kernel_table.map(|(table, number)| follow_kernel(table, number, &served)).transpose()?;
    let agent = openflow.map(|openflow| open_agent(&openflow, &served, packet_ins)).transpose()?;
    let bar = output::progress(0, "switching");
    let begun = Instant::now();
    let progress = |packets| bar.set_position(packets);
    let (result, replayed) = forward(&mut switch, until, &stop, &served, replay.as_ref(), progress)?;
    let seconds = begun.elapsed().as_secs_f64();
    bar.finish_and_clear();
    drop(kernel_routes);
    drop(socket);
    drop(agent);
    signal_handle.close();
    _ = signal_thread.join();
    let report = Report::of_all(switch.workers_mut()).expect("a switch has a worker");
    let refused = replayed.as_ref().and_then(|replayed| replayed.refused.clone());
    if options.json {
        output::json(&Document { seconds, report, changes: replayed })?;
    } else {
        let mut out = Output::create(None)?;
        out.text(&report::text(&report, seconds, options.rules))?;
        if let Some(replayed) = &replayed {
            out.text(&replayed.text())?;
        }
        out.finish()?;
    }
    let validated = switch.workers().iter().filter_map(Worker::validated).reduce(|a, b| a + b);
    if let (Ok(()), Some(packets)) = (&result, validated) {
        note!("every variant agreed on {} packets", count(packets));
    }
    result.map_err(Failure::from)?;
    refused.map_or(Ok(()), |message| Err(Failure::Check(message)))
}

/// Runs the switch, and beside it the periodic work of its control and the replay of changes.
fn forward(
    switch: &mut Switch,
    until: Until,
    stop: &AtomicBool,
    served: &ControlServer,
    replay: Option<&Replay>,
    progress: impl FnMut(u64) + Send,
) -> Result<(Result<(), RunError>, Option<Replayed>), Failure> {
    let (ended, begun) = (&AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        // Also if a worker panics: the other threads must not wait forever.
        let ending = Ending(ended);
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let ticking = thread("tick").spawn_scoped(scope, || {
            served.control().wake(std::thread::current());
            while !ended.load(Ordering::Relaxed) {
                served.tick();
                std::thread::park_timeout(TICK);
            }
        });
        ticking.map_err(|e| Failure::thread(&e))?;
        let replaying = match replay {
            Some(replay) => {
                let replaying = thread("changes").spawn_scoped(scope, || replay.run(served, begun, ended));
                Some(replaying.map_err(|e| Failure::thread(&e))?)
            }
            None => None,
        };
        let result = switch.run(until, stop, progress);
        drop(ending);
        Ok((result, replaying.map(|thread| thread.join().expect("replaying does not panic"))))
    })
}

/// Lets controllers drive the switch.
fn open_agent(
    openflow: &OpenflowSetup,
    served: &Arc<ControlServer>,
    packet_ins: Arc<PacketIns>,
) -> Result<Agent, Failure> {
    let datapath_id = openflow.datapath_id.unwrap_or_else(rand::random);
    let service = Service::new(served.clone(), &openflow.bridge, datapath_id, packet_ins);
    let service = service
        .with_versions(openflow.versions.clone())
        .with_standalone_after(openflow.fail_mode.standalone_after());
    let opened = Agent::open(&openflow.addresses, openflow.tls.as_ref(), service).and_then(|mut agent| {
        agent.open_snoop(&openflow.snoop)?;
        Ok(agent)
    });
    let agent = opened.map_err(|error| Failure::Environment(error.to_string()))?;
    note!("flowlane: bridge {}, datapath {datapath_id:016x}, for controllers", openflow.bridge);
    Ok(agent)
}

fn adjust(worker: &mut Worker, options: &SwitchOptions) {
    if options.validate_simd {
        worker.validate();
    }
    if let Some(max_delay) = options.max_delay {
        worker.set_max_delay(Duration::from_micros(max_delay));
    }
}

/// Handles signals: stops the switch, or reloads its configuration.
fn handle_signals(signals: &mut Signals, served: &ControlServer, stop: &AtomicBool) {
    for signal in signals.forever() {
        if signal == SIGHUP {
            match served.reload(None) {
                Ok(done) => {
                    let (added, modified, removed) = (done.added, done.modified, done.removed);
                    let others = client::others_changed(done.groups, done.ports);
                    note!(
                        "flowlane: reloaded: {added} rules added, {modified} modified, {removed} deleted{others}"
                    );
                }
                Err(error) => note!("flowlane: reload failed, nothing was changed: {error}"),
            }
        } else if stop.swap(true, Ordering::Relaxed) {
            // A second signal ends the program at once.
            std::process::exit(130);
        }
    }
}

/// Opens the requested control socket, or the standard one if the switch has live ports and the path is free.
fn open_socket(
    requested: Option<&Path>,
    live: bool,
    served: &Arc<ControlServer>,
) -> Result<Option<Socket>, Failure> {
    let path = match requested {
        Some(path) => path.to_owned(),
        None if live => default_path(),
        None => return Ok(None),
    };
    match (Socket::open(&path, served.clone()), requested) {
        (Ok(socket), _) => {
            note!("flowlane: control socket {}", socket.path().display());
            Ok(Some(socket))
        }
        (Err(error), None) => {
            note!("flowlane: {error}");
            Ok(None)
        }
        (Err(error @ SocketError::Occupied { .. }), Some(_)) => Err(Failure::input(error.to_string())),
        (Err(error), Some(_)) => Err(Failure::Environment(error.to_string())),
    }
}
