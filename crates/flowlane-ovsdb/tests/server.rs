//! Beside a real server, where there is one: `ovsdb-server` with the schema of Open vSwitch, changed by `ovs-vsctl`.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use flowlane::testing::OvsPrograms;
use flowlane_ovsdb::{Datum, Event, Replica, Session, Wanted};
use serde_json::{Value, json};

const WANTED: [Wanted; 3] = [
    Wanted { table: "Open_vSwitch", columns: &["bridges", "next_cfg", "cur_cfg", "not_there"] },
    Wanted { table: "Bridge", columns: &["name", "ports", "other_config", "datapath_id"] },
    Wanted { table: "Port", columns: &["name", "interfaces", "tag", "trunks"] },
];
const LOCK: &str = "ovs_vswitchd";

/// A server with an empty database, killed when dropped.
struct Server {
    programs: OvsPrograms,
    folder: tempfile::TempDir,
    child: Child,
}

impl Server {
    fn start() -> Option<Self> {
        let programs = OvsPrograms::find()?;
        let folder = tempfile::tempdir().unwrap();
        let mut create = programs.command("ovsdb-tool", folder.path());
        let create = create.arg("create").args([folder.path().join("conf.db"), programs.schema()]).status();
        assert!(create.unwrap().success());
        let child = Self::run(&programs, folder.path());
        let server = Self { programs, folder, child };
        server.vsctl("init");
        Some(server)
    }

    fn run(programs: &OvsPrograms, folder: &Path) -> Child {
        let mut server = programs.command("ovsdb-server", folder);
        server.arg(folder.join("conf.db")).arg(format!("--remote=punix:{}", Self::socket(folder).display()));
        let child = server.args(["--unixctl=none", "-vconsole:off"]).spawn().unwrap();
        wait_until("the server listens", || UnixStream::connect(Self::socket(folder)).is_ok());
        child
    }

    fn socket(folder: &Path) -> PathBuf {
        folder.join("db.sock")
    }

    fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::fs::remove_file(Self::socket(self.folder.path())).unwrap();
        self.child = Self::run(&self.programs, self.folder.path());
    }

    fn vsctl(&self, arguments: &str) {
        let mut vsctl = self.programs.command("ovs-vsctl", self.folder.path());
        vsctl.arg(format!("--db=unix:{}", Self::socket(self.folder.path()).display())).arg("--no-wait");
        assert!(vsctl.args(arguments.split(' ')).status().unwrap().success(), "ovs-vsctl {arguments}");
    }

    fn connect(&self, replica: Replica) -> Client {
        let stream = UnixStream::connect(Self::socket(self.folder.path())).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Client {
            stream,
            session: Session::new("Open_vSwitch", &WANTED, Some(LOCK), replica),
            events: Vec::new(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Client {
    stream: UnixStream,
    session: Session,
    events: Vec<Event>,
}

impl Client {
    /// Sends and receives once.
    fn step(&mut self) {
        self.stream.write_all(&self.session.take_outgoing()).unwrap();
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => panic!("the server has gone"),
            Ok(len) => self.events.extend(self.session.receive(&bytes[..len]).unwrap()),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}")
            }
        }
        self.stream.write_all(&self.session.take_outgoing()).unwrap();
    }

    fn step_until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{what}: {:?}", self.events);
            self.step();
        }
    }

    fn transact(&mut self, operations: Vec<Value>) -> Result<Vec<Value>, Value> {
        let id = self.session.transact(operations);
        let mut answer = None;
        self.step_until("an answer", |client| {
            answer = client.events.iter().find_map(|event| match event {
                Event::Answered(of, answer) if *of == id => Some(answer.clone()),
                _ => None,
            });
            answer.is_some()
        });
        answer.unwrap()
    }

    fn bridges(&self) -> Vec<String> {
        let rows = self.session.replica().rows("Bridge");
        let mut names: Vec<String> =
            rows.filter_map(|(_, row)| row.get("name").text().map(str::to_owned)).collect();
        names.sort();
        names
    }
}

#[test]
fn the_copy_follows_the_server_over_its_restart() {
    let Some(mut server) = Server::start() else { return };
    let mut client = server.connect(Replica::default());
    client.step_until("the copy", |client| client.session.is_synchronised() && client.session.has_lock());
    assert_eq!(client.bridges(), [""; 0]);
    server.vsctl("add-br br0 -- set Bridge br0 other_config:hwaddr=02:00:00:00:00:01");
    client.step_until("the bridge", |client| client.bridges() == ["br0"]);
    server.vsctl("add-port br0 p1 trunks=1,2,3");
    let trunks = |client: &Client| {
        let mut ports = client.session.replica().rows("Port");
        ports.find(|(_, row)| row.get("name").text() == Some("p1")).map(|(_, row)| row.get("trunks").clone())
    };
    client.step_until("the port", |client| trunks(client) == Some(Datum::set([1, 2, 3])));
    server.vsctl("remove Port p1 trunks 2 -- add Port p1 trunks 4");
    client.step_until("other trunks", |client| trunks(client) == Some(Datum::set([1, 3, 4])));
    // A port's rows go with it: the bridge's set of ports has one fewer.
    server.vsctl("set Bridge br0 other_config:a=b other_config:hwaddr=02:00:00:00:00:02 -- del-port br0 p1");
    client.step_until("no port", |client| trunks(client).is_none());
    let (_, bridge) = client.session.replica().rows("Bridge").next().unwrap();
    let config = bridge.get("other_config");
    assert_eq!((config.get("a"), config.get("hwaddr")), (Some("b"), Some("02:00:00:00:00:02")));
    assert_eq!(bridge.get("ports").uuids().count(), 1);
    // The next session begins with what has changed since.
    let replica = client.session.into_replica();
    server.restart();
    server.vsctl("add-br br1");
    let mut client = server.connect(replica);
    client.step_until("the bridges", |client| client.session.is_synchronised());
    assert_eq!(client.bridges(), ["br0", "br1"]);
}

#[test]
fn only_the_owner_of_the_lock_changes_the_database() {
    let Some(server) = Server::start() else { return };
    let mut first = server.connect(Replica::default());
    first.step_until("the lock", |client| client.session.has_lock() && client.session.is_synchronised());
    let mut second = server.connect(Replica::default());
    second.step_until("no lock", |client| client.events.contains(&Event::LockLost));
    let set = |to: u32| {
        vec![json!({ "op": "update", "table": "Open_vSwitch", "where": [], "row": { "cur_cfg": to } })]
    };
    assert_eq!(first.transact(set(7)).unwrap()[0], json!({ "count": 1 }));
    let refused = second.transact(set(8)).unwrap_err();
    assert_eq!(refused["error"], "not owner");
    let cur_cfg = |client: &Client| {
        let (_, row) = client.session.replica().rows("Open_vSwitch").next()?;
        row.get("cur_cfg").integer()
    };
    second.step_until("the first one's change", |client| cur_cfg(client) == Some(7));
    drop(first);
    second.step_until("the lock", |client| client.session.has_lock());
    assert!(second.transact(set(9)).is_ok());
    second.session.probe();
    second.step_until("its own change", |client| cur_cfg(client) == Some(9));
}
