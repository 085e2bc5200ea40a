//! Messages that a switch sends, as `ovs-ofctl ofp-print` reads them. Prints that it skips where there is no ovs-ofctl.

use std::process::Command;

use flowlane::{Action, Field, Match, PortNo, Priority, Rule};
use flowlane_openflow::message::{
    AsyncConfig, BundleControl, BundleControlKind, Error, Features, Message, MultipartReply, PacketIn,
    PacketInFormat, Reply, Role, RoleRequest, RoleStatus, TlvMapping, TlvTable,
};
use flowlane_openflow::port::{Port, PortReason, PortStatus, config, features, state};
use flowlane_openflow::stats::{
    AggregateStats, FlowEvent, FlowFormat, FlowRemoved, FlowStats, FlowUpdate, QueueConfig, TableConfig,
    TableStatus, Vacancy, table_reason,
};
use flowlane_openflow::{ErrorCode, Version, encode};

use Version::{OpenFlow10 as V10, OpenFlow13 as V13, OpenFlow14 as V14, OpenFlow15 as V15};

fn has_ofctl() -> bool {
    Command::new("ovs-ofctl").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The text of a message, without its identifier.
fn printed(version: Version, message: &Message) -> String {
    let bytes = encode(version, 7, message).unwrap_or_else(|error| panic!("{error}: {message:?}"));
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let output = Command::new("ovs-ofctl").args(["ofp-print", &hex]).output().expect("ovs-ofctl runs");
    let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    text.replace(" (xid=0x7)", "")
}

fn port() -> Port {
    Port {
        number: PortNo(3),
        hw_addr: [2, 0, 0, 0, 0, 7],
        name: "eth3".to_owned(),
        config: config::PORT_DOWN,
        state: state::LINK_DOWN,
        current: features::FULL_10GB | features::COPPER,
        advertised: features::FULL_1GB | features::AUTONEG,
        supported: features::FIBER,
        peer: 0,
        speed_kbps: 10_000_000,
        max_speed_kbps: 40_000_000,
    }
}

fn web() -> Match {
    let mut matches = Match::any();
    matches.set(Field::EthType, 0x0800).set(Field::NwProto, 6).set(Field::TpDst, 80);
    matches
}

fn packet(format: PacketInFormat) -> Message {
    let mut metadata = Match::any();
    metadata.set(Field::InPort, 3).set(Field::Reg3, 7);
    if format == PacketInFormat::Standard {
        metadata = Match::any();
        metadata.set(Field::InPort, 3);
    }
    Message::PacketIn(PacketIn {
        format,
        reason: 1,
        table: 5,
        cookie: 0x55,
        buffer_id: None,
        total_len: 60,
        metadata,
        data: [[0xff; 6], [2, 0, 0, 0, 0, 1], [0x12, 0x34, 0, 0, 0, 0]].concat(),
        userdata: Vec::new(),
        continuation: Vec::new(),
    })
}

fn reply(body: Reply) -> Message {
    Message::MultipartReply(MultipartReply { more: false, body })
}

fn flow() -> FlowStats {
    let mut rule = Rule::new(web(), vec![Action::dec_ttl(), Action::Output(PortNo(2))]);
    (rule.table, rule.cookie, rule.priority) = (4, 0x77, Priority(9));
    FlowStats {
        duration_s: 12,
        duration_ns: 345_000_000,
        idle_timeout_s: 60,
        idle_age_s: Some(3),
        hard_age_s: Some(4),
        packets: 5,
        bytes: 500,
        ..FlowStats::new(rule)
    }
}

fn removed(format: FlowFormat) -> Message {
    Message::FlowRemoved(FlowRemoved {
        format,
        matches: web(),
        cookie: 0x77,
        priority: Priority(9),
        reason: 0,
        table: Some(4),
        duration_s: 12,
        duration_ns: 345_000_000,
        idle_timeout_s: 60,
        hard_timeout_s: 0,
        packets: 5,
        bytes: 500,
    })
}

fn error(code: ErrorCode) -> Message {
    Message::Error(Error { kind: code.into(), data: vec![1, 5, 0, 8, 0, 0, 0, 7] })
}

#[test]
fn ovs_ofctl_reads_flows_alike_in_all_versions() {
    if !has_ofctl() {
        println!("skipped: there is no ovs-ofctl");
        return;
    }
    let body = |format| reply(Reply::Flow { format, flows: vec![flow()] });
    let common = "cookie=0x77, duration=12.345s, table=4, n_packets=5, n_bytes=500, idle_timeout=60,";
    let rule = "priority=9,tcp,tp_dst=80 actions=dec_ttl,output:2";
    for (version, format, head, age) in [
        (V10, FlowFormat::Standard, "OFPST_FLOW reply:", ""),
        (V10, FlowFormat::Nxm, "NXST_FLOW reply:", " idle_age=3, hard_age=4,"),
        (V13, FlowFormat::Standard, "OFPST_FLOW reply (OF1.3):", ""),
        (V14, FlowFormat::Standard, "OFPST_FLOW reply (OF1.4):", ""),
        (V15, FlowFormat::Standard, "OFPST_FLOW reply (OF1.5):", " idle_age=3,"),
    ] {
        let text = printed(version, &body(format));
        assert_eq!(text, format!("{head}\n {common}{age} {rule}"));
    }
}

#[test]
fn ovs_ofctl_reads_messages_of_a_switch() {
    if !has_ofctl() {
        println!("skipped: there is no ovs-ofctl");
        return;
    }
    let role = RoleRequest { role: Role::Primary, generation_id: Some(5), short_id: None };
    let status = RoleStatus { role: Role::Secondary, reason: 0, generation_id: 5 };
    let control =
        BundleControl { bundle: 9, kind: BundleControlKind::CommitReply, atomic: true, ordered: true };
    let mapping = TlvMapping { class: 0x102, kind: 0x80, length: 4, index: 0 };
    let table = TlvTable { space_max: 256, fields_max: 64, mappings: vec![mapping] };
    let queue = QueueConfig { port: PortNo(3), queue: 8, min_rate: Some(10), max_rate: Some(500) };
    let queues = Message::QueueGetConfigReply { port: PortNo(3), queues: vec![queue.clone()] };
    let sums = AggregateStats { packets: 5, bytes: 500, flows: 2 };
    let aggregate = reply(Reply::Aggregate { format: FlowFormat::Standard, stats: sums });
    let update = FlowUpdate::Full {
        event: FlowEvent::Removed(2),
        timeouts_s: (0, 0),
        rule: Rule { actions: Vec::new(), ..flow().rule },
    };
    let masks =
        AsyncConfig { packet_in: [Some(3), Some(0)], port_status: [Some(7); 2], ..AsyncConfig::default() };
    let features = Features { datapath_id: 0x1f, tables: 254, ..Features::default() };
    let port_status = Message::PortStatus(PortStatus { reason: PortReason::Modify, port: port() });
    let vacancy = Some(Vacancy { down: 20, up: 60, current: 19 });
    let config = TableConfig { table: 3, config: 1 << 3, eviction: Some(7), vacancy };
    let table_status = TableStatus { reason: table_reason::VACANCY_DOWN, config };
    let messages = [
        (V10, Message::RoleReply(role)),
        (V13, Message::RoleReply(role)),
        (V15, Message::RoleReply(role)),
        (V13, Message::RoleStatus(status)),
        (V14, Message::RoleStatus(status)),
        (V13, Message::BundleControl(control)),
        (V15, Message::BundleControl(control)),
        (V10, Message::TlvTableReply(table)),
        (V10, queues.clone()),
        (V13, queues),
        (V15, reply(Reply::QueueDescription(vec![queue]))),
        (V10, aggregate.clone()),
        (V15, aggregate),
        (V10, reply(Reply::FlowMonitor(vec![update, FlowUpdate::Abbreviated { xid: 0x12 }]))),
        (V14, Message::GetAsyncReply(masks)),
        (V13, Message::FeaturesReply(features)),
        (V10, port_status.clone()),
        (V13, port_status.clone()),
        (V14, port_status),
        (V10, packet(PacketInFormat::Standard)),
        (V10, packet(PacketInFormat::Nxt)),
        (V13, packet(PacketInFormat::Nxt2)),
        (V14, packet(PacketInFormat::Standard)),
        (V10, removed(FlowFormat::Standard)),
        (V10, removed(FlowFormat::Nxm)),
        (V13, removed(FlowFormat::Standard)),
        (V15, removed(FlowFormat::Standard)),
        (V10, error(ErrorCode::MatchBadPrereq)),
        (V13, error(ErrorCode::MatchBadPrereq)),
        (V15, error(ErrorCode::NiciraRequestNxmInvalid)),
        (V13, error(ErrorCode::BundleTimeout)),
        (V10, error(ErrorCode::BundleTimeout)),
        (V14, Message::TableStatus(table_status.clone())),
        (V15, Message::TableStatus(table_status)),
    ];
    let texts: Vec<String> = messages.iter().map(|(version, message)| printed(*version, message)).collect();
    let expected = include_str!("data/printed.txt");
    assert_eq!(texts.join("\n---\n"), expected.trim_end());
}

#[test]
fn errors_have_the_names_of_ovs_ofctl() {
    if !has_ofctl() {
        println!("skipped: there is no ovs-ofctl");
        return;
    }
    for (version, digit) in [(V10, '0'), (V13, '3'), (V14, '4'), (V15, '5')] {
        for code in ErrorCode::ALL.iter().filter(|code| code.numbers(version).is_some()).step_by(9) {
            let text = printed(version, &error(*code));
            // Where several errors have one pair of numbers, the name is another's.
            let name = text.lines().next().and_then(|line| line.rsplit(": ").next());
            let read = ErrorCode::ALL.iter().find(|code| Some(code.name()) == name);
            let read = read.unwrap_or_else(|| panic!("{code} in 1.{digit}: {text}"));
            assert_eq!(read.numbers(version), code.numbers(version), "{text}");
        }
    }
}

#[test]
fn long_replies_are_several_messages() {
    let flows: Vec<FlowStats> = (0..2000)
        .map(|n| {
            let mut flow = flow();
            flow.rule.cookie = n;
            flow
        })
        .collect();
    for (version, format) in
        [(V10, FlowFormat::Nxm), (V13, FlowFormat::Standard), (V15, FlowFormat::Standard)]
    {
        let bytes = encode(version, 7, &reply(Reply::Flow { format, flows: flows.clone() })).unwrap();
        let (mut rest, mut cookies, mut parts, mut last) = (&bytes[..], Vec::new(), 0, true);
        while !rest.is_empty() {
            let (message, behind) = flowlane_openflow::split(rest).unwrap().unwrap();
            let decoded = flowlane_openflow::decode(message).unwrap().message;
            let Message::MultipartReply(MultipartReply { more, body: Reply::Flow { flows, .. } }) = decoded
            else {
                panic!("{decoded:?}")
            };
            assert_eq!(more, !behind.is_empty());
            cookies.extend(flows.iter().map(|flow| flow.rule.cookie));
            (rest, parts, last) = (behind, parts + 1, more);
        }
        assert!(parts > 2 && !last);
        assert_eq!(cookies, (0..2000).collect::<Vec<u64>>());
    }
}
