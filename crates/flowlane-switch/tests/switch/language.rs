//! What rules say, as packets have it: text to the reader, a frame to the switch, bytes compared.

use flowlane::classify::TupleSearch;
use flowlane::rule::action::PortNo;
use flowlane::rule::{ReadOptions, read};
use flowlane_switch::datapath::Pipeline;
use flowlane_switch::datapath::{CacheConfig, Clock, Egress, Lookup, PortSlot, Worker};
use flowlane_switch::port::{MemoryHandle, MemoryPort};
use flowlane_switch::ruleset::Miss;
use flowlane_switch::state::fdb::Fdb;

/// Returns the frames that leave through port 2 of a switch with these rules, in tables 0 and 1, for a frame on port 1.
fn sent(rules: &str, frame: &[u8]) -> Vec<Vec<u8>> {
    let mut pipeline = Pipeline::new();
    for table in 0..2 {
        pipeline.add_table(table, "", Box::new(TupleSearch::new(100, 7)), Miss::Drop);
    }
    for rule in read(rules, "rules", None, &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}")) {
        pipeline.add_rule(rule).expect("the rules are right");
    }
    let mut egress = Egress::new(Fdb::new(64, 300, 1), 1);
    let mut handles = Vec::new();
    for number in 1..=2 {
        let (port, handle) = MemoryPort::new();
        egress.ports.add(PortSlot::new(PortNo(number), &format!("port{number}"), "", Box::new(port)));
        handles.push(handle);
    }
    let lookup = Lookup::new(pipeline, CacheConfig::default());
    let mut worker = Worker::new(lookup, egress, 32, Clock::Frames);
    // Twice: through the tables, then through the caches.
    worker.inject(0, &[frame]).expect("ports in memory do not fail");
    let first = handles[1].take_sent();
    worker.inject(0, &[frame]).expect("ports in memory do not fail");
    assert_eq!(MemoryHandle::take_sent(&handles[1]), first);
    first
}

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// Tags, each as TPID and TCI, then IPv4 or IPv6 with a TOS, without payload (protocol 59 and 253).
fn packet(tags: &[[u8; 4]], v6: bool, tos: u8) -> Vec<u8> {
    let mut ip = if v6 {
        let mut ip = vec![0x60 | tos >> 4, tos << 4, 0, 0, 0, 0, 59, 64];
        ip.extend([0xfd; 32]);
        ip
    } else {
        vec![0x45, tos, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]
    };
    if !v6 {
        let checksum = !sum(&ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    let eth_type: [u8; 2] = if v6 { [0x86, 0xdd] } else { [8, 0] };
    [&MACS[..], tags.as_flattened(), &eth_type, &ip].concat()
}

/// The sum of RFC 1071.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    (sum % 0xffff) as u16
}

#[test]
fn nw_tos_matches_the_dscp_whatever_ecn_says() {
    for v6 in [false, true] {
        let rule = if v6 { "ipv6,nw_tos=32 actions=output:2" } else { "ip,nw_tos=32 actions=output:2" };
        for (tos, matches) in [(32, true), (33, true), (35, true), (36, false), (28, false), (0, false)] {
            let frame = packet(&[], v6, tos);
            let wanted = if matches { vec![frame.clone()] } else { vec![] };
            assert_eq!(sent(rule, &frame), wanted, "TOS {tos}, IPv6 {v6}");
        }
    }
}

#[test]
fn setting_nw_tos_keeps_ecn() {
    for action in
        ["set_field:64->nw_tos", "mod_nw_tos:64", "load:64->NXM_OF_IP_TOS[]", "set_field:16->ip_dscp"]
    {
        for v6 in [false, true] {
            let rule = format!("{} actions={action},output:2", if v6 { "ipv6" } else { "ip" });
            for (before, after) in [(0, 64), (3, 67), (0xfd, 65), (66, 66)] {
                let out = sent(&rule, &packet(&[], v6, before));
                assert_eq!(out, [packet(&[], v6, after)], "{rule}: TOS {before}");
            }
        }
    }
}

#[test]
fn a_vlan_tci_of_zero_removes_the_outermost_tag() {
    let (outer, inner) = ([0x81, 0, 0x60, 5], [0x81, 0, 0, 7]);
    for action in ["set_field:0->vlan_tci", "load:0->NXM_OF_VLAN_TCI[]", "set_field:0/0xffff->vlan_tci"] {
        let rule = format!("actions={action},output:2");
        for (before, after) in [(vec![outer], vec![]), (vec![outer, inner], vec![inner]), (vec![], vec![])] {
            let out = sent(&rule, &packet(&before, false, 0));
            assert_eq!(out, [packet(&after, false, 0)], "{action}: {before:02x?}");
        }
        // Later tables see no tag.
        let rules = format!("actions={action},goto_table:1\ntable=1,dl_vlan=0xffff actions=output:2");
        assert_eq!(sent(&rules, &packet(&[outer], false, 0)), [packet(&[], false, 0)], "{action}");
    }
    // The VID alone: the tag stays.
    let out = sent("actions=load:0->NXM_OF_VLAN_TCI[0..11],output:2", &packet(&[outer], false, 0));
    assert_eq!(out, [packet(&[[0x81, 0, 0x60, 0]], false, 0)]);
}
