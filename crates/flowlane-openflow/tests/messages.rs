//! Bytes of Open vSwitch 3.1.0, and the messages that they are.

use flowlane::rule::action::{
    ConnectionTracking, Controller, Learn, LearnSource, LearnSpec, Nat, NatRange, SetForm, Zone,
};
use flowlane::rule::{Command, action};
use flowlane::{Action, Field, FieldRef, Match, PortNo, Priority};
use flowlane_openflow::group::{Bucket, BucketPlace, GroupCommand, GroupKind};
use flowlane_openflow::message::{BundleAdd, FlowModMessage, Hello, Message, MultipartRequest, Request};
use flowlane_openflow::stats::{FlowFormat, QueueConfig};
use flowlane_openflow::{Codec, ErrorCode, Version, decode, encode};

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

fn read(hex: &str) -> Message {
    decode(&bytes(hex)).unwrap_or_else(|error| panic!("{error}")).message
}

fn flow_mod(hex: &str) -> FlowModMessage {
    match read(hex) {
        Message::FlowMod(message) => message,
        other => panic!("{other:?}"),
    }
}

fn refused(hex: &str) -> ErrorCode {
    decode(&bytes(hex)).expect_err("is refused").code
}

/// `add-flow cookie=0x1234,idle_timeout=5,hard_timeout=7,send_flow_rem,check_overlap,priority=5,tcp,nw_src=10.0.0.0/8,
/// nw_dst=192.0.2.1,tp_src=80,tp_dst=443,nw_tos=32,actions=mod_vlan_vid:7,mod_vlan_pcp:3,strip_vlan,…,enqueue:2:7,output:1`.
const LEGACY: &str = "010e00c0000000060010180f000000000000000000000000000000000000080020060000\
    0a000000c0000201005001bb00000000000012340000000500070005ffffffffffff0003000100080007000000020008030000000003\
    000800000000000400100200000000090000000000000005001002000000000a00000000000000060008010203040007000805060708\
    00080008400000000009000800050000000a000800060000000b00100002000000000000000000070000000800010000";

#[test]
fn a_flow_of_openflow_1_0_is_the_rule_that_was_written() {
    let message = flow_mod(LEGACY);
    let change = &message.flow_mod;
    assert_eq!((change.flags.0, message.format, change.command), (3, FlowFormat::Standard, Command::Add));
    assert_eq!((change.idle_timeout_s, change.hard_timeout_s), (5, 7));
    let rule = &change.rule;
    assert_eq!((rule.cookie, rule.priority, rule.table), (0x1234, Priority(5), 0));
    let mut matches = Match::any();
    matches.set(Field::EthType, 0x0800).set(Field::NwProto, 6).set(Field::TpSrc, 80).set(Field::TpDst, 443);
    matches.set_masked(Field::Ipv4Src, 0x0a00_0000, 0xff00_0000).set(Field::Ipv4Dst, 0xc000_0201);
    matches.set(Field::IpDscp, 8);
    assert_eq!(rule.matches, matches);
    let own = |field: Field, value| Action::SetField {
        field,
        value,
        mask: field.info().ones(),
        form: SetForm::Own,
        protocol: None,
    };
    assert_eq!(rule.actions[..3], [own(Field::VlanVid, 7), own(Field::VlanPcp, 3), Action::PopVlan]);
    assert_eq!(rule.actions[7], own(Field::IpDscp, 16));
    let last = [Action::Enqueue { port: PortNo(2), queue: 7 }, Action::Output(PortNo(1))];
    assert_eq!(rule.actions[10..], last);
}

#[test]
fn a_flow_that_leaves_nothing_out_has_the_largest_priority() {
    let mut exact = bytes(LEGACY);
    exact[8..12].fill(0);
    let message = decode(&exact).expect("is a flow-mod").message;
    let Message::FlowMod(FlowModMessage { flow_mod, .. }) = message else { panic!("{message:?}") };
    assert_eq!(flow_mod.rule.priority, Priority(0xffff));
}

