//! What Open vSwitch prints and reads beyond one plain flow, and hints.

use super::*;

#[test]
fn a_hint_names_no_other_field() {
    for name in ["reg16", "xreg8", "xxreg4", "tun_metadata7", "tcp_seq", "ip_len", "ipv6_exthdr", "ipv4"] {
        for line in [format!("{name}=1 actions=drop"), format!("actions=set_field:1->{name}")] {
            let text = problem(&line);
            assert!(!text.contains("did you mean"), "{line}: {text}");
        }
    }
    assert!(problem("ipv4 actions=drop").ends_with("such as `tcp` is expected"));
}

#[test]
fn a_file_of_another_kind_is_one_error() {
    for (text, kind) in [
        (
            "[[port]]\nnumber = 1\n\n[[table]]\nnumber = 0\n",
            "it looks like TOML, as a switch's configuration",
        ),
        ("<html>\n<body>\n</html>\n", "it looks like XML or HTML"),
        ("{\n\"rules\": [\n]\n}\n", "it looks like JSON"),
        ("Dear all,\nfind attached\n", "is it a file of rules?"),
    ] {
        let errors = read(text, "f", &options()).expect_err("no flows");
        assert_eq!((errors.errors().len(), errors.count(), errors.errors()[0].line), (1, 1, 1), "{errors}");
        assert!(errors.to_string().contains(kind), "{errors}");
    }
    // Different mistakes, or one among flows that are right, are each reported.
    assert_eq!(read("tcp\nactions=ouput:1\n", "f", &options()).expect_err("wrong").count(), 2);
    assert_eq!(read("actions=drop\ntcp\nudp\n", "f", &options()).expect_err("wrong").count(), 2);
}

