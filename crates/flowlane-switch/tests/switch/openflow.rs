//! Controllers that drive a running switch by OpenFlow, in every version.

mod authority;
mod fail_modes;
mod flow_mods;
mod hostile;
mod lists;
mod meters;
mod monitors;
mod options;
mod packet_ins;
mod pauses;
mod ports;
mod removals;
mod snoop;
mod tables;
mod tls;
mod types;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use flowlane::classify::TupleSearch;
use flowlane::packet::Field;
use flowlane::rule::action::PortNo;
use flowlane::rule::{Action, Format, Match, ReadOptions, Rule, read, read_changes};
use flowlane_openflow::group::{Bucket, GROUP_ALL, GroupCommand, GroupKind, GroupMod};
use flowlane_openflow::message::{
    BundleAdd, BundleControl, BundleControlKind, ErrorKind, FlowModMessage, Hello, Message, MultipartRequest,
    PacketOut, Reply, Request, Role, RoleRequest, RoleStatus, SwitchConfig, role_reason,
};
use flowlane_openflow::stats::{FlowFormat, FlowStatsRequest};
use flowlane_openflow::{Codec, Decoded, ErrorCode, Version, split};
use flowlane_switch::control::Control;
use flowlane_switch::datapath::{
    CacheConfig, Clock, Egress, Lookup, PacketIns, Pipeline, PortSlot, Switch, Until, Worker,
};
use flowlane_switch::mgmt::openflow::{Address, Agent, Service};
use flowlane_switch::mgmt::rpc::ControlServer;
use flowlane_switch::mgmt::setup::{Reload, Setup};
use flowlane_switch::packet::{Frame, Frames};
use flowlane_switch::port::{Port, PortError, Received};
use flowlane_switch::ruleset::Miss;
use flowlane_switch::state::fdb::Fdb;

/// Frames that wait to come in, or that have gone out.
type Queue = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A port that a test holds both ends of.
struct Wire {
    arriving: Queue,
    left: Queue,
}

impl Port for Wire {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        let mut arriving = self.arriving.lock().unwrap();
        while !arriving.is_empty() && !frames.is_full() {
            let bytes = arriving.pop_front().unwrap();
            frames.next_frame().unwrap().fill(&bytes);
        }
        Ok(Received::Idle)
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        self.left.lock().unwrap().push_back(frame.bytes().to_vec());
        Ok(true)
    }
}

/// The stream of a controller.
trait Transport: Read + Write {}

impl<T: Read + Write> Transport for T {}

/// A connection of a controller.
struct Controller {
    stream: Box<dyn Transport>,
    codec: Codec,
    input: Vec<u8>,
    xid: u32,
    /// Messages of removed rules, changed ports and changed roles, which may come between a request and its answer.
    told: VecDeque<Message>,
}

impl Controller {
    fn connect(path: &Path, version: Version) -> Self {
        Self::of(UnixStream::connect(path).unwrap(), version)
    }

