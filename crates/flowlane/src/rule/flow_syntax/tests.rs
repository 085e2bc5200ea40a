use proptest::prelude::*;

use super::super::action::{PortNo, SetForm};
use super::super::{Action, Format, Match, Priority, ReadOptions, Rule, detect_format, read as read_any};
use super::*;
use crate::packet::FieldRef;
use crate::packet::fields::Field;

mod like_ovs;
mod ovn;
mod ovs_lines;
mod ovs_ofctl;
mod random;

fn options() -> ReadOptions<'static> {
    ReadOptions { ports: &|name| (name == "uplink").then_some(PortNo(7)), ..ReadOptions::default() }
}

fn set(form: SetForm, field: Field, value: u128, mask: u128) -> Action {
    Action::SetField { field, value, mask, form, protocol: None }
}

#[track_caller]
fn rule(line: &str) -> Rule {
    read(line, "t.flows", &options()).unwrap_or_else(|e| panic!("{e}")).remove(0)
}

#[track_caller]
fn problem(line: &str) -> String {
    read(line, "t.flows", &options()).expect_err("is wrong").to_string()
}

#[test]
fn what_ovs_ofctl_reads_is_read() {
    let r = rule("table=1, priority=100 tcp,nw_dst=192.0.2.0/24,tp_dst=80, cookie=0x5 actions=output:2,3");
    assert_eq!((r.table, r.priority, r.cookie), (1, Priority(100), 5));
    assert_eq!(r.matches.get(Field::Ipv4Dst), (0xc000_0200, 0xffff_ff00));
    assert_eq!(r.matches.get(Field::NwProto), (6, 0xff));
    assert_eq!(r.actions, [Action::Output(PortNo(2)), Action::Output(PortNo(3))]);

    let m = |line: &str| rule(&format!("{line} actions=drop")).matches;
    assert_eq!(m("dl_vlan=10").get(Field::VlanTci), (0x100a, 0x1fff));
    assert_eq!(m("dl_vlan=0xffff").get(Field::VlanTci), (0, 0xffff));
    assert_eq!(m("dl_vlan_pcp=3").get(Field::VlanTci), (0x7000, 0xf000));
    assert_eq!(m("vlan_vid=0x1000/0x1000").get(Field::VlanTci), (0x1000, 0x1000));
    assert_eq!(m("icmp,tp_src=8,tp_dst=0").get(Field::IcmpType), (8, 0xff));
    assert_eq!(m("arp,nw_src=10.0.0.1,nw_proto=2").get(Field::ArpOp), (2, 0xffff));
    assert_eq!(m("tcp,tcp_flags=+syn-ack").get(Field::TcpFlags), (2, 0x12));
    assert_eq!(m("tcp,tcp_flags=0x2/0x12").get(Field::TcpFlags), (2, 0x12));
    // As ovs-ofctl prints it: these, and no others.
    assert_eq!(m("tcp,tcp_flags=syn").get(Field::TcpFlags), (2, 0xfff));
    assert_eq!(m("tcp,tcp_flags=syn|ack").get(Field::TcpFlags), (0x12, 0xfff));
    assert_eq!(m("ip,ip_frag=not_later").get(Field::IpFrag), (0, 2));
    assert_eq!(m("ipv6,ipv6_src=2001:db8::/32").get(Field::Ipv6Src).1, u128::MAX << 96);
    assert_eq!(m("dl_dst=01:00:00:00:00:00/01:00:00:00:00:00").get(Field::EthDst), (1 << 40, 1 << 40));
    assert_eq!(m("in_port=uplink").get(Field::InPort), (7, 0xffff_ffff));
    assert_eq!(m("in_port=\"uplink\"").get(Field::InPort), (7, 0xffff_ffff));
    assert_eq!(m("ip,nw_src=10.0.0.1/255.0.0.255").get(Field::Ipv4Src), (0x0a00_0001, 0xff00_00ff));
    assert_eq!(m("tp_dst=80,udp"), m("udp,tp_dst=80"));
    assert_eq!(m("dl_type=0x0800,nw_proto=17"), m("udp"));
    let ranged = m("udp,tp_dst=100-200");
    assert_eq!(ranged.tp_dst_range().map(|r| (r.low(), r.high())), Some((100, 200)));
    // A line of dump-flows.
    let dumped =
        " cookie=0x0, duration=1.5s, table=0, n_packets=3, n_bytes=180, idle_age=1, arp actions=NORMAL";
    assert_eq!(rule(dumped).actions, [Action::Normal]);
}

