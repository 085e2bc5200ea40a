//! What must hold for any bytes whatever: checked by the fuzz targets and, on recorded and mutated input, by
//! plain tests. Each check panics where its promise is broken.

mod bfd;
mod connections;
mod lacp;
mod metrics;
mod multicast;
mod rstp;

pub use bfd::bfd;
pub use connections::connections;
pub use lacp::lacp;
pub use metrics::metrics;
pub use multicast::multicast;
pub use rstp::rstp;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowlane::classify::TupleSearch;
use flowlane::generate::{Random, build_frame, draw_key};
use flowlane::isa::Variant;
use flowlane::packet::fields::Field;
use flowlane::packet::{FlowKey, Headers, Network, Parser, Transport, parse, tunnel};
use flowlane::rule::action::PortNo;
use flowlane::rule::{
    Action, Format, Match, Priority, ReadOptions, Rule, classbench as filters, flow_syntax as flows,
};
use flowlane_capture::{Batch, CaptureError, CaptureReader, FRAME_MAX};
use flowlane_openflow::group::GROUP_ALL;
use flowlane_openflow::message::{Message, MultipartRequest, Request};
use flowlane_openflow::stats::{FlowFormat, FlowStatsRequest};
use flowlane_openflow::{Codec, Version, split};

use crate::datapath::Pipeline;
use crate::datapath::{
    CacheConfig, Clock, Egress, Lookup, MalformedPolicy, PacketIns, PortSlot, Until, Worker,
};
use crate::mgmt::openflow::{self as agent, Service};
use crate::mgmt::rpc::ControlServer;
use crate::mgmt::setup::{Reload, Setup, SetupError};
use crate::packet::edit::checksum;
use crate::port::{MemoryHandle, MemoryPort};
use crate::ruleset::Miss;
use crate::stage::{AnyStage, AssetConfig, Assets, Filter, FilterConfig, Nat, NatConfig, StageTable};
use crate::state::fdb::Fdb;
use crate::state::meter::{Meter, Rate};

/// The parser: every header that it says is there lies within the frame.
pub fn packet_parse(frame: &[u8]) {
    let mut key = FlowKey::zero();
    let headers = parse(frame, 1, &mut key);
    let within = |at: u16, len: usize| assert!(usize::from(at) + len <= frame.len(), "{headers:?}");
    match headers.network {
        Network::None => {}
        Network::Ipv4 => within(headers.l3, 20),
        Network::Ipv6 => within(headers.l3, 40),
        Network::Arp => within(headers.l3, 28),
        Network::Nsh => within(headers.l3, 8),
    }
    match headers.transport {
        Transport::None => {}
        Transport::Tcp => within(headers.l4, 20),
        Transport::Udp | Transport::UdpLite | Transport::Icmpv4 => within(headers.l4, 8),
        Transport::Sctp => within(headers.l4, 12),
        Transport::Icmpv6 | Transport::Gre => within(headers.l4, 4),
    }
    for w in 0..flowlane::packet::key::WORDS {
        assert!(key.present().contains(w) || key.word(w) == 0, "word {w} is set and not marked present");
    }
    if let Ok(Some(found)) = tunnel::read(frame, &headers) {
        assert!(found.inner_at <= frame.len());
    }
    let reused = {
        let mut key = FlowKey::zero();
        parse(&[0xff; 64], 9, &mut key);
        let again: Headers = parse(frame, 1, &mut key);
        assert_eq!(again, headers);
        key
    };
    assert!(reused == key, "a reused key differs from a new one");
    // Every variant of the parser, too, into a key that held something else.
    for parser in Variant::ALL.into_iter().filter_map(Parser::with_variant) {
        let mut other = FlowKey::zero();
        for w in 0..flowlane::packet::key::WORDS {
            other.set_word(w, 0xdead_beef);
        }
        let (keys, mut found) = (std::slice::from_mut(&mut other), [Headers::default()]);
        parser.parse_all(std::iter::once(frame), 1, keys, &mut found);
        assert!(found[0] == headers && other == key, "{} differs from scalar", parser.variant());
        assert_eq!(other.present(), key.present(), "{}", parser.variant());
    }
}