#[test]
fn instructions_are_actions_in_the_order_of_their_execution() {
    // table=3,ip,actions=dec_ttl,write_actions(output:1,group:5,set_field:5->reg0),write_metadata:5,goto_table:5
    let hex = "060e00a000000006000000000000000000000000000000000300000000008000ffffffffffffffffffffffff0000000000\
        01000a80000a0208000000000000000004001000000000001800080000000000030030000000000000001000000001000000000000\
        000000160008000000050019001000010004000000050000000000020018000000000000000000000005ffffffffffffffff000100\
        0805000000";
    let message = flow_mod(hex);
    let rule = &message.flow_mod.rule;
    let set = Action::SetField {
        field: Field::Reg0,
        value: 5,
        mask: 0xffff_ffff,
        form: SetForm::SetField,
        protocol: None,
    };
    let metadata = Action::SetField {
        field: Field::Metadata,
        value: 5,
        mask: u64::MAX.into(),
        form: SetForm::Own,
        protocol: None,
    };
    let written = Action::WriteActions(vec![Action::Output(PortNo(1)), Action::Group(5), set]);
    assert_eq!(rule.actions, [Action::dec_ttl(), written, metadata, Action::Goto(5)]);
    assert_eq!(rule.table, 3);
}

/// As OVN's routers write it.
#[test]
fn the_ttl_is_decremented_for_no_controller() {
    let read = read("010d002000000001ffffffffffff0010ffff0010000023200015000000000000");
    let Message::PacketOut(packet) = read else { panic!("{read:?}") };
    assert_eq!(packet.actions, [Action::dec_ttl()]);
}

#[test]
fn actions_on_connections_have_their_arguments() {
    // tcp6,actions=ct(commit,nat(src=[2001:db8::1]:80)),ct(commit,zone=3,nat(dst=2001:db8::1-2001:db8::5,hash,persistent))
    let hex = "010400c800000008000023200000000d00000000000000000000000000008000ffffffffffff0000000b00000000000000\
        00060286dd00000c01060000000000ffff00400000232000230001000000000000ff0000000000ffff002800002320002400000001\
        001420010db80000000000000000000000010050000000000000ffff00480000232000230001000000000003ff0000000000ffff00\
        300000232000240000000e000c20010db800000000000000000000000120010db8000000000000000000000005";
    let message = flow_mod(hex);
    let address = |last: u16| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into();
    let nat =
        |range, is_sticky| Nat { range: Some(range), persistent: is_sticky, hash: is_sticky, random: false };
    let ct = |commit, zone, nat| {
        Action::ConnectionTracking(Box::new(ConnectionTracking {
            commit,
            force: false,
            zone: Zone::Number(zone),
            table: None,
            alg: 0,
            exec: vec![Action::Nat(Box::new(nat))],
        }))
    };
    let source =
        NatRange { is_source: true, addresses: Some((address(1), address(1))), ports: Some((80, 80)) };
    let target = NatRange { is_source: false, addresses: Some((address(1), address(5))), ports: None };
    let actions = [ct(true, 0, nat(source, false)), ct(true, 3, nat(target, true))];
    assert_eq!(message.flow_mod.rule.actions, actions);
    assert_eq!(message.format, FlowFormat::Nxm);
}

#[test]
fn learned_rules_have_their_parts() {
    // sctp,sctp_dst=5,actions=learn(table=3,NXM_OF_VLAN_TCI[0..11]=5,load:0x123456->NXM_NX_REG0[0..31])
    let mut learn = Learn {
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority: 32768,
        table: 3,
        cookie: 0,
        fin_idle_timeout_s: 0,
        fin_hard_timeout_s: 0,
        send_flow_removed: false,
        delete_learned: false,
        limit: 0,
        result: None,
        specs: Vec::new(),
    };
    let tci = FieldRef::new(Field::VlanTci, 0, 12).expect("16 bits");
    learn.specs.push(LearnSpec::Match { to: tci, from: LearnSource::Value(5) });
    learn.specs.push(LearnSpec::Load { to: Field::Reg0.into(), from: LearnSource::Value(0x12_3456) });
    let line = include_str!("data/messages.txt").lines().find(|line| line.contains("learn(table=3"));
    let hex = line.and_then(|line| line.split(' ').nth(1)).expect("was recorded");
    assert_eq!(flow_mod(hex).flow_mod.rule.actions, [Action::Learn(Box::new(learn))]);
}

