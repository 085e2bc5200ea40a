//! Random rules with `ct`.

use std::fmt::Write as _;

use super::super::packets::Random;
use super::super::rules::Rules;

/// Tables: 0 is the first that packets meet. The next after these shows what they have found, and the last is shown original tuples.
const TABLES: u32 = 5;

/// Shows a packet's connection: copies of the packet have fields of it in their Ethernet addresses.
pub(super) const SHOWN: &str = "move:NXM_NX_CT_STATE[0..15]->NXM_OF_ETH_SRC[0..15],move:NXM_NX_CT_ZONE[]->NXM_OF_ETH_SRC[16..31],\
     move:NXM_NX_CT_MARK[]->NXM_OF_ETH_DST[0..31],output:3,\
     move:NXM_NX_CT_LABEL[0..31]->NXM_OF_ETH_DST[0..31],move:NXM_NX_CT_LABEL[96..127]->NXM_OF_ETH_SRC[0..31],output:4";

/// Shows the original tuple, which only packets that have met `ct` have.
pub(super) fn shown_tuple(family: &str) -> String {
    let [from, to] = match family {
        "ip" => ["NW_SRC[]", "NW_DST[]"],
        _ => ["IPV6_SRC[0..31]", "IPV6_DST[0..31]"],
    };
    format!(
        "move:NXM_NX_CT_{from}->NXM_OF_ETH_DST[0..31],move:NXM_NX_CT_{to}->NXM_OF_ETH_SRC[0..31],\
         move:NXM_NX_CT_NW_PROTO[]->NXM_OF_ETH_SRC[32..39],output:3,\
         move:NXM_NX_CT_TP_SRC[]->NXM_OF_ETH_DST[0..15],move:NXM_NX_CT_TP_DST[]->NXM_OF_ETH_DST[16..31],output:4"
    )
}

/// Shows the source of a packet that has no connection.
fn shown_source(family: &str) -> String {
    let from = if family == "ip" { "OF_IP_SRC[]" } else { "NX_IPV6_SRC[0..31]" };
    format!("move:NXM_{from}->NXM_OF_ETH_DST[0..31],output:3")
}

fn zone(r: &mut Random) -> String {
    match r.below(6) {
        0 => String::new(),
        1 => "zone=NXM_NX_REG0[0..15],".to_owned(),
        _ => format!("zone={},", r.pick(&[1, 2])),
    }
}

fn nat(r: &mut Random, family: &str) -> String {
    let (source, destination) = match family {
        "ip" => ("198.51.100.1", "10.0.0.9"),
        _ => ("[2001:db8::c633:6401]", "[2001:db8::a00:9]"),
    };
    let plain = |text: &str| text.trim_matches(['[', ']']).to_owned();
    // Not `nat` alone: Open vSwitch 3.1 then keeps a reply tuple of zeros.
    match r.below(5) {
        0 => format!("nat(src={source}:5000)"),
        1 => format!("nat(src={})", plain(source)),
        2 => format!("nat(dst={destination}:8080)"),
        3 => format!("nat(dst={})", plain(destination)),
        _ => format!("nat(src={})", if family == "ip" { "0.0.0.0" } else { "::" }),
    }
}

fn exec(r: &mut Random) -> String {
    match r.below(8) {
        0 => "exec(set_field:0x5->ct_mark)".to_owned(),
        1 => "exec(set_field:0x30/0xf0->ct_mark)".to_owned(),
        2 => "exec(load:0x7->NXM_NX_CT_MARK[4..7],set_field:0x1234->ct_label)".to_owned(),
        3 => "exec(move:NXM_NX_REG1[]->NXM_NX_CT_LABEL[96..127])".to_owned(),
        4 => "exec(move:NXM_NX_REG1[0..7]->NXM_NX_CT_MARK[8..15])".to_owned(),
        _ => String::new(),
    }
}

/// The kinds of `ct` that a case has. Open vSwitch 3.1 does not forget a translated connection that another replaces, and now and
/// then crashes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Translates,
    Forces,
    /// Datagrams come in fragments. Where these meet `ct` on several ways, what Open vSwitch does depends on bursts.
    Fragments,
}

/// An action `ct`, of a table.
fn ct(r: &mut Random, table: u32, family: &str, kind: Kind) -> String {
    let (mut parts, mut zone) = (Vec::new(), zone(r));
    if r.below(3) > 0 {
        parts.push("commit".to_owned());
        if kind == Kind::Forces && r.one_in(4) {
            parts.push("force".to_owned());
        }
        parts.extend(Some(exec(r)).filter(|text| !text.is_empty()));
        if kind == Kind::Translates && r.one_in(2) {
            parts.push(nat(r, family));
            // Where a zone translates twice, Open vSwitch finds one of the connections.
            zone = format!("zone={},", 10 + r.below(60_000));
        }
    } else if r.one_in(2) {
        parts.push("nat".to_owned());
    }
    if table + 1 < TABLES && r.below(5) > 0 {
        parts.push(format!("table={}", table + 1 + r.below(TABLES - table - 1)));
    }
    format!("ct({zone}{})", parts.join(","))
}

