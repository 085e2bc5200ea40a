//! Flows that are accepted and refused, compared with Open vSwitch 3.1's `ovs-ofctl`: recorded here, and checked again where the
//! program is installed.

use std::process::{Command, Stdio};

use super::super::read;
use super::options;
use crate::packet::fields::{Field, Prerequisite};

/// Returns whether `ovs-ofctl` takes a flow; none where it is not installed.
fn theirs(line: &str) -> Option<bool> {
    let mut command = Command::new("ovs-ofctl");
    let silent = command.args(["parse-flow", line]).stdout(Stdio::null()).stderr(Stdio::null());
    // Under qemu's user emulation a program that is not there is one that ends with 127.
    silent.status().ok().filter(|status| status.code() != Some(127)).map(|status| status.success())
}

fn ours(line: &str) -> bool {
    read(line, "t.flows", &options()).is_ok()
}

/// Both must do with each line as is written down.
#[track_caller]
fn compare<'a>(lines: impl IntoIterator<Item = (&'a str, bool)>) {
    let installed = theirs("actions=drop").is_some();
    if !installed {
        println!("skipped: ovs-ofctl is not installed; compared with what it said once");
    }
    for (line, accepted) in lines {
        assert_eq!(ours(line), accepted, "here: {line}");
        assert!(!installed || theirs(line) == Some(accepted), "ovs-ofctl: {line}");
    }
}

#[test]
fn what_ovs_ofctl_refuses_is_refused() {
    compare([
        ("priority=65535 actions=drop", true),
        ("priority=65536 actions=drop", false),
        ("priority=70000 actions=drop", false),
        ("ip,nw_tos=32 actions=drop", true),
        ("ip,nw_tos=33 actions=drop", true),
        ("ip,nw_tos=256 actions=drop", false),
        ("ip,nw_tos=32/0xf0 actions=drop", false),
        ("ip,nw_tos[]=252 actions=drop", true),
        ("ip,nw_tos[]=256 actions=drop", false),
        ("ip,ip_dscp=8 actions=drop", true),
        ("ip actions=mod_nw_tos:64", true),
        ("ip actions=mod_nw_tos:65", false),
        ("ip actions=set_field:64->nw_tos", true),
        ("ip actions=set_field:65->nw_tos", false),
        ("ip actions=set_field:64/0xf0->nw_tos", false),
        ("ip actions=set_field:16->ip_dscp", true),
        ("ip actions=load:64->NXM_OF_IP_TOS[]", true),
        ("ip actions=load:6->NXM_OF_IP_TOS[2..7]", true),
        ("ip actions=load:65->NXM_OF_IP_TOS[]", true),
        ("ip,ip_frag=1 actions=drop", false),
        ("ip,ip_frag=1/1 actions=drop", false),
        ("actions=CONTROLLER:65535", true),
        ("actions=controller()", true),
        ("actions=DROP", true),
        ("actions=OUTPUT:3", true),
        ("actions=dec_ttl()", true),
        ("dl_vlan=5/1 actions=drop", false),
        ("actions=set_field:0->vlan_tci", true),
        ("actions=load:0->NXM_OF_VLAN_TCI[]", true),
        ("priority=65535,actions=", true),
        ("actions=,output:1,", true),
        ("in_port:2,ip,nw_dst:192.0.2.3,actions=mod_nw_dst:192.0.2.4,output:1", true),
        ("in_port(2),ip(),nw_dst(192.0.2.3) actions=drop", true),
        ("actions=output:CONTROLLER", true),
        ("actions=output(IN_PORT),output:NORMAL,output:all", true),
        ("in_port=LOCAL actions=LOCAL", true),
        ("in_port=ANY actions=drop", true),
        ("actions=output:ANY", false),
        ("actions=output:TABLE:1", false),
        ("actions=output:1,resubmit(,2)", true),
        ("actions=set_tunnel:5,set_tunnel64:6", true),
        ("send_flow_rem,actions=drop", true),
        ("importance=5,actions=drop", true),
        ("reg0[4..7]=5,xxreg3[0..0]=1 actions=drop", true),
        ("tun_metadata99=1 actions=drop", false),
        ("tcp,udp,actions:drop", false),
        ("actions=clone(conjunction(1,1/2),note:01)", true),
        ("actions=clone(conjunction(1,1/2),output:2)", false),
        ("actions=push:reg0,pop:ct_mark", true),
        ("actions=load:1->ct_mark[]", false),
        ("actions=learn(load:1->ct_mark[])", true),
        ("actions=write_metadata:0xff/0xf", true),
    ]);
}

