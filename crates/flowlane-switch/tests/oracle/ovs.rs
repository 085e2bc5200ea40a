//! An Open vSwitch of one's own: its daemons over a dummy datapath, in a folder that goes with them.
//!
//! Nothing of the system is touched and no privilege is needed: with `--enable-dummy=override` every port is
//! `netdev-dummy`, which takes frames by a command (`netdev-dummy/receive PORT HEX…`, ovs-vswitchd's control
//! socket) and writes what it is to send to a capture (`options:tx_pcap`). A frame is received and sent on in
//! the daemon's main loop, one at a time; a marker behind each lot says when the lot is through.

use flowlane::rule::{FlowFlags, FlowMod, Format, ReadOptions, Rule, read, read_changes};
pub(crate) use flowlane::testing::OvsPrograms;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Deserializer, Value, json};
use tempfile::TempDir;

use super::rules::{Rules, is_learned};

/// Ports of the bridge: 1 to this.
pub(crate) const PORTS: usize = 4;

/// Frames sent at once at most: `netdev-dummy` keeps 100 and drops the others.
pub(crate) const LOT_MAX: usize = 99;

/// Far longer than anything takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// An EtherType for experiments (IEEE 802 §9.2.4): of markers, and of nothing else. Every megaflow of Open
/// vSwitch is of one EtherType, so that the markers' rule widens no mask.
const MARKER_TYPE: u16 = 0x88b5;

/// A cookie that no other rule has.
const MARKER_COOKIE: u64 = u64::MAX >> 1;

/// A process that ends with this, and with the tests' process however that ends: a shell is in between, which
/// kills the process when its own standard input is closed.
struct Daemon(Child);

