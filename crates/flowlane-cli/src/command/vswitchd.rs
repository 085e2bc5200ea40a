//! `flowlane vswitchd`: bridges as an OVSDB asks for them.

mod detach;
mod log;

use std::cell::RefCell;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use flowlane_switch::mgmt::openflow::{Address, TlsFiles};
use flowlane_switch::mgmt::vswitchd::{Daemon, DaemonError, Hooks, Options, PidFile};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::arguments::VswitchdOptions;
use crate::failure::Failure;
use crate::stderr::note;
use log::Log;

/// How long to wait for a daemon that ends.
const PID_TIMEOUT: Duration = Duration::from_secs(10);

/// The folder of sockets, as the programs of Open vSwitch find it.
fn run_folder() -> PathBuf {
    std::env::var_os("OVS_RUNDIR").map_or_else(|| PathBuf::from("/var/run/openvswitch"), PathBuf::from)
}

/// The folder of logs, likewise.
fn log_folder() -> PathBuf {
    std::env::var_os("OVS_LOGDIR").map_or_else(|| PathBuf::from("/var/log/openvswitch"), PathBuf::from)
}

/// The path of a file that an option asks for, by default this one.
fn file_of(option: Option<&Option<PathBuf>>, default: impl Fn() -> PathBuf) -> Option<PathBuf> {
    option.map(|path| path.clone().unwrap_or_else(default))
}

/// The socket of commands of the daemon whose number is in a file; none where there is no such daemon.
fn find_other(pid_file: &Path, folder: &Path) -> Option<PathBuf> {
    let number = fs::read_to_string(pid_file).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let found = number
        .map(|number| folder.join(format!("ovs-vswitchd.{number}.ctl")))
        .filter(|path| UnixStream::connect(path).is_ok());
    if found.is_none() {
        note!("flowlane: {} names no daemon that runs: there is none to take over", pid_file.display());
    }
    found
}

fn install<T>(installed: std::io::Result<T>) -> Result<T, Failure> {
    installed.map_err(|error| Failure::Environment(format!("cannot install a signal handler: {error}")))
}

/// The addresses of the database's servers, by default the socket in the folder.
fn read_database(options: &VswitchdOptions, folder: &Path) -> Result<Vec<Address>, Failure> {
    let own = || format!("unix:{}", folder.join("db.sock").display());
    let given = options.database.clone().unwrap_or_else(own);
    let read = |text: &str| {
        Address::of_database(text).map_err(|_| {
            Failure::input_help(
                format!("`{text}` is no address of a database"),
                "take unix:PATH, tcp:ADDRESS:PORT or ssl:ADDRESS:PORT; several are separated by commas",
            )
        })
    };
    given.split(',').map(str::trim).map(read).collect()
}

/// The files of TLS, of which all are given or none. The process in the background has another folder.
fn tls_files(options: &VswitchdOptions) -> Result<Option<TlsFiles>, Failure> {
    let authority = options.ca_cert.as_ref().or(options.bootstrap_ca_cert.as_ref());
    let (Some(key), Some(certificate), Some(authority)) =
        (&options.private_key, &options.certificate, authority)
    else {
        return Ok(None);
    };
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(|e| Failure::file(path, "find", &e));
    Ok(Some(TlsFiles {
        private_key: absolute(key)?,
        certificate: absolute(certificate)?,
        ca_certificate: absolute(authority)?,
        bootstraps: options.bootstrap_ca_cert.is_some(),
    }))
}

pub(crate) fn run(options: &VswitchdOptions) -> Result<(), Failure> {
    match (options.detach, detach::is_detached()) {
        (true, false) => return detach::start(),
        (true, true) => detach::leave_session(),
        (false, _) => {}
    }
    let folder = run_folder();
    let (database, tls) = (read_database(options, &folder)?, tls_files(options)?);
    fs::create_dir_all(&folder).map_err(|e| Failure::file(&folder, "create", &e))?;
    let path = file_of(options.log_file.as_ref(), || log_folder().join("ovs-vswitchd.log"));
    if let Some(folder) = path.as_deref().and_then(Path::parent) {
        fs::create_dir_all(folder).map_err(|e| Failure::file(folder, "create", &e))?;
    }
    let log = Log::open(path.as_deref())
        .map_err(|e| Failure::file(path.as_deref().unwrap_or(Path::new("")), "open", &e))?;
    let default = || folder.join(format!("ovs-vswitchd.{}.ctl", std::process::id()));
    let control =
        Some(options.unixctl.clone().unwrap_or_else(default)).filter(|path| path != Path::new("none"));
    let (stop, reopen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM] {
        install(signal_hook::flag::register(signal, stop.clone()))?;
    }
    install(signal_hook::flag::register(SIGHUP, reopen.clone()))?;
    let say = |text: &str| log.warn(text);
    let own_pid_file = || folder.join("ovs-vswitchd.pid");
    let pid_file = file_of(options.pidfile.as_ref(), own_pid_file);
    let other = pid_file.clone().unwrap_or_else(own_pid_file);
    let take_over = if options.take_over { find_other(&other, &folder) } else { None };
    let is_taking_over = take_over.is_some();
    let daemon = Daemon::new(
        Options { database, tls, folder: folder.clone(), control, seed: rand::random(), take_over },
        &say,
    );
    let mut daemon = daemon.map_err(|error| match error {
        DaemonError::Database(_) | DaemonError::NoDatabase | DaemonError::NoTls(_) => {
            Failure::input(error.to_string())
        }
        other => Failure::Environment(other.to_string()),
    })?;
    let written = RefCell::new(None);
    let write = |path: &Path, timeout| PidFile::write_within(path, timeout);
    if let Some(path) = pid_file.as_deref().filter(|_| !is_taking_over) {
        let file = write(path, Duration::ZERO).map_err(|e| Failure::file(path, "write", &e))?;
        written.replace(Some(file));
    }
    log.info(concat!("Flowlane ", env!("CARGO_PKG_VERSION"), " has started"));
    let ready = || {
        log.info("the bridges are those of the database");
        if let Some(path) = pid_file.as_deref().filter(|_| is_taking_over) {
            // The other daemon has let go of its bridges, and ends.
            match write(path, PID_TIMEOUT) {
                Ok(file) => _ = written.replace(Some(file)),
                Err(error) => log.warn(&format!("{}: {error}", path.display())),
            }
        }
        if options.detach {
            detach::ready();
        }
    };
    daemon.run(&Hooks { stop: &stop, ready: &ready, reopen: &reopen, log: &log });
    log.info("the daemon ends");
    Ok(())
}