#[test]
fn every_action_is_read() {
    let actions = |text: &str| rule(&format!("ip actions={text}")).actions;
    assert_eq!(actions("drop"), []);
    assert_eq!(
        actions("mod_vlan_vid:5,strip_vlan,push_vlan:0x88a8,in_port,all,controller(max_len=99),dec_ttl"),
        [
            Action::set_field(Field::VlanVid, 5, 0xfff),
            Action::PopVlan,
            Action::PushVlan(0x88a8),
            Action::InPort,
            Action::All,
            Action::controller(99),
            Action::dec_ttl(),
        ]
    );
    assert_eq!(
        actions(
            "load:0x3->NXM_NX_REG0[8..15],set_field:1.2.3.4->nw_dst,set_field:5/0xf->reg1,move:reg1->reg2"
        ),
        [
            set(SetForm::Load, Field::Reg0, 0x300, 0xff00),
            set(SetForm::SetField, Field::Ipv4Dst, 0x0102_0304, 0xffff_ffff),
            Action::set_field(Field::Reg1, 5, 15),
            Action::Move { from: Field::Reg1.into(), to: Field::Reg2.into() },
        ]
    );
    assert_eq!(
        actions("set_mpls_label(17),sample(probability=100),meter:1,count:2,encap:9,\"uplink\",goto_table:3"),
        [
            Action::set_field(Field::MplsLabel, 17, 0xfffff),
            Action::sample(100),
            Action::Meter(1),
            Action::Count(2),
            Action::Encapsulate(9),
            Action::Output(PortNo(7)),
            Action::Goto(3),
        ]
    );
}

#[test]
fn registers_are_read_by_all_their_names() {
    let m = |line: &str| rule(&format!("{line} actions=drop")).matches;
    assert_eq!(m("reg15=0x5").get(Field::Reg15), (5, 0xffff_ffff));
    assert_eq!(m("reg4=1/3").get(Field::Reg4), (1, 3));
    assert_eq!(m("xreg7=0x100000002"), m("reg14=1,reg15=2"));
    assert_eq!(m("xxreg3=7/0xf0000000f"), m("reg14=0/0xf,reg15=7/0xf"));
    assert_eq!(m("xxreg3=7/0xf0000000f").to_string(), "reg14=0x0/0xf,reg15=0x7/0xf");
    let actions = |text: &str| rule(&format!("ip actions={text}")).actions;
    let ones = u128::MAX;
    assert_eq!(
        actions(
            "set_field:5->xxreg3,load:6->NXM_NX_XXREG3[],load:1->OXM_OF_PKT_REG7[32],set_field:1/1->reg12"
        ),
        [
            Action::set_field(Field::XxReg3, 5, ones),
            set(SetForm::Load, Field::XxReg3, 6, ones),
            set(SetForm::Load, Field::XReg7, 1 << 32, 1 << 32),
            Action::set_field(Field::Reg12, 1, 1),
        ]
    );
    for text in ["reg16=1", "xreg8=1", "xxreg4=1", "reg04=1", "tun_metadata7=1"] {
        problem(&format!("{text} actions=drop"));
    }
    for text in
        ["load:1->NXM_NX_REG16[]", "set_field:1->ct_mark", "move:reg1->ct_mark", "load:1->OXM_OF_PKT_REG8[]"]
    {
        problem(&format!("actions={text}"));
    }
}