    fn of(stream: UnixStream, version: Version) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self::over(Box::new(stream), version)
    }

    fn over(stream: Box<dyn Transport>, version: Version) -> Self {
        let mut own =
            Self { stream, codec: Codec::new(version), input: Vec::new(), xid: 100, told: VecDeque::new() };
        own.codec.flow_mod_table_id = true;
        own.send(&Message::Hello(Hello { versions: version.bit() }));
        assert!(matches!(own.next(), Message::Hello(_)));
        if version == Version::OpenFlow10 {
            own.send(&Message::FlowModTableId(true));
        }
        own
    }

    fn send(&mut self, message: &Message) {
        self.xid += 1;
        let bytes = self.codec.encode(self.xid, message).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    /// Returns the next message but those that the switch sends unasked, packets aside.
    fn next(&mut self) -> Message {
        self.next_with_xid().0
    }

    fn next_with_xid(&mut self) -> (Message, u32) {
        loop {
            match self.read() {
                (told, _) if is_told(&told) => self.told.push_back(told),
                other => return other,
            }
        }
    }

    /// Returns the next message that the switch sends unasked, packets aside.
    fn told(&mut self) -> Message {
        match self.told.pop_front().unwrap_or_else(|| self.read().0) {
            told if is_told(&told) => told,
            other => panic!("{other:?}"),
        }
    }

    /// Asks for packets, and so for messages of changes.
    fn subscribe(&mut self) {
        self.send(&Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 128 }));
        assert_eq!(self.ask(&Message::BarrierRequest), Message::BarrierReply);
    }

    fn read(&mut self) -> (Message, u32) {
        loop {
            if let Some((message, _)) = split(&self.input).unwrap() {
                let (len, decoded) = (message.len(), self.codec.decode(message));
                self.input.drain(..len);
                let Decoded { xid, message } = decoded.unwrap_or_else(|error| panic!("{error}"));
                match message {
                    Message::EchoRequest(data) => self.send(&Message::EchoReply(data)),
                    message => return (message, xid),
                }
                continue;
            }
            let mut chunk = [0; 4096];
            let read = self.stream.read(&mut chunk).unwrap();
            assert!(read > 0, "the switch closes the connection");
            self.input.extend(&chunk[..read]);
        }
    }

    fn ask(&mut self, message: &Message) -> Message {
        self.send(message);
        self.next()
    }

    /// Makes a change, and waits until it is in force. Returns the error if it is refused.
    fn change(&mut self, line: &str) -> Option<ErrorKind> {
        self.send_change(line);
        self.barrier()
    }

    fn send_change(&mut self, line: &str) {
        let options = ReadOptions::default();
        for flow_mod in read_changes(line, "change", &options).unwrap_or_else(|errors| panic!("{errors}")) {
            let format = FlowFormat::Nxm;
            self.send(&Message::FlowMod(FlowModMessage { format, flow_mod, buffer_id: None }));
        }
    }

    /// Waits until the requests before are done. Returns the error of the last, if there is one.
    fn barrier(&mut self) -> Option<ErrorKind> {
        match self.ask(&Message::BarrierRequest) {
            Message::BarrierReply => None,
            Message::Error(error) => {
                assert_eq!(self.next(), Message::BarrierReply);
                Some(error.kind)
            }
            other => panic!("{other:?}"),
        }
    }

    fn flows(&mut self) -> Vec<(u8, u64, u64)> {
        let body = Request::Flow(FlowStatsRequest::all(FlowFormat::Nxm));
        match self.ask(&Message::MultipartRequest(MultipartRequest { more: false, body })) {
            Message::MultipartReply(reply) => match reply.body {
                Reply::Flow { flows, .. } => {
                    flows.iter().map(|flow| (flow.rule.table, flow.rule.cookie, flow.packets)).collect()
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
}

fn is_told(message: &Message) -> bool {
    matches!(message, Message::FlowRemoved(_) | Message::PortStatus(_) | Message::RoleStatus(_))
}

fn frame(port: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packet = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9).udp(7, port);
    packet.write(&mut bytes, b"data").unwrap();
    bytes
}

fn wait_for(queue: &Queue) -> Vec<u8> {
    let begun = Instant::now();
    loop {
        if let Some(bytes) = queue.lock().unwrap().pop_front() {
            return bytes;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "no frame leaves");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A bundle whose rule is refused brings no group either; one that is accepted brings both.
fn bundles_are_atomic(controller: &mut Controller) {
    let group = |command| {
        let actions = vec![Action::Output(PortNo(2))];
        let bucket = Bucket { id: 0, weight: 0, watch_port: None, watch_group: None, actions };
        let buckets = if command == GroupCommand::Add { vec![bucket] } else { Vec::new() };
        Message::GroupMod(GroupMod { command, kind: GroupKind::All, group: 5, buckets, selection: None })
    };
    let rule = |line: &str| {
        let mut mods = read_changes(line, "bundle", &ReadOptions::default()).unwrap();
        let (format, buffer_id) = (FlowFormat::Nxm, None);
        Message::FlowMod(FlowModMessage { format, flow_mod: mods.remove(0), buffer_id })
    };
    let groups = |controller: &mut Controller| {
        let body = Request::GroupDescription(GROUP_ALL);
        let request = Message::MultipartRequest(MultipartRequest { more: false, body });
        let Message::MultipartReply(reply) = controller.ask(&request) else { panic!("a reply") };
        let Reply::GroupDescription(groups) = reply.body else { panic!("groups") };
        groups.len()
    };
    let control =
        |kind| Message::BundleControl(BundleControl { bundle: 9, kind, atomic: true, ordered: true });
    for (line, there) in [("add table=99 actions=group:5", 0), ("add table=7 actions=group:5", 1)] {
        assert!(matches!(
            controller.ask(&control(BundleControlKind::OpenRequest)),
            Message::BundleControl(_)
        ));
        for message in [group(GroupCommand::Add), rule(line)] {
            let (atomic, ordered, message) = (true, true, Box::new(message));
            controller.send(&Message::BundleAdd(BundleAdd { bundle: 9, atomic, ordered, message }));
        }
        match controller.ask(&control(BundleControlKind::CommitRequest)) {
            Message::BundleControl(_) => assert_eq!(there, 1),
            // The rule's own request has failed, and because of it the commit.
            Message::Error(error) => {
                assert_eq!((there, error.kind), (0, ErrorCode::RequestBadTableId.into()));
                let Message::Error(error) = controller.next() else { panic!("the commit fails") };
                assert_eq!(error.kind, ErrorCode::BundleMsgFailed.into());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(groups(controller), there);
    }
    // With the group goes the rule.
    assert_eq!(controller.flows().len(), 4);
    controller.send(&group(GroupCommand::Delete));
    assert_eq!((groups(controller), controller.flows().len()), (0, 3));
}

/// A primary controller makes the former a secondary one, which changes nothing, also not by a bundle that it began before.
fn the_newest_primary_controller_alone_changes_the_switch(path: &Path, version: Version) {
    let role = |role, generation| {
        Message::RoleRequest(RoleRequest { role, generation_id: Some(generation), short_id: None })
    };
    let asked = |controller: &mut Controller, request: &Message| match controller.ask(request) {
        Message::RoleReply(reply) => Ok(reply.role),
        Message::Error(error) => Err(error.kind),
        other => panic!("{other:?}"),
    };
    let mut controllers = [Controller::connect(path, version), Controller::connect(path, version)];
    let [first, second] = &mut controllers;
    assert_eq!(asked(first, &role(Role::Primary, 5)), Ok(Role::Primary), "{version:?}");
    assert_eq!(first.change("add table=6,udp actions=drop"), None);
    let bundle =
        |kind| Message::BundleControl(BundleControl { bundle: 3, kind, atomic: true, ordered: true });
    let Message::BundleControl(_) = first.ask(&bundle(BundleControlKind::OpenRequest)) else {
        panic!("opened")
    };
    assert_eq!(asked(second, &role(Role::Primary, 4)), Err(ErrorCode::RoleStale.into()));
    assert_eq!(asked(second, &role(Role::Primary, 6)), Ok(Role::Primary));
    // The switch informs the former one, which has asked for no messages.
    let (role_now, reason, generation_id) = (Role::Secondary, role_reason::PRIMARY_REQUEST, 6);
    let status = RoleStatus { role: role_now, reason, generation_id };
    assert_eq!(first.told(), Message::RoleStatus(status), "{version:?}");
    let refused = ErrorKind::Known(ErrorCode::RequestIsSecondary);
    let Message::Error(error) = first.ask(&bundle(BundleControlKind::CommitRequest)) else {
        panic!("refused")
    };
    assert_eq!(error.kind, refused);
    assert_eq!(first.change("add table=6,tcp actions=drop"), Some(refused));
    // It may read.
    assert_eq!(first.flows().len(), 1);
    assert_eq!(second.change("delete"), None);
    assert_eq!(first.flows(), []);
}

/// Rules, counters, packets to and from controllers, and errors, as a controller of this version meets them.
fn drive(path: &Path, version: Version, arriving: &Queue, left: &Queue) {
    let mut controller = Controller::connect(path, version);
    let Message::FeaturesReply(features) = controller.ask(&Message::FeaturesRequest) else {
        panic!("features")
    };
    assert_eq!((features.datapath_id, features.tables), (0x2320, 8), "{version:?}");
    let call = "add table=0,priority=9,cookie=0x17,udp,tp_dst=53 actions=load:2->reg0[],resubmit(,3)";
    assert_eq!(controller.change(call), None, "{version:?}");
    assert_eq!(controller.change("add table=3,cookie=5,reg0=2 actions=output:2"), None);
    arriving.lock().unwrap().push_back(frame(53));
    assert_eq!(wait_for(left), frame(53));
    let mut flows = controller.flows();
    flows.sort_unstable();
    assert_eq!(flows, [(0, 0x17, 1), (3, 5, 1)], "{version:?}");
    // A packet of the controller's, through the tables and directly.
    let mut metadata = Match::any();
    metadata.set(Field::InPort, 1);
    // OFPP_TABLE lets the tables decide.
    for actions in [vec![Action::Output(PortNo(0xfff9))], vec![Action::Output(PortNo(2))]] {
        let out = PacketOut { buffer_id: None, metadata: metadata.clone(), actions, data: frame(53) };
        controller.send(&Message::PacketOut(out));
        assert_eq!(wait_for(left), frame(53), "{version:?}");
    }
    // A packet for the controller.
    assert_eq!(controller.change("add table=3,cookie=6,priority=65535,reg0=2 actions=controller"), None);
    controller.send(&Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 0xffff }));
    assert_eq!(controller.ask(&Message::BarrierRequest), Message::BarrierReply);
    arriving.lock().unwrap().push_back(frame(53));
    let Message::PacketIn(packet) = controller.next() else { panic!("a packet-in") };
    assert_eq!((packet.data, packet.reason), (frame(53), 1));
    if version != Version::OpenFlow10 {
        assert_eq!((packet.table, packet.cookie, packet.metadata.get(Field::Reg0).0), (3, 6, 2));
    }
    // Refusals, which change nothing.
    let refused = |code| Some(ErrorKind::Known(code));
    // More metadata than NSH has room for; OpenFlow 1.0 does not have the action.
    let is_10 = version == Version::OpenFlow10;
    let not_executed = if is_10 { ErrorCode::ActionBadVendorType } else { ErrorCode::ActionBadType };
    let option = format!("tlv(1,1,0x{})", "00".repeat(100));
    let refused_action = format!("udp actions=encap(nsh(md_type=2,{option},{option},{option}))");
    let actions = read(&refused_action, "rules", Some(Format::Flows), &ReadOptions::default())
        .unwrap()
        .remove(0)
        .actions;
    let out = PacketOut { buffer_id: None, metadata, actions, data: frame(53) };
    let Message::Error(error) = controller.ask(&Message::PacketOut(out)) else { panic!("it is refused") };
    assert_eq!(Some(error.kind), refused(not_executed), "{version:?}");
    if version != Version::OpenFlow10 {
        bundles_are_atomic(&mut controller);
    }
    assert_eq!(controller.change("add udp actions=group:7"), refused(ErrorCode::ActionBadOutGroup));
    assert_eq!(controller.change("add table=99,udp actions=drop"), refused(ErrorCode::RequestBadTableId));
    assert_eq!(controller.change(&format!("add {refused_action}")), refused(not_executed));
    assert_eq!(controller.flows().len(), 3);
    assert_eq!(controller.change("delete"), None);
    assert_eq!(controller.flows(), []);
}

/// The other ends of a switch's ports.
#[derive(Default)]
struct Wires {
    /// Frames for port 1, for either worker.
    arriving: [Queue; 2],
    /// Frames that left by ports 1, 2 and 3.
    left: [Queue; 3],
    /// The switch that they belong to, when it runs.
    served: OnceLock<Arc<ControlServer>>,
}

impl Wires {
    /// Lets a frame arrive at a worker.
    fn arrive(&self, worker: usize, frame: Vec<u8>) {
        self.arriving[worker].lock().unwrap().push_back(frame);
    }

    /// Waits until both workers have received all frames.
    fn wait(&self) {
        let begun = Instant::now();
        while self.arriving.iter().any(|queue| !queue.lock().unwrap().is_empty()) {
            assert!(begun.elapsed().as_secs() < 10);
            std::thread::yield_now();
        }
    }

    fn egress(&self, worker: usize, macs: Fdb) -> Egress {
        let mut egress = Egress::new(macs, 1);
        for (place, left) in self.left.iter().enumerate() {
            let arriving = if place == 0 { self.arriving[worker].clone() } else { Queue::default() };
            let wire = Box::new(Wire { arriving, left: left.clone() });
            let number = place as u32 + 1;
            egress.ports.add(PortSlot::new(PortNo(number), &format!("p{number}"), "", wire));
        }
        egress
    }
}

/// Runs a switch with three ports, two workers and eight tables, the last with packet-ins for misses, and controllers that drive
/// it: they get the path of its socket.
fn with_switch(drive: impl FnOnce(&Path, &Wires)) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("switch.toml");
    std::fs::write(&config, "[[table]]\nnumber = 0\n[[port]]\nnumber = 1\nopen = \"null\"\n").unwrap();
    let reload = Reload::of(&Setup::read(&config).unwrap());
    let mut pipeline = Pipeline::new();
    for table in 0..8 {
        let miss = if table == 7 { Miss::Controller } else { Miss::Drop };
        pipeline.add_table(table, "", Box::new(TupleSearch::new(1000, 7)), miss);
    }
    let (wires, macs) = (Wires::default(), Fdb::new(100, 300, 1));
    let packet_ins = Arc::new(PacketIns::default());
    let others = pipeline.fork(1);
    let pipelines = std::iter::once(pipeline).chain(others).enumerate();
    let workers = pipelines.map(|(place, pipeline)| {
        let mut egress = wires.egress(place, macs.share());
        egress.packet_ins = Some(packet_ins.clone());
        Worker::new(Lookup::new(pipeline, CacheConfig::default()), egress, 64, Clock::Wall)
    });
    let mut switch = Switch::new(workers.collect());
    let control = Control::attach_all(switch.workers_mut()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(ControlServer::new(control, reload, stop.clone()));
    let path = folder.path().join("br0.mgmt");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            // Controllers that connect before are to see a switch that runs.
            std::thread::sleep(Duration::from_millis(50));
            switch.run(Until::default(), &stop, |_| {})
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                served.tick();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        // Ends the workers also where an assertion fails.
        let driven = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let service = Service::new(served.clone(), "br0", 0x2320, packet_ins);
            let _agent = Agent::open(&[Address::ListenUnix(path.clone())], None, service).unwrap();
            assert!(wires.served.set(served.clone()).is_ok());
            drive(&path, &wires);
        }));
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap().unwrap();
        driven.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(!path.exists(), "the socket's file goes with the agent");
}

#[test]
fn controllers_of_all_versions_drive_a_switch() {
    with_switch(|path, wires| {
        let (arriving, left) = (&wires.arriving[0], &wires.left[1]);
        Version::ALL.into_iter().for_each(|version| drive(path, version, arriving, left));
    });
}

#[test]
fn a_primary_controller_demotes_the_former() {
    for version in [Version::OpenFlow13, Version::OpenFlow14, Version::OpenFlow15] {
        with_switch(|path, _| the_newest_primary_controller_alone_changes_the_switch(path, version));
    }
}

/// Whatever version a controller's hello has, and whatever else it offers.
#[test]
fn a_switch_speaks_no_version_that_it_may_not() {
    with_switch(|path, wires| {
        let old = path.with_file_name("old.mgmt");
        let service = Service::new(wires.served.get().unwrap().clone(), "old", 7, Arc::default());
        let service = service.with_versions(vec![Version::OpenFlow10, Version::OpenFlow13]);
        let _agent = Agent::open(&[Address::ListenUnix(old.clone())], None, service).unwrap();
        let answer_to = |written: Version, offered: &[Version]| {
            let mut stream = UnixStream::connect(&old).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let versions = offered.iter().fold(0, |bits, version| bits | version.bit());
            let mut bytes = Codec::new(written).encode(1, &Message::Hello(Hello { versions })).unwrap();
            let echo = offered.iter().copied().min().map(Codec::new).unwrap();
            bytes.extend(echo.encode(2, &Message::EchoRequest(vec![5])).unwrap());
            stream.write_all(&bytes).unwrap();
            let mut hello = [0; 16];
            stream.read_exact(&mut hello).unwrap();
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).unwrap();
            (hello[0], answer[0], answer[1])
        };
        let (echo_reply, error) = (3, 1);
        assert_eq!(answer_to(Version::OpenFlow15, &[Version::OpenFlow13]), (4, 4, echo_reply));
        assert_eq!(answer_to(Version::OpenFlow10, &[Version::OpenFlow10]), (4, 1, echo_reply));
        assert_eq!(answer_to(Version::OpenFlow15, &[Version::OpenFlow14, Version::OpenFlow15]).2, error);
    });
}