fn match_of(r: &mut Random, family: &str) -> &'static str {
    // Behind a `ct` without a table, rules see the ends that a translated packet came with.
    let [from, to] = match family {
        "ip" => ["nw_src=198.51.100.1", "nw_dst=10.0.0.9"],
        _ => ["ipv6_src=2001:db8::c633:6401", "ipv6_dst=2001:db8::a00:9"],
    };
    r.pick(&[
        from,
        to,
        "ct_state=+trk+new",
        "ct_state=+trk+est",
        "ct_state=+trk+rel",
        "ct_state=+trk+inv",
        "ct_state=-trk",
        "ct_state=+est+rpl",
        "ct_state=+new-rel",
        "ct_mark=0x5",
        "ct_mark=0x30/0xf0",
        "ct_label=0x1234",
        "ct_zone=1",
        "in_port=1",
        "in_port=2",
        "",
    ])
}

/// The actions of a rule. In a case with groups, rules call no tables but the last, and nothing follows a group: in Open vSwitch, the
/// connection and the ends of its buckets' packets are those of the packet behind it, too.
fn actions(r: &mut Random, table: u32, family: &str, (kind, groups): (Kind, bool)) -> String {
    let mut all: Vec<String> = Vec::new();
    if r.one_in(3) {
        all.push(format!("set_field:{:#x}->reg0", r.pick(&[1, 2])));
    }
    if r.one_in(6) {
        all.push("set_field:0xab->reg1".to_owned());
    }
    for _ in 0..=r.below(2) {
        let next = || format!("{}", table + 1);
        all.push(match r.below(15) {
            0 => "ct_clear".to_owned(),
            1 => format!("clone({})", ct(r, table, family, kind)),
            2 if !groups => format!("resubmit(,{})", next()),
            3 => "dec_ttl".to_owned(),
            // Once in a rule, and other bits in each table: a value that the field has already is a difference.
            4 if family == "ip" && !all.iter().any(|action| action.contains("nw_dst")) => {
                format!("set_field:0.0.0.{0}/0.0.0.{0}->nw_dst", 4 << table)
            }
            5 => "set_field:16->ip_dscp".to_owned(),
            // As OVN leads to a port: what follows the call only takes its value back.
            6 if !groups => format!(
                "push:NXM_NX_REG0[],set_field:{}->reg0,resubmit(,{}),pop:NXM_NX_REG0[]",
                r.pick(&[1, 2]),
                next()
            ),
            _ => ct(r, table, family, kind),
        });
    }
    all.dedup();
    if groups && r.one_in(2) {
        all.push(format!("group:{}", group(table, family)));
    } else if r.one_in(2) {
        all.push(format!("resubmit(,{})", TABLES));
    }
    all.join(",")
}

/// The number of a table's group.
fn group(table: u32, family: &str) -> u32 {
    2 * table + 1 + u32::from(family == "ipv6")
}

/// A group for each table: its last bucket looks the packet's connection up, as that of a load balancer does. None selects: for its hash,
/// Open vSwitch takes the packet through its caches again, and the packet that a copy is made of ends there.
fn groups(r: &mut Random, kind: Kind) -> String {
    let mut text = String::new();
    for table in 0..TABLES {
        for family in ["ip", "ipv6"] {
            let first = if r.one_in(3) { "type=all,bucket=actions=output:3," } else { "type=indirect," };
            let (number, last) = (group(table, family), ct(r, table, family, kind));
            writeln!(text, "group_id={number},{first}bucket=actions=set_field:0xcd->reg1,{last}")
                .expect("text takes text");
        }
    }
    text
}

/// The tables that meet fragments: a firewall, perhaps with translation.
fn for_fragments(r: &mut Random) -> String {
    let mut text = String::new();
    for family in ["ip", "ipv6"] {
        let commit = if r.one_in(2) { format!(",{}", nat(r, family)) } else { String::new() };
        let plain = if commit.is_empty() { "" } else { ",nat" };
        write!(
            text,
            "table=0,{family},actions=ct(zone=1,table=1{plain})\n\
             table=1,{family},ct_state=+new+trk,actions=ct(zone=1,commit,table=2{commit})\n\
             table=1,{family},ct_state=+est+trk,actions=resubmit(,{TABLES})\n\
             table=1,{family},ct_state=+inv+trk,actions=resubmit(,{TABLES})\n\
             table=2,{family},actions=resubmit(,{TABLES})\n"
        )
        .expect("text takes text");
    }
    text
}