#[test]
fn parts_of_fields_are_moved() {
    let moved = |text: &str| match &rule(&format!("ip actions=move:{text}")).actions[..] {
        [Action::Move { from, to }] => (*from, *to),
        other => panic!("{other:?}"),
    };
    let part = |field, first, bits| FieldRef::new(field, first, bits).unwrap();
    let half = (part(Field::Ipv4Src, 0, 16), part(Field::Reg0, 16, 16));
    for text in ["NXM_OF_IP_SRC[0..15]->NXM_NX_REG0[16..31]", "nw_src[0..15]->reg0[16..31]"] {
        assert_eq!(moved(text), half);
    }
    assert_eq!(moved("reg5[]->xreg0[32..63]"), (Field::Reg5.into(), part(Field::XReg0, 32, 32)));
    assert_eq!(moved("nw_tos[2..7]->reg1[0..5]"), (Field::IpDscp.into(), part(Field::Reg1, 0, 6)));
    assert_eq!(moved("reg1[3]->nw_tos[7]"), (part(Field::Reg1, 3, 1), part(Field::IpDscp, 5, 1)));
    for text in ["reg0->xreg1", "reg0[0..3]->reg1[0..4]", "nw_tos[0..3]->reg1[0..3]", "reg0[32]->reg1[0]"] {
        problem(&format!("ip actions=move:{text}"));
    }
    for reference in [half.0, half.1, Field::Reg5.into(), part(Field::IpDscp, 5, 1)] {
        let action = Action::Move { from: reference, to: part(Field::XxReg0, 3, reference.bits()) };
        assert_eq!(rule(&format!("ip actions={action}")).actions, [action]);
    }
}

#[test]
fn a_vlan_tci_of_zero_is_no_tag() {
    let actions = |text: &str| rule(&format!("actions={text}")).actions;
    for text in ["set_field:0->vlan_tci", "set_field:0/0xffff->vlan_tci", "load:0->NXM_OF_VLAN_TCI[]"] {
        assert_eq!(actions(text), [Action::PopVlan], "{text}");
    }
    let tci = |form, value, mask| [set(form, Field::VlanTci, value, mask)];
    assert_eq!(actions("set_field:0x1000->vlan_tci"), tci(SetForm::SetField, 0x1000, 0xffff));
    // The bits of the VID, as in Open vSwitch: the tag stays.
    assert_eq!(actions("load:0->NXM_OF_VLAN_TCI[0..11]"), tci(SetForm::Load, 0, 0xfff));
    for text in ["set_field:5->vlan_tci", "set_field:0/0x1000->vlan_tci", "load:0->NXM_OF_VLAN_TCI[12]"] {
        assert!(problem(&format!("actions={text}")).contains("write pop_vlan"), "{text}");
    }
}

#[test]
fn what_ovs_ofctl_prints_in_capitals_is_read() {
    let actions = |text: &str| rule(&format!("actions={text}")).actions;
    for text in ["CONTROLLER:65535", "controller", "controller()", "Controller:max_len=65535"] {
        assert_eq!(actions(text), [Action::controller(65535)], "{text}");
    }
    assert_eq!(
        actions("IN_PORT,FLOOD,NORMAL,OUTPUT:2"),
        [Action::InPort, Action::Flood, Action::Normal, Action::Output(PortNo(2))]
    );
    assert_eq!(actions("DROP"), []);
}

#[test]
fn a_rule_puts_32_headers_on_a_packet_and_no_more() {
    let most = ["push_vlan:0x8100", "push_mpls:0x8847", "encap:1", "pop_vlan"].repeat(16);
    let line = |count: usize| format!("actions={}", most[..count].join(","));
    // 32 that push among 42.
    assert_eq!(rule(&line(42)).actions.len(), 42);
    assert!(problem(&line(43)).ends_with("a rule puts at most 32 headers on a packet"));
}

#[test]
fn actions_that_stand_alone_need_no_prerequisites() {
    let read = |text| read_actions(text, "`hit` of function 10", &options());
    let port =
        |form, protocol| Action::SetField { field: Field::TpDst, value: 5, mask: 0xffff, form, protocol };
    let tcp = port(SetForm::SetField, Some(6));
    assert_eq!(read("set_field:5->tcp_dst,output:2"), Ok(vec![tcp, Action::Output(PortNo(2))]));
    // As Open vSwitch prints a group's bucket.
    let bucket = "set_field:5->udp_dst,set_field:7->tcp_dst,set_field:7->sctp_src,load:0x5->udp_dst[0..7],mod_tp_dst:5,set_field:3->icmp_type,\
                  set_field:3->icmpv6_code";
    let read_back = read(bucket).unwrap();
    assert_eq!(read_back[0], port(SetForm::SetField, Some(17)));
    assert_eq!(read_back[4], port(SetForm::Own, None));
    assert_eq!(print_actions(&read_back), bucket);
    assert_eq!(read("drop"), Ok(vec![]));
    let error = read("output:2,ouput:3").unwrap_err().to_string();
    assert!(error.starts_with("`hit` of function 10:1:10: `ouput`: there is no such action"), "{error}");
    for nothing in ["", " \n", "# drop"] {
        assert!(read(nothing).is_err(), "{nothing:?}");
    }
}

