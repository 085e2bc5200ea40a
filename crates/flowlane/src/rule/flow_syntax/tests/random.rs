//! Random rules: each is read back as it is printed.

use proptest::prelude::*;

use super::super::super::action::{
    Bundle, ConnectionTracking, Controller, EncapsulateHeader, Learn, LearnSource, LearnSpec, MemberChoice,
    Multipath, MultipathAlgorithm, Nat, NatRange, PacketHash, PortNo, Sample, SampleDirection, SetForm, Zone,
};
use super::super::super::{Action, Match, Priority, ReadOptions, Rule};
use super::super::known::Known;
use super::super::{print_rule, read};
use super::{rule, set};
use crate::packet::FieldRef;
use crate::packet::fields::{Field, Prerequisite, VLAN_PRESENT};

/// A base that fulfils each prerequisite.
fn base(prerequisite: Prerequisite) -> &'static str {
    match prerequisite {
        Prerequisite::None | Prerequisite::Tunnel => "",
        Prerequisite::Vlan => "vlan_tci=0x1000/0x1000",
        Prerequisite::Mpls => "mpls",
        Prerequisite::Arp => "arp",
        Prerequisite::Ip | Prerequisite::Ipv4 => "ip",
        Prerequisite::Ipv6 => "ipv6",
        Prerequisite::Ports | Prerequisite::Tcp => "tcp6",
        Prerequisite::Icmp => "icmp6",
        Prerequisite::NeighbourDiscovery => "icmp6,icmp_type=135",
        Prerequisite::Nsh => "dl_type=0x894f",
    }
}

fn any_match() -> impl Strategy<Value = Match> {
    let fields = Field::named().len();
    let parts = prop::collection::vec((0..fields, any::<u128>(), any::<u128>(), any::<bool>()), 0..4);
    let ranges = (any::<bool>(), any::<u16>(), any::<u16>());
    (0..fields, parts, ranges, any::<bool>()).prop_map(|(kind, parts, (ranged, a, b), wild)| {
        let prerequisite = Field::named()[kind].prerequisite;
        let mut m = rule(&format!("{} actions=drop", base(prerequisite))).matches;
        for (field, value, mask, exact) in parts {
            let info = &Field::named()[field];
            // Any mask on any field that the base allows; or, on request, without regard to that.
            if Known::of(&m).lacks_to_match(info.field, info.name).is_none() || wild {
                m.set_masked(info.field, value & info.ones(), if exact { u128::MAX } else { mask });
            }
        }
        if ranged && Known::of(&m).lacks_to_match(Field::TpDst, "tp_dst").is_none() {
            m.set_masked(Field::TpDst, 0, 0).set_range(Field::TpDst, a.min(b), a.max(b));
        }
        m
    })
}

/// Some bits of a field that every packet has.
fn any_part() -> impl Strategy<Value = FieldRef> {
    const FIELDS: [Field; 9] = [
        Field::Reg0,
        Field::XReg2,
        Field::XxReg1,
        Field::EthSrc,
        Field::InPort,
        Field::Metadata,
        Field::TunId,
        Field::TunMetadata3,
        Field::PktMark,
    ];
    (prop::sample::select(&FIELDS[..]), any::<u8>(), any::<u8>(), any::<bool>()).prop_map(
        |(field, first, count, is_whole)| {
            let width = field.info().width;
            let first = first % width;
            match is_whole {
                true => FieldRef::whole(field),
                false => FieldRef::new(field, first, 1 + count % (width - first)).unwrap(),
            }
        },
    )
}

/// Some bits of a register, of this number.
fn bits(count: u8) -> impl Strategy<Value = FieldRef> {
    (0..=128 - count).prop_map(move |first| FieldRef::new(Field::XxReg2, first, count).unwrap())
}

fn any_port() -> impl Strategy<Value = PortNo> {
    prop_oneof![(0..=PortNo::MAX.0).prop_map(PortNo), Just(PortNo::LOCAL)]
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..9)
}