/// A configuration: it is read, or the error lies within it.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // The files of this machine are no part of the input.
    if text.contains("_file") {
        return;
    }
    match Setup::parse(text) {
        Ok(setup) => assert_eq!(setup.rules(), Setup::parse(text).map_or(0, |again| again.rules())),
        Err(SetupError::Config(error)) => {
            assert!(error.span.is_none_or(|span| text.get(span).is_some()), "{}", error.message);
        }
        Err(SetupError::Lines { errors, .. }) => assert!(!errors.errors().is_empty()),
    }
}

/// Lines to the control socket: each has an answer of JSON-RPC in one line, or none, and the switch goes on.
pub fn control(bytes: &[u8]) {
    let setup = Setup::parse(CONTROLLED).expect("it is correct");
    let reload = Reload::of(&setup);
    let (_switch, control) = setup.open_controlled(1).expect("its ports are not of the system");
    let server = ControlServer::new(control, reload, Arc::new(AtomicBool::new(false)));
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some(answer) = server.answer(line.to_vec()) else { continue };
        assert!(!answer.contains('\n'), "{answer}");
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("it is JSON");
        assert_eq!(answer["jsonrpc"], "2.0");
        assert!(answer.get("id").is_some());
        assert!(answer.get("result").is_some() != answer["error"]["code"].is_i64(), "{answer}");
    }
    let version = br#"{"jsonrpc":"2.0","method":"version","id":1}"#;
    assert!(server.answer(version.to_vec()).is_some_and(|answer| answer.contains("protocol")));
}

/// Messages of a controller, of the version that the first has: each is answered by whole messages of OpenFlow or not at all,
/// what the switch accepts it can list, and the worker goes on.
pub fn openflow(bytes: &[u8]) {
    let version = bytes.first().and_then(|number| Version::of_number(*number)).unwrap_or(Version::OpenFlow10);
    let setup = Setup::parse(CONTROLLED).expect("it is correct");
    let reload = Reload::of(&setup);
    let (mut switch, control) = setup.open_controlled(1).expect("its ports are not of the system");
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(ControlServer::new(control, reload, stop.clone()));
    let packet_ins = Arc::new(PacketIns::default());
    let service = Service::new(served.clone(), "fuzz", 1, packet_ins.clone());
    let egress = &mut switch.workers_mut()[0].egress;
    egress.packet_ins = Some(packet_ins);
    // A port that does not end keeps the worker going.
    let (port, frames) = MemoryPort::new();
    egress.ports.add(PortSlot::new(PortNo(2), "out", "", Box::new(port)));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| switch.workers_mut()[0].run(Until::default(), &stop, |_| {}));
        // The worker ends also where the agent panics.
        let stops = Stops(&stop);
        while served.show().is_err() {
            assert!(!running.is_finished(), "the worker begins");
        }
        let lists = [Request::Flow(all_flows(version)), Request::GroupDescription(GROUP_ALL)];
        let lists = lists.map(|body| Message::MultipartRequest(MultipartRequest { more: false, body }));
        let codec = Codec::new(version);
        // Version 1.0 has no groups.
        let lists: Vec<Vec<u8>> = lists.iter().filter_map(|list| codec.encode(7, list).ok()).collect();
        let mut requests = whole_messages(bytes).to_vec();
        lists.iter().for_each(|list| requests.extend(list));
        let mut answers = agent::answers(service, version, &requests);
        frames.push(&udp_frame());
        let listed = answers.split_off(answers.len() - lists.len());
        answers.iter().for_each(|answer| _ = read_all(&codec, answer));
        for list in listed {
            let all = read_all(&codec, &list);
            assert!(all.iter().all(|one| matches!(one, Message::MultipartReply(_))), "{all:?}");
        }
        // The frame passes between the two.
        assert!(served.show().is_ok() && served.show().is_ok(), "the worker goes on");
        drop(stops);
        running.join().expect("no request ends the worker").expect("no port fails");
    });
}

/// Reads the messages of an answer.
fn read_all(codec: &Codec, answer: &[u8]) -> Vec<Message> {
    let (mut rest, mut all) = (answer, Vec::new());
    while !rest.is_empty() {
        let (message, others) =
            split(rest).ok().flatten().unwrap_or_else(|| panic!("{answer:02x?} is cut off"));
        let read = codec.decode(message).unwrap_or_else(|error| panic!("{error}: {message:02x?}"));
        all.push(read.message);
        rest = others;
    }
    all
}