#[test]
fn metadata_outside_of_its_mask_is_listed_as_it_was_given() {
    let rules = read("actions=write_metadata:0xff/0xf", "t.flows", &options()).unwrap();
    assert!(rules[0].to_string().ends_with("actions=write_metadata:0xff/0xf"), "{}", rules[0]);
}

/// `ovs-ofctl` reads the rules that are printed for it.
#[test]
fn what_is_converted_is_read_there() {
    let text = [
        "tcp,tp_dst=100-200,tp_src=1024-65535 actions=drop",
        "ip,tp_dst=0-1023,in_port=LOCAL actions=normal",
        "icmp,icmp_type=3-12 actions=output:LOCAL",
        "ip,word39=0x04000000/0xfc000000 actions=controller",
    ];
    let rules = read(&text.join("\n"), "t.flows", &options()).unwrap_or_else(|e| panic!("{e}"));
    for line in super::super::print_openflow_rules(&rules, 10_000).unwrap().lines() {
        assert!(ours(line) && theirs(line) != Some(false), "{line}");
    }
}

#[test]
fn actions_need_what_their_fields_need() {
    compare([
        ("tcp actions=set_field:5->tcp_dst", true),
        ("tcp6 actions=load:5->NXM_OF_TCP_DST[]", true),
        ("actions=set_field:5->tcp_dst", false),
        ("ip actions=set_field:5->tcp_dst", false),
        ("udp actions=set_field:5->tcp_dst", false),
        ("udp actions=load:5->NXM_OF_TCP_DST[]", false),
        ("udp actions=load:5->OXM_OF_UDP_DST[]", true),
        ("tcp,ip_frag=first actions=set_field:5->tcp_dst", true),
        ("tcp,ip_frag=later actions=set_field:5->tcp_dst", false),
        ("ip actions=set_field:5->tp_dst", false),
        ("icmp actions=set_field:5->icmp_type", true),
        ("icmp actions=set_field:5->icmpv6_type", false),
        ("icmp6 actions=set_field:5->icmpv6_type", true),
        ("icmp6,icmp_type=136 actions=set_field:00:00:00:00:00:01->nd_sll", false),
        ("icmp6,icmp_type=136 actions=set_field:00:00:00:00:00:01->nd_tll", true),
        ("icmp6,icmp_type=135 actions=load:1->ERICOXM_OF_ICMPV6_ND_RESERVED[30..31]", true),
        ("icmp6,icmp_type=136 actions=move:ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE[]->reg0[0..7]", true),
        ("icmp6 actions=set_field:1->nd_reserved", false),
        ("icmp6,icmp_type=134 actions=set_field:1->nd_options_type", false),
        ("ip actions=move:nw_src->nw_dst", true),
        ("actions=move:nw_src->nw_dst", false),
        ("actions=move:nw_src->reg0", false),
        ("arp actions=move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]", true),
        // The actions of OpenFlow 1.0 need nothing.
        ("actions=mod_tp_dst:5", true),
        ("actions=mod_nw_src:1.2.3.4", true),
        ("actions=mod_nw_tos:64", true),
        ("actions=mod_vlan_pcp:3", true),
        ("actions=set_mpls_label:5", true),
        ("actions=dec_ttl", true),
        // What actions in front have done.
        ("actions=set_field:3->vlan_pcp", false),
        ("dl_vlan=3 actions=set_field:3->vlan_pcp", true),
        ("vlan_tci=0x1000/0x1000 actions=set_field:5->vlan_vid", true),
        ("actions=mod_vlan_vid:5,set_field:5->vlan_pcp", true),
        ("actions=load:1->NXM_OF_VLAN_TCI[12],set_field:5->vlan_pcp", true),
        ("dl_vlan=5 actions=pop_vlan,set_field:5->vlan_pcp", false),
        ("dl_vlan=5 actions=set_field:0->vlan_tci,set_field:5->vlan_pcp", false),
        ("tcp actions=push_mpls:0x8847,set_field:5->mpls_label", true),
        ("tcp actions=push_mpls:0x8847,set_field:5->tcp_dst", false),
        ("tcp actions=push_mpls:0x8847,pop_mpls:0x0800,set_field:5->tcp_dst", false),
        ("mpls actions=pop_mpls:0x0800,dec_ttl,set_field:9.9.9.9->nw_dst,output:2", true),
        ("mpls actions=pop_mpls:0x0800,set_field:5->tcp_dst", false),
    ]);
}