/// Actions that set fields.
fn any_set() -> impl Strategy<Value = Action> {
    (0..Field::named().len(), any::<u128>(), any::<u128>()).prop_filter_map("writable", |(f, v, m)| {
        let info = &Field::named()[f];
        let run = (info.ones() << (m % u128::from(info.width))) & info.ones();
        let mask = match m % 3 {
            0 => info.ones(),
            _ if info.maskable => m & info.ones(),
            _ => run,
        };
        let action = Action::set_field(info.field, v & mask, mask);
        let is_run = FieldRef::of_mask(info.field, mask).is_some();
        let action = match m >> 2 & 1 {
            0 if is_run && mask != 0 => set(SetForm::Load, info.field, v & mask, mask),
            _ => action,
        };
        (info.writable && mask != 0).then_some(action)
    })
}

/// Actions that have numbers, and no others in them.
fn any_plain() -> impl Strategy<Value = Action> {
    (0..26u8, any::<u16>(), any_port()).prop_map(|(kind, n, port)| match kind {
        0 => Action::Output(port),
        1 => Action::InPort,
        2 => Action::Flood,
        3 => Action::Normal,
        4 => Action::controller(n),
        5 => Action::sample(n),
        6 => Action::PushVlan(0x88a8),
        7 => Action::PopVlan,
        8 => Action::PushMpls(0x8848),
        9 => Action::PopMpls(n),
        10 => Action::DecTtl(vec![n; usize::from(n % 3)]),
        11 => Action::DecMplsTtl,
        12 => Action::Meter(n.into()),
        13 => Action::Encapsulate(n.into()),
        14 => Action::Count(n.into()),
        15 => Action::OutputTruncated { port, max_len: u32::from(n) + 14 },
        16 => Action::Enqueue { port, queue: n.into() },
        17 => Action::All,
        18 => Action::SetQueue(n.into()),
        19 => Action::PopQueue,
        20 => Action::DecNshTtl,
        21 => Action::Resubmit {
            in_port: (n % 2 == 0).then_some(port),
            table: (n % 3 != 0).then_some((n % 255) as u8).or_else(|| (n % 2 != 0).then_some(9)),
            original: n % 5 == 0,
        },
        22 => Action::Group(n.into()),
        23 => Action::FinTimeout { idle_s: n % 3, hard_s: n / 3 },
        24 => Action::ClearConnection,
        _ => Action::Exit,
    })
}

/// Actions that are about parts of fields.
fn any_of_parts() -> impl Strategy<Value = Action> {
    let moves = (any_part(), any::<u8>()).prop_map(|(from, first)| {
        let first = first % (129 - from.bits());
        Action::Move { from, to: FieldRef::new(Field::XxReg3, first, from.bits()).unwrap() }
    });
    let hash = prop::sample::select(&[PacketHash::EthSrc, PacketHash::SymmetricL3L4Udp][..]);
    let multipath = (hash, any::<u16>(), 1..=65536u32, any::<u32>(), bits(17));
    let multipath = multipath.prop_map(|(hash, basis, links, argument, to)| {
        let algorithm = MultipathAlgorithm::HashThreshold;
        Action::Multipath(Box::new(Multipath { hash, basis, algorithm, links, argument, to }))
    });
    let members = prop::collection::vec(any_port(), 0..4);
    let bundle = (members, any::<u16>(), prop::option::of(bits(16))).prop_map(|(members, basis, to)| {
        let (hash, algorithm) = (PacketHash::NwDst, MemberChoice::Hrw);
        Action::Bundle(Box::new(Bundle { hash, basis, algorithm, members, to }))
    });
    let larger = (any::<u16>(), bits(1)).prop_map(|(bytes, to)| Action::CheckPacketLarger { bytes, to });
    let output = (any_part(), any::<u16>()).prop_map(|(port, max_len)| Action::OutputField { port, max_len });
    prop_oneof![
        moves,
        multipath,
        bundle,
        larger,
        output,
        any_part().prop_map(Action::Push),
        any_part().prop_map(Action::Pop),
        Just(Action::DeleteField(Field::TunMetadata4)),
    ]
}