/// A frame that rules can match.
fn udp_frame() -> Vec<u8> {
    let mut udp = Match::any();
    udp.set(Field::EthType, 0x0800);
    udp.set(Field::NwProto, 17);
    let mut frame = Vec::new();
    build_frame(&draw_key(&udp, &mut Random::new(1)), 60, &mut frame);
    frame
}

/// Sets a flag when it is dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The messages that are whole at the beginning of these bytes.
fn whole_messages(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let Ok(Some((_, others))) = split(rest) {
        rest = others;
    }
    &bytes[..bytes.len() - rest.len()]
}

fn all_flows(version: Version) -> FlowStatsRequest {
    let format = if version == Version::OpenFlow10 { FlowFormat::Nxm } else { FlowFormat::Standard };
    FlowStatsRequest::all(format)
}

/// The switch that lines to the control socket and controllers change.
const CONTROLLED: &str = r#"
[cache]
exact_entries = 64
signature_entries = 64
megaflows_max = 64
[macs]
entries_max = 64
[[port]]
number = 1
name = "in"
open = "null"
[[table]]
number = 0
rules = ["priority=1,udp,actions=output:1", "tcp,tp_dst=22,cookie=0x16,actions=drop"]
[[table]]
number = 1
"#;

/// The capture reader: it ends, and gives no frame that is too long.
pub fn capture(bytes: &[u8]) {
    let Ok(mut reader) = CaptureReader::new(bytes) else { return };
    let (mut batches, mut batch) = (CaptureReader::new(bytes).expect("it is the same"), Batch::default());
    let mut records = 0;
    while let Ok(Some(packet)) = reader.next() {
        assert!(packet.bytes.len() <= packet.len as usize && packet.bytes.len() <= FRAME_MAX + 14);
        if batch.is_empty() || (batch.first() + batch.len() as u64) == records {
            batches.next_batch(&mut batch).expect("there is another");
        }
        assert!(batch.packet((records - batch.first()) as usize) == packet);
        records += 1;
        // A record takes 12 bytes at least.
        assert!(records <= bytes.len() as u64 / 12);
    }
}