/// Where we differ on purpose: the flow, what ovs-ofctl does, what we do.
#[test]
fn differences_from_ovs_ofctl_are_these() {
    let differences = [
        // Without its prerequisite the field would be dropped there, with a warning, and the flow match more.
        ("tcp_dst=80 actions=drop", true, false),
        ("ip,tcp_dst=80 actions=drop", true, false),
        ("tcp,udp_dst=80 actions=drop", true, false),
        // There, `tp_dst` is `tcp_dst`, and `icmp_type` is ICMPv4's.
        ("udp actions=set_field:5->tp_dst", false, true),
        ("icmp6 actions=set_field:5->icmp_type", false, true),
        // A tag or none? Undefined there (ovs-fields(7): without CFI the rest should be 0).
        ("actions=set_field:5->vlan_tci", true, false),
        ("actions=set_field:0/0x1000->vlan_tci", true, false),
        ("actions=load:0->NXM_OF_VLAN_TCI[12]", true, false),
        // ECN is no part of the field: nothing would happen.
        ("ip actions=load:1->NXM_OF_IP_TOS[0..1]", true, false),
        // Values that do not fit, of which bits would be cut off.
        ("ip,ip_dscp=64 actions=drop", true, false),
        // What we do not have.
        ("tun_metadata7=1 actions=drop", true, false),
        ("actions=debug_slow", true, false),
        ("actions=output:TABLE", true, false),
        ("actions=learn(priority=70000)", true, false),
        // What only we have.
        ("icmp,icmp_type=8-9 actions=drop", false, true),
        ("tcp,tp_dst=8-10 actions=drop", false, true),
        ("ip actions=move:nw_tos->nw_ttl", true, false),
    ];
    for (line, accepted_there, accepted) in differences {
        assert_eq!(ours(line), accepted, "here: {line}");
        assert!(theirs(line).is_none_or(|there| there == accepted_there), "ovs-ofctl: {line}");
    }
}