fn any_learn() -> impl Strategy<Value = Action> {
    let spec = (0..5u8, any_part(), any::<u128>()).prop_map(|(kind, to, value)| {
        let value = LearnSource::Value(value & to.ones());
        let from = LearnSource::Field(FieldRef::new(Field::XxReg0, 0, to.bits()).unwrap());
        match kind {
            0 => LearnSpec::Match { to, from: value },
            1 => LearnSpec::Match { to, from },
            2 => LearnSpec::Load { to, from: value },
            3 => LearnSpec::Load { to, from },
            _ => LearnSpec::Output(to),
        }
    });
    let specs = prop::collection::vec(spec, 0..4);
    (specs, any::<[u16; 6]>(), any::<u64>(), prop::option::of(bits(1)), 0..255u8).prop_map(
        |(specs, [idle, hard, fin_idle, fin_hard, priority, limit], cookie, result, table)| {
            Action::Learn(Box::new(Learn {
                idle_timeout_s: idle,
                hard_timeout_s: hard,
                priority,
                table,
                cookie,
                fin_idle_timeout_s: fin_idle,
                fin_hard_timeout_s: fin_hard,
                send_flow_removed: idle % 2 == 0,
                delete_learned: idle % 3 == 0,
                limit: limit.into(),
                result,
                specs,
            }))
        },
    )
}

/// Actions of `ct`, for matches of IPv4.
fn any_ct() -> impl Strategy<Value = Action> {
    let numbers = any::<(u16, u32, u8, u128)>();
    let zone = prop_oneof![any::<u16>().prop_map(Zone::Number), bits(16).prop_map(Zone::Field)];
    (numbers, zone, prop::option::of(0..255u8)).prop_map(|((n, address, kind, label), zone, table)| {
        let first = std::net::IpAddr::from(address.to_be_bytes());
        let last = std::net::IpAddr::from(address.saturating_add(9).to_be_bytes());
        let addresses = (kind % 3 != 0).then_some((first, last));
        let ports = (kind % 3 == 1).then_some((n, n.saturating_add(5)));
        let range = (kind & 1 != 0).then_some(NatRange { is_source: n % 2 == 0, addresses, ports });
        let is_translated = range.is_some();
        let nat = Nat {
            range,
            persistent: is_translated && n % 5 == 0,
            hash: is_translated && n % 3 == 0,
            random: is_translated && n % 3 == 1,
        };
        let part = FieldRef::new(Field::CtMark, 3, 9).unwrap();
        let mut exec = Vec::new();
        if kind & 2 != 0 {
            exec.push(Action::Nat(Box::new(nat)));
        }
        if kind & 4 != 0 {
            exec.push(set(SetForm::SetField, Field::CtLabel, label, u128::MAX));
            exec.push(set(SetForm::Load, Field::CtMark, 8, part.mask()));
            let from = FieldRef::new(Field::EthSrc, 2, 9).unwrap();
            exec.push(Action::Move { from, to: part });
        }
        if kind & 8 != 0 {
            exec.push(Action::Nat(Box::default()));
        }
        let ct = ConnectionTracking { commit: true, force: n % 7 == 0, zone, table, alg: 0, exec };
        Action::ConnectionTracking(Box::new(ct))
    })
}