#[test]
fn messages_for_controllers_keep_their_arguments() {
    let line = include_str!("data/messages.txt").lines().find(|line| line.contains("pause,meter_id=7"));
    let hex = line.and_then(|line| line.split(' ').nth(1)).expect("was recorded");
    let plain = Controller { max_len: 77, reason: 2, id: 5, ..Controller::default() };
    let userdata = vec![1, 2, 3, 4, 5];
    let paused = Controller { userdata, pause: true, meter: Some(7), ..Controller::default() };
    let actions = [plain, paused].map(|controller| Action::Controller(Box::new(controller)));
    assert_eq!(flow_mod(hex).flow_mod.rule.actions, actions);
}

/// os-ken writes OFPCML_MAX for each output, and compares what it reads back; Open vSwitch keeps it.
#[test]
fn the_length_for_controllers_of_an_output_is_kept() {
    for port in ["00000002", "fffffff8", "fffffffb"] {
        let header = "040e0050000000050000000000000000000000000000000000000000000000";
        let rest = "07ffffffffffffffffffffffff00000000";
        let instruction = format!("0001000400000000000400180000000000000010{port}ffe5000000000000");
        let hex = format!("{header}{rest}{instruction}");
        let message = read(&hex);
        let Message::FlowMod(FlowModMessage { flow_mod, .. }) = &message else { panic!("{message:?}") };
        let [Action::OutputMaxLen { output, max_len: 0xffe5 }] = &flow_mod.rule.actions[..] else {
            panic!("{flow_mod:?}")
        };
        assert_eq!(flow_mod.rule.actions[0].to_string(), output.to_string());
        assert_eq!(Codec::new(Version::OpenFlow13).encode(5, &message).unwrap(), bytes(&hex));
    }
}

#[test]
fn messages_in_bundles_are_read() {
    // --bundle add-flow priority=1,reg5=5,actions=drop
    let hex = "06220058000000060000000000000003060e0048000000060000000000000000000000000000000000000000000000\
        01ffffffffffffffffffffffff000000000001001880010510000000000000000500000000ffffffff";
    let Message::BundleAdd(BundleAdd { bundle, atomic, ordered, message }) = read(hex) else {
        panic!("a bundle's message")
    };
    assert_eq!((bundle, atomic, ordered), (0, true, true));
    let Message::FlowMod(FlowModMessage { flow_mod, .. }) = *message else { panic!("{message:?}") };
    let mut matches = Match::any();
    matches.set(Field::Reg5, 5);
    assert_eq!((flow_mod.rule.matches, flow_mod.rule.priority), (matches, Priority(1)));
    // Its identifier is the bundle message's.
    assert_eq!(
        refused(&hex.replacen("00000006000000000000000000", "00000007000000000000000000", 2)),
        ErrorCode::BundleMsgBadXid
    );
}

#[test]
fn buckets_have_places() {
    // insert-buckets group_id=5,command_bucket_id=last,bucket=bucket_id:17,output:1
    let hex =
        "0104003000000006000023200000001f000300000000000500100000fffffffe00100008000000110000000800010000";
    let Message::GroupMod(change) = read(hex) else { panic!("a group-mod") };
    assert_eq!(change.command, GroupCommand::InsertBuckets(BucketPlace::Last));
    let actions = vec![Action::Output(PortNo(1))];
    let bucket = Bucket { id: 17, weight: 0, watch_port: None, watch_group: None, actions };
    assert_eq!((change.kind, change.group, change.buckets), (GroupKind::All, 5, vec![bucket]));
}