/// Fields by every name: a base that has them, a value, a value with a mask; whether the field takes a mask, whether it
/// may be set.
const FIELDS: [(&str, &str, &str, &str, bool, bool); 77] = [
    ("metadata", "", "1", "1/1", true, true),
    ("tun_id", "", "1", "1/1", true, true),
    ("tunnel_id", "", "1", "1/1", true, true),
    ("tun_src", "", "1.2.3.4", "1.2.3.4/1.2.3.5", true, true),
    ("tun_dst", "", "1.2.3.4", "1.2.3.4/1.2.3.5", true, true),
    ("tun_ipv6_src", "", "::1", "::1/::1", true, true),
    ("tun_ipv6_dst", "", "::1", "::1/::1", true, true),
    ("tun_gbp_id", "", "1", "1/1", true, true),
    ("tun_gbp_flags", "", "1", "1/1", true, true),
    ("tun_metadata0", "", "1", "1/1", true, true),
    ("dl_dst", "", "00:00:00:00:00:01", "00:00:00:00:00:01/00:00:00:00:00:01", true, true),
    ("eth_src", "", "00:00:00:00:00:01", "00:00:00:00:00:01/00:00:00:00:00:01", true, true),
    ("vlan_tci", "", "0x1001", "0x1/0x1", true, true),
    ("dl_vlan", "", "1", "1/1", false, true),
    ("dl_vlan_pcp", "", "1", "1/1", false, true),
    ("vlan_vid", "vlan_tci=0x1000/0x1000", "0x1001", "0x1001/0x1001", true, true),
    ("vlan_pcp", "vlan_tci=0x1000/0x1000", "1", "1/1", false, true),
    ("dl_type", "", "0x0800", "0x0800/0x0800", false, false),
    ("mpls_label", "mpls", "1", "1/1", false, true),
    ("mpls_tc", "mplsm", "1", "1/1", false, true),
    ("mpls_bos", "mpls", "1", "1/2", false, false),
    ("mpls_ttl", "mpls", "1", "1/1", false, true),
    ("ipv6_src", "ipv6", "::1", "::1/::1", true, true),
    ("ipv6_dst", "udp6", "::1", "::1/::1", true, true),
    ("ipv6_label", "ipv6", "1", "1/1", true, true),
    ("tcp_src", "tcp", "1", "1/1", true, true),
    ("tcp_dst", "tcp6", "1", "1/1", true, true),
    ("udp_src", "udp", "1", "1/1", true, true),
    ("udp_dst", "udp6", "1", "1/1", true, true),
    ("sctp_src", "sctp", "1", "1/1", true, true),
    ("sctp_dst", "sctp6", "1", "1/1", true, true),
    ("tp_src", "tcp", "1", "1/1", true, true),
    ("tp_dst", "tcp6", "1", "1/1", true, true),
    ("nw_proto", "ip", "6", "6/6", false, false),
    ("nw_tos", "ip", "4", "4/4", false, true),
    ("ip_dscp", "ipv6", "1", "1/1", false, true),
    ("nw_ecn", "ip", "1", "1/1", false, true),
    ("ip_ecn", "ipv6", "1", "1/1", false, true),
    ("nw_ttl", "tcp6", "1", "1/1", false, true),
    ("ip_frag", "ip", "yes", "1/1", false, false),
    ("nw_src", "ip", "1.2.3.4", "1.2.3.4/1.2.3.5", true, true),
    ("ip_dst", "tcp", "1.2.3.4", "1.2.3.4/1.2.3.5", true, true),
    ("arp_spa", "arp", "1.2.3.4", "1.2.3.4/1.2.3.5", true, true),
    ("arp_tpa", "rarp", "1.2.3.4", "1.2.3.4/1.2.3.5", true, true),
    ("arp_op", "arp", "1", "1/1", false, true),
    ("arp_sha", "arp", "00:00:00:00:00:01", "00:00:00:00:00:01/00:00:00:00:00:01", true, true),
    ("arp_tha", "arp", "00:00:00:00:00:01", "00:00:00:00:00:01/00:00:00:00:00:01", true, true),
    ("icmp_type", "icmp", "8", "8/8", false, true),
    ("icmp_code", "icmp", "1", "1/1", false, true),
    ("icmpv6_type", "icmp6", "135", "1/1", false, true),
    ("nd_sll", "icmp6,icmp_type=135", "00:00:00:00:00:01", "00:00:00:00:00:01/00:00:00:00:00:01", true, true),
    ("nd_tll", "icmp6,icmp_type=136", "00:00:00:00:00:01", "00:00:00:00:00:01/00:00:00:00:00:01", true, true),
    ("nd_target", "icmp6,icmp_type=135", "::1", "::1/::1", true, true),
    ("nd_reserved", "icmp6,icmp_type=136", "1", "1/1", false, true),
    ("nd_options_type", "icmp6,icmp_type=135", "1", "1/1", false, true),
    ("pkt_mark", "", "1", "1/1", true, true),
    ("reg0", "", "1", "1/1", true, true),
    ("nsh_flags", "dl_type=0x894f", "1", "1/1", true, true),
    ("nsh_ttl", "dl_type=0x894f", "1", "1/1", false, true),
    ("nsh_mdtype", "dl_type=0x894f", "1", "1/1", false, false),
    ("nsh_np", "dl_type=0x894f", "1", "1/1", false, false),
    ("nsh_spi", "dl_type=0x894f", "1", "1/1", false, true),
    ("nsh_si", "dl_type=0x894f", "1", "1/1", false, true),
    ("nsh_c1", "dl_type=0x894f", "1", "1/1", true, true),
    ("nsh_c2", "dl_type=0x894f", "1", "1/1", true, true),
    ("nsh_c3", "dl_type=0x894f", "1", "1/1", true, true),
    ("nsh_c4", "dl_type=0x894f", "1", "1/1", true, true),
    ("tun_erspan_ver", "", "1", "1/1", true, true),
    ("tun_erspan_idx", "", "1", "1/1", true, true),
    ("tun_erspan_dir", "", "1", "1/1", true, true),
    ("tun_erspan_hwid", "", "1", "1/1", true, true),
    ("tun_metadata1", "", "1", "1/1", true, true),
    ("tun_metadata2", "", "1", "1/1", true, true),
    ("tun_metadata3", "", "1", "1/1", true, true),
    ("tun_metadata4", "", "1", "1/1", true, true),
    ("tun_metadata5", "", "1", "1/1", true, true),
    ("tun_metadata6", "", "1", "1/1", true, true),
];