/// The rules of a case: each table has some for IPv4, and as many for IPv6.
pub(super) fn rules(r: &mut Random, kind: Kind) -> Rules {
    let mut text = String::new();
    let mut cookie = 0;
    let has_groups = kind != Kind::Fragments && r.one_in(2);
    let groups = if has_groups { groups(r, kind) } else { String::new() };
    if kind == Kind::Fragments {
        text = for_fragments(r);
    }
    let tables = if kind == Kind::Fragments { 0 } else { TABLES };
    for table in 0..tables {
        for family in ["ip", "ipv6"] {
            for priority in (1..=2 + r.below(3)).rev() {
                cookie += 1;
                let matches = if priority == 1 { "" } else { match_of(r, family) };
                let mut actions = actions(r, table, family, (kind, has_groups));
                // Open vSwitch keeps no invalid packet's connection, and refuses rules that would.
                let keeps = |actions: &str| actions.contains("commit") || actions.contains("group");
                while matches.contains("+inv") && keeps(&actions) {
                    actions = self::actions(r, table, family, (kind, has_groups));
                }
                let comma = if matches.is_empty() { "" } else { "," };
                writeln!(
                    text,
                    "table={table},priority={priority},cookie={cookie},{family}{comma}{matches},actions={actions}"
                )
                .expect("text takes text");
            }
        }
    }
    for family in ["ip", "ipv6"] {
        for (from, to) in [(1, 2), (2, 1)] {
            for (state, tuple) in [
                // It forgets ports of later fragments, and shows none of any fragment.
                ("+trk-inv-rel,ip_frag=later", String::new()),
                ("+trk-inv-rel,ip_frag=first", format!(",{}", shown_tuple(family))),
                (
                    "+trk-inv-rel,ip_frag=no",
                    format!(
                        ",{0},resubmit(7,{1},ct),output:3,ct_clear,resubmit(,{1},ct)",
                        shown_tuple(family),
                        TABLES + 1
                    ),
                ),
                // Open vSwitch does not move the tuples of errors.
                ("+trk-inv+rel", String::new()),
                ("+trk+inv", String::new()),
                ("-trk", format!(",{}", shown_source(family))),
            ] {
                cookie += 1;
                writeln!(
                    text,
                    "table={TABLES},cookie={cookie},{family},in_port={from},ct_state={state},actions=output:{to},{SHOWN}{tuple}"
                )
                .expect("text takes text");
            }
        }
    }
    text += &of_originals(r);
    Rules::new(text, groups, TABLES as u8 + 2)
}

/// Rules that are shown the tuple of the connection's original direction, where that of the packet is the connection's.
fn of_originals(r: &mut Random) -> String {
    let mut text = String::new();
    for family in ["ip", "ipv6"] {
        let (v6, icmp) = (family == "ipv6", if family == "ip" { "icmp" } else { "icmp6" });
        let source = if v6 { "ipv6_src=2001:db8::a00:" } else { "nw_src=10.0.0." };
        let (server, outside) = match v6 {
            true => ("ipv6_dst=2001:db8::c000:201", "ct_ipv6_dst=2001:db8::c633:6401"),
            false => ("nw_dst=192.0.2.1", "ct_nw_dst=198.51.100.1"),
        };
        let suffix = if v6 { "6" } else { "" };
        let all = [
            format!("tcp{suffix},tp_dst=80"),
            format!("udp{suffix},tp_src=1000/0xfffe"),
            format!("{icmp},icmp_type={}", if v6 { 128 } else { 8 }),
            format!("{family},nw_proto=47"),
            format!("{family},{source}1"),
            format!("{family},{server}"),
            format!("{family},ct_state=+trk-inv,ct_{source}2"),
            format!("{family},ct_state=+trk-inv,{outside}"),
            format!("{family},ct_state=+trk-inv,ct_nw_proto=17"),
            format!("{family},ct_state=+trk-inv,ct_nw_proto=6,ct_tp_src=80"),
            format!("{family},in_port=7,ct_state=+new"),
        ];
        for priority in 1..3 + r.below(4) {
            let which = r.below(all.len() as u32) as usize;
            let cookie = 1000 + which;
            writeln!(
                text,
                "table={},priority={priority},cookie={cookie},{},actions=load:{which}->NXM_OF_ETH_DST[0..15],output:4",
                TABLES + 1,
                all[which]
            )
            .expect("text takes text");
        }
    }
    text
}