/// The options of pcapng blocks: whatever they are, both frames are read, and at most the blocks with options are unreadable.
pub fn pcapng_options(bytes: &[u8]) {
    let options = &bytes[..bytes.len().min(1 << 12)];
    let frame: [u8; 60] = std::array::from_fn(|i| i as u8);
    let block = |kind: u32, fixed: &[u32], data: &[u8], options: &[u8]| {
        let body = fixed.len() * 4 + data.len() + options.len().next_multiple_of(4);
        let len = (12 + body) as u32;
        let mut block: Vec<u8> =
            [&[kind, len][..], fixed].concat().into_iter().flat_map(u32::to_le_bytes).collect();
        block.extend([data, options].concat());
        block.resize(8 + body, 0);
        block.extend(len.to_le_bytes());
        block
    };
    let packet = |interface: u32, options: &[u8]| block(6, &[interface, 0, 1000, 60, 60], &frame, options);
    let file = [
        block(0x0a0d_0d0a, &[0x1a2b_3c4d, 1, u32::MAX, u32::MAX], &[], options),
        block(1, &[1, 0], &[], options),
        packet(0, &[]),
        block(1, &[1, 0], &[], &[]),
        packet(1, options),
    ]
    .concat();
    let mut reader = CaptureReader::new(&file[..]).expect("the section is sound");
    for number in 0..2 {
        let packet = reader.next().expect("the blocks are sound").expect("there are two");
        assert_eq!(packet.bytes, frame);
        assert!(number == 0 || packet.time_ns == 1_000_000, "an interface without options");
    }
    match reader.next() {
        Ok(None) => {}
        Err(CaptureError::Skipped { records: 1, end: None, .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// The readers of flows and of changes: a printed rule reads as the same rule.
pub fn flow_syntax(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let options = ReadOptions::default();
    let changes = flows::read_changes(text, "fuzz", &options).unwrap_or_default();
    for change in changes.into_iter().filter(|change| change.command == flows::Command::Add) {
        assert_eq!(change.table, Some(change.rule.table), "a rule is added to one table");
    }
    let Ok(rules) = flows::read(text, "fuzz", &options) else { return };
    for rule in rules {
        let printed = flows::print_rule(&rule);
        match flows::read(&printed, "printed", &options) {
            Ok(back) => assert_eq!(back, [rule], "{printed}"),
            Err(error) => panic!("{printed}: {error}"),
        }
    }
}

/// The readers of filters and of header traces, likewise.
pub fn classbench(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let options = ReadOptions { flags: flowlane::rule::Flags::Match, ..ReadOptions::default() };
    if let Ok(rules) = flowlane::rule::read(text, "fuzz", Some(Format::Classbench), &options) {
        // A mask of the protocol may have holes, which its printer writes and reads.
        if let Ok(printed) = filters::print(&rules) {
            let back = filters::read(&printed, "printed", &options).expect("printed filters are read");
            let matches = |rules: &[Rule]| rules.iter().map(|r| r.matches.clone()).collect::<Vec<_>>();
            assert_eq!(matches(&back), matches(&rules), "{printed}");
        }
    }
    let _ = filters::read_trace(text, "fuzz");
}

/// The readers of routes as text: a list and its JSON, of `ip route`, of routers, of `bgpdump`. Each route has a next hop whose text is
/// not empty, and each prefix occurs once.
pub fn routes(bytes: &[u8]) {
    use flowlane::route::read::{Format, RouteOptions, read, read_updates};
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let formats = [Format::Plain, Format::IpRoute, Format::IpRouteJson, Format::ShowRoute, Format::Bgpdump];
    for format in std::iter::once(None).chain(formats.map(Some)) {
        match read(text, "fuzz", format, &RouteOptions::default()) {
            Ok(routes) => check_routes(&routes),
            Err(errors) => assert!(errors.errors().iter().all(|error| {
                text.get(error.offset..error.offset + error.len) == Some(error.found.as_str())
            })),
        }
    }
    let _ = read_updates(text, "fuzz", 1000);
}

/// The reader of MRT dumps, likewise.
pub fn mrt(bytes: &[u8]) {
    if let Ok(routes) = flowlane::route::read::read_mrt(bytes, 1000) {
        assert!(routes.len() <= 1000);
        check_routes(&routes);
    }
}

fn check_routes(routes: &flowlane::route::read::RouteList) {
    let v4: std::collections::HashSet<_> = routes.v4.iter().map(|(prefix, _)| prefix).collect();
    let v6: std::collections::HashSet<_> = routes.v6.iter().map(|(prefix, _)| prefix).collect();
    assert_eq!((v4.len(), v6.len()), (routes.v4.len(), routes.v6.len()), "a prefix occurs twice");
    for (number, next_hop) in routes.next_hops.iter() {
        assert!(!next_hop.to_string().is_empty(), "next hop {number} leads nowhere");
    }
}

/// A switch with every action, with and without caches: both send the same for any frame.
pub fn switch(frame: &[u8]) {
    thread_local! {
        static PAIR: std::cell::RefCell<Pair> = std::cell::RefCell::new(Pair::new());
    }
    PAIR.with_borrow_mut(|pair| pair.compare(frame));
}

/// A tunnel header and a packet behind it, in UDP of IPv4 or IPv6, or GRE (ERSPAN, too) in IP alone; the first byte chooses the
/// tunnel and the IP version. The inner packet stays within the frame, and caches make no difference.
pub fn tunnel(bytes: &[u8]) {
    let Some((&choice, behind)) = bytes.split_first() else { return };
    let ports = [tunnel::VXLAN_PORT, tunnel::GENEVE_PORT, tunnel::GTPU_PORT];
    let behind = &behind[..behind.len().min(2000)];
    let port = Some(ports[usize::from(choice) % 3]).filter(|_| choice & 0x40 == 0);
    let frame = in_ip(choice & 0x80 != 0, port, behind);
    packet_parse(&frame);
    switch(&frame);
}

/// Returns a frame with UDP to `port`, without a checksum, and these bytes; without a port, they are GRE.
fn in_ip(is_v6: bool, port: Option<u16>, behind: &[u8]) -> Vec<u8> {
    let (protocol, udp_bytes) = if port.is_some() { (17, 8) } else { (47, 0) };
    let len = (udp_bytes + behind.len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    match is_v6 {
        true => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend([0x20; 32]);
        }
        false => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + len).to_be_bytes());
            frame.extend([0, 1, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
            let checksum = !checksum::fold(checksum::sum(&frame[14..34]));
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
    }
    if let Some(port) = port {
        frame.extend([0x12, 0x34]);
        frame.extend(port.to_be_bytes());
        frame.extend(len.to_be_bytes());
        frame.extend([0, 0]);
    }
    frame.extend(behind);
    frame
}

/// Two switches with the same rules: one with caches, one without.
pub struct Pair {
    cached: (Worker, Vec<MemoryHandle>),
    plain: (Worker, Vec<MemoryHandle>),
}

impl Default for Pair {
    fn default() -> Self {
        Self::new()
    }
}

impl Pair {
    /// The two switches.
    pub fn new() -> Self {
        let caches = CacheConfig {
            exact_entries: 64,
            exact_insert_inverse: 2,
            signature_entries: 64,
            signature_insert_inverse: 2,
            adaptive: false,
            megaflows_max: 200,
            masks_max: 60,
            ..CacheConfig::default()
        };
        let none = CacheConfig { exact_entries: 0, megaflows_max: 0, ..caches };
        Self { cached: every_action(caches), plain: every_action(none) }
    }

    /// Sends a frame through both, on a port that terminates tunnels and on one that does not.
    pub fn compare(&mut self, frame: &[u8]) {
        for port in 0..2 {
            let cached = through(&mut self.cached, port, frame);
            let plain = through(&mut self.plain, port, frame);
            assert_eq!(cached, plain, "port {port}, frame {frame:02x?}");
        }
    }

    /// Packets that the cached switch found in its caches, and those that went through its tables.
    pub fn hits(&self) -> (u64, u64) {
        let lookup = &self.cached.0.lookup;
        (lookup.exact_hits + lookup.megaflows.counters().hits, lookup.slow)
    }
}

fn through(
    (worker, ports): &mut (Worker, Vec<MemoryHandle>),
    port: usize,
    frame: &[u8],
) -> Vec<Vec<Vec<u8>>> {
    worker.inject(port, &[frame]).expect("ports in memory do not fail");
    ports.iter().map(MemoryHandle::take_sent).collect()
}

/// A switch whose rules use every action on every field.
fn every_action(cache: CacheConfig) -> (Worker, Vec<MemoryHandle>) {
    let mut pipeline = Pipeline::new();
    for table in 0..4 {
        pipeline.add_table(table, "", Box::new(TupleSearch::new(1000, 7)), Miss::Continue);
    }
    for (number, stage) in stages() {
        pipeline.add_stage(number, stage);
    }
    for rule in rules() {
        pipeline.add_rule(rule).expect("the rules are right");
    }
    let mut egress = Egress::new(Fdb::new(64, 300, 1), 1);
    egress.add_meter(1, Arc::new(Meter::new(Rate::Pps(1), u64::MAX)));
    let mut handles = Vec::new();
    for number in 1..=3 {
        let (port, handle) = MemoryPort::new();
        let mut slot = PortSlot::new(PortNo(number), &format!("port{number}"), "", Box::new(port));
        slot.decapsulate = number == 1;
        egress.ports.add(slot);
        handles.push(handle);
    }
    let (controller, handle) = MemoryPort::new();
    egress.controller = Some(Box::new(controller));
    handles.push(handle);
    let mut worker = Worker::new(Lookup::new(pipeline, cache), egress, 32, Clock::Frames);
    worker.egress.faults.policy = MalformedPolicy::Forward;
    (worker, handles)
}

/// A filter, assets and translation, one behind the other; all of them small, so that they are full.
fn stages() -> [(u8, StageTable); 3] {
    let (go, out) = (|table| vec![Action::Goto(table)], || vec![Action::Output(PortNo(2))]);
    let fields = vec![Field::TpSrc, Field::TpDst];
    let filter = FilterConfig { learn: true, count: true, ..FilterConfig::new(fields, 8) };
    let filter = AnyStage::Filter(Filter::new(&filter).expect("the key is right"));
    let assets = AnyStage::Assets(Assets::new(AssetConfig::new(8)));
    // Everything is inside, and a part of it is the pool.
    let nat = NatConfig {
        hairpin: true,
        ..NatConfig::new(vec![flowlane::route::Prefix::ALL], vec![(0x0a01_0000, 0x0a01_00ff)], 8)
    };
    let nat = AnyStage::Nat(Nat::new(nat).expect("there are no forwards"));
    let made = |number, kind, actions| {
        (number, StageTable::new(number, "", kind, actions).expect("they lead onwards"))
    };
    [
        made(10, filter, vec![go(11), go(11)]),
        made(11, assets, vec![go(12), go(12)]),
        made(12, nat, vec![out(), out(), vec![Action::InPort], out()]),
    ]
}

/// A rule for packets with these values.
fn rule(table: u8, priority: u32, matches: &[(Field, u128)], actions: Vec<Action>) -> Rule {
    let mut m = Match::any();
    for &(field, value) in matches {
        m.set(field, value);
    }
    Rule { table, priority: Priority(priority), cookie: 0, matches: m, actions }
}

/// Every field is set in turn: by the low bits of the source address, which mutation changes.
fn setting_rules() -> impl Iterator<Item = Rule> {
    Field::all().iter().filter(|f| f.writable).enumerate().map(|(i, info)| {
        let value = 0x5a5a_5a5a_5a5a_5a5a_5a5a_5a5a_5a5a_5a5a & info.ones();
        let set = Action::set_field(info.field, value, info.ones());
        let masked = Action::set_field(info.field, value & 3, 3 & info.ones());
        let step =
            [Action::PushVlan(0x8100), Action::PopVlan, Action::dec_ttl(), Action::Count(1)][i % 4].clone();
        let source = 0x0200_0000_0000 + i as u128;
        let actions = vec![set, step, masked, Action::Output(PortNo(2)), Action::Goto(1)];
        rule(0, 10, &[(Field::EthSrc, source)], actions)
    })
}

fn rules() -> Vec<Rule> {
    let mut rules: Vec<Rule> = setting_rules().collect();
    let mut add =
        |table, priority, matches: &[_], actions| rules.push(rule(table, priority, matches, actions));
    let (out, go) = (Action::Output(PortNo(3)), Action::Goto);
    let moves = |from: Field, to: Field| Action::Move { from: from.into(), to: to.into() };
    let behind = vec![
        Action::PopMpls(0x0800),
        Action::dec_ttl(),
        moves(Field::Ipv4Src, Field::Ipv4Dst),
        moves(Field::TpDst, Field::TpSrc),
        moves(Field::Ipv4Src, Field::Reg1),
        out.clone(),
        go(1),
    ];
    add(0, 5, &[(Field::EthType, 0x8847)], behind);
    add(
        0,
        5,
        &[(Field::EthType, 0x0800)],
        vec![Action::PushMpls(0x8847), Action::DecMplsTtl, out.clone(), go(2)],
    );
    add(
        0,
        5,
        &[(Field::EthType, 0x86dd)],
        vec![Action::dec_ttl(), Action::PushVlan(0x88a8), out.clone(), go(1)],
    );
    add(
        0,
        4,
        &[(Field::VlanTci, 0x1005)],
        vec![Action::PopVlan, Action::PopVlan, moves(Field::Ipv4Dst, Field::Ipv4Src), out.clone(), go(2)],
    );
    let swap = Action::Move { from: Field::EthSrc.into(), to: Field::EthDst.into() };
    add(0, 1, &[], vec![swap, Action::sample(9), go(1)]);
    add(
        1,
        5,
        &[(Field::NwProto, 17)],
        vec![Action::Meter(1), Action::Move { from: Field::TpDst.into(), to: Field::TpSrc.into() }, go(2)],
    );
    add(1, 5, &[(Field::NwProto, 6)], vec![Action::controller(20), Action::InPort, go(3)]);
    add(1, 5, &[(Field::NwProto, 58)], vec![Action::Flood, Action::dec_ttl(), go(3)]);
    add(2, 5, &[(Field::EthType, 0x8847)], vec![Action::PopMpls(0x86dd), Action::PopMpls(0x0800), go(3)]);
    add(2, 4, &[(Field::NwTtl, 63)], vec![Action::Flood]);
    add(2, 1, &[], vec![Action::Normal, go(3)]);
    add(3, 5, &[(Field::IpFrag, 1)], vec![Action::PushVlan(0x8100), Action::Normal]);
    add(3, 4, &[(Field::TpDst, 53)], vec![Action::InPort]);
    add(3, 1, &[], vec![out, go(10)]);
    rules
}