/// Fields of several protocols are one field of the library; buckets have no match to tell them apart.
#[test]
fn buckets_keep_the_protocol_of_a_port() {
    let options = flowlane::rule::ReadOptions::default();
    let text = "set_field:5->udp_dst,set_field:7->tcp_dst,load:0x9->sctp_src[0..7],set_field:3->icmpv6_type,output:1";
    let actions = flowlane::rule::flow_syntax::read_actions(text, "actions", &options).expect("sound");
    let bucket = Bucket { id: 0, weight: 0, watch_port: None, watch_group: None, actions };
    let hex =
        "0104003000000006000023200000001f000300000000000500100000fffffffe00100008000000110000000800010000";
    let Message::GroupMod(mut change) = read(hex) else { panic!("a group-mod") };
    (change.command, change.buckets) = (GroupCommand::Add, vec![bucket]);
    let written = encode(Version::OpenFlow13, 6, &Message::GroupMod(change.clone())).expect("fits");
    let Ok(Message::GroupMod(again)) = decode(&written).map(|decoded| decoded.message) else {
        panic!("a group-mod")
    };
    assert_eq!(again.buckets[0].actions, change.buckets[0].actions);
}

#[test]
fn versions_of_a_hello_message_are_a_list() {
    assert_eq!(read("0100000800000001"), Message::Hello(Hello { versions: 0b10 }));
    let all = Message::Hello(Hello { versions: 0b0111_0010 });
    assert_eq!(read("060000100000000100010008 00000072".replace(' ', "").as_str()), all);
    assert_eq!(encode(Version::OpenFlow10, 1, &all), Ok(bytes("06000010000000010001000800000072")));
    let lowest = Message::Hello(Hello { versions: Version::OpenFlow10.bit() });
    assert_eq!(encode(Version::OpenFlow15, 1, &lowest), Ok(bytes("0100000800000001")));
}

#[test]
fn tables_are_named_in_commands_where_the_controller_asked_for_it() {
    let mut message = flow_mod(LEGACY);
    message.flow_mod.table = Some(9);
    let mut codec = Codec::new(Version::OpenFlow10);
    codec.flow_mod_table_id = true;
    let written = codec.encode(6, &Message::FlowMod(message)).expect("fits");
    let Ok(Message::FlowMod(read)) = codec.decode(&written).map(|decoded| decoded.message) else {
        panic!("a flow-mod")
    };
    assert_eq!((read.flow_mod.table, read.flow_mod.rule.table), (Some(9), 9));
}

#[test]
fn wrong_messages_get_the_errors_of_open_vswitch() {
    // An unknown type, a wrong length, an unknown kind of statistics.
    assert_eq!(refused("0463000800000001"), ErrorCode::RequestBadType);
    assert_eq!(refused("04050009000000010000"), ErrorCode::RequestBadLen);
    assert_eq!(
        refused("041200100000000100630000 00000000".replace(' ', "").as_str()),
        ErrorCode::RequestBadStat
    );
    // Another version than the connection's.
    let other = Codec::new(Version::OpenFlow13).decode(&bytes("0605000800000001"));
    assert_eq!(other.expect_err("is refused").code, ErrorCode::RequestBadVersion);
    // A port without its protocol; a field twice; bits outside the mask; an unknown field.
    let mod_with = |fields: &str| {
        let length = fields.len() / 2 + 4;
        let padded = (length.next_multiple_of(8) - length) * 2;
        let body = format!("{}0000000000008000ffffffffffffffffffffffff00000000", "00".repeat(16));
        let all = format!("{body}0001{length:04x}{fields}{}", "0".repeat(padded));
        format!("040e{:04x}00000001{all}", all.len() / 2 + 8)
    };
    assert_eq!(refused(&mod_with("80001a020050")), ErrorCode::MatchBadPrereq);
    assert_eq!(refused(&mod_with("80000a02080080000a020800")), ErrorCode::MatchDupField);
    assert_eq!(
        refused(&mod_with("800005100000000000000001 0000000000000000".replace(' ', "").as_str())),
        ErrorCode::MatchBadWildcards
    );
    assert_eq!(refused(&mod_with("80007e0101")), ErrorCode::MatchBadField);
    assert_eq!(refused(&mod_with("80000a03080000")), ErrorCode::MatchBadField);
    assert_eq!(refused(&mod_with("80000b0408000f00")), ErrorCode::MatchBadMask);
}

