//! `flowlane vswitchd`: bridges as an OVSDB asks for them.

mod detach;
mod log;
mod monitor;
mod paths;
mod syslog;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use flowlane_switch::mgmt::rpc::ReloadEvent;
use flowlane_switch::mgmt::vswitchd::{
    Daemon, DaemonError, DaemonLog, DaemonObserver, Hooks, Options, PidFile, Signs,
};
use rustix::mm::MlockAllFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::arguments::VswitchdOptions;
use crate::failure::Failure;
use crate::service::Supervisor;
use log::Log;
use paths::{Paths, tls_files};
use syslog::Syslog;

/// How long to wait for a daemon that ends.
const PID_TIMEOUT: Duration = Duration::from_secs(10);

fn install<T>(installed: std::io::Result<T>) -> Result<T, Failure> {
    installed.map_err(|error| Failure::Environment(format!("cannot install a signal handler: {error}")))
}

/// Opens the log, with the levels that are asked for.
fn open_log(options: &VswitchdOptions, path: Option<&Path>) -> Result<Log, Failure> {
    let method = std::env::var("OVS_SYSLOG_METHOD").unwrap_or_default();
    let syslog = Syslog::of_method(&method).map_err(Failure::input)?;
    let opened = Log::open(path, syslog);
    let log = opened.map_err(|e| Failure::file(path.unwrap_or(Path::new("")), "opened", &e))?;
    for specification in &options.verbose {
        log.levels().set(specification).map_err(|error| {
            Failure::input_help(
                format!("--verbose {specification}: {error}"),
                "write a destination and a level, such as -vfile:info; -vdbg is all for all",
            )
        })?;
    }
    Ok(log)
}

/// Keeps the memory of this process from being swapped out: that in use, and further one when it is used.
fn lock_memory(log: &Log) {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(error) = rustix::mm::mlockall(flags) {
        log.warn(&format!(
            "mlockall failed: {error}; memory may be swapped out (root may lock it, or ulimit -l lets others)"
        ));
    }
}

pub(crate) fn run(options: &VswitchdOptions) -> Result<(), Failure> {
    // Scripts such as `ovs-ctl` look for a process of this name. Without it the daemon runs all the same.
    _ = rustix::thread::set_name(c"ovs-vswitchd");
    match (options.detach, detach::is_detached()) {
        (true, false) => return detach::start(),
        (true, true) => detach::leave_session(),
        (false, _) => {}
    }
    let paths = Paths::find(options)?;
    if options.monitor && !monitor::is_monitored() {
        let say = |text: &str| _ = open_log(options, paths.log.as_deref()).map(|log| log.warn(text));
        return monitor::run(options.detach, || detach::ready(options.no_chdir), say);
    }
    run_daemon(options, paths)
}

/// Follows the daemon's loop: for the service manager, and for the log.
struct Observer<'a> {
    service: &'a Supervisor,
    log: &'a Log,
}

impl DaemonObserver for Observer<'_> {
    fn follow(&self, signs: &Signs<'_>) {
        self.log.report_left_out();
        self.service.follow(|| signs.loop_rounds(), || signs.status());
    }

    fn reload(&self, event: ReloadEvent) {
        self.service.reload(event);
    }

    fn stopping(&self) {
        self.service.stopping();
    }
}

fn run_daemon(options: &VswitchdOptions, paths: Paths) -> Result<(), Failure> {
    let (database, tls) = (paths.database(options)?, tls_files(options)?);
    let log = open_log(options, paths.log.as_deref())?;
    if options.mlockall {
        lock_memory(&log);
    }
    let (stop, reopen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM] {
        install(signal_hook::flag::register(signal, stop.clone()))?;
    }
    install(signal_hook::flag::register(SIGHUP, reopen.clone()))?;
    let say = |text: &str| log.warn(text);
    let take_over = if options.take_over { paths.find_other() } else { None };
    let is_taking_over = take_over.is_some();
    let Paths { folder, pid_file, control, .. } = paths;
    let daemon =
        Daemon::new(Options { database, tls, folder, control, seed: rand::random(), take_over }, &say);
    let mut daemon = daemon.map_err(|error| match error {
        DaemonError::Database(_) | DaemonError::NoDatabase | DaemonError::NoTls(_) => {
            Failure::input(error.to_string())
        }
        other => Failure::Environment(other.to_string()),
    })?;
    let written = RefCell::new(None);
    if let Some(path) = pid_file.as_deref().filter(|_| !is_taking_over) {
        let file = match options.overwrite_pidfile {
            true => PidFile::overwrite(path),
            false => PidFile::write(path),
        };
        written.replace(Some(file.map_err(|e| Failure::file(path, "written", &e))?));
    }
    log.info(concat!("Flowlane ", env!("CARGO_PKG_VERSION"), " has started"));
    let service = Supervisor::of_environment();
    let ready = || {
        log.info("the bridges are those of the database");
        service.ready();
        if let Some(path) = pid_file.as_deref().filter(|_| is_taking_over) {
            // The other daemon has let go of its bridges, and ends.
            match PidFile::write_within(path, PID_TIMEOUT) {
                Ok(file) => _ = written.replace(Some(file)),
                Err(error) => log.warn(&format!("{}: {error}", path.display())),
            }
        }
        if options.detach {
            detach::ready(options.no_chdir);
        }
    };
    let observer = Observer { service: &service, log: &log };
    daemon.run(&Hooks { stop: &stop, ready: &ready, reopen: &reopen, log: &log, observer: &observer });
    log.info("the daemon ends");
    Ok(())
}
