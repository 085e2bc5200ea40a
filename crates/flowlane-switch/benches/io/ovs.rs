//! Open vSwitch's userspace datapath between the namespaces, in a folder of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The type of its ports.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    AfPacket,
    /// Packet sockets, large TCP frames whole (TSO).
    Whole,
    AfXdp,
}

impl Ports {
    pub(crate) const ALL: [(&'static str, Self); 3] =
        [("ovs, afpacket", Self::AfPacket), ("ovs, afpacket, tso", Self::Whole), ("ovs, afxdp", Self::AfXdp)];
}

/// Its processes, killed on drop.
pub(crate) struct Ovs {
    folder: tempfile::TempDir,
    processes: Vec<Child>,
}

impl Ovs {
    /// Starts it with a bridge of two interfaces; `None` if it is not installed or rejects them.
    pub(crate) fn start(ports: Ports, interfaces: &[&str; 2]) -> Option<Self> {
        let folder = tempfile::tempdir().ok()?;
        let mut ovs = Self { folder, processes: Vec::new() };
        let (at, schema) =
            (ovs.folder.path().display().to_string(), "/usr/share/openvswitch/vswitch.ovsschema");
        if !Path::new(schema).exists() || !ovs.run("ovsdb-tool", &format!("create {at}/conf.db {schema}")) {
            return None;
        }
        ovs.spawn("ovsdb-server", &format!("{at}/conf.db --remote=punix:{at}/db.sock"))?;
        ovs.until("ovs-vsctl", "--no-wait init")?;
        let mask = "other_config:pmd-cpu-mask=0x2";
        let tso = if ports == Ports::Whole { "other_config:userspace-tso-enable=true" } else { mask };
        if !ovs.run("ovs-vsctl", &format!("--no-wait set Open_vSwitch . {mask} {tso}")) {
            return None;
        }
        ovs.spawn("ovs-vswitchd", &format!("unix:{at}/db.sock"))?;
        ovs.until("ovs-vsctl", "--timeout=5 add-br flio-ovs -- set bridge flio-ovs datapath_type=netdev")?;
        let kind = if ports == Ports::AfXdp { "afxdp" } else { "system" };
        let added = interfaces.iter().all(|name| {
            ovs.run(
                "ovs-vsctl",
                &format!("--timeout=5 add-port flio-ovs {name} -- set interface {name} type={kind}"),
            )
        });
        let trouble = ovs.output("ovs-vsctl", "--columns=error list interface");
        let is_taken = added && !trouble.lines().any(|line| line.starts_with("error") && line.contains('\"'));
        std::thread::sleep(Duration::from_secs(1));
        is_taken.then_some(ovs)
    }

    fn command(&self, name: &str, arguments: &str) -> Command {
        let mut command = Command::new(name);
        command.args(arguments.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
        for folder in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(folder, self.folder.path());
        }
        command
    }

    fn run(&self, name: &str, arguments: &str) -> bool {
        self.command(name, arguments).status().is_ok_and(|status| status.success())
    }

    fn output(&self, name: &str, arguments: &str) -> String {
        let output = self.command(name, arguments).stdout(Stdio::piped()).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    }

    fn spawn(&mut self, name: &str, arguments: &str) -> Option<()> {
        self.processes.push(self.command(name, arguments).spawn().ok()?);
        Some(())
    }

    /// Retries a command until it succeeds, or ten seconds are over.
    fn until(&self, name: &str, arguments: &str) -> Option<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            if self.run(name, arguments) {
                return Some(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        self.run("ovs-vsctl", "--timeout=5 del-br flio-ovs");
        for process in self.processes.iter_mut().rev() {
            _ = process.kill();
            _ = process.wait();
        }
    }
}