#[test]
fn actions_may_be_nested_only_so_deep() {
    let nested = |depth: usize| {
        let mut actions = vec![Action::Output(PortNo(1))];
        for _ in 0..depth {
            actions = vec![Action::Clone(actions)];
        }
        let mut message = flow_mod(LEGACY);
        message.flow_mod.rule.actions = actions;
        encode(Version::OpenFlow13, 1, &Message::FlowMod(message)).expect("fits")
    };
    assert!(decode(&nested(action::NESTING_MAX)).is_ok());
    let error = decode(&nested(action::NESTING_MAX + 1)).expect_err("is refused");
    assert_eq!(error.code, ErrorCode::ActionTooMany);
}

#[test]
fn a_reply_has_as_many_queues_as_it_holds() {
    let port = PortNo(3);
    let queue = |queue| QueueConfig { port, queue, min_rate: None, max_rate: None };
    let queues: Vec<QueueConfig> = (0..9000).map(queue).collect();
    // Of 65,535 bytes, 16 are headers, and a queue has 8 or 16.
    for (version, held) in [(Version::OpenFlow10, 8189), (Version::OpenFlow13, 4094)] {
        let message = Message::QueueGetConfigReply { port, queues: queues.clone() };
        let read = decode(&encode(version, 1, &message).unwrap()).unwrap().message;
        let first = Message::QueueGetConfigReply { port, queues: queues[..held].to_vec() };
        assert!(read == first, "{version:?}");
    }
}

#[test]
fn requests_for_flows_have_conditions() {
    // dump-flows table=3,out_port=1,cookie=5/7,ip
    let hex = "06120040000000060001000000000000030000000000000 1ffffffff00000000000000000000000500000000000000070001000a\
        80000a020800000000000000"
        .replace(' ', "");
    let Message::MultipartRequest(MultipartRequest { more: false, body: Request::Flow(request) }) =
        read(&hex)
    else {
        panic!("a request for flows")
    };
    assert_eq!((request.table, request.out_port, request.out_group), (Some(3), Some(PortNo(1)), None));
    assert_eq!((request.cookie, request.cookie_mask), (5, 7));
}

/// As os-ken writes a flow of OpenFlow 1.0 for IPv6, whose fields Open vSwitch takes as those of IPv4, but for the addresses.
#[test]
fn openflow_1_0_matches_what_ipv6_has() {
    let all =
        0x3f_ffff & !(1 << 4 | 1 << 5 | 1 << 6 | 1 << 21) & !(0x3f << 8 | 0x3f << 14) | 32 << 8 | 32 << 14;
    for (protocol, first, field) in [(6, 11111, Field::TpSrc), (58, 135, Field::IcmpType)] {
        let head = format!("{all:08x}{}86dd20{protocol:02x}", "0".repeat(36));
        let matched = format!("{head}{}{first:04x}0000", "0".repeat(20));
        let rest = format!("{}0007ffffffffffff0000", "0".repeat(28));
        let hex = format!("010e004800000005{matched}{rest}");
        let message = read(&hex);
        let Message::FlowMod(FlowModMessage { flow_mod, .. }) = &message else { panic!("{message:?}") };
        let matches = &flow_mod.rule.matches;
        assert_eq!(matches.get(Field::EthType).0, 0x86dd);
        assert_eq!((matches.get(Field::IpDscp).0, matches.get(Field::NwProto).0), (8, protocol));
        assert_eq!(matches.get(field).0, first);
        assert_eq!(Codec::new(Version::OpenFlow10).encode(5, &message).unwrap(), bytes(&hex));
    }
}
