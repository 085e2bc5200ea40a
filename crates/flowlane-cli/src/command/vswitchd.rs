//! `flowlane vswitchd`: bridges as an OVSDB asks for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowlane_switch::mgmt::openflow::Address;
use flowlane_switch::mgmt::vswitchd::{Daemon, DaemonError, Options, PidFile};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::arguments::VswitchdOptions;
use crate::failure::Failure;
use crate::stderr::note;

/// The folder of sockets, as the programs of Open vSwitch find it.
fn run_folder() -> PathBuf {
    std::env::var_os("OVS_RUNDIR").map_or_else(|| PathBuf::from("/var/run/openvswitch"), PathBuf::from)
}

pub(crate) fn run(options: &VswitchdOptions) -> Result<(), Failure> {
    let folder = run_folder();
    let own = format!("unix:{}", folder.join("db.sock").display());
    let database: Address = options.database.as_ref().unwrap_or(&own).parse().map_err(|_| {
        let given = options.database.as_ref().unwrap_or(&own);
        Failure::input_help(
            format!("`{given}` is no address of a database"),
            "take unix:PATH or tcp:ADDRESS:PORT",
        )
    })?;
    fs::create_dir_all(&folder).map_err(|e| Failure::file(&folder, "create", &e))?;
    let default = || folder.join(format!("ovs-vswitchd.{}.ctl", std::process::id()));
    let control =
        Some(options.unixctl.clone().unwrap_or_else(default)).filter(|path| path != Path::new("none"));
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|e| Failure::Environment(format!("cannot install a signal handler: {e}")))?;
    }
    let say = |text: &str| note!("flowlane: {text}");
    let daemon =
        Daemon::new(Options { database, folder: folder.clone(), control, seed: rand::random() }, &say);
    let mut daemon = daemon.map_err(|error| match error {
        DaemonError::Database(_) => Failure::input(error.to_string()),
        other => Failure::Environment(other.to_string()),
    })?;
    let file = |path: &Option<PathBuf>| path.clone().unwrap_or_else(|| folder.join("ovs-vswitchd.pid"));
    let write = |path: PathBuf| PidFile::write(&path).map_err(|e| Failure::file(&path, "write", &e));
    let _file = options.pidfile.as_ref().map(|path| write(file(path))).transpose()?;
    daemon.run(&stop);
    Ok(())
}
