//! The files of the daemon, found as Open vSwitch finds them, and independent of the working directory, which may change.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use flowlane_switch::mgmt::openflow::{Address, TlsFiles};

use crate::arguments::VswitchdOptions;
use crate::failure::Failure;
use crate::stderr::note;

/// The files.
pub(super) struct Paths {
    /// The folder of sockets.
    pub(super) folder: PathBuf,
    pub(super) log: Option<PathBuf>,
    /// The pidfile, if one is asked for.
    pub(super) pid_file: Option<PathBuf>,
    /// The socket of commands, if there is to be one.
    pub(super) control: Option<PathBuf>,
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::file(path, "found", &error))
}

/// A folder that a variable names.
fn folder_of(variable: &str, default: &str) -> Result<PathBuf, Failure> {
    absolute(&std::env::var_os(variable).map_or_else(|| PathBuf::from(default), PathBuf::from))
}

/// The path of a file that an option asks for, by default this one.
fn file_of(option: Option<&Option<PathBuf>>, default: impl Fn() -> PathBuf) -> Option<PathBuf> {
    option.map(|path| path.clone().unwrap_or_else(default))
}

fn create(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::file(folder, "created", &error))
}

impl Paths {
    /// Finds the files, and creates their folders.
    pub(super) fn find(options: &VswitchdOptions) -> Result<Self, Failure> {
        let folder = folder_of("OVS_RUNDIR", "/var/run/openvswitch")?;
        create(&folder)?;
        let logs = folder_of("OVS_LOGDIR", "/var/log/openvswitch")?;
        let log = file_of(options.log_file.as_ref(), || logs.join("ovs-vswitchd.log"));
        let log = log.as_deref().map(absolute).transpose()?;
        if let Some(folder) = log.as_deref().and_then(Path::parent) {
            create(folder)?;
        }
        let control = options.unixctl.clone();
        let control = control.unwrap_or_else(|| format!("ovs-vswitchd.{}.ctl", std::process::id()).into());
        Ok(Self {
            log,
            pid_file: file_of(options.pidfile.as_ref(), || "ovs-vswitchd.pid".into())
                .map(|path| folder.join(path)),
            control: Some(control).filter(|path| path != Path::new("none")).map(|path| folder.join(path)),
            folder,
        })
    }

    /// The pidfile of the daemon that runs, where none is asked for the usual one.
    pub(super) fn other_pid_file(&self) -> PathBuf {
        self.pid_file.clone().unwrap_or_else(|| self.folder.join("ovs-vswitchd.pid"))
    }

    /// The socket of commands of the daemon whose number is in a file; none where there is no such daemon.
    pub(super) fn find_other(&self) -> Option<PathBuf> {
        let pid_file = self.other_pid_file();
        let number = fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse::<u32>().ok());
        let found = number
            .map(|number| self.folder.join(format!("ovs-vswitchd.{number}.ctl")))
            .filter(|path| UnixStream::connect(path).is_ok());
        if found.is_none() {
            note!("flowlane: {} names no daemon that runs: there is none to take over", pid_file.display());
        }
        found
    }

    /// The addresses of the database's servers, by default the socket in the folder.
    pub(super) fn database(&self, options: &VswitchdOptions) -> Result<Vec<Address>, Failure> {
        let given = options.database.as_deref().unwrap_or("unix:db.sock");
        let read = |text: &str| match Address::of_database(text) {
            Ok(Address::ConnectUnix(path)) => Ok(Address::ConnectUnix(self.folder.join(path))),
            Ok(other) => Ok(other),
            Err(_) => Err(Failure::input_help(
                format!("`{text}` is no address of a database"),
                "take unix:PATH, tcp:ADDRESS[:PORT] or ssl:ADDRESS[:PORT]; several are separated by commas",
            )),
        };
        given.split(',').map(str::trim).map(read).collect()
    }
}

/// The files of TLS, of which all are given or none.
pub(super) fn tls_files(options: &VswitchdOptions) -> Result<Option<TlsFiles>, Failure> {
    let authority = options.ca_cert.as_ref().or(options.bootstrap_ca_cert.as_ref());
    let (Some(key), Some(certificate), Some(authority)) =
        (&options.private_key, &options.certificate, authority)
    else {
        return Ok(None);
    };
    Ok(Some(TlsFiles {
        private_key: absolute(key)?,
        certificate: absolute(certificate)?,
        ca_certificate: absolute(authority)?,
        bootstraps: options.bootstrap_ca_cert.is_some(),
    }))
}