#[test]
fn priorities_beyond_those_of_the_language_are_numbered_anew() {
    let rules = |priorities: &[u32]| -> Vec<Rule> {
        let rule = |(n, &priority): (usize, &u32)| Rule {
            priority: Priority(priority),
            cookie: n as u64,
            ..Rule::new(Match::any().set(Field::InPort, n as u128 + 1).clone(), Vec::new())
        };
        priorities.iter().enumerate().map(rule).collect()
    };
    let printed = |priorities: &[u32]| -> Vec<(u32, u64)> {
        let text = print_rules(&rules(priorities));
        let back = read(&text, "printed", &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        back.iter().map(|rule| (rule.priority.0, rule.cookie)).collect()
    };
    assert_eq!(printed(&[5, 65535, 5]), [(5, 0), (65535, 1), (5, 2)]);
    assert_eq!(printed(&[5, 70000, 5, 9]), [(3, 1), (2, 3), (1, 0), (1, 2)]);
    // More than there are numbers: the order of the lines decides among neighbours.
    let many: Vec<u32> = (1..=100_000).collect();
    let back = printed(&many);
    assert_eq!((back[0], back[99_999]), ((65535, 99_999), (1, 0)));
    assert!(back.is_sorted_by(|a, b| a.0 >= b.0 && a.1 > b.1));
}

/// Lines that are wrong, and parts of their errors.
const MISTAKES: &[(&str, &str)] = &[
    ("tp_dst=80 actions=drop", "tp_dst needs `tcp`, `udp` or `sctp`"),
    ("udp,tcp_flags=+syn actions=drop", "tcp_flags needs `tcp`"),
    ("tcp,tcp_flags=+syn-syn actions=drop", "this flag is there twice"),
    ("tcp,tcp_flags=syn|akc actions=drop", "one of fin, syn, rst"),
    ("udp,tp_dts=80 actions=drop", "did you mean `tp_dst`?"),
    ("tpc actions=drop", "did you mean `tcp`?"),
    ("tcp,tp_dst=70000 actions=drop", "a number from 0 to 65535"),
    ("ip,nw_dst=10.0.0.0/33 actions=drop", "a number from 0 to 32"),
    ("ip,nw_dst=10.0.0 actions=drop", "an IPv4 address as 192.0.2.1"),
    ("dl_dst=00:11:22:33:44 actions=drop", "an Ethernet address"),
    ("udp", "without `actions=`"),
    ("tcp(tp_dst=80 actions=drop", "a `(` is not closed"),
    ("actions=resubmit(,)", "one of both may be left out"),
    ("actions=resubmit(1,2,3)", "`ct` is expected"),
    ("ip,ct_state=+trk actions=resubmit(,2,ct)", "packets of connections are needed in the match"),
    ("ip,ct_state=+inv+trk actions=clone(resubmit(,2,ct))", "packets of connections are needed in the match"),
    ("actions=output:TABLE", "write `resubmit(,0)`"),
    ("actions=output:ANY", "write `drop` to drop"),
    ("actions=output:NXM_NX_REG16[]", "registers are reg0 to reg15"),
    ("actions=output(port=1,max_len=9)", "at least 14 bytes"),
    ("out_group=5 actions=drop", "only `delete` and `delete_strict`"),
    ("icmp,icmp_type=11-8 actions=drop", "write the smaller number first (8-11)"),
    ("icmp,icmp_type=0-256 actions=drop", "a number from 0 to 255"),
    ("icmp,icmp_type=1-2,icmp_type=1-2 actions=drop", "icmp_type is there twice, and with a range"),
    ("icmp,icmp_type=1-2,tp_src=7 actions=drop", "icmp_type is there twice, and with a range"),
    ("icmp6,icmp_code=7,icmp_code=1-4 actions=drop", "icmp_code is there twice, and with a range"),
    ("ip,nw_tos[2]=1 actions=drop", "takes no mask"),
    ("actions=ouput:1", "did you mean `output`?"),
    ("actions=output:nowhere", "the name of one that exists"),
    ("actions=goto_table:1,output:1", "the last action"),
    ("table=3 actions=goto_table:3", "a later table"),
    ("actions=drop,output:1", "is the only action"),
    ("actions=set_field:1->ct_state", "cannot be set"),
    ("actions=set_field:1->ct_mark", "write `ct(commit,exec(set_field:…))`"),
    ("ip actions=ct(commit,exec(set_field:1->reg0))", "sets ct_mark and ct_label only"),
    ("actions=move:reg0->dl_src", "the same width"),
    ("idle_timeout=65536 actions=drop", "a number from 0 to 65535"),
    ("out_port=5 actions=drop", "only `delete` and `delete_strict`"),
    ("actions=fin_timeout(timeout=5)", "idle_timeout or hard_timeout is expected"),
    ("ip,ct_state=+inv+trk actions=ct(commit)", "invalid packets (`+inv` in the match) begin no connection"),
    ("ct_state=+tkr actions=drop", "one of new, est, rel, rpl, inv, trk, snat, dnat is expected"),
    ("tun_metadata7=5 actions=drop", "the rule cannot be taken over"),
    ("reg16=5 actions=drop", "the key has no room for more"),
    ("priority=70000 actions=drop", "a number from 0 to 65535"),
    ("mpls,mpls_label=5/7 actions=drop", "mpls_label takes no mask"),
    ("ip,tcp_dst=80 actions=drop", "tcp_dst needs `tcp` or `tcp6` on the same line"),
    ("actions=set_field:5->tcp_dst", "tcp_dst needs `tcp` or `tcp6` in the match; add it"),
    ("tcp actions=push_mpls:0x8847,set_field:5->tcp_dst", "those in front have changed the headers"),
    ("actions=move:nw_src->reg0", "nw_src needs `ip` in the match"),
    ("actions=dec_ttl(1,x)", "a number from 0 to 65535"),
    ("actions=group:all", "a number from 0"),
    ("actions=CT(commit)", "ct needs `ip` or `ipv6` in the match"),
    ("ip actions=ct(commit,alg=ftp)", "ftp needs `tcp`"),
    ("ip actions=ct(force)", "`force` needs `commit`"),
    ("ip actions=ct(zone=reg0)", "a zone has 16 bits"),
    ("ip actions=ct(nat(src=1.2.3.4))", "add `commit`"),
    ("ip actions=ct(commit,nat(src=::1))", "not of the IP version"),
    ("ip actions=ct(commit,nat(src=1.2.3.4-1.2.3.3))", "not above the last one"),
    ("ip actions=ct(commit,nat(random))", "`src` or `dst` is expected"),
    ("ip actions=nat", "write `ct(commit,nat(…))`"),
    ("actions=learn(nw_src)", "nw_src needs `ip`"),
    ("actions=learn(table=255)", "a number from 0 to 254"),
    ("actions=learn(bogus=1)", "the name of a field is expected"),
    ("actions=learn(reg0[0..3]=16)", "a number from 0 to 15"),
    ("actions=learn(reg0=reg1[0..3])", "this has 4 bits, where 32 are learned"),
    ("actions=learn(result_dst=reg0)", "the result is one bit"),
    ("udp actions=learn(dl_type=0x800,nw_proto=17,tcp_dst=udp_src)", "tcp_dst needs `tcp`"),
    ("actions=conjunction(1,1/2),output:1", "no other action but note"),
    ("actions=conjunction(1,3/2)", "the clause is 1 to 2"),
    ("actions=conjunction(1,1/65)", "2 to 64"),
    ("actions=multipath(eth_src,1,hrw,17,0,reg0[0..3])", "4 bits do not hold the numbers of 17 links"),
    ("actions=multipath(eth_src,1,hrw,0,0,reg0)", "1 to 65536"),
    ("actions=bundle_load(eth_src,1,hrw,ofport,reg0[0..14],members:1)", "16 are needed"),
    ("actions=bundle(eth_src,1,best,ofport,members:1)", "active_backup or hrw"),
    ("actions=write_actions(output:1),output:2", "in front of write_actions"),
    ("actions=clear_actions,clear_actions", "is there twice"),
    ("actions=clone(goto_table:5)", "is in no other action"),
    ("actions=check_pkt_larger(9)->reg0", "the answer is one bit"),
    ("actions=delete_field:reg0", "only options of tunnels"),
    ("actions=controller(userdata=1)", "two hexadecimal digits"),
    ("actions=controller(reason=why)", "one of no_match"),
    ("actions=encap(vlan)", "ethernet, mpls, mpls_mc or nsh"),
    ("actions=encap(nsh(md_type=1,tlv(1,2,0x3)))", "only metadata of type 2"),
    ("actions=enqueue:1", "`enqueue:PORT:QUEUE` is expected"),
    ("actions=apply_actions(output:1)", "write the actions themselves"),
    ("actions=debug_slow", "Open vSwitch's own tests"),
    ("actions=sample(probability=1", "a `(` is not closed"),
    ("actions=push_vlan:0x800", "0x8100 or 0x88a8"),
];

#[test]
fn errors_say_what_where_and_how_to_mend_it() {
    let text = "# comment\n\nudp,tp_dst=443-80 actions=drop\n";
    let error = read(text, "acl.flows", &options()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "acl.flows:3:12: `443-80`: port range 443-80 is empty; write the smaller port first (80-443)"
    );
    assert_eq!(&text[error.errors()[0].offset..][..6], "443-80");
    for (line, part) in MISTAKES {
        let text = problem(line);
        assert!(text.contains(part), "{line}: {text}");
    }
}

#[test]
fn nothing_of_a_bad_file_is_loaded_and_all_its_errors_are_told() {
    let mut text = "actions=drop\n".repeat(3);
    text += &"nonsense\n".repeat(30);
    let errors = read(&text, "f", &options()).unwrap_err();
    assert_eq!((errors.errors().len(), errors.count()), (20, 30));
    assert!(errors.to_string().ends_with("and 10 more"));
    let few = ReadOptions { rules_max: 2, ..options() };
    assert!(read(&text, "f", &few).unwrap_err().to_string().contains("more than 2 rules"));
}

#[test]
fn formats_are_told_apart() {
    assert_eq!(detect_format("# x\n\n@1.2.3.4/32 ..."), Format::Classbench);
    assert_eq!(detect_format("tcp actions=drop"), Format::Flows);
    assert_eq!(detect_format(""), Format::Flows);
}

const MATCHES: [&str; 26] = [
    "ip",
    "ipv6",
    "tcp",
    "udp6",
    "icmp",
    "icmp6",
    "icmp_type=135",
    "icmpv6_type=136",
    "arp",
    "mpls",
    "dl_vlan=3",
    "vlan_tci=0x1000/0x1000",
    "dl_vlan=0xffff",
    "nw_tos=33",
    "ip_dscp=9",
    "ip_frag=later",
    "ip_frag=not_later",
    "tp_src=1",
    "tcp_dst=80-90",
    "nw_src=10.0.0.0/8",
    "nd_sll=00:00:00:00:00:01",
    "nd_tll=00:00:00:00:00:01",
    "word39=0x00010000/0x00030000",
    "word27=5/0xff",
    "in_port=3",
    "metadata=1/3",
];

const ACTIONS: [&str; 54] = [
    "drop",
    "output:1",
    "CONTROLLER:65535",
    "controller:9",
    "dec_ttl",
    "mod_nw_tos:64",
    "set_field:64->nw_tos",
    "set_field:9->ip_dscp",
    "load:1->nw_tos[3]",
    "load:3->NXM_OF_IP_TOS[]",
    "set_field:1->nw_ecn",
    "load:1->ip_ecn[1]",
    "mod_nw_ecn:2",
    "mod_nw_ttl:9",
    "set_field:9->nw_ttl",
    "load:1->nw_ttl[2..4]",
    "mod_vlan_vid:5",
    "mod_vlan_pcp:3",
    "set_field:3->vlan_pcp",
    "set_field:0x1005->vlan_vid",
    "set_field:5/0x505->vlan_vid",
    "set_field:5->dl_vlan",
    "load:1->dl_vlan[0..1]",
    "load:1->OXM_OF_VLAN_PCP[0]",
    "set_field:0->vlan_tci",
    "set_field:0x1005->vlan_tci",
    "set_field:5/0x5->vlan_tci",
    "push_vlan:0x8100",
    "pop_vlan",
    "push_mpls:0x8847",
    "pop_mpls:0x0800",
    "pop_mpls:0x86dd",
    "set_mpls_label(5)",
    "set_field:5->mpls_label",
    "load:1->mpls_tc[1]",
    "set_mpls_ttl:4",
    "mod_tp_dst:5",
    "set_field:5->tcp_dst",
    "set_field:5/5->tp_src",
    "load:1->NXM_OF_UDP_SRC[1..3]",
    "set_field:8->icmp_type",
    "load:1->icmpv6_code[0]",
    "mod_nw_src:1.2.3.4",
    "set_field:1.2.3.4/1.0.0.4->nw_dst",
    "set_field:::1->ipv6_src",
    "set_field:00:00:00:00:00:01->nd_tll",
    "set_field:00:00:00:00:00:01->nd_sll",
    "set_field:1->arp_op",
    "load:5->NXM_OF_ARP_SPA[]",
    "set_field:0/0->reg0",
    "move:nw_src->nw_dst",
    "move:tcp_src->tcp_dst",
    "encap:1",
    "goto_table:3",
];

#[test]
fn a_priority_that_adds_no_tag_is_printed_as_such() {
    for line in ["actions=encap:1,set_field:3->vlan_pcp", "dl_vlan=5,actions=set_field:3->vlan_pcp"] {
        let rules = read(line, "line", &ReadOptions::default()).unwrap();
        let printed = print_rules(&rules);
        assert_eq!(read(&printed, "printed", &ReadOptions::default()).as_ref(), Ok(&rules), "{printed}");
    }
}

proptest! {
    /// Whatever the reader takes, by whichever of its names, it takes again as it is printed.
    #[test]
    fn what_is_read_is_printed_and_read_alike(
        matches in prop::collection::vec(prop::sample::select(&MATCHES[..]), 0..4),
        actions in prop::collection::vec(prop::sample::select(&ACTIONS[..]), 1..5),
    ) {
        let line = format!("{} actions={}", matches.join(","), actions.join(","));
        if let Ok(rules) = read(&line, "line", &ReadOptions::default()) {
            let printed = print_rules(&rules);
            let back = read(&printed, "printed", &ReadOptions::default());
            prop_assert_eq!(back.as_ref(), Ok(&rules), "{}: {}", line, printed);
        }
    }

    #[test]
    fn garbage_makes_no_reader_panic(text in "[ -~\n\t@é]{0,200}") {
        let _ = read(&text, "garbage", &options());
        let _ = read_any(&text, "garbage", Some(Format::Classbench), &options());
        let _ = super::super::classbench::read_trace(&text, "garbage");
    }

    #[test]
    fn a_line_with_a_hole_makes_no_reader_panic(at in 0..80usize, with in "\\PC{0,3}") {
        let line = "table=1,priority=5,tcp,nw_src=10.0.0.0/8,tp_dst=1-2,tcp_flags=+syn-ack actions=set_field:1/3->reg0";
        let mut text = line.to_owned();
        text.replace_range(at..at + 1, &with);
        let _ = read(&text, "hole", &options());
        let filter = "@10.0.0.0/8\t192.0.2.1/32\t0 : 65535\t80 : 90\t0x06/0xFF\t0x0200/0x1200\t";
        let mut text = filter.to_owned();
        text.replace_range(at.min(60)..at.min(60) + 1, &with);
        let _ = read_any(&text, "hole", None, &options());
    }
}

#[test]
fn examples_of_actions_are_read_and_print_as_themselves() {
    for (group, actions) in super::ACTIONS {
        for action in *actions {
            let read = rule(action.example);
            let of = |name: &&str| {
                ["=", ",", "("].iter().any(|before| action.example.contains(&format!("{before}{name}")))
            };
            assert!(action.names.iter().any(of), "{group}: {}", action.example);
            assert_eq!(rule(&print_rule(&read)), read, "{}", action.example);
        }
    }
}
