//! `flowlane switch run`: the life of a switch, from its configuration, or from another switch whose place it takes, to its report.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flowlane_switch::datapath::{PacketIns, RunError, Switch, Until, Worker};
#[cfg(target_os = "linux")]
use flowlane_switch::mgmt::kernel_routes::KernelRoutes;
#[cfg(target_os = "linux")]
use flowlane_switch::mgmt::links::KernelLinks;
use flowlane_switch::mgmt::metrics::{MetricsServer, MetricsSetup};
use flowlane_switch::mgmt::openflow::{Agent, Service};
use flowlane_switch::mgmt::report::Report;
use flowlane_switch::mgmt::rpc::{
    ControlServer, HandOverError, Socket, SocketError, Unconfirmed, default_path,
};
use flowlane_switch::mgmt::saved::StateFile;
use flowlane_switch::mgmt::setup::{OpenflowSetup, Reload, Setup, SetupError};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use super::changes::{Replay, Replayed};
use super::{client, report, state};
use crate::arguments::SwitchOptions;
use crate::failure::Failure;
use crate::output::{self, Output, count};
use crate::service::Supervisor;
use crate::stderr::{self, note, warning};

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

/// A switch that can run, and all that serves its clients.
struct Running {
    switch: Switch,
    served: Arc<ControlServer>,
    stop: Arc<AtomicBool>,
    openflow: Option<OpenflowSetup>,
    packet_ins: Arc<PacketIns>,
    agent: Option<Agent>,
    metrics_setup: Option<MetricsSetup>,
    metrics: Option<MetricsServer>,
    /// The thread that follows the system's routes.
    #[cfg(target_os = "linux")]
    kernel_routes: Option<KernelRoutes>,
    /// The thread that follows the links of the system's interfaces; none where the system refuses it.
    #[cfg(target_os = "linux")]
    links: Option<KernelLinks>,
    socket: Option<Socket>,
    file: Option<StateFile>,
    signals: SignalThread,
    disciplines: Disciplines,
    service: Arc<Supervisor>,
}

/// The disciplines of interfaces, which are removed when dropped, unless another switch has them.
struct Disciplines(Option<Arc<ControlServer>>);

impl Disciplines {
    fn set_up(served: &Arc<ControlServer>) -> Result<Self, Failure> {
        // Where one fails, those before it are removed.
        let disciplines = Self(Some(served.clone()));
        served.set_up_qos().map_err(Failure::Environment)?;
        Ok(disciplines)
    }

    /// Leaves the interfaces as they are.
    fn leave(&mut self) {
        self.0 = None;
    }
}

impl Drop for Disciplines {
    fn drop(&mut self) {
        self.0.iter().for_each(|served| served.remove_all_qos());
    }
}

/// The thread that handles signals.
struct SignalThread {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl SignalThread {
    fn start(served: &Arc<ControlServer>) -> Result<Self, Failure> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|e| Failure::Environment(format!("cannot install a signal handler: {e}")))?;
        let (handle, served) = (signals.handle(), served.clone());
        let thread = std::thread::Builder::new().name("signals".to_owned());
        let thread = thread.spawn(move || handle_signals(&mut signals, &served));
        Ok(Self { handle, thread: thread.map_err(|e| Failure::thread(&e))? })
    }

    fn close(self) {
        self.handle.close();
        _ = self.thread.join();
    }
}

/// The end of all runs of a switch.
struct Ended {
    result: Result<(), RunError>,
    replayed: Option<Replayed>,
}

