//! Arguments of `flowlane vswitchd`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

const HELP: &str = "\
Examples:
  flowlane vswitchd                                             # unix:/var/run/openvswitch/db.sock
  flowlane vswitchd unix:/run/openvswitch/db.sock --pidfile --log-file --detach
  flowlane vswitchd --pidfile --log-file --detach --take-over  # an upgrade: the daemon that runs hands over, and ends
  flowlane vswitchd --pidfile --log-file --detach --monitor --mlockall -vconsole:emer -vsyslog:err -vfile:info
  OVS_RUNDIR=/tmp/ovs flowlane vswitchd
  flowlane vswitchd ssl:192.0.2.1:6640 -p sc-privkey.pem -c sc-cert.pem -C cacert.pem

The database says which bridges there are: `ovs-vsctl add-br br0`, `ovs-vsctl add-port br0 eth1`. Each bridge has a socket for OpenFlow,
RUNDIR/BRIDGE.mgmt, as `ovs-ofctl` expects it. RUNDIR is OVS_RUNDIR, or /var/run/openvswitch; LOGDIR is
OVS_LOGDIR, or /var/log/openvswitch. The system's log (`-vsyslog:warn`) is at /dev/log. The log file is opened again at a SIGHUP and by `ovs-appctl vlog/reopen`, as logrotate needs it.

A daemon that ends leaves rules, connections, learned addresses, and sessions of protocols in RUNDIR for the next one (`ovs-appctl exit --cleanup`: nothing). Each bridge has
a control socket, RUNDIR/BRIDGE.control: `flowlane switch show --socket …`, `flowlane switch trace …`.

As a service (NOTIFY_SOCKET, WATCHDOG_USEC: sd_notify(3)) it reports when the bridges are those of the database, and that all workers make
progress: docs/operation.md.

Interfaces may be of the types system, afxdp, internal, tap, patch, geneve, vxlan, gre, ip6gre, erspan,
ip6erspan and dummy; others have an `error` in the database.";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct VswitchdOptions {
    /// The OVSDB server: unix:PATH, tcp:ADDRESS[:PORT] or ssl:ADDRESS[:PORT], or several, separated by commas, of which one is used
    /// at a time [default: unix:RUNDIR/db.sock].
    #[arg(value_name = "DATABASE")]
    pub(crate) database: Option<String>,
    /// The daemon's private key (PEM), for `ssl:`. Controllers have it, too, where the database names no files of TLS.
    #[arg(long, short = 'p', value_name = "FILE", requires = "certificate", requires = "authority")]
    pub(crate) private_key: Option<PathBuf>,
    /// The daemon's certificate (PEM), and those between it and its authority.
    #[arg(long, short = 'c', value_name = "FILE", requires = "private_key")]
    pub(crate) certificate: Option<PathBuf>,
    /// The authorities of servers and controllers (PEM).
    #[arg(long, short = 'C', value_name = "FILE", requires = "private_key", group = "authority")]
    pub(crate) ca_cert: Option<PathBuf>,
    /// CA certificate file, as --ca-cert; if it does not exist, the CA certificate of the first server is trusted and stored there.
    #[arg(long, value_name = "FILE", requires = "private_key", group = "authority")]
    pub(crate) bootstrap_ca_cert: Option<PathBuf>,
    /// Write the process's number to a file, relative to RUNDIR [default, without a value: RUNDIR/ovs-vswitchd.pid].
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub(crate) pidfile: Option<Option<PathBuf>>,
    /// Replace the pidfile of a daemon that runs, instead of refusing to start.
    #[arg(long, requires = "pidfile", conflicts_with = "take_over")]
    pub(crate) overwrite_pidfile: bool,
    /// Take the place of the daemon of the pidfile, with its ports, rules and connections: an upgrade while packets flow.
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Return when the bridges are there, and run on in the background.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Stay in the working directory; else the process in the background goes to /.
    #[arg(long, requires = "detach")]
    pub(crate) no_chdir: bool,
    /// Restart the daemon when it crashes (a panic, or a signal such as SIGABRT or SIGSEGV).
    #[arg(long)]
    pub(crate) monitor: bool,
    /// Keep memory that is in use from being swapped out.
    #[arg(long)]
    pub(crate) mlockall: bool,
    /// Set levels of the log as `ovs-appctl vlog/set` does: a destination (console, syslog or file), and off, emer, err, warn, info or
    /// dbg [default, without a value: dbg for all].
    #[arg(long, short, value_name = "SPEC")]
    pub(crate) verbose: Vec<String>,
    /// Write messages to a file, too [default, without a value: LOGDIR/ovs-vswitchd.log].
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub(crate) log_file: Option<Option<PathBuf>>,
    /// Socket for `ovs-appctl`, relative to RUNDIR, or `none` [default: RUNDIR/ovs-vswitchd.PID.ctl].
    #[arg(long, value_name = "SOCKET")]
    pub(crate) unixctl: Option<PathBuf>,
}

/// Gives `-v` and `--verbose` without a value the one that they have then: as with `ovs-vswitchd`, the next word is none.
pub(crate) fn with_levels(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words.get(1).is_some_and(|command| command == "vswitchd") {
        for word in words.iter_mut().skip(2) {
            if word == "-v" || word == "--verbose" {
                *word = "--verbose=dbg".into();
            }
        }
    }
    words
}