/// Actions with several arguments.
fn any_with_arguments() -> impl Strategy<Value = Action> {
    let numbers = any::<(u16, u8, u16, u32)>();
    (0..6u8, numbers, any_bytes(), any_port()).prop_map(|(kind, (n, reason, id, large), bytes, port)| {
        match kind {
            0 => Action::Controller(Box::new(Controller {
                max_len: n,
                reason,
                id,
                userdata: bytes,
                pause: n % 2 == 0,
                meter: (n % 3 == 0).then_some(large),
            })),
            1 => Action::Sample(Box::new(Sample {
                probability: n,
                collector_set_id: large,
                observation_domain_id: id.into(),
                observation_point_id: 7,
                port: (n % 2 == 0).then_some(port),
                direction: if n % 3 == 0 { SampleDirection::Egress } else { SampleDirection::Ingress },
            })),
            2 => Action::Note(bytes),
            3 => {
                let metadata_type = reason % 3;
                let tlvs = if metadata_type == 2 && !bytes.is_empty() { vec![(n, 7, bytes)] } else { vec![] };
                Action::EncapsulateHeader(EncapsulateHeader::Nsh { metadata_type, tlvs })
            }
            4 => Action::EncapsulateHeader(match n % 3 {
                0 => EncapsulateHeader::Ethernet,
                1 => EncapsulateHeader::Mpls,
                _ => EncapsulateHeader::MplsMulticast,
            }),
            _ => Action::Decapsulate((n % 2 == 0).then_some((n, id))),
        }
    })
}

fn any_action() -> impl Strategy<Value = Action> {
    let one =
        prop_oneof![any_set(), any_plain(), any_of_parts(), any_learn(), any_ct(), any_with_arguments(),];
    one.prop_recursive(3, 8, 3, |inner| prop::collection::vec(inner, 0..3).prop_map(Action::Clone))
}

/// The actions that a rule of these matches may have: `set_field` where the packets have the field, but for what has a name
/// in OpenFlow 1.0; and `ct` for IPv4, which keeps no connection of invalid packets.
fn allowed(known: &Known, actions: Vec<Action>) -> Vec<Action> {
    let mut known = known.clone();
    let mut out = Vec::new();
    for action in actions {
        let right = match &action {
            Action::SetField { field: Field::VlanTci, value, mask, .. } => {
                let present = u128::from(VLAN_PRESENT);
                mask & present == 0 || value & present != 0
            }
            Action::SetField { field, form, .. } => {
                *form == SetForm::Own
                    || known.lacks_to_act(*field, known.names().of(*field)).is_none()
                        && (*field != Field::VlanVid || known.lacks_to_act(*field, "vlan_vid").is_none())
            }
            Action::ConnectionTracking(ct) => {
                known.may_be(crate::packet::parse::ether_type::IPV4) && !(ct.commit && known.is_invalid())
            }
            Action::Resubmit { original: true, .. } => known.may_show_connection(),
            _ => true,
        };
        if right {
            let action = match action {
                Action::Clone(inner) => Action::Clone(allowed(&known, inner)),
                Action::SetField { field, value, mask, form, .. } if form != SetForm::Own => {
                    // Printed names are those of the packets' protocol.
                    let protocol = known.protocol_of(field, known.names().of(field));
                    Action::SetField { field, value, mask, form, protocol }
                }
                other => other,
            };
            known.after(&action);
            out.push(action);
        }
    }
    out
}

fn check(rule: &Rule) -> Result<(), TestCaseError> {
    let text = print_rule(rule);
    let back = read(&text, "printed", &ReadOptions::default());
    prop_assert_eq!(back.as_ref().map(|r| &r[0]), Ok(rule), "{}", text);
    Ok(())
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(
        table in 0..200u8,
        priority in any::<u16>(),
        cookie in any::<u64>(),
        matches in any_match(),
        actions in prop::collection::vec(any_action(), 0..5),
        written in prop::option::of(prop::collection::vec(any_action(), 0..3)),
        goto in prop::option::of(201..=254u8),
    ) {
        let mut actions = allowed(&Known::of(&matches), actions);
        let mut known = Known::of(&matches);
        actions.iter().for_each(|action| known.after(action));
        if let Some(written) = written {
            actions.push(Action::ClearActions);
            actions.push(Action::WriteActions(allowed(&known, written)));
        }
        actions.extend(goto.map(Action::Goto));
        check(&Rule { table, priority: Priority(priority.into()), cookie, matches, actions })?;
    }

    #[test]
    fn dimensions_of_a_conjunction_are_read_back(
        id in any::<u32>(),
        clause in any::<u8>(),
        clauses in 2..=64u8,
        note in any_bytes(),
    ) {
        let conjunction = Action::Conjunction { id, clause: clause % clauses, clauses };
        check(&Rule::new(Match::any(), vec![conjunction, Action::Note(note)]))?;
    }
}