pub(super) fn run_switch(options: &SwitchOptions) -> Result<(), Failure> {
    let duration = options.duration.map(Duration::try_from_secs_f64).transpose();
    let duration = duration.map_err(|e| Failure::input(format!("--duration: {e}")))?;
    let until = Until { duration, packets: options.packets };
    let setup = Setup::read(&options.config)?;
    options.changes.as_deref().map(|file| setup.check_input(file)).transpose()?;
    let replay =
        options.changes.as_deref().map(|file| Replay::read(file, &Reload::of(&setup))).transpose()?;
    let _limited = stderr::limit_repeats();
    let mut running = start(options, setup)?;
    if replay.is_some() {
        running
            .served
            .refuse_take_over("it makes the changes of a file (--changes), which cannot be handed over");
    }
    let bar = output::progress(0, "switching");
    let begun = Instant::now();
    let Ended { result, replayed } =
        running.run(until, replay.as_ref(), |packets| bar.set_position(packets))?;
    let seconds = begun.elapsed().as_secs_f64();
    bar.finish_and_clear();
    #[cfg(target_os = "linux")]
    drop((running.kernel_routes, running.links));
    drop((running.socket, running.agent, running.metrics));
    running.signals.close();
    let workers = running.switch.workers_mut();
    let report = Report::of_all(workers).expect("a switch has a worker");
    let refused = replayed.as_ref().and_then(|replayed| replayed.refused.clone());
    if options.json {
        output::json(&Document { seconds, report, changes: replayed })?;
    } else {
        let mut out = Output::create(None)?;
        out.text(&report::text(&report, seconds, options.limit))?;
        if let Some(replayed) = &replayed {
            out.text(&replayed.text())?;
        }
        out.finish()?;
    }
    let validated = running.switch.workers().iter().filter_map(Worker::validated).reduce(|a, b| a + b);
    if let (Ok(()), Some(packets)) = (&result, validated) {
        note!("every variant agreed on {} packets", count(packets));
    }
    result.map_err(Failure::from)?;
    refused.map_or(Ok(()), |message| Err(Failure::Check(message)))
}