#[test]
fn fields_take_masks_and_values_as_they_do_there() {
    let mut lines = Vec::new();
    for (name, base, value, masked, maskable, writable) in FIELDS {
        lines.extend([
            (format!("{base},{name}={value} actions=drop"), true),
            (format!("{base},{name}={masked} actions=drop"), maskable),
            (format!("{base} actions=set_field:{value}->{name}"), writable),
            (format!("{base} actions=set_field:{masked}->{name}"), writable && maskable),
        ]);
        if writable {
            // The lowest bits of the TOS are ECN's.
            let bit = if name == "nw_tos" { 2 } else { 0 };
            lines.push((format!("{base} actions=load:1->{name}[{bit}]"), true));
        }
        if !base.is_empty() {
            lines.push((format!("actions=set_field:{value}->{name}"), false));
            lines.push((format!("actions=load:1->{name}[0]"), false));
        }
    }
    compare(lines.iter().map(|(line, accepted)| (line.as_str(), *accepted)));
}

#[test]
fn the_table_above_has_every_field_that_open_vswitch_has() {
    // Not there, or not to be had through ovs-ofctl; in_port may be set there.
    let others = [
        "in_port",
        "dp_hash",
        "conj_id",
        "packet_type",
        "actset_output",
        "skb_priority",
        "ct_state",
        "ct_zone",
        "ct_mark",
        "ct_label",
        "ct_nw_proto",
        "ct_nw_src",
        "ct_nw_dst",
        "ct_ipv6_src",
        "ct_ipv6_dst",
        "ct_tp_src",
        "ct_tp_dst",
        "tun_opt_data",
        "malformed",
        "recirc_id",
        "tun_flags",
        "tun_tos",
        "tun_ttl",
        "tun_type",
        "tun_gtpu_flags",
        "tun_gtpu_msgtype",
        "tun_opt_class",
        "tun_opt_type",
        "tun_opt_len",
        "vlan_tpid",
        "vlan_tci1",
        "mpls_lse1",
        "mpls_lse2",
        "tcp_flags",
    ];
    for info in Field::all() {
        let row = FIELDS.iter().find(|row| Field::by_name(row.0) == Some(info.field));
        match row {
            Some(row) => {
                let (_, base, .., maskable, writable) = *row;
                let vlan_vid = row.0 == "vlan_vid";
                assert!(vlan_vid || info.maskable == maskable, "{}", info.name);
                assert_eq!(info.writable, writable, "{}", info.name);
                let free = matches!(
                    info.prerequisite,
                    Prerequisite::None | Prerequisite::Tunnel | Prerequisite::Vlan
                );
                assert_eq!(base.is_empty(), free, "{}", info.name);
            }
            None if (Field::Reg1..=Field::Reg15).contains(&info.field) => {}
            None => assert!(others.contains(&info.name), "{}", info.name),
        }
    }
}