const LINES: [&str; 8] = [
    "tcp,ct_state=+trk-new actions=ct(commit,zone=reg0[0..15],nat(src=1.2.3.4-1.2.3.9:5-7,random),exec(load:1->ct_mark[0..3]))",
    "ipv6 actions=ct(commit,nat(dst=[fe80::1]-[fe80::9]:5-7),alg=ftp),ct_clear,clone(write_actions(output:1))",
    "udp actions=learn(table=2,dl_type=0x800,nw_proto=17,udp_dst=udp_src,reg0[3..5]=7,load:reg1[0..3]->reg2[5..8],output:in_port)",
    "actions=multipath(eth_src,50,hrw,12,0,reg0[0..3]),bundle_load(nw_src,0,hrw,ofport,reg0[],members:[1,LOCAL])",
    "actions=encap(nsh(md_type=2,tlv(0x1000,10,0x12345678))),decap(packet_type(ns=1,type=0x800)),check_pkt_larger(9)->reg0[3]",
    "actions=controller(reason=no_match,userdata=00.11,pause),sample(probability=5,egress),note:00.11,conjunction(1,2/3)",
    "ct_state=+trk-inv,packet_type=(1,0x894f),nsh_c1=5/7,tun_metadata3=5,tun_flags=+oam,actions=output(port=1,max_len=64),enqueue:1:2,resubmit(1,2,ct)",
    "importance=3,in_port=LOCAL,tcp_flags=syn|ack actions=push:reg0[3],pop:NXM_NX_REG1[],move:nw_tos[2..7]->reg0[0..5],dec_ttl(1,2)",
];

proptest! {
    #[test]
    fn a_line_with_a_hole_makes_no_reader_panic(
        line in prop::sample::select(&LINES[..]),
        at in any::<prop::sample::Index>(),
        len in 0..3usize,
        with in "\\PC{0,3}|[\\[\\]():,.=>-]{0,2}",
    ) {
        let at = at.index(line.len());
        let mut text = line.to_owned();
        text.replace_range(at..(at + len).min(line.len()), &with);
        if let Ok(rules) = read(&text, "hole", &ReadOptions::default()) {
            let printed = print_rule(&rules[0]);
            let back = read(&printed, "printed", &ReadOptions::default());
            prop_assert_eq!(back.as_ref().map(|r| &r[0]), Ok(&rules[0]), "{}", printed);
        }
    }
}

#[test]
fn actions_nest_so_deep_and_no_deeper() {
    let line = |depth: usize| format!("actions={}output:1{}", "clone(".repeat(depth), ")".repeat(depth));
    let read = |depth| read(&line(depth), "nested", &ReadOptions::default());
    assert!(read(15).is_ok());
    assert!(read(16).unwrap_err().to_string().contains("at most 16 deep"));
    assert!(read(5000).is_err());
}

#[test]
fn nested_actions_are_checked_by_the_caller_too() {
    let no_port = |action: &Action| match action {
        Action::Output(PortNo(7)) => Err("there is no port 7".to_owned()),
        _ => Ok(()),
    };
    let options = ReadOptions { check_action: &no_port, ..ReadOptions::default() };
    for line in ["actions=clone(output:7)", "actions=output:1,write_actions(output:7)"] {
        let error = read(line, "t", &options).unwrap_err().to_string();
        assert!(error.ends_with("`output:7`: there is no port 7"), "{error}");
    }
}
