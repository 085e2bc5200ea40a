//! `flowlane switch`: run a switch, check its configuration, look at one that runs and change it.

mod changes;
mod client;
mod report;
mod workers;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowlane_switch::datapath::{Until, Worker};
use flowlane_switch::mgmt::config::Config;
use flowlane_switch::mgmt::report::Report;
use flowlane_switch::mgmt::rpc::{ControlServer, Socket, SocketError, default_path};
use flowlane_switch::mgmt::setup::{Reload, Setup};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::arguments::{SwitchOptions, SwitchVerb};
use crate::failure::Failure;
use crate::output::{self, Output, count};
use changes::{Replay, Replayed};

pub(crate) fn run(verb: &SwitchVerb) -> Result<(), Failure> {
    match verb {
        SwitchVerb::Run(options) => run_switch(options),
        SwitchVerb::Check { config } => {
            let setup = Setup::read(config)?;
            setup.check()?;
            println!(
                "{}: {} ports, {} tables, {} rules, {} routes: correct",
                config.display(),
                setup.ports(),
                setup.tables(),
                setup.rules(),
                setup.routes()
            );
            Ok(())
        }
        SwitchVerb::Schema => output::json(&schemars::schema_for!(Config)),
        running => client::run(running),
    }
}

#[derive(Serialize)]
struct Document {
    seconds: f64,
    #[serde(flatten)]
    report: Report,
    /// Where changes were replayed.
    changes: Option<Replayed>,
}

/// How often control does what is due without being asked.
const TICK: Duration = Duration::from_millis(50);

/// Tells those who look that the switch has ended.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn run_switch(options: &SwitchOptions) -> Result<(), Failure> {
    let duration = options.duration.map(Duration::try_from_secs_f64).transpose();
    let duration = duration.map_err(|e| Failure::input(format!("--duration: {e}")))?;
    let until = Until { duration, packets: options.packets };
    let setup = Setup::read(&options.config)?;
    let reload = Reload::of(&setup);
    let replay = options.changes.as_deref().map(|file| Replay::read(file, &reload)).transpose()?;
    let (live, privileges) = (setup.is_live(), setup.privileges());
    let (mut switch, control) = setup.open_controlled(rand::random())?;
    // Packets come from anybody; and before there are threads, of which each would have its own.
    if let Err(error) = privileges.give_up_others() {
        eprintln!("flowlane: privileges that are needed no more are kept: {error}");
    }
    switch.workers_mut().iter_mut().for_each(|worker| adjust(worker, options));
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(ControlServer::new(control, reload, stop.clone()));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|e| Failure::Environment(format!("no signal handler: {e}")))?;
    let (hearing, signalled) = (signals.handle(), served.clone());
    let asked = stop.clone();
    let ears = std::thread::spawn(move || hear(&mut signals, &signalled, &asked));
    let socket = open_socket(options.socket.as_deref(), live, &served)?;
    let ended = AtomicBool::new(false);
    let bar = output::progress(0, "switching");
    let begun = Instant::now();
    let (result, replayed) = std::thread::scope(|scope| {
        // Also where the worker panics: nobody is to wait for threads that wait for it.
        let ending = Ending(&ended);
        scope.spawn(|| {
            served.control().wake(std::thread::current());
            while !ended.load(Ordering::Relaxed) {
                served.tick();
                std::thread::park_timeout(TICK);
            }
        });
        let replaying = replay.as_ref().map(|replay| scope.spawn(|| replay.run(&served, begun, &ended)));
        let result = switch.run(until, &stop, |packets| bar.set_position(packets));
        drop(ending);
        (result, replaying.map(|thread| thread.join().expect("replaying does not panic")))
    });
    let seconds = begun.elapsed().as_secs_f64();
    bar.finish_and_clear();
    drop(socket);
    hearing.close();
    _ = ears.join();
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
        eprintln!("every variant agreed on {} packets", count(packets));
    }
    result.map_err(Failure::from)?;
    refused.map_or(Ok(()), |message| Err(Failure::Check(message)))
}

fn adjust(worker: &mut Worker, options: &SwitchOptions) {
    if options.validate_simd {
        worker.validate();
    }
    if let Some(max_delay) = options.max_delay {
        worker.set_max_delay(Duration::from_micros(max_delay));
    }
}

/// Stops the switch where it is told to, and reads its configuration anew.
fn hear(signals: &mut Signals, served: &ControlServer, stop: &AtomicBool) {
    for signal in signals.forever() {
        if signal == SIGHUP {
            match served.reload(None) {
                Ok(done) => {
                    let (added, modified, removed) = (done.added, done.modified, done.removed);
                    eprintln!(
                        "flowlane: reloaded: {added} rules came, {modified} are others, {removed} went"
                    );
                }
                Err(error) => eprintln!("flowlane: not reloaded, all is as before: {error}"),
            }
        } else if stop.swap(true, Ordering::Relaxed) {
            // A second time ends the program at once.
            std::process::exit(130);
        }
    }
}

/// The socket that was asked for; the usual one where the switch has ports that live on, and nobody else has it.
fn open_socket(
    asked: Option<&Path>,
    live: bool,
    served: &Arc<ControlServer>,
) -> Result<Option<Socket>, Failure> {
    let path = match asked {
        Some(path) => path.to_owned(),
        None if live => default_path(),
        None => return Ok(None),
    };
    match (Socket::open(&path, served.clone()), asked) {
        (Ok(socket), _) => {
            eprintln!("flowlane: control socket {}", socket.path().display());
            Ok(Some(socket))
        }
        (Err(error), None) => {
            eprintln!("flowlane: {error}");
            Ok(None)
        }
        (Err(error @ SocketError::Taken(_)), Some(_)) => Err(Failure::input(error.to_string())),
        (Err(error), Some(_)) => Err(Failure::Environment(error.to_string())),
    }
}
