//! Open vSwitch's userspace datapath with DPDK's drivers for captures, in a folder of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::RULES;

const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const PAGES: &str = "/proc/sys/vm/nr_hugepages";
const PAGES_WANTED: u32 = 700;

/// Its processes, killed on drop, and the huge pages that the system had before.
struct Ovs {
    folder: tempfile::TempDir,
    processes: Vec<Child>,
    pages_before: String,
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            _ = process.kill();
            _ = process.wait();
        }
        _ = std::fs::write(PAGES, &self.pages_before);
    }
}

/// Returns the cycles of a connection that begins, and of an established packet.
pub(crate) fn measure(captures: &Path, connections: u32, seconds: u64) -> Result<[f64; 2], String> {
    let path = |name: &str| captures.join(name).display().to_string();
    let beginning = {
        let ovs = Ovs::start()?;
        ovs.stats_of(&format!("rx_pcap={}", path("syns.pcap")), |ovs| ovs.until_received(connections))?
    };
    let ovs = Ovs::start()?;
    let established = ovs.stats_of(&format!("rx_pcap={},infinite_rx=1", path("datagrams.pcap")), |ovs| {
        // All connections begin.
        std::thread::sleep(Duration::from_secs(2));
        ovs.run("ovs-appctl", &format!("-t {} dpif-netdev/pmd-stats-clear", ovs.control()?))?;
        std::thread::sleep(Duration::from_secs(seconds));
        Ok(())
    })?;
    Ok([beginning, established])
}

impl Ovs {
    /// Starts it with a bridge whose port 2 takes all packets.
    fn start() -> Result<Self, String> {
        if !Path::new(DAEMON).exists() {
            return Err(format!("there is no {DAEMON} (apt-get install openvswitch-switch-dpdk)"));
        }
        let pages = std::fs::read_to_string(PAGES).unwrap_or_default();
        if pages.trim().parse().unwrap_or(0) < PAGES_WANTED {
            std::fs::write(PAGES, PAGES_WANTED.to_string())
                .map_err(|error| format!("huge pages: {error}"))?;
        }
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut ovs = Self { folder, processes: Vec::new(), pages_before: pages };
        let at = ovs.folder.path().display().to_string();
        ovs.run("ovsdb-tool", &format!("create {at}/conf.db {SCHEMA}"))?;
        ovs.spawn("ovsdb-server", &format!("{at}/conf.db --remote=punix:{at}/db.sock"))?;
        ovs.until("ovs-vsctl", &format!("--db=unix:{at}/db.sock --no-wait init"))?;
        ovs.vsctl(
            "--no-wait set Open_vSwitch . other_config:dpdk-init=true other_config:dpdk-socket-mem=1300 \
             other_config:dpdk-lcore-mask=0x1 other_config:pmd-cpu-mask=0x2 other_config:max-idle=3600000 \
             other_config:dpdk-extra=--in-memory\\ --no-pci",
        )?;
        ovs.spawn(DAEMON, &format!("unix:{at}/db.sock"))?;
        ovs.until(
            "ovs-vsctl",
            &format!("--db=unix:{at}/db.sock --timeout=10 add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure"),
        )?;
        ovs.vsctl(
            "--timeout=10 add-port br0 p2 -- set interface p2 type=dpdk ofport_request=2 \
             options:dpdk-devargs=net_null0,no-rx=1",
        )?;
        for rule in RULES {
            ovs.until("ovs-ofctl", &format!("add-flow {at}/br0.mgmt {rule}"))?;
        }
        Ok(ovs)
    }

    /// Adds a port with a capture; returns the cycles of each of its packets meanwhile.
    fn stats_of(
        &self,
        capture: &str,
        meanwhile: impl FnOnce(&Self) -> Result<(), String>,
    ) -> Result<f64, String> {
        self.vsctl(&format!(
            "--timeout=30 add-port br0 p1 -- set interface p1 type=dpdk ofport_request=1 \
             options:dpdk-devargs=net_pcap0,{capture}"
        ))?;
        let problem = self.vsctl("get interface p1 error")?;
        if problem.trim() != "[]" {
            return Err(format!("port p1: {}", problem.trim()));
        }
        meanwhile(self)?;
        self.number("avg processing cycles per packet: ")
    }

    /// Waits until all packets of a capture have been received.
    fn until_received(&self, packets: u32) -> Result<(), String> {
        let begun = Instant::now();
        let mut came = 0.0;
        while begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(200));
            came = self.number("packets received: ")?;
            if came >= f64::from(packets) {
                return Ok(());
            }
        }
        Err(format!("{came} of {packets} packets have come"))
    }

    /// Returns a number of the thread that receives, from Open vSwitch's own accounting.
    fn number(&self, name: &str) -> Result<f64, String> {
        let shown = self.run("ovs-appctl", &format!("-t {} dpif-netdev/pmd-stats-show", self.control()?))?;
        let own = shown.split("pmd thread").nth(1).unwrap_or_default();
        let line = own.lines().find_map(|line| line.trim().strip_prefix(name));
        line.and_then(|line| line.split(' ').next()?.parse().ok())
            .ok_or_else(|| format!("no `{name}` in `{shown}`"))
    }

    fn control(&self) -> Result<String, String> {
        let names = std::fs::read_dir(self.folder.path()).map_err(|error| error.to_string())?;
        let mut paths = names.flatten().map(|entry| entry.path().display().to_string());
        paths
            .find(|path| path.contains("vswitchd") && path.ends_with(".ctl"))
            .ok_or_else(|| "it does not run".into())
    }

    fn vsctl(&self, arguments: &str) -> Result<String, String> {
        let at = self.folder.path().display();
        self.run("ovs-vsctl", &format!("--db=unix:{at}/db.sock {arguments}"))
    }

    fn command(&self, name: &str, arguments: &str) -> Command {
        let mut command = Command::new(name);
        // A space within an argument is escaped.
        let arguments = arguments.replace("\\ ", "\u{0}");
        let words = arguments.split(' ').filter(|word| !word.is_empty());
        command.args(words.map(|word| word.replace('\u{0}', " ")));
        for folder in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(folder, self.folder.path());
        }
        command
    }

    fn run(&self, name: &str, arguments: &str) -> Result<String, String> {
        let output = self.command(name, arguments).output().map_err(|error| format!("{name}: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{name} {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    fn spawn(&mut self, name: &str, arguments: &str) -> Result<(), String> {
        let child = self.command(name, arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.processes.push(child.map_err(|error| format!("{name}: {error}"))?);
        Ok(())
    }

    /// Retries a command until it succeeds, or ten seconds are over.
    fn until(&self, name: &str, arguments: &str) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            match self.run(name, arguments) {
                Ok(_) => return Ok(()),
                Err(problem) if begun.elapsed() > Duration::from_secs(10) => return Err(problem),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}