/// Opens a switch, with the state of another one or of a file.
fn start(options: &SwitchOptions, mut setup: Setup) -> Result<Running, Failure> {
    let path = options.socket.clone().unwrap_or_else(default_path);
    let file = setup.state_file().map_err(SetupError::from)?;
    let metrics_setup = setup.metrics().map_err(SetupError::from)?;
    let mut openflow = setup.openflow().map_err(SetupError::from)?;
    // One for all runs: controllers know the switch by it.
    openflow.iter_mut().for_each(|openflow| _ = openflow.datapath_id.get_or_insert_with(rand::random));
    let mut other = if options.take_over { state::find_other(&path, &setup)? } else { None };
    other.iter().for_each(|other| setup.add_ports(other.ports().to_vec()));
    let reload = Reload::of(&setup);
    let saved = file.as_ref().filter(|_| other.is_none()).and_then(state::read);
    let seed = other.as_ref().map(|other| other.seed());
    let seed = seed.or(saved.as_ref().map(|saved| saved.header().seed)).unwrap_or_else(rand::random);
    let (live, privileges, kernel_table) = (setup.is_live(), setup.privileges(), setup.kernel_table());
    let prepared = setup.prepare(seed)?;
    let paused = Instant::now();
    other.as_mut().map(state::stop_other).transpose()?;
    let (mut switch, mut control) = prepared.open()?;
    reload.remove_left_qos();
    // Drop privileges before packets from untrusted sources arrive, and before threads exist: each thread has its own set.
    if let Err(error) = privileges.give_up_others() {
        warning!("cannot drop unneeded privileges: {error}");
    }
    switch.workers_mut().iter_mut().for_each(|worker| adjust(worker, options));
    let packet_ins = Arc::new(PacketIns::default());
    if openflow.is_some() {
        control.accept_any_port();
        switch.workers_mut().iter_mut().for_each(|w| w.egress.packet_ins = Some(packet_ins.clone()));
    }
    saved.map(|saved| state::restore_file(saved, switch.workers_mut())).transpose()?;
    let unconfirmed = match other {
        Some(other) => Some(state::restore_other(other, switch.workers_mut(), &mut control, &reload)?),
        None => None,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(ControlServer::new(control, reload, stop.clone()));
    let service = Arc::new(Supervisor::of_environment());
    let of_reloads = service.clone();
    served.watch_reloads(Box::new(move |event| of_reloads.reload(event)));
    let disciplines = Disciplines::set_up(&served)?;
    let signals = SignalThread::start(&served)?;
    let socket = match &unconfirmed {
        Some(_) => Some(Socket::open_beside(&path, served.clone()).map_err(socket_failure)?),
        None => open_socket(options.socket.as_deref(), live, &served)?,
    };
    let mut running = Running {
        #[cfg(target_os = "linux")]
        kernel_routes: kernel_table.map(|of| follow_kernel(of, &served)).transpose()?,
        #[cfg(target_os = "linux")]
        links: if live || options.socket.is_some() { follow_links(&served) } else { None },
        switch,
        served,
        stop,
        openflow,
        packet_ins,
        agent: None,
        metrics_setup,
        metrics: None,
        socket,
        file,
        signals,
        disciplines,
        service,
    };
    running.listen()?;
    unconfirmed.map(|unconfirmed| running.take_place(unconfirmed, &path, paused)).transpose()?;
    Ok(running)
}

/// Follows the routes of a table of the system into one of the switch.
#[cfg(target_os = "linux")]
fn follow_kernel((table, number): (u32, u8), served: &Arc<ControlServer>) -> Result<KernelRoutes, Failure> {
    KernelRoutes::follow(table, number, served.clone())
        .map_err(|error| Failure::Environment(format!("cannot follow the routes of the system: {error}")))
}

/// Follows the links of the system's interfaces, where the system allows it.
#[cfg(target_os = "linux")]
fn follow_links(served: &Arc<ControlServer>) -> Option<KernelLinks> {
    let refused = |error: &_| warning!("links of interfaces are not followed: {error}");
    KernelLinks::follow(served.clone()).inspect_err(refused).ok()
}

impl Running {
    /// Ends the other switch.
    fn take_place(&mut self, unconfirmed: Unconfirmed, path: &Path, paused: Instant) -> Result<(), Failure> {
        let failed = |e| Failure::Environment(format!("the other switch has not confirmed its end: {e}"));
        unconfirmed.confirm().map_err(failed)?;
        note!("flowlane: packets waited for {:.0} ms", paused.elapsed().as_secs_f64() * 1e3);
        if let Some(socket) = &mut self.socket {
            socket.move_to(path).map_err(socket_failure)?;
            note!("flowlane: control socket {}", socket.path().display());
        }
        Ok(())
    }

    /// Runs the switch until it ends, or another one has taken its place.
    fn run(
        &mut self,
        until: Until,
        replay: Option<&Replay>,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<Ended, Failure> {
        let begun = Instant::now();
        loop {
            let left = self.left(until, begun);
            let (result, replayed) = self.forward(left, replay, &mut progress)?;
            let Some(request) = self.served.take_over_request() else {
                self.service.stopping();
                self.save_last();
                return Ok(Ended { result, replayed });
            };
            // The next switch has the same addresses.
            drop((self.agent.take(), self.metrics.take()));
            match request.hand_over(&mut self.switch, &self.served) {
                Ok(()) => {
                    self.disciplines.leave();
                    self.service.stopping();
                    note!("flowlane: another process has taken the place of this switch");
                    return Ok(Ended { result, replayed });
                }
                Err(HandOverError::NotTaken(error)) => {
                    warning!("this switch goes on: {error}");
                }
                Err(error) => {
                    // The other process has an interface.
                    self.disciplines.leave();
                    return Err(Failure::Environment(error.to_string()));
                }
            }
            if result.is_err() {
                return Ok(Ended { result, replayed });
            }
            self.served.resume();
            self.listen()?;
        }
    }

    /// Returns the rest of a limit.
    fn left(&self, until: Until, begun: Instant) -> Until {
        let ports = self.switch.workers().iter().flat_map(|worker| worker.egress.ports.slots());
        let received: u64 = ports.map(|slot| slot.counters.rx_packets).sum();
        Until {
            duration: until.duration.map(|duration| duration.saturating_sub(begun.elapsed())),
            packets: until.packets.map(|packets| packets.saturating_sub(received)),
        }
    }

    /// Saves the state at the end, for the next start.
    fn save_last(&mut self) {
        if let Some(file) = &self.file
            && let Err(error) = file.write(&mut self.switch.workers_mut(), &|| false)
        {
            warning!("state is not saved: {error}");
        }
    }

    /// Lets controllers drive the switch, and collectors read its metrics, if any may.
    fn listen(&mut self) -> Result<(), Failure> {
        let open = |openflow| open_agent(openflow, &self.served, self.packet_ins.clone());
        self.agent = self.openflow.as_ref().map(open).transpose()?;
        let open = |setup| open_metrics(setup, &self.served);
        self.metrics = self.metrics_setup.as_ref().map(open).transpose()?;
        Ok(())
    }

    /// Runs the switch, and beside it the periodic work of its control, the replay of changes and the saving of state.
    fn forward(
        &mut self,
        until: Until,
        replay: Option<&Replay>,
        progress: impl FnMut(u64) + Send,
    ) -> Result<(Result<(), RunError>, Option<Replayed>), Failure> {
        let (ended, begun) = (&AtomicBool::new(false), Instant::now());
        let Self { switch, served, stop, file, service, .. } = self;
        let (served, stop, service) = (&**served, &**stop, &**service);
        std::thread::scope(|scope| {
            // Also if a worker panics: the other threads must not wait forever.
            let ending = Ending(ended);
            let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
            let ticking = thread("tick").spawn_scoped(scope, || {
                served.control().wake(std::thread::current());
                while !ended.load(Ordering::Relaxed) {
                    served.tick();
                    report_life(served, service);
                    std::thread::park_timeout(TICK);
                }
            });
            ticking.map_err(|e| Failure::thread(&e))?;
            let replaying = match replay {
                Some(replay) => {
                    let replaying =
                        thread("changes").spawn_scoped(scope, || replay.run(served, begun, ended));
                    Some(replaying.map_err(|e| Failure::thread(&e))?)
                }
                None => None,
            };
            if let Some(file) = file {
                let saving = thread("state").spawn_scoped(scope, || state::save(file, served, ended));
                saving.map_err(|e| Failure::thread(&e))?;
            }
            let result = switch.run(until, stop, progress);
            drop(ending);
            Ok((result, replaying.map(|thread| thread.join().expect("replaying does not panic"))))
        })
    }
}

/// Lets controllers drive the switch.
fn open_agent(
    openflow: &OpenflowSetup,
    served: &Arc<ControlServer>,
    packet_ins: Arc<PacketIns>,
) -> Result<Agent, Failure> {
    let datapath_id = openflow.datapath_id.expect("`start` gives one");
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

/// Reports on a switch that runs: to its log, and to the service manager.
fn report_life(served: &ControlServer, service: &Supervisor) {
    served.renew_qos().iter().for_each(|problem| warning!("{problem}"));
    served.take_link_notices().iter().for_each(|notice| warning!("{notice}"));
    stderr::report_left_out();
    // A switch that runs has its ports, rules and control socket.
    if served.is_running() {
        service.ready();
        service.follow(|| served.loop_rounds(), || served.status().map(|status| status.to_string()));
    }
}

/// Lets collectors read metrics.
fn open_metrics(setup: &MetricsSetup, served: &Arc<ControlServer>) -> Result<MetricsServer, Failure> {
    let opened = MetricsServer::open(setup, served.clone());
    let metrics = opened.map_err(|error| Failure::Environment(error.to_string()))?;
    note!("flowlane: metrics on http://{}/metrics", metrics.address());
    Ok(metrics)
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
fn handle_signals(signals: &mut Signals, served: &ControlServer) {
    for signal in signals.forever() {
        if signal == SIGHUP {
            match served.reload(None) {
                Ok(done) => {
                    done.problems.iter().for_each(|problem| warning!("{problem}"));
                    let (added, modified, removed) = (done.added, done.modified, done.removed);
                    let others = client::others_changed(&done);
                    note!(
                        "flowlane: reloaded: {added} rules added, {modified} modified, {removed} deleted{others}"
                    );
                }
                Err(error) => stderr::error!("reload failed, nothing was changed: {error}"),
            }
        } else if served.end() {
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
            warning!("{error}");
            Ok(None)
        }
        (Err(error), Some(_)) => Err(socket_failure(error)),
    }
}

fn socket_failure(error: SocketError) -> Failure {
    match error {
        SocketError::Occupied { .. } => Failure::input(error.to_string()),
        other => Failure::Environment(other.to_string()),
    }
}