impl Daemon {
    fn start(programs: &OvsPrograms, program: &str, folder: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new("sh");
        programs.surround(&mut command, folder);
        let keep = r#""$@" & daemon=$!; read -r _; kill -9 "$daemon"; wait "$daemon""#;
        command.args(["-c", keep, "sh"]).arg(programs.path(program));
        command.args(["--no-chdir", "-vconsole:off", "-vsyslog:off"]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("there is a shell"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A program's control socket: JSON-RPC, one request at a time.
pub(crate) struct Control(UnixStream);

impl Control {
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the program has said that it is ready");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        Self(stream)
    }

    pub(crate) fn call(&mut self, method: &str, parameters: &[String]) -> Result<String, String> {
        let request = json!({"id": 0, "method": method, "params": parameters});
        self.0.write_all(request.to_string().as_bytes()).map_err(|error| format!("{method}: {error}"))?;
        let reply = Deserializer::from_reader(&self.0).into_iter::<Value>().next();
        let reply = reply.ok_or("the socket is closed")?.map_err(|error| format!("{method}: {error}"))?;
        match &reply["error"] {
            Value::Null => Ok(reply["result"].as_str().unwrap_or_default().to_owned()),
            error => Err(format!("{method}: {error}")),
        }
    }
}

/// A capture that grows.
struct Capture {
    file: File,
    read: Vec<u8>,
}

/// Bytes of a capture's header, and of one in front of each frame.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

impl Capture {
    fn open(path: &Path) -> Self {
        let mut file = File::open(path).expect("the port has made its capture");
        let mut header = [0; FILE_HEADER];
        file.read_exact(&mut header).expect("a header is written at once");
        Self { file, read: Vec::new() }
    }

    /// Returns the frames sent before `marker`, once the marker has been sent.
    /// Fails where the daemon has ended: `control` does not answer then.
    fn before(&mut self, marker: &[u8], control: &mut Control) -> Result<Vec<Vec<u8>>, String> {
        let (mut frames, mut at, start) = (Vec::new(), 0, Instant::now());
        loop {
            while let Some((frame, next)) = self.record(at) {
                at = next;
                if frame == marker {
                    self.read.drain(..at);
                    return Ok(frames);
                }
                frames.push(frame);
            }
            assert!(start.elapsed() < PATIENCE, "Open vSwitch does not send the marker");
            if start.elapsed() > Duration::from_millis(200) {
                control.call("version", &[])?;
            }
            std::thread::sleep(Duration::from_micros(300));
            self.file.read_to_end(&mut self.read).expect("the capture is readable");
        }
    }

    /// The record at this place, if it is all there, and the next one's place.
    fn record(&self, at: usize) -> Option<(Vec<u8>, usize)> {
        let header = self.read.get(at..at + RECORD_HEADER)?;
        let len = u32::from_ne_bytes(header[8..12].try_into().expect("four bytes")) as usize;
        let next = at + RECORD_HEADER + len;
        Some((self.read.get(at + RECORD_HEADER..next)?.to_vec(), next))
    }
}

/// A rule's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// A rule that packets have made, with the settings that are not printed with rules.
pub(crate) fn learned_text(rule: &Rule, (idle_s, hard_s): (u16, u16), flags: FlowFlags) -> String {
    let reports = flags.contains(FlowFlags::SEND_FLOW_REM);
    format!("idle {idle_s} s, hard {hard_s} s, send_flow_rem {reports}: {rule}")
}

/// The sent frames, by port.
pub(crate) type Sent = [Vec<Vec<u8>>; PORTS];

/// A running switch with ports 1 to [`PORTS`].
pub(crate) struct Ovs {
    programs: OvsPrograms,
    control: Control,
    captures: Vec<Capture>,
    markers: u32,
    // Dropped in this order: who uses the folder before the folder.
    _daemons: [Daemon; 2],
    folder: TempDir,
}

impl Ovs {
    pub(crate) fn start(programs: &OvsPrograms) -> Self {
        let folder = tempfile::Builder::new().prefix("flowlane-ovs").tempdir().expect("a temporary folder");
        let at = folder.path();
        let text = |name: &str| at.join(name).to_str().expect("the folder's name is text").to_owned();
        let schema = programs.schema();
        let schema = schema.to_str().expect("the root's name is text");
        programs.run("ovsdb-tool", at, &["create", &text("conf.db"), schema], "").expect("a database");
        let (database, control) = (format!("unix:{}", text("db.sock")), text("control"));
        let remote = format!("--remote=p{database}");
        let own = format!("--unixctl={}", text("database-control"));
        let server = Daemon::start(programs, "ovsdb-server", at, &[&remote, &own, &text("conf.db")]);
        let vsctl = |arguments: &str| {
            let (db, timeout) = (format!("--db={database}"), format!("--timeout={}", PATIENCE.as_secs()));
            let arguments = [&db, &timeout, "--retry"].into_iter().chain(arguments.split(' '));
            programs.run("ovs-vsctl", at, &arguments.collect::<Vec<_>>(), "").expect("a bridge")
        };
        // It is read at start only, and by default tags behind the first are payload.
        vsctl("--no-wait init -- set Open_vSwitch . other_config:vlan-limit=2");
        let (own, log) = (format!("--unixctl={control}"), format!("--log-file={}", text("log")));
        let quiet = ["--enable-dummy=override", "--disable-system", "--disable-system-route"];
        let arguments = [&[database.as_str(), &own, &log], &quiet[..]].concat();
        let switch = Daemon::start(programs, "ovs-vswitchd", at, &arguments);
        let mut bridge = "add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure \
             protocols=OpenFlow10,OpenFlow13,OpenFlow14,OpenFlow15"
            .to_owned();
        for port in 1..=PORTS {
            let capture = text(&format!("p{port}.pcap"));
            write!(
                bridge,
                " -- add-port br0 p{port} -- set interface p{port} type=dummy ofport_request={port} \
                 options:tx_pcap={capture}"
            )
            .expect("text takes text");
        }
        vsctl(&bridge);
        let mut control = Control::connect(Path::new(&control));
        // Revalidators would work at any time, and a purge passes over the megaflows that they have in hand.
        control.call("revalidator/pause", &[]).expect("revalidators can be paused");
        let ovs = Self {
            programs: programs.clone(),
            control,
            captures: (1..=PORTS).map(|port| Capture::open(&at.join(format!("p{port}.pcap")))).collect(),
            markers: 0,
            _daemons: [switch, server],
            folder,
        };
        // By default first fragments have no ports, either.
        ovs.ofctl(&["set-frags"], &["nx-match"], "").expect("fragments have fields of their own");
        let options =
            "{class=0xffff,type=0,len=4}->tun_metadata0,{class=0xffff,type=1,len=16}->tun_metadata6";
        ovs.ofctl(&["add-tlv-map"], &[options], "").expect("options of tunnels have fields");
        ovs
    }

    /// Returns whether it answers.
    pub(crate) fn runs(&mut self) -> bool {
        self.control.call("version", &[]).is_ok()
    }

    /// Starts another in the place of one that has ended.
    pub(crate) fn restart(&mut self) {
        *self = Self::start(&self.programs.clone());
    }

    /// The socket at which the bridge speaks OpenFlow.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("br0.mgmt")
    }

    /// Has these rules and no others from now on, their counters 0.
    ///
    /// # Errors
    /// What `ovs-ofctl` or the switch says where it refuses one; none is there then.
    pub(crate) fn set_rules(&mut self, rules: &Rules) -> Result<(), String> {
        let all: Vec<String> = (1..=PORTS).map(|port| format!("output:{port}")).collect();
        // Where rules that learn are removed, so are those with cookies that they have learned, at the end of a bundle.
        self.ofctl(&["del-flows"], &[], "")?;
        let mut text = "group delete group_id=all\n".to_owned();
        for group in rules.groups.lines() {
            writeln!(text, "group add {group}").expect("text takes text");
        }
        writeln!(
            text,
            "flow add table=0,priority=65535,cookie={MARKER_COOKIE:#x},dl_type={MARKER_TYPE:#x},actions={},in_port",
            all.join(",")
        )
        .expect("text takes text");
        for rule in rules.text.lines() {
            writeln!(text, "flow add {rule}").expect("text takes text");
        }
        // Earlier versions have no methods of selection, and ovs-ofctl leaves them out without a word.
        let version = if rules.groups.contains("selection_method") { "-OOpenFlow15" } else { "-OOpenFlow13" };
        let result = self.ofctl_as(version, &["bundle"], &["-"], &text);
        // The megaflows of earlier rules are removed here only.
        self.control.call("revalidator/purge", &[])?;
        result.map(|_| ())
    }

    /// Removes all megaflows; their packets are credited to the rules.
    pub(crate) fn forget_megaflows(&mut self) {
        self.try_forget_megaflows().expect("megaflows can be removed");
    }

    /// Does that; fails where Open vSwitch has ended.
    pub(crate) fn try_forget_megaflows(&mut self) -> Result<(), String> {
        self.control.call("revalidator/purge", &[]).map(|_| ())
    }

    /// Has these options of tunnels in fields, and no others.
    pub(crate) fn map_options(&mut self, options: &str) {
        self.ofctl(&["del-tlv-map"], &[], "").expect("options can be forgotten");
        self.ofctl(&["add-tlv-map"], &[options], "").expect("options of tunnels have fields");
    }

    /// Adds a meter.
    pub(crate) fn add_meter(&mut self, meter: &str) {
        self.ofctl(&["add-meter"], &[meter], "").expect("a meter can be added");
    }

    /// Returns the trace of a packet whose `ct` actions find these states, one after the other.
    pub(crate) fn trace(&mut self, flow: &str, states: &[&str]) -> String {
        let states = states.iter().flat_map(|state| ["--ct-next".to_owned(), (*state).to_owned()]);
        let parameters: Vec<String> = ["br0".to_owned(), flow.to_owned()].into_iter().chain(states).collect();
        self.control.call("ofproto/trace", &parameters).expect("a packet can be traced")
    }

    /// Forgets all connections.
    ///
    /// # Errors
    /// What the control socket says.
    pub(crate) fn flush_connections(&mut self) -> Result<(), String> {
        self.control.call("dpctl/flush-conntrack", &[]).map(|_| ())
    }

    /// The connections, in order.
    ///
    /// # Errors
    /// What the control socket says.
    pub(crate) fn connections(&mut self) -> Result<Vec<String>, String> {
        let dump = self.control.call("dpctl/dump-conntrack", &[])?;
        let mut all: Vec<String> = dump.lines().map(str::to_owned).collect();
        all.sort();
        Ok(all)
    }

    /// Gives the ports, from port 1 on, these VLAN settings, as `ovs-vsctl set port` takes them, and forgets all addresses.
    pub(crate) fn set_vlans(&mut self, settings: &[String]) {
        let mut arguments = vec![
            format!("--db=unix:{}", self.folder.path().join("db.sock").display()),
            format!("--timeout={}", PATIENCE.as_secs()),
        ];
        for (port, settings) in (1..).zip(settings) {
            let clear = format!("-- clear port p{port} tag trunks cvlans vlan_mode");
            arguments.extend(clear.split(' ').map(str::to_owned));
            if !settings.is_empty() {
                let set = format!("-- set port p{port} {settings}");
                arguments.extend(set.split(' ').map(str::to_owned));
            }
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.programs.run("ovs-vsctl", self.folder.path(), &arguments, "").expect("settings of ports");
        self.control.call("fdb/flush", &[]).expect("addresses can be forgotten");
    }

    /// Gives the bridge these mirrors, as `ovs-vsctl` creates them: `-- --id=@mN create mirror …`, with N from 0 on.
    pub(crate) fn set_mirrors(&mut self, mirrors: impl IntoIterator<Item = String>) {
        let run = |text: &str| {
            let database = format!("--db=unix:{}", self.folder.path().join("db.sock").display());
            let timeout = format!("--timeout={}", PATIENCE.as_secs());
            let arguments =
                [&[&*database, &*timeout][..], &text.split_whitespace().collect::<Vec<_>>()].concat();
            self.programs.run("ovs-vsctl", self.folder.path(), &arguments, "").expect("mirrors of a bridge");
        };
        run("clear bridge br0 mirrors");
        for (name, mirror) in mirrors.into_iter().enumerate() {
            run(&format!("{mirror} -- add bridge br0 mirrors @m{name}"));
        }
        self.control.call("fdb/flush", &[]).expect("addresses can be forgotten");
    }

    /// Lets the bridge snoop multicast, by what `ovs-vsctl` sets, and forgets all listeners.
    pub(crate) fn set_snooping(&mut self, settings: &str) {
        let database = format!("--db=unix:{}", self.folder.path().join("db.sock").display());
        let timeout = format!("--timeout={}", PATIENCE.as_secs());
        let arguments = [&[&*database, &*timeout][..], &settings.split(' ').collect::<Vec<_>>()].concat();
        self.programs.run("ovs-vsctl", self.folder.path(), &arguments, "").expect("settings of a bridge");
        self.control.call("mdb/flush", &[]).expect("listeners can be forgotten");
    }

    /// The listeners of groups, and the ports of routers.
    pub(crate) fn listeners(&mut self) -> String {
        self.control.call("mdb/show", &["br0".to_owned()]).expect("the bridge snoops")
    }

    fn ofctl(&self, command: &[&str], arguments: &[&str], input: &str) -> Result<String, String> {
        self.ofctl_as("-OOpenFlow13", command, arguments, input)
    }

    fn ofctl_as(
        &self,
        version: &str,
        command: &[&str],
        arguments: &[&str],
        input: &str,
    ) -> Result<String, String> {
        let bridge = format!("unix:{}", self.socket().display());
        let all = [&[version], command, &[&bridge], arguments].concat();
        self.programs.run("ovs-ofctl", self.folder.path(), &all, input)
    }

    /// Lets a port receive frames; returns the frames sent because of them.
    ///
    /// # Panics
    /// Where there are more than [`LOT_MAX`], or one is shorter than an Ethernet header: such cannot be given.
    pub(crate) fn forward<F: AsRef<[u8]>>(&mut self, in_port: usize, frames: &[F]) -> Sent {
        self.try_forward(in_port, frames).expect("Open vSwitch goes on")
    }

    /// Does that; fails where Open vSwitch has ended.
    pub(crate) fn try_forward<F: AsRef<[u8]>>(
        &mut self,
        in_port: usize,
        frames: &[F],
    ) -> Result<Sent, String> {
        assert!(frames.len() <= LOT_MAX);
        let marker = self.marker();
        let all = frames.iter().map(AsRef::as_ref).chain([&marker[..]]);
        let hex = all.map(|frame| frame.iter().map(|byte| format!("{byte:02x}")).collect());
        let parameters: Vec<String> = [format!("p{in_port}")].into_iter().chain(hex).collect();
        self.control.call("netdev-dummy/receive", &parameters)?;
        let mut sent = Sent::default();
        for (sent, capture) in sent.iter_mut().zip(&mut self.captures) {
            *sent = capture.before(&marker, &mut self.control)?;
        }
        Ok(sent)
    }

    /// A frame like none before.
    fn marker(&mut self) -> Vec<u8> {
        self.markers += 1;
        let mut frame = [&[0xff; 12][..], &MARKER_TYPE.to_be_bytes(), &self.markers.to_be_bytes()].concat();
        frame.resize(60, 0);
        frame
    }

    /// Removes the rules with a cookie.
    ///
    /// # Errors
    /// What the switch says.
    pub(crate) fn delete_rules(&mut self, cookie: u64) -> Result<(), String> {
        self.ofctl(&["del-flows"], &[&format!("cookie={cookie}/-1")], "").map(|_| ())
    }

    /// The rules that packets have made.
    ///
    /// # Errors
    /// What the switch says where it does not answer.
    pub(crate) fn learned(&mut self) -> Result<Vec<String>, String> {
        let dump = self.ofctl(&["--no-stats", "dump-flows"], &[], "")?;
        let rules =
            read_changes(&dump, "dump", &ReadOptions::default()).map_err(|errors| errors.to_string())?;
        let learned = rules.into_iter().filter(|one| is_learned(one.rule.priority.0));
        let text = |one: FlowMod| {
            let timeouts_s = (one.idle_timeout_s, one.hard_timeout_s);
            // OpenFlow 1.3 has no mask for a tag that is not there.
            learned_text(&one.rule, timeouts_s, one.flags).replace("vlan_tci=0x0/0x1fff", "vlan_tci=0x0")
        };
        let mut all: Vec<String> = learned.map(text).collect();
        all.sort();
        Ok(all)
    }

    /// The rules of a table, as Flowlane writes them.
    pub(crate) fn rules(&mut self, table: u8) -> Vec<String> {
        let dump = self.ofctl(&["--no-stats", "dump-flows"], &[&format!("table={table}")], "");
        let read = read(&dump.expect("it answers"), "dump", Some(Format::Flows), &ReadOptions::default());
        let mut all: Vec<String> = read.expect("it is read").iter().map(Rule::to_string).collect();
        all.sort();
        all
    }

    /// The rules' counters by cookie, all packets counted.
    ///
    /// # Errors
    /// What the switch says where it does not answer.
    pub(crate) fn counters(&mut self) -> Result<Vec<(u64, Counters)>, String> {
        self.try_forget_megaflows()?;
        let dump = self.ofctl(&["dump-flows"], &[], "")?;
        let number = |line: &str, name: &str| {
            let rest = line.split_once(name)?.1;
            let digits = rest.split([',', ' ']).next()?;
            let hex = digits.strip_prefix("0x");
            hex.map_or_else(|| digits.parse(), |hex| u64::from_str_radix(hex, 16)).ok()
        };
        let rules = dump.lines().filter_map(|line| {
            let counters =
                Counters { packets: number(line, "n_packets=")?, bytes: number(line, "n_bytes=")? };
            Some((number(line, "cookie=")?, counters))
        });
        Ok(rules.filter(|(cookie, _)| *cookie != MARKER_COOKIE).collect())
    }
}