#[test]
fn comments_byte_order_marks_and_colons_are_read() {
    let text = "\u{feff}priority=5,tcp,actions=drop  # no web\n # all of it\npriority=1,actions=\"uplink\" # \"the rest\r\n";
    let rules = read(text, "t", &options()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((rules.len(), &rules[1].actions[..]), (2, &[Action::Output(PortNo(7))][..]));
    let error = read("\u{feff}tcp,tp_dts=1 actions=drop", "t", &options()).expect_err("a mistake");
    assert_eq!((error.errors()[0].column, error.errors()[0].offset), (5, 7));
    assert_eq!(detect_format("\u{feff}@1.2.3.4/32 ..."), Format::Classbench);
    let named = ReadOptions { ports: &|name| (name == "a#b,c").then_some(PortNo(3)), ..options() };
    let hash = read("in_port=\"a#b,c\" actions=\"a#b,c\",output:\"a#b,c\"", "t", &named);
    assert_eq!(hash.unwrap_or_else(|e| panic!("{e}"))[0].actions, [const { Action::Output(PortNo(3)) }; 2]);

    let colons = "in_port:2,ip,nw_dst:192.0.2.3,actions=mod_nw_dst:192.0.2.4,output:1";
    let equals = "in_port=2,ip,nw_dst=192.0.2.3,actions=mod_nw_dst:192.0.2.4,output:1";
    assert_eq!(rule(colons), rule(equals));
    assert_eq!(rule(&colons.replace("in_port:2,ip", "in_port(2) ip()")), rule(equals));
    let addresses = "ipv6,ipv6_src:::1,dl_src:00:00:00:00:00:01,table(3),priority:9 actions=drop";
    let rule = rule(addresses);
    assert_eq!((rule.table, rule.priority, rule.matches.get(Field::Ipv6Src).0), (3, Priority(9), 1));
}

#[test]
fn a_later_flow_takes_the_place_of_its_like() {
    let text = "priority=5,udp,actions=drop\nudp,actions=1\nudp,priority=5,cookie=7 actions=2\ntable=1,priority=5,udp,actions=3\n\
                priority=5,dl_type=0x800,nw_proto=17 actions=4";
    let rules = read(text, "t", &options()).unwrap_or_else(|e| panic!("{e}"));
    let outputs: Vec<_> = rules.iter().map(|rule| print_actions(&rule.actions)).collect();
    assert_eq!(outputs, ["output:4", "output:1", "output:3"]);
    // Of a list where the first of equals wins, the first is printed.
    let equals = [rule("udp actions=1"), rule("udp actions=2")];
    assert_eq!(print_rules(&equals).lines().count(), 1);
}

#[test]
fn reserved_ports_are_read() {
    let actions = |text: &str| rule(&format!("actions={text}")).actions;
    for (text, same) in [
        ("output:CONTROLLER", "controller"),
        ("output(controller)", "controller"),
        ("output:IN_PORT", "in_port"),
        ("output:NORMAL,output:flood,output:ALL", "normal,flood,all"),
        ("output:LOCAL", "local"),
        ("resubmit(in_port,2)", "resubmit(,2)"),
        ("resubmit(5)", "resubmit:5"),
        ("output=2,output:4294967294", "2,LOCAL"),
        ("output:in_port[0..15]", "output:NXM_OF_IN_PORT[]"),
        ("", "drop"),
        (",output:1,", "1"),
    ] {
        assert_eq!(actions(text), actions(same), "{text}");
    }
    assert_eq!(print_actions(&actions("output:NXM_OF_IN_PORT[],output:in_port")), "output:in_port[],in_port");
    assert_eq!(
        rule("in_port=LOCAL actions=local").to_string(),
        "table=0,priority=32768,in_port=LOCAL actions=LOCAL"
    );
    let own = ReadOptions { ports: &|name| (name == "LOCAL").then_some(PortNo(4)), ..options() };
    let rules = read("in_port=LOCAL actions=LOCAL,output:LOCAL", "t", &own).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(rules[0].actions, [const { Action::Output(PortNo(4)) }; 2]);
    assert_eq!(rule("in_port=ANY actions=drop"), rule("in_port=65535 actions=drop"));
}

#[test]
fn ranges_of_icmp_types_and_parts_of_fields_are_matched() {
    let rules = |line: &str| read(line, "t", &options()).unwrap_or_else(|e| panic!("{e}"));
    let one = rules("icmp,icmp_type=8-11,icmp_code=0 actions=drop");
    assert_eq!((one.len(), one[0].matches.get(Field::IcmpType)), (1, (8, 0xfc)));
    assert_eq!(one[0].to_string(), "table=0,priority=32768,icmp,icmp_type=8-11,icmp_code=0 actions=drop");
    for (line, low, high) in [
        ("icmp,icmp_type=3-12 actions=drop", 3, 12),
        ("icmp6,tp_src=0-255 actions=drop", 0, 255),
        ("icmp6,icmpv6_type=133-137 actions=drop", 133, 137),
    ] {
        let rules = rules(line);
        for kind in 0..=255 {
            let mut key = rules[0].matches.key();
            key.set(Field::IcmpType, kind);
            let hits = rules.iter().filter(|rule| rule.matches.matches(&key)).count();
            assert_eq!(hits, usize::from((low..=high).contains(&kind)), "{line}: {kind}");
        }
    }
    let changes =
        read_changes("delete icmp,icmp_type=3-12", "t", &options()).unwrap_or_else(|e| panic!("{e}"));
    assert!(changes.len() > 1 && changes.iter().all(|change| change.command == Command::Delete));
    // 14 blocks of types times 14 of codes are the most; their actions are bounded.
    let most = |actions: &str| format!("icmp,icmp_type=1-254,icmp_code=1-254 actions={actions}");
    assert_eq!(rules(&most("drop")).len(), 196);
    for command in ["", "modify "] {
        let line = command.to_owned() + &most(&"output:1,".repeat(1000));
        let error = read_changes(&line, "t", &options()).expect_err("long").to_string();
        assert!(error.contains("the ranges make 196 rules of this line: their actions may have 5349 bytes"));
    }
    let m = |line: &str| rule(&format!("{line} actions=drop")).matches;
    assert_eq!(m("reg0[4..7]=5").get(Field::Reg0), (0x50, 0xf0));
    assert_eq!(m("xxreg3[0..0]=1"), m("reg15=1/1"));
    assert_eq!(m("tcp,NXM_OF_TCP_DST[0..3]=2").get(Field::TpDst), (2, 0xf));
}

#[test]
fn the_tos_is_the_dscp_and_leaves_ecn_alone() {
    let dscp = |line: &str| rule(&format!("{line} actions=drop")).matches.get(Field::IpDscp);
    // As ovs-ofctl reads and prints them: nw_tos=33 is nw_tos=32.
    for line in [
        "ip,nw_tos=32",
        "ip,nw_tos=33",
        "ip,nw_tos=0x20",
        "ip,nw_tos=32/0xfc",
        "ip,nw_tos[]=32",
        "ip,nw_tos[]=33",
        "ip,nw_tos[0..7]=32",
        "ip,nw_tos[2..7]=8",
        "ip,NXM_OF_IP_TOS[]=32",
        "ip,ip_dscp=8",
        "ip,ip_dscp[]=8",
        "ip,OXM_OF_IP_DSCP[]=8",
    ] {
        assert_eq!(dscp(line), (8, 0x3f), "{line}");
        assert!(rule(&format!("{line} actions=drop")).to_string().ends_with(",ip,nw_tos=32 actions=drop"));
    }
    let mut packet = rule("ip,nw_tos=32 actions=drop").matches.key();
    packet.set(Field::IpEcn, 1);
    assert!(rule("ip,nw_tos=32 actions=drop").matches.matches(&packet), "TOS 33");

    let actions = |text: &str| rule(&format!("ip actions={text}")).actions;
    for (text, form, printed) in [
        ("mod_nw_tos:64", SetForm::Own, "mod_nw_tos:64"),
        ("set_field:64->nw_tos", SetForm::SetField, "set_field:64->nw_tos"),
        ("set_field:16->ip_dscp", SetForm::SetField, "set_field:64->nw_tos"),
        ("load:64->NXM_OF_IP_TOS[]", SetForm::Load, "load:0x40->nw_tos"),
        ("load:65->NXM_OF_IP_TOS[]", SetForm::Load, "load:0x40->nw_tos"),
        ("load:16->NXM_OF_IP_TOS[2..7]", SetForm::Load, "load:0x40->nw_tos"),
        ("load:16->OXM_OF_IP_DSCP[]", SetForm::Load, "load:0x40->nw_tos"),
    ] {
        let whole = [set(form, Field::IpDscp, 16, 0x3f)];
        assert_eq!(actions(text), whole, "{text}");
        assert_eq!(print_actions(&whole), printed);
    }
    let part = actions("load:3->nw_tos[3..4]");
    assert_eq!(part, [set(SetForm::Load, Field::IpDscp, 6, 6)]);
    assert_eq!(print_actions(&part), "load:0x3->nw_tos[3..4]");
    assert_eq!(print_value(Field::IpDscp, 8), "nw_tos=32");
    for (text, part) in [
        ("ip actions=set_field:65->nw_tos", "the two low bits of the TOS are ECN's"),
        ("ip actions=mod_nw_tos:65", "use mod_nw_ecn"),
        ("ip actions=load:1->NXM_OF_IP_TOS[0..1]", "load them into nw_ecn"),
        ("ip,nw_tos=32/0xf0 actions=drop", "nw_tos takes no mask"),
    ] {
        assert!(problem(text).contains(part), "{text}: {}", problem(text));
    }
}

#[test]
fn a_later_value_of_a_field_replaces_an_earlier_one_with_its_mask() {
    let m = |line: &str| rule(&format!("{line} actions=drop")).matches;
    for (twice, once) in [
        ("ip,nw_src=1.2.3.4,nw_src=1.0.0.0/8", "ip,nw_src=1.0.0.0/8"),
        ("tcp,tp_src=7,tp_dst=5,tp_dst=8/8", "tcp,tp_src=7,tp_dst=8/8"),
        ("tcp,tp_src=1-3,tp_dst=5,tp_dst=8/8", "tcp,tp_src=1-3,tp_dst=8/8"),
        ("reg0=1,xxreg0=0/0xf", "reg3=0/0xf"),
        ("dl_vlan=5,vlan_tci=0x1000/0x1000", "vlan_tci=0x1000/0x1000"),
        ("dl_vlan=5,vlan_vid=0x1000/0x1000", "vlan_tci=0x1000/0x1000"),
        ("dl_vlan=5,dl_vlan=0xffff", "dl_vlan=0xffff"),
        ("dl_vlan_pcp=3,dl_vlan=5", "vlan_tci=0x7005/0xffff"),
        ("reg0=5,reg0[0]=0", "reg0=4"),
    ] {
        assert_eq!(m(twice), m(once), "{twice}");
    }
}

#[test]
fn the_bits_of_a_key_are_told_by_the_names_of_its_fields() {
    let mut key = rule("udp,nw_dst=192.0.2.7,tp_dst=53 actions=drop").matches.key();
    key.set(Field::InPort, 3);
    let bits = |fields: &[(Field, u128)]| {
        let mut mask = crate::packet::key::FlowMask::zero();
        fields.iter().for_each(|(field, bits)| mask.set(*field, *bits));
        print_key(&key, &mask)
    };
    assert_eq!(bits(&[(Field::NwProto, 0xff)]), "nw_proto=17");
    assert_eq!(
        bits(&[(Field::EthType, 0xffff), (Field::NwProto, 0xff), (Field::NwTtl, 0x0f)]),
        "udp,nw_ttl=0/0xf"
    );
    assert_eq!(
        bits(&[(Field::Ipv4Dst, 0xffff_0000), (Field::InPort, 1)]),
        "in_port=1/0x1,nw_dst=192.0.0.0/16"
    );
    assert_eq!(bits(&[(Field::IcmpType, 0xff), (Field::VlanTci, 0x1000)]), "vlan_tci=0x0/0x1000,icmp_type=0");
    assert_eq!(bits(&[(Field::IpFrag, 1), (Field::IpDscp, 0x30)]), "nw_tos=0/192,ip_frag=0/1");
    assert_eq!(bits(&[(Field::NdOptions, 1)]), "nd_options=0/0x1");
    for info in Field::named() {
        assert!(!bits(&[(info.field, info.ones())]).contains("word"), "{}", info.name);
    }
}

#[test]
fn an_entry_is_matches_and_perhaps_a_timeout() {
    let read = |text: &str| read_entries(text, "entries", &options());
    let text = "\u{feff}# none\n\n  tcp , timeout=7 # why\ntimeout:8,udp\ntcp\n";
    let entries = read(text).expect("all lines are right");
    let seen: Vec<_> = entries.iter().map(|entry| (entry.timeout_s, &text[entry.part.clone()])).collect();
    assert_eq!(seen, [(7, "tcp , timeout=7"), (8, "timeout:8,udp"), (0, "tcp")]);
    assert_eq!(entries[0].matches, entries[2].matches);
    for (wrong, problem) in [
        ("icmp,icmp_type=1-3", "one value for each field"),
        ("NXST_FLOW reply (xid=0x4):", "is expected"),
        ("tcp,timeout=x", "`x`"),
        ("tcp,timeout", "`timeout=NUMBER` is expected"),
        ("tcp,actions=drop", "no actions"),
        ("tcp priority:7", "`priority` is for rules"),
        ("tcp,table(3)", "`table` is for rules"),
        ("tcp,send_flow_rem", "`send_flow_rem` is for rules"),
        ("tcp,importance=3", "`importance` is for rules"),
        ("tcp,idle_timeout=3", "`idle_timeout` is for rules"),
        ("tcp,tun_metadata9=1", "cannot be taken over"),
    ] {
        let found = read(wrong).expect_err(wrong).to_string();
        assert!(found.contains(problem), "{wrong}: {found}");
    }
}

#[test]
fn what_ovs_ofctl_prints_of_other_fields_is_read() {
    for (printed, written) in [
        ("recirc_id=0x1,eth,ip", "recirc_id=1,ip"),
        ("gtpu_flags=0x1,gtpu_msgtype=2", "tun_gtpu_flags=1,tun_gtpu_msgtype=2"),
        ("tcp,tcp_flags=fin|ns|[200]|[800]", "tcp,tcp_flags=0xb01"),
        ("tcp,tcp_flags=-ns+[400]", "tcp,tcp_flags=0x400/0x500"),
    ] {
        let matches = |text: &str| rule(&format!("{text},actions=drop")).matches;
        assert_eq!(matches(printed), matches(written), "{printed}");
    }
}

#[test]
fn fields_of_connections_tunnels_and_packets_are_matched() {
    let m = |line: &str| rule(&format!("{line} actions=drop")).matches;
    assert_eq!(m("ct_state=+trk-new").get(Field::CtState), (0x20, 0x21));
    assert_eq!(m("ct_state=new|trk").get(Field::CtState), (0x21, u128::from(u32::MAX)));
    assert_eq!(m("ct_state=+trk-new").to_string(), "ct_state=-new+trk");
    assert_eq!(m("ct_label=5/0xf").get(Field::CtLabel), (5, 0xf));
    assert_eq!(m("tun_flags=+oam").get(Field::TunFlags), (0x80, 0x80));
    // Of a packet with the option, whatever its value; and of one with this value.
    assert_eq!(m("tun_metadata2").get(Field::TunMetadataPresent), (4, 4));
    assert_eq!(m("tun_metadata2").to_string(), "tun_metadata2");
    let with_value = m("tun_metadata2=0x5/0xf");
    assert_eq!(with_value.get(Field::TunMetadata2), (5, 0xf));
    assert_eq!(with_value.get(Field::TunMetadataPresent), (4, 4));
    assert_eq!(with_value.to_string(), "tun_metadata2=0x5/0xf");
    // All packets have an Ethernet header.
    assert_eq!(m("packet_type=(0,0)").get(Field::PacketType), (0, 0xffff_ffff));
    let bare = m("packet_type=(1,0x800),nw_dst=192.0.2.1");
    assert_eq!(bare.get(Field::PacketType).0, 0x1_0800);
    assert_eq!(bare.to_string(), "nw_dst=192.0.2.1,packet_type=(1,0x800)");
    assert_eq!(m("dl_type=0x894f,nsh_spi=0x1234").get(Field::NshSpi).0, 0x1234);
    assert!(problem("nsh_spi=1 actions=drop").contains("needs `dl_type=0x894f`"));
    for (name, same) in [
        ("NXM_NX_REG3[4..7]=5", "reg3=0x50/0xf0"),
        ("NXM_NX_CT_MARK=5", "ct_mark=5"),
        ("OXM_OF_METADATA=5/7", "metadata=5/7"),
        ("NXM_OF_IN_PORT=3", "in_port=3"),
        ("in_port[]=3", "in_port_oxm=3"),
        ("actset_output=unset", "actset_output=0xfff7"),
        ("dl_vlan=0xffff", "vlan_tci=0"),
    ] {
        assert_eq!(m(name), m(same), "{name}");
    }
}

#[test]
fn ports_have_other_names_in_actions_by_their_protocol() {
    for (line, actions) in [
        ("tcp actions=set_field:5->tcp_dst", "set_field:5->tp_dst"),
        ("udp actions=move:udp_src->udp_dst", "move:udp_src->udp_dst"),
        ("sctp6 actions=load:5->sctp_src", "load:0x5->sctp_src"),
        ("icmp6 actions=set_field:5->icmpv6_type", "set_field:5->icmpv6_type"),
        ("udp actions=clone(set_field:5->udp_dst)", "clone(set_field:5->udp_dst)"),
        ("dl_vlan=5 actions=load:3->vlan_pcp", "load:0x3->vlan_pcp"),
        (
            "tcp actions=learn(dl_type=0x800,nw_proto=17,udp_dst=tcp_src)",
            "learn(table=1,dl_type=0x800,nw_proto=17,udp_dst=tp_src)",
        ),
    ] {
        let rule = rule(line);
        assert!(rule.to_string().ends_with(&format!("actions={actions}")), "{rule}");
        assert_eq!(read(&rule.to_string(), "printed", &options()), Ok(vec![rule]));
    }
}
